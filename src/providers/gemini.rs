//! Google Gemini: generation, streams, token counting and embeddings below one path.
//!
//! The envelope is `google.rpc.Status`. RESOURCE_EXHAUSTED alone does not tell a minute's limit from a day's: a certificate needs the
//! quota failures, all of them by the minute. The newer string codes of the same host are told apart by name.

use serde_json::Value;

use super::adapter::{Adapter, Envelope, Framing};
use super::json_envelope::{at, text_at};
use super::outbound_headers::AuthScheme;
use super::pushback::DelaySource;
use super::request_style::RequestStyle;
use super::rules::{Kind, Path, Rule, Test};
use crate::core::api::{Api, ApiSet};
use crate::core::class::Class;

const CODE: Path = &["error", "code"];
const STATUS: Path = &["error", "status"];
const MESSAGE: Path = &["error", "message"];

/// The adapter.
pub static ADAPTER: Adapter = Adapter {
    name: "gemini",
    speaks: ApiSet::of(&[Api::Gemini]),
    default_base_url: Some("https://generativelanguage.googleapis.com"),
    auth: AuthScheme::XGoogApiKey,
    style: RequestStyle::Native,
    framing: Framing::EventStream,
    envelope: ENVELOPE,
    deny: &[DENY],
    rules: &[LIMITS, CLASSES],
    delays: &[DelaySource::RetryInfo],
};

pub(super) const ENVELOPE: Envelope = Envelope {
    in_array: true,
    ..Envelope::of(&[
        (&["error"], Kind::Object),
        (CODE, Kind::OptionalCode),
        (MESSAGE, Kind::Text),
        (STATUS, Kind::OptionalText),
        (&["error", "details"], Kind::OptionalArray),
    ])
};

/// Daily limits, limits of zero, and empty balances.
pub(super) const DENY: &[Rule] = &[
    Rule::names(
        "gemini.quota_of_day_or_zero",
        &[429],
        &[
            Test::Is(STATUS, &["RESOURCE_EXHAUSTED"]),
            Test::Holds(has_hard_quota),
        ],
        Class::QuotaHard,
    ),
    Rule::names(
        "gemini.quota_exceeded",
        &[429, 402],
        &[Test::Is(CODE, &["quota_exceeded", "payment_required"])],
        Class::QuotaHard,
    ),
    Rule::names(
        "gemini.prepay_empty",
        &[402],
        &[Test::Is(STATUS, &["RESOURCE_EXHAUSTED"])],
        Class::QuotaHard,
    )
    .on_status(),
];

const LIMITS: &[Rule] = &[
    Rule::certifies(
        "gemini.429.per_minute",
        &[429],
        &[
            Test::Is(STATUS, &["RESOURCE_EXHAUSTED"]),
            Test::Number(CODE, &[429]),
            Test::Holds(all_per_minute),
        ],
        Class::Throttle,
    ),
    Rule::certifies(
        "gemini.429.rate_limit_exceeded",
        &[429],
        &[Test::Is(
            CODE,
            &["rate_limit_exceeded", "too_many_requests"],
        )],
        Class::Throttle,
    ),
];

/// Everything else that the envelope names.
pub(super) const CLASSES: &[Rule] = &[
    Rule::names(
        "gemini.resource_exhausted",
        &[429],
        &[Test::Is(STATUS, &["RESOURCE_EXHAUSTED"])],
        Class::Throttle,
    ),
    Rule::names(
        "gemini.unavailable",
        &[503],
        &[Test::Is(STATUS, &["UNAVAILABLE"])],
        Class::Overload,
    ),
    Rule::names(
        "gemini.service_unavailable",
        &[503],
        &[Test::Is(CODE, &["service_unavailable"])],
        Class::Overload,
    ),
    Rule::names(
        "gemini.api_key_invalid",
        &[400, 401],
        &[Test::Holds(is_invalid_key)],
        Class::Auth,
    ),
    Rule::names(
        "gemini.token_count",
        &[400],
        &[
            Test::Is(STATUS, &["INVALID_ARGUMENT"]),
            Test::Contains(MESSAGE, &["exceeds the maximum number of tokens"]),
        ],
        Class::ContextOverflow,
    ),
    Rule::names(
        "gemini.unauthenticated",
        &[401],
        &[Test::Is(STATUS, &["UNAUTHENTICATED"])],
        Class::Auth,
    ),
    Rule::names(
        "gemini.permission_denied",
        &[403],
        &[Test::Is(STATUS, &["PERMISSION_DENIED"])],
        Class::Auth,
    ),
    Rule::names(
        "gemini.bad_request",
        &[400, 404],
        &[Test::Is(
            STATUS,
            &["INVALID_ARGUMENT", "FAILED_PRECONDITION", "NOT_FOUND"],
        )],
        Class::Config,
    ),
    Rule::names(
        "gemini.deadline_exceeded",
        &[504],
        &[Test::Is(STATUS, &["DEADLINE_EXCEEDED"])],
        Class::Timeout,
    ),
    Rule::names(
        "gemini.cancelled",
        &[499],
        &[Test::Is(STATUS, &["CANCELLED"])],
        Class::Ambiguous,
    ),
    Rule::names(
        "gemini.internal",
        &[500],
        &[Test::Is(STATUS, &["INTERNAL", "UNKNOWN"])],
        Class::ServerError,
    ),
    // Under another status than its own: which of them is meant cannot be told.
    Rule::names(
        "gemini.status_disagrees",
        &[],
        &[Test::Is(STATUS, &["RESOURCE_EXHAUSTED"])],
        Class::Ambiguous,
    )
    .on_status(),
];

fn details<'v>(body: &'v Value, name: &'static str) -> impl Iterator<Item = &'v Value> {
    let all = at(body, &["error", "details"]).and_then(Value::as_array);
    all.into_iter().flatten().filter(move |detail| {
        text_at(detail, &["@type"]).is_some_and(|found| found.ends_with(name))
    })
}

/// The violations of every quota failure; a failure without a list counts as one that says nothing.
fn violations(body: &Value) -> impl Iterator<Item = &Value> {
    details(body, "google.rpc.QuotaFailure").flat_map(|failure| {
        match at(failure, &["violations"]).and_then(Value::as_array) {
            Some(list) => list.as_slice(),
            None => std::slice::from_ref(failure),
        }
    })
}

fn is_zero(violation: &Value) -> bool {
    match at(violation, &["quotaValue"]) {
        Some(Value::String(text)) => text == "0",
        Some(value) => value.as_u64() == Some(0),
        None => false,
    }
}

fn has_hard_quota(body: &Value) -> bool {
    violations(body).any(|violation| {
        let id = text_at(violation, &["quotaId"]).unwrap_or_default();
        id.contains("PerDay") || is_zero(violation)
    })
}

fn all_per_minute(body: &Value) -> bool {
    let mut found = violations(body).peekable();
    found.peek().is_some()
        && found.all(|violation| {
            let id = text_at(violation, &["quotaId"]).unwrap_or_default();
            id.contains("PerMinute") && !is_zero(violation)
        })
}

fn is_invalid_key(body: &Value) -> bool {
    details(body, "google.rpc.ErrorInfo")
        .any(|info| text_at(info, &["reason"]) == Some("API_KEY_INVALID"))
}

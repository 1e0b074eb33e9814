//! Anthropic: messages and token counting.
//!
//! `error.details.error_code` is the stable discriminator; a code that is not known here makes the answer unproven. A 429 without
//! `retry-after` may be a spend cap, so it is ambiguous. Overload is 529; what carries `overloaded_error` elsewhere is not certified.

use super::adapter::{Adapter, Envelope, Framing};
use super::outbound_headers::AuthScheme;
use super::request_style::RequestStyle;
use super::rules::{Kind, Path, Rule, Test};
use crate::core::api::{Api, ApiSet};
use crate::core::class::Class;
use crate::core::outcome::Scope;

const TYPE: Path = &["error", "type"];
const MESSAGE: Path = &["error", "message"];
const DETAIL: Path = &["error", "details", "error_code"];

/// The adapter.
pub static ADAPTER: Adapter = Adapter {
    name: "anthropic",
    speaks: ApiSet::of(&[Api::AnthropicMessages, Api::AnthropicCountTokens]),
    default_base_url: Some("https://api.anthropic.com"),
    auth: AuthScheme::XApiKey,
    style: RequestStyle::Native,
    framing: Framing::EventStream,
    envelope: ENVELOPE,
    deny: &[DENY],
    rules: &[LIMITS, CLASSES],
    delays: &[],
};

pub(super) const ENVELOPE: Envelope = Envelope::of(&[
    (&["type"], Kind::Text),
    (&["error"], Kind::Object),
    (TYPE, Kind::Text),
    (MESSAGE, Kind::Text),
    (&["error", "details"], Kind::OptionalObject),
    (&["request_id"], Kind::OptionalText),
]);

/// Spend limits, and a rejection of work that had begun.
pub(super) const DENY: &[Rule] = &[
    Rule::names(
        "anthropic.spend_limit",
        &[429],
        &[Test::Is(
            DETAIL,
            &[
                "enforced_spend_limit_reached",
                "contract_spend_limit_reached",
            ],
        )],
        Class::QuotaHard,
    ),
    Rule::names(
        "anthropic.usage_limits",
        &[400],
        &[Test::Starts(
            MESSAGE,
            &["You have reached your specified API usage limits"],
        )],
        Class::QuotaHard,
    ),
    Rule::names(
        "anthropic.credit_balance",
        &[400],
        &[Test::Contains(MESSAGE, &["credit balance is too low"])],
        Class::QuotaHard,
    ),
    Rule::names(
        "anthropic.billing_error",
        &[402],
        &[Test::Is(TYPE, &["billing_error"])],
        Class::QuotaHard,
    ),
    Rule::names(
        "anthropic.compaction_unavailable",
        &[529],
        &[Test::Is(DETAIL, &["compaction_unavailable"])],
        Class::Overload,
    ),
];

/// Dedicated throttle and overload types under their own status.
pub(super) const LIMITS: &[Rule] = &[
    Rule::certifies(
        "anthropic.429.rate_limit_error",
        &[429],
        &[
            Test::Is(TYPE, &["rate_limit_error"]),
            Test::NullOr(DETAIL, &["ramp_limit_exceeded"]),
            Test::Header("retry-after"),
        ],
        Class::Throttle,
    )
    .on_status(),
    Rule::certifies(
        "anthropic.529.overloaded_error",
        &[529],
        &[Test::Is(TYPE, &["overloaded_error"]), Test::Null(DETAIL)],
        Class::Overload,
    ),
];

/// Everything else that the envelope names.
pub(super) const CLASSES: &[Rule] = &[
    Rule::names(
        "anthropic.stream.rate_limit_error",
        &[429],
        &[Test::Is(TYPE, &["rate_limit_error"])],
        Class::Throttle,
    )
    .on_stream(),
    Rule::names(
        "anthropic.overloaded",
        &[529],
        &[Test::Is(TYPE, &["overloaded_error"])],
        Class::Overload,
    ),
    Rule::names(
        "anthropic.prompt_too_long",
        &[400, 413],
        &[Test::Starts(MESSAGE, &["prompt is too long"])],
        Class::ContextOverflow,
    ),
    Rule::names(
        "anthropic.authentication_error",
        &[401],
        &[Test::Is(TYPE, &["authentication_error"])],
        Class::Auth,
    ),
    Rule::names(
        "anthropic.permission_error",
        &[403],
        &[Test::Is(TYPE, &["permission_error"])],
        Class::Auth,
    ),
    Rule::names(
        "anthropic.not_found_error",
        &[404],
        &[Test::Is(TYPE, &["not_found_error"])],
        Class::Config,
    )
    .scope(Scope::Endpoint),
    Rule::names(
        "anthropic.request_too_large",
        &[413],
        &[Test::Is(TYPE, &["request_too_large"])],
        Class::Config,
    ),
    Rule::names(
        "anthropic.timeout_error",
        &[504],
        &[Test::Is(TYPE, &["timeout_error"])],
        Class::Timeout,
    ),
    Rule::names(
        "anthropic.api_error",
        &[500, 503],
        &[Test::Is(TYPE, &["api_error"])],
        Class::ServerError,
    ),
    Rule::names(
        "anthropic.invalid_request_error",
        &[400],
        &[Test::Is(TYPE, &["invalid_request_error"])],
        Class::Config,
    ),
    // Without what its certificate needs, or under another status: what is meant cannot be told.
    Rule::names(
        "anthropic.unclear_limit",
        &[],
        &[Test::Is(TYPE, &["rate_limit_error", "overloaded_error"])],
        Class::Ambiguous,
    )
    .on_status(),
];

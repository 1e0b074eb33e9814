//! OpenRouter: OpenAI's formats in front of many providers.
//!
//! An error status means that no model had started, but only `metadata.error_type` tells its own limits from what a provider behind it
//! said. Once a model has started, the status is 200 and the error is inside.

use super::adapter::{Adapter, Envelope, Framing};
use super::openai::{CODE, MESSAGE};
use super::outbound_headers::AuthScheme;
use super::request_style::RequestStyle;
use super::rules::{Kind, Path, Rule, Test};
use crate::core::api::{Api, ApiSet};
use crate::core::class::Class;

const ERROR_TYPE: Path = &["error", "metadata", "error_type"];

/// The adapter.
pub static ADAPTER: Adapter = Adapter {
    name: "openrouter",
    speaks: ApiSet::of(&[
        Api::OpenaiChat,
        Api::OpenaiCompletions,
        Api::OpenaiResponses,
        Api::OpenaiEmbeddings,
    ]),
    default_base_url: Some("https://openrouter.ai/api/v1"),
    auth: AuthScheme::Bearer,
    style: RequestStyle::Native,
    framing: Framing::EventStream,
    envelope: Envelope {
        under_200: true,
        ..Envelope::of(&[
            (&["error"], Kind::Object),
            (MESSAGE, Kind::Text),
            (CODE, Kind::OptionalCode),
            (&["error", "metadata"], Kind::OptionalObject),
        ])
    },
    deny: &[DENY],
    rules: &[LIMITS, CLASSES],
    delays: &[],
};

/// What a 402 speaks of, when it is not the balance.
const LIMIT_SOURCE: Path = &["error", "metadata", "limit_source"];

const DENY: &[Rule] = &[
    // Requests in flight hold the budget; it is free again when they end.
    Rule::names(
        "openrouter.in_flight_budget",
        &[402],
        &[Test::Is(LIMIT_SOURCE, &["openrouter_in_flight_budget"])],
        Class::Throttle,
    ),
    Rule::names(
        "openrouter.payment_required",
        &[402],
        &[Test::Is(ERROR_TYPE, &["payment_required"])],
        Class::QuotaHard,
    ),
    Rule::names(
        "openrouter.free_per_day",
        &[429],
        &[Test::Contains(MESSAGE, &["per-day", "per day"])],
        Class::QuotaHard,
    ),
];

const LIMITS: &[Rule] = &[
    Rule::certifies(
        "openrouter.429.rate_limit_exceeded",
        &[429],
        &[
            Test::Is(ERROR_TYPE, &["rate_limit_exceeded"]),
            Test::Number(CODE, &[429]),
        ],
        Class::Throttle,
    ),
    Rule::certifies(
        "openrouter.529.provider_overloaded",
        &[529],
        &[
            Test::Is(ERROR_TYPE, &["provider_overloaded"]),
            Test::Number(CODE, &[529]),
        ],
        Class::Overload,
    ),
];

const CLASSES: &[Rule] = &[
    Rule::names(
        "openrouter.rate_limit_exceeded",
        &[429],
        &[Test::Is(ERROR_TYPE, &["rate_limit_exceeded"])],
        Class::Throttle,
    )
    .on_stream(),
    Rule::names(
        "openrouter.provider_overloaded",
        &[529, 503],
        &[Test::Is(ERROR_TYPE, &["provider_overloaded"])],
        Class::Overload,
    ),
    Rule::names(
        "openrouter.no_provider",
        &[503],
        &[Test::Contains(MESSAGE, &["no available model provider"])],
        Class::Config,
    ),
    Rule::names(
        "openrouter.context",
        &[400, 413],
        &[Test::Is(
            ERROR_TYPE,
            &[
                "context_length_exceeded",
                "max_tokens_exceeded",
                "token_limit_exceeded",
                "string_too_long",
            ],
        )],
        Class::ContextOverflow,
    ),
    Rule::names(
        "openrouter.auth",
        &[401, 403],
        &[Test::Is(
            ERROR_TYPE,
            &["authentication", "permission_denied"],
        )],
        Class::Auth,
    ),
    Rule::names(
        "openrouter.content_policy",
        &[400, 403],
        &[Test::Is(
            ERROR_TYPE,
            &["content_policy_violation", "refusal", "invalid_prompt"],
        )],
        Class::ContentPolicy,
    ),
    Rule::names(
        "openrouter.moderation",
        &[403],
        &[Test::Contains(MESSAGE, &["moderation", "flagged"])],
        Class::ContentPolicy,
    ),
    Rule::names(
        "openrouter.server",
        &[502, 500, 503],
        &[Test::Is(ERROR_TYPE, &["provider_unavailable", "server"])],
        Class::ServerError,
    ),
    Rule::names(
        "openrouter.timeout",
        &[504, 408, 524],
        &[Test::Is(ERROR_TYPE, &["timeout"])],
        Class::Timeout,
    ),
];

//! OpenAI: all of its formats, from chat completions to transcriptions, share one envelope and one table.
//!
//! A certificate rests on `error.code` together with `error.type`. The spend codes keep the type `insufficient_quota` and a throttling
//! status, so they are denied by code first. A request larger than the whole limit keeps the throttle's code although no wait helps.

use super::adapter::{Adapter, Envelope, Framing};
use super::outbound_headers::AuthScheme;
use super::request_style::RequestStyle;
use super::rules::{Kind, Path, Rule, Test};
use crate::core::api::{Api, ApiSet};
use crate::core::class::Class;
use crate::core::outcome::Scope;

pub(super) const CODE: Path = &["error", "code"];
pub(super) const TYPE: Path = &["error", "type"];
pub(super) const MESSAGE: Path = &["error", "message"];

/// The types that go with a rate limit's code.
const LIMIT_TYPES: &[&str] = &[
    "requests",
    "tokens",
    "input_tokens",
    "images",
    "rate_limit_error",
];
const TOO_LARGE: &[&str] = &["Request too large"];

/// The adapter.
pub static ADAPTER: Adapter = Adapter {
    name: "openai",
    speaks: ApiSet::of(&[
        Api::OpenaiChat,
        Api::OpenaiCompletions,
        Api::OpenaiResponses,
        Api::OpenaiEmbeddings,
        Api::OpenaiModerations,
        Api::OpenaiImages,
        Api::OpenaiImageEdits,
        Api::OpenaiImageVariations,
        Api::OpenaiSpeech,
        Api::OpenaiTranscriptions,
        Api::OpenaiTranslations,
        Api::OpenaiRealtime,
        Api::OpenaiResponsesSocket,
    ]),
    default_base_url: Some("https://api.openai.com"),
    auth: AuthScheme::Bearer,
    style: RequestStyle::Native,
    framing: Framing::EventStream,
    envelope: ENVELOPE,
    deny: &[DENY],
    rules: &[LIMITS, FLEX, CLASSES],
    delays: &[],
};

pub(super) const ENVELOPE: Envelope = Envelope::of(&[
    (&["error"], Kind::Object),
    (MESSAGE, Kind::Text),
    (TYPE, Kind::OptionalText),
    (CODE, Kind::OptionalText),
    (&["error", "param"], Kind::OptionalText),
]);

/// Quotas that no wait clears.
pub(super) const DENY: &[Rule] = &[
    Rule::names(
        "openai.spent",
        &[429],
        &[Test::Is(
            CODE,
            &[
                "insufficient_quota",
                "credit_balance_exhausted",
                "organization_spend_limit_exceeded",
                "project_spend_limit_exceeded",
                "organization_usage_limit_exceeded",
                "billing_not_active",
            ],
        )],
        Class::QuotaHard,
    ),
    Rule::names(
        "openai.insufficient_quota",
        &[429],
        &[Test::Is(TYPE, &["insufficient_quota"])],
        Class::QuotaHard,
    ),
    Rule::names(
        "openai.request_too_large",
        &[429],
        &[Test::Starts(MESSAGE, TOO_LARGE)],
        Class::QuotaHard,
    )
    .scope(Scope::Endpoint),
];

/// Dedicated throttle and overload codes under an error status.
pub(super) const LIMITS: &[Rule] = &[
    Rule::certifies(
        "openai.429.rate_limit_exceeded",
        &[429],
        &[
            Test::Is(CODE, &["rate_limit_exceeded"]),
            Test::Is(TYPE, LIMIT_TYPES),
        ],
        Class::Throttle,
    ),
    Rule::certifies(
        "openai.429.slow_down",
        &[429],
        &[
            Test::Is(CODE, &["slow_down"]),
            Test::Is(TYPE, &["rate_limit_error"]),
        ],
        Class::Throttle,
    ),
    Rule::certifies(
        "openai.503.server_is_overloaded",
        &[503],
        &[
            Test::Is(CODE, &["server_is_overloaded", "slow_down"]),
            Test::Is(TYPE, &["service_unavailable_error"]),
        ],
        Class::Overload,
    ),
];

/// The flex tier's lack of resources is documented as not charged.
const FLEX: &[Rule] = &[Rule::certifies(
    "openai.429.resource_unavailable",
    &[429],
    &[
        Test::Is(CODE, &["resource_unavailable"]),
        Test::Is(TYPE, &["rate_limit_error"]),
    ],
    Class::Throttle,
)];

/// Everything else that the envelope names. Events and objects of the responses format carry a code without a type.
pub(super) const CLASSES: &[Rule] = &[
    Rule::names(
        "openai.stream.rate_limit_exceeded",
        &[429],
        &[Test::Is(CODE, &["rate_limit_exceeded"])],
        Class::Throttle,
    )
    .on_stream(),
    Rule::names(
        "openai.stream.rate_limit_error",
        &[429],
        &[Test::Is(TYPE, &["rate_limit_error"])],
        Class::Throttle,
    )
    .on_stream(),
    Rule::names(
        "openai.overloaded",
        &[503],
        &[Test::Is(CODE, &["server_is_overloaded", "slow_down"])],
        Class::Overload,
    ),
    Rule::names(
        "openai.service_unavailable",
        &[503],
        &[Test::Is(TYPE, &["service_unavailable_error"])],
        Class::Overload,
    ),
    Rule::names(
        "openai.context_length_exceeded",
        &[400, 413, 422],
        &[Test::Is(CODE, &["context_length_exceeded"])],
        Class::ContextOverflow,
    ),
    Rule::names(
        "openai.content_policy",
        &[400, 403, 422],
        &[Test::Is(
            CODE,
            &[
                "invalid_prompt",
                "content_filter",
                "content_policy_violation",
                "cyber_policy",
                "bio_policy",
                "misalignment_policy_violation",
                "image_content_policy_violation",
            ],
        )],
        Class::ContentPolicy,
    ),
    Rule::names(
        "openai.unsupported_region",
        &[403],
        &[Test::Is(CODE, &["unsupported_country_region_territory"])],
        Class::Config,
    )
    .scope(Scope::Provider),
    Rule::names(
        "openai.model_not_found",
        &[404, 400, 403],
        &[Test::Is(CODE, &["model_not_found"])],
        Class::Config,
    )
    .scope(Scope::Endpoint),
    Rule::names(
        "openai.invalid_api_key",
        &[401],
        &[Test::Is(CODE, &["invalid_api_key"])],
        Class::Auth,
    ),
    Rule::names(
        "openai.authentication_error",
        &[401],
        &[Test::Is(TYPE, &["authentication_error"])],
        Class::Auth,
    ),
    Rule::names(
        "openai.server_error",
        &[500, 502, 503],
        &[Test::Is(CODE, &["server_error"])],
        Class::ServerError,
    ),
    Rule::names(
        "openai.stream.server_error",
        &[500],
        &[Test::Is(TYPE, &["server_error"])],
        Class::ServerError,
    )
    .on_stream(),
    Rule::names(
        "openai.invalid_request",
        &[400],
        &[Test::Is(TYPE, &["invalid_request_error"])],
        Class::Config,
    ),
    // A limit's code under a status that does not go with it: which of them is meant cannot be told.
    Rule::names(
        "openai.status_disagrees",
        &[],
        &[Test::Is(
            CODE,
            &["rate_limit_exceeded", "slow_down", "server_is_overloaded"],
        )],
        Class::Ambiguous,
    )
    .on_status(),
];

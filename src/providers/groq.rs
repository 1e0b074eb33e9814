//! Groq: OpenAI's formats and envelope.
//!
//! Status 498 is its own: the flex tier had no room and the request will not be processed. A request larger than the limit is 413 with
//! the throttle's code. `tool_use_failed` is a 400 although the model ran.

use super::adapter::{Adapter, Framing};
use super::openai::{CLASSES, CODE, DENY, ENVELOPE, MESSAGE, TYPE};
use super::outbound_headers::AuthScheme;
use super::request_style::RequestStyle;
use super::rules::{Rule, Test};
use crate::core::api::{Api, ApiSet};
use crate::core::class::Class;

/// The adapter.
pub static ADAPTER: Adapter = Adapter {
    name: "groq",
    speaks: ApiSet::of(&[
        Api::OpenaiChat,
        Api::OpenaiResponses,
        Api::OpenaiSpeech,
        Api::OpenaiTranscriptions,
        Api::OpenaiTranslations,
    ]),
    default_base_url: Some("https://api.groq.com/openai/v1"),
    auth: AuthScheme::Bearer,
    style: RequestStyle::Native,
    framing: Framing::EventStream,
    envelope: ENVELOPE,
    deny: &[DENY],
    rules: &[RULES, CLASSES],
    delays: &[],
};

const RULES: &[Rule] = &[
    Rule::certifies(
        "groq.429.rate_limit_exceeded",
        &[429],
        &[
            Test::Is(CODE, &["rate_limit_exceeded"]),
            Test::NullOr(TYPE, &["tokens", "requests"]),
        ],
        Class::Throttle,
    ),
    Rule::certifies(
        "groq.498.capacity_exceeded",
        &[498],
        &[Test::Is(CODE, &["capacity_exceeded"])],
        Class::Overload,
    ),
    Rule::names(
        "groq.request_too_large",
        &[413],
        &[Test::Is(CODE, &["rate_limit_exceeded"])],
        Class::ContextOverflow,
    )
    .on_status(),
    Rule::names(
        "groq.tool_use_failed",
        &[400],
        &[Test::Is(CODE, &["tool_use_failed"])],
        Class::ServerError,
    ),
    Rule::names(
        "groq.over_capacity",
        &[503],
        &[Test::Contains(MESSAGE, &["over capacity"])],
        Class::Overload,
    ),
];

//! Fireworks: OpenAI's formats, with an envelope whose code is its type.
//!
//! Its bodies are not documented, so nothing certifies. A suspended account is 412.

use super::adapter::{Adapter, Framing};
use super::openai::{CLASSES, DENY, ENVELOPE, MESSAGE, TYPE};
use super::outbound_headers::AuthScheme;
use super::request_style::RequestStyle;
use super::rules::{Rule, Test};
use crate::core::api::{Api, ApiSet};
use crate::core::class::Class;

/// The adapter.
pub static ADAPTER: Adapter = Adapter {
    name: "fireworks",
    speaks: ApiSet::of(&[
        Api::OpenaiChat,
        Api::OpenaiCompletions,
        Api::OpenaiResponses,
        Api::OpenaiEmbeddings,
        Api::Rerank,
    ]),
    default_base_url: Some("https://api.fireworks.ai/inference/v1"),
    auth: AuthScheme::Bearer,
    style: RequestStyle::Native,
    framing: Framing::EventStream,
    envelope: ENVELOPE,
    deny: &[DENY, SUSPENDED],
    rules: &[RULES, CLASSES],
    delays: &[],
};

const SUSPENDED: &[Rule] = &[Rule::names(
    "fireworks.suspended",
    &[412],
    &[Test::Contains(MESSAGE, &["suspended"])],
    Class::QuotaHard,
)];

const RULES: &[Rule] = &[
    Rule::names(
        "fireworks.rate_limit_exceeded",
        &[429],
        &[Test::Is(TYPE, &["rate_limit_exceeded", "rate_limit_error"])],
        Class::Throttle,
    ),
    Rule::names(
        "fireworks.overloaded",
        &[503],
        &[Test::Contains(MESSAGE, &["overloaded", "capacity"])],
        Class::Overload,
    ),
];

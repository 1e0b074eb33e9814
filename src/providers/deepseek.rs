//! DeepSeek: OpenAI's chat format and envelope.
//!
//! Under load it answers 200 and holds the request with blank lines or comments, which therefore prove nothing. The body of its 429 is
//! not documented, so that one is named but not certified.

use super::adapter::{Adapter, Framing};
use super::openai::{CLASSES, CODE, DENY, ENVELOPE, TYPE};
use super::outbound_headers::AuthScheme;
use super::request_style::RequestStyle;
use super::rules::{Rule, Test};
use crate::core::api::{Api, ApiSet};
use crate::core::class::Class;

/// The adapter.
pub static ADAPTER: Adapter = Adapter {
    name: "deepseek",
    speaks: ApiSet::of(&[Api::OpenaiChat]),
    default_base_url: Some("https://api.deepseek.com"),
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
        "deepseek.503.service_unavailable_error",
        &[503],
        &[Test::Is(TYPE, &["service_unavailable_error"])],
        Class::Overload,
    ),
    Rule::names(
        "deepseek.rate_limit",
        &[429],
        &[Test::Is(CODE, &["rate_limit_exceeded"])],
        Class::Throttle,
    ),
];

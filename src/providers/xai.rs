//! xAI: OpenAI's and Anthropic's formats, with an envelope of two texts.
//!
//! A rate limit and exhausted credits share their code, so nothing certifies; the text tells the credits.

use super::adapter::{Adapter, Envelope, Framing};
use super::openai::CLASSES;
use super::outbound_headers::AuthScheme;
use super::request_style::RequestStyle;
use super::rules::{Kind, Path, Rule, Test};
use crate::core::api::{Api, ApiSet};
use crate::core::class::Class;

const CODE: Path = &["code"];
const ERROR: Path = &["error"];

/// The adapter.
pub static ADAPTER: Adapter = Adapter {
    name: "xai",
    speaks: ApiSet::of(&[
        Api::OpenaiChat,
        Api::OpenaiResponses,
        Api::OpenaiImages,
        Api::AnthropicMessages,
    ]),
    default_base_url: Some("https://api.x.ai"),
    auth: AuthScheme::Bearer,
    style: RequestStyle::Native,
    framing: Framing::EventStream,
    envelope: Envelope::of(&[(CODE, Kind::Text), (ERROR, Kind::Text)]),
    deny: &[DENY],
    rules: &[RULES, CLASSES],
    delays: &[],
};

const DENY: &[Rule] = &[Rule::names(
    "xai.credits",
    &[429, 403],
    &[Test::Contains(
        ERROR,
        &["available credits", "spending limit"],
    )],
    Class::QuotaHard,
)];

const RULES: &[Rule] = &[
    Rule::names(
        "xai.resource_exhausted",
        &[429],
        &[Test::Is(CODE, &["Some resource has been exhausted"])],
        Class::Throttle,
    ),
    Rule::names(
        "xai.api_key",
        &[400, 401],
        &[Test::Contains(ERROR, &["incorrect api key"])],
        Class::Auth,
    ),
];

//! Cohere: OpenAI's chat and embeddings at its compatibility address, ranking at its own; its own envelope is a bare `message`.
//!
//! Its errors have no code, so nothing certifies: a minute's limit and a month's differ in prose alone.

use super::adapter::{Adapter, Envelope, Framing};
use super::outbound_headers::AuthScheme;
use super::request_style::RequestStyle;
use super::rules::{Kind, Path, Rule, Test};
use crate::core::api::{Api, ApiSet};
use crate::core::class::Class;

const MESSAGE: Path = &["message"];
const FINISH: Path = &["error", "finish_reason"];

/// The adapter.
pub static ADAPTER: Adapter = Adapter {
    name: "cohere",
    speaks: ApiSet::of(&[Api::OpenaiChat, Api::OpenaiEmbeddings, Api::Rerank]),
    default_base_url: Some("https://api.cohere.ai/compatibility/v1"),
    auth: AuthScheme::Bearer,
    style: RequestStyle::Cohere,
    framing: Framing::EventStream,
    envelope: Envelope::of(&[(MESSAGE, Kind::Text)]),
    deny: &[DENY],
    rules: &[RULES],
    delays: &[],
};

const DENY: &[Rule] = &[Rule::names(
    "cohere.per_month",
    &[429],
    &[Test::Contains(
        MESSAGE,
        &["trial key", "/ month", "per month"],
    )],
    Class::QuotaHard,
)
.on_status()];

const RULES: &[Rule] = &[
    Rule::names(
        "cohere.rate_limit",
        &[429],
        &[Test::Contains(MESSAGE, &["rate limit", "per minute"])],
        Class::Throttle,
    )
    .on_status(),
    Rule::names(
        "cohere.too_many_tokens",
        &[400, 422],
        &[Test::Starts(MESSAGE, &["too many tokens"])],
        Class::ContextOverflow,
    )
    .on_status(),
    // A deny-listed token in the prompt or the answer.
    Rule::names("cohere.deny_list", &[498], &[], Class::ContentPolicy).on_status(),
    Rule::names(
        "cohere.stream.error",
        &[500],
        &[Test::Is(FINISH, &["ERROR"])],
        Class::ServerError,
    )
    .on_stream(),
    Rule::names(
        "cohere.stream.timeout",
        &[504],
        &[Test::Is(FINISH, &["TIMEOUT"])],
        Class::Timeout,
    )
    .on_stream(),
];

//! Together: OpenAI's formats and envelope.
//!
//! Its bodies are not documented, so nothing certifies. A prompt that is too long is 403.

use super::adapter::{Adapter, Framing};
use super::openai::{CLASSES, DENY, ENVELOPE, MESSAGE, TYPE};
use super::outbound_headers::AuthScheme;
use super::request_style::RequestStyle;
use super::rules::{Rule, Test};
use crate::core::api::{Api, ApiSet};
use crate::core::class::Class;

/// The adapter.
pub static ADAPTER: Adapter = Adapter {
    name: "together",
    speaks: ApiSet::of(&[
        Api::OpenaiChat,
        Api::OpenaiCompletions,
        Api::OpenaiEmbeddings,
        Api::OpenaiImages,
        Api::OpenaiSpeech,
        Api::OpenaiTranscriptions,
        Api::OpenaiTranslations,
        Api::Rerank,
    ]),
    default_base_url: Some("https://api.together.xyz"),
    auth: AuthScheme::Bearer,
    style: RequestStyle::Native,
    framing: Framing::EventStream,
    envelope: ENVELOPE,
    deny: &[DENY, SPENT],
    rules: &[RULES, CLASSES],
    delays: &[],
};

const SPENT: &[Rule] = &[Rule::names(
    "together.payment_required",
    &[402],
    &[Test::Is(TYPE, &["payment_required"])],
    Class::QuotaHard,
)];

const RULES: &[Rule] = &[
    Rule::names(
        "together.context",
        &[403],
        &[Test::Contains(MESSAGE, &["context length"])],
        Class::ContextOverflow,
    ),
    Rule::names(
        "together.service_unavailable",
        &[503],
        &[Test::Is(TYPE, &["service_unavailable", "overloaded"])],
        Class::Overload,
    ),
    Rule::names(
        "together.rate_limit",
        &[429],
        &[Test::Contains(TYPE, &["rate_limit"])],
        Class::Throttle,
    )
    .on_status(),
    Rule::names(
        "together.rate_limit_text",
        &[429],
        &[Test::Contains(MESSAGE, &["rate limit"])],
        Class::Throttle,
    )
    .on_status(),
];

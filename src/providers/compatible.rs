//! Servers of unknown make that imitate OpenAI or Anthropic, and whatever proxy may stand before them.
//!
//! Who answers is unknown, so only the imitated dialect's dedicated throttle and overload codes certify, in the whole documented
//! envelope: whoever writes `rate_limit_exceeded` with its type means a rate limit. Bare statuses, pages, plain messages and the bodies
//! of common proxies prove nothing; an operator who knows better lists the status under `trust_status`. What a vendor only documents
//! for its own service, such as OpenAI's flex tier, is left out.

use super::adapter::{Adapter, Envelope, Framing};
use super::outbound_headers::AuthScheme;
use super::pushback::DelaySource;
use super::request_style::RequestStyle;
use super::rules::{Rule, Test};
use super::{anthropic, openai};
use crate::core::api::{Api, ApiSet};
use crate::core::class::Class;

const DELAYS: &[DelaySource] = &[DelaySource::MillisHeader("x-ms-retry-after-ms")];

/// A server that speaks OpenAI's formats, and the common one for ranking. Which of them it has, its operator knows: a format that it lacks is
/// answered by the server itself.
pub static OPENAI: Adapter = Adapter {
    name: "openai_compatible",
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
        Api::Rerank,
        Api::OpenaiRealtime,
        Api::OpenaiResponsesSocket,
    ]),
    default_base_url: None,
    auth: AuthScheme::Bearer,
    style: RequestStyle::Native,
    framing: Framing::EventStream,
    envelope: Envelope {
        under_200: true,
        ..openai::ENVELOPE
    },
    deny: &[openai::DENY],
    rules: &[openai::LIMITS, openai::CLASSES, NUMBERED],
    delays: DELAYS,
};

/// A server that speaks Anthropic's formats.
pub static ANTHROPIC: Adapter = Adapter {
    name: "anthropic_compatible",
    speaks: ApiSet::of(&[Api::AnthropicMessages, Api::AnthropicCountTokens]),
    default_base_url: None,
    auth: AuthScheme::XApiKey,
    style: RequestStyle::Native,
    framing: Framing::EventStream,
    envelope: Envelope {
        under_200: true,
        ..anthropic::ENVELOPE
    },
    deny: &[anthropic::DENY],
    rules: &[anthropic::LIMITS, anthropic::CLASSES, NUMBERED],
    delays: DELAYS,
};

/// Numbered business codes that some servers put into a borrowed envelope. They name a class and prove nothing.
const NUMBERED: &[Rule] = &[Rule::names(
    "compatible.concurrency",
    &[429],
    &[Test::Is(openai::CODE, &["1302"])],
    Class::Throttle,
)];

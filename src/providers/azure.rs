//! Azure OpenAI: OpenAI's formats below `/openai/v1`, with a deployment in place of the model.
//!
//! A 429 is documented as not charged. Its code is a name or the status as text. What API Management in front of it answers has another
//! shape and proves nothing.

use super::adapter::{Adapter, Framing};
use super::openai::{CLASSES, CODE, DENY, ENVELOPE};
use super::outbound_headers::AuthScheme;
use super::pushback::DelaySource;
use super::request_style::RequestStyle;
use super::rules::{Rule, Test};
use crate::core::api::{Api, ApiSet};
use crate::core::class::Class;
use crate::core::outcome::Scope;

/// The adapter.
pub static ADAPTER: Adapter = Adapter {
    name: "azure_openai",
    speaks: ApiSet::of(&[
        Api::OpenaiChat,
        Api::OpenaiCompletions,
        Api::OpenaiResponses,
        Api::OpenaiEmbeddings,
        Api::OpenaiImages,
        Api::OpenaiImageEdits,
        Api::OpenaiSpeech,
        Api::OpenaiTranscriptions,
        Api::OpenaiTranslations,
        Api::OpenaiRealtime,
        Api::OpenaiResponsesSocket,
    ]),
    default_base_url: None,
    auth: AuthScheme::ApiKey,
    style: RequestStyle::Azure,
    framing: Framing::EventStream,
    envelope: ENVELOPE,
    deny: &[DENY],
    rules: &[LIMITS, SERVICE, CLASSES],
    delays: &[DelaySource::MillisHeader("x-ms-retry-after-ms")],
};

const LIMITS: &[Rule] = &[
    Rule::certifies(
        "azure.429.rate_limit",
        &[429],
        &[Test::Is(
            CODE,
            &["429", "too_many_requests", "RateLimitReached"],
        )],
        Class::Throttle,
    ),
    Rule::certifies(
        "azure.429.no_capacity",
        &[429],
        &[Test::Is(CODE, &["NoCapacity"])],
        Class::Overload,
    ),
];

/// What the service in front of the models says.
const SERVICE: &[Rule] = &[
    Rule::names(
        "azure.deployment_not_found",
        &[404],
        &[Test::Is(CODE, &["DeploymentNotFound"])],
        Class::Config,
    )
    .scope(Scope::Endpoint),
    Rule::names(
        "azure.timeout",
        &[408],
        &[Test::Is(CODE, &["Timeout"])],
        Class::Timeout,
    ),
];

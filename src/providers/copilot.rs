//! GitHub Copilot: OpenAI's formats without a version in their paths, and Anthropic's messages.
//!
//! A code may carry a suffix after a colon. Not here: how short-lived tokens are had ([`super::token`]).

use super::adapter::{Adapter, Envelope, Flat, Framing};
use super::openai::{CLASSES, CODE, MESSAGE, TYPE};
use super::outbound_headers::AuthScheme;
use super::request_style::RequestStyle;
use super::rules::{Kind, Rule, Test};
use crate::core::api::{Api, ApiSet};
use crate::core::class::Class;

/// The adapter.
pub static ADAPTER: Adapter = Adapter {
    name: "copilot",
    speaks: ApiSet::of(&[
        Api::OpenaiChat,
        Api::OpenaiResponses,
        Api::OpenaiEmbeddings,
        Api::AnthropicMessages,
    ]),
    default_base_url: Some("https://api.githubcopilot.com"),
    auth: AuthScheme::Bearer,
    style: RequestStyle::Unversioned,
    framing: Framing::EventStream,
    envelope: Envelope {
        flat: Flat::CodeAndMessage,
        ..Envelope::of(&[
            (&["error"], Kind::Object),
            (MESSAGE, Kind::Text),
            (CODE, Kind::Text),
            (TYPE, Kind::OptionalText),
        ])
    },
    deny: &[DENY],
    rules: &[RULES, CLASSES],
    delays: &[],
};

/// What no wait clears: a blocked extension, and plans that are used up.
const DENY: &[Rule] = &[
    Rule::names(
        "copilot.extension_blocked",
        &[429],
        &[Test::Stem(CODE, &["extension_blocked"])],
        Class::Config,
    ),
    Rule::names(
        "copilot.quota",
        &[402],
        &[Test::Stem(
            CODE,
            &[
                "quota_exceeded",
                "free_quota_exceeded",
                "overage_limit_reached",
                "billing_not_configured",
            ],
        )],
        Class::QuotaHard,
    ),
];

const RULES: &[Rule] = &[
    Rule::certifies(
        "copilot.429.rate_limited",
        &[429],
        &[Test::Stem(
            CODE,
            &[
                "rate_limited",
                "user_model_rate_limited",
                "user_global_rate_limited",
                "integration_rate_limited",
                "agent_mode_limit_exceeded",
            ],
        )],
        Class::Throttle,
    ),
    Rule::certifies(
        "copilot.429.model_overloaded",
        &[429],
        &[Test::Stem(CODE, &["model_overloaded"])],
        Class::Overload,
    ),
    // Its content filter has a status of its own.
    Rule::names("copilot.content_filter", &[422], &[], Class::ContentPolicy).on_status(),
    Rule::names(
        "copilot.off_topic",
        &[400],
        &[Test::Stem(CODE, &["off_topic"])],
        Class::ContentPolicy,
    ),
];

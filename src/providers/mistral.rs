//! Mistral: OpenAI's formats with an envelope of its own, whose members stand at the root.
//!
//! Other bodies (`detail`, `message` alone) come from layers in front of it and prove nothing.

use super::adapter::{Adapter, Envelope, Flat, Framing};
use super::openai::{CODE, MESSAGE, TYPE};
use super::outbound_headers::AuthScheme;
use super::request_style::RequestStyle;
use super::rules::{Kind, Rule, Test};
use crate::core::api::{Api, ApiSet};
use crate::core::class::Class;

/// The adapter.
pub static ADAPTER: Adapter = Adapter {
    name: "mistral",
    speaks: ApiSet::of(&[
        Api::OpenaiChat,
        Api::OpenaiEmbeddings,
        Api::OpenaiModerations,
        Api::OpenaiTranscriptions,
    ]),
    default_base_url: Some("https://api.mistral.ai"),
    auth: AuthScheme::Bearer,
    style: RequestStyle::Native,
    framing: Framing::EventStream,
    envelope: Envelope {
        flat: Flat::Marked,
        ..Envelope::of(&[
            (&["error"], Kind::Object),
            (MESSAGE, Kind::Text),
            (TYPE, Kind::Text),
            (CODE, Kind::OptionalText),
        ])
    },
    deny: &[],
    rules: &[RULES],
    delays: &[],
};

const RULES: &[Rule] = &[
    Rule::certifies(
        "mistral.429.rate_limited",
        &[429],
        &[
            Test::Is(TYPE, &["rate_limited"]),
            Test::NullOr(CODE, &["1300"]),
        ],
        Class::Throttle,
    ),
    Rule::certifies(
        "mistral.429.service_tier_capacity_exceeded",
        &[429],
        &[
            Test::Is(TYPE, &["service_tier_capacity_exceeded"]),
            Test::NullOr(CODE, &["3505"]),
        ],
        Class::Overload,
    ),
    Rule::names(
        "mistral.queue_full",
        &[503, 429],
        &[Test::Contains(
            MESSAGE,
            &["queue is full", "capacity exceeded"],
        )],
        Class::Overload,
    ),
    Rule::names(
        "mistral.context",
        &[400],
        &[Test::Is(CODE, &["3051"])],
        Class::ContextOverflow,
    ),
];

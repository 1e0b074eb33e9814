//! Vertex AI: Google's models and those of other publishers behind Google's envelope.
//!
//! A RESOURCE_EXHAUSTED is documented as given at the time of the request, so it certifies without the details that Gemini's own host
//! sends; limits of a day do not. Anthropic's models answer in either envelope: quota in Google's, overload in Anthropic's.

use super::adapter::{Adapter, Envelope, Framing};
use super::openai::{CODE, MESSAGE, TYPE};
use super::outbound_headers::AuthScheme;
use super::pushback::DelaySource;
use super::request_style::RequestStyle;
use super::rules::{Kind, Path, Rule, Test};
use super::{anthropic, gemini};
use crate::core::api::{Api, ApiSet};
use crate::core::class::Class;

const STATUS: Path = &["error", "status"];
const DETAIL: Path = &["error", "details", "error_code"];

/// The adapter.
pub static ADAPTER: Adapter = Adapter {
    name: "vertex",
    speaks: ApiSet::of(&[
        Api::OpenaiChat,
        Api::AnthropicMessages,
        Api::AnthropicCountTokens,
        Api::Gemini,
    ]),
    default_base_url: None,
    auth: AuthScheme::Bearer,
    style: RequestStyle::Vertex,
    framing: Framing::EventStream,
    envelope: Envelope {
        in_array: true,
        ..Envelope::of(&[
            (&["error"], Kind::Object),
            (CODE, Kind::OptionalCode),
            (MESSAGE, Kind::Text),
            (STATUS, Kind::OptionalText),
            (TYPE, Kind::OptionalText),
            (&["error", "details"], Kind::OptionalDetails),
        ])
    },
    deny: &[DENY, gemini::DENY, anthropic::DENY],
    rules: &[RULES, gemini::CLASSES, anthropic::CLASSES],
    delays: &[DelaySource::RetryInfo],
};

const DENY: &[Rule] = &[Rule::names(
    "vertex.per_day",
    &[429],
    &[
        Test::Is(STATUS, &["RESOURCE_EXHAUSTED"]),
        Test::Contains(MESSAGE, &["per day", "per_day", "daily"]),
    ],
    Class::QuotaHard,
)];

const RULES: &[Rule] = &[
    Rule::certifies(
        "vertex.429.resource_exhausted",
        &[429],
        &[
            Test::Is(STATUS, &["RESOURCE_EXHAUSTED"]),
            Test::Number(CODE, &[429]),
        ],
        Class::Throttle,
    ),
    Rule::certifies(
        "vertex.529.overloaded_error",
        &[529],
        &[Test::Is(TYPE, &["overloaded_error"]), Test::Null(DETAIL)],
        Class::Overload,
    ),
];

//! AWS Bedrock: its runtime's errors and frames, its OpenAI-compatible paths, and whole answers of Anthropic's models.
//!
//! The code is in a header or in the body; its status alone proves nothing. API Gateway in front of it answers in the same form with
//! codes that the runtime does not have. A frame never certifies: the request was admitted before the stream began.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use super::adapter::{Adapter, Envelope, Framing};
use super::dialect::{self, Event, Meaning};
use super::event_stream::Frame;
use super::json_envelope::{self, text_at};
use super::openai::{CODE, MESSAGE, TYPE};
use super::outbound_headers::AuthScheme;
use super::pushback::DelaySource;
use super::request_style::RequestStyle;
use super::rules::{Kind, Path, Rule, Test};
use super::{anthropic, aws, openai};
use crate::core::api::{Api, ApiSet};
use crate::core::class::Class;
use crate::core::outcome::Scope;

const DETAIL: Path = &["error", "details", "error_code"];

/// The adapter.
pub static ADAPTER: Adapter = Adapter {
    name: "bedrock",
    speaks: ApiSet::of(&[
        Api::OpenaiChat,
        Api::AnthropicMessages,
        Api::BedrockConverse,
        Api::BedrockInvoke,
        Api::BedrockCountTokens,
    ]),
    default_base_url: None,
    auth: AuthScheme::Bearer,
    style: RequestStyle::Bedrock,
    framing: Framing::EventStreamOrAws,
    envelope: Envelope {
        code_header: Some("x-amzn-errortype"),
        ..Envelope::of(&[
            (&["error"], Kind::Object),
            (MESSAGE, Kind::OptionalText),
            (CODE, Kind::OptionalText),
            (TYPE, Kind::OptionalText),
        ])
    },
    deny: &[DENY],
    rules: &[RULES, anthropic::CLASSES, openai::CLASSES],
    delays: &[DelaySource::MillisHeader("x-amz-retry-after")],
};

/// Quotas of a day, and of the account.
const DENY: &[Rule] = &[
    Rule::names(
        "bedrock.per_day",
        &[429, 400],
        &[
            Test::Is(CODE, &["ThrottlingException"]),
            Test::Contains(MESSAGE, &["per day", "daily"]),
        ],
        Class::QuotaHard,
    ),
    Rule::names(
        "bedrock.service_quota",
        &[400, 429],
        &[Test::Is(CODE, &["ServiceQuotaExceededException"])],
        Class::QuotaHard,
    ),
];

const RULES: &[Rule] = &[
    Rule::certifies(
        "bedrock.429.throttling",
        &[429, 400],
        &[Test::Is(CODE, &["ThrottlingException"])],
        Class::Throttle,
    ),
    Rule::certifies(
        "bedrock.429.model_not_ready",
        &[429],
        &[Test::Is(CODE, &["ModelNotReadyException"])],
        Class::Overload,
    ),
    Rule::certifies(
        "bedrock.503.service_unavailable",
        &[503],
        &[Test::Is(CODE, &["ServiceUnavailableException"])],
        Class::Overload,
    ),
    Rule::certifies(
        "bedrock.529.overloaded_error",
        &[529],
        &[Test::Is(TYPE, &["overloaded_error"]), Test::Null(DETAIL)],
        Class::Overload,
    ),
    Rule::names(
        "bedrock.too_long",
        &[400],
        &[
            Test::Is(CODE, &["ValidationException"]),
            Test::Contains(MESSAGE, &["input is too long", "too many tokens"]),
        ],
        Class::ContextOverflow,
    ),
    Rule::names(
        "bedrock.validation",
        &[400],
        &[Test::Is(
            CODE,
            &["ValidationException", "ConflictException"],
        )],
        Class::Config,
    ),
    Rule::names(
        "bedrock.auth",
        &[403, 401],
        &[Test::Is(
            CODE,
            &[
                "AccessDeniedException",
                "ExpiredTokenException",
                "UnrecognizedClientException",
            ],
        )],
        Class::Auth,
    ),
    Rule::names(
        "bedrock.not_found",
        &[404],
        &[Test::Is(
            CODE,
            &["ResourceNotFoundException", "FTUFormNotFilled"],
        )],
        Class::Config,
    )
    .scope(Scope::Endpoint),
    Rule::names(
        "bedrock.model_timeout",
        &[408],
        &[Test::Is(CODE, &["ModelTimeoutException"])],
        Class::Timeout,
    ),
    Rule::names(
        "bedrock.model_error",
        &[424],
        &[Test::Is(
            CODE,
            &["ModelErrorException", "ModelStreamErrorException"],
        )],
        Class::ServerError,
    ),
    Rule::names(
        "bedrock.internal",
        &[500],
        &[Test::Is(
            CODE,
            &["InternalServerException", "InternalFailure"],
        )],
        Class::ServerError,
    ),
];

/// What a frame means for the commitment: an error, or by the type of its event.
pub(super) fn meaning(frame: &Frame) -> Meaning {
    if let Some(error) = aws::coded_frame(frame) {
        return Meaning::Error(error);
    }
    let event = match (frame.header(":message-type"), frame.header(":event-type")) {
        (Some("event"), Some(event)) => event,
        _ => return Meaning::Output,
    };
    match event {
        "initial-response" | "metadata" => Meaning::Nothing,
        "messageStart" | "contentBlockStop" => Meaning::Preamble,
        "messageStop" => stop(&frame.payload),
        "chunk" => chunk(&frame.payload),
        _ => Meaning::Output,
    }
}

/// The end of a conversation's turn.
fn stop(payload: &[u8]) -> Meaning {
    let payload = json_envelope::read(payload).unwrap_or(Value::Null);
    match text_at(&payload, &["stopReason"]) {
        Some("guardrail_intervened" | "content_filtered") => Meaning::Refused,
        Some(_) | None => Meaning::Finished,
    }
}

/// A chunk holds an event of the model's own format. Only Anthropic's name their type; what others send is output.
fn chunk(payload: &[u8]) -> Meaning {
    let Some(data) = chunk_event(payload) else {
        return Meaning::Output;
    };
    if data.get("type").is_none() {
        return Meaning::Output;
    }
    let (name, data) = (&b""[..], &data);
    dialect::meaning(Api::AnthropicMessages, Event { name, data })
}

/// The event inside `{"bytes": base64}`.
fn chunk_event(payload: &[u8]) -> Option<Value> {
    let payload = json_envelope::read(payload).ok()?;
    let bytes = STANDARD.decode(text_at(&payload, &["bytes"])?).ok()?;
    json_envelope::read(&bytes).ok()
}

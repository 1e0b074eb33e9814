//! Errors that the gateway itself makes, in the envelope of the client's API family (R-D3).
//!
//! Not here: errors of providers, which pass as they came, and the decision which error it is. Invariants: every error has a
//! stable code of a closed set and says that the gateway made it; no text of a secret, URL or upstream reaches a message.

use bytes::Bytes;
use serde_json::{Value, json};

use super::scan::ScanError;
use crate::core::api::{Api, Family};

/// Bytes of a message. Enough for a sentence and a model name.
pub const MESSAGE_BYTES_MAX: usize = 512;
/// Content type of every envelope.
pub const CONTENT_TYPE: &str = "application/json";

/// The stable codes of gateway-made errors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum GatewayCode {
    /// No route has this model.
    ModelNotFound,
    /// The path is none of the data plane.
    PathNotFound,
    /// The path takes another method.
    MethodNotAllowed,
    /// The path takes a WebSocket handshake over HTTP/1.1 only, or no WebSocket can be had here.
    UpgradeRequired,
    /// The body is larger than `server.max_request_body`.
    RequestTooLarge,
    /// The request is not acceptable for another reason.
    InvalidRequest,
    /// The body is not one JSON object, although the path wants one.
    InvalidJson,
    /// The body names no model.
    ModelMissing,
    /// The client took too long to send its request.
    RequestTimeout,
    /// The gateway serves as many operations, or connections, or holds as many bytes, as it may (`server.max_in_flight`,
    /// `max_connections`, `max_buffered_bytes`).
    Overloaded,
    /// The client has as many operations under way as it may (`client_keys.max_in_flight`).
    ClientLimit,
    /// The client shows none of the keys that this gateway asks for.
    ClientKeyRequired,
    /// No target of the route could be tried.
    NoCandidate,
    /// Routing rules leave no target for the request.
    RoutingRestricted,
    /// The gateway is stopping.
    ShuttingDown,
    /// No key of the gateway was accepted by its provider.
    UpstreamCredentialsExhausted,
    /// No target could be reached; nothing was delivered.
    UpstreamUnreachable,
    /// A target broke off; it may have run the request.
    UpstreamAmbiguous,
    /// A target's answer could not be understood; it may have run the request.
    UpstreamMalformed,
    /// A target sent nothing in time; it may have run the request.
    UpstreamTimeout,
    /// The operation's deadline passed.
    DeadlineExceeded,
    /// Every target was throttled and none sent an answer that can be passed on.
    UpstreamThrottled,
    /// The limits that the operator set for the route's targets are used up.
    LocalLimit,
    /// A stream broke after its first bytes had been passed on.
    StreamInterrupted,
    /// A defect of the gateway.
    Internal,
}

impl GatewayCode {
    /// Every code, in the order of the documentation.
    pub const ALL: [GatewayCode; 25] = [
        GatewayCode::ModelNotFound,
        GatewayCode::PathNotFound,
        GatewayCode::MethodNotAllowed,
        GatewayCode::UpgradeRequired,
        GatewayCode::RequestTooLarge,
        GatewayCode::InvalidRequest,
        GatewayCode::InvalidJson,
        GatewayCode::ModelMissing,
        GatewayCode::RequestTimeout,
        GatewayCode::Overloaded,
        GatewayCode::ClientLimit,
        GatewayCode::ClientKeyRequired,
        GatewayCode::NoCandidate,
        GatewayCode::RoutingRestricted,
        GatewayCode::ShuttingDown,
        GatewayCode::UpstreamCredentialsExhausted,
        GatewayCode::UpstreamUnreachable,
        GatewayCode::UpstreamAmbiguous,
        GatewayCode::UpstreamMalformed,
        GatewayCode::UpstreamTimeout,
        GatewayCode::DeadlineExceeded,
        GatewayCode::UpstreamThrottled,
        GatewayCode::LocalLimit,
        GatewayCode::StreamInterrupted,
        GatewayCode::Internal,
    ];

    /// The code as clients read it.
    pub const fn label(self) -> &'static str {
        self.row().0
    }

    /// Its HTTP status.
    pub const fn status(self) -> u16 {
        self.row().1
    }

    /// The sentence that a client reads when there is nothing more to say.
    pub const fn sentence(self) -> &'static str {
        self.row().2
    }

    const fn row(self) -> (&'static str, u16, &'static str) {
        match self {
            GatewayCode::ModelNotFound => ("model_not_found", 404, "no route serves this model"),
            GatewayCode::PathNotFound => ("path_not_found", 404, "there is no such path"),
            GatewayCode::MethodNotAllowed => {
                ("method_not_allowed", 405, "this path takes another method")
            }
            GatewayCode::UpgradeRequired => (
                "upgrade_required",
                426,
                "with this method the path takes a WebSocket handshake over HTTP/1.1",
            ),
            GatewayCode::RequestTooLarge => (
                "request_too_large",
                413,
                "the request body is larger than this gateway accepts",
            ),
            GatewayCode::InvalidRequest => ("invalid_request", 400, "the request is not valid"),
            GatewayCode::InvalidJson => ("invalid_json", 400, "the body is not valid JSON"),
            GatewayCode::ModelMissing => ("model_missing", 400, "the body does not name a model"),
            GatewayCode::RequestTimeout => (
                "request_timeout",
                408,
                "the request body did not arrive in time",
            ),
            GatewayCode::Overloaded => (
                "overloaded",
                503,
                "the gateway holds as many requests as it may",
            ),
            GatewayCode::ClientLimit => (
                "client_limit",
                429,
                "this client has as many requests under way as it may",
            ),
            GatewayCode::ClientKeyRequired => (
                "client_key_required",
                401,
                "this gateway asks for a key of its own, and the request shows none that it knows",
            ),
            GatewayCode::RoutingRestricted => (
                "routing_restricted",
                503,
                "a routing rule leaves no target for this request",
            ),
            GatewayCode::NoCandidate => ("no_candidate", 503, "no target can be tried now"),
            GatewayCode::ShuttingDown => ("shutting_down", 503, "the gateway is stopping"),
            GatewayCode::UpstreamCredentialsExhausted => (
                "upstream_credentials_exhausted",
                502,
                "no key of the gateway was accepted by its provider; your own credential was not the matter",
            ),
            GatewayCode::UpstreamUnreachable => (
                "upstream_unreachable",
                502,
                "no target could be reached; nothing was sent",
            ),
            GatewayCode::UpstreamAmbiguous => (
                "upstream_ambiguous",
                502,
                "the target broke off; it may have run the request, so it was not sent again",
            ),
            GatewayCode::UpstreamMalformed => (
                "upstream_malformed",
                502,
                "the target's answer is not valid; it may have run the request",
            ),
            GatewayCode::UpstreamTimeout => (
                "upstream_timeout",
                504,
                "the target did not answer in time; it may have run the request",
            ),
            GatewayCode::DeadlineExceeded => (
                "deadline_exceeded",
                504,
                "the deadline of the request passed",
            ),
            GatewayCode::UpstreamThrottled => {
                ("upstream_throttled", 429, "every target is throttled")
            }
            GatewayCode::LocalLimit => (
                "local_limit",
                429,
                "the limits set for the targets of this route are used up",
            ),
            GatewayCode::StreamInterrupted => (
                "stream_interrupted",
                502,
                "the target broke off its stream; the answer is not complete",
            ),
            GatewayCode::Internal => ("internal", 500, "the gateway failed"),
        }
    }
}

/// An error that the gateway makes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GatewayError {
    code: GatewayCode,
    message: String,
}

impl GatewayError {
    /// An error with the sentence of its code.
    pub fn plain(code: GatewayCode) -> GatewayError {
        GatewayError::new(code, code.sentence())
    }

    /// An error with a sentence of its own, without the gateway's name; it is cut at [`MESSAGE_BYTES_MAX`].
    pub fn new(code: GatewayCode, sentence: &str) -> GatewayError {
        let mut message = format!("rondo: {sentence}");
        let fits = |(at, char): &(usize, char)| at + char.len_utf8() <= MESSAGE_BYTES_MAX;
        let len = message
            .char_indices()
            .take_while(fits)
            .map(|(_, char)| char.len_utf8())
            .sum();
        message.truncate(len);
        GatewayError { code, message }
    }

    /// The stable code.
    pub fn code(&self) -> GatewayCode {
        self.code
    }

    /// The HTTP status.
    pub fn status(&self) -> u16 {
        self.code.status()
    }

    /// What the client reads.
    pub fn message(&self) -> &str {
        &self.message
    }
}

impl From<ScanError> for GatewayError {
    fn from(error: ScanError) -> GatewayError {
        let code = match error {
            ScanError::NotJson { .. } => GatewayCode::InvalidJson,
            ScanError::NoModel => GatewayCode::ModelMissing,
            ScanError::ModelNotString
            | ScanError::ModelInvalid
            | ScanError::TooManyModels
            | ScanError::NotForm { .. }
            | ScanError::NoBoundary
            | ScanError::TooDeep => GatewayCode::InvalidRequest,
        };
        GatewayError::new(code, &error.to_string())
    }
}

/// The body of an error answer; its content type is [`CONTENT_TYPE`].
pub fn encode(family: Family, error: &GatewayError, request_id: &str) -> Vec<u8> {
    envelope(family, error, request_id).to_string().into_bytes()
}

/// The last event of a stream that broke after it had been committed. It never looks like the regular end of a stream.
///
/// It belongs at the boundary of two events; inside of one the stream can only be cut.
pub fn stream_error_event(api: Api, error: &GatewayError, request_id: &str) -> Bytes {
    let text = match api {
        Api::OpenaiResponses => format!("event: error\ndata: {}\n\n", responses_event(error)),
        Api::AnthropicMessages | Api::AnthropicCountTokens => {
            format!(
                "event: error\ndata: {}\n\n",
                envelope(api.family(), error, request_id)
            )
        }
        Api::OpenaiChat
        | Api::OpenaiCompletions
        | Api::OpenaiEmbeddings
        | Api::OpenaiModerations
        | Api::OpenaiImages
        | Api::OpenaiImageEdits
        | Api::OpenaiImageVariations
        | Api::OpenaiSpeech
        | Api::OpenaiTranscriptions
        | Api::OpenaiTranslations
        | Api::Rerank
        | Api::OpenaiRealtime
        | Api::OpenaiResponsesSocket
        | Api::Gemini
        | Api::BedrockConverse
        | Api::BedrockInvoke
        | Api::BedrockCountTokens => {
            format!("data: {}\n\n", envelope(api.family(), error, request_id))
        }
    };
    Bytes::from(text)
}

/// Clients of the Responses API look for the fields at the top or inside `error`.
fn responses_event(error: &GatewayError) -> Value {
    json!({
        "type": "error", "code": error.code.label(), "message": error.message(), "param": null,
        "error": openai_error(error),
    })
}

fn openai_error(error: &GatewayError) -> Value {
    let kind = openai_type(error.code);
    let code = error.code.label();
    json!({ "message": error.message(), "type": kind, "param": null, "code": code })
}

fn envelope(family: Family, error: &GatewayError, request_id: &str) -> Value {
    let (code, message) = (error.code.label(), error.message());
    match family {
        Family::Openai => json!({ "error": openai_error(error) }),
        Family::Anthropic => json!({
            "type": "error",
            "error": {
                "type": anthropic_type(error.code), "message": message,
                "details": { "gateway": "rondo", "code": code },
            },
            "request_id": request_id,
        }),
        Family::Gemini => json!({
            "error": {
                "code": error.status(), "message": message, "status": gemini_status(error.code),
                "details": [{
                    "@type": "type.googleapis.com/google.rpc.ErrorInfo",
                    "reason": code.to_ascii_uppercase(), "domain": "rondo",
                    "metadata": { "request_id": request_id },
                }],
            },
        }),
        Family::Bedrock => json!({
            "message": message, "__type": bedrock_type(error.code),
            "gateway": "rondo", "reason": code, "request_id": request_id,
        }),
    }
}

fn openai_type(code: GatewayCode) -> &'static str {
    match code.status() {
        429 => "rate_limit_error",
        503 => "service_unavailable_error",
        408 | 500.. => "server_error",
        _ => "invalid_request_error",
    }
}

fn anthropic_type(code: GatewayCode) -> &'static str {
    match code.status() {
        401 => "authentication_error",
        404 => "not_found_error",
        413 => "request_too_large",
        429 => "rate_limit_error",
        408 | 504 => "timeout_error",
        500.. => "api_error",
        _ => "invalid_request_error",
    }
}

fn bedrock_type(code: GatewayCode) -> &'static str {
    match code.status() {
        401 => "AccessDeniedException",
        404 => "ResourceNotFoundException",
        429 => "ThrottlingException",
        408 | 504 => "ModelTimeoutException",
        503 => "ServiceUnavailableException",
        500.. => "InternalServerException",
        _ => "ValidationException",
    }
}

fn gemini_status(code: GatewayCode) -> &'static str {
    match code.status() {
        401 => "UNAUTHENTICATED",
        404 => "NOT_FOUND",
        429 => "RESOURCE_EXHAUSTED",
        500 => "INTERNAL",
        408 | 504 => "DEADLINE_EXCEEDED",
        502 | 503 => "UNAVAILABLE",
        _ => "INVALID_ARGUMENT",
    }
}

//! Answers by name: what real providers send, ready to be used in a script. Pure.
//!
//! Not here: the good answers, whose bytes depend on the request (`voice`), and overrides (`script`).
//! Invariant: a preset's bytes are what its provider documents, so that a gateway classifies them as it would classify the real thing.

use crate::core::api::Family;

/// A named answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Preset {
    /// A good answer in the API format of the path, streaming when the request asks for it.
    Ok,
    /// As `ok`; when the request offers tools, a call of the first one, its arguments split into pieces.
    Tools,
    /// A throttle in the dialect of the path.
    Throttle,
    /// An overload in the dialect of the path.
    Overloaded,
    /// 429 `rate_limit_exceeded`, type `requests`, `retry-after: 1`.
    OpenaiThrottle,
    /// 429 without a body.
    OpenaiThrottleUncertified,
    /// 429 `insufficient_quota`.
    OpenaiQuota,
    /// 503 `server_is_overloaded`.
    OpenaiOverloaded,
    /// 500 `server_error`.
    OpenaiServerError,
    /// 401 `invalid_api_key`.
    OpenaiAuth,
    /// 400 `context_length_exceeded`.
    OpenaiContext,
    /// 400 `content_policy_violation`.
    OpenaiContentPolicy,
    /// 404 `model_not_found`.
    OpenaiNotFound,
    /// 200, the role chunk, then an error inside the stream.
    OpenaiStreamError,
    /// 200, `response.created`, `response.in_progress`, `error`, `response.failed`.
    ResponsesStreamFailed,
    /// 429 `rate_limit_error`, `retry-after: 1`.
    AnthropicThrottle,
    /// 529 `overloaded_error`.
    AnthropicOverloaded,
    /// 429 with details `enforced_spend_limit_reached`, without `retry-after`.
    AnthropicSpendLimit,
    /// 401 `authentication_error`.
    AnthropicAuth,
    /// 500 `api_error`.
    AnthropicServerError,
    /// 200, `message_start`, `ping`, then `overloaded_error` inside the stream.
    AnthropicStreamOverloaded,
    /// 200, `ping`, then `api_error` inside the stream.
    AnthropicPingThenError,
    /// 429 `RESOURCE_EXHAUSTED` with a quota per minute and RetryInfo of one second.
    GeminiThrottle,
    /// 429 `RESOURCE_EXHAUSTED` with a quota per day.
    GeminiQuota,
    /// 503 `UNAVAILABLE`.
    GeminiUnavailable,
    /// 429 `ThrottlingException`.
    BedrockThrottle,
    /// 503 `ServiceUnavailableException`.
    BedrockUnavailable,
    /// 503 with an HTML page, as a reverse proxy sends it.
    Nginx503,
    /// Reads the request and never answers.
    Hang,
    /// Reads the request and resets the connection.
    Reset,
}

impl Preset {
    /// Every preset with its name in scripts, in the order of the documentation.
    pub const ALL: [(&'static str, Preset); 30] = [
        ("ok", Preset::Ok),
        ("tools", Preset::Tools),
        ("throttle", Preset::Throttle),
        ("overloaded", Preset::Overloaded),
        ("openai.throttle", Preset::OpenaiThrottle),
        (
            "openai.throttle_uncertified",
            Preset::OpenaiThrottleUncertified,
        ),
        ("openai.quota", Preset::OpenaiQuota),
        ("openai.overloaded", Preset::OpenaiOverloaded),
        ("openai.server_error", Preset::OpenaiServerError),
        ("openai.auth", Preset::OpenaiAuth),
        ("openai.context", Preset::OpenaiContext),
        ("openai.content_policy", Preset::OpenaiContentPolicy),
        ("openai.not_found", Preset::OpenaiNotFound),
        ("openai.stream_error", Preset::OpenaiStreamError),
        ("responses.stream_failed", Preset::ResponsesStreamFailed),
        ("anthropic.throttle", Preset::AnthropicThrottle),
        ("anthropic.overloaded", Preset::AnthropicOverloaded),
        ("anthropic.spend_limit", Preset::AnthropicSpendLimit),
        ("anthropic.auth", Preset::AnthropicAuth),
        ("anthropic.server_error", Preset::AnthropicServerError),
        (
            "anthropic.stream_overloaded",
            Preset::AnthropicStreamOverloaded,
        ),
        ("anthropic.ping_then_error", Preset::AnthropicPingThenError),
        ("gemini.throttle", Preset::GeminiThrottle),
        ("gemini.quota", Preset::GeminiQuota),
        ("gemini.unavailable", Preset::GeminiUnavailable),
        ("bedrock.throttle", Preset::BedrockThrottle),
        ("bedrock.unavailable", Preset::BedrockUnavailable),
        ("nginx.503", Preset::Nginx503),
        ("hang", Preset::Hang),
        ("reset", Preset::Reset),
    ];

    /// The preset of this name.
    pub fn from_name(name: &str) -> Option<Preset> {
        let found = Preset::ALL.into_iter().find(|(known, _)| *known == name);
        found.map(|(_, preset)| preset)
    }

    /// The name used in scripts.
    pub fn name(self) -> &'static str {
        let found = Preset::ALL.into_iter().find(|(_, preset)| *preset == self);
        found.map_or("", |(name, _)| name)
    }

    /// What the preset does.
    pub fn shape(self) -> Shape {
        match self {
            Preset::Ok => Shape::Good { tools: false },
            Preset::Tools => Shape::Good { tools: true },
            Preset::Throttle => Shape::ByFamily(throttle_of),
            Preset::Overloaded => Shape::ByFamily(overloaded_of),
            Preset::Hang => Shape::Silence,
            Preset::Reset => Shape::Reset,
            fixed => fixed.canned().map_or(Shape::Silence, Shape::Fixed),
        }
    }

    fn canned(self) -> Option<Canned> {
        Some(match self {
            Preset::Ok
            | Preset::Tools
            | Preset::Throttle
            | Preset::Overloaded
            | Preset::Hang
            | Preset::Reset => return None,
            Preset::OpenaiThrottle => Canned {
                status: 429,
                headers: JSON_RETRY,
                body: OPENAI_THROTTLE,
            },
            Preset::OpenaiThrottleUncertified => Canned {
                status: 429,
                headers: &[],
                body: "",
            },
            Preset::OpenaiQuota => json(429, OPENAI_QUOTA),
            Preset::OpenaiOverloaded => json(503, OPENAI_OVERLOADED),
            Preset::OpenaiServerError => json(500, OPENAI_SERVER_ERROR),
            Preset::OpenaiAuth => json(401, OPENAI_AUTH),
            Preset::OpenaiContext => json(400, OPENAI_CONTEXT),
            Preset::OpenaiContentPolicy => json(400, OPENAI_CONTENT_POLICY),
            Preset::OpenaiNotFound => json(404, OPENAI_NOT_FOUND),
            Preset::OpenaiStreamError => events(OPENAI_STREAM_ERROR),
            Preset::ResponsesStreamFailed => events(RESPONSES_STREAM_FAILED),
            Preset::AnthropicThrottle => Canned {
                status: 429,
                headers: JSON_RETRY,
                body: ANTHROPIC_THROTTLE,
            },
            Preset::AnthropicOverloaded => json(529, ANTHROPIC_OVERLOADED),
            Preset::AnthropicSpendLimit => json(429, ANTHROPIC_SPEND_LIMIT),
            Preset::AnthropicAuth => json(401, ANTHROPIC_AUTH),
            Preset::AnthropicServerError => json(500, ANTHROPIC_SERVER_ERROR),
            Preset::AnthropicStreamOverloaded => events(ANTHROPIC_STREAM_OVERLOADED),
            Preset::AnthropicPingThenError => events(ANTHROPIC_PING_THEN_ERROR),
            Preset::GeminiThrottle => google(429, GEMINI_THROTTLE),
            Preset::GeminiQuota => google(429, GEMINI_QUOTA),
            Preset::GeminiUnavailable => google(503, GEMINI_UNAVAILABLE),
            Preset::BedrockThrottle => aws(429, BEDROCK_THROTTLE),
            Preset::BedrockUnavailable => aws(503, BEDROCK_UNAVAILABLE),
            Preset::Nginx503 => Canned {
                status: 503,
                headers: &[("content-type", "text/html"), ("server", "nginx")],
                body: NGINX_503,
            },
        })
    }
}

/// What kind of answer a preset is.
#[derive(Debug, Clone, Copy)]
pub enum Shape {
    /// The same bytes every time.
    Fixed(Canned),
    /// The same bytes for one family of APIs.
    ByFamily(fn(Family) -> Preset),
    /// Composed for the request.
    Good {
        /// Call a tool when the request offers one.
        tools: bool,
    },
    /// No answer.
    Silence,
    /// The connection is reset.
    Reset,
}

/// An answer whose bytes are known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Canned {
    /// HTTP status.
    pub status: u16,
    /// Header fields.
    pub headers: &'static [(&'static str, &'static str)],
    /// Body.
    pub body: &'static str,
}

const fn throttle_of(family: Family) -> Preset {
    match family {
        Family::Openai => Preset::OpenaiThrottle,
        Family::Anthropic => Preset::AnthropicThrottle,
        Family::Gemini => Preset::GeminiThrottle,
        Family::Bedrock => Preset::BedrockThrottle,
    }
}

const fn overloaded_of(family: Family) -> Preset {
    match family {
        Family::Openai => Preset::OpenaiOverloaded,
        Family::Anthropic => Preset::AnthropicOverloaded,
        Family::Gemini => Preset::GeminiUnavailable,
        Family::Bedrock => Preset::BedrockUnavailable,
    }
}

const fn aws(status: u16, body: &'static str) -> Canned {
    Canned {
        status,
        headers: JSON,
        body,
    }
}

const BEDROCK_THROTTLE: &str = r#"{"__type":"ThrottlingException","message":"Too many requests, please wait before trying again."}"#;
const BEDROCK_UNAVAILABLE: &str = r#"{"__type":"ServiceUnavailableException","message":"The service is temporarily unavailable."}"#;
const JSON: &[(&str, &str)] = &[("content-type", "application/json")];
const JSON_RETRY: &[(&str, &str)] = &[("content-type", "application/json"), ("retry-after", "1")];
const JSON_GOOGLE: &[(&str, &str)] = &[("content-type", "application/json; charset=UTF-8")];
const EVENTS: &[(&str, &str)] = &[("content-type", "text/event-stream; charset=utf-8")];

const fn json(status: u16, body: &'static str) -> Canned {
    Canned {
        status,
        headers: JSON,
        body,
    }
}

const fn google(status: u16, body: &'static str) -> Canned {
    Canned {
        status,
        headers: JSON_GOOGLE,
        body,
    }
}

const fn events(body: &'static str) -> Canned {
    Canned {
        status: 200,
        headers: EVENTS,
        body,
    }
}

const OPENAI_THROTTLE: &str = r#"{"error":{"message":"Rate limit reached for requests per min (RPM): Limit 500, Used 500, Requested 1. Please try again in 1s.","type":"requests","param":null,"code":"rate_limit_exceeded"}}"#;
const OPENAI_QUOTA: &str = r#"{"error":{"message":"You exceeded your current quota, please check your plan and billing details.","type":"insufficient_quota","param":null,"code":"insufficient_quota"}}"#;
const OPENAI_OVERLOADED: &str = r#"{"error":{"message":"Our servers are currently overloaded. Please try again later.","type":"service_unavailable_error","param":null,"code":"server_is_overloaded"}}"#;
const OPENAI_SERVER_ERROR: &str = r#"{"error":{"message":"The server had an error while processing your request.","type":"server_error","param":null,"code":"server_error"}}"#;
const OPENAI_AUTH: &str = r#"{"error":{"message":"Incorrect API key provided.","type":"invalid_request_error","param":null,"code":"invalid_api_key"}}"#;
const OPENAI_CONTEXT: &str = r#"{"error":{"message":"This model's maximum context length is 128000 tokens.","type":"invalid_request_error","param":"messages","code":"context_length_exceeded"}}"#;
const OPENAI_CONTENT_POLICY: &str = r#"{"error":{"message":"The request was rejected by the safety system.","type":"invalid_request_error","param":null,"code":"content_policy_violation"}}"#;
const OPENAI_NOT_FOUND: &str = r#"{"error":{"message":"The model does not exist or you do not have access to it.","type":"invalid_request_error","param":null,"code":"model_not_found"}}"#;
const OPENAI_STREAM_ERROR: &str = r#"data: {"id":"chatcmpl-mock","object":"chat.completion.chunk","created":1767225600,"model":"mock","choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}]}

data: {"error":{"message":"The server had an error while processing your request.","type":"server_error","param":null,"code":"server_error"}}

"#;
const RESPONSES_STREAM_FAILED: &str = r#"event: response.created
data: {"type":"response.created","sequence_number":0,"response":{"id":"resp_mock","object":"response","status":"in_progress","model":"mock","output":[],"error":null}}

event: response.in_progress
data: {"type":"response.in_progress","sequence_number":1,"response":{"id":"resp_mock","object":"response","status":"in_progress","model":"mock","output":[],"error":null}}

event: error
data: {"type":"error","error":{"type":"service_unavailable_error","code":"server_is_overloaded","message":"Our servers are currently overloaded. Please try again later.","param":null},"sequence_number":2}

event: response.failed
data: {"type":"response.failed","sequence_number":3,"response":{"id":"resp_mock","object":"response","status":"failed","model":"mock","output":[],"error":{"code":"server_is_overloaded","message":"Our servers are currently overloaded. Please try again later."}}}

"#;

const ANTHROPIC_THROTTLE: &str = r#"{"type":"error","error":{"type":"rate_limit_error","message":"Number of requests has exceeded your per-minute rate limit."},"request_id":"req_mock"}"#;
const ANTHROPIC_OVERLOADED: &str = r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"},"request_id":"req_mock"}"#;
const ANTHROPIC_SPEND_LIMIT: &str = r#"{"type":"error","error":{"type":"rate_limit_error","message":"Your organization has reached its monthly usage threshold.","details":{"error_code":"enforced_spend_limit_reached"}},"request_id":"req_mock"}"#;
const ANTHROPIC_AUTH: &str = r#"{"type":"error","error":{"type":"authentication_error","message":"invalid x-api-key"},"request_id":"req_mock"}"#;
const ANTHROPIC_SERVER_ERROR: &str = r#"{"type":"error","error":{"type":"api_error","message":"Internal server error"},"request_id":"req_mock"}"#;
const ANTHROPIC_STREAM_OVERLOADED: &str = r#"event: message_start
data: {"type":"message_start","message":{"id":"msg_mock","type":"message","role":"assistant","model":"mock","content":[],"stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":8,"output_tokens":1}}}

event: ping
data: {"type":"ping"}

event: error
data: {"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}

"#;
const ANTHROPIC_PING_THEN_ERROR: &str = r#"event: ping
data: {"type":"ping"}

event: error
data: {"type":"error","error":{"type":"api_error","message":"Internal server error"}}

"#;

const GEMINI_THROTTLE: &str = r#"{"error":{"code":429,"message":"You exceeded your current quota, please check your plan and billing details.","status":"RESOURCE_EXHAUSTED","details":[{"@type":"type.googleapis.com/google.rpc.QuotaFailure","violations":[{"quotaMetric":"generativelanguage.googleapis.com/generate_content_paid_tier_requests","quotaId":"GenerateRequestsPerMinutePerProjectPerModel","quotaDimensions":{"location":"global","model":"mock"},"quotaValue":"1000"}]},{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"1s"}]}}"#;
const GEMINI_QUOTA: &str = r#"{"error":{"code":429,"message":"You exceeded your current quota, please check your plan and billing details.","status":"RESOURCE_EXHAUSTED","details":[{"@type":"type.googleapis.com/google.rpc.QuotaFailure","violations":[{"quotaMetric":"generativelanguage.googleapis.com/generate_content_free_tier_requests","quotaId":"GenerateRequestsPerDayPerProjectPerModel-FreeTier","quotaDimensions":{"location":"global","model":"mock"},"quotaValue":"250"}]},{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"30s"}]}}"#;
const GEMINI_UNAVAILABLE: &str = r#"{"error":{"code":503,"message":"The model is overloaded. Please try again later.","status":"UNAVAILABLE"}}"#;

const NGINX_503: &str = "<html>\r\n<head><title>503 Service Temporarily Unavailable</title></head>\r\n<body>\r\n<center><h1>503 Service Temporarily Unavailable</h1></center>\r\n<hr><center>nginx</center>\r\n</body>\r\n</html>\r\n";

//! Tells for one event of a good stream whether it is preamble, output, an end or an error, by the API format.
//!
//! Not here: framing ([`super::sse`], [`super::json_array`]) and the verdict on an error ([`super::classify`]). What is not known is
//! output: a stream is never held for an event that this file does not understand.

use serde_json::{Map, Value};

use super::json_envelope::{at, text_at};
use crate::core::api::{Api, Family};

/// What an event means for the commitment.
#[derive(Debug, Clone, PartialEq)]
pub enum Meaning {
    /// Nothing: keep-alives.
    Nothing,
    /// Bookkeeping before output.
    Preamble,
    /// Output, reasoning or tool activity.
    Output,
    /// Output or an end, and the stream is complete with it.
    Finished,
    /// The model's or provider's policy ended the stream. An answer for the client, not a failure.
    Refused,
    /// An error, in the shape of an error body.
    Error(Value),
}

/// One event, however it was framed.
#[derive(Debug, Clone, Copy)]
pub struct Event<'a> {
    /// Name of the event; empty when there was none.
    pub name: &'a [u8],
    /// Its payload.
    pub data: &'a Value,
}

/// The meaning of an event in a stream of this format.
pub fn meaning(api: Api, event: Event<'_>) -> Meaning {
    let Value::Object(members) = event.data else {
        return Meaning::Output;
    };
    if let Some(error) = error(event, members) {
        return Meaning::Error(error);
    }
    if text_at(event.data, &["type"]) == Some("ping") {
        return Meaning::Nothing;
    }
    match api {
        Api::OpenaiChat | Api::OpenaiCompletions => chat(members),
        Api::OpenaiResponses => responses(event.data),
        Api::AnthropicMessages => messages(event.data),
        Api::Gemini => gemini(event.data),
        Api::OpenaiImages
        | Api::OpenaiImageEdits
        | Api::OpenaiSpeech
        | Api::OpenaiTranscriptions
        | Api::OpenaiTranslations => media(event.data),
        Api::OpenaiEmbeddings
        | Api::OpenaiModerations
        | Api::OpenaiImageVariations
        | Api::Rerank
        | Api::OpenaiRealtime
        | Api::OpenaiResponsesSocket
        | Api::AnthropicCountTokens
        // These come as frames.
        | Api::BedrockConverse
        | Api::BedrockInvoke
        | Api::BedrockCountTokens => Meaning::Output,
    }
}

/// The error that an event carries, whatever marks it: a member `error`, the type `error`, the object `error` or the event's name.
fn error(event: Event<'_>, members: &Map<String, Value>) -> Option<Value> {
    let said =
        |error: &Value| matches!(error, Value::Object(_) | Value::String(_)) && meaningful(error);
    if members.get("error").is_some_and(said) {
        return Some(event.data.clone());
    }
    let text = |key: &str| members.get(key).and_then(Value::as_str);
    if text("type") == Some("response.failed") {
        let inner = at(event.data, &["response", "error"]).filter(|error| meaningful(error));
        return Some(enveloped(inner.unwrap_or(&Value::Null).clone()));
    }
    let named = matches!(text("type"), Some("error" | "conversation.response.error"));
    let marked = named || text("object") == Some("error") || event.name == b"error";
    if marked {
        return Some(enveloped(event.data.clone()));
    }
    let end = at(event.data, &["delta"]);
    let failed =
        |end: &&Value| matches!(text_at(end, &["finish_reason"]), Some("ERROR" | "TIMEOUT"));
    if text("type") == Some("message-end")
        && let Some(end) = end.filter(failed)
    {
        return Some(enveloped(end.clone()));
    }
    let groq = at(event.data, &["x_groq", "error"]).filter(|error| meaningful(error));
    groq.map(|error| enveloped(error.clone()))
}

fn enveloped(error: Value) -> Value {
    Value::Object(Map::from_iter([("error".to_owned(), error)]))
}

/// Whether a value says something: not null, not empty.
fn meaningful(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Bool(_) | Value::Number(_) => true,
        Value::String(text) => !text.is_empty(),
        Value::Array(items) => !items.is_empty(),
        Value::Object(members) => !members.is_empty(),
    }
}

fn chat(chunk: &Map<String, Value>) -> Meaning {
    let Some(choices) = chunk.get("choices").and_then(Value::as_array) else {
        // Ollama's own lines.
        if chunk.get("done") == Some(&Value::Bool(true)) {
            return Meaning::Finished;
        }
        return match chunk.get("type").and_then(Value::as_str) {
            // Cohere's own events.
            Some("message-start") => Meaning::Preamble,
            Some("message-end") => Meaning::Finished,
            Some(_) | None => Meaning::Output,
        };
    };
    let reason = |wanted: &str| {
        choices
            .iter()
            .any(|choice| text_at(choice, &["finish_reason"]) == Some(wanted))
    };
    if reason("error") {
        return Meaning::Error(enveloped(Value::Null));
    }
    if reason("content_filter") {
        return Meaning::Refused;
    }
    if choices
        .iter()
        .any(|choice| at(choice, &["finish_reason"]).is_some_and(meaningful))
    {
        return Meaning::Finished;
    }
    if choices.iter().any(says_something) {
        return Meaning::Output;
    }
    Meaning::Preamble
}

/// Every member of a delta but the role is output; a completion's text stands beside it.
fn says_something(choice: &Value) -> bool {
    let delta = at(choice, &["delta"]).and_then(Value::as_object);
    let in_delta = delta.is_some_and(|delta| {
        delta
            .iter()
            .any(|(key, value)| key != "role" && meaningful(value))
    });
    let beside = ["text", "message"]
        .iter()
        .any(|key| choice.get(*key).is_some_and(meaningful));
    in_delta || beside
}

fn responses(event: &Value) -> Meaning {
    match text_at(event, &["type"]) {
        Some("response.created" | "response.queued" | "response.in_progress") => Meaning::Preamble,
        Some("keepalive") => Meaning::Nothing,
        Some("response.completed") => Meaning::Finished,
        Some("response.incomplete") => {
            match text_at(event, &["response", "incomplete_details", "reason"]) {
                Some("content_filter") => Meaning::Refused,
                Some(_) | None => Meaning::Finished,
            }
        }
        Some(_) | None => Meaning::Output,
    }
}

/// Streams of images, speech and transcripts have no preamble; their last event says that it is.
fn media(event: &Value) -> Meaning {
    match text_at(event, &["type"]) {
        Some("keepalive") => Meaning::Nothing,
        Some(name) if name.ends_with(".completed") || name.ends_with(".done") => Meaning::Finished,
        Some(_) | None => Meaning::Output,
    }
}

fn messages(event: &Value) -> Meaning {
    match text_at(event, &["type"]) {
        Some("message_start") => match at(event, &["message", "content"]).is_some_and(meaningful) {
            true => Meaning::Output,
            false => Meaning::Preamble,
        },
        Some("content_block_start") => {
            let block = |key| text_at(event, &["content_block", key]);
            match (block("type"), block("text")) {
                (Some("text"), Some("")) => Meaning::Preamble,
                _ => Meaning::Output,
            }
        }
        Some("content_block_stop") => Meaning::Preamble,
        Some("message_delta") => match text_at(event, &["delta", "stop_reason"]) {
            Some("refusal") => Meaning::Refused,
            Some(_) => Meaning::Output,
            None => Meaning::Preamble,
        },
        Some("message_stop") => Meaning::Finished,
        Some(_) | None => Meaning::Output,
    }
}

/// Whether a whole good body says that a policy refused the content. It is the client's to read; records and `rondo classify` name it.
pub fn refuses(api: Api, body: &Value) -> bool {
    let Value::Object(members) = body else {
        return false;
    };
    let refused = match api.family() {
        Family::Gemini => gemini(body),
        Family::Anthropic => match text_at(body, &["stop_reason"]) {
            Some("refusal") => Meaning::Refused,
            Some(_) | None => Meaning::Output,
        },
        Family::Bedrock => match (
            text_at(body, &["stopReason"]),
            text_at(body, &["stop_reason"]),
        ) {
            (Some("guardrail_intervened" | "content_filtered"), _) | (_, Some("refusal")) => {
                Meaning::Refused
            }
            _ => Meaning::Output,
        },
        Family::Openai if members.contains_key("choices") => chat(members),
        Family::Openai => match text_at(body, &["incomplete_details", "reason"]) {
            Some("content_filter") => Meaning::Refused,
            Some(_) | None => Meaning::Output,
        },
    };
    refused == Meaning::Refused
}

const GEMINI_POLICY: &[&str] = &[
    "SAFETY",
    "BLOCKLIST",
    "PROHIBITED_CONTENT",
    "SPII",
    "IMAGE_SAFETY",
    "MODEL_ARMOR",
    "JAILBREAK",
];

fn gemini(chunk: &Value) -> Meaning {
    if at(chunk, &["promptFeedback", "blockReason"]).is_some_and(meaningful) {
        return Meaning::Refused;
    }
    // The newer interface of the same host.
    if let Some(kind) =
        text_at(chunk, &["event_type"]).and_then(|kind| kind.strip_prefix("interaction."))
    {
        return match kind.starts_with("complete") {
            true => Meaning::Finished,
            false => Meaning::Preamble,
        };
    }
    let Some(candidates) = at(chunk, &["candidates"]).and_then(Value::as_array) else {
        let known = [
            "usageMetadata",
            "modelVersion",
            "responseId",
            "promptFeedback",
        ];
        return match known.iter().any(|key| chunk.get(*key).is_some()) {
            true => Meaning::Preamble,
            false => Meaning::Output,
        };
    };
    let mut reasons = candidates
        .iter()
        .filter_map(|candidate| text_at(candidate, &["finishReason"]))
        .peekable();
    if reasons.peek().is_some() {
        return match reasons.any(|reason| GEMINI_POLICY.contains(&reason)) {
            true => Meaning::Refused,
            false => Meaning::Finished,
        };
    }
    let speaks = candidates.iter().any(|candidate| {
        let parts = at(candidate, &["content", "parts"]).and_then(Value::as_array);
        parts.is_some_and(|parts| parts.iter().any(part_says_something))
    });
    if speaks {
        Meaning::Output
    } else {
        Meaning::Preamble
    }
}

fn part_says_something(part: &Value) -> bool {
    match part {
        Value::Object(members) => members.values().any(meaningful),
        other => meaningful(other),
    }
}

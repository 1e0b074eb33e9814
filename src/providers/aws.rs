//! The error codes of AWS services: in a header, in the body, or as the type of an exception frame; one form for the tables.
//!
//! Not here: what a code means ([`super::bedrock`]) and the frames ([`super::event_stream`]). Where header and body name different
//! codes there is none: which of them the service meant cannot be told.

use serde_json::{Value, json};

use super::answer::Single;
use super::event_stream::Frame;
use super::json_envelope::text_at;

/// An answer in the usual form: `{"error": {"code", "message", ..}}`. `header` is the header that carries the code, when the service
/// has one. `None` if there is no code, or no single one.
pub(super) fn coded(body: Value, header: Option<Single<'_>>) -> Option<Value> {
    let in_header = match header? {
        Single::Absent => None,
        Single::One(value) => Some(shortened(std::str::from_utf8(value).ok()?)),
        Single::Repeated => return None,
    };
    let in_body = ["code", "Code", "__type"]
        .iter()
        .find_map(|key| text_at(&body, &[key]))
        .map(shortened);
    let code = match (in_header, in_body) {
        (Some(header), Some(body)) if header != body => return None,
        (Some(code), _) | (None, Some(code)) => code,
        (None, None) => return None,
    };
    (!code.is_empty()).then(|| enveloped(code, message(&body)))
}

/// The error that an exception or error frame carries, in the same form.
pub(super) fn coded_frame(frame: &Frame) -> Option<Value> {
    match frame.header(":message-type")? {
        "exception" => {
            let payload = serde_json::from_slice::<Value>(&frame.payload).unwrap_or(Value::Null);
            let name = capitalised(shortened(frame.header(":exception-type")?));
            Some(enveloped(&name, message(&payload)))
        }
        "error" => {
            let code = shortened(frame.header(":error-code")?);
            Some(enveloped(
                code,
                frame
                    .header(":error-message")
                    .map_or(Value::Null, Value::from),
            ))
        }
        _ => None,
    }
}

/// The message, whatever its type: the shape of the envelope judges it.
fn message(body: &Value) -> Value {
    let found = body.get("message").or_else(|| body.get("Message"));
    found.cloned().unwrap_or(Value::Null)
}

fn enveloped(code: &str, message: Value) -> Value {
    json!({ "error": { "code": code, "message": message } })
}

/// A code without the address behind its colon and the namespace before its number sign.
fn shortened(code: &str) -> &str {
    let code = code.split(':').next().unwrap_or(code);
    code.rsplit('#').next().unwrap_or(code).trim()
}

/// Frames name their exceptions in lower camel case.
fn capitalised(name: &str) -> String {
    let mut chars = name.chars();
    let first = chars.next().map(|first| first.to_ascii_uppercase());
    first.into_iter().chain(chars).collect()
}

//! Judges error answers: by the provider's denial rows, its other rows, then the bare status.
//!
//! Not here: the rows, and whether a failure moves on to the next target. Invariants: an answer that is not complete and readable
//! proves nothing; what a denial row names is never certified; structured codes are asked before the status.

use serde_json::{Map, Value};

use super::adapter::{Adapter, Flat};
use super::answer::{BodyEnd, RequestTraits, ResponseHead, Single, Verdict};
use super::certify::{Evidence, Reading};
use super::found::Found;
use super::rules::{Facts, Rule, Test, shaped};
use super::{aws, encoding, json_envelope, pushback};
use crate::core::class::Class;
use crate::core::limits::REPLY_BODY_MAX;
use crate::core::outcome::{Carrier, Outcome};

/// Rows for relays in front of any provider: their answers look like the provider's but speak of something behind them.
static RELAYS: [Rule; 1] = [Rule::names(
    "relay.litellm",
    &[],
    &[Test::Starts(&["error", "message"], &["litellm."])],
    Class::Ambiguous,
)];

/// Judges a complete answer with a status of 300 or more. `trust_status` are the bare statuses that the operator declares to be
/// authoritative and pre-execution.
pub fn classify(
    adapter: &Adapter,
    traits: &RequestTraits,
    trust_status: &[u16],
    head: &ResponseHead<'_>,
    body: &[u8],
    end: BodyEnd,
) -> Verdict {
    let content = match end {
        BodyEnd::Complete if short(head, body) => Content::Truncated,
        BodyEnd::Complete => content(adapter, head, body),
        BodyEnd::Truncated => Content::Truncated,
        BodyEnd::OverBound => Content::Broken("body.over_bound"),
    };
    let found = match &content {
        Content::Truncated => Found::plain(Class::Malformed, "body.truncated"),
        Content::Broken(rule) => Found::plain(Class::Malformed, rule),
        Content::Foreign | Content::Json(_) if (300..400).contains(&head.status) => {
            Found::plain(Class::Config, "redirect")
        }
        Content::Foreign => Found::plain(by_status(head.status, false), "status"),
        Content::Json(value) => look_up(adapter, Some(head), value)
            .unwrap_or_else(|| Found::plain(by_status(head.status, true), "status")),
    };
    let evidence = Evidence {
        carrier: Carrier::Status,
        reading: content.reading(adapter),
        retry_forbidden: retry_forbidden(head),
        side_effects: traits.side_effects,
        first_event: true,
    };
    let trusted = trust_status.contains(&head.status) && head.status >= 400;
    let found = found.settled(&evidence, trusted.then_some(head.status));
    let outcome = match (found.certificate, &content) {
        (Some(certificate), _) => Outcome::Rejected(certificate),
        (None, Content::Truncated) => Outcome::Ambiguous,
        (None, Content::Broken(_) | Content::Foreign | Content::Json(_)) => Outcome::Refused,
    };
    let delay = pushback::read(head, content.json(), adapter.delays);
    found.verdict(outcome, Carrier::Status, head.status, delay)
}

/// An error found inside a good stream.
#[derive(Debug, Clone, PartialEq)]
pub struct Fault {
    /// The event in the shape of the provider's error body.
    pub body: Value,
    /// Whether nothing but this event came.
    pub only_event: bool,
}

/// Judges an error event by the same tables as a status.
pub fn classify_event(adapter: &Adapter, traits: &RequestTraits, fault: &Fault) -> Verdict {
    let status = body_status(&fault.body);
    let found = look_up(adapter, None, &fault.body).unwrap_or_else(|| {
        let class = status.map_or(Class::ServerError, |status| match status {
            429 => Class::Throttle,
            503 | 529 => Class::Overload,
            other => by_status(other, true),
        });
        Found::plain(class, "stream")
    });
    let documented = shaped(&fault.body, adapter.envelope.shape);
    let evidence = Evidence {
        carrier: Carrier::Stream,
        reading: if documented {
            Reading::Documented
        } else {
            Reading::Foreign
        },
        retry_forbidden: false,
        side_effects: traits.side_effects,
        first_event: fault.only_event,
    };
    let found = found.settled(&evidence, None);
    let outcome = found
        .certificate
        .map_or(Outcome::Refused, Outcome::Rejected);
    let mapped = status.or(found.mapped).unwrap_or(status_of(found.class));
    let delay = pushback::read_event(&fault.body, adapter.delays);
    found.verdict(outcome, Carrier::Stream, mapped, delay)
}

/// The verdict on a good stream that ended before anything was said.
pub(super) fn ended_early() -> Verdict {
    let found = Found::plain(Class::Ambiguous, "stream.ended_early");
    found.verdict(Outcome::Ambiguous, Carrier::Stream, 502, None)
}

/// The verdict on a good status whose whole body is an error envelope: the model may have run.
pub(super) fn error_under_200() -> Verdict {
    let found = Found::plain(Class::Ambiguous, "body.error_under_200");
    found.verdict(Outcome::Ambiguous, Carrier::Stream, 502, None)
}

/// What the body of an error answer turned out to be.
enum Content {
    Truncated,
    Broken(&'static str),
    Foreign,
    Json(Value),
}

impl Content {
    fn json(&self) -> Option<&Value> {
        match self {
            Content::Json(value) => Some(value),
            Content::Truncated | Content::Broken(_) | Content::Foreign => None,
        }
    }

    fn reading(&self, adapter: &Adapter) -> Reading {
        match self {
            Content::Truncated | Content::Broken(_) => Reading::Broken,
            Content::Foreign => Reading::Foreign,
            Content::Json(value) if shaped(value, adapter.envelope.shape) => Reading::Documented,
            Content::Json(_) => Reading::Foreign,
        }
    }
}

fn content(adapter: &Adapter, head: &ResponseHead<'_>, body: &[u8]) -> Content {
    if body.len() > REPLY_BODY_MAX {
        return Content::Broken("body.over_bound");
    }
    let encoding = head.single("content-encoding");
    let Ok(decoded) = encoding::decode(encoding, body, REPLY_BODY_MAX) else {
        return Content::Broken("body.encoding");
    };
    let media = head.media_type();
    let is_json = match media.as_deref() {
        Some("application/json") => true,
        Some("application/problem+json") => adapter.envelope.problem_json,
        Some(_) | None => false,
    };
    if decoded.trim_ascii().is_empty() {
        let code = adapter.envelope.code_header.map(|name| head.single(name));
        return match aws::coded(Value::Object(Map::new()), code) {
            Some(value) => Content::Json(value),
            None => Content::Foreign,
        };
    }
    if !is_json {
        return Content::Foreign;
    }
    match json_envelope::read(&decoded).map(|value| normalised(adapter, Some(head), value)) {
        Ok(value) if value.is_object() => Content::Json(value),
        Ok(_) => Content::Foreign,
        Err(json_envelope::NotStrictJson) => Content::Broken("body.not_strict_json"),
    }
}

/// The usual form of an envelope that may come as the only element of an array, or flat, or with its code in a header.
pub(super) fn normalised(
    adapter: &Adapter,
    head: Option<&ResponseHead<'_>>,
    value: Value,
) -> Value {
    let envelope = &adapter.envelope;
    let value = match value {
        Value::Array(mut items) if envelope.in_array && items.len() == 1 => {
            items.pop().unwrap_or(Value::Null)
        }
        other => other,
    };
    if value.get("error").is_some() {
        return value;
    }
    let text = |key| json_envelope::text_at(&value, &[key]);
    let is_flat = match envelope.flat {
        Flat::No => false,
        Flat::Marked => text("object") == Some("error"),
        Flat::CodeAndMessage => text("code").is_some() && text("message").is_some(),
    };
    if is_flat {
        return Value::Object(Map::from_iter([("error".to_owned(), value)]));
    }
    match (envelope.code_header, head) {
        (Some(name), Some(head)) => {
            aws::coded(value.clone(), Some(head.single(name))).unwrap_or(value)
        }
        (None, _) | (_, None) => value,
    }
}

/// Whether fewer bytes came than the head promised.
fn short(head: &ResponseHead<'_>, body: &[u8]) -> bool {
    match head.single("content-length") {
        Single::One(value) => std::str::from_utf8(value)
            .ok()
            .and_then(|text| text.parse::<usize>().ok())
            .is_none_or(|promised| promised > body.len()),
        Single::Absent | Single::Repeated => false,
    }
}

fn retry_forbidden(head: &ResponseHead<'_>) -> bool {
    match head.single("x-should-retry") {
        Single::Absent => false,
        Single::One(value) => value.eq_ignore_ascii_case(b"false"),
        Single::Repeated => true,
    }
}

/// The first denial row that matches, else the first other row.
fn look_up(adapter: &Adapter, head: Option<&ResponseHead<'_>>, body: &Value) -> Option<Found> {
    let facts = Facts { head, body };
    let hit = |rule: &&'static Rule| rule.matches(&facts);
    let denials = RELAYS.iter().chain(adapter.deny.iter().copied().flatten());
    let others = || adapter.rules.iter().copied().flatten().find(hit);
    denials
        .into_iter()
        .find(hit)
        .map(Found::denial)
        .or_else(|| others().map(Found::row))
}

/// The status that a body itself names as a number.
fn body_status(body: &Value) -> Option<u16> {
    let code = json_envelope::at(body, &["error", "code"])?.as_u64()?;
    let status = u16::try_from(code).ok()?;
    (400..600).contains(&status).then_some(status)
}

/// What a bare status says. `readable` tells an answer with a JSON body from a page or a line of text, which may come from anything
/// on the way.
const fn by_status(status: u16, readable: bool) -> Class {
    match status {
        // A page under 403 is more often a wall on the way than the provider's word about a key.
        403 if !readable => Class::Ambiguous,
        401 | 403 => Class::Auth,
        424 if readable => Class::ServerError,
        424 => Class::Ambiguous,
        402 => Class::QuotaHard,
        408 | 504 | 524 => Class::Timeout,
        409 | 425 | 429 | 498 | 499 | 520..=523 | 525..=530 => Class::Ambiguous,
        400..=499 => Class::Config,
        500..=599 if readable => Class::ServerError,
        _ => Class::Ambiguous,
    }
}

/// The status that stands for a class when an event names none.
const fn status_of(class: Class) -> u16 {
    match class {
        Class::Throttle | Class::QuotaHard => 429,
        Class::Overload => 503,
        Class::Config | Class::ContextOverflow | Class::ContentPolicy => 400,
        Class::Auth => 401,
        Class::Timeout => 504,
        Class::ServerError
        | Class::Malformed
        | Class::Ambiguous
        | Class::Transport
        | Class::OkStream
        | Class::Ok => 502,
    }
}

//! Reads a provider's delay directive: how long it asks callers to stay away.
//!
//! Not here: waiting, or whether the delay is acceptable. A malformed directive is a missing one, an instant that has passed is zero,
//! and a number too large to hold saturates at [`PUSHBACK_MAX`]: it is excessive, not missing. Reset headers and prose are not read.

use std::time::Duration;

use serde_json::Value;

use super::answer::{ResponseHead, Single};
use super::json_envelope;
use crate::core::limits::PUSHBACK_MAX;

/// A vendor's own way to give a delay, read after the common headers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DelaySource {
    /// A header with whole milliseconds.
    MillisHeader(&'static str),
    /// `google.rpc.RetryInfo` among `error.details`.
    RetryInfo,
}

/// The delay that an answer asks for: `retry-after-ms`, else `retry-after`, else the vendor's own sources in their order.
pub fn read(
    head: &ResponseHead<'_>,
    body: Option<&Value>,
    sources: &[DelaySource],
) -> Option<Duration> {
    header(head, "retry-after-ms", millis)
        .or_else(|| header(head, "retry-after", |text| seconds_or_date(text, head)))
        .or_else(|| {
            sources.iter().find_map(|source| match source {
                DelaySource::MillisHeader(name) => header(head, name, whole_millis),
                DelaySource::RetryInfo => body.and_then(retry_info),
            })
        })
}

/// The delay that an event inside a stream asks for. The headers of its good answer say nothing about it; an error that comes over a
/// WebSocket carries the headers that its answer would have had.
pub fn read_event(event: &Value, sources: &[DelaySource]) -> Option<Duration> {
    let tells = sources.contains(&DelaySource::RetryInfo);
    headers_inside(event).or_else(|| tells.then(|| retry_info(event)).flatten())
}

fn headers_inside(event: &Value) -> Option<Duration> {
    let headers = [&["error", "headers"][..], &["headers"]]
        .iter()
        .find_map(|path| json_envelope::at(event, path))?
        .as_object()?;
    let value = |name: &str| {
        let mut found = headers
            .iter()
            .filter(|(key, _)| key.eq_ignore_ascii_case(name));
        match (found.next()?.1, found.next()) {
            (Value::String(text), None) => Some(text.trim().to_owned()),
            (Value::Number(number), None) => Some(number.to_string()),
            _ => None,
        }
    };
    let millis = value("retry-after-ms").and_then(|text| millis(&text));
    millis.or_else(|| decimal(&value("retry-after")?, 3))
}

fn header(
    head: &ResponseHead<'_>,
    name: &str,
    parse: impl FnOnce(&str) -> Option<Duration>,
) -> Option<Duration> {
    match head.single(name) {
        Single::One(value) => parse(std::str::from_utf8(value).ok()?),
        Single::Absent | Single::Repeated => None,
    }
}

fn millis(text: &str) -> Option<Duration> {
    decimal(text, 0)
}

fn whole_millis(text: &str) -> Option<Duration> {
    digits(text).then(|| decimal(text, 0)).flatten()
}

fn seconds_or_date(text: &str, head: &ResponseHead<'_>) -> Option<Duration> {
    decimal(text, 3).or_else(|| {
        let until = httpdate::parse_http_date(text).ok()?;
        let sent = httpdate::parse_http_date(head.text("date")?).ok()?;
        let delay = until.duration_since(sent).unwrap_or(Duration::ZERO);
        Some(delay.min(PUSHBACK_MAX))
    })
}

/// `retryDelay` is a protobuf duration in JSON: decimal seconds with the suffix `s`.
fn retry_info(body: &Value) -> Option<Duration> {
    let details = json_envelope::at(body, &["error", "details"])?.as_array()?;
    let info = details.iter().find(|detail| {
        json_envelope::text_at(detail, &["@type"])
            .is_some_and(|name| name.ends_with("google.rpc.RetryInfo"))
    })?;
    decimal(
        json_envelope::text_at(info, &["retryDelay"])?.strip_suffix('s')?,
        3,
    )
}

fn digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// A decimal number without sign or exponent, times ten to the power `scale`, as milliseconds rounded up and saturated.
fn decimal(text: &str, scale: usize) -> Option<Duration> {
    let (whole, fraction) = match text.split_once('.') {
        Some((whole, fraction)) if digits(fraction) => (whole, fraction),
        Some(_) => return None,
        None => (text, ""),
    };
    if !digits(whole) {
        return None;
    }
    let moved = fraction.bytes().chain(std::iter::repeat(b'0')).take(scale);
    let total = whole.bytes().chain(moved).fold(0_u64, |total, digit| {
        total
            .saturating_mul(10)
            .saturating_add(u64::from(digit.saturating_sub(b'0')))
    });
    let rest = fraction.bytes().skip(scale).any(|digit| digit != b'0');
    let rounded = total.saturating_add(u64::from(rest));
    Some(Duration::from_millis(rounded).min(PUSHBACK_MAX))
}

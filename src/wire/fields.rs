//! The fields of a head, and what they say of its body and its connection.

use bytes::Bytes;
use http::header::{
    CONNECTION, CONTENT_LENGTH, HeaderMap, HeaderName, HeaderValue, TRANSFER_ENCODING,
};

use super::Malformed;

/// One field of a head that is being read: where its name and its value lie.
#[derive(Clone, Copy)]
pub(super) struct Place {
    name: (usize, usize),
    value: (usize, usize),
}

/// Where the fields lie in the bytes that they were found in.
pub(super) fn places(bytes: &[u8], fields: &[httparse::Header<'_>]) -> Vec<Place> {
    let place = |part: &[u8]| place(bytes, part);
    let place = |field: &httparse::Header<'_>| Place {
        name: place(field.name.as_bytes()),
        value: place(field.value),
    };
    fields.iter().map(place).collect()
}

/// Where a part of some bytes lies in them.
pub(super) fn place(bytes: &[u8], part: &[u8]) -> (usize, usize) {
    let from = part.as_ptr().addr().saturating_sub(bytes.as_ptr().addr());
    (from, from + part.len())
}

/// The part of a head that lies there, without copying it.
pub(super) fn part(whole: &Bytes, (from, to): (usize, usize)) -> Result<Bytes, Malformed> {
    if from > to || to > whole.len() {
        return Err(Malformed("a header outside its head"));
    }
    Ok(whole.slice(from..to))
}

/// The fields of a head, in order.
pub(super) fn map(whole: &Bytes, places: &[Place]) -> Result<HeaderMap, Malformed> {
    let mut headers = HeaderMap::with_capacity(places.len());
    for place in places {
        let (name, value) = (part(whole, place.name)?, part(whole, place.value)?);
        let name = HeaderName::from_bytes(&name).map_err(|_| Malformed("a header's name"))?;
        let value =
            HeaderValue::from_maybe_shared(value).map_err(|_| Malformed("a header's value"))?;
        headers.append(name, value);
    }
    Ok(headers)
}

/// Whether the body comes in chunks. Any other encoding is an error: nobody sends one, and readers differ on what it would mean.
pub(super) fn is_chunked(headers: &HeaderMap) -> Result<bool, Malformed> {
    let mut encodings = headers.get_all(TRANSFER_ENCODING).iter();
    let Some(encoding) = encodings.next() else {
        return Ok(false);
    };
    let is_chunked = encoding.as_bytes().eq_ignore_ascii_case(b"chunked");
    if !is_chunked || encodings.next().is_some() {
        return Err(Malformed("a transfer encoding other than chunked"));
    }
    Ok(true)
}

/// The length of the body. Several are taken if they are the same, each in a field of its own (RFC 9110, 8.6).
pub(super) fn length(headers: &HeaderMap) -> Result<Option<u64>, Malformed> {
    let mut length = None;
    for value in headers.get_all(CONTENT_LENGTH) {
        let this = digits(value.as_bytes()).ok_or(Malformed("a length that is none"))?;
        if length.is_some_and(|length| length != this) {
            return Err(Malformed("two lengths"));
        }
        length = Some(this);
    }
    Ok(length)
}

/// A number of digits alone: no sign, no list.
fn digits(text: &[u8]) -> Option<u64> {
    if text.is_empty() || !text.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// Whether both sides may use the connection again, as far as version and fields say (RFC 9112, 9.3).
pub(super) fn keeps(is_current: bool, headers: &HeaderMap) -> bool {
    let mut asked = is_current;
    for value in headers.get_all(CONNECTION) {
        for option in value.as_bytes().split(|byte| *byte == b',') {
            let option = option.trim_ascii();
            if option.eq_ignore_ascii_case(b"close") {
                return false;
            }
            asked |= option.eq_ignore_ascii_case(b"keep-alive");
        }
    }
    asked
}

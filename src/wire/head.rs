//! The head of an answer: status, headers, and what they say of its body and its connection.

use std::mem::MaybeUninit;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::header::{HeaderMap, HeaderName, HeaderValue};
use http::{StatusCode, header};
use httparse::ParserConfig;

use super::Malformed;

/// Largest head of an answer. Providers send one or two KiB; proxies in front of them accept 16 to 64.
pub const HEAD_BYTES_MAX: usize = 64 << 10;
/// Most headers of an answer.
pub const HEADERS_MAX: usize = 128;

/// A head.
#[derive(Debug)]
pub struct Head {
    /// Its status.
    pub status: StatusCode,
    /// Its headers, in order.
    pub headers: HeaderMap,
    /// Where the body ends.
    pub framing: Framing,
    /// Whether the connection may carry another request, when the body has ended.
    pub keeps: bool,
}

/// Where a body ends (RFC 9112, 6.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Framing {
    /// There is none.
    Empty,
    /// After so many bytes.
    Length(u64),
    /// In chunks.
    Chunked,
    /// With the connection.
    UntilClose,
}

/// One header of a head that is being read: where its name and its value lie.
#[derive(Clone, Copy)]
struct Place {
    name: (usize, usize),
    value: (usize, usize),
}

/// Takes a head from the front of `bytes`; `None` while it is not whole.
pub fn take(bytes: &mut BytesMut) -> Result<Option<Head>, Malformed> {
    let mut places = [Place {
        name: (0, 0),
        value: (0, 0),
    }; HEADERS_MAX];
    let mut room = [const { MaybeUninit::uninit() }; HEADERS_MAX];
    let mut answer = httparse::Response::new(&mut []);
    let parsed =
        ParserConfig::default().parse_response_with_uninit_headers(&mut answer, bytes, &mut room);
    let length = match parsed {
        Ok(httparse::Status::Complete(length)) if length <= HEAD_BYTES_MAX => length,
        Ok(httparse::Status::Complete(_)) => return Err(Malformed("a head over its bound")),
        Ok(httparse::Status::Partial) if bytes.len() > HEAD_BYTES_MAX => {
            return Err(Malformed("a head over its bound"));
        }
        Ok(httparse::Status::Partial) => return Ok(None),
        Err(httparse::Error::TooManyHeaders) => return Err(Malformed("too many headers")),
        Err(_) => return Err(Malformed("no HTTP/1.1 head")),
    };
    let status = answer.code.and_then(|code| StatusCode::from_u16(code).ok());
    let status = status.ok_or(Malformed("a status that is none"))?;
    let is_current = answer.version == Some(1);
    let start = bytes.as_ptr().addr();
    let place = |part: &[u8]| {
        let from = part.as_ptr().addr().saturating_sub(start);
        (from, from + part.len())
    };
    let count = answer.headers.len();
    for (slot, parsed) in places.iter_mut().zip(answer.headers.iter()) {
        *slot = Place {
            name: place(parsed.name.as_bytes()),
            value: place(parsed.value),
        };
    }
    let whole = bytes.split_to(length).freeze();
    let mut headers = HeaderMap::with_capacity(count);
    for place in places.iter().take(count) {
        let (name, value) = (part(&whole, place.name)?, part(&whole, place.value)?);
        let name = HeaderName::from_bytes(&name).map_err(|_| Malformed("a header's name"))?;
        let value =
            HeaderValue::from_maybe_shared(value).map_err(|_| Malformed("a header's value"))?;
        headers.append(name, value);
    }
    let framing = framing(status, &headers)?;
    let keeps = keeps(is_current, framing, &headers);
    if headers.contains_key(header::TRANSFER_ENCODING) {
        // Both were given, and the other one holds (RFC 9112, 6.3): whoever reads on must not see a second length.
        headers.remove(header::CONTENT_LENGTH);
    }
    Ok(Some(Head {
        status,
        headers,
        framing,
        keeps,
    }))
}

fn part(whole: &Bytes, (from, to): (usize, usize)) -> Result<Bytes, Malformed> {
    if from > to || to > whole.len() {
        return Err(Malformed("a header outside its head"));
    }
    Ok(whole.slice(from..to))
}

fn framing(status: StatusCode, headers: &HeaderMap) -> Result<Framing, Malformed> {
    if status.is_informational()
        || matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED)
    {
        return Ok(Framing::Empty);
    }
    let mut encodings = headers.get_all(header::TRANSFER_ENCODING).iter();
    if let Some(encoding) = encodings.next() {
        let is_chunked = encoding.as_bytes().eq_ignore_ascii_case(b"chunked");
        if !is_chunked || encodings.next().is_some() {
            return Err(Malformed("a transfer encoding other than chunked"));
        }
        return Ok(Framing::Chunked);
    }
    let mut length = None;
    for value in headers.get_all(header::CONTENT_LENGTH) {
        let this = digits(value.as_bytes()).ok_or(Malformed("a length that is none"))?;
        if length.is_some_and(|length| length != this) {
            return Err(Malformed("two lengths"));
        }
        length = Some(this);
    }
    Ok(match length {
        Some(0) => Framing::Empty,
        Some(length) => Framing::Length(length),
        None => Framing::UntilClose,
    })
}

/// A number of digits alone: no sign, no list.
fn digits(text: &[u8]) -> Option<u64> {
    if text.is_empty() || !text.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(text).ok()?.parse().ok()
}

fn keeps(is_current: bool, framing: Framing, headers: &HeaderMap) -> bool {
    let mut asked = is_current;
    for value in headers.get_all(header::CONNECTION) {
        for option in value.as_bytes().split(|byte| *byte == b',') {
            let option = option.trim_ascii();
            if option.eq_ignore_ascii_case(b"close") {
                return false;
            }
            asked |= option.eq_ignore_ascii_case(b"keep-alive");
        }
    }
    // Where two readers could see two ends, as of chunks in HTTP/1.0 (RFC 9112, 6.1), nothing follows on the same connection.
    let both = headers.contains_key(header::TRANSFER_ENCODING)
        && headers.contains_key(header::CONTENT_LENGTH);
    let is_odd = !is_current && headers.contains_key(header::TRANSFER_ENCODING);
    asked && !both && !is_odd && framing != Framing::UntilClose
}

/// How long the server says that it keeps an idle connection: `keep-alive: timeout=5`.
pub fn keep_alive_timeout(headers: &HeaderMap) -> Option<Duration> {
    let value = headers.get("keep-alive")?.to_str().ok()?;
    let mut pairs = value.split(',').filter_map(|pair| pair.split_once('='));
    let (_, seconds) = pairs.find(|(name, _)| name.trim().eq_ignore_ascii_case("timeout"))?;
    Some(Duration::from_secs(seconds.trim().parse().ok()?))
}

//! The head of an answer: read from upstreams, written to clients.

use std::mem::MaybeUninit;
use std::time::Duration;

use bytes::{BufMut, BytesMut};
use http::header::HeaderMap;
use http::{StatusCode, header};
use httparse::ParserConfig;

use super::body::Framing;
use super::{Malformed, fields};
use crate::core::limits::HEAD_BYTES_MAX;

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

/// Takes a head from the front of `bytes`; `None` while it is not whole.
pub fn take(bytes: &mut BytesMut) -> Result<Option<Head>, Malformed> {
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
    let places = fields::places(bytes, answer.headers);
    let whole = bytes.split_to(length).freeze();
    let mut headers = fields::map(&whole, &places)?;
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

fn framing(status: StatusCode, headers: &HeaderMap) -> Result<Framing, Malformed> {
    if has_no_body(status) {
        return Ok(Framing::Empty);
    }
    if fields::is_chunked(headers)? {
        return Ok(Framing::Chunked);
    }
    Ok(match fields::length(headers)? {
        Some(0) => Framing::Empty,
        Some(length) => Framing::Length(length),
        None => Framing::UntilClose,
    })
}

/// Whether an answer with this status has no body, whatever its fields say (RFC 9112, 6.3).
pub fn has_no_body(status: StatusCode) -> bool {
    status.is_informational() || matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED)
}

fn keeps(is_current: bool, framing: Framing, headers: &HeaderMap) -> bool {
    // Where two readers could see two ends, as of chunks in HTTP/1.0 (RFC 9112, 6.1), nothing follows on the same connection.
    let both = headers.contains_key(header::TRANSFER_ENCODING)
        && headers.contains_key(header::CONTENT_LENGTH);
    let is_odd = !is_current && headers.contains_key(header::TRANSFER_ENCODING);
    fields::keeps(is_current, headers) && !both && !is_odd && framing != Framing::UntilClose
}

/// How long the server says that it keeps an idle connection: `keep-alive: timeout=5`.
pub fn keep_alive_timeout(headers: &HeaderMap) -> Option<Duration> {
    let value = headers.get("keep-alive")?.to_str().ok()?;
    let mut pairs = value.split(',').filter_map(|pair| pair.split_once('='));
    let (_, seconds) = pairs.find(|(name, _)| name.trim().eq_ignore_ascii_case("timeout"))?;
    Some(Duration::from_secs(seconds.trim().parse().ok()?))
}

/// Appends the head of an answer: its line, the headers, then those of this connection, which are told apart from the answer's own.
pub fn write_head(
    out: &mut BytesMut,
    status: StatusCode,
    headers: &HeaderMap,
    own: &[(&str, &[u8])],
) {
    let length = |name: &str, value: &[u8]| name.len() + value.len() + 4;
    let of_answer = headers.iter();
    let of_answer = of_answer.map(|(name, value)| length(name.as_str(), value.as_bytes()));
    let of_own = own.iter().map(|(name, value)| length(name, value));
    let reason = status.canonical_reason().unwrap_or("");
    out.reserve(of_answer.sum::<usize>() + of_own.sum::<usize>() + reason.len() + 32);
    for part in ["HTTP/1.1 ", status.as_str(), " ", reason, "\r\n"] {
        out.put_slice(part.as_bytes());
    }
    for (name, value) in headers {
        put(out, name.as_str(), value.as_bytes());
    }
    for (name, value) in own {
        put(out, name, value);
    }
    out.put_slice(b"\r\n");
}

fn put(out: &mut BytesMut, name: &str, value: &[u8]) {
    out.put_slice(name.as_bytes());
    out.put_slice(b": ");
    out.put_slice(value);
    out.put_slice(b"\r\n");
}

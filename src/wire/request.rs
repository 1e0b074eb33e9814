//! The head of a request: read from clients, written to upstreams.

use std::mem::MaybeUninit;

use bytes::{BufMut, Bytes, BytesMut};
use http::header::{HOST, HeaderMap, HeaderName, HeaderValue};
use http::request::Parts;
use http::uri::Authority;
use http::{Method, Request, Uri, Version};
use httparse::ParserConfig;

use super::body::Framing;
use super::{Malformed, fields};
use crate::core::limits::HEAD_BYTES_MAX;

/// Most headers of a request: twice what browsers behind two proxies send.
pub const HEADERS_MAX: usize = 256;

/// A head.
#[derive(Debug)]
pub struct Head {
    /// Method, target, version and headers.
    pub parts: Parts,
    /// Where the body ends.
    pub framing: Framing,
    /// Whether the client wants to use the connection again.
    pub keeps: bool,
}

/// Why there is no head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoHead {
    /// It has more bytes or more headers than it may.
    TooLarge,
    /// It breaks the rules of HTTP/1.1, or two readers could take it for two different requests.
    Malformed(Malformed),
}

impl From<Malformed> for NoHead {
    fn from(malformed: Malformed) -> NoHead {
        NoHead::Malformed(malformed)
    }
}

/// Takes a head from the front of `bytes`; `None` while it is not whole. Empty lines before it are passed over (RFC 9112, 2.2).
pub fn take(bytes: &mut BytesMut) -> Result<Option<Head>, NoHead> {
    let mut room = [const { MaybeUninit::uninit() }; HEADERS_MAX];
    let mut asked = httparse::Request::new(&mut []);
    let parsed =
        ParserConfig::default().parse_request_with_uninit_headers(&mut asked, bytes, &mut room);
    let length = match parsed {
        Ok(httparse::Status::Complete(length)) if length <= HEAD_BYTES_MAX => length,
        Ok(httparse::Status::Complete(_)) => return Err(NoHead::TooLarge),
        Ok(httparse::Status::Partial) if bytes.len() > HEAD_BYTES_MAX => {
            return Err(NoHead::TooLarge);
        }
        Ok(httparse::Status::Partial) => return Ok(None),
        Err(httparse::Error::TooManyHeaders) => return Err(NoHead::TooLarge),
        Err(error) => return Err(Malformed(why(error)).into()),
    };
    let (Some(method), Some(target)) = (asked.method, asked.path) else {
        return Err(Malformed("no request line").into());
    };
    let method = Method::from_bytes(method.as_bytes());
    let method = method.map_err(|_| Malformed("a method that is none"))?;
    let is_current = asked.version == Some(1);
    let target = fields::place(bytes, target.as_bytes());
    let places = fields::places(bytes, asked.headers);
    let whole = bytes.split_to(length).freeze();
    let headers = fields::map(&whole, &places)?;
    let uri = target_of(fields::part(&whole, target)?, is_current, &headers)?;
    let framing = framing(is_current, &headers)?;
    let keeps = fields::keeps(is_current, &headers);
    let mut parts = Request::new(()).into_parts().0;
    parts.method = method;
    parts.uri = uri;
    parts.version = if is_current {
        Version::HTTP_11
    } else {
        Version::HTTP_10
    };
    parts.headers = headers;
    Ok(Some(Head {
        parts,
        framing,
        keeps,
    }))
}

/// What is wrong, in words that help whoever wrote the client.
fn why(error: httparse::Error) -> &'static str {
    match error {
        httparse::Error::HeaderName => "a header's name",
        httparse::Error::HeaderValue => "a header's value",
        httparse::Error::NewLine => "the end of a line",
        httparse::Error::Version => "a version other than 1.0 and 1.1",
        httparse::Error::Token | httparse::Error::Status | httparse::Error::TooManyHeaders => {
            "the request line, if it is HTTP at all"
        }
    }
}

/// The target, if it and `host` name one host and no more than that (RFC 9112, 3.2). Names of users have no place in either: who strips
/// them sees another host than who does not.
fn target_of(target: Bytes, is_current: bool, headers: &HeaderMap) -> Result<Uri, Malformed> {
    let uri = Uri::from_maybe_shared(target).map_err(|_| Malformed("a target that is none"))?;
    let mut hosts = headers.get_all(HOST).iter();
    let host = hosts.next().map(HeaderValue::as_bytes);
    if hosts.next().is_some() {
        return Err(Malformed("two hosts"));
    }
    if host.is_some_and(|host| !host.is_empty() && !is_authority(host)) {
        return Err(Malformed("a host that is none"));
    }
    match (uri.authority(), host) {
        (Some(named), _) if named.as_str().contains('@') => Err(Malformed("a user in the target")),
        (Some(named), Some(host)) if !named.as_str().as_bytes().eq_ignore_ascii_case(host) => {
            Err(Malformed("a target and a host that differ"))
        }
        (None, None) if is_current => Err(Malformed("no host")),
        _ => Ok(uri),
    }
}

fn is_authority(host: &[u8]) -> bool {
    !host.contains(&b'@') && Authority::try_from(host).is_ok()
}

/// Where the body ends. A request has none without a field that says so, and with both fields, or with chunks in HTTP/1.0, two readers
/// could see two ends of it (RFC 9112, 6.1 and 6.3).
fn framing(is_current: bool, headers: &HeaderMap) -> Result<Framing, Malformed> {
    let length = fields::length(headers)?;
    match (fields::is_chunked(headers)?, length) {
        (true, Some(_)) => Err(Malformed("a length beside chunks")),
        (true, None) if !is_current => Err(Malformed("chunks in a version that has none")),
        (true, None) => Ok(Framing::Chunked),
        (false, None | Some(0)) => Ok(Framing::Empty),
        (false, Some(length)) => Ok(Framing::Length(length)),
    }
}

/// What a request line or `host` must not contain (RFC 9112, 3): it would end the line early.
fn is_forbidden(byte: u8) -> bool {
    byte <= b' ' || byte == 0x7f
}

/// Appends the head of a request: its line, `host`, and the headers as they come. Nothing is appended, and `None` given, when path or
/// authority are empty or would break out of their line.
pub fn write_head(
    out: &mut BytesMut,
    method: &str,
    path: &str,
    authority: &str,
    headers: &[(HeaderName, HeaderValue)],
) -> Option<()> {
    let breaks = |text: &str| text.is_empty() || text.bytes().any(is_forbidden);
    if breaks(method) || breaks(path) || breaks(authority) {
        return None;
    }
    let length = |(name, value): &(HeaderName, HeaderValue)| name.as_str().len() + value.len() + 4;
    let all: usize = headers.iter().map(length).sum();
    out.reserve(all + method.len() + path.len() + authority.len() + 32);
    for part in [method, " ", path, " HTTP/1.1\r\nhost: ", authority, "\r\n"] {
        out.put_slice(part.as_bytes());
    }
    for (name, value) in headers {
        out.put_slice(name.as_str().as_bytes());
        out.put_slice(b": ");
        out.put_slice(value.as_bytes());
        out.put_slice(b"\r\n");
    }
    out.put_slice(b"\r\n");
    Some(())
}

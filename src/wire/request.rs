//! The head of a request.

use bytes::{BufMut, BytesMut};
use http::header::{HeaderName, HeaderValue};

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

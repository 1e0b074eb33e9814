//! HTTP/1.1 as clients and upstreams speak it: the heads of requests and answers, and where their bodies end. Bytes in, bytes out.
//!
//! Not here: sockets, time, and what an answer proves. Why not Pingora's sessions: they send head and body apart, hold 64 KiB beside
//! each answer, and cost more than everything else that is done for a request (ADR 18, 22). Invariants: whatever is not plainly one message
//! is an error, never a guess (RFC 9112, 6.3 and 11.2); nothing grows without a bound.

pub mod answer;
pub mod body;
mod fields;
pub mod request;

/// A message breaks the rules of HTTP/1.1; the text says which.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("malformed message: {0}")]
pub struct Malformed(pub &'static str);

/// Whether a head that was not whole may have its end in the bytes from here on. Parsing it anew for each byte that drips in would cost
/// a processor.
pub fn may_end(bytes: &[u8], from: usize) -> bool {
    let from = from.saturating_sub(3);
    let new = bytes.get(from..).unwrap_or_default();
    memchr::memchr_iter(b'\n', new).any(|at| {
        let behind = new.get(at + 1..).unwrap_or_default();
        behind.starts_with(b"\n") || behind.starts_with(b"\r\n")
    })
}

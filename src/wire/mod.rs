//! HTTP/1.1 as clients and upstreams speak it: the heads of requests and answers, and where their bodies end. Bytes in, bytes out.
//!
//! Not here: sockets, time, and what an answer proves. Why not Pingora's sessions: they send head and body apart, hold 64 KiB beside
//! each answer, and cost more than everything else that is done for a request (ADR 18, 22). Invariants: whatever is not plainly one message
//! is an error, never a guess (RFC 9112, 6.3 and 11.2); nothing grows without a bound.

pub mod answer;
pub mod body;
mod fields;
pub mod request;

use crate::core::limits::HEAD_BYTES_MAX;

/// A message breaks the rules of HTTP/1.1; the text says which.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("malformed message: {0}")]
pub struct Malformed(pub &'static str);

/// When to look for a head in bytes that grow. Parsing it anew for each byte that drips in would cost a processor.
#[derive(Debug, Clone, Copy, Default)]
pub struct HeadSearch {
    /// How much was looked through.
    searched: usize,
}

impl HeadSearch {
    /// Whether a whole head may be in these bytes, which begin as they did at the last question. The first look finds what is no head at
    /// all, one beyond the bound what is too long; the others wait for its end.
    pub fn is_due(&mut self, bytes: &[u8]) -> bool {
        let searched = std::mem::replace(&mut self.searched, bytes.len());
        searched == 0 || bytes.len() > HEAD_BYTES_MAX || may_end(bytes, searched)
    }
}

/// Whether a head may have its end in the bytes from here on.
fn may_end(bytes: &[u8], from: usize) -> bool {
    let from = from.saturating_sub(3);
    let new = bytes.get(from..).unwrap_or_default();
    memchr::memchr_iter(b'\n', new).any(|at| {
        let behind = new.get(at + 1..).unwrap_or_default();
        behind.starts_with(b"\n") || behind.starts_with(b"\r\n")
    })
}

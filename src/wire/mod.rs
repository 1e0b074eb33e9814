//! HTTP/1.1 as upstreams are spoken to: the head of a request, the head of an answer, and where its body ends. Bytes in, bytes out.
//!
//! Not here: sockets, time, and what an answer proves. Why not Pingora's client sessions: they send head and body apart, hold 64 KiB beside
//! each answer, and cost more than everything else that is done for a request (ADR 18). Invariants: whatever is not plainly one message is an
//! error, never a guess (RFC 9112, 6.3 and 11.2); nothing grows without a bound.

pub mod body;
pub mod head;
pub mod request;

/// An answer breaks the rules of HTTP/1.1; the text says which.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("malformed answer: {0}")]
pub struct Malformed(pub &'static str);

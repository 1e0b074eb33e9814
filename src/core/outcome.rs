//! What became of one attempt: delivery (did it arrive, may it have run) and what the upstream said.

use std::sync::Arc;
use std::time::Duration;

use super::certificate::RejectionCertificate;
use super::class::Class;

/// The delivery class of an attempt's end. Whether it may be sent again is derived from this, never set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// Nothing that could run arrived: DNS, connect or TLS failed, or HTTP/2 proved the stream unprocessed (RFC 9113 section 8.7).
    NotDelivered,
    /// A complete answer that proves the provider did not run the request.
    Rejected(RejectionCertificate),
    /// A complete error answer without that proof.
    Refused,
    /// Anything else after bytes were sent: reset, end of file, timeout, malformed response.
    Ambiguous,
    /// Output was seen, and then it broke.
    Partial,
    /// A good answer, or a stream whose first meaningful event is output.
    Succeeded,
}

impl Outcome {
    /// The `outcome` label of `rondo_attempts_total` and the `delivery` column.
    pub const fn label(self) -> &'static str {
        match self {
            Outcome::NotDelivered => "not_delivered",
            Outcome::Rejected(_) => "rejected",
            Outcome::Refused => "refused",
            Outcome::Ambiguous => "ambiguous",
            Outcome::Partial => "partial",
            Outcome::Succeeded => "succeeded",
        }
    }
}

/// Where the failing answer was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Carrier {
    /// The response's own status line.
    Status,
    /// An event inside a stream that began with a good status.
    Stream,
    /// No response at all.
    None,
}

/// How far a failure reaches (R-K2): a wider scope rules out more candidates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Scope {
    /// This candidate, this time.
    Candidate,
    /// Every candidate with the same key.
    Credential,
    /// Every candidate at the same target; of a connection that failed, every one at the same address.
    Endpoint,
    /// Every candidate of the provider.
    Provider,
}

/// The end of one attempt before anything was committed, as the adapter read it.
#[derive(Debug, Clone)]
pub struct AttemptReport {
    /// Delivery.
    pub outcome: Outcome,
    /// What the answer said.
    pub class: Class,
    /// How far it reaches.
    pub scope: Scope,
    /// Where it was found.
    pub carrier: Carrier,
    /// HTTP status that stands for it: the response's own, or what an in-stream error maps to.
    pub status: Option<u16>,
    /// The provider's delay directive, if it gave a usable one.
    pub pushback: Option<Duration>,
    /// Bounded copy of an error answer, for the case that it becomes the final one.
    pub reply: Option<Arc<Reply>>,
}

/// A bounded copy of an upstream's error answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply {
    /// HTTP status.
    pub status: u16,
    /// Allow-listed headers in their order, names in lower case.
    pub headers: Vec<(String, String)>,
    /// The first bytes of the body, at most `REPLY_BODY_MAX`.
    pub body: Vec<u8>,
}

//! The proof that a provider rejected a request before running it.

use super::class::Class;

/// Proof that the provider did not run the request. Only `providers::certify` mints one; a tidy test holds that.
///
/// Without this value no code path can build an [`Outcome::Rejected`](super::outcome::Outcome::Rejected), and so none can
/// enter a second round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RejectionCertificate {
    kind: PushbackKind,
    rule: &'static str,
}

/// What a certified rejection was for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PushbackKind {
    /// A rate limit.
    Throttle,
    /// Lack of capacity.
    Overload,
}

impl RejectionCertificate {
    /// Called by `providers::certify` alone. `rule` is the stable name of the table row that proved it.
    pub(crate) const fn mint(kind: PushbackKind, rule: &'static str) -> RejectionCertificate {
        RejectionCertificate { kind, rule }
    }

    /// Throttle or overload.
    pub const fn kind(&self) -> PushbackKind {
        self.kind
    }

    /// The class that goes with the kind.
    pub const fn class(&self) -> Class {
        match self.kind {
            PushbackKind::Throttle => Class::Throttle,
            PushbackKind::Overload => Class::Overload,
        }
    }

    /// The name of the rule that proved it.
    pub const fn rule(&self) -> &'static str {
        self.rule
    }
}

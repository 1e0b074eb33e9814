//! Issues certificates: the only place that does.
//!
//! Not here: the tables. Invariant: a certificate needs a complete, readable, documented answer that no denial row names, that does not
//! forbid a retry, to a request that cannot have had side effects.

use super::rules::{Proof, Rule};
use crate::core::certificate::{PushbackKind, RejectionCertificate};
use crate::core::class::Class;
use crate::core::outcome::Carrier;

/// Everything beside the row itself that a certificate depends on.
#[derive(Debug, Clone, Copy)]
pub(super) struct Evidence {
    /// Where the answer was found.
    pub carrier: Carrier,
    /// How it could be read.
    pub reading: Reading,
    /// Whether the provider said that a retry is of no use, or said it unclearly.
    pub retry_forbidden: bool,
    /// Whether the request could cause something before it is rejected (R-A5).
    pub side_effects: bool,
    /// Whether nothing of the stream came before this event. True for answers with an error status.
    pub first_event: bool,
}

/// How well the answer could be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reading {
    /// Incomplete or broken.
    Broken,
    /// Complete, but not the provider's envelope.
    Foreign,
    /// Complete, and the documented envelope.
    Documented,
}

/// The name under which certificates of the operator's own statuses are known.
pub(super) const OPERATOR_RULE: &str = "operator.trust_status";

/// A certificate for an answer that `rule` matches.
pub(super) fn by_rule(rule: &Rule, evidence: &Evidence) -> Option<RejectionCertificate> {
    let proven = match (rule.proof, evidence.carrier) {
        (Proof::Status | Proof::StatusOrFirstEvent, Carrier::Status) => true,
        (Proof::StatusOrFirstEvent, Carrier::Stream) => evidence.first_event,
        (Proof::None, _) | (Proof::Status, Carrier::Stream) | (_, Carrier::None) => false,
    };
    let sound = evidence.reading == Reading::Documented
        && !evidence.retry_forbidden
        && !evidence.side_effects;
    let kind = kind(rule.class)?;
    (proven && sound).then(|| RejectionCertificate::mint(kind, rule.name))
}

/// A certificate for a bare status that the operator declared authoritative and pre-execution. The caller has made sure that no
/// denial row matches.
pub(super) fn by_operator(status: u16, evidence: &Evidence) -> Option<RejectionCertificate> {
    let sound = evidence.carrier == Carrier::Status
        && evidence.reading != Reading::Broken
        && !evidence.retry_forbidden
        && !evidence.side_effects;
    let kind = if status == 429 {
        PushbackKind::Throttle
    } else {
        PushbackKind::Overload
    };
    sound.then(|| RejectionCertificate::mint(kind, OPERATOR_RULE))
}

const fn kind(class: Class) -> Option<PushbackKind> {
    match class {
        Class::Throttle => Some(PushbackKind::Throttle),
        Class::Overload => Some(PushbackKind::Overload),
        Class::QuotaHard
        | Class::ServerError
        | Class::Config
        | Class::ContextOverflow
        | Class::ContentPolicy
        | Class::Auth
        | Class::Timeout
        | Class::Malformed
        | Class::Ambiguous
        | Class::Transport
        | Class::OkStream
        | Class::Ok => None,
    }
}

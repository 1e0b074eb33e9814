//! What a broken attempt proves about delivery.

use pingora_core::{Error, ErrorType};

use crate::core::class::Class;
use crate::core::outcome::{AttemptReport, Carrier, Outcome, Scope};
use crate::executor::watchdog::Reached;

/// The report of an attempt that never got an answer.
pub fn broken(reached: Reached, error: &Error) -> AttemptReport {
    let delivered = match reached {
        Reached::NothingSent => Outcome::NotDelivered,
        Reached::Sent if proves_unprocessed(error) => Outcome::NotDelivered,
        Reached::Sent => Outcome::Ambiguous,
    };
    report(delivered, class(error))
}

/// The report of an attempt for which there was no connection: nobody else at the address would get one either.
pub fn unreached(error: &Error) -> AttemptReport {
    let scope = Scope::Endpoint;
    let report = report(Outcome::NotDelivered, class(error));
    AttemptReport { scope, ..report }
}

/// A report without an answer.
pub const fn report(outcome: Outcome, class: Class) -> AttemptReport {
    AttemptReport {
        outcome,
        class,
        scope: Scope::Candidate,
        carrier: Carrier::None,
        status: None,
        pushback: None,
        reply: None,
    }
}

const fn class(error: &Error) -> Class {
    match error.etype {
        ErrorType::ReadTimedout | ErrorType::WriteTimedout => Class::Timeout,
        ErrorType::InvalidHTTPHeader | ErrorType::InvalidH2 => Class::Malformed,
        _ => Class::Transport,
    }
}

/// RFC 9113 section 8.7: a stream that the peer refused, or that lies above the last id of its GOAWAY, was not processed. The h2 crate gives
/// a remote GOAWAY as the error of exactly those streams; a stream at or below the last id ends otherwise. Pingora's own retry flag is not
/// used: 0.9.1 also raises it for an illegal frame after the request was processed (`an_illegal_frame_is_ambiguous`).
fn proves_unprocessed(error: &Error) -> bool {
    let Some(cause) = error.root_cause().downcast_ref::<h2::Error>() else {
        return false;
    };
    let refused = cause.is_reset() && cause.reason() == Some(h2::Reason::REFUSED_STREAM);
    cause.is_remote() && (refused || cause.is_go_away())
}

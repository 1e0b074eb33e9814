//! What an operation remembers. What never resets between rounds is [`Lasting`]; what does is [`Pass`].

use std::time::Duration;

use super::effect::{Begin, OperationSettled};
use super::open_send::OpenSend;
use super::scopes::Dropped;
use super::watchdog::Reached;
use crate::core::commitment::Commitment;
use crate::core::decision::{Decision, Round};
use crate::core::outcome::AttemptReport;
use crate::core::precedence::Precedence;
use crate::core::suppression::Suppression;
use crate::core::time::MonoTime;
use crate::policy::admission::WaitPermit;
use crate::policy::limits::Share;

/// Where the operation stands. Each variant owns what exists only then.
#[derive(Debug)]
pub(super) enum Phase {
    /// Not begun.
    New,
    /// A candidate was picked; its request is being prepared.
    Selected(OpenSend),
    /// The request may have left.
    Sending(OpenSend),
    /// Asleep between rounds, holding a slot.
    Waiting {
        until: MonoTime,
        began: MonoTime,
        permit: WaitPermit,
    },
    /// Asleep before the provider's own retry, holding a slot.
    Pausing {
        until: MonoTime,
        began: MonoTime,
        permit: WaitPermit,
        failed: Begin,
        /// The class of the failure, if such a one may move on to another target.
        movable: Option<&'static str>,
    },
    /// A good answer is being passed on.
    Delivering(OpenSend, AttemptReport),
    /// An error answer is being written; how the operation ends is settled but for the client's leaving.
    Passing(OperationSettled),
    /// Over.
    Ended,
}

impl Phase {
    /// How far the open attempt had come when it ran out of time, if it has.
    pub(super) fn run_out(&self, now: MonoTime) -> Option<Reached> {
        match self {
            Phase::Selected(open) | Phase::Sending(open) | Phase::Delivering(open, _) => {
                let watchdog = open.watchdog.filter(|watchdog| now >= watchdog.due)?;
                Some(watchdog.reached)
            }
            Phase::New
            | Phase::Waiting { .. }
            | Phase::Pausing { .. }
            | Phase::Passing(_)
            | Phase::Ended => None,
        }
    }

    pub(super) const fn label(&self) -> &'static str {
        match self {
            Phase::New => "new",
            Phase::Selected(_) => "selected",
            Phase::Sending(_) => "sending",
            Phase::Waiting { .. } => "waiting",
            Phase::Pausing { .. } => "pausing",
            Phase::Delivering(..) => "delivering",
            Phase::Passing(_) => "passing",
            Phase::Ended => "ended",
        }
    }
}

/// Monotonic over the whole operation (R-S18).
#[derive(Debug)]
pub(super) struct Lasting {
    /// Sends permitted so far.
    pub sends: u32,
    /// Attempts opened so far.
    pub attempts: u32,
    /// What the client has been given.
    pub commitment: Commitment,
    /// The failure to tell.
    pub precedence: Precedence,
    /// The last failed attempt and what followed it.
    pub followed: Option<(Begin, Decision)>,
    /// Whether the gateway is draining.
    pub draining: bool,
    /// Time slept.
    pub waited: Duration,
    /// Not-before instants that this operation learned, by target and key; only extended (R-S12).
    pub not_before: Vec<(usize, usize, MonoTime)>,
    /// What failures have ruled out beyond the candidate that failed (R-K2).
    pub dropped: Vec<Dropped>,
    /// The providers' own retries so far, by target. They outlive rounds: one counter over everything (R-P2).
    pub retries: Vec<ProviderRetries>,
    /// Whether a candidate was passed over because every key of it is set aside as not accepted.
    pub keys_refused: bool,
    /// Whether the last attempt failed too late.
    pub slow: bool,
    /// The attempt whose answer the operation ends with, once that is decided.
    pub told: Option<u32>,
    /// Whether its answer must not be retried by the caller.
    pub forbids_retry: bool,
    /// Whether a candidate was passed over because it cools: that counts as its rejection (R-S5).
    pub cooled: bool,
    /// Whether a candidate was passed over because the quota of its keys is used up.
    pub used_up: bool,
    /// Whether a candidate was passed over for its local limits: that counts as its rejection, too.
    pub limited: bool,
    /// Whether local limits ended the operation.
    pub limit_stop: bool,
    /// Whether a candidate was passed over for failures that prove nothing.
    pub failing: bool,
    /// Whether it was noted that the route's retry budget refused something.
    pub budget_noted: bool,
    /// What the minute of its target has of the last attempt.
    pub share: Option<Share>,
    /// Whether a second round has begun and its end is not noted.
    pub second_round_open: bool,
}

impl Lasting {
    /// Whether a candidate was passed over for something that its provider said before.
    pub const fn skipped(&self) -> bool {
        self.cooled || self.used_up
    }
}

/// The provider's own retries of one target.
#[derive(Debug, Clone, Copy)]
pub(super) struct ProviderRetries {
    pub target: usize,
    /// Tries that failed, the first included.
    pub failures: u32,
    /// When the first of them failed.
    pub first_failure: MonoTime,
    /// Whether the end of the sequence was noted.
    pub noted: bool,
}

/// One ordered pass over the candidates.
#[derive(Debug)]
pub(super) struct Pass {
    /// Which.
    pub round: Round,
    /// Bit set of candidates that were tried or passed over.
    pub tried: u64,
    /// Bit set of the keys of the current candidate that were tried.
    pub keys_tried: u64,
    /// Whether a key of the current candidate has failed in a way that may move on to another target.
    pub pool_moves_on: bool,
    /// Target attempts of this pass; sticky tries do not count.
    pub attempts: u32,
    /// The least objection of its attempts against a second round.
    pub objection: Option<Suppression>,
}

impl Pass {
    pub(super) const fn new(round: Round) -> Pass {
        Pass {
            round,
            tried: 0,
            keys_tried: 0,
            pool_moves_on: false,
            attempts: 0,
            objection: None,
        }
    }

    pub(super) fn object(&mut self, objection: Option<Suppression>) {
        self.objection = match (self.objection, objection) {
            (Some(old), Some(new)) => Some(old.min(new)),
            (old, new) => old.or(new),
        };
    }
}

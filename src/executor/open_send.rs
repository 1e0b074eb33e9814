//! An attempt that is owned and not settled.

use super::effect::{AttemptSettled, Begin, Note};
use super::hold::Hold;
use super::watchdog::Watchdog;
use crate::core::decision::Decision;
use crate::core::outcome::AttemptReport;
use crate::core::settlement::State;
use crate::core::time::MonoTime;
use crate::policy::cooldown::Seen;
use crate::policy::load::InFlight;

/// An attempt between the moment it is owned and its settlement. It has one owner and ends in [`OpenSend::settle`].
#[derive(Debug)]
#[must_use]
pub struct OpenSend {
    /// Which attempt.
    pub(super) begin: Begin,
    /// When it was begun.
    pub(super) began: MonoTime,
    /// Whether the dispatch point permitted the send.
    pub(super) sent: bool,
    /// The candidate's cooldown when it began.
    pub(super) seen: Seen,
    /// What limits the wait that the attempt is in, if it is in one.
    pub(super) watchdog: Option<Watchdog>,
    /// What it holds of what operations share.
    pub(super) hold: Hold,
    /// Its share of the target's load, from the dispatch point to the settlement.
    pub(super) in_flight: Option<InFlight>,
}

impl OpenSend {
    /// Ends the attempt: the one note that settles it.
    pub(super) fn settle(
        self,
        report: Option<AttemptReport>,
        decision: Decision,
        state: State,
    ) -> Note {
        self.hold.settle(report.as_ref());
        Note::AttemptSettled(AttemptSettled {
            begin: self.begin,
            sent: self.sent,
            report,
            decision,
            state,
        })
    }
}

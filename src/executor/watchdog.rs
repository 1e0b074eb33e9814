//! The instant at which the wait that an attempt is in ends by itself, and what the attempt then comes to (R-L4).
//!
//! The shell holds the timers; here is what they will say, so that a cancel which is processed at or after the instant finds the
//! attempt, and what others know of its target, as the timer would have left them, whichever of the two was heard first. Not here: the
//! durations. The instant lives in the open send, so it ends with it.

use super::conclude::{DEADLINE, UPSTREAM_TIMEOUT};
use super::effect::{Next, Note, WaitEnd};
use super::event::StreamEnd;
use super::machine::Executor;
use super::open_send::OpenSend;
use super::outcome::settled_state;
use super::state::Phase;
use crate::core::class::Class;
use crate::core::decision::{Decision, Stop};
use crate::core::outcome::{AttemptReport, Carrier, Outcome, Scope};
use crate::core::settlement::{OperationOutcome, State};
use crate::core::time::MonoTime;

/// What limits the wait that the current attempt is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Watchdog {
    /// When the wait ends by itself.
    pub due: MonoTime,
    /// How far the attempt has come.
    pub reached: Reached,
}

/// How far an attempt had come when it broke or ran out of time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reached {
    /// No byte of the request can have left.
    NothingSent,
    /// Bytes may have left.
    Sent,
}

impl Reached {
    /// The report of an attempt that got no further in time.
    pub const fn timed_out(self) -> AttemptReport {
        // Without a connection in time, nobody else at the address would get one either.
        let (outcome, class, scope) = match self {
            Reached::NothingSent => (Outcome::NotDelivered, Class::Transport, Scope::Endpoint),
            Reached::Sent => (Outcome::Ambiguous, Class::Timeout, Scope::Candidate),
        };
        AttemptReport {
            outcome,
            class,
            scope,
            carrier: Carrier::None,
            status: None,
            pushback: None,
            reply: None,
        }
    }
}

impl Executor {
    /// Sets what limits the wait that begins, or takes it away when the wait is over. It decides nothing; who leaves during a wait leaves it set.
    pub fn watch(&mut self, watchdog: Option<Watchdog>) {
        if let Phase::Selected(open) | Phase::Sending(open) | Phase::Delivering(open, _) =
            &mut self.phase
        {
            open.watchdog = watchdog;
        }
    }

    /// The client has left, or the operation was dropped. What had run out of time by then is settled as that: nothing more can come of it,
    /// and nothing is begun for a client that is not there.
    pub(super) fn on_cancel(
        &mut self,
        phase: Phase,
        how: WaitEnd,
        now: MonoTime,
        notes: &mut Vec<Note>,
    ) -> Next {
        let is_late = now >= self.plan.deadline;
        match (phase.run_out(now), phase) {
            (Some(reached), Phase::Selected(open) | Phase::Sending(open)) => {
                notes.push(self.run_out(open, reached, now));
                self.suppress_for_nobody(notes);
                match reached {
                    Reached::Sent => self.end_late(UPSTREAM_TIMEOUT, notes),
                    Reached::NothingSent if is_late => self.end_late(DEADLINE, notes),
                    // A target that is not reached in time ends its attempt alone.
                    Reached::NothingSent => self.abandon(how.label(), notes),
                }
            }
            (Some(_), Phase::Delivering(open, report)) => {
                self.on_delivered(open, report, StreamEnd::UpstreamTimedOut, notes)
            }
            (None, Phase::Sending(open)) if is_late => {
                notes.push(self.run_out(open, Reached::Sent, now));
                self.suppress_for_nobody(notes);
                self.end_late(UPSTREAM_TIMEOUT, notes)
            }
            (None, Phase::Selected(open)) if is_late => {
                notes.push(open.settle(None, Decision::Stop(Stop::Deadline), State::TimedOut));
                self.suppress_for_nobody(notes);
                self.end_late(DEADLINE, notes)
            }
            (None, Phase::New) if is_late => {
                self.suppress_for_nobody(notes);
                self.end_late(DEADLINE, notes)
            }
            (_, phase) => self.on_gone(phase, now, how, notes),
        }
    }

    /// The operation ends as its timer would have ended it, with nobody to answer.
    fn end_late(&mut self, reason: &'static str, notes: &mut Vec<Note>) -> Next {
        self.end_unanswered(OperationOutcome::TimedOut, State::TimedOut, reason, notes)
    }

    /// Settles an attempt that has run out of time, and learns of its target, as its timer would have. What only this operation would
    /// have known ends with it.
    fn run_out(&mut self, open: OpenSend, reached: Reached, now: MonoTime) -> Note {
        let report = reached.timed_out();
        self.learn(&open, &report, now);
        self.unpin(&open.begin, &report);
        let state = settled_state(&report);
        open.settle(Some(report), Decision::Stop(Stop::ClientGone), state)
    }
}

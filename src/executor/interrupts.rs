//! What ends an operation from outside: drain, deadline, a client that leaves, an event that nothing explains.
//!
//! Each function takes the phase by value and settles what is open in it. A deadline during a send comes back as that attempt's outcome.

use super::conclude::Cause;
use super::effect::{Next, Note, WaitEnd};
use super::event::Event;
use super::machine::Executor;
use super::open_send::OpenSend;
use super::state::Phase;
use super::watchdog::Reached;
use crate::core::chance::Chance;
use crate::core::decision::{Decision, Stop};
use crate::core::settlement::{OperationOutcome, State};
use crate::core::suppression::Suppression;
use crate::core::time::MonoTime;

impl Executor {
    pub(super) fn end_wait(
        &mut self,
        began: MonoTime,
        now: MonoTime,
        how: WaitEnd,
        notes: &mut Vec<Note>,
    ) {
        let waited = now.since(began);
        self.lasting.waited = self.lasting.waited.saturating_add(waited);
        notes.push(Note::WaitEnded { how, waited });
    }

    pub(super) fn on_shutdown(
        &mut self,
        phase: Phase,
        now: MonoTime,
        chance: &mut impl Chance,
        notes: &mut Vec<Note>,
    ) -> Next {
        self.lasting.draining = true;
        let (began, permit) = match phase {
            Phase::Waiting { began, permit, .. } => (began, permit),
            Phase::Pausing { began, permit, .. } => {
                drop(permit);
                return self.cut_pause(began, WaitEnd::Shutdown, now, chance, notes);
            }
            phase => {
                self.phase = phase;
                return Next::Continue;
            }
        };
        drop(permit);
        self.end_wait(began, now, WaitEnd::Shutdown, notes);
        let cause = Cause {
            stop: Some(Stop::Shutdown),
            suppression: None,
            current: None,
        };
        self.conclude(now, &cause, notes)
    }

    pub(super) fn on_deadline(
        &mut self,
        phase: Phase,
        now: MonoTime,
        chance: &mut impl Chance,
        notes: &mut Vec<Note>,
    ) -> Next {
        // The event is believed, even when the shell's timer fired a moment early.
        let late = now.max(self.plan.deadline);
        match phase {
            // A committed or concluded answer has its own limits (R-B4).
            Phase::Delivering(..) | Phase::Passing(_) | Phase::Ended => {
                self.phase = phase;
                Next::Continue
            }
            Phase::New => self.stop(Stop::Deadline, late, chance, notes, None),
            Phase::Selected(open) => {
                notes.push(open.settle(None, Decision::Stop(Stop::Deadline), State::TimedOut));
                self.stop(Stop::Deadline, late, chance, notes, None)
            }
            Phase::Sending(open) => {
                self.on_outcome(open, Reached::Sent.timed_out(), late, chance, notes)
            }
            Phase::Pausing { began, permit, .. } => {
                drop(permit);
                self.cut_pause(began, WaitEnd::Deadline, late, chance, notes)
            }
            Phase::Waiting { began, permit, .. } => {
                drop(permit);
                self.end_wait(began, now, WaitEnd::Deadline, notes);
                // The answer is the throttle that was waited out: it is what the client can act on.
                let suppression = Some(Suppression::Deadline);
                let cause = Cause {
                    stop: None,
                    suppression,
                    current: None,
                };
                self.conclude(now, &cause, notes)
            }
        }
    }

    pub(super) fn on_gone(
        &mut self,
        phase: Phase,
        now: MonoTime,
        how: WaitEnd,
        notes: &mut Vec<Note>,
    ) -> Next {
        match phase {
            // What a timer has ended stays so, whether or not anybody gets to read it (R-L4).
            Phase::Passing(settled) if settled.outcome == OperationOutcome::TimedOut => {
                notes.push(Note::OperationSettled(settled));
                return Next::End;
            }
            Phase::Passing(_) | Phase::Ended => {}
            Phase::New => self.suppress_for_nobody(notes),
            Phase::Selected(open) | Phase::Sending(open) => {
                notes.push(open.settle(None, Decision::Stop(Stop::ClientGone), State::Cancelled));
                self.suppress_for_nobody(notes);
            }
            Phase::Delivering(open, report) => {
                notes.push(open.settle(Some(report), Decision::Accept, State::Cancelled));
            }
            Phase::Pausing { began, permit, .. } => {
                drop(permit);
                self.end_pause(began, now);
                self.suppress_for_nobody(notes);
            }
            Phase::Waiting { began, permit, .. } => {
                drop(permit);
                self.end_wait(began, now, how, notes);
            }
        }
        self.abandon(how.label(), notes)
    }

    /// The first round ends without a success because the client left: so there is no second one either (R-S9, R-S11).
    pub(super) fn suppress_for_nobody(&self, notes: &mut Vec<Note>) {
        if self.may_have_second_round() {
            notes.push(Note::Suppressed(Suppression::ClientGone));
        }
    }

    /// An event that the state does not explain: settles what is open, stops the operation, leaves the process alone.
    pub(super) fn on_unexpected(
        &mut self,
        phase: Phase,
        event: &Event,
        now: MonoTime,
        notes: &mut Vec<Note>,
    ) -> Next {
        debug_assert!(
            false,
            "unexpected {} while {}",
            event.label(),
            phase.label()
        );
        notes.push(Note::Unexpected(event.label()));
        match phase {
            Phase::New | Phase::Ended => {}
            Phase::Selected(open) | Phase::Sending(open) => notes.push(give_up(open)),
            Phase::Pausing { began, permit, .. } => {
                drop(permit);
                self.end_pause(began, now);
            }
            Phase::Waiting { began, permit, .. } => {
                drop(permit);
                self.end_wait(began, now, WaitEnd::Dropped, notes);
            }
            // An answer has begun; a second one cannot be written over it.
            Phase::Delivering(open, _) => {
                notes.push(give_up(open));
                let (outcome, state) = (OperationOutcome::Failed, State::Failed);
                let (stop, reason) = (Stop::Unexpected, Stop::Unexpected.label());
                let settled = self.settled(outcome, state, reason, Some(stop));
                notes.push(Note::OperationSettled(settled));
                return Next::End;
            }
            Phase::Passing(settled) => {
                notes.push(Note::OperationSettled(settled));
                return Next::End;
            }
        }
        let cause = Cause {
            stop: Some(Stop::Unexpected),
            suppression: None,
            current: None,
        };
        self.conclude(now, &cause, notes)
    }
}

/// Settles an attempt that nobody can explain any more.
fn give_up(open: OpenSend) -> Note {
    let state = if open.sent {
        State::Ambiguous
    } else {
        State::Failed
    };
    open.settle(None, Decision::Stop(Stop::Unexpected), state)
}

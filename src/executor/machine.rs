//! The transitions. Each takes the old phase by value, so that an attempt cannot be left open by accident.

use super::conclude::Cause;
use super::effect::{Begin, Deliver, Effects, Next, Note, SecondRoundEnd, WaitEnd};
use super::event::{Event, StreamEnd};
use super::open_send::OpenSend;
use super::plan::Plan;
use super::state::{Lasting, Pass, Phase};
use crate::core::chance::Chance;
use crate::core::class::Class;
use crate::core::commitment::Commitment;
use crate::core::decision::{Decision, Facts, Round, Stop, decide, objection, second_round};
use crate::core::limits::PUSHBACK_DEFAULT;
use crate::core::outcome::{AttemptReport, Carrier, Outcome, Scope};
use crate::core::precedence::Precedence;
use crate::core::settlement::{OperationOutcome, State};
use crate::core::suppression::Suppression;
use crate::core::time::MonoTime;

/// One operation. Feed it events; obey what it returns.
#[derive(Debug)]
pub struct Executor {
    pub(super) plan: Plan,
    pub(super) lasting: Lasting,
    pub(super) pass: Pass,
    pub(super) phase: Phase,
}

impl Executor {
    /// An operation that has not begun.
    pub fn new(plan: Plan) -> Executor {
        let lasting = Lasting {
            sends: 0,
            attempts: 0,
            commitment: Commitment::Open,
            precedence: Precedence::default(),
            draining: false,
            waited: std::time::Duration::ZERO,
            not_before: vec![MonoTime::ZERO; plan.candidates.len()],
            slow: false,
            told: None,
            skipped: false,
            second_round_open: false,
        };
        Executor {
            plan,
            lasting,
            pass: Pass::new(Round::First),
            phase: Phase::New,
        }
    }

    /// What is fixed for the operation.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Sends permitted so far.
    pub fn sends(&self) -> u32 {
        self.lasting.sends
    }

    /// The attempt (counted from 1) whose answer the operation ends with, once that is decided.
    pub fn told_attempt(&self) -> Option<u32> {
        self.lasting.told
    }

    /// The pass that the operation is in.
    pub fn round(&self) -> Round {
        self.pass.round
    }

    /// What the client has been given.
    pub fn commitment(&self) -> Commitment {
        self.lasting.commitment
    }

    /// Whether nothing more will happen.
    pub fn has_ended(&self) -> bool {
        matches!(self.phase, Phase::Ended)
    }

    /// Takes an event at `now` and says what to do next.
    pub fn handle(&mut self, now: MonoTime, event: Event, chance: &mut impl Chance) -> Effects {
        let mut notes = Vec::new();
        let next = self.step(now, event, chance, &mut notes);
        Effects { next, notes }
    }

    fn step(
        &mut self,
        now: MonoTime,
        event: Event,
        chance: &mut impl Chance,
        notes: &mut Vec<Note>,
    ) -> Next {
        let phase = std::mem::replace(&mut self.phase, Phase::Ended);
        match (phase, event) {
            (Phase::Ended, _) => Next::End,
            (phase, Event::ShutdownBegun) => self.on_shutdown(phase, now, notes),
            (phase, Event::DeadlinePassed) => self.on_deadline(phase, now, chance, notes),
            (phase, Event::ClientGone) => self.on_gone(phase, now, WaitEnd::ClientGone, notes),
            (phase, Event::Dropped) => self.on_gone(phase, now, WaitEnd::Dropped, notes),
            (Phase::New, Event::Admitted) => self.advance(now, chance, notes, None),
            (Phase::Selected(open), Event::SendBegun) => self.on_dispatch(open, now, chance, notes),
            (Phase::Selected(open) | Phase::Sending(open), Event::Outcome(report)) => {
                self.on_outcome(open, report, now, chance, notes)
            }
            (
                Phase::Waiting {
                    until,
                    began,
                    permit,
                },
                Event::WaitElapsed,
            ) => {
                if now < until {
                    self.phase = Phase::Waiting {
                        until,
                        began,
                        permit,
                    };
                    return Next::Wait(until);
                }
                drop(permit);
                self.end_wait(began, now, WaitEnd::Elapsed, notes);
                self.enter_second_round();
                self.advance(now, chance, notes, None)
            }
            (phase @ (Phase::Delivering(..) | Phase::Passing(_)), Event::Committed) => {
                self.lasting.commitment.raise(Commitment::Headers);
                self.phase = phase;
                Next::Continue
            }
            (Phase::Delivering(open, report), Event::StreamEnded(end)) => {
                self.on_delivered(open, report, end, notes)
            }
            (Phase::Passing(settled), Event::StreamEnded(end)) => {
                if end == StreamEnd::ClientGone {
                    return self.abandon(Stop::ClientGone.label(), notes);
                }
                notes.push(Note::OperationSettled(settled));
                Next::End
            }
            (phase, event) => self.on_unexpected(phase, &event, now, notes),
        }
    }

    /// Goes to the next candidate of this round, or over its end.
    fn advance(
        &mut self,
        now: MonoTime,
        chance: &mut impl Chance,
        notes: &mut Vec<Note>,
        current: Option<(Begin, &AttemptReport)>,
    ) -> Next {
        match self.select(now, notes) {
            Some(begin) => {
                if let Some((failed, report)) = current {
                    let (from, to) = (failed.target, begin.target);
                    notes.push(Note::Failover {
                        from,
                        to,
                        reason: report.class.label(),
                    });
                }
                self.open(begin, now, notes)
            }
            None => self.round_over(now, chance, notes, current),
        }
    }

    fn open(&mut self, begin: Begin, now: MonoTime, notes: &mut Vec<Note>) -> Next {
        let seen = match self.plan.target(begin.candidate) {
            Some((_, target)) => target.cooldown.seen(),
            None => return Next::End,
        };
        notes.push(Note::AttemptOpened(begin));
        self.phase = Phase::Selected(OpenSend {
            begin,
            began: now,
            sent: false,
            seen,
        });
        Next::Begin(begin)
    }

    fn round_over(
        &mut self,
        now: MonoTime,
        chance: &mut impl Chance,
        notes: &mut Vec<Note>,
        current: Option<(Begin, &AttemptReport)>,
    ) -> Next {
        let mut suppression = None;
        if self.may_have_second_round() {
            match self.try_wait(now, chance, notes) {
                Ok(next) => return next,
                Err(reason) => suppression = Some(reason),
            }
        }
        if let Some(reason) = suppression {
            notes.push(Note::Suppressed(reason));
        }
        self.conclude(
            now,
            &Cause {
                stop: None,
                suppression,
                current,
            },
            notes,
        )
    }

    /// The dispatch point (R-B8): every budget, cancellation, drain, commitment, binding and the deadline, together and last.
    fn on_dispatch(
        &mut self,
        mut open: OpenSend,
        now: MonoTime,
        chance: &mut impl Chance,
        notes: &mut Vec<Note>,
    ) -> Next {
        if let Some(stop) = self.forbids_send(&open, now) {
            let state = if stop == Stop::Deadline {
                State::TimedOut
            } else {
                State::Failed
            };
            notes.push(open.settle(None, Decision::Stop(stop), state));
            return self.stop(stop, now, chance, notes, None);
        }
        self.lasting.sends += 1;
        open.sent = true;
        notes.push(Note::SendDispatched(open.begin));
        self.phase = Phase::Sending(open);
        Next::Send
    }

    fn forbids_send(&self, open: &OpenSend, now: MonoTime) -> Option<Stop> {
        if self.lasting.commitment > Commitment::Open {
            return Some(Stop::Committed);
        }
        if now >= self.plan.deadline {
            return Some(Stop::Deadline);
        }
        if self.lasting.draining && self.lasting.sends > 0 {
            return Some(Stop::Shutdown);
        }
        let bound_elsewhere = self.plan.binding.is_some() && open.begin.candidate != 0;
        if self.sends_left() == 0 || bound_elsewhere {
            return Some(Stop::Unexpected);
        }
        None
    }

    fn on_outcome(
        &mut self,
        open: OpenSend,
        report: AttemptReport,
        now: MonoTime,
        chance: &mut impl Chance,
        notes: &mut Vec<Note>,
    ) -> Next {
        let begin = open.begin;
        let slow_after = self.plan.route.routing.fail_within;
        self.lasting.slow = slow_after.is_some_and(|limit| now.since(open.began) > limit);
        let decision = decide(&self.facts(&begin, &report, now));
        if decision == Decision::Accept {
            return self.accept(open, report, notes);
        }
        self.learn(&begin, &report, now);
        self.pass.object(objection(&report));
        self.lasting
            .precedence
            .offer(begin.attempt_no, report.clone());
        notes.push(open.settle(Some(report.clone()), decision, settled_state(&report)));
        match decision {
            Decision::SameTarget => {
                let again = self.begin(begin.candidate, begin.target, begin.retry_index + 1);
                self.open(again, now, notes)
            }
            Decision::NextTarget => self.advance(now, chance, notes, Some((begin, &report))),
            Decision::Accept | Decision::RoundOver => {
                if self.sends_left() > 0 && !self.has_free(now) {
                    // Nothing is picked; what is left in this round cools and is passed over.
                    let picked = self.select(now, notes);
                    debug_assert!(picked.is_none(), "a free candidate was left");
                }
                self.round_over(now, chance, notes, Some((begin, &report)))
            }
            Decision::Stop(stop) => self.stop(stop, now, chance, notes, Some((begin, &report))),
        }
    }

    fn facts<'a>(&'a self, begin: &Begin, report: &'a AttemptReport, now: MonoTime) -> Facts<'a> {
        let routing = &self.plan.route.routing;
        let first = begin.candidate == 0 && self.pass.round == Round::First;
        let tries = if first { routing.sticky_tries } else { 1 };
        // Another operation may have learned of a cooldown meanwhile; a sticky try passes every guard (R-K2).
        let cools = self.not_before(begin.candidate, now).is_some();
        Facts {
            report,
            round: self.pass.round,
            commitment: self.lasting.commitment,
            draining: self.lasting.draining,
            deadline_passed: now >= self.plan.deadline,
            slow: self.lasting.slow,
            sends_left: self.sends_left(),
            attempts_left: routing.attempts_max.saturating_sub(self.pass.attempts),
            sticky_left: if cools {
                0
            } else {
                tries.saturating_sub(begin.retry_index + 1)
            },
            has_next: self.has_free(now),
            fallback: &routing.fallback,
        }
    }

    fn accept(&mut self, open: OpenSend, report: AttemptReport, notes: &mut Vec<Note>) -> Next {
        if let Some((_, target)) = self.plan.target(open.begin.candidate) {
            target.cooldown.end(open.seen);
        }
        if std::mem::take(&mut self.lasting.second_round_open) {
            notes.push(Note::SecondRoundEnded(SecondRoundEnd::Success));
        }
        self.lasting.told = Some(open.begin.attempt_no);
        self.phase = Phase::Delivering(open, report);
        Next::Deliver(Deliver::AsIs)
    }

    /// Keeps the not-before instant of a certified rejection: for this operation in full, for others within the cooldown's bound.
    fn learn(&mut self, begin: &Begin, report: &AttemptReport, now: MonoTime) {
        if !matches!(report.outcome, Outcome::Rejected(_)) {
            return;
        }
        let until = now.after(report.pushback.unwrap_or(PUSHBACK_DEFAULT));
        if let Some(own) = self.lasting.not_before.get_mut(begin.candidate) {
            *own = (*own).max(until);
        }
        let cooldown_max = self.plan.route.routing.cooldown_max;
        if let (Some(delay), Some((_, target))) =
            (report.pushback, self.plan.target(begin.candidate))
            && !cooldown_max.is_zero()
        {
            target.cooldown.extend(now.after(delay.min(cooldown_max)));
        }
    }

    /// Ends the operation although candidates may be left.
    fn stop(
        &mut self,
        stop: Stop,
        now: MonoTime,
        chance: &mut impl Chance,
        notes: &mut Vec<Note>,
        current: Option<(Begin, &AttemptReport)>,
    ) -> Next {
        let mut suppression = None;
        if self.may_have_second_round() {
            let reason = second_round(&self.round_facts(now, chance)).err();
            suppression = Some(reason.unwrap_or(Suppression::NotThrottled));
        }
        if let Some(reason) = suppression {
            notes.push(Note::Suppressed(reason));
        }
        self.conclude(
            now,
            &Cause {
                stop: Some(stop),
                suppression,
                current,
            },
            notes,
        )
    }

    fn end_wait(&mut self, began: MonoTime, now: MonoTime, how: WaitEnd, notes: &mut Vec<Note>) {
        let waited = now.since(began);
        self.lasting.waited = self.lasting.waited.saturating_add(waited);
        notes.push(Note::WaitEnded { how, waited });
    }

    fn on_shutdown(&mut self, phase: Phase, now: MonoTime, notes: &mut Vec<Note>) -> Next {
        self.lasting.draining = true;
        let Phase::Waiting { began, permit, .. } = phase else {
            self.phase = phase;
            return Next::Continue;
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

    fn on_deadline(
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
            Phase::Sending(open) => self.on_outcome(open, timed_out(), late, chance, notes),
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

    fn on_gone(
        &mut self,
        phase: Phase,
        now: MonoTime,
        how: WaitEnd,
        notes: &mut Vec<Note>,
    ) -> Next {
        match phase {
            Phase::Passing(_) | Phase::Ended => {}
            Phase::New => self.suppress_for_nobody(notes),
            Phase::Selected(open) | Phase::Sending(open) => {
                notes.push(open.settle(None, Decision::Stop(Stop::ClientGone), State::Cancelled));
                self.suppress_for_nobody(notes);
            }
            Phase::Delivering(open, report) => {
                notes.push(open.settle(Some(report), Decision::Accept, State::Cancelled));
            }
            Phase::Waiting { began, permit, .. } => {
                drop(permit);
                self.end_wait(began, now, how, notes);
            }
        }
        self.abandon(how.label(), notes)
    }

    /// The first round ends without a success because the client left: so there is no second one either (R-S9, R-S11).
    fn suppress_for_nobody(&self, notes: &mut Vec<Note>) {
        if self.may_have_second_round() {
            notes.push(Note::Suppressed(Suppression::ClientGone));
        }
    }

    fn on_delivered(
        &mut self,
        open: OpenSend,
        mut report: AttemptReport,
        end: StreamEnd,
        notes: &mut Vec<Note>,
    ) -> Next {
        let (outcome, state, reason) = match end {
            StreamEnd::Complete => (OperationOutcome::Succeeded, State::Succeeded, ""),
            StreamEnd::UpstreamBroke => (OperationOutcome::Failed, State::Failed, "stream_broke"),
            StreamEnd::UpstreamTimedOut => (
                OperationOutcome::TimedOut,
                State::TimedOut,
                "stream_timeout",
            ),
            StreamEnd::ClientGone => (
                OperationOutcome::Cancelled,
                State::Cancelled,
                Stop::ClientGone.label(),
            ),
        };
        if matches!(end, StreamEnd::UpstreamBroke | StreamEnd::UpstreamTimedOut) {
            report.outcome = Outcome::Partial;
        }
        notes.push(open.settle(Some(report), Decision::Accept, state));
        notes.push(Note::OperationSettled(
            self.settled(outcome, state, reason, None),
        ));
        Next::End
    }

    /// An event that the state does not explain: settles what is open, stops the operation, leaves the process alone.
    fn on_unexpected(
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

const fn settled_state(report: &AttemptReport) -> State {
    match (report.outcome, report.class) {
        (Outcome::Ambiguous, Class::Timeout) => State::TimedOut,
        (Outcome::Ambiguous, _) => State::Ambiguous,
        (Outcome::Rejected(_), _) => State::Rejected,
        (Outcome::Refused, _) => State::Refused,
        (Outcome::NotDelivered | Outcome::Partial, _) => State::Failed,
        (Outcome::Succeeded, _) => State::Succeeded,
    }
}

/// The report of an attempt that the operation's deadline cut.
const fn timed_out() -> AttemptReport {
    AttemptReport {
        outcome: Outcome::Ambiguous,
        class: Class::Timeout,
        scope: Scope::Candidate,
        carrier: Carrier::None,
        status: None,
        pushback: None,
        reply: None,
    }
}

//! The transitions. Each takes the old phase by value, so that an attempt cannot be left open by accident.

use super::conclude::Cause;
use super::effect::{Begin, Effects, Next, Note, WaitEnd};
use super::event::{Event, StreamEnd};
use super::hold::Hold;
use super::open_send::OpenSend;
use super::plan::Plan;
use super::round::Pick;
use super::state::{Lasting, Pass, Phase};
use crate::core::chance::Chance;
use crate::core::commitment::Commitment;
use crate::core::decision::{Decision, Round, Stop, second_round};
use crate::core::outcome::{AttemptReport, Outcome};
use crate::core::precedence::Precedence;
use crate::core::settlement::{OperationOutcome, State};
use crate::core::suppression::Suppression;
use crate::core::time::MonoTime;
use crate::core::usage::Usage;
use crate::policy::load::InFlight;

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
            followed: None,
            draining: false,
            waited: std::time::Duration::ZERO,
            not_before: Vec::new(),
            dropped: Vec::new(),
            retries: Vec::new(),
            keys_refused: false,
            slow: false,
            told: None,
            forbids_retry: false,
            cooled: false,
            used_up: false,
            second_round_open: false,
            limited: false,
            limit_stop: false,
            failing: false,
            budget_noted: false,
            share: None,
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

    /// Whether the answer that the operation ends with must not be retried by the caller: the gateway owns the retries of its provider, or
    /// waiting does not help (R-P1).
    pub fn forbids_retry(&self) -> bool {
        self.lasting.forbids_retry
    }

    /// What the answer of the last attempt used, in place of the estimate in its target's limits; also when the operation is over. What is
    /// not the whole can only be more.
    pub fn correct_tokens(&self, usage: &Usage) {
        let Some(share) = &self.lasting.share else {
            return;
        };
        let completion = usage.completion_tokens.unwrap_or_default();
        match usage.prompt_tokens {
            Some(prompt) if !usage.partial => share.correct(prompt.saturating_add(completion)),
            prompt => share.raise(prompt.unwrap_or_default().saturating_add(completion)),
        }
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
            (phase, Event::ShutdownBegun) => self.on_shutdown(phase, now, chance, notes),
            (phase, Event::DeadlinePassed) => self.on_deadline(phase, now, chance, notes),
            (phase, Event::ClientGone) => self.on_cancel(phase, WaitEnd::ClientGone, now, notes),
            (phase, Event::Dropped) => self.on_cancel(phase, WaitEnd::Dropped, now, notes),
            (Phase::New, Event::Admitted) => {
                self.plan.route.retry_budget.deposit(now);
                self.advance(now, chance, notes)
            }
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
                if self.plan.failover_is_over(now) {
                    return self.stop(Stop::FailoverElapsed, now, chance, notes, None);
                }
                self.advance(now, chance, notes)
            }
            (phase @ Phase::Pausing { .. }, Event::WaitElapsed) => {
                self.on_paused(phase, now, chance, notes)
            }
            (phase @ (Phase::Delivering(..) | Phase::Passing(_)), Event::Committed) => {
                self.lasting.commitment.raise(Commitment::Headers);
                self.phase = phase;
                Next::Continue
            }
            (phase @ Phase::Passing(_), Event::StreamEnded(StreamEnd::ClientGone)) => {
                self.on_gone(phase, now, WaitEnd::ClientGone, notes)
            }
            (phase @ Phase::Delivering(..), Event::StreamEnded(StreamEnd::ClientGone))
                if phase.run_out(now).is_some() =>
            {
                self.on_cancel(phase, WaitEnd::ClientGone, now, notes)
            }
            (Phase::Delivering(open, report), Event::StreamEnded(end)) => {
                self.on_delivered(open, report, end, notes)
            }
            (Phase::Passing(settled), Event::StreamEnded(_)) => {
                notes.push(Note::OperationSettled(settled));
                Next::End
            }
            (phase, event) => self.on_unexpected(phase, &event, now, notes),
        }
    }

    /// Goes to the first free candidate of this round, or over its end.
    fn advance(&mut self, now: MonoTime, chance: &mut impl Chance, notes: &mut Vec<Note>) -> Next {
        let next = self.select(now, notes);
        self.go_on(next, None, now, chance, notes)
    }

    /// Opens an attempt at what was picked, after the target that failed and for which class; or the round is over.
    pub(super) fn go_on(
        &mut self,
        next: Pick,
        from: Option<(usize, &'static str)>,
        now: MonoTime,
        chance: &mut impl Chance,
        notes: &mut Vec<Note>,
    ) -> Next {
        let (begin, hold) = match next {
            Pick::Begin(begin, hold) => (begin, hold),
            Pick::Limited => return self.stop(Stop::LocalLimit, now, chance, notes, None),
            Pick::Nothing => return self.round_over(now, chance, notes, None),
        };
        if let Some((from, reason)) = from
            && from != begin.target
        {
            let to = begin.target;
            notes.push(Note::Failover { from, to, reason });
        }
        self.open(begin, hold, now, notes)
    }

    pub(super) fn open(
        &mut self,
        begin: Begin,
        hold: Hold,
        now: MonoTime,
        notes: &mut Vec<Note>,
    ) -> Next {
        let seen = match self.plan.target(begin.candidate) {
            Some((_, target)) => target.keys.get(begin.key).map(|key| key.cooldown.seen(now)),
            None => None,
        };
        let Some(seen) = seen else {
            return Next::End;
        };
        notes.push(Note::AttemptOpened(begin));
        self.lasting.share = hold.share();
        self.phase = Phase::Selected(OpenSend {
            begin,
            began: now,
            sent: false,
            seen,
            watchdog: None,
            hold,
            in_flight: None,
        });
        Next::Begin(begin)
    }

    pub(super) fn round_over(
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
            if reason == Suppression::RetryBudget {
                self.note_budget_exhausted(notes);
            }
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
        open.in_flight = self.enter(&open.begin);
        notes.push(Note::SendDispatched(open.begin));
        self.phase = Phase::Sending(open);
        Next::Send
    }

    /// Counts the send at its target, where load is balanced.
    fn enter(&self, begin: &Begin) -> Option<InFlight> {
        let (_, target) = self.plan.target(begin.candidate)?;
        Some(target.load.as_ref()?.enter())
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
        let is_first = open.begin.attempt_no == 1 && self.pass.round == Round::First;
        if !is_first && self.plan.failover_is_over(now) {
            return Some(Stop::FailoverElapsed);
        }
        let bound_elsewhere = self.plan.binding.is_some() && open.begin.candidate != 0;
        if self.sends_left() == 0 || bound_elsewhere {
            return Some(Stop::Unexpected);
        }
        None
    }

    /// Ends the operation although candidates may be left.
    pub(super) fn stop(
        &mut self,
        stop: Stop,
        now: MonoTime,
        chance: &mut impl Chance,
        notes: &mut Vec<Note>,
        current: Option<(Begin, &AttemptReport)>,
    ) -> Next {
        self.lasting.limit_stop |= stop == Stop::LocalLimit;
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

    pub(super) fn on_delivered(
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
            self.unpin(&open.begin, &report);
        }
        notes.push(open.settle(Some(report), Decision::Accept, state));
        notes.push(Note::OperationSettled(
            self.settled(outcome, state, reason, None),
        ));
        Next::End
    }
}

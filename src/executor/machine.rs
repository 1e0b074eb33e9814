//! The transitions. Each takes the old phase by value, so that an attempt cannot be left open by accident.

use std::time::Duration;

use super::conclude::Cause;
use super::effect::{Begin, Deliver, Effects, Next, Note, SecondRoundEnd, WaitEnd};
use super::event::{Event, StreamEnd};
use super::open_send::OpenSend;
use super::plan::Plan;
use super::provider_retry::Pause;
use super::state::{Lasting, Pass, Phase};
use crate::core::chance::Chance;
use crate::core::class::Class;
use crate::core::commitment::Commitment;
use crate::core::decision::{
    Decision, Facts, Round, Stop, decide, deserves_retry, may_move_on, objection, second_round,
};
use crate::core::limits::{KEY_QUOTA_ASIDE, KEY_REFUSED_ASIDE, PUSHBACK_DEFAULT};
use crate::core::outcome::{AttemptReport, Outcome, Scope};
use crate::core::precedence::Precedence;
use crate::core::settlement::{OperationOutcome, State};
use crate::core::suppression::Suppression;
use crate::core::time::MonoTime;
use crate::policy::cooldown::AsideReason;

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
            retries: Vec::new(),
            keys_refused: false,
            slow: false,
            told: None,
            forbids_retry: false,
            cooled: false,
            used_up: false,
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

    /// Whether the answer that the operation ends with must not be retried by the caller: the gateway owns the retries of its provider, or
    /// waiting does not help (R-P1).
    pub fn forbids_retry(&self) -> bool {
        self.lasting.forbids_retry
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
            (phase @ Phase::Pausing { .. }, Event::WaitElapsed) => {
                self.on_paused(phase, now, chance, notes)
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
    pub(super) fn advance(
        &mut self,
        now: MonoTime,
        chance: &mut impl Chance,
        notes: &mut Vec<Note>,
        current: Option<(Begin, &AttemptReport)>,
    ) -> Next {
        let from = current.map(|(failed, report)| (failed.target, report.class.label()));
        self.advance_from(from, now, chance, notes, current)
    }

    /// The same, from a target that failed and for which class.
    pub(super) fn advance_from(
        &mut self,
        from: Option<(usize, &'static str)>,
        now: MonoTime,
        chance: &mut impl Chance,
        notes: &mut Vec<Note>,
        current: Option<(Begin, &AttemptReport)>,
    ) -> Next {
        match self.select(now, notes) {
            Some(begin) => {
                if let Some((from, reason)) = from {
                    let to = begin.target;
                    notes.push(Note::Failover { from, to, reason });
                }
                self.open(begin, now, notes)
            }
            None => self.round_over(now, chance, notes, current),
        }
    }

    pub(super) fn open(&mut self, begin: Begin, now: MonoTime, notes: &mut Vec<Note>) -> Next {
        let seen = match self.plan.target(begin.candidate) {
            Some((_, target)) => target.keys.get(begin.key).map(|key| key.cooldown.seen()),
            None => None,
        };
        let Some(seen) = seen else {
            return Next::End;
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

    pub(super) fn on_outcome(
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
        let pause = self.provider_retry(&begin, &report, now, chance);
        let decision = decide(&self.facts(&begin, &report, pause.as_ref().map(|p| p.0), now));
        if decision == Decision::Accept {
            return self.accept(open, report, notes);
        }
        self.learn(&begin, &report, now);
        self.pass.object(objection(&report));
        if decision == Decision::NextKey {
            self.pass.pool_moves_on |= may_move_on(&report, &self.plan.route.routing.fallback);
        }
        let standing = begin.standing(self.lasting.followed.replace((begin, decision)));
        self.lasting
            .precedence
            .offer(standing, begin.attempt_no, begin.target, report.clone());
        notes.push(open.settle(Some(report.clone()), decision, settled_state(&report)));
        let goes_on = matches!(decision, Decision::NextKey | Decision::SameTarget);
        if pause.is_none() && !goes_on && deserves_retry(&report) {
            self.note_retries_exhausted(&begin, notes);
        }
        match decision {
            Decision::SameTarget => {
                let Begin {
                    candidate,
                    target,
                    key,
                    retry_index,
                    ..
                } = begin;
                let again = self.begin(candidate, target, key, retry_index + 1);
                self.open(again, now, notes)
            }
            Decision::NextKey => match self.next_key(begin.candidate, now) {
                Some(key) => {
                    let next = self.begin(begin.candidate, begin.target, key, 0);
                    self.open(next, now, notes)
                }
                None => self.advance(now, chance, notes, Some((begin, &report))),
            },
            Decision::Retry(_) => match pause {
                Some((pause, permit)) => {
                    let failed = begin;
                    self.begin_pause(
                        Pause {
                            failed,
                            pause,
                            permit,
                        },
                        &report,
                        now,
                        notes,
                    )
                }
                None => self.round_over(now, chance, notes, Some((begin, &report))),
            },
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

    fn facts<'a>(
        &'a self,
        begin: &Begin,
        report: &'a AttemptReport,
        retry_pause: Option<Duration>,
        now: MonoTime,
    ) -> Facts<'a> {
        let routing = &self.plan.route.routing;
        // A candidate is a target with its key: the next key of the pool is not the first-ranked one any more.
        let first_key = self.pass.keys_tried.count_ones() <= 1;
        let first = begin.candidate == 0 && self.pass.round == Round::First && first_key;
        // Where the provider's own retries are the rule, their end is the end: a try at once would undo the pause (R-P2, R-P3).
        let own_retries = self
            .plan
            .target(begin.candidate)
            .is_some_and(|(_, t)| t.retry.is_some());
        let sticks = first && !(own_retries && deserves_retry(report));
        let tries = if sticks { routing.sticky_tries } else { 1 };
        // Another operation may have learned something of the key meanwhile; a sticky try passes every guard (R-K2).
        let unfit = self.is_unfit(begin.candidate, begin.key, now);
        Facts {
            report,
            round: self.pass.round,
            commitment: self.lasting.commitment,
            draining: self.lasting.draining,
            deadline_passed: now >= self.plan.deadline,
            slow: self.lasting.slow,
            sends_left: self.sends_left(),
            attempts_left: routing.attempts_max.saturating_sub(self.pass.attempts),
            sticky_left: if unfit {
                0
            } else {
                tries.saturating_sub(begin.retry_index + 1)
            },
            has_next: self.has_free(now),
            has_next_key: self.has_next_key(begin.candidate, now),
            pool_moves_on: self.pass.pool_moves_on,
            retry_pause,
            fallback: &routing.fallback,
        }
    }

    fn accept(&mut self, open: OpenSend, report: AttemptReport, notes: &mut Vec<Note>) -> Next {
        let found = self.plan.target(open.begin.candidate);
        if let Some(key) = found.and_then(|(_, target)| target.keys.get(open.begin.key)) {
            key.cooldown.end(open.seen);
        }
        if std::mem::take(&mut self.lasting.second_round_open) {
            notes.push(Note::SecondRoundEnded(SecondRoundEnd::Success));
        }
        self.lasting.told = Some(open.begin.attempt_no);
        self.phase = Phase::Delivering(open, report);
        Next::Deliver(Deliver::AsIs)
    }

    /// Keeps what a failure says of the key. The not-before instant of a certified rejection: for this operation in full, for others within
    /// the cooldown's bound. A key that is not accepted or used up is set aside for everyone.
    fn learn(&mut self, begin: &Begin, report: &AttemptReport, now: MonoTime) {
        let Some((_, target)) = self.plan.target(begin.candidate) else {
            return;
        };
        let Some(key) = target.keys.get(begin.key) else {
            return;
        };
        let is_of_key = report.scope == Scope::Credential && key.name.is_some();
        if report.outcome == Outcome::Refused && is_of_key {
            match report.class {
                Class::Auth => key
                    .aside
                    .extend(AsideReason::Refused, now.after(KEY_REFUSED_ASIDE)),
                Class::QuotaHard => key
                    .aside
                    .extend(AsideReason::Quota, now.after(KEY_QUOTA_ASIDE)),
                _ => {}
            }
        }
        if !matches!(report.outcome, Outcome::Rejected(_)) {
            return;
        }
        // A throttle is the key's; what reaches further holds for every key of the pool.
        let keys = if report.scope > Scope::Credential {
            0..target.keys.len()
        } else {
            begin.key..begin.key + 1
        };
        let cooldown_max = self.plan.route.routing.cooldown_max;
        if let Some(delay) = report.pushback
            && !cooldown_max.is_zero()
        {
            let until = now.after(delay.min(cooldown_max));
            let cooled = target.keys.iter().skip(keys.start).take(keys.len());
            cooled.for_each(|key| key.cooldown.extend(until));
        }
        let until = now.after(report.pushback.unwrap_or(PUSHBACK_DEFAULT));
        for key in keys {
            self.learn_not_before(begin.candidate, key, until);
        }
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

//! Moving over the candidates of a round, and the step from the first round to the wait.

use super::effect::{Begin, Next, Note};
use super::machine::Executor;
use super::state::{Pass, Phase};
use crate::core::backoff;
use crate::core::chance::Chance;
use crate::core::decision::{Round, RoundFacts, second_round};
use crate::core::limits::PUSHBACK_DEFAULT;
use crate::core::suppression::Suppression;
use crate::core::time::MonoTime;

impl Executor {
    /// The first candidate of this round that is neither tried nor cooling. What is passed over enters the tried set, so no step is free.
    pub(super) fn select(&mut self, now: MonoTime, notes: &mut Vec<Note>) -> Option<Begin> {
        if self.pass.attempts >= self.plan.route.routing.attempts_max {
            return None;
        }
        for candidate in 0..self.plan.reach() {
            if self.is_tried(candidate) {
                continue;
            }
            self.pass.tried |= 1 << candidate;
            let (target, _) = self.plan.target(candidate)?;
            if self.not_before(candidate, now).is_some() {
                self.lasting.skipped = true;
                notes.push(Note::Skipped {
                    target,
                    round: self.pass.round,
                });
                continue;
            }
            self.pass.attempts += 1;
            return Some(self.begin(candidate, target, 0));
        }
        None
    }

    pub(super) fn begin(&mut self, candidate: usize, target: usize, retry_index: u32) -> Begin {
        self.lasting.attempts += 1;
        Begin {
            attempt_no: self.lasting.attempts,
            candidate,
            target,
            round: self.pass.round,
            retry_index,
        }
    }

    pub(super) fn is_tried(&self, candidate: usize) -> bool {
        self.pass.tried & (1 << candidate) != 0
    }

    /// Whether a candidate is left in this round that neither was tried nor cools.
    pub(super) fn has_free(&self, now: MonoTime) -> bool {
        (0..self.plan.reach())
            .any(|candidate| !self.is_tried(candidate) && self.not_before(candidate, now).is_none())
    }

    /// The instant before which the candidate is not sent to, if it lies ahead: the later of what this operation and the process know.
    pub(super) fn not_before(&self, candidate: usize, now: MonoTime) -> Option<MonoTime> {
        let own = self
            .lasting
            .not_before
            .get(candidate)
            .copied()
            .filter(|instant| *instant > now);
        let shared = self
            .plan
            .target(candidate)
            .and_then(|(_, t)| t.cooldown.remaining_after(now));
        own.max(shared)
    }

    /// The earliest instant at which some candidate may be sent to again (R-S13). One without a known instant gets a small default.
    pub(super) fn earliest_not_before(&self, now: MonoTime) -> MonoTime {
        let by_default = now.after(PUSHBACK_DEFAULT);
        (0..self.plan.reach())
            .map(|candidate| match self.not_before(candidate, now) {
                Some(instant) => instant,
                None if self.was_rejected(candidate) => now,
                None => by_default,
            })
            .min()
            .unwrap_or(by_default)
    }

    /// Whether this operation has learned an instant for the candidate, passed or not.
    pub(super) fn was_rejected(&self, candidate: usize) -> bool {
        self.lasting
            .not_before
            .get(candidate)
            .is_some_and(|instant| *instant > MonoTime::ZERO)
    }

    /// The facts of the round that is over, with the jitter that a wait would get.
    pub(super) fn round_facts(&self, now: MonoTime, chance: &mut impl Chance) -> RoundFacts {
        let delay = self.earliest_not_before(now).since(now);
        let routing = &self.plan.route.routing;
        RoundFacts {
            commitment: self.lasting.commitment,
            draining: self.lasting.draining,
            objection: self.pass.objection,
            bound: self.plan.binding.is_some(),
            slow: self.lasting.slow,
            caller_retry: self.plan.caller_retry,
            unfinished: matches!(self.phase, Phase::Selected(_) | Phase::Sending(_)),
            sends_left: self.sends_left(),
            delay,
            jitter: backoff::jitter(delay, chance),
            wait_max: routing.exhaustion.map(|e| e.wait_max).unwrap_or_default(),
            time_left: self.plan.deadline.since(now),
        }
    }

    pub(super) fn sends_left(&self) -> u32 {
        self.plan
            .route
            .routing
            .sends_allowed()
            .saturating_sub(self.lasting.sends)
    }

    /// Whether the end of this round may be followed by another.
    pub(super) fn may_have_second_round(&self) -> bool {
        let configured = self
            .plan
            .route
            .routing
            .exhaustion
            .is_some_and(|e| e.rounds_max > 1);
        configured && self.pass.round == Round::First && !self.plan.candidates.is_empty()
    }

    /// Begins the wait, or says why there is none.
    pub(super) fn try_wait(
        &mut self,
        now: MonoTime,
        chance: &mut impl Chance,
        notes: &mut Vec<Note>,
    ) -> Result<Next, Suppression> {
        let wait = second_round(&self.round_facts(now, chance))?;
        let permit = self.plan.route.waiters.enter(self.plan.held_bytes);
        let permit = permit.ok_or(Suppression::AdmissionFull)?;
        let until = now.after(wait);
        notes.push(Note::WaitBegun);
        self.phase = Phase::Waiting {
            until,
            began: now,
            permit,
        };
        Ok(Next::Wait(until))
    }

    /// The wait is over: a new pass; nothing that is lasting changes.
    pub(super) fn enter_second_round(&mut self) {
        self.pass = Pass::new(Round::Second);
        self.lasting.second_round_open = true;
    }
}

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
use crate::policy::cooldown::AsideReason;
use crate::policy::route::TargetKey;

/// Why a candidate or key is passed over without a send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PassedOver {
    /// A certified not-before instant lies ahead.
    Cooling,
    /// The key is set aside for every model.
    Aside(AsideReason),
}

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
            self.pass.keys_tried = 0;
            self.pass.pool_moves_on = false;
            let (target, _) = self.plan.target(candidate)?;
            match self.pick_key(candidate, now) {
                Ok(key) => {
                    self.pass.attempts += 1;
                    return Some(self.begin(candidate, target, key, 0));
                }
                Err(passed_over) => {
                    self.pass_over(passed_over);
                    let round = self.pass.round;
                    notes.push(Note::Skipped { target, round });
                }
            }
        }
        None
    }

    /// A remembered cooldown counts as a certified rejection (R-S5); a key that is set aside does not.
    fn pass_over(&mut self, passed_over: PassedOver) {
        match passed_over {
            PassedOver::Cooling => self.lasting.cooled = true,
            PassedOver::Aside(AsideReason::Quota) => {
                self.lasting.used_up = true;
                self.pass.object(Some(Suppression::HardQuota));
            }
            PassedOver::Aside(AsideReason::Refused) => {
                self.lasting.keys_refused = true;
                self.pass.object(Some(Suppression::AuthConfig));
            }
        }
    }

    /// The first key of the candidate's pool that may be used now and was not tried in this round.
    fn pick_key(&mut self, candidate: usize, now: MonoTime) -> Result<usize, PassedOver> {
        let keys = self.pool(candidate).len();
        let mut passed_over = None;
        for key in (0..keys).filter(|key| self.pass.keys_tried & (1 << key) == 0) {
            match self.key_state(candidate, key, now) {
                None => {
                    self.pass.keys_tried |= 1 << key;
                    return Ok(key);
                }
                // One key that only cools is enough to wait for.
                Some(PassedOver::Cooling) => passed_over = Some(PassedOver::Cooling),
                Some(aside) => passed_over = passed_over.or(Some(aside)),
            }
        }
        Err(passed_over.unwrap_or(PassedOver::Cooling))
    }

    /// The next key of the current candidate's pool.
    pub(super) fn next_key(&mut self, candidate: usize, now: MonoTime) -> Option<usize> {
        self.pick_key(candidate, now).ok()
    }

    /// Whether there is one.
    pub(super) fn has_next_key(&self, candidate: usize, now: MonoTime) -> bool {
        let free = |key: &usize| {
            self.pass.keys_tried & (1 << key) == 0 && self.key_state(candidate, *key, now).is_none()
        };
        (0..self.pool(candidate).len()).any(|key| free(&key))
    }

    /// The keys that the operation may use at the candidate. A bound one has the first alone: its state belongs to an account, and
    /// another key may be another account's (R-F8).
    fn pool(&self, candidate: usize) -> &[TargetKey] {
        let keys = match self.plan.target(candidate) {
            Some((_, target)) => target.keys.as_slice(),
            None => &[],
        };
        match (self.plan.binding, keys) {
            (Some(_), [first, ..]) => std::slice::from_ref(first),
            _ => keys,
        }
    }

    /// Why the key may not be used now, if so.
    fn key_state(&self, candidate: usize, key: usize, now: MonoTime) -> Option<PassedOver> {
        let aside = self.pool(candidate).get(key)?.aside.remaining_after(now);
        if let Some((reason, _)) = aside {
            return Some(PassedOver::Aside(reason));
        }
        self.key_not_before(candidate, key, now)
            .map(|_| PassedOver::Cooling)
    }

    /// Whether the key cools or is set aside.
    pub(super) fn is_unfit(&self, candidate: usize, key: usize, now: MonoTime) -> bool {
        self.key_state(candidate, key, now).is_some()
    }

    pub(super) fn begin(
        &mut self,
        candidate: usize,
        target: usize,
        key: usize,
        retry_index: u32,
    ) -> Begin {
        self.lasting.attempts += 1;
        Begin {
            attempt_no: self.lasting.attempts,
            candidate,
            target,
            round: self.pass.round,
            retry_index,
            key,
        }
    }

    pub(super) fn is_tried(&self, candidate: usize) -> bool {
        self.pass.tried & (1 << candidate) != 0
    }

    /// Whether a candidate is left in this round that neither was tried nor cools.
    pub(super) fn has_free(&self, now: MonoTime) -> bool {
        (0..self.plan.reach()).any(|candidate| {
            let mut keys = 0..self.pool(candidate).len();
            !self.is_tried(candidate)
                && keys.any(|key| self.key_state(candidate, key, now).is_none())
        })
    }

    /// The instant before which the key is not used for this candidate, if it lies ahead: the later of what this operation and the process know.
    pub(super) fn key_not_before(
        &self,
        candidate: usize,
        key: usize,
        now: MonoTime,
    ) -> Option<MonoTime> {
        let own = self
            .learned(candidate, key)
            .filter(|instant| *instant > now);
        let shared = self.pool(candidate).get(key)?.cooldown.remaining_after(now);
        own.max(shared)
    }

    /// What this operation has learned of the key, passed or not.
    fn learned(&self, candidate: usize, key: usize) -> Option<MonoTime> {
        let known = self.lasting.not_before.iter();
        known
            .filter(|(c, k, _)| (*c, *k) == (candidate, key))
            .map(|(_, _, instant)| *instant)
            .max()
    }

    pub(super) fn learn_not_before(&mut self, candidate: usize, key: usize, until: MonoTime) {
        self.lasting.not_before.push((candidate, key, until));
    }

    /// The earliest instant at which the candidate may be sent to on some key: `now` when one is free, `None` when nothing is known of any.
    pub(super) fn known_not_before(&self, candidate: usize, now: MonoTime) -> Option<MonoTime> {
        let instants = (0..self.pool(candidate).len()).filter_map(|key| {
            let aside = self.pool(candidate).get(key)?.aside.remaining_after(now);
            match (aside, self.key_not_before(candidate, key, now)) {
                (Some((AsideReason::Quota, until)), cooling) => {
                    Some(cooling.map_or(until, |c| c.max(until)))
                }
                (Some((AsideReason::Refused, _)), _) => None,
                (None, Some(cooling)) => Some(cooling),
                (None, None) => self.learned(candidate, key).map(|_| now),
            }
        });
        instants.min()
    }

    /// The earliest instant at which some candidate may be sent to again (R-S13). One without a known instant gets a small default.
    pub(super) fn earliest_not_before(&self, now: MonoTime) -> MonoTime {
        let by_default = now.after(PUSHBACK_DEFAULT);
        (0..self.plan.reach())
            .map(|candidate| self.known_not_before(candidate, now).unwrap_or(by_default))
            .min()
            .unwrap_or(by_default)
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

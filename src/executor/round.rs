//! Moving over the candidates of a round, and the step from the first round to the wait.

use super::effect::{Begin, Next, Note};
use super::hold::{Hold, Manners, PassedOver};
use super::machine::Executor;
use super::state::{Pass, Phase};
use crate::core::backoff;
use crate::core::chance::Chance;
use crate::core::decision::{Round, RoundFacts, second_round};
use crate::core::limits::PUSHBACK_DEFAULT;
use crate::core::suppression::Suppression;
use crate::core::time::MonoTime;
use crate::policy::cooldown::AsideReason;
use crate::policy::limits::Exhausted;
use crate::policy::route::TargetKey;

/// A candidate and the key of its pool that is free, with what the attempt needs.
#[derive(Debug)]
pub(super) struct Chosen {
    pub candidate: usize,
    pub key: usize,
    pub hold: Hold,
}

/// Where a round can go on.
#[derive(Debug)]
pub(super) enum Ahead {
    /// To this candidate.
    Free(Chosen),
    /// Nowhere: the next candidate is locally exhausted, and the route does not skip such.
    Limited,
    /// Nowhere: no candidate is left that may be used now.
    Nothing,
}

/// What was picked to go on with.
#[derive(Debug)]
pub(super) enum Pick {
    /// An attempt, with what it holds.
    Begin(Begin, Hold),
    /// The route ends here for its local limits.
    Limited,
    /// The round is over.
    Nothing,
}

impl Executor {
    /// The first candidate of this round that is neither tried nor cooling. What is passed over enters the tried set, so no step is free.
    pub(super) fn select(&mut self, now: MonoTime, notes: &mut Vec<Note>) -> Pick {
        if self.pass.attempts >= self.plan.route.routing.attempts_max {
            return Pick::Nothing;
        }
        match self.next_free(now) {
            Ahead::Free(chosen) => self.take(chosen, now, notes),
            Ahead::Limited => Pick::Limited,
            Ahead::Nothing => {
                self.pass_over_up_to(self.plan.reach(), Manners::Push, now, notes);
                Pick::Nothing
            }
        }
    }

    /// The first candidate of this round that was not tried and has a key that may be used now, with what it needs. Others change what is
    /// known at any moment: who decides by this goes on with this. One that another operation tries first comes after the others.
    pub(super) fn next_free(&self, now: MonoTime) -> Ahead {
        'turn: for manners in [Manners::Yield, Manners::Push] {
            let mut probed = false;
            for candidate in (0..self.plan.reach()).filter(|at| !self.is_tried(*at)) {
                for key in self.plan.keys(candidate).iter().copied() {
                    match self.claim(candidate, key, manners, now) {
                        Ok(hold) => {
                            return Ahead::Free(Chosen {
                                candidate,
                                key,
                                hold,
                            });
                        }
                        Err(PassedOver::Probed) => probed = true,
                        Err(PassedOver::Limited) if !self.skips_limited() => {
                            // The route ends at what is limited, and not before what stands ahead of it.
                            if probed {
                                continue 'turn;
                            }
                            return Ahead::Limited;
                        }
                        Err(_) => {}
                    }
                }
            }
        }
        Ahead::Nothing
    }

    /// Whether the route skips locally exhausted targets.
    fn skips_limited(&self) -> bool {
        self.plan.route.routing.fallback.rate_limiting
    }

    /// Takes what was chosen, and passes over what stands before it.
    pub(super) fn take(&mut self, chosen: Chosen, now: MonoTime, notes: &mut Vec<Note>) -> Pick {
        let Chosen {
            candidate,
            key,
            hold,
        } = chosen;
        let Some((target, _)) = self.plan.target(candidate) else {
            return Pick::Nothing;
        };
        self.pass_over_up_to(candidate, Manners::Yield, now, notes);
        self.pass.tried |= 1 << candidate;
        self.pass.keys_tried = 1 << key;
        self.pass.pool_moves_on = false;
        self.pass.attempts += 1;
        Pick::Begin(self.begin(candidate, target, key, 0), hold)
    }

    /// Passes over every untried candidate before `end`; who yields leaves those whose turn comes later.
    pub(super) fn pass_over_up_to(
        &mut self,
        end: usize,
        manners: Manners,
        now: MonoTime,
        notes: &mut Vec<Note>,
    ) {
        for candidate in 0..end {
            let found = self.plan.target(candidate).map(|(target, _)| target);
            let Some(target) = found.filter(|_| !self.is_tried(candidate)) else {
                continue;
            };
            let passed_over = self.why_passed_over(candidate, manners, now);
            if passed_over == PassedOver::Probed {
                continue;
            }
            self.pass.tried |= 1 << candidate;
            self.pass_over(passed_over);
            let round = self.pass.round;
            notes.push(Note::Skipped {
                candidate,
                target,
                round,
            });
        }
    }

    /// One key that only cools is enough to wait for. For who yields, the turn of a candidate that has come free in this moment comes later;
    /// at the end of a round, where there is no later, it cools no less than before.
    fn why_passed_over(&self, candidate: usize, manners: Manners, now: MonoTime) -> PassedOver {
        let state = |key| self.key_state(candidate, key, now);
        let mut keys = self.plan.keys(candidate).iter().copied();
        let first = keys.clone().next();
        let fit = keys.clone().find(|key| state(*key).is_none());
        if let Some(key) = fit {
            let known = self.key(candidate, key);
            let probed = known.is_some_and(|key| key.cooldown.is_probed(now));
            let yields = manners == Manners::Yield;
            return match self.local_limit(candidate, now) {
                _ if probed && yields => PassedOver::Probed,
                Some(_) => PassedOver::Limited,
                None if yields => PassedOver::Probed,
                None => PassedOver::Cooling,
            };
        }
        if keys.any(|key| state(key) == Some(PassedOver::Cooling)) {
            return PassedOver::Cooling;
        }
        first.and_then(state).unwrap_or(PassedOver::Cooling)
    }

    /// A remembered cooldown counts as a certified rejection (R-S5), and so does what the operator's own limits keep from a target; a key
    /// that is set aside, and a target that fails, do not.
    fn pass_over(&mut self, passed_over: PassedOver) {
        match passed_over {
            PassedOver::Cooling | PassedOver::Probed => self.lasting.cooled = true,
            PassedOver::Limited => self.lasting.limited = true,
            PassedOver::Failing | PassedOver::Unhealthy => {
                self.lasting.failing = true;
                self.pass.object(Some(Suppression::NotThrottled));
            }
            PassedOver::Aside(AsideReason::Quota) => {
                self.lasting.used_up = true;
                self.pass.object(Some(Suppression::HardQuota));
            }
            PassedOver::Aside(AsideReason::Refused) => {
                self.lasting.keys_refused = true;
                self.pass.object(Some(Suppression::AuthConfig));
            }
            // The failure itself has objected.
            PassedOver::Dropped => {}
        }
    }

    /// The next key of the current candidate's pool that may be used now and was not tried, with what it needs.
    pub(super) fn next_key(&self, candidate: usize, now: MonoTime) -> Option<(usize, Hold)> {
        let mut keys = self.plan.keys(candidate).iter().copied();
        keys.find_map(|key| {
            if self.pass.keys_tried & (1 << key) != 0 {
                return None;
            }
            let hold = self.claim(candidate, key, Manners::Yield, now).ok()?;
            Some((key, hold))
        })
    }

    /// Goes to another key of the current candidate's pool.
    pub(super) fn change_key(&mut self, from: &Begin, key: usize) -> Begin {
        self.pass.keys_tried |= 1 << key;
        self.begin(from.candidate, from.target, key, 0)
    }

    /// A key of the candidate's target.
    pub(super) fn key(&self, candidate: usize, key: usize) -> Option<&TargetKey> {
        self.plan.target(candidate)?.1.keys.get(key)
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
        let shared = self.key(candidate, key)?.cooldown.remaining_after(now);
        own.max(shared)
    }

    /// What this operation has learned of the key, passed or not. A target may stand in several places, and is the same in all.
    fn learned(&self, candidate: usize, key: usize) -> Option<MonoTime> {
        let (target, _) = self.plan.target(candidate)?;
        let known = self.lasting.not_before.iter();
        known
            .filter(|(t, k, _)| (*t, *k) == (target, key))
            .map(|(_, _, instant)| *instant)
            .max()
    }

    pub(super) fn learn_not_before(&mut self, target: usize, key: usize, until: MonoTime) {
        self.lasting.not_before.push((target, key, until));
    }

    /// The earliest instant at which the candidate may be sent to on some key: `now` when one is free, `None` when nothing is known of any.
    pub(super) fn known_not_before(&self, candidate: usize, now: MonoTime) -> Option<MonoTime> {
        let keys = self.plan.keys(candidate).iter().copied();
        let instants = keys.filter_map(|key| {
            let known = self.key(candidate, key)?;
            // A rest after failures proves nothing of a request, but is kept all the same.
            let failing = known.cooldown.failing_after(now);
            let ahead = self.key_not_before(candidate, key, now).max(failing);
            match (known.aside.remaining_after(now), ahead) {
                (Some((AsideReason::Quota, until)), ahead) => {
                    Some(ahead.map_or(until, |at| at.max(until)))
                }
                (Some((AsideReason::Refused, _)), _) => None,
                (None, Some(ahead)) => Some(ahead),
                (None, None) => self.learned(candidate, key).map(|_| now),
            }
        });
        let keys = instants.min();
        match self.local_limit(candidate, now) {
            Some(Exhausted::Until(until)) => keys.max(Some(until)),
            // Nobody knows when a slot comes free.
            Some(Exhausted::Full) => keys.filter(|at| *at > now),
            None => keys,
        }
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
            budget_left: self.plan.route.retry_budget.has_room(now),
            limited: self.lasting.limit_stop,
            failover_over: self.plan.failover_is_over(now),
            failover_left: self.plan.failover_left(now),
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
        // Charged when it is scheduled: what sleeps is an extra send to come (C22).
        if !self.plan.route.retry_budget.charge(now) {
            return Err(Suppression::RetryBudget);
        }
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

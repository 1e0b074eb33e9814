//! The retries that the gateway makes itself at a provider that it owns (R-P): same target, same key, after a pause.
//!
//! Not here: whether a failure is of the kind ([`deserves_retry`]), and the order of this question among the others (`core::decision`).
//! Invariants: one counter over any mix of failures; finite in number and in time; a pause holds a waiting slot and nothing else.

use std::time::Duration;

use super::conclude::Cause;
use super::effect::{Begin, Next, Note, WaitEnd};
use super::hold::Manners;
use super::machine::Executor;
use super::state::{Phase, ProviderRetries};
use crate::core::backoff;
use crate::core::chance::Chance;
use crate::core::decision::{Stop, deserves_retry, may_move_on, second_round};
use crate::core::limits::ATTEMPT_ALLOWANCE_MIN;
use crate::core::outcome::AttemptReport;
use crate::core::suppression::Suppression;
use crate::core::time::MonoTime;
use crate::policy::admission::WaitPermit;
use crate::policy::provider::RetryRules;

/// A pause that was permitted.
pub(super) struct Pause {
    /// The attempt that failed.
    pub failed: Begin,
    /// How long.
    pub pause: Duration,
    /// The slot it holds.
    pub permit: WaitPermit,
}

impl Executor {
    /// The pause before the next own retry and the slot for it, when such a failure has one left. Counts the failure.
    pub(super) fn provider_retry(
        &mut self,
        begin: &Begin,
        report: &AttemptReport,
        now: MonoTime,
        chance: &mut impl Chance,
    ) -> Option<(Duration, WaitPermit)> {
        let rules = self.plan.target(begin.candidate)?.1.retry?;
        if !deserves_retry(report) {
            return None;
        }
        let so_far = self.count_failure(begin.target, now);
        if so_far.noted || self.sends_left() == 0 {
            return None;
        }
        let by_deadline = self
            .plan
            .deadline
            .since(now)
            .checked_sub(ATTEMPT_ALLOWANCE_MIN)?;
        let by_rules = so_far.first_failure.after(rules.elapsed_max);
        let by_failover = self.plan.failover_left(now).unwrap_or(Duration::MAX);
        let longest = by_deadline
            .min(by_rules.checked_since(now)?)
            .min(by_failover);
        // What others have learned of the key counts as much as what this answer says.
        let cools = self.shared_not_before(begin, now).map(|at| at.since(now));
        let pause = pause(&rules, &so_far, report.pushback.max(cools), longest, chance)?;
        let permit = self.plan.route.waiters.enter(self.plan.held_bytes)?;
        Some((pause, permit))
    }

    fn count_failure(&mut self, target: usize, now: MonoTime) -> ProviderRetries {
        let known = self
            .lasting
            .retries
            .iter_mut()
            .find(|known| known.target == target);
        if let Some(known) = known {
            known.failures += 1;
            return *known;
        }
        let first = ProviderRetries {
            target,
            failures: 1,
            first_failure: now,
            noted: false,
        };
        self.lasting.retries.push(first);
        first
    }

    /// Notes once that a target's own retries are used up (R-P7).
    pub(super) fn note_retries_exhausted(&mut self, begin: &Begin, notes: &mut Vec<Note>) {
        let mut known = self.lasting.retries.iter_mut();
        if let Some(known) = known.find(|known| known.target == begin.target && !known.noted) {
            known.noted = true;
            notes.push(Note::RetriesExhausted(*begin));
        }
    }

    pub(super) fn begin_pause(
        &mut self,
        pause: Pause,
        report: &AttemptReport,
        now: MonoTime,
        notes: &mut Vec<Note>,
    ) -> Next {
        let Pause {
            failed,
            pause,
            permit,
        } = pause;
        let (status, reason) = (report.status.unwrap_or_default(), report.class.label());
        notes.push(Note::RetryScheduled {
            failed,
            status,
            reason,
            pause,
        });
        let until = now.after(pause);
        let movable = may_move_on(report, &self.plan.route.routing.fallback).then_some(reason);
        self.phase = Phase::Pausing {
            until,
            began: now,
            permit,
            failed,
            movable,
        };
        Next::Wait(until)
    }

    /// The pause is over: the same target and key again. Should another operation have learned meanwhile that the key cools, another key of
    /// the pool, or the retries end here.
    pub(super) fn on_paused(
        &mut self,
        phase: Phase,
        now: MonoTime,
        chance: &mut impl Chance,
        notes: &mut Vec<Note>,
    ) -> Next {
        let Phase::Pausing {
            until,
            began,
            permit,
            failed,
            movable,
        } = phase
        else {
            return Next::Continue;
        };
        if now < until {
            self.phase = Phase::Pausing {
                until,
                began,
                permit,
                failed,
                movable,
            };
            return Next::Wait(until);
        }
        self.end_pause(began, now);
        drop(permit);
        if self.plan.failover_is_over(now) {
            return self.stop(Stop::FailoverElapsed, now, chance, notes, None);
        }
        let claimed = match self.shared_not_before(&failed, now) {
            None => self
                .claim_fit(failed.candidate, failed.key, Manners::Push, now)
                .ok(),
            Some(_) => None,
        };
        if let Some(hold) = claimed {
            let Begin {
                candidate,
                target,
                key,
                retry_index,
                ..
            } = failed;
            let again = self.begin(candidate, target, key, retry_index + 1);
            return self.open(again, hold, now, notes);
        }
        if let Some((key, hold)) = self.next_key(failed.candidate, now) {
            let next = self.change_key(&failed, key);
            return self.open(next, hold, now, notes);
        }
        self.note_retries_exhausted(&failed, notes);
        match movable {
            Some(reason) => {
                let next = self.select(now, notes);
                let from = Some((failed.target, reason));
                self.go_on(next, from, now, chance, notes)
            }
            None => self.stop(Stop::Terminal, now, chance, notes, None),
        }
    }

    /// The instant before which everybody stays away from the attempt's key, if it lies ahead. What this operation was told itself is in
    /// its pauses already; without a directive, the assumed delay of a second round is not theirs to keep.
    fn shared_not_before(&self, begin: &Begin, now: MonoTime) -> Option<MonoTime> {
        let (_, target) = self.plan.target(begin.candidate)?;
        let key = target.keys.get(begin.key)?;
        let aside = key.aside.remaining_after(now).map(|(_, until)| until);
        let failing = key.cooldown.failing_after(now);
        key.cooldown.remaining_after(now).max(failing).max(aside)
    }

    pub(super) fn end_pause(&mut self, began: MonoTime, now: MonoTime) {
        self.lasting.waited = self.lasting.waited.saturating_add(now.since(began));
    }

    /// Something else ends the pause: the last failure is told.
    pub(super) fn cut_pause(
        &mut self,
        began: MonoTime,
        how: WaitEnd,
        now: MonoTime,
        chance: &mut impl Chance,
        notes: &mut Vec<Note>,
    ) -> Next {
        self.end_pause(began, now);
        let (stop, otherwise) = match how {
            WaitEnd::Shutdown => (Some(Stop::Shutdown), Suppression::Shutdown),
            WaitEnd::Elapsed | WaitEnd::ClientGone | WaitEnd::Deadline | WaitEnd::Dropped => {
                (None, Suppression::Deadline)
            }
        };
        let mut suppression = None;
        if self.may_have_second_round() {
            let reason = second_round(&self.round_facts(now, chance)).err();
            let reason = reason.unwrap_or(otherwise);
            notes.push(Note::Suppressed(reason));
            suppression = Some(reason);
        }
        self.conclude(
            now,
            &Cause {
                stop,
                suppression,
                current: None,
            },
            notes,
        )
    }
}

/// Equal jitter over a capped exponential: half fixed, half random (R-P3). A provider's own delay raises the fixed part, and spreads as
/// waiters between rounds do; one beyond `longest` ends the sequence. The random part is drawn within `longest`, so that callers that
/// failed together do not gather at the bound.
fn pause(
    rules: &RetryRules,
    so_far: &ProviderRetries,
    told: Option<Duration>,
    longest: Duration,
    chance: &mut impl Chance,
) -> Option<Duration> {
    if so_far.failures >= rules.attempts_max {
        return None;
    }
    let doublings = so_far.failures.saturating_sub(1).min(32);
    let grown = rules
        .delay_base
        .saturating_mul(2_u32.saturating_pow(doublings));
    let half = grown.min(rules.delay_max) / 2;
    let (floor, spread) = match told {
        Some(told) if told > half => (told, half.max(backoff::jitter_width(told))),
        Some(_) | None => (half, half),
    };
    let width = spread.min(longest.checked_sub(floor)?);
    let width = u64::try_from(width.as_micros()).unwrap_or(u64::MAX);
    let random = Duration::from_micros(chance.below(width.saturating_add(1)));
    Some(floor.saturating_add(random))
}

//! What is known of one (provider, key, model): the not-before instant that certified rejections set, the one that failures without a
//! certificate set, and who tries again first when they are over. Instants are only ever extended, and ended by success.

use std::sync::Arc;
use std::time::Duration;

use super::sync::{AtomicU64, Ordering};
use crate::core::limits::PROBE_HOLD;
use crate::core::time::MonoTime;

/// What is known of one (provider, key, model). Zero means none, everywhere.
#[derive(Debug, Default)]
pub struct Cooldown {
    /// The not-before instant that certified rejections set.
    until: AtomicU64,
    /// The one that failures without a certificate set. It proves nothing of a request.
    failing: AtomicU64,
    /// Those failures: the millisecond of the first of a row in the high bits, their number in the low ones.
    strikes: AtomicU64,
    /// Until when one operation keeps the others away while it tries again.
    probe: AtomicU64,
}

/// The rests that were over when an attempt began. Its success ends those, unless somebody extended them since; a rest that was set between
/// the choice of the key and the attempt is not over, and not the attempt's to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seen {
    until: u64,
    failing: u64,
}

/// When failures without a certificate set a candidate aside, and for how long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FailureRules {
    /// So many in a row, with no success between them.
    pub count: u64,
    /// Within so long of the first of them.
    pub within: Duration,
    /// Set it aside for so long.
    pub cooldown: Duration,
}

const STRIKES_BITS: u32 = 16;
const STRIKES_MASK: u64 = (1 << STRIKES_BITS) - 1;

impl Cooldown {
    /// Moves the instant to `until` if that is later.
    pub fn extend(&self, until: MonoTime) {
        self.until.fetch_max(until.as_micros(), Ordering::AcqRel);
    }

    /// The instant, if it lies after `now`.
    pub fn remaining_after(&self, now: MonoTime) -> Option<MonoTime> {
        ahead(&self.until, now)
    }

    /// Until when failures have set the candidate aside, if that lies after `now`.
    pub fn failing_after(&self, now: MonoTime) -> Option<MonoTime> {
        ahead(&self.failing, now)
    }

    /// Taken when an attempt begins.
    pub fn seen(&self, now: MonoTime) -> Seen {
        Seen {
            until: past(&self.until, now),
            failing: past(&self.failing, now),
        }
    }

    /// An attempt that began at `seen` succeeded: ends what it saw, unless another failure extended it meanwhile (C26).
    pub fn end(&self, seen: Seen) {
        end(&self.until, seen.until);
        end(&self.failing, seen.failing);
        // A success that began before the last trip says nothing of the failures since.
        if self.failing.load(Ordering::Acquire) == 0 {
            self.strikes.store(0, Ordering::Release);
        }
    }

    /// An attempt that began at `seen` failed without a certificate. While the candidate is set aside, and when it was since the attempt
    /// began, that is no news. The first one after it sets it aside again.
    pub fn strike(&self, seen: Seen, rules: &FailureRules, now: MonoTime) {
        let failing = self.failing.load(Ordering::Acquire);
        if failing > now.as_micros() || failing != seen.failing {
            return;
        }
        let trips = failing != 0 || self.count_strike(rules, now);
        if trips {
            let until = now.after(rules.cooldown).as_micros();
            self.failing.fetch_max(until, Ordering::AcqRel);
            self.strikes.store(0, Ordering::Release);
        }
    }

    /// Counts a failure, and says whether it was the last that the rules allow.
    fn count_strike(&self, rules: &FailureRules, now: MonoTime) -> bool {
        let now = now.as_micros() / 1000;
        let within = u64::try_from(rules.within.as_millis()).unwrap_or(u64::MAX);
        let mut word = self.strikes.load(Ordering::Acquire);
        loop {
            let (first, count) = (word >> STRIKES_BITS, word & STRIKES_MASK);
            let goes_on = count > 0 && now.saturating_sub(first) <= within;
            let (first, count) = match goes_on {
                true => (first, (count + 1).min(STRIKES_MASK)),
                false => (now, 1),
            };
            let next = (first << STRIKES_BITS) | count;
            let result =
                self.strikes
                    .compare_exchange_weak(word, next, Ordering::AcqRel, Ordering::Acquire);
            match result {
                Ok(_) => return count >= rules.count,
                Err(seen) => word = seen,
            }
        }
    }

    /// Whether a rest is over and nobody has succeeded since: one operation tries first.
    pub fn is_half_open(&self, now: MonoTime) -> bool {
        let words = [&self.until, &self.failing].map(|word| word.load(Ordering::Acquire));
        words.iter().any(|word| *word != 0) && words.iter().all(|word| *word <= now.as_micros())
    }

    /// Whether it is the rest after certified rejections that is over.
    pub fn was_certified(&self) -> bool {
        self.until.load(Ordering::Acquire) != 0
    }

    /// Whether an operation keeps the others away while it tries again.
    pub fn is_probed(&self, now: MonoTime) -> bool {
        self.is_half_open(now) && ahead(&self.probe, now).is_some()
    }

    /// Makes the caller the one that tries again, unless another one does.
    pub fn take_probe(self: &Arc<Self>, now: MonoTime) -> Option<Probe> {
        let held = self.probe.load(Ordering::Acquire);
        let until = now.after(PROBE_HOLD).as_micros();
        if held > now.as_micros() {
            return None;
        }
        let taken = self
            .probe
            .compare_exchange(held, until, Ordering::AcqRel, Ordering::Relaxed);
        taken.ok().map(|_| Probe {
            cooldown: Arc::clone(self),
            until,
        })
    }
}

fn ahead(word: &AtomicU64, now: MonoTime) -> Option<MonoTime> {
    let until = MonoTime::from_micros(word.load(Ordering::Acquire));
    (until > now).then_some(until)
}

/// The instant, unless it lies ahead.
fn past(word: &AtomicU64, now: MonoTime) -> u64 {
    let until = word.load(Ordering::Acquire);
    if until > now.as_micros() { 0 } else { until }
}

fn end(word: &AtomicU64, seen: u64) {
    if seen != 0 {
        let _ = word.compare_exchange(seen, 0, Ordering::AcqRel, Ordering::Relaxed);
    }
}

/// The right to try again first. Dropping it lets the next one, whatever came of it (C24, C25); one that was held too long was lost before.
#[derive(Debug)]
#[must_use]
pub struct Probe {
    cooldown: Arc<Cooldown>,
    until: u64,
}

impl Drop for Probe {
    fn drop(&mut self) {
        let _ = self.cooldown.probe.compare_exchange(
            self.until,
            0,
            Ordering::AcqRel,
            Ordering::Relaxed,
        );
    }
}

/// Why a key is set aside for every model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AsideReason {
    /// The provider does not accept it.
    Refused,
    /// Its quota or balance is used up.
    Quota,
}

/// Set-aside instants of one (provider, key), for failures that are the key's own and hold for every model.
#[derive(Debug, Default)]
pub struct KeyAside {
    refused: Cooldown,
    quota: Cooldown,
}

impl KeyAside {
    /// Sets the key aside until the instant, if that is later than what is known.
    pub fn extend(&self, reason: AsideReason, until: MonoTime) {
        match reason {
            AsideReason::Refused => self.refused.extend(until),
            AsideReason::Quota => self.quota.extend(until),
        }
    }

    /// Why and until when the key is set aside, if it is: the later of the two reasons.
    pub fn remaining_after(&self, now: MonoTime) -> Option<(AsideReason, MonoTime)> {
        let refused = self
            .refused
            .remaining_after(now)
            .map(|at| (AsideReason::Refused, at));
        let quota = self
            .quota
            .remaining_after(now)
            .map(|at| (AsideReason::Quota, at));
        refused.into_iter().chain(quota).max_by_key(|(_, at)| *at)
    }
}

//! The not-before instant of one (provider, key, model): set by certified rejections, only ever extended, ended by success.

use super::sync::{AtomicU64, Ordering};
use crate::core::time::MonoTime;

/// An instant before which the candidate is not sent to. Zero means none.
#[derive(Debug, Default)]
pub struct Cooldown {
    until: AtomicU64,
}

/// What the cooldown was when an attempt began; ends it only if nobody extended it since.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seen(u64);

impl Cooldown {
    /// Moves the instant to `until` if that is later.
    pub fn extend(&self, until: MonoTime) {
        self.until.fetch_max(until.as_micros(), Ordering::AcqRel);
    }

    /// The instant, if it lies after `now`.
    pub fn remaining_after(&self, now: MonoTime) -> Option<MonoTime> {
        let until = MonoTime::from_micros(self.until.load(Ordering::Acquire));
        (until > now).then_some(until)
    }

    /// Taken when an attempt begins.
    pub fn seen(&self) -> Seen {
        Seen(self.until.load(Ordering::Acquire))
    }

    /// An attempt that began at `seen` succeeded: ends the cooldown unless another rejection extended it meanwhile.
    pub fn end(&self, seen: Seen) {
        if seen.0 != 0 {
            let _ = self
                .until
                .compare_exchange(seen.0, 0, Ordering::AcqRel, Ordering::Relaxed);
        }
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

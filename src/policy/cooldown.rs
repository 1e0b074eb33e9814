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

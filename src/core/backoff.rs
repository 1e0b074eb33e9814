//! How long to sleep between rounds: the provider's delay as a floor, jitter on top.

use std::time::Duration;

use super::chance::Chance;
use super::limits::{JITTER_WIDTH_MAX, JITTER_WIDTH_MIN};

/// Width of the uniform spread over a delay (R-S14): `max(50 ms, delay / 4)`, at most 500 ms.
pub fn jitter_width(delay: Duration) -> Duration {
    (delay / 4).clamp(JITTER_WIDTH_MIN, JITTER_WIDTH_MAX)
}

/// A uniform jitter for `delay`, in microseconds steps, below its width.
pub fn jitter(delay: Duration, chance: &mut impl Chance) -> Duration {
    let width = u64::try_from(jitter_width(delay).as_micros()).unwrap_or(u64::MAX);
    Duration::from_micros(chance.below(width))
}

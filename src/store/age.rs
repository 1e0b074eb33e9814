//! What time it is where records grow old: a clock that jumps ahead must not delete what is not old.
//!
//! Not here: where the time comes from (`Store::clock`), what is deleted. Invariant: the time that is given is never further ahead of the one
//! given before than the time that passed, but for [`SLACK`], unless the clock has stood by it for [`BELIEVED_AFTER`].

use std::time::{Duration, Instant};

use crate::core::time::WallTime;

/// What a clock may gain between two looks: it is being set by a second or so, or ticks a little fast.
const SLACK: Duration = Duration::from_secs(60);
/// After this time a jump is believed: a clock that was set wrong is noticed and set right sooner, one that was wrong before stays as it is, and so
/// does that of a machine that was suspended.
const BELIEVED_AFTER: Duration = Duration::from_secs(3_600);

/// A clock that is watched.
#[derive(Debug, Default)]
pub(super) struct Age {
    /// When it was last believed, and what it said.
    before: Option<(Instant, WallTime)>,
    /// Since when it is ahead.
    ahead: Option<Instant>,
}

impl Age {
    /// The time that the clock tells, or what it should tell when it jumped ahead.
    pub(super) fn now(&mut self, now: Instant, told: WallTime) -> WallTime {
        let (at, before) = *self.before.get_or_insert((now, told));
        let passed = now.saturating_duration_since(at);
        let expected = later(before, passed);
        if told > later(expected, SLACK) {
            let since = *self.ahead.get_or_insert(now);
            if now.saturating_duration_since(since) < BELIEVED_AFTER {
                return expected;
            }
        }
        self.ahead = None;
        self.before = Some((now, told));
        told
    }
}

fn later(time: WallTime, passed: Duration) -> WallTime {
    let passed = i64::try_from(passed.as_micros()).unwrap_or(i64::MAX);
    WallTime::from_unix_micros(time.unix_micros().saturating_add(passed))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_jump_ahead_is_believed_when_it_lasts() {
        let (mut age, start) = (Age::default(), Instant::now());
        let wall = |seconds: i64| WallTime::from_unix_micros(seconds * 1_000_000);
        let mut look = |after: u64, told: i64| {
            let seen = age.now(start + Duration::from_secs(after), wall(told));
            seen.unix_micros() / 1_000_000
        };
        assert_eq!(look(0, 1_000), 1_000);
        assert_eq!(look(60, 1_070), 1_070, "a little is drift");
        assert_eq!(look(120, 900_000), 1_130, "a jump is not");
        assert_eq!(look(180, 900_060), 1_190);
        assert_eq!(look(240, 1_240), 1_240, "it was set right");
        assert_eq!(look(300, 900_000), 1_300, "again");
        assert_eq!(look(3_899, 903_599), 4_899);
        assert_eq!(look(3_900, 903_600), 903_600, "it stays");
        assert_eq!(look(3_960, 903_660), 903_660);
        assert_eq!(look(4_020, 5), 5, "back is always safe");
        assert_eq!(look(4_080, 65), 65);
    }
}

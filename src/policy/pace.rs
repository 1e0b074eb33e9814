//! How slow a client may be, beyond its longest pause: a rate below which it is ended.
//!
//! Not here: the clock, and what follows. Invariants: nobody is held to a rate within the first pause that he may take, and a client at
//! or above the rate is never ended by it, however its bytes are cut into pieces.

use std::time::Duration;

/// A least rate. Both parts come from the configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pace {
    /// Bytes a second; `None` asks for no rate.
    pub bytes_per_second: Option<u64>,
    /// The longest single pause, and the start that everybody has.
    pub pause_max: Duration,
}

impl Pace {
    /// What so many bytes may take by the rate alone.
    fn worth(self, bytes: u64) -> Duration {
        let Some(rate) = self.bytes_per_second.filter(|rate| *rate > 0) else {
            return Duration::MAX;
        };
        let micros = u128::from(bytes) * 1_000_000 / u128::from(rate);
        Duration::from_micros(u64::try_from(micros).unwrap_or(u64::MAX))
    }

    /// By when, counted from its beginning, a transfer that has moved `bytes` must have moved the next one. The average counts: who was
    /// fast may pause later.
    pub fn due(self, bytes: u64) -> Duration {
        self.worth(bytes).saturating_add(self.pause_max)
    }
}

/// Who reads what is written to him: only time that he keeps a piece waiting counts, since what comes slowly cannot be read fast.
#[derive(Debug, Clone, Copy)]
pub struct Reader {
    pace: Pace,
    behind: Duration,
}

impl Reader {
    /// Someone who has kept nothing waiting.
    pub const fn new(pace: Pace) -> Reader {
        Reader {
            pace,
            behind: Duration::ZERO,
        }
    }

    /// He took `bytes` and kept what came next waiting for this long. Bytes make up for time, but not in advance: a stream that was read
    /// fast for an hour is no reason to hold its upstream for the next one.
    pub fn took(&mut self, bytes: u64, waiting: Duration) {
        self.behind = self
            .behind
            .saturating_add(waiting)
            .saturating_sub(self.pace.worth(bytes));
    }

    /// How long he may take for the next `bytes`; zero when he has used up what he had.
    pub fn allowance(&self, bytes: u64) -> Duration {
        let left = self.pace.pause_max.saturating_sub(self.behind);
        if left.is_zero() {
            return left;
        }
        left.saturating_add(self.pace.worth(bytes))
            .min(self.pace.pause_max)
    }
}

//! Instants that the core is told. It never reads a clock.

use std::time::Duration;

/// An instant of a monotonic clock, in microseconds since an origin the shell chose. For waits, timeouts and deadlines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct MonoTime(u64);

impl MonoTime {
    /// The origin.
    pub const ZERO: MonoTime = MonoTime(0);
    /// Later than every instant that is reached.
    pub const FAR: MonoTime = MonoTime(u64::MAX);

    /// The instant `micros` after the origin.
    pub const fn from_micros(micros: u64) -> MonoTime {
        MonoTime(micros)
    }

    /// Microseconds since the origin.
    pub const fn as_micros(self) -> u64 {
        self.0
    }

    /// This instant moved on by `duration`; saturates at [`MonoTime::FAR`].
    pub fn after(self, duration: Duration) -> MonoTime {
        MonoTime(self.0.saturating_add(micros(duration)))
    }

    /// How long until this instant, zero when it has passed.
    pub fn since(self, earlier: MonoTime) -> Duration {
        Duration::from_micros(self.0.saturating_sub(earlier.0))
    }

    /// How long until this instant; `None` when it has passed.
    pub fn checked_since(self, earlier: MonoTime) -> Option<Duration> {
        self.0.checked_sub(earlier.0).map(Duration::from_micros)
    }
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

/// Wall-clock time in microseconds since 1970-01-01T00:00:00Z. For HTTP dates and records, never for waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct WallTime(i64);

impl WallTime {
    /// The instant `micros` after the Unix epoch.
    pub const fn from_unix_micros(micros: i64) -> WallTime {
        WallTime(micros)
    }

    /// Microseconds since the Unix epoch.
    pub const fn unix_micros(self) -> i64 {
        self.0
    }
}

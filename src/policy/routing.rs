//! How one route fails over: the compiled form of `routing`. Limits are totals that include the first.

use std::time::Duration;

pub use super::cooldown::FailureRules;
pub use crate::core::fallback::Fallback;

/// The routing rules of one route.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Routing {
    /// Whether other targets than the first are tried.
    pub mode: Mode,
    /// Target attempts in one round, at most (R-B2).
    pub attempts_max: u32,
    /// Sends of one operation, at most (R-B1), before `tries_max`.
    pub sends_max: u32,
    /// The second round; `None` when it is absent from the configuration.
    pub exhaustion: Option<Exhaustion>,
    /// Which failures beyond the replay-safe ones may move on.
    pub fallback: Fallback,
    /// Total tries over all rounds: `1 + max_retries`, when that is set (R-F3).
    pub tries_max: Option<u32>,
    /// A failure later than this after its attempt's start is returned at once (R-F4).
    pub fail_within: Option<Duration>,
    /// No try but the first starts later than this after the operation's start.
    pub failover_within: Option<Duration>,
    /// Total tries of the first candidate on its key (R-K1), at least 1.
    pub sticky_tries: u32,
    /// What happens upstream when the client leaves.
    pub on_client_disconnect: OnDisconnect,
    /// Longest time that a certified delay sets a candidate aside for other operations; zero turns it off.
    pub cooldown_max: Duration,
    /// How long a key with a used-up quota is set aside; zero turns it off.
    pub quota_aside: Duration,
    /// When failures without a certificate set a candidate aside; `None` when they never do.
    pub failures: Option<FailureRules>,
}

impl Routing {
    /// Sends that one operation may make in all (R-B1).
    pub fn sends_allowed(&self) -> u32 {
        self.tries_max
            .map_or(self.sends_max, |tries| tries.min(self.sends_max))
    }
}

/// `routing.mode`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// The first target alone.
    PrimaryOnly,
    /// Targets in order.
    PriorityFailover,
}

impl Mode {
    /// The YAML value.
    pub const fn label(self) -> &'static str {
        match self {
            Mode::PrimaryOnly => "primary_only",
            Mode::PriorityFailover => "priority_failover",
        }
    }
}

/// `routing.exhaustion_retry`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Exhaustion {
    /// Rounds in all: 1 (explicitly off) or 2.
    pub rounds_max: u8,
    /// Longest provider-directed delay that is waited for.
    pub wait_max: Duration,
}

/// `routing.on_client_disconnect`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnDisconnect {
    /// Close the upstream at once, so that it stops generating.
    Abort,
    /// Read on within a bound to learn the final usage.
    Drain,
}

//! Whether a provider answered its last health checks. Unknown is healthy: a check that never ran keeps nobody away.
//!
//! Not here: asking ([`crate::proxy`] does), and what follows for an operation. Invariant: the state changes only after so many results in
//! a row that contradict it.

use std::sync::Arc;
use std::time::Duration;

use super::sync::{AtomicU64, Ordering};

/// `providers.<name>.health`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HealthRules {
    /// What is asked for; begins with a slash.
    pub path: Arc<str>,
    /// From one check to the next.
    pub interval: Duration,
    /// Time for one check, the connection included.
    pub timeout: Duration,
    /// Good results in a row that make it healthy again.
    pub healthy: u64,
    /// Bad results in a row that make it unhealthy.
    pub unhealthy: u64,
    /// Whether the provider's first key is shown.
    pub authenticated: bool,
}

/// The state of one provider. Shared by its targets, and kept over reloads that leave it as it was.
#[derive(Debug)]
pub struct Health {
    /// The provider's name.
    pub provider: Arc<str>,
    /// How it is checked.
    pub rules: HealthRules,
    /// Whether it is unhealthy in the lowest bit, and above it the results in a row that contradict that.
    word: AtomicU64,
}

impl Health {
    /// A provider of which nothing is known.
    pub fn new(provider: Arc<str>, rules: HealthRules) -> Health {
        Health {
            provider,
            rules,
            word: AtomicU64::new(0),
        }
    }

    /// Whether it counts as healthy.
    pub fn is_healthy(&self) -> bool {
        self.word.load(Ordering::Acquire) & 1 == 0
    }

    /// Takes a result; says whether the state has changed by it.
    pub fn record(&self, good: bool) -> bool {
        let mut word = self.word.load(Ordering::Acquire);
        loop {
            let (healthy, row) = (word & 1 == 0, word >> 1);
            let needed = if healthy {
                self.rules.unhealthy
            } else {
                self.rules.healthy
            };
            let row = if good == healthy { 0 } else { row + 1 };
            let turns = row >= needed && row > 0;
            let next = match turns {
                true => u64::from(healthy),
                false => (row << 1) | u64::from(!healthy),
            };
            let result =
                self.word
                    .compare_exchange_weak(word, next, Ordering::AcqRel, Ordering::Acquire);
            match result {
                Ok(_) => return turns,
                Err(seen) => word = seen,
            }
        }
    }
}

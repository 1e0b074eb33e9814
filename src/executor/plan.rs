//! What is fixed for one operation before it begins.

use std::sync::Arc;
use std::time::Duration;

use crate::core::time::MonoTime;
use crate::policy::route::{Route, Target};
use crate::policy::routing::Mode;

/// The unchanging part of one operation.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The route, as the operation's snapshot has it.
    pub route: Arc<Route>,
    /// Positions of the route's targets that can serve this request, in order.
    pub candidates: Vec<usize>,
    /// Why the operation may not change target, if so (R-S7).
    pub binding: Option<&'static str>,
    /// Whether the client said that this request is its own retry.
    pub caller_retry: bool,
    /// Whether the caller owns the retries of every candidate (R-P1).
    pub caller_owns_retries: bool,
    /// When the operation began: when its request header was complete.
    pub began: MonoTime,
    /// The absolute deadline (R-B4).
    pub deadline: MonoTime,
    /// Tokens that the request is estimated to cost.
    pub tokens: u64,
    /// Bytes of the held body.
    pub held_bytes: u64,
}

impl Plan {
    /// The target of a candidate.
    pub fn target(&self, candidate: usize) -> Option<(usize, &Target)> {
        let position = *self.candidates.get(candidate)?;
        Some((position, self.route.targets.get(position)?))
    }

    /// How long a try other than the first may still start; `None` when that is not limited.
    pub fn failover_left(&self, now: MonoTime) -> Option<Duration> {
        let within = self.route.routing.failover_within?;
        Some(self.began.after(within).since(now))
    }

    /// Whether it is too late for another try.
    pub fn failover_is_over(&self, now: MonoTime) -> bool {
        let within = self.route.routing.failover_within;
        within.is_some_and(|within| now > self.began.after(within))
    }

    /// How many candidates the operation may move over: all, or the first alone (R-F6, R-F8).
    pub fn reach(&self) -> usize {
        let alone = self.binding.is_some() || self.route.routing.mode == Mode::PrimaryOnly;
        if alone {
            self.candidates.len().min(1)
        } else {
            self.candidates.len()
        }
    }
}

//! What is fixed for one operation before it begins.

use std::sync::Arc;
use std::time::Duration;

use crate::core::time::MonoTime;
use crate::policy::ordering::{Candidates, Pin};
use crate::policy::route::{Route, Target};
use crate::policy::routing::Mode;

/// The unchanging part of one operation.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The route, as the operation's snapshot has it.
    pub route: Arc<Route>,
    /// Who can serve this request, in order.
    pub candidates: Candidates,
    /// Total tries of the first of them on its key (R-K1), at least 1.
    pub sticky_tries: u32,
    /// Where a good answer is remembered, if that is wanted.
    pub pin: Option<Pin>,
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
        let position = self.candidates.get(candidate)?.target;
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

    /// The keys that the operation may use at the candidate, in order. A bound one has the first alone: its state belongs to an account,
    /// and another key may be another account's (R-F8).
    pub fn keys(&self, candidate: usize) -> &[usize] {
        let keys = self.candidates.get(candidate).map_or(&[][..], |c| &c.keys);
        match (self.binding, keys) {
            (Some(_), [first, ..]) => std::slice::from_ref(first),
            _ => keys,
        }
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

//! The limits that an operator sets for a target: requests and tokens in any minute, and attempts at once.
//!
//! Not here: what follows when a target is exhausted, and the provider's own limits. Each gateway counts by itself.
//! Invariants: what a minute may hold is asked and taken in one step; no minute holds more than its limit, but for one operation whose
//! estimate alone is above it; a reservation is given back whole unless what it stood for may have run. The lock is held for sums over at
//! most `BUCKETS` numbers and never across anything else.

use std::collections::VecDeque;
use std::sync::{Arc, PoisonError};

use super::sync::{AtomicU64, Mutex, MutexGuard, Ordering};
use crate::core::limits::LIMIT_BUCKET_MICROS;
use crate::core::time::MonoTime;

/// Buckets of a minute, and the one that is begun: so any sixty seconds are covered.
const BUCKETS: u64 = 60_000_000 / LIMIT_BUCKET_MICROS + 1;

/// `targets[].limits`. What is absent is not limited.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LimitRules {
    /// Sends in any minute.
    pub requests_per_minute: Option<u64>,
    /// Tokens in any minute, estimated before and corrected after.
    pub tokens_per_minute: Option<u64>,
    /// Attempts at once, streams included.
    pub concurrent: Option<u64>,
}

/// Why a target may not be sent to now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exhausted {
    /// Its minute is full until this instant.
    Until(MonoTime),
    /// As many attempts as it may have are under way; nobody knows when one ends.
    Full,
}

/// What a target has used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Usage {
    /// Requests of the last minute.
    pub requests: u64,
    /// Tokens of the last minute.
    pub tokens: u64,
    /// Attempts under way.
    pub concurrent: u64,
}

/// The account of one target of one route.
#[derive(Debug)]
pub struct TargetLimits {
    rules: LimitRules,
    state: Mutex<State>,
}

/// Both minutes and the slots change together.
#[derive(Debug, Default)]
struct State {
    /// Oldest first; those with nothing in them are left out.
    buckets: VecDeque<Bucket>,
    used: Usage,
}

#[derive(Debug, Clone, Copy)]
struct Bucket {
    number: u64,
    requests: u64,
    tokens: u64,
}

impl TargetLimits {
    /// An account of which nothing is used.
    pub fn new(rules: LimitRules) -> TargetLimits {
        TargetLimits {
            rules,
            state: Mutex::new(State::default()),
        }
    }

    /// What it was made with.
    pub fn rules(&self) -> &LimitRules {
        &self.rules
    }

    /// Takes a request of so many tokens and a slot, all together or not at all.
    pub fn reserve(self: &Arc<Self>, tokens: u64, now: MonoTime) -> Result<Reservation, Exhausted> {
        let tokens = self.cost(tokens);
        let mut state = self.lock();
        let number = state.advance(now);
        if let Some(exhausted) = self.rules.exhausted(&state, tokens) {
            return Err(exhausted);
        }
        state.count(number, tokens);
        drop(state);
        let share = Share {
            account: Arc::clone(self),
            number,
            tokens: Arc::new(AtomicU64::new(tokens)),
        };
        Ok(Reservation { share, kept: false })
    }

    /// Why a request of so many tokens would be refused now, if so.
    pub fn exhausted(&self, tokens: u64, now: MonoTime) -> Option<Exhausted> {
        let tokens = self.cost(tokens);
        let mut state = self.lock();
        state.advance(now);
        self.rules.exhausted(&state, tokens)
    }

    /// What is used at this moment.
    pub fn usage(&self, now: MonoTime) -> Usage {
        let mut state = self.lock();
        state.advance(now);
        state.used
    }

    /// One that asks for more than a minute ever has would wait for ever: it costs the whole minute.
    fn cost(&self, tokens: u64) -> u64 {
        self.rules
            .tokens_per_minute
            .map_or(tokens, |max| tokens.min(max))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl LimitRules {
    fn exhausted(&self, state: &State, tokens: u64) -> Option<Exhausted> {
        let requests = self.requests_per_minute.and_then(|max| {
            let over = (state.used.requests + 1).saturating_sub(max);
            state.leaves_when(over, |bucket| bucket.requests)
        });
        let tokens = self.tokens_per_minute.and_then(|max| {
            let over = state.used.tokens.saturating_add(tokens).saturating_sub(max);
            state.leaves_when(over, |bucket| bucket.tokens)
        });
        if let Some(until) = requests.max(tokens) {
            return Some(Exhausted::Until(until));
        }
        let full = self
            .concurrent
            .is_some_and(|max| state.used.concurrent >= max);
        full.then_some(Exhausted::Full)
    }
}

impl State {
    /// Forgets what is older than a minute, and says in which bucket a count goes. A clock that is behind counts in the newest.
    fn advance(&mut self, now: MonoTime) -> u64 {
        let newest = self.buckets.back().map_or(0, |bucket| bucket.number);
        let number = (now.as_micros() / LIMIT_BUCKET_MICROS).max(newest);
        while let Some(bucket) = self.buckets.front()
            && bucket.number + BUCKETS <= number
        {
            self.used.requests = self.used.requests.saturating_sub(bucket.requests);
            self.used.tokens = self.used.tokens.saturating_sub(bucket.tokens);
            self.buckets.pop_front();
        }
        number
    }

    fn count(&mut self, number: u64, tokens: u64) {
        self.used.requests += 1;
        self.used.tokens = self.used.tokens.saturating_add(tokens);
        self.used.concurrent += 1;
        match self.buckets.back_mut() {
            Some(bucket) if bucket.number == number => {
                bucket.requests += 1;
                bucket.tokens = bucket.tokens.saturating_add(tokens);
            }
            _ => self.buckets.push_back(Bucket {
                number,
                requests: 1,
                tokens,
            }),
        }
    }

    /// When so much of the minute has left it; `None` when nothing has to.
    fn leaves_when(&self, over: u64, amount: impl Fn(&Bucket) -> u64) -> Option<MonoTime> {
        let mut left = 0_u64;
        if over == 0 {
            return None;
        }
        let enough = self.buckets.iter().find(|bucket| {
            left = left.saturating_add(amount(bucket));
            left >= over
        });
        let number = enough.or(self.buckets.back())?.number + BUCKETS;
        Some(MonoTime::from_micros(
            number.saturating_mul(LIMIT_BUCKET_MICROS),
        ))
    }

    fn find(&mut self, number: u64) -> Option<&mut Bucket> {
        let mut buckets = self.buckets.iter_mut().rev();
        buckets.find(|bucket| bucket.number == number)
    }
}

/// What the minute has of one request. It outlives the reservation: what an answer used may be known only when all is settled.
#[derive(Debug, Clone)]
pub struct Share {
    account: Arc<TargetLimits>,
    number: u64,
    /// What is counted at this moment. Changes under the account's lock alone.
    tokens: Arc<AtomicU64>,
}

impl Share {
    /// What was really used, in place of what is counted. Without effect when the minute of the estimate is over.
    pub fn correct(&self, tokens: u64) {
        self.set(|_| tokens);
    }

    /// At least so much was used.
    pub fn raise(&self, tokens: u64) {
        self.set(|counted| counted.max(tokens));
    }

    fn set(&self, of: impl FnOnce(u64) -> u64) {
        let mut state = self.account.lock();
        let Some(bucket) = state.find(self.number) else {
            return;
        };
        let before = self.tokens.load(Ordering::Relaxed);
        let tokens = of(before);
        bucket.tokens = bucket.tokens.saturating_sub(before).saturating_add(tokens);
        let used = state.used.tokens;
        state.used.tokens = used.saturating_sub(before).saturating_add(tokens);
        self.tokens.store(tokens, Ordering::Relaxed);
    }
}

/// A request that was counted, and the slot it has. Dropping it frees the slot, and gives the rest back unless it was kept.
#[derive(Debug)]
#[must_use]
pub struct Reservation {
    share: Share,
    kept: bool,
}

impl Reservation {
    /// What it stands for may have run: its request and tokens stay counted until their minute is over.
    pub fn keep(&mut self) {
        self.kept = true;
    }

    /// What the minute has of it, for who learns later what it really used.
    pub fn share(&self) -> Share {
        self.share.clone()
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        let mut state = self.share.account.lock();
        state.used.concurrent = state.used.concurrent.saturating_sub(1);
        if self.kept {
            return;
        }
        let Some(bucket) = state.find(self.share.number) else {
            return;
        };
        let tokens = self.share.tokens.load(Ordering::Relaxed);
        bucket.requests = bucket.requests.saturating_sub(1);
        bucket.tokens = bucket.tokens.saturating_sub(tokens);
        state.used.requests = state.used.requests.saturating_sub(1);
        state.used.tokens = state.used.tokens.saturating_sub(tokens);
        self.share.tokens.store(0, Ordering::Relaxed);
    }
}

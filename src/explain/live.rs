//! What holds at one moment in a running process: which keys cool, what is in flight, who is remembered.
//!
//! Not here: the counters themselves, which the snapshot shares with the operations. Everything is read once and nothing is taken, so asking
//! changes nothing. Invariant: what is passed over here is what an operation that begins at this moment passes over.

use std::sync::Arc;
use std::time::Duration;

use super::places::Candidate;
use crate::core::limits::{WAITERS_PER_ROUTE_MAX, WAITING_BYTES_PER_ROUTE_MAX};
use crate::core::time::MonoTime;
use crate::policy::cooldown::AsideReason;
use crate::policy::ordering::{self, InFull, Why};
use crate::policy::route::{Route, Target, TargetKey};
use crate::policy::scheduling::SchedulingMode;

/// The moment for which a running process is asked. What it knows is in its snapshot.
#[derive(Debug, Clone, Copy)]
pub struct Live {
    /// Now.
    pub now: MonoTime,
}

/// What holds for the route at the moment.
#[derive(Debug, Clone)]
pub struct RouteState {
    /// The snapshot in force.
    pub generation: u64,
    /// Operations that wait, and how many may.
    pub waiting: (u64, u64),
    /// Bytes that they hold, and how many they may.
    pub waiting_bytes: (u64, u64),
    /// What is remembered of the client.
    pub memory: Memory,
    /// Where the first round goes on the first key that is free, in order, as long as nothing changes.
    pub next: Vec<NextTry>,
}

/// A target and the key on which it would be tried first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NextTry {
    /// The target's name.
    pub target: Arc<str>,
    /// The key's name, if it has one.
    pub key: Option<Arc<str>>,
}

/// What is remembered of the client for this model and format.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Memory {
    /// Nothing ever: the mode is not `cache_affinity`.
    Off,
    /// Nothing: the client shows no credential.
    NoClient,
    /// Nothing at this moment.
    Nothing,
    /// The candidate of its last good answer.
    Remembered {
        /// The candidate; `None` when the route has it no more.
        from: Option<NextTry>,
        /// Whether it goes first. One that cools or may not serve the request does not.
        followed: bool,
    },
}

impl Memory {
    /// The value in JSON.
    pub const fn label(&self) -> &'static str {
        match self {
            Memory::Off => "off",
            Memory::NoClient => "no_client",
            Memory::Nothing => "nothing",
            Memory::Remembered { .. } => "remembered",
        }
    }
}

/// What holds for a candidate at the moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TargetState {
    /// Why it is passed over without a send, if so: the state of its keys.
    pub passed_over: Option<&'static str>,
    /// Until a key of it is free.
    pub free_in: Duration,
    /// Its sends in flight, where some route balances by them.
    pub in_flight: Option<u64>,
    /// Its keys, in order.
    pub keys: Vec<KeyState>,
}

/// What holds for a key of a candidate at the moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyState {
    /// Its name, if it has one.
    pub key: Option<Arc<str>>,
    /// `open`, `cooling` (for this model), `refused` or `used_up` (set aside for every model).
    pub state: &'static str,
    /// For how long.
    pub left: Duration,
}

impl KeyState {
    fn new(key: &TargetKey, now: MonoTime) -> KeyState {
        let cooling = key.cooldown.remaining_after(now).map(|at| ("cooling", at));
        let aside = key.aside.remaining_after(now).map(|(reason, at)| {
            let state = match reason {
                AsideReason::Refused => "refused",
                AsideReason::Quota => "used_up",
            };
            (state, at)
        });
        // What holds for every model is said first; it ends when both have ended.
        let state = aside.or(cooling).map_or(OPEN, |(state, _)| state);
        let ends = [aside, cooling].into_iter().flatten().map(|(_, at)| at);
        KeyState {
            key: key.name.clone(),
            state,
            left: ends.max().unwrap_or(now).since(now),
        }
    }

    fn is_open(&self) -> bool {
        self.state == OPEN
    }
}

const OPEN: &str = "open";
const COOLING: &str = "cooling";

/// What holds for a candidate of the route.
pub(super) fn target_state(target: &Target, keys: &[usize], now: MonoTime) -> TargetState {
    let keys = keys.iter().filter_map(|key| target.keys.get(*key));
    let keys: Vec<KeyState> = keys.map(|key| KeyState::new(key, now)).collect();
    let is_free = keys.iter().any(KeyState::is_open);
    // One key that only cools is enough to wait for.
    let cools = keys.iter().any(|key| key.state == COOLING);
    let passed_over = match (is_free, cools) {
        (true, _) => None,
        (false, true) => Some(COOLING),
        (false, false) => keys.first().map(|key| key.state),
    };
    TargetState {
        passed_over,
        free_in: keys.iter().map(|key| key.left).min().unwrap_or_default(),
        in_flight: target.load.as_ref().map(|load| load.sends()),
        keys,
    }
}

/// What holds for the route.
pub(super) fn route_state(
    generation: u64,
    route: &Route,
    found: &InFull<'_>,
    candidates: &[Candidate],
    reach: usize,
    live: Live,
) -> RouteState {
    let waiters = &route.waiters;
    RouteState {
        generation,
        waiting: (waiters.waiting(), u64::from(WAITERS_PER_ROUTE_MAX)),
        waiting_bytes: (waiters.waiting_bytes(), WAITING_BYTES_PER_ROUTE_MAX),
        memory: memory(route, found, live.now),
        next: next(route, candidates, reach),
    }
}

/// The candidates that are not passed over, as far as attempts go.
fn next(route: &Route, candidates: &[Candidate], reach: usize) -> Vec<NextTry> {
    let attempts = usize::try_from(route.routing.attempts_max).unwrap_or(usize::MAX);
    let free = candidates.iter().take(reach).filter_map(|candidate| {
        let state = candidate.now.as_ref()?;
        let key = state.keys.iter().find(|key| key.is_open())?;
        let target = Arc::clone(&candidate.target);
        let key = key.key.clone();
        state
            .passed_over
            .is_none()
            .then_some(NextTry { target, key })
    });
    free.take(attempts).collect()
}

fn memory(route: &Route, found: &InFull<'_>, now: MonoTime) -> Memory {
    if found.scheduling.scheduling_mode != SchedulingMode::CacheAffinity {
        return Memory::Off;
    }
    let Some(pin) = &found.ordered.pin else {
        return Memory::NoClient;
    };
    let Some(last) = pin.recall(now) else {
        return Memory::Nothing;
    };
    let target = route.targets.iter().find(|target| target.id == last.target);
    let from = target.and_then(|target| {
        let key = target.keys.iter().find(|key| key.id == last.key)?;
        let (target, key) = (Arc::clone(&target.name), key.name.clone());
        Some(NextTry { target, key })
    });
    let first: Option<&ordering::Candidate> = found.ordered.candidates.first();
    Memory::Remembered {
        from,
        followed: first.is_some_and(|first| first.place.why == Why::Affinity),
    }
}

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
use crate::policy::limits::{Exhausted, TargetLimits};
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
    /// The route's extra sends.
    pub retry_budget: BudgetState,
    /// Where the first round goes on the first key that is free, in order, as long as nothing changes.
    pub next: Vec<NextTry>,
    /// The target whose own limits end the operation after those, since the route does not skip such.
    pub limited_at: Option<Arc<str>>,
}

/// What is left of the route's extra sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BudgetState {
    /// Extra sends that would be given at this moment.
    pub left: u64,
    /// Extra sends of the window that ends now.
    pub charged: u64,
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
    /// Why it is passed over without a send, if so: the state of its keys, `unhealthy`, or `limited`.
    pub passed_over: Option<&'static str>,
    /// Until a key of it is free and its own limits have room, as far as that is known.
    pub free_in: Duration,
    /// Whether its provider answers its health checks, if it has any.
    pub healthy: Option<bool>,
    /// What its own limits have left, if it has any.
    pub limits: Option<LimitsState>,
    /// Its sends in flight, where some route balances by them.
    pub in_flight: Option<u64>,
    /// Its keys, in order.
    pub keys: Vec<KeyState>,
}

/// What the limits of a target have left; what is not limited is absent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LimitsState {
    /// Requests of this minute.
    pub requests_left: Option<u64>,
    /// Tokens of this minute.
    pub tokens_left: Option<u64>,
    /// Attempts at once.
    pub concurrent_left: Option<u64>,
    /// Whether such a request would be refused.
    pub is_exhausted: bool,
    /// Until it would not be, if that is known.
    pub room_in: Option<Duration>,
}

/// Whether somebody tries a key again whose rest is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProbeState {
    /// Its next attempt does, and keeps the others away.
    Due,
    /// One attempt does: others come here when nobody else is left.
    UnderWay,
}

impl ProbeState {
    /// The value in JSON.
    pub const fn label(self) -> &'static str {
        match self {
            ProbeState::Due => "due",
            ProbeState::UnderWay => "under_way",
        }
    }
}

/// What holds for a key of a candidate at the moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyState {
    /// Its name, if it has one.
    pub key: Option<Arc<str>>,
    /// `open`, `cooling` (for this model), `failing` (for this model, without a proof), `refused` or `used_up` (set aside for every model).
    pub state: &'static str,
    /// For how long.
    pub left: Duration,
    /// Whether it is tried again after a rest.
    pub probe: Option<ProbeState>,
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
        let failing = key.cooldown.failing_after(now).map(|at| ("failing", at));
        // What holds for every model is said first; it ends when all have ended.
        let state = aside.or(cooling).or(failing);
        let ends = [aside, cooling, failing].into_iter().flatten();
        let probe = match (key.cooldown.is_half_open(now), key.cooldown.is_probed(now)) {
            (true, true) => Some(ProbeState::UnderWay),
            (true, false) => Some(ProbeState::Due),
            (false, _) => None,
        };
        KeyState {
            key: key.name.clone(),
            state: state.map_or(OPEN, |(state, _)| state),
            left: ends.map(|(_, at)| at).max().unwrap_or(now).since(now),
            probe,
        }
    }

    fn is_open(&self) -> bool {
        self.state == OPEN
    }
}

const OPEN: &str = "open";
const COOLING: &str = "cooling";
const LIMITED: &str = "limited";

impl LimitsState {
    fn new(limits: &TargetLimits, tokens: u64, now: MonoTime) -> LimitsState {
        let (rules, used) = (limits.rules(), limits.usage(now));
        let left = |max: Option<u64>, used: u64| max.map(|max| max.saturating_sub(used));
        let exhausted = limits.exhausted(tokens, now);
        LimitsState {
            requests_left: left(rules.requests_per_minute, used.requests),
            tokens_left: left(rules.tokens_per_minute, used.tokens),
            concurrent_left: left(rules.concurrent, used.concurrent),
            is_exhausted: exhausted.is_some(),
            room_in: match exhausted {
                Some(Exhausted::Until(until)) => Some(until.since(now)),
                Some(Exhausted::Full) | None => None,
            },
        }
    }
}

/// Whether no candidate's provider answers its health checks: then nobody is passed over for it.
pub(super) fn all_unhealthy<'t>(mut targets: impl Iterator<Item = &'t Target>) -> bool {
    let healthy = |target: &Target| {
        target
            .health
            .as_ref()
            .is_none_or(|health| health.is_healthy())
    };
    !targets.any(healthy)
}

/// What holds for a candidate of the route. `ignore_health`: as [`all_unhealthy`] says.
pub(super) fn target_state(
    target: &Target,
    keys: &[usize],
    tokens: u64,
    ignore_health: bool,
    now: MonoTime,
) -> TargetState {
    let keys = keys.iter().filter_map(|key| target.keys.get(*key));
    let keys: Vec<KeyState> = keys.map(|key| KeyState::new(key, now)).collect();
    let healthy = target.health.as_ref().map(|health| health.is_healthy());
    let limits = target.limits.as_ref();
    let limits = limits.map(|limits| LimitsState::new(limits, tokens, now));
    let is_free = keys.iter().any(KeyState::is_open);
    // One key that only cools is enough to wait for.
    let cools = keys.iter().any(|key| key.state == COOLING);
    let exhausted = limits.is_some_and(|limits| limits.is_exhausted);
    let passed_over = match (is_free, cools) {
        (true, _) if healthy == Some(false) && !ignore_health => Some("unhealthy"),
        (true, _) if exhausted => Some(LIMITED),
        (true, _) => None,
        (false, true) => Some(COOLING),
        (false, false) => keys.first().map(|key| key.state),
    };
    let free_in = keys.iter().map(|key| key.left).min().unwrap_or_default();
    let room_in = limits.and_then(|limits| limits.room_in);
    TargetState {
        passed_over,
        free_in: room_in.unwrap_or_default().max(free_in),
        healthy,
        limits,
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
    let (next, limited_at) = next(route, candidates, reach);
    let budget = &route.retry_budget;
    RouteState {
        generation,
        waiting: (waiters.waiting(), u64::from(WAITERS_PER_ROUTE_MAX)),
        waiting_bytes: (waiters.waiting_bytes(), WAITING_BYTES_PER_ROUTE_MAX),
        memory: memory(route, found, live.now),
        retry_budget: BudgetState {
            left: budget.left(live.now),
            charged: budget.charged(live.now),
        },
        next,
        limited_at,
    }
}

/// The candidates that are not passed over, as far as attempts go, and the one at whose limits that ends. Those that another operation
/// tries again come after the others.
fn next(route: &Route, candidates: &[Candidate], reach: usize) -> (Vec<NextTry>, Option<Arc<str>>) {
    let attempts = usize::try_from(route.routing.attempts_max).unwrap_or(usize::MAX);
    let mut next = Vec::new();
    let mut taken = Vec::new();
    'turn: for pushes in [false, true] {
        let mut probed = false;
        for (place, candidate) in candidates.iter().take(reach).enumerate() {
            let Some(state) = candidate.now.as_ref().filter(|_| !taken.contains(&place)) else {
                continue;
            };
            let mut keys = state.keys.iter().filter(|key| key.is_open());
            let key = keys.find(|key| pushes || key.probe != Some(ProbeState::UnderWay));
            match (state.passed_over, key) {
                _ if next.len() >= attempts => return (next, None),
                (None, Some(key)) => {
                    taken.push(place);
                    let (target, key) = (Arc::clone(&candidate.target), key.key.clone());
                    next.push(NextTry { target, key });
                }
                (None | Some(LIMITED), None) => probed = true,
                (Some(LIMITED), Some(_)) if !route.routing.fallback.rate_limiting => {
                    if probed {
                        continue 'turn;
                    }
                    return (next, Some(Arc::clone(&candidate.target)));
                }
                (Some(_), _) => {}
            }
        }
    }
    (next, None)
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

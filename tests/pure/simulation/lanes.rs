//! The routes of one epoch: what their configuration says, and the counters that outlive it.

use std::sync::Arc;

use rand::Rng;
use rand::rngs::SmallRng;
use rand::seq::IndexedRandom;
use rondo::policy::admission::Waiters;
use rondo::policy::limits::{LimitRules, TargetLimits};
use rondo::policy::load::Load;
use rondo::policy::provider::RetryRules;
use rondo::policy::retry_budget::RetryBudget;
use rondo::policy::route::{Route, TargetKey};
use rondo::policy::routing::{Fallback, Mode};
use rondo::policy::scheduling::{HashOn, PriorityMode, Scheduling, SchedulingMode};

use crate::support::ms;
use crate::support::spec::{Spec, route};

/// A route as its newest snapshot has it, and the counters that outlive snapshots.
pub(super) struct Lane {
    pub spec: Spec,
    pub route: Arc<Route>,
    pub upstreams: Vec<usize>,
    pub waiters: Arc<Waiters>,
    pub retry_budget: Arc<RetryBudget>,
    pub accounts: Vec<Option<Arc<TargetLimits>>>,
    /// Sends in flight, by target.
    pub loads: Vec<Arc<Load>>,
    pub name: String,
}

impl Lane {
    pub fn new(rng: &mut SmallRng, all: &[Vec<TargetKey>], name: String) -> Lane {
        let count = rng.random_range(1..=4);
        let mut upstreams = Vec::new();
        while upstreams.len() < count {
            let candidate = rng.random_range(0..all.len());
            if !upstreams.contains(&candidate) {
                upstreams.push(candidate);
            }
        }
        let slots_max = *[2, 8, 64].choose(rng).unwrap();
        let bytes_max = *[6_000, 1_000_000].choose(rng).unwrap();
        let waiters = Arc::new(Waiters::new(slots_max, bytes_max));
        let spec = Spec {
            slots_max,
            bytes_max,
            limited: match rng.random_range(0..2) {
                0 => rng.random_range(1..16),
                _ => 0,
            },
            limits: LimitRules {
                requests_per_minute: *[None, Some(40), Some(400)].choose(rng).unwrap(),
                tokens_per_minute: *[None, Some(1_500), Some(200_000)].choose(rng).unwrap(),
                concurrent: *[None, Some(1), Some(4)].choose(rng).unwrap(),
            },
            budget: (
                *[5, 20].choose(rng).unwrap(),
                *[0, 1, 10].choose(rng).unwrap(),
            ),
            ..any_spec(rng, count)
        };
        let retry_budget = spec.retry_budget();
        let accounts = spec.accounts();
        let loads = upstreams.iter().map(|_| Arc::default()).collect();
        let route = spec.build_with(
            Vec::new(),
            Arc::clone(&waiters),
            Arc::clone(&retry_budget),
            &accounts,
        );
        let mut lane = Lane {
            spec,
            route,
            upstreams,
            waiters,
            retry_budget,
            accounts,
            loads,
            name,
        };
        lane.rebuild(rng, all);
        lane
    }

    /// Another snapshot: other rules, the same counters (R-C2). Operations in flight keep the route they began with.
    pub fn reload(&mut self, rng: &mut SmallRng, all: &[Vec<TargetKey>]) {
        let Spec {
            slots_max,
            bytes_max,
            budget,
            limited,
            limits,
            ..
        } = self.spec;
        self.spec = Spec {
            slots_max,
            bytes_max,
            budget,
            limited,
            limits,
            ..any_spec(rng, self.upstreams.len())
        };
        self.rebuild(rng, all);
    }

    pub fn rebuild(&mut self, rng: &mut SmallRng, all: &[Vec<TargetKey>]) {
        let pools = self.upstreams.iter().map(|index| all[*index].clone());
        let built = self.spec.build_with(
            pools.collect(),
            Arc::clone(&self.waiters),
            Arc::clone(&self.retry_budget),
            &self.accounts,
        );
        let mut route = Route::clone(&built);
        route.name = self.name.as_str().into();
        for (target, load) in route.targets.iter_mut().zip(&self.loads) {
            target.load = Some(Arc::clone(load));
            target.priority = rng.random_range(0..2);
            target.weight = rng.random_range(1..=3);
        }
        self.route = Arc::new(route);
    }
}

fn any_spec(rng: &mut SmallRng, targets: usize) -> Spec {
    let attempts_max = u32::try_from(rng.random_range(1..=targets)).unwrap();
    Spec {
        mode: if rng.random_range(0..10) == 0 {
            Mode::PrimaryOnly
        } else {
            Mode::PriorityFailover
        },
        attempts_max,
        sends_max: rng.random_range(1..=2 * attempts_max + 4),
        rounds_max: if rng.random_range(0..4) == 0 { 1 } else { 2 },
        wait_max: *[300, 2_000, 10_000].choose(rng).unwrap(),
        fallback: Fallback {
            http_429: rng.random_range(0..4) > 0,
            http_5xx: rng.random_range(0..2) == 0,
            transport_error: rng.random_range(0..3) == 0,
            rate_limiting: rng.random_range(0..3) > 0,
            statuses: if rng.random_range(0..4) == 0 {
                vec![401, 402, 404]
            } else {
                Vec::new()
            },
        },
        tries_max: (rng.random_range(0..4) == 0).then(|| rng.random_range(1..=4)),
        fail_within: (rng.random_range(0..4) == 0).then(|| rng.random_range(100..3_000)),
        failover_within: (rng.random_range(0..4) == 0).then(|| rng.random_range(50..3_000)),
        sticky_tries: rng.random_range(1..=3),
        cooldown_max: *[0, 1_000, 60_000].choose(rng).unwrap(),
        quota_aside: *[0, 5_000, 600_000].choose(rng).unwrap(),
        failures: *[None, Some((2, 2_000, 700)), Some((3, 10_000, 5_000))]
            .choose(rng)
            .unwrap(),
        tokens: rng.random_range(1..=2_000),
        deadline: *[1_000, 8_000, 60_000].choose(rng).unwrap(),
        caller_owns_retries: rng.random_range(0..2) == 0,
        // Most providers leave retries to the caller.
        internal: match rng.random_range(0..3) {
            0 => rng.random_range(1..16),
            _ => 0,
        },
        retry: Some(RetryRules {
            attempts_max: rng.random_range(1..=5),
            elapsed_max: ms(*[400, 3_000, 20_000].choose(rng).unwrap()),
            delay_base: ms(*[1, 50, 250].choose(rng).unwrap()),
            delay_max: ms(*[250, 2_000].choose(rng).unwrap()),
        }),
        scheduling: Scheduling {
            priority_mode: *[PriorityMode::Provider, PriorityMode::GlobalKey]
                .choose(rng)
                .unwrap(),
            scheduling_mode: *[
                SchedulingMode::FixedOrder,
                SchedulingMode::CacheAffinity,
                SchedulingMode::LoadBalance,
            ]
            .choose(rng)
            .unwrap(),
            keep_priority_on_conversion: false,
            hash_on: (rng.random_range(0..4) == 0).then_some(HashOn::ClientKey),
        },
        ..route(targets)
    }
}

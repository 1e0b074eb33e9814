//! A route and a plan in the terms of a test. Durations are milliseconds.

use std::sync::Arc;

use rondo::core::limits::{WAITERS_PER_ROUTE_MAX, WAITING_BYTES_PER_ROUTE_MAX};
use rondo::core::time::MonoTime;
use rondo::executor::plan::Plan;
use rondo::policy::admission::Waiters;
use rondo::policy::health::{Health, HealthRules};
use rondo::policy::limits::{LimitRules, TargetLimits};
use rondo::policy::ordering::{Candidate, Candidates, Place};
use rondo::policy::provider::{Ownership, RetryRules};
use rondo::policy::retry_budget::RetryBudget;
use rondo::policy::route::{Route, Target, TargetKey};
use rondo::policy::routing::{Exhaustion, FailureRules, Fallback, Mode, OnDisconnect, Routing};
use rondo::policy::scheduling::{RoutePolicy, Scheduling};

use super::ms;

/// What a test says about a route and an operation on it.
#[derive(Debug, Clone)]
pub struct Spec {
    pub targets: usize,
    pub mode: Mode,
    pub attempts_max: u32,
    pub sends_max: u32,
    pub rounds_max: u8,
    pub wait_max: u64,
    pub fallback: Fallback,
    pub tries_max: Option<u32>,
    pub fail_within: Option<u64>,
    pub failover_within: Option<u64>,
    pub sticky_tries: u32,
    /// Percent and floor a second of the route's retry budget.
    pub budget: (u64, u64),
    pub cooldown_max: u64,
    pub quota_aside: u64,
    /// Failures in a row, within so long, set aside for so long.
    pub failures: Option<(u64, u64, u64)>,
    /// Bit set of the targets with local limits.
    pub limited: u64,
    /// Their limits.
    pub limits: LimitRules,
    /// Bit set of the targets whose provider does not answer its checks.
    pub unhealthy: u64,
    /// Bit set of the targets whose minute is used up before the operation begins.
    pub exhausted: u64,
    /// What the request is estimated to cost.
    pub tokens: u64,
    pub deadline: u64,
    pub bound: bool,
    pub caller_retry: bool,
    pub caller_owns_retries: bool,
    pub held_bytes: u64,
    pub slots_max: u16,
    pub bytes_max: u64,
    /// Named keys of each target; 0 is a provider without authentication.
    pub keys: usize,
    /// Bit set of the targets whose retries the gateway owns.
    pub internal: u64,
    /// Their rules.
    pub retry: Option<RetryRules>,
    /// Whether all targets are models of one provider, at one address.
    pub one_provider: bool,
    /// Places in order: a target and keys of it. Every target with its whole pool when absent.
    pub places: Option<Vec<(usize, Vec<usize>)>>,
    /// How the candidates of a simulated operation are ordered.
    pub scheduling: Scheduling,
}

/// One ordered pass over `targets`.
pub fn route(targets: usize) -> Spec {
    Spec {
        targets,
        mode: Mode::PriorityFailover,
        attempts_max: u32::try_from(targets).unwrap().max(1),
        sends_max: 6,
        rounds_max: 1,
        wait_max: 2000,
        fallback: Fallback {
            http_429: true,
            ..Fallback::default()
        },
        tries_max: None,
        fail_within: None,
        failover_within: None,
        sticky_tries: 1,
        budget: (20, 10),
        cooldown_max: 60_000,
        quota_aside: 600_000,
        failures: None,
        limited: 0,
        limits: LimitRules::default(),
        unhealthy: 0,
        exhausted: 0,
        tokens: 10,
        deadline: 120_000,
        bound: false,
        caller_retry: false,
        caller_owns_retries: true,
        held_bytes: 1000,
        slots_max: WAITERS_PER_ROUTE_MAX,
        bytes_max: WAITING_BYTES_PER_ROUTE_MAX,
        keys: 0,
        internal: 0,
        retry: None,
        one_provider: false,
        places: None,
        scheduling: Scheduling::default(),
    }
}

/// The same with the exhaustion round on.
pub fn two_rounds(targets: usize) -> Spec {
    Spec {
        rounds_max: 2,
        ..route(targets)
    }
}

impl Spec {
    pub fn http_5xx(mut self) -> Spec {
        self.fallback.http_5xx = true;
        self
    }

    pub fn transport_error(mut self) -> Spec {
        self.fallback.transport_error = true;
        self
    }

    pub fn statuses(mut self, statuses: &[u16]) -> Spec {
        self.fallback.statuses = statuses.to_vec();
        self
    }

    pub fn routing(&self) -> Routing {
        Routing {
            mode: self.mode,
            attempts_max: self.attempts_max,
            sends_max: self.sends_max,
            exhaustion: (self.rounds_max > 1).then_some(Exhaustion {
                rounds_max: self.rounds_max,
                wait_max: ms(self.wait_max),
            }),
            fallback: self.fallback.clone(),
            tries_max: self.tries_max,
            fail_within: self.fail_within.map(ms),
            failover_within: self.failover_within.map(ms),
            sticky_tries: self.sticky_tries,
            on_client_disconnect: OnDisconnect::Abort,
            cooldown_max: ms(self.cooldown_max),
            quota_aside: ms(self.quota_aside),
            failures: self.failures.map(|(count, within, cooldown)| FailureRules {
                count,
                within: ms(within),
                cooldown: ms(cooldown),
            }),
        }
    }

    /// Every target with a pool of so many keys.
    pub fn keys(mut self, keys: usize) -> Spec {
        self.keys = keys;
        self
    }

    /// Every target at an internal provider: tries in all, longest time, base and longest delay in milliseconds.
    pub fn internal(mut self, attempts: u32, elapsed: u64, base: u64, most: u64) -> Spec {
        self.internal = u64::MAX;
        self.retry = Some(RetryRules {
            attempts_max: attempts,
            elapsed_max: ms(elapsed),
            delay_base: ms(base),
            delay_max: ms(most),
        });
        self
    }

    fn is_internal(&self, target: usize) -> bool {
        self.internal & (1 << target) != 0
    }

    /// A pool of which nothing is known.
    pub fn pool(keys: usize) -> Vec<TargetKey> {
        let named = |key: usize| TargetKey::fresh(Some(format!("k{}", key + 1).into()));
        match keys {
            0 => vec![TargetKey::fresh(None)],
            keys => (0..keys).map(named).collect(),
        }
    }

    pub fn build(&self) -> Arc<Route> {
        let first = Spec::pool(self.keys);
        let pools = (0..self.targets).map(|target| {
            let mut pool = Spec::pool(self.keys);
            if self.one_provider && target > 0 {
                // A key that is set aside is so for every model.
                for (key, of_first) in pool.iter_mut().zip(&first) {
                    key.aside = Arc::clone(&of_first.aside);
                }
            }
            pool
        });
        let mut pools: Vec<Vec<TargetKey>> = pools.collect();
        if let Some(pool) = pools.first_mut() {
            *pool = first;
        }
        let waiters = Arc::new(Waiters::new(self.slots_max, self.bytes_max));
        self.build_with(pools, waiters, self.retry_budget(), &self.accounts())
    }

    pub fn retry_budget(&self) -> Arc<RetryBudget> {
        let (percent, floor) = self.budget;
        Arc::new(RetryBudget::new(percent, floor))
    }

    /// Accounts of local limits of which nothing is used.
    pub fn accounts(&self) -> Vec<Option<Arc<TargetLimits>>> {
        let account = |target: usize| {
            let limited = self.limited & (1 << target) != 0;
            limited.then(|| Arc::new(TargetLimits::new(self.limits)))
        };
        (0..self.targets).map(account).collect()
    }

    /// Every target with such limits, which the route skips when they are used up.
    pub fn limits(
        mut self,
        requests: Option<u64>,
        tokens: Option<u64>,
        at_once: Option<u64>,
    ) -> Spec {
        self.limited = u64::MAX;
        self.limits = LimitRules {
            requests_per_minute: requests,
            tokens_per_minute: tokens,
            concurrent: at_once,
        };
        self.fallback.rate_limiting = true;
        self
    }

    /// The route over counters that outlive it, as a reload keeps them.
    pub fn build_with(
        &self,
        pools: Vec<Vec<TargetKey>>,
        waiters: Arc<Waiters>,
        retry_budget: Arc<RetryBudget>,
        limits: &[Option<Arc<TargetLimits>>],
    ) -> Arc<Route> {
        let target = |(index, keys): (usize, Vec<TargetKey>)| Target {
            name: format!("T{}", index + 1).into(),
            provider: if self.one_provider { 0 } else { index },
            model: None,
            keys,
            ownership: if self.is_internal(index) {
                Ownership::Internal
            } else {
                Ownership::External
            },
            retry: self.retry.filter(|_| self.is_internal(index)),
            limits: limits[index].clone(),
            health: (self.unhealthy & (1 << index) != 0).then(unhealthy),
            priority: 0,
            weight: 1,
            id: index as u64,
            endpoint: if self.one_provider { 0 } else { index },
            load: None,
        };
        Arc::new(Route {
            name: "route".into(),
            models: Vec::new(),
            targets: pools.into_iter().enumerate().map(target).collect(),
            routing: self.routing(),
            deadline: ms(self.deadline),
            waiters,
            retry_budget,
            policy: RoutePolicy {
                scheduling: self.scheduling.clone(),
                ..RoutePolicy::default()
            },
            prepared: Vec::new(),
        })
    }

    fn candidates(&self, route: &Route) -> Candidates {
        let Some(places) = &self.places else {
            return Candidate::each(route);
        };
        let place = Place::CONFIGURED;
        let candidates = places.iter().map(|(target, keys)| Candidate {
            target: *target,
            keys: keys.clone().into(),
            place,
        });
        candidates.collect()
    }

    pub fn plan(&self, route: &Arc<Route>, began: MonoTime) -> Plan {
        Plan {
            route: Arc::clone(route),
            candidates: self.candidates(route),
            sticky_tries: self.sticky_tries,
            pin: None,
            binding: self.bound.then_some("previous_response_id"),
            caller_retry: self.caller_retry,
            caller_owns_retries: self.caller_owns_retries
                && !(0..route.targets.len()).any(|target| self.is_internal(target)),
            began,
            deadline: began.after(ms(self.deadline)),
            tokens: self.tokens,
            held_bytes: self.held_bytes,
        }
    }
}

/// Rules of checks; three bad results make unhealthy, two good ones healthy.
pub fn health_rules() -> HealthRules {
    HealthRules {
        path: "/health".into(),
        interval: ms(1000),
        timeout: ms(100),
        healthy: 2,
        unhealthy: 3,
        authenticated: false,
    }
}

fn unhealthy() -> Arc<Health> {
    let health = Health::new("provider".into(), health_rules());
    (0..3).for_each(|_| {
        health.record(false);
    });
    Arc::new(health)
}

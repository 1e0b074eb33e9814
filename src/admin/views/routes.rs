//! The live state of routes and targets: what is configured, what waits and cools now, what was counted since the start.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::core::time::MonoTime;
use crate::policy::cooldown::AsideReason;
use crate::policy::limits::TargetLimits;
use crate::policy::provider::Ownership;
use crate::policy::route::{ModelPattern, Route, Target, TargetKey};
use crate::policy::snapshot::Snapshot;
use crate::telemetry::{RouteCounters, TargetCounters};

#[derive(Serialize)]
pub(in crate::admin) struct RoutesView<'a> {
    generation: u64,
    routes: Vec<RouteView<'a>>,
}

impl<'a> RoutesView<'a> {
    pub(in crate::admin) fn new(
        snapshot: &'a Snapshot,
        now: MonoTime,
        counters: impl Fn(&str) -> RouteCounters,
    ) -> RoutesView<'a> {
        let routes = snapshot.routes.iter();
        RoutesView {
            generation: snapshot.generation,
            routes: routes
                .map(|route| RouteView::new(snapshot, route, now, counters(&route.name)))
                .collect(),
        }
    }
}

#[derive(Serialize)]
struct RouteView<'a> {
    name: &'a str,
    profile: &'a str,
    models: Vec<String>,
    mode: &'static str,
    budgets: Budgets,
    waiting: u64,
    waiting_bytes: u64,
    counters: Counters,
    targets: Vec<TargetView<'a>>,
}

#[derive(Serialize)]
struct Budgets {
    deadline_ms: u128,
    attempts_max: u32,
    sends_max: u32,
    rounds_max: u8,
    wait_max_ms: u128,
    sticky_tries: u32,
}

#[derive(Serialize)]
struct Counters {
    waits: u64,
    admissions: u64,
    successes: u64,
    exhaustions: u64,
    suppressions: BTreeMap<&'static str, u64>,
    ends: BTreeMap<&'static str, u64>,
}

#[derive(Serialize)]
struct TargetView<'a> {
    name: &'a str,
    provider: Option<&'a str>,
    model: Option<&'a str>,
    cooling_for_ms: u64,
    /// `null` when its provider has no health checks.
    healthy: Option<bool>,
    limits: Option<LimitsView>,
    /// Sends in flight, where some route balances by them.
    in_flight: Option<u64>,
    ownership: &'static str,
    keys: Vec<KeyView<'a>>,
    sends: u64,
    skipped: u64,
    attempts: BTreeMap<&'static str, u64>,
}

/// What a target may use, and has used.
#[derive(Serialize)]
struct LimitsView {
    requests_per_minute: Option<u64>,
    tokens_per_minute: Option<u64>,
    concurrent: Option<u64>,
    requests: u64,
    tokens: u64,
    under_way: u64,
}

impl LimitsView {
    fn new(limits: &TargetLimits, now: MonoTime) -> LimitsView {
        let (rules, usage) = (limits.rules(), limits.usage(now));
        LimitsView {
            requests_per_minute: rules.requests_per_minute,
            tokens_per_minute: rules.tokens_per_minute,
            concurrent: rules.concurrent,
            requests: usage.requests,
            tokens: usage.tokens,
            under_way: usage.concurrent,
        }
    }
}

/// One key of a target's pool; its secret is nowhere near.
#[derive(Serialize)]
struct KeyView<'a> {
    name: Option<&'a str>,
    /// `open`, `cooling` (for this model), `failing` (for this model, without a proof), `refused` or `used_up` (set aside for every model).
    state: &'static str,
    for_ms: u64,
}

impl<'a> RouteView<'a> {
    fn new(
        snapshot: &'a Snapshot,
        route: &'a Route,
        now: MonoTime,
        counters: RouteCounters,
    ) -> RouteView<'a> {
        let mut counted = counters.targets.into_iter();
        let targets = route.targets.iter().map(|target| {
            let counters = counted.next().unwrap_or_default();
            TargetView::new(snapshot, target, now, counters)
        });
        RouteView {
            name: &route.name,
            profile: &route.policy.profile,
            models: route.models.iter().map(ModelPattern::text).collect(),
            mode: route.routing.mode.label(),
            budgets: Budgets::new(route),
            waiting: route.waiters.waiting(),
            waiting_bytes: route.waiters.waiting_bytes(),
            targets: targets.collect(),
            counters: Counters {
                waits: counters.waits,
                admissions: counters.admissions,
                successes: counters.successes,
                exhaustions: counters.exhaustions,
                suppressions: counters.suppressions.into_iter().collect(),
                ends: counters.ends.into_iter().collect(),
            },
        }
    }
}

impl Budgets {
    fn new(route: &Route) -> Budgets {
        let routing = &route.routing;
        let exhaustion = routing.exhaustion;
        Budgets {
            deadline_ms: route.deadline.as_millis(),
            attempts_max: routing.attempts_max,
            sends_max: routing.sends_allowed(),
            rounds_max: exhaustion.map_or(1, |exhaustion| exhaustion.rounds_max),
            wait_max_ms: exhaustion.map_or(0, |exhaustion| exhaustion.wait_max.as_millis()),
            sticky_tries: routing.sticky_tries,
        }
    }
}

impl<'a> TargetView<'a> {
    fn new(
        snapshot: &'a Snapshot,
        target: &'a Target,
        now: MonoTime,
        counters: TargetCounters,
    ) -> TargetView<'a> {
        let provider = snapshot.provider(target.provider);
        let keys = target.keys.iter().map(|key| KeyView::new(key, now));
        let keys: Vec<_> = keys.collect();
        TargetView {
            name: &target.name,
            provider: provider.map(|provider| &*provider.name),
            model: target.model.as_deref(),
            // The target cools as long as every key of its pool does.
            cooling_for_ms: keys.iter().map(|key| key.for_ms).min().unwrap_or_default(),
            healthy: target.health.as_ref().map(|health| health.is_healthy()),
            limits: target
                .limits
                .as_ref()
                .map(|limits| LimitsView::new(limits, now)),
            in_flight: target.load.as_ref().map(|load| load.sends()),
            ownership: match target.ownership {
                Ownership::External => "external",
                Ownership::Internal => "internal",
            },
            keys,
            sends: counters.sends,
            skipped: counters.skipped,
            attempts: counters.attempts.into_iter().collect(),
        }
    }
}

impl<'a> KeyView<'a> {
    fn new(key: &'a TargetKey, now: MonoTime) -> KeyView<'a> {
        let cooling = key.cooldown.remaining_after(now).map(|at| ("cooling", at));
        let failing = key.cooldown.failing_after(now).map(|at| ("failing", at));
        let aside = key.aside.remaining_after(now).map(|(reason, at)| {
            let state = match reason {
                AsideReason::Refused => "refused",
                AsideReason::Quota => "used_up",
            };
            (state, at)
        });
        // What holds for every model is said first; it ends when both have ended.
        let state = aside
            .or(cooling)
            .or(failing)
            .map_or("open", |(state, _)| state);
        let ends = [aside, cooling, failing]
            .into_iter()
            .flatten()
            .map(|(_, at)| at);
        let left = ends.max().unwrap_or(now).since(now);
        KeyView {
            name: key.name.as_deref(),
            state,
            for_ms: u64::try_from(left.as_micros().div_ceil(1000)).unwrap_or(u64::MAX),
        }
    }
}

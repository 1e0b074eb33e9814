//! The live state of routes and targets: what is configured, what waits and cools now, what was counted since the start.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::core::time::MonoTime;
use crate::policy::route::{ModelPattern, Route, Target};
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
    sends: u64,
    skipped: u64,
    attempts: BTreeMap<&'static str, u64>,
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
        // The target cools as long as every key of its pool does.
        let ends = target.keys.iter().map(|key| {
            let aside = key.aside.remaining_after(now).map(|(_, until)| until);
            key.cooldown.remaining_after(now).max(aside)
        });
        let cooling = ends.min().flatten();
        let left = cooling.map_or(0, |until| until.since(now).as_micros().div_ceil(1000));
        TargetView {
            name: &target.name,
            provider: provider.map(|provider| &*provider.name),
            model: target.model.as_deref(),
            cooling_for_ms: u64::try_from(left).unwrap_or(u64::MAX),
            sends: counters.sends,
            skipped: counters.skipped,
            attempts: counters.attempts.into_iter().collect(),
        }
    }
}

//! The series of one route of one snapshot, found by position.
//!
//! Route-level counters exist from the start, so that rates work; the others are made when they are first counted, so that what
//! never happens is not exported. Two snapshots with a route of the same name share the series, since the labels are the same.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, OnceLock, PoisonError, RwLock};
use std::time::Duration;

use prometheus::{Histogram, IntCounter};

use super::labels::{self, APIS, DECISIONS, DELIVERIES, ENDS, ROUNDS};
use super::metrics::Families;
use crate::core::api::Api;
use crate::core::decision::{Decision, Round, Stop};
use crate::core::settlement::OperationOutcome;
use crate::core::suppression::Suppression;
use crate::executor::effect::{AttemptSettled, SecondRoundEnd, WaitEnd};
use crate::policy::route::Route;

/// A request's series: how it ended and with which status.
type RequestKey = (usize, OperationOutcome, u16);
/// A failover's series: from, to, class of the failure.
type FailoverKey = (usize, usize, &'static str);

/// The series of one route, or of requests without one.
#[derive(Debug)]
pub(super) struct RouteSeries {
    families: Arc<Families>,
    name: Arc<str>,
    targets: Vec<TargetSeries>,
    requests: Cells<RequestKey>,
    failovers: Cells<FailoverKey>,
    stops: Cells<Stop>,
    timings: [OnceLock<Timings>; APIS],
    exhaustion: Option<ExhaustionSeries>,
    profile: Option<IntCounter>,
}

/// Counters of second rounds; requests without a route have none.
#[derive(Debug)]
struct ExhaustionSeries {
    waits: IntCounter,
    admissions: IntCounter,
    successes: IntCounter,
    exhaustions: IntCounter,
    wait_seconds: Histogram,
    ends: [IntCounter; ENDS.len()],
    suppressions: [IntCounter; Suppression::ALL.len()],
    retry_budget_exhausted: IntCounter,
}

#[derive(Debug)]
struct TargetSeries {
    name: Arc<str>,
    sends: [IntCounter; ROUNDS.len()],
    skipped: [IntCounter; ROUNDS.len()],
    attempts: [[[OnceLock<IntCounter>; DECISIONS.len()]; DELIVERIES.len()]; ROUNDS.len()],
    retries: Cells<u16>,
}

/// The three histograms of one API format.
#[derive(Debug)]
struct Timings {
    duration: Histogram,
    first_byte: Histogram,
    overhead: Histogram,
}

/// Counters by a small key, made when first asked for. The keys are closed sets or bounded numbers.
#[derive(Debug)]
struct Cells<K>(RwLock<HashMap<K, IntCounter>>);

impl<K: Eq + Hash> Cells<K> {
    fn new() -> Cells<K> {
        Cells(RwLock::new(HashMap::new()))
    }

    fn count(&self, key: K, make: impl FnOnce() -> IntCounter) {
        let known = self.0.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(counter) = known.get(&key) {
            return counter.inc();
        }
        drop(known);
        let mut known = self.0.write().unwrap_or_else(PoisonError::into_inner);
        known.entry(key).or_insert_with(make).inc();
    }
}

/// What was counted for a route, for the admin page.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RouteCounters {
    /// Waits begun.
    pub waits: u64,
    /// Slots taken.
    pub admissions: u64,
    /// Second rounds in which a target answered.
    pub successes: u64,
    /// Final exhaustions.
    pub exhaustions: u64,
    /// Suppressed second rounds that happened, by reason.
    pub suppressions: Vec<(&'static str, u64)>,
    /// How what was admitted ended, by end.
    pub ends: Vec<(&'static str, u64)>,
    /// By target, in configured order.
    pub targets: Vec<TargetCounters>,
}

/// What was counted for a target of a route.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TargetCounters {
    /// Sends, over both rounds.
    pub sends: u64,
    /// Times it was passed over while it cooled.
    pub skipped: u64,
    /// Settled attempts by delivery class, those that happened.
    pub attempts: Vec<(&'static str, u64)>,
}

impl RouteSeries {
    pub(super) fn new(families: &Arc<Families>, route: &Route) -> RouteSeries {
        let targets = route.targets.iter();
        RouteSeries {
            families: Arc::clone(families),
            name: Arc::clone(&route.name),
            targets: targets
                .map(|target| TargetSeries::new(families, &route.name, &target.name))
                .collect(),
            requests: Cells::new(),
            failovers: Cells::new(),
            stops: Cells::new(),
            timings: std::array::from_fn(|_| OnceLock::new()),
            exhaustion: Some(ExhaustionSeries::new(families, &route.name)),
            profile: Some(
                families
                    .profiles
                    .with_label_values(&[&*route.policy.profile]),
            ),
        }
    }

    /// The series of requests that found no route.
    pub(super) fn without_route(families: &Arc<Families>) -> RouteSeries {
        RouteSeries {
            families: Arc::clone(families),
            name: Arc::from(labels::NONE),
            targets: Vec::new(),
            requests: Cells::new(),
            failovers: Cells::new(),
            stops: Cells::new(),
            timings: std::array::from_fn(|_| OnceLock::new()),
            exhaustion: None,
            profile: None,
        }
    }

    /// An operation ended on a route of the profile.
    pub(super) fn of_profile(&self) {
        if let Some(counter) = &self.profile {
            counter.inc();
        }
    }

    pub(super) fn request_ended(&self, api: Option<Api>, outcome: OperationOutcome, status: u16) {
        let status = labels::status(status);
        self.requests
            .count((labels::api(api), outcome, status), || {
                let (api, status) = (labels::api_label(api), labels::status_label(status));
                let values = [&*self.name, api, outcome.label(), &status];
                self.families.requests.with_label_values(&values)
            });
    }

    pub(super) fn observe_duration(&self, api: Option<Api>, took: Duration) {
        if let Some(timings) = self.timings(api) {
            timings.duration.observe(took.as_secs_f64());
        }
    }

    pub(super) fn observe_first_byte(&self, api: Option<Api>, took: Duration, overhead: Duration) {
        if let Some(timings) = self.timings(api) {
            timings.first_byte.observe(took.as_secs_f64());
            timings.overhead.observe(overhead.as_secs_f64());
        }
    }

    fn timings(&self, api: Option<Api>) -> Option<&Timings> {
        let cell = self.timings.get(labels::api(api))?;
        Some(cell.get_or_init(|| {
            let values = [&*self.name, labels::api_label(api)];
            Timings {
                duration: self.families.duration.with_label_values(&values),
                first_byte: self.families.first_byte.with_label_values(&values),
                overhead: self.families.overhead.with_label_values(&values),
            }
        }))
    }

    pub(super) fn sent(&self, target: usize, round: Round) {
        let target = self.targets.get(target);
        if let Some(counter) = target.and_then(|t| t.sends.get(labels::round(round))) {
            counter.inc();
        }
    }

    pub(super) fn skipped(&self, target: usize, round: Round) {
        let target = self.targets.get(target);
        if let Some(counter) = target.and_then(|t| t.skipped.get(labels::round(round))) {
            counter.inc();
        }
    }

    pub(super) fn attempt_settled(&self, settled: &AttemptSettled) {
        let Some(target) = self.targets.get(settled.begin.target) else {
            return;
        };
        let round = labels::round(settled.begin.round);
        let (delivery, decision) = (
            labels::delivery(settled),
            labels::decision(settled.decision),
        );
        let cells = target.attempts.get(round).and_then(|r| r.get(delivery));
        if let Some(cell) = cells.and_then(|d| d.get(decision)) {
            cell.get_or_init(|| {
                let values = [
                    &*self.name,
                    &*target.name,
                    settled.begin.round.label(),
                    DELIVERIES.get(delivery).copied().unwrap_or(labels::NONE),
                    settled.decision.label(),
                ];
                self.families.attempts.with_label_values(&values)
            })
            .inc();
        }
        if matches!(settled.decision, Decision::SameTarget | Decision::Retry(_)) {
            let status = settled.report.as_ref().and_then(|report| report.status);
            let status = labels::status(status.unwrap_or_default());
            target.retries.count(status, || {
                let status = labels::status_label(status);
                let values = [&*self.name, &*target.name, &status];
                self.families.provider_retries.with_label_values(&values)
            });
        }
    }

    pub(super) fn failed_over(&self, from: usize, to: usize, reason: &'static str) {
        let name = |at: usize| self.targets.get(at).map_or(labels::NONE, |t| &*t.name);
        self.failovers.count((from, to, reason), || {
            let values = [&*self.name, name(from), name(to), reason];
            self.families.failovers.with_label_values(&values)
        });
    }

    pub(super) fn stopped(&self, stop: Stop) {
        self.stops.count(stop, || {
            let values = [&*self.name, stop.label()];
            self.families.stops.with_label_values(&values)
        });
    }

    pub(super) fn retry_budget_exhausted(&self) {
        if let Some(series) = &self.exhaustion {
            series.retry_budget_exhausted.inc();
        }
    }

    /// Waits and admissions are one fact here: the slot is taken in the step that begins the wait.
    pub(super) fn wait_begun(&self) {
        if let Some(series) = &self.exhaustion {
            series.waits.inc();
            series.admissions.inc();
        }
    }

    pub(super) fn wait_ended(&self, how: WaitEnd, waited: Duration) {
        let Some(series) = &self.exhaustion else {
            return;
        };
        series.wait_seconds.observe(waited.as_secs_f64());
        if let Some(end) = labels::wait_end(how).and_then(|end| series.ends.get(end)) {
            end.inc();
        }
    }

    pub(super) fn second_round_ended(&self, end: SecondRoundEnd) {
        let Some(series) = &self.exhaustion else {
            return;
        };
        if end == SecondRoundEnd::Success {
            series.successes.inc();
        }
        if let Some(end) = series.ends.get(labels::second_round_end(end)) {
            end.inc();
        }
    }

    pub(super) fn suppressed(&self, reason: Suppression) {
        let counters = self.exhaustion.as_ref().map(|series| &series.suppressions);
        if let Some(counter) = counters.and_then(|c| c.get(reason as usize)) {
            counter.inc();
        }
    }

    pub(super) fn exhausted(&self) {
        if let Some(series) = &self.exhaustion {
            series.exhaustions.inc();
        }
    }

    /// What was counted so far.
    pub(super) fn read(&self) -> RouteCounters {
        let targets = self.targets.iter().map(TargetSeries::read).collect();
        let Some(series) = &self.exhaustion else {
            return RouteCounters::default();
        };
        let reasons = Suppression::ALL.iter().map(|reason| reason.label());
        RouteCounters {
            waits: series.waits.get(),
            admissions: series.admissions.get(),
            successes: series.successes.get(),
            exhaustions: series.exhaustions.get(),
            suppressions: happened(reasons, &series.suppressions),
            ends: happened(ENDS.into_iter(), &series.ends),
            targets,
        }
    }
}

impl ExhaustionSeries {
    fn new(families: &Families, route: &str) -> ExhaustionSeries {
        let one = [route];
        ExhaustionSeries {
            waits: families.waits.with_label_values(&one),
            admissions: families.admissions.with_label_values(&one),
            successes: families.successes.with_label_values(&one),
            exhaustions: families.exhaustions.with_label_values(&one),
            wait_seconds: families.wait_seconds.with_label_values(&one),
            ends: ENDS.map(|end| families.ends.with_label_values(&[route, end])),
            suppressions: Suppression::ALL.map(|reason| {
                let values = [route, reason.label()];
                families.suppressions.with_label_values(&values)
            }),
            retry_budget_exhausted: families.retry_budget_exhausted.with_label_values(&one),
        }
    }
}

impl TargetSeries {
    fn new(families: &Families, route: &str, target: &Arc<str>) -> TargetSeries {
        let by_round = |round: &str| [route, &**target, round].map(str::to_owned);
        TargetSeries {
            name: Arc::clone(target),
            sends: ROUNDS.map(|round| families.sends.with_label_values(&by_round(round))),
            skipped: ROUNDS.map(|round| families.skipped.with_label_values(&by_round(round))),
            attempts: Default::default(),
            retries: Cells::new(),
        }
    }

    fn read(&self) -> TargetCounters {
        let mut attempts = Vec::new();
        for (position, label) in DELIVERIES.into_iter().enumerate() {
            let rounds = self.attempts.iter().filter_map(|r| r.get(position));
            let sum: u64 = rounds
                .flatten()
                .filter_map(OnceLock::get)
                .map(|c| c.get())
                .sum();
            if sum > 0 {
                attempts.push((label, sum));
            }
        }
        TargetCounters {
            sends: self.sends.iter().map(IntCounter::get).sum(),
            skipped: self.skipped.iter().map(IntCounter::get).sum(),
            attempts,
        }
    }
}

fn happened(
    names: impl Iterator<Item = &'static str>,
    counters: &[IntCounter],
) -> Vec<(&'static str, u64)> {
    names
        .zip(counters.iter().map(IntCounter::get))
        .filter(|(_, count)| *count > 0)
        .collect()
}

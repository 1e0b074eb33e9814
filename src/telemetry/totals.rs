//! What was counted for every route and target since the process began, by their names.
//!
//! Not here: which fact counts where ([`super::series`]), how it is shown ([`super::scrape`]). Invariants: totals of routes that a reload
//! removed stay, since counters never go backwards and operations in flight still count; two snapshots with a route of the same name count
//! on the same totals.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, PoisonError, RwLock};

use super::labels::{self, APIS, DECISIONS, DELIVERIES, ENDS, ROUNDS};
use super::tally::{Count, Histogram, Kinds};
use crate::core::api::Api;
use crate::core::decision::Stop;
use crate::core::settlement::OperationOutcome;
use crate::core::suppression::Suppression;

/// Whole requests and waits, in seconds: an embedding takes milliseconds, a long generation ten minutes.
static DURATION_BUCKETS: [f64; 16] = [
    0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0,
];
/// Time to the first byte, in seconds: a cached prompt to a long one on a loaded provider.
static FIRST_BYTE_BUCKETS: [f64; 13] = [
    0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0,
];
/// Time spent in the gateway, in seconds: tens of microseconds when all is well, a second when it is not.
static OVERHEAD_BUCKETS: [f64; 14] = [
    0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0,
];

/// A request's kind: how it ended and with which status.
pub(super) type RequestKind = (usize, OperationOutcome, u16);
/// A failover's kind: from, to (numbers of targets, `None` for one that the route does not have), class of the failure.
pub(super) type FailoverKind = (Option<usize>, Option<usize>, &'static str);

/// What is counted for one route, or for requests without one.
#[derive(Debug)]
pub(super) struct RouteTotals {
    pub name: Arc<str>,
    pub requests: Kinds<RequestKind>,
    timings: [OnceLock<Box<Timings>>; APIS],
    pub failovers: Kinds<FailoverKind>,
    pub stops: Kinds<Stop>,
    pub exhaustion: Exhaustion,
    /// By number. Few, and never removed.
    targets: RwLock<Vec<Arc<TargetTotals>>>,
    /// Whether the configuration ever had it. What has no route has no second rounds either.
    is_route: AtomicBool,
}

/// The three histograms of one API format.
#[derive(Debug)]
pub(super) struct Timings {
    pub duration: Histogram<16>,
    pub first_byte: Histogram<13>,
    pub overhead: Histogram<14>,
}

/// What is counted around second rounds.
#[derive(Debug)]
pub(super) struct Exhaustion {
    pub waits: Count,
    pub admissions: Count,
    pub successes: Count,
    pub exhaustions: Count,
    pub wait_seconds: Histogram<16>,
    pub ends: [Count; ENDS.len()],
    pub suppressions: [Count; Suppression::ALL.len()],
    pub retry_budget_exhausted: Count,
}

/// What is counted for one target of a route.
#[derive(Debug)]
pub(super) struct TargetTotals {
    pub name: Arc<str>,
    /// Its place among the route's targets, in the order in which they were first configured.
    pub number: usize,
    pub sends: [Count; ROUNDS.len()],
    pub skipped: [Count; ROUNDS.len()],
    pub attempts: [[[Count; DECISIONS.len()]; DELIVERIES.len()]; ROUNDS.len()],
    pub retries: Kinds<u16>,
}

impl RouteTotals {
    fn new(name: &Arc<str>) -> RouteTotals {
        RouteTotals {
            name: Arc::clone(name),
            requests: Kinds::default(),
            timings: std::array::from_fn(|_| OnceLock::new()),
            failovers: Kinds::default(),
            stops: Kinds::default(),
            exhaustion: Exhaustion {
                waits: Count::default(),
                admissions: Count::default(),
                successes: Count::default(),
                exhaustions: Count::default(),
                wait_seconds: Histogram::new(&DURATION_BUCKETS),
                ends: std::array::from_fn(|_| Count::default()),
                suppressions: std::array::from_fn(|_| Count::default()),
                retry_budget_exhausted: Count::default(),
            },
            targets: RwLock::default(),
            is_route: AtomicBool::new(false),
        }
    }

    /// The histograms of this format.
    pub(super) fn timings(&self, api: Option<Api>) -> Option<&Timings> {
        let cell = self.timings.get(labels::api(api))?;
        let made = cell.get_or_init(|| {
            Box::new(Timings {
                duration: Histogram::new(&DURATION_BUCKETS),
                first_byte: Histogram::new(&FIRST_BYTE_BUCKETS),
                overhead: Histogram::new(&OVERHEAD_BUCKETS),
            })
        });
        Some(made)
    }

    /// The target of this name.
    pub(super) fn target(&self, name: &Arc<str>) -> Arc<TargetTotals> {
        let mut targets = self.targets.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = targets.iter().find(|target| target.name == *name) {
            return Arc::clone(known);
        }
        let made = Arc::new(TargetTotals {
            name: Arc::clone(name),
            number: targets.len(),
            sends: Default::default(),
            skipped: Default::default(),
            attempts: Default::default(),
            retries: Kinds::default(),
        });
        targets.push(Arc::clone(&made));
        made
    }

    /// The format's label with its histograms, of formats that were asked for.
    pub(super) fn timed(&self) -> impl Iterator<Item = (&'static str, &Timings)> {
        let apis = Api::ALL.into_iter().map(Some).chain([None]);
        apis.filter_map(|api| {
            let timings = self.timings.get(labels::api(api))?.get()?;
            Some((labels::api_label(api), &**timings))
        })
    }

    /// Whether second rounds are counted: for routes, from the start.
    pub(super) fn is_route(&self) -> bool {
        self.is_route.load(Ordering::Relaxed)
    }

    /// Every target that it ever had, by number.
    pub(super) fn targets(&self) -> Vec<Arc<TargetTotals>> {
        let targets = self.targets.read();
        targets.unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Everything that was counted by route or profile.
#[derive(Debug, Default)]
pub(super) struct Totals {
    routes: RwLock<BTreeMap<Arc<str>, Arc<RouteTotals>>>,
    profiles: RwLock<BTreeMap<Arc<str>, Arc<Count>>>,
}

impl Totals {
    /// The totals of the route of this name.
    pub(super) fn route(&self, name: &Arc<str>) -> Arc<RouteTotals> {
        let totals = self.without_route(name);
        totals.is_route.store(true, Ordering::Relaxed);
        totals
    }

    /// The totals of what is no route, under this name.
    pub(super) fn without_route(&self, name: &Arc<str>) -> Arc<RouteTotals> {
        let mut routes = self.routes.write().unwrap_or_else(PoisonError::into_inner);
        let known = routes.entry(Arc::clone(name));
        Arc::clone(known.or_insert_with(|| Arc::new(RouteTotals::new(name))))
    }

    /// The operations of the profile of this name.
    pub(super) fn profile(&self, name: &Arc<str>) -> Arc<Count> {
        let profiles = self.profiles.write();
        let mut profiles = profiles.unwrap_or_else(PoisonError::into_inner);
        Arc::clone(profiles.entry(Arc::clone(name)).or_default())
    }

    /// Every route, by name.
    pub(super) fn routes(&self) -> Vec<Arc<RouteTotals>> {
        let routes = self.routes.read().unwrap_or_else(PoisonError::into_inner);
        routes.values().cloned().collect()
    }

    /// Every profile with its operations, by name.
    pub(super) fn profiles(&self) -> Vec<(Arc<str>, u64)> {
        let profiles = self.profiles.read();
        let profiles = profiles.unwrap_or_else(PoisonError::into_inner);
        let read = |(name, count): (&Arc<str>, &Arc<Count>)| (Arc::clone(name), count.get());
        profiles.iter().map(read).collect()
    }
}

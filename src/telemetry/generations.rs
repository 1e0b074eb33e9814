//! The series of the snapshots that operations may still hold, found by generation and position of the route.

use std::collections::HashMap;
use std::sync::Arc;

use arc_swap::ArcSwap;

use super::series::RouteSeries;
use super::totals::Totals;
use crate::policy::route::Route;
use crate::policy::snapshot::Snapshot;
use crate::proxy::host::OperationFacts;

/// Snapshots whose series are kept ready. Operations of an older one are counted on the same series, only found more slowly.
const GENERATIONS_MAX: usize = 8;

/// The series of one snapshot.
#[derive(Debug)]
struct Generation {
    snapshot: Arc<Snapshot>,
    routes: Vec<Arc<RouteSeries>>,
    names: HashMap<Arc<str>, usize>,
}

/// The latest snapshots, newest first.
#[derive(Debug)]
pub(super) struct Generations {
    totals: Arc<Totals>,
    known: ArcSwap<Vec<Arc<Generation>>>,
    none: Arc<RouteSeries>,
}

impl Generations {
    pub(super) fn new(totals: Arc<Totals>) -> Generations {
        Generations {
            none: Arc::new(RouteSeries::without_route(&totals)),
            known: ArcSwap::from_pointee(Vec::new()),
            totals,
        }
    }

    /// Makes the snapshot the newest. Called by one thread at a time.
    pub(super) fn adopt(&self, snapshot: &Arc<Snapshot>) {
        let routes = snapshot.routes.iter();
        let newest = Arc::new(Generation {
            snapshot: Arc::clone(snapshot),
            routes: routes
                .map(|route| Arc::new(RouteSeries::new(&self.totals, route)))
                .collect(),
            names: (snapshot.routes.iter().enumerate())
                .map(|(position, route)| (Arc::clone(&route.name), position))
                .collect(),
        });
        let before = self.known.load();
        let kept = before
            .iter()
            .filter(|known| known.snapshot.generation != snapshot.generation)
            .cloned();
        let known = std::iter::once(newest).chain(kept).take(GENERATIONS_MAX);
        self.known.store(Arc::new(known.collect()));
    }

    /// Counts on the series of an operation's route.
    pub(super) fn count(&self, facts: &OperationFacts, what: impl FnOnce(&RouteSeries)) {
        let known = self.known.load();
        let wanted = facts.snapshot.generation;
        let generation = known.iter().find(|g| g.snapshot.generation == wanted);
        match generation.and_then(|g| g.routes.get(facts.route_index)) {
            Some(series) => what(series),
            // Older than what is kept, or never adopted: the same totals, looked up anew.
            None => what(&RouteSeries::new(&self.totals, &facts.route)),
        }
    }

    /// The series of a route of the newest snapshot.
    pub(super) fn by_name(&self, route: &str) -> Option<Arc<RouteSeries>> {
        let known = self.known.load();
        let newest = known.first()?;
        let position = *newest.names.get(route)?;
        newest.routes.get(position).cloned()
    }

    /// The series of requests that found no route.
    pub(super) fn none(&self) -> &Arc<RouteSeries> {
        &self.none
    }

    /// The routes of the newest snapshot.
    pub(super) fn current_routes(&self) -> Vec<Arc<Route>> {
        let known = self.known.load();
        known
            .first()
            .map(|newest| newest.snapshot.routes.clone())
            .unwrap_or_default()
    }
}

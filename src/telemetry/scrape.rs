//! How a scrape shows what was counted by route.
//!
//! Not here: counting, the families themselves ([`super::family`]). Invariants: names become labels here and nowhere else; route-level counters are shown from the start, so that rates
//! work, the others once they happened.

use std::sync::Arc;

use prometheus::core::{Collector, Desc};
use prometheus::proto::{Metric, MetricFamily};

use super::family::{
    ADMISSIONS, ATTEMPTS, DURATION, EXHAUSTIONS, FAILOVERS, FIRST_BYTE, Family, OVERHEAD, PROFILES,
    REQUESTS, RETRIES, RETRY_BUDGET, SENDS, SKIPPED, STOPS, SUCCESSES, SUPPRESSIONS, WAIT_ENDS,
    WAIT_SECONDS, WAITS,
};
use super::labels::{self, DECISIONS, DELIVERIES, ENDS, ROUNDS};
use super::tally::Count;
use super::totals::{Exhaustion, RouteTotals, TargetTotals, Totals};
use crate::core::suppression::Suppression;

/// Shows the totals to the registry.
pub(super) struct Scrape {
    totals: Arc<Totals>,
    descs: Vec<Desc>,
}

impl Scrape {
    pub(super) fn new(totals: Arc<Totals>) -> prometheus::Result<Scrape> {
        let descs = [
            REQUESTS.desc(),
            DURATION.desc(),
            FIRST_BYTE.desc(),
            OVERHEAD.desc(),
            FAILOVERS.desc(),
            STOPS.desc(),
            WAITS.desc(),
            ADMISSIONS.desc(),
            SUCCESSES.desc(),
            EXHAUSTIONS.desc(),
            RETRY_BUDGET.desc(),
            WAIT_SECONDS.desc(),
            WAIT_ENDS.desc(),
            SUPPRESSIONS.desc(),
            SENDS.desc(),
            SKIPPED.desc(),
            ATTEMPTS.desc(),
            RETRIES.desc(),
            PROFILES.desc(),
        ];
        Ok(Scrape {
            totals,
            descs: descs.into_iter().collect::<prometheus::Result<_>>()?,
        })
    }
}

impl Collector for Scrape {
    fn desc(&self) -> Vec<&Desc> {
        self.descs.iter().collect()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let routes = self.totals.routes();
        let targets: Vec<_> = routes
            .iter()
            .map(|route| (&*route.name, route.targets()))
            .collect();
        let profiles = self.totals.profiles();
        let profiles = profiles
            .iter()
            .map(|(name, count)| PROFILES.count([name], *count));
        let mut families = of_requests(&routes);
        families.extend(of_exhaustion(&routes));
        families.extend(of_targets(&targets));
        families.push(PROFILES.of(profiles));
        families
    }
}

fn of_requests(routes: &[Arc<RouteTotals>]) -> Vec<MetricFamily> {
    let requests = routes.iter().flat_map(|route| {
        let kinds = route.requests.read().into_iter();
        kinds.map(|((api, outcome, status), count)| {
            let (api, status) = (labels::api_name(api), labels::status_label(status));
            REQUESTS.count([api, outcome.label(), &route.name, &status], count)
        })
    });
    let stops = routes.iter().flat_map(|route| {
        let kinds = route.stops.read().into_iter();
        kinds.map(|(stop, count)| STOPS.count([stop.label(), &route.name], count))
    });
    let failovers = routes.iter().flat_map(|route| {
        let kinds = route.failovers.read().into_iter();
        let targets = route.targets();
        let name = move |number: Option<usize>| {
            let target = number.and_then(|number| targets.get(number));
            target.map_or_else(
                || Arc::from(labels::NONE),
                |target| Arc::clone(&target.name),
            )
        };
        kinds.map(move |((from, to, reason), count)| {
            FAILOVERS.count([&name(from), reason, &route.name, &name(to)], count)
        })
    });
    let timed = || {
        let routes = routes.iter();
        routes.flat_map(|route| {
            route
                .timed()
                .map(|(api, times)| ([api, &*route.name], times))
        })
    };
    vec![
        REQUESTS.of(requests),
        STOPS.of(stops),
        FAILOVERS.of(failovers),
        DURATION.of(timed().map(|(labels, times)| DURATION.times(labels, &times.duration))),
        FIRST_BYTE.of(timed().map(|(labels, times)| FIRST_BYTE.times(labels, &times.first_byte))),
        OVERHEAD.of(timed().map(|(labels, times)| OVERHEAD.times(labels, &times.overhead))),
    ]
}

/// Where a counter lies.
type Of = fn(&Exhaustion) -> &Count;

/// Families with one counter a route.
const PLAIN: [(&Family<1>, Of); 5] = [
    (&WAITS, |counted| &counted.waits),
    (&ADMISSIONS, |counted| &counted.admissions),
    (&SUCCESSES, |counted| &counted.successes),
    (&EXHAUSTIONS, |counted| &counted.exhaustions),
    (&RETRY_BUDGET, |counted| &counted.retry_budget_exhausted),
];

fn of_exhaustion(routes: &[Arc<RouteTotals>]) -> Vec<MetricFamily> {
    let routes = || routes.iter().filter(|route| route.is_route());
    let waits = routes().map(|route| {
        let waited = &route.exhaustion.wait_seconds;
        WAIT_SECONDS.times([&route.name], waited)
    });
    let ends = routes().flat_map(|route| {
        let ends = ENDS.into_iter().zip(&route.exhaustion.ends);
        ends.map(|(end, count)| WAIT_ENDS.count([end, &route.name], count.get()))
    });
    let suppressions = routes().flat_map(|route| {
        let reasons = Suppression::ALL.iter().zip(&route.exhaustion.suppressions);
        reasons
            .map(|(reason, count)| SUPPRESSIONS.count([reason.label(), &route.name], count.get()))
    });
    // Ends are read before what ends, here as with attempts and sends: a scrape shows no end of what it does not show.
    let mut families = vec![
        WAIT_ENDS.of(ends),
        WAIT_SECONDS.of(waits),
        SUPPRESSIONS.of(suppressions),
    ];
    for (family, of) in PLAIN {
        let rows = routes().map(|route| family.count([&route.name], of(&route.exhaustion).get()));
        families.push(family.of(rows));
    }
    families
}

/// A route's name and one of its targets.
type Target<'a> = (&'a str, &'a TargetTotals);

fn of_targets(routes: &[(&str, Vec<Arc<TargetTotals>>)]) -> Vec<MetricFamily> {
    let targets = || {
        let routes = routes.iter();
        routes.flat_map(|(route, targets)| targets.iter().map(|target| (*route, &**target)))
    };
    let by_round = |family: &'static Family<3>, of: fn(&TargetTotals) -> &[Count; ROUNDS.len()]| {
        family.of(targets().flat_map(|(route, target)| {
            let rounds = ROUNDS.into_iter().zip(of(target));
            rounds
                .map(move |(round, count)| family.count([round, route, &target.name], count.get()))
        }))
    };
    let retries = targets().flat_map(|(route, target)| {
        let kinds = target.retries.read().into_iter();
        kinds.map(move |(status, count)| {
            let status = labels::status_label(status);
            RETRIES.count([route, &status, &target.name], count)
        })
    });
    vec![
        ATTEMPTS.of(targets().flat_map(attempts)),
        RETRIES.of(retries),
        by_round(&SENDS, |target| &target.sends),
        by_round(&SKIPPED, |target| &target.skipped),
    ]
}

/// The attempts that happened.
fn attempts((route, target): Target<'_>) -> Vec<Metric> {
    let mut rows = Vec::new();
    for (round, deliveries) in ROUNDS.into_iter().zip(&target.attempts) {
        for (delivery, decisions) in DELIVERIES.into_iter().zip(deliveries) {
            let decisions = DECISIONS.into_iter().zip(decisions);
            let happened = decisions.filter_map(|(decision, count)| {
                let count = Some(count.get()).filter(|count| *count > 0)?;
                let values = [decision, delivery, round, route, &*target.name];
                Some(ATTEMPTS.count(values, count))
            });
            rows.extend(happened);
        }
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    // R-S22: what is shown is what was registered, so that no two families can have one name.
    #[test]
    fn every_family_that_is_shown_was_announced() -> prometheus::Result<()> {
        let scrape = Scrape::new(Arc::default())?;
        let mut announced: Vec<String> = scrape
            .desc()
            .iter()
            .map(|desc| desc.fq_name.clone())
            .collect();
        let shown = scrape.collect().into_iter();
        let mut shown: Vec<String> = shown.map(|family| family.name().to_owned()).collect();
        announced.sort_unstable();
        shown.sort_unstable();
        assert_eq!(announced, shown);
        Ok(())
    }
}

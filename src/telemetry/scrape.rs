//! How a scrape shows what was counted by route: families, labels, rows.
//!
//! Not here: counting. Invariants: names become labels here and nowhere else; route-level counters are shown from the start, so that rates
//! work, the others once they happened.

use std::collections::HashMap;
use std::sync::Arc;

use prometheus::core::{Collector, Desc};
use prometheus::proto::{Bucket, Counter, LabelPair, Metric, MetricFamily, MetricType};

use super::labels::{self, DECISIONS, DELIVERIES, ENDS, ROUNDS};
use super::tally::{Count, Histogram};
use super::totals::{Exhaustion, RouteTotals, TargetTotals, Totals};
use crate::core::suppression::Suppression;

/// A family with `L` labels.
#[derive(Debug)]
struct Family<const L: usize> {
    name: &'static str,
    help: &'static str,
    /// In the order of the alphabet, as the text has them.
    labels: [&'static str; L],
    kind: MetricType,
}

const fn counter<const L: usize>(
    name: &'static str,
    help: &'static str,
    labels: [&'static str; L],
) -> Family<L> {
    Family {
        name,
        help,
        labels,
        kind: MetricType::COUNTER,
    }
}

const fn histogram<const L: usize>(
    name: &'static str,
    help: &'static str,
    labels: [&'static str; L],
) -> Family<L> {
    Family {
        name,
        help,
        labels,
        kind: MetricType::HISTOGRAM,
    }
}

const REQUESTS: Family<4> = counter(
    "rondo_requests_total",
    "Requests that ended, by how.",
    ["api", "outcome", "route", "status"],
);
const DURATION: Family<2> = histogram(
    "rondo_request_duration_seconds",
    "From the request header to the end.",
    ["api", "route"],
);
const FIRST_BYTE: Family<2> = histogram(
    "rondo_first_byte_seconds",
    "From the request header to the first byte of the answer.",
    ["api", "route"],
);
const OVERHEAD: Family<2> = histogram(
    "rondo_gateway_overhead_seconds",
    "Time spent in the gateway itself, up to the first byte.",
    ["api", "route"],
);
const FAILOVERS: Family<4> = counter(
    "rondo_failovers_total",
    "Moves to another target, by class of the failure.",
    ["from", "reason", "route", "to"],
);
const STOPS: Family<2> = counter(
    "rondo_stops_total",
    "Operations that ended with candidates left, by reason.",
    ["reason", "route"],
);
const WAITS: Family<1> = counter(
    "rondo_exhaustion_waits_total",
    "Waits before a second round that were begun.",
    ["route"],
);
const ADMISSIONS: Family<1> = counter(
    "rondo_exhaustion_admissions_total",
    "Waiting slots that were taken.",
    ["route"],
);
const SUCCESSES: Family<1> = counter(
    "rondo_exhaustion_successes_total",
    "Second rounds in which a target answered.",
    ["route"],
);
const EXHAUSTIONS: Family<1> = counter(
    "rondo_route_exhaustions_total",
    "Operations that ended because every target rejected them.",
    ["route"],
);
const RETRY_BUDGET: Family<1> = counter(
    "rondo_retry_budget_exhausted_total",
    "Operations to which the route's retry budget refused an extra send.",
    ["route"],
);
const WAIT_SECONDS: Family<1> = histogram(
    "rondo_exhaustion_wait_seconds",
    "Waits before a second round, those cut short included.",
    ["route"],
);
const WAIT_ENDS: Family<2> = counter(
    "rondo_exhaustion_ends_total",
    "How what was admitted came to its end; sums up to the admissions.",
    ["end", "route"],
);
const SUPPRESSIONS: Family<2> = counter(
    "rondo_exhaustion_suppressions_total",
    "Second rounds that were suppressed, by reason.",
    ["reason", "route"],
);
const SENDS: Family<3> = counter(
    "rondo_upstream_sends_total",
    "Sends, counted at the dispatch point.",
    ["round", "route", "target"],
);
const SKIPPED: Family<3> = counter(
    "rondo_candidates_skipped_total",
    "Candidates passed over without a send because they cooled.",
    ["round", "route", "target"],
);
const ATTEMPTS: Family<5> = counter(
    "rondo_attempts_total",
    "Attempts that were settled, by delivery class and what followed.",
    ["decision", "outcome", "round", "route", "target"],
);
const RETRIES: Family<3> = counter(
    "rondo_provider_retries_total",
    "Tries derived on the same target, by status of the failure before.",
    ["route", "status", "target"],
);
const PROFILES: Family<1> = counter(
    "rondo_profile_operations_total",
    "Operations that ended, by the profile of their route.",
    ["profile"],
);

impl<const L: usize> Family<L> {
    fn desc(&self) -> prometheus::Result<Desc> {
        let labels = self.labels.map(str::to_owned).to_vec();
        Desc::new(
            self.name.to_owned(),
            self.help.to_owned(),
            labels,
            HashMap::new(),
        )
    }

    fn of(&self, rows: impl IntoIterator<Item = Metric>) -> MetricFamily {
        let mut family = MetricFamily::default();
        family.set_name(self.name.to_owned());
        family.set_help(self.help.to_owned());
        family.set_field_type(self.kind);
        family.set_metric(rows.into_iter().collect());
        family
    }

    /// A row without its numbers. The values are in the order of the labels.
    fn row(&self, values: [&str; L]) -> Metric {
        let labels = self.labels.iter().zip(values).map(|(name, value)| {
            let mut pair = LabelPair::default();
            pair.set_name((*name).to_owned());
            pair.set_value(value.to_owned());
            pair
        });
        Metric::from_label(labels.collect())
    }

    fn count(&self, values: [&str; L], count: u64) -> Metric {
        let mut counter = Counter::default();
        #[expect(
            clippy::cast_precision_loss,
            reason = "the text format has no other numbers"
        )]
        counter.set_value(count as f64);
        let mut row = self.row(values);
        row.set_counter(counter);
        row
    }

    fn times<const N: usize>(&self, values: [&str; L], histogram: &Histogram<N>) -> Metric {
        let (within, count, sum) = histogram.read();
        let buckets = within.into_iter().map(|(bound, count)| {
            let mut bucket = Bucket::default();
            bucket.set_upper_bound(bound);
            bucket.set_cumulative_count(count);
            bucket
        });
        let mut shown = prometheus::proto::Histogram::default();
        shown.set_bucket(buckets.collect());
        shown.set_sample_count(count);
        shown.set_sample_sum(sum);
        let mut row = self.row(values);
        row.set_histogram(shown);
        row
    }
}

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

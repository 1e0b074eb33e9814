//! The families of what is counted by route: names, help, labels, and how a row of one is made.
//!
//! Not here: what the rows are ([`super::scrape`]), families of the process ([`super::metrics`]). Invariant: the compiler counts the labels of a
//! row.

use std::collections::HashMap;

use prometheus::core::Desc;
use prometheus::proto::{Bucket, Counter, LabelPair, Metric, MetricFamily, MetricType};

use super::tally::Histogram;

/// A family with `L` labels.
#[derive(Debug)]
pub(super) struct Family<const L: usize> {
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

pub(super) const REQUESTS: Family<4> = counter(
    "rondo_requests_total",
    "Requests that ended, by how.",
    ["api", "outcome", "route", "status"],
);
pub(super) const DURATION: Family<2> = histogram(
    "rondo_request_duration_seconds",
    "From the request header to the end.",
    ["api", "route"],
);
pub(super) const FIRST_BYTE: Family<2> = histogram(
    "rondo_first_byte_seconds",
    "From the request header to the first byte of the answer.",
    ["api", "route"],
);
pub(super) const OVERHEAD: Family<2> = histogram(
    "rondo_gateway_overhead_seconds",
    "Time spent in the gateway itself, up to the first byte.",
    ["api", "route"],
);
pub(super) const FAILOVERS: Family<4> = counter(
    "rondo_failovers_total",
    "Moves to another target, by class of the failure.",
    ["from", "reason", "route", "to"],
);
pub(super) const STOPS: Family<2> = counter(
    "rondo_stops_total",
    "Operations that ended with candidates left, by reason.",
    ["reason", "route"],
);
pub(super) const WAITS: Family<1> = counter(
    "rondo_exhaustion_waits_total",
    "Waits before a second round that were begun.",
    ["route"],
);
pub(super) const ADMISSIONS: Family<1> = counter(
    "rondo_exhaustion_admissions_total",
    "Waiting slots that were taken.",
    ["route"],
);
pub(super) const SUCCESSES: Family<1> = counter(
    "rondo_exhaustion_successes_total",
    "Second rounds in which a target answered.",
    ["route"],
);
pub(super) const EXHAUSTIONS: Family<1> = counter(
    "rondo_route_exhaustions_total",
    "Operations that ended because every target rejected them.",
    ["route"],
);
pub(super) const RETRY_BUDGET: Family<1> = counter(
    "rondo_retry_budget_exhausted_total",
    "Operations to which the route's retry budget refused an extra send.",
    ["route"],
);
pub(super) const WAIT_SECONDS: Family<1> = histogram(
    "rondo_exhaustion_wait_seconds",
    "Waits before a second round, those cut short included.",
    ["route"],
);
pub(super) const WAIT_ENDS: Family<2> = counter(
    "rondo_exhaustion_ends_total",
    "How what was admitted came to its end; sums up to the admissions.",
    ["end", "route"],
);
pub(super) const SUPPRESSIONS: Family<2> = counter(
    "rondo_exhaustion_suppressions_total",
    "Second rounds that were suppressed, by reason.",
    ["reason", "route"],
);
pub(super) const SENDS: Family<3> = counter(
    "rondo_upstream_sends_total",
    "Sends, counted at the dispatch point.",
    ["round", "route", "target"],
);
pub(super) const SKIPPED: Family<3> = counter(
    "rondo_candidates_skipped_total",
    "Candidates passed over without a send because they cooled.",
    ["round", "route", "target"],
);
pub(super) const ATTEMPTS: Family<5> = counter(
    "rondo_attempts_total",
    "Attempts that were settled, by delivery class and what followed.",
    ["decision", "outcome", "round", "route", "target"],
);
pub(super) const RETRIES: Family<3> = counter(
    "rondo_provider_retries_total",
    "Tries derived on the same target, by status of the failure before.",
    ["route", "status", "target"],
);
pub(super) const PROFILES: Family<1> = counter(
    "rondo_profile_operations_total",
    "Operations that ended, by the profile of their route.",
    ["profile"],
);

impl<const L: usize> Family<L> {
    /// As the registry wants it announced.
    pub(super) fn desc(&self) -> prometheus::Result<Desc> {
        let labels = self.labels.map(str::to_owned).to_vec();
        Desc::new(
            self.name.to_owned(),
            self.help.to_owned(),
            labels,
            HashMap::new(),
        )
    }

    /// The family with these rows.
    pub(super) fn of(&self, rows: impl IntoIterator<Item = Metric>) -> MetricFamily {
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

    /// A counter's row.
    pub(super) fn count(&self, values: [&str; L], count: u64) -> Metric {
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

    /// A histogram's row.
    pub(super) fn times<const N: usize>(
        &self,
        values: [&str; L],
        histogram: &Histogram<N>,
    ) -> Metric {
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

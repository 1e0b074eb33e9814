//! The metric families: names, help, labels and buckets. Who counts what is in [`super::sink`]; the ledger's writer has its own.

use super::ledger::LedgerFamilies;
use prometheus::core::Collector;
use prometheus::proto::MetricFamily;
use prometheus::{
    HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry,
};

use crate::policy::overload::{Overload, SlowPhase};
use crate::proxy::host::DrainEnd;

/// Whole requests and waits, in seconds: an embedding takes milliseconds, a long generation ten minutes.
const DURATION_BUCKETS: [f64; 16] = [
    0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0,
];
/// Time to the first byte, in seconds: a cached prompt to a long one on a loaded provider.
const FIRST_BYTE_BUCKETS: [f64; 13] = [
    0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0,
];
/// Time spent in the gateway, in seconds: tens of microseconds when all is well, a second when it is not.
const OVERHEAD_BUCKETS: [f64; 14] = [
    0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0,
];

/// Every family, registered in a registry of its own.
#[derive(Debug)]
pub(super) struct Families {
    registry: Registry,
    pub requests: IntCounterVec,
    pub sends: IntCounterVec,
    pub attempts: IntCounterVec,
    pub failovers: IntCounterVec,
    pub skipped: IntCounterVec,
    pub waits: IntCounterVec,
    pub admissions: IntCounterVec,
    pub successes: IntCounterVec,
    pub suppressions: IntCounterVec,
    pub ends: IntCounterVec,
    pub wait_seconds: HistogramVec,
    pub waiting: IntGaugeVec,
    pub exhaustions: IntCounterVec,
    pub provider_retries: IntCounterVec,
    pub stops: IntCounterVec,
    pub retry_budget_exhausted: IntCounterVec,
    pub profiles: IntCounterVec,
    pub duration: HistogramVec,
    pub first_byte: HistogramVec,
    pub overhead: HistogramVec,
    pub inflight: IntGauge,
    pub drains: IntGauge,
    pub drain_ends: IntCounterVec,
    pub buffered_bytes: IntGauge,
    pub operations: IntGauge,
    pub connections: IntGauge,
    /// By the position of the bound.
    pub overloads: Vec<IntCounter>,
    /// By the position of the phase.
    pub slow_clients: Vec<IntCounter>,
    pub provider_healthy: IntGaugeVec,
    pub unexpected: IntCounterVec,
    pub token_exchanges: IntCounterVec,
    pub reloads: IntCounterVec,
    pub config_info: IntGaugeVec,
    pub reload_success_timestamp: IntGauge,
    pub ledger: LedgerFamilies,
}

impl Families {
    pub(super) fn new() -> Families {
        let made = Families::try_new();
        #[expect(
            clippy::expect_used,
            reason = "names and labels are constants of this file, and every test builds them"
        )]
        made.expect("metric families are well-formed")
    }

    fn try_new() -> prometheus::Result<Families> {
        let r = Registry::new();
        let build = gauges(
            &r,
            "rondo_build_info",
            "The version that runs; always 1.",
            &["version"],
        )?;
        build.with_label_values(&[env!("CARGO_PKG_VERSION")]).set(1);
        let reloads = counters(
            &r,
            "rondo_config_reloads_total",
            "Reloads of the configuration.",
            &["result"],
        )?;
        for result in ["success", "unchanged", "failure"] {
            reloads.with_label_values(&[result]);
        }
        let drain_ends = counters(
            &r,
            "rondo_drains_total",
            "Answers that were to be read on after their clients had left, by how that ended.",
            &["end"],
        )?;
        for end in DrainEnd::ALL {
            drain_ends.with_label_values(&[end.label()]);
        }
        let overloads = counters(
            &r,
            "rondo_overload_refusals_total",
            "Requests and connections that were turned away, by the bound that was met.",
            &["limit"],
        )?;
        let slow_clients = counters(
            &r,
            "rondo_slow_clients_total",
            "Clients that were ended because they were too slow, by what they were too slow with.",
            &["phase"],
        )?;
        Ok(Families {
            overloads: each(&overloads, Overload::ALL.map(Overload::label)),
            slow_clients: each(&slow_clients, SlowPhase::ALL.map(SlowPhase::label)),
            operations: gauge(
                &r,
                "rondo_inflight_operations",
                "Operations under way, of which there are at most server.max_in_flight.",
            )?,
            connections: gauge(
                &r,
                "rondo_client_connections",
                "Client connections, of which there are at most server.max_connections.",
            )?,
            requests: counters(
                &r,
                "rondo_requests_total",
                "Requests that ended, by how.",
                &["route", "api", "outcome", "status"],
            )?,
            sends: counters(
                &r,
                "rondo_upstream_sends_total",
                "Sends, counted at the dispatch point.",
                &["route", "target", "round"],
            )?,
            attempts: counters(
                &r,
                "rondo_attempts_total",
                "Attempts that were settled, by delivery class and what followed.",
                &["route", "target", "round", "outcome", "decision"],
            )?,
            failovers: counters(
                &r,
                "rondo_failovers_total",
                "Moves to another target, by class of the failure.",
                &["route", "from", "to", "reason"],
            )?,
            skipped: counters(
                &r,
                "rondo_candidates_skipped_total",
                "Candidates passed over without a send because they cooled.",
                &["route", "target", "round"],
            )?,
            waits: counters(
                &r,
                "rondo_exhaustion_waits_total",
                "Waits before a second round that were begun.",
                &["route"],
            )?,
            admissions: counters(
                &r,
                "rondo_exhaustion_admissions_total",
                "Waiting slots that were taken.",
                &["route"],
            )?,
            successes: counters(
                &r,
                "rondo_exhaustion_successes_total",
                "Second rounds in which a target answered.",
                &["route"],
            )?,
            suppressions: counters(
                &r,
                "rondo_exhaustion_suppressions_total",
                "Second rounds that were suppressed, by reason.",
                &["route", "reason"],
            )?,
            ends: counters(
                &r,
                "rondo_exhaustion_ends_total",
                "How what was admitted came to its end; sums up to the admissions.",
                &["route", "end"],
            )?,
            wait_seconds: histogram(
                &r,
                "rondo_exhaustion_wait_seconds",
                "Waits before a second round, those cut short included.",
                (&["route"], &DURATION_BUCKETS),
            )?,
            waiting: gauges(
                &r,
                "rondo_exhaustion_waiting",
                "Operations asleep before their second round.",
                &["route"],
            )?,
            exhaustions: counters(
                &r,
                "rondo_route_exhaustions_total",
                "Operations that ended because every target rejected them.",
                &["route"],
            )?,
            provider_retries: counters(
                &r,
                "rondo_provider_retries_total",
                "Tries derived on the same target, by status of the failure before.",
                &["route", "target", "status"],
            )?,
            stops: counters(
                &r,
                "rondo_stops_total",
                "Operations that ended with candidates left, by reason.",
                &["route", "reason"],
            )?,
            retry_budget_exhausted: counters(
                &r,
                "rondo_retry_budget_exhausted_total",
                "Operations to which the route's retry budget refused an extra send.",
                &["route"],
            )?,
            profiles: counters(
                &r,
                "rondo_profile_operations_total",
                "Operations that ended, by the profile of their route.",
                &["profile"],
            )?,
            duration: histogram(
                &r,
                "rondo_request_duration_seconds",
                "From the request header to the end.",
                (&["route", "api"], &DURATION_BUCKETS),
            )?,
            first_byte: histogram(
                &r,
                "rondo_first_byte_seconds",
                "From the request header to the first byte of the answer.",
                (&["route", "api"], &FIRST_BYTE_BUCKETS),
            )?,
            overhead: histogram(
                &r,
                "rondo_gateway_overhead_seconds",
                "Time spent in the gateway itself, up to the first byte.",
                (&["route", "api"], &OVERHEAD_BUCKETS),
            )?,
            inflight: gauge(
                &r,
                "rondo_inflight_requests",
                "Requests whose header was read and that have not ended.",
            )?,
            drains: gauge(
                &r,
                "rondo_drains",
                "Answers that are read on although their clients have left.",
            )?,
            drain_ends,
            buffered_bytes: gauge(&r, "rondo_buffered_bytes", "Bytes of request bodies held.")?,
            provider_healthy: gauges(
                &r,
                "rondo_provider_healthy",
                "Whether a provider with health checks is healthy: 1 or 0.",
                &["provider"],
            )?,
            unexpected: counters(
                &r,
                "rondo_unexpected_events_total",
                "Events that the executor could not explain.",
                &["event"],
            )?,
            token_exchanges: counters(
                &r,
                "rondo_token_exchanges_total",
                "Exchanges for a provider's token or session, by result.",
                &["provider", "result"],
            )?,
            reloads,
            config_info: gauges(
                &r,
                "rondo_config_info",
                "The configuration in force; always 1.",
                &["digest"],
            )?,
            reload_success_timestamp: gauge(
                &r,
                "rondo_config_last_reload_success_timestamp_seconds",
                "When the configuration was last read without an error.",
            )?,
            ledger: LedgerFamilies::try_new(&r)?,
            registry: r,
        })
    }

    pub(super) fn registry(&self) -> &Registry {
        &self.registry
    }

    pub(super) fn gather(&self) -> Vec<MetricFamily> {
        self.registry.gather()
    }
}

fn add<C: Collector + Clone + 'static>(registry: &Registry, collector: C) -> prometheus::Result<C> {
    registry.register(Box::new(collector.clone()))?;
    Ok(collector)
}

pub(super) fn counter(r: &Registry, name: &str, help: &str) -> prometheus::Result<IntCounter> {
    add(r, IntCounter::new(name, help)?)
}

pub(super) fn counters(
    r: &Registry,
    name: &str,
    help: &str,
    labels: &[&str],
) -> prometheus::Result<IntCounterVec> {
    add(r, IntCounterVec::new(Opts::new(name, help), labels)?)
}

/// One counter a label value, in their order.
fn each<const N: usize>(family: &IntCounterVec, labels: [&str; N]) -> Vec<IntCounter> {
    labels
        .into_iter()
        .map(|label| family.with_label_values(&[label]))
        .collect()
}

fn gauges(
    r: &Registry,
    name: &str,
    help: &str,
    labels: &[&str],
) -> prometheus::Result<IntGaugeVec> {
    add(r, IntGaugeVec::new(Opts::new(name, help), labels)?)
}

pub(super) fn gauge(r: &Registry, name: &str, help: &str) -> prometheus::Result<IntGauge> {
    add(r, IntGauge::new(name, help)?)
}

fn histogram(
    r: &Registry,
    name: &str,
    help: &str,
    (labels, buckets): (&[&str], &[f64]),
) -> prometheus::Result<HistogramVec> {
    let opts = HistogramOpts::new(name, help).buckets(buckets.to_vec());
    add(r, HistogramVec::new(opts, labels)?)
}

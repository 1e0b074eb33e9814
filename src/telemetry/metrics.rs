//! The metric families of the process: names, help and labels. Those of routes and profiles are in [`super::family`]; who counts what is in
//! [`super::sink`]; the ledger's writer has its own.

use std::sync::Arc;

use super::ledger::LedgerFamilies;
use super::scrape::Scrape;
use super::totals::Totals;
use prometheus::core::Collector;
use prometheus::proto::MetricFamily;
use prometheus::{IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry};

use crate::policy::overload::{Overload, SlowPhase};
use crate::proxy::host::DrainEnd;

/// Every family, registered in a registry of its own.
#[derive(Debug)]
pub(super) struct Families {
    registry: Registry,
    /// What is counted by route.
    pub totals: Arc<Totals>,
    pub waiting: IntGaugeVec,
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
            reason = "names and labels are constants, and every test builds them"
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
        let totals = Arc::<Totals>::default();
        r.register(Box::new(Scrape::new(Arc::clone(&totals))?))?;
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
            waiting: gauges(
                &r,
                "rondo_exhaustion_waiting",
                "Operations asleep before their second round.",
                &["route"],
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
            totals,
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

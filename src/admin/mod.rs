//! The admin plane: metrics, health, live state, reload, and a page for people.
//!
//! Not here: counting, loading a configuration, listeners. [`AdminHost`] is what the process must tell and do; `app` implements it.

mod access;
mod api;
mod health;
mod lookup;
mod page;
mod reading;
mod server;
mod views;

pub use server::Admin;
pub use views::{ReloadOutcome, ReloadReport};

use std::sync::Arc;

use crate::core::time::WallTime;
use crate::ledger::Record;
use crate::ledger::store::Reader;
use crate::policy::snapshot::Snapshot;
use crate::proxy::host::Stamp;
use crate::telemetry::RouteCounters;

/// What the admin plane asks of the process around it.
pub trait AdminHost: Send + Sync + 'static {
    /// The snapshot in force.
    fn snapshot(&self) -> Arc<Snapshot>;
    /// Whether requests are welcome: a configuration is loaded and the gateway is not draining.
    fn is_ready(&self) -> bool;
    /// The effective configuration. Secrets must be redacted before it gets here.
    fn effective_config(&self) -> serde_json::Value;
    /// When the snapshot in force was loaded.
    fn loaded_at(&self) -> WallTime;
    /// Why the last reload failed; `None` when it did not.
    fn last_error(&self) -> Option<String>;
    /// Reads the configuration again. Called on a blocking thread of the runtime, so it may block, also on `Handle::current()`.
    fn reload(&self) -> ReloadReport;
    /// Records in memory that fit, newest first: `telemetry.recent(limit, fits)`.
    fn recent(&self, limit: usize, fits: &dyn Fn(&Record) -> bool) -> Vec<Arc<Record>>;
    /// The store of records, to be read; `None` when there is none. Its calls block, and may take long.
    fn reader(&self) -> Option<Arc<dyn Reader>>;
    /// What was counted for a route: `telemetry.counters(route)`.
    fn counters(&self, route: &str) -> RouteCounters;
    /// Metrics in the Prometheus text format: `telemetry.render()`.
    fn metrics(&self) -> String;
    /// Now, on both clocks.
    fn now(&self) -> Stamp;
}

//! What the admin plane asks the process.

use std::sync::Arc;

use tokio::runtime::Handle;

use super::App;
use super::reload::Reloaded;
use crate::admin::{AdminHost, ReloadOutcome, ReloadReport};
use crate::config::effective;
use crate::core::time::WallTime;
use crate::ledger::Record;
use crate::ledger::store::Reader;
use crate::policy::snapshot::Snapshot;
use crate::proxy::host::Stamp;
use crate::telemetry::RouteCounters;

impl AdminHost for App {
    fn snapshot(&self) -> Arc<Snapshot> {
        App::snapshot(self)
    }

    fn is_ready(&self) -> bool {
        App::is_ready(self)
    }

    fn effective_config(&self) -> serde_json::Value {
        effective(&App::snapshot(self))
    }

    fn loaded_at(&self) -> WallTime {
        self.last_load().loaded_at
    }

    fn last_error(&self) -> Option<String> {
        self.last_load().error
    }

    fn reload(&self) -> ReloadReport {
        let (result, errors, needs_restart) = match Handle::current().block_on(App::reload(self)) {
            Reloaded::Swapped { needs_restart, .. } => {
                (ReloadOutcome::Success, Vec::new(), needs_restart)
            }
            Reloaded::Unchanged => (ReloadOutcome::Unchanged, Vec::new(), Vec::new()),
            Reloaded::Refused(errors) => (ReloadOutcome::Failure, errors, Vec::new()),
        };
        ReloadReport {
            result,
            errors,
            needs_restart,
        }
    }

    fn recent(&self, limit: usize, fits: &dyn Fn(&Record) -> bool) -> Vec<Arc<Record>> {
        self.telemetry.recent(limit, fits)
    }

    fn reader(&self) -> Option<Arc<dyn Reader>> {
        self.reader.clone()
    }

    fn counters(&self, route: &str) -> RouteCounters {
        self.telemetry.counters(route)
    }

    fn metrics(&self) -> String {
        self.telemetry.render()
    }

    fn now(&self) -> Stamp {
        self.gateway.around.clock.stamp()
    }
}

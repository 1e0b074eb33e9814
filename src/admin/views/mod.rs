//! The shapes that leave through the admin plane. Column names are those of the records; times are UTC with microseconds.

mod operations;
mod routes;

use serde::Serialize;

use crate::core::time::WallTime;
use crate::policy::snapshot::Snapshot;
use crate::records::utc::Utc;

pub(super) use operations::{OperationView, OperationsView, StoreState, SumsView};
pub(super) use routes::RoutesView;

/// The answer to a reload.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ReloadReport {
    /// How it went.
    pub result: ReloadOutcome,
    /// Everything that is wrong with the file, when it was refused.
    pub errors: Vec<String>,
    /// Changed settings that take effect at the next start only.
    pub needs_restart: Vec<String>,
}

/// How a reload went.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ReloadOutcome {
    /// A new snapshot is in force.
    Success,
    /// The file changes nothing.
    Unchanged,
    /// The file was refused; the last good snapshot stays.
    Failure,
    /// The gateway is draining, or could not take the request up now.
    Busy,
}

#[derive(Serialize)]
pub(super) struct ConfigView {
    generation: u64,
    digest: String,
    loaded_at: Utc,
    last_error: Option<String>,
    config: serde_json::Value,
}

impl ConfigView {
    pub(super) fn new(
        snapshot: &Snapshot,
        config: serde_json::Value,
        loaded_at: WallTime,
        last_error: Option<String>,
    ) -> ConfigView {
        ConfigView {
            generation: snapshot.generation,
            digest: snapshot.digest.clone(),
            loaded_at: Utc(loaded_at),
            last_error,
            config,
        }
    }
}

//! A reload: read, validate, prepare, then swap; or change nothing and say so loudly (R-C2).

use std::sync::Arc;

use super::{App, LastLoad, warn_of};
use crate::config::reload::{changes, needs_restart};
use crate::config::{self, Environment, Loaded, Problems, ProcessEnv};
use crate::mock::Catalog;
use crate::policy::snapshot::Snapshot;
use crate::proxy::prepared::{Prepared, Shared};
use crate::telemetry::ReloadResult;

/// What a reload did.
#[derive(Debug, Clone)]
pub enum Reloaded {
    /// A new snapshot is in force.
    Swapped {
        /// Paths of the settings that differ.
        changed: Vec<String>,
        /// What of it waits for a restart.
        needs_restart: Vec<String>,
    },
    /// The file says what is in force already.
    Unchanged,
    /// The file was refused; each line is one error.
    Refused(Vec<String>),
}

impl App {
    /// Reads the file again and puts it into force, or keeps what is.
    pub async fn reload(&self) -> Reloaded {
        let _one_at_a_time = self.reloading.lock().await;
        let outcome = self.read_and_swap().await;
        let snapshot = self.snapshot();
        match &outcome {
            Reloaded::Swapped {
                changed,
                needs_restart,
            } => {
                self.telemetry.adopt(&snapshot, ReloadResult::Success);
                let (generation, digest) = (snapshot.generation, &snapshot.digest);
                log::info!("configuration reloaded: generation {generation}, digest {digest}");
                for path in changed {
                    log::info!("configuration: {path} changed");
                }
                for line in needs_restart {
                    log::warn!("needs restart: {line}");
                }
                let loaded_at = self.gateway.around.clock.wall();
                *self.last_load.lock() = LastLoad {
                    loaded_at,
                    error: None,
                };
            }
            Reloaded::Unchanged => {
                self.telemetry.adopt(&snapshot, ReloadResult::Unchanged);
                log::info!("configuration reloaded: nothing changed");
                self.last_load.lock().error = None;
            }
            Reloaded::Refused(errors) => {
                self.telemetry.adopt(&snapshot, ReloadResult::Failure);
                for error in errors {
                    log::error!("configuration refused: {error}");
                }
                log::error!("the last good configuration stays in force");
                self.last_load.lock().error = Some(errors.join("\n"));
            }
        }
        outcome
    }

    fn read(&self, current: &Snapshot) -> Result<Loaded, Problems> {
        let previous = Some(current);
        config::load(
            &self.file,
            &Environment {
                env: &ProcessEnv,
                catalog: &Catalog,
                previous,
            },
        )
    }

    async fn read_and_swap(&self) -> Reloaded {
        let current = self.snapshot();
        let loaded = match self.read(&current) {
            Ok(loaded) => loaded,
            Err(problems) => {
                return Reloaded::Refused(
                    problems.to_string().lines().map(str::to_owned).collect(),
                );
            }
        };
        warn_of(&loaded.warnings);
        let changed = changes(&current, &loaded.snapshot);
        if changed.is_empty() && loaded.snapshot.digest == current.digest {
            return Reloaded::Unchanged;
        }
        let needs_restart = needs_restart(&self.started, &loaded.snapshot);
        let snapshot = Arc::new(loaded.snapshot);
        if let Err(error) = self.mocks.start_all(&snapshot) {
            return Reloaded::Refused(vec![error.to_string()]);
        }
        let shared = Shared {
            resolver: &self.resolver,
            credentials: &self.credentials,
            health: &self.health,
        };
        let prepared = Prepared::new(Arc::clone(&snapshot), &shared, |p| self.mocks.address(p));
        match prepared {
            Ok(prepared) => {
                prepared.resolve().await;
                prepared.tokens().await;
                // Telemetry knows the snapshot before its first operation.
                self.telemetry.adopt(&snapshot, ReloadResult::Initial);
                self.gateway.config.store(Arc::new(prepared));
                Reloaded::Swapped {
                    changed,
                    needs_restart,
                }
            }
            Err(error) => Reloaded::Refused(vec![error.to_string()]),
        }
    }
}

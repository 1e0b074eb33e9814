//! The process: puts the pieces together, loads and reloads the configuration, starts and stops the servers.
//!
//! Not here: decisions about requests. Invariants: a reload swaps a whole snapshot or changes nothing; one reload runs at a time.

mod admin_host;
mod admin_service;
pub mod daemon;
mod drain;
pub mod health;
mod mocks;
mod records;
pub mod reload;
pub mod server;
pub mod signals;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use tokio::runtime::Handle;

use crate::config::{self, Environment, Loaded, Problem, Problems, ProcessEnv};
use crate::core::limits::READ_ON_MAX;
use crate::core::time::WallTime;
use crate::ledger::store::Reader;
use crate::mock::Catalog;
use crate::policy::buffered::BufferedBytes;
use crate::policy::overload::Occupancy;
use crate::policy::snapshot::Snapshot;
use crate::proxy::credentials::Credentials;
use crate::proxy::gateway::Gateway;
use crate::proxy::health_checks::HealthChecks;
use crate::proxy::host::Clock;
use crate::proxy::inflight::InFlight;
use crate::proxy::lifecycle::Lifecycle;
use crate::proxy::operation::Surroundings;
use crate::proxy::prepared::{PrepareError, Prepared, Shared};
use crate::proxy::resolver::Resolver;
use crate::store::look;
use crate::telemetry::{ReloadResult, Setup, Telemetry};

use mocks::Mocks;
use records::Records;

/// Everything that lives as long as the process.
pub struct App {
    file: PathBuf,
    /// What requests share.
    pub gateway: Arc<Gateway>,
    /// Counts and records.
    pub telemetry: Arc<Telemetry>,
    /// Names of providers.
    pub resolver: Arc<Resolver>,
    credentials: Credentials,
    health: HealthChecks,
    mocks: Mocks,
    records: Records,
    /// Whoever looks into the store of records, if there is one.
    reader: Option<Arc<dyn Reader>>,
    /// The snapshot of the start: what it says of listeners and threads stays in force until the end.
    started: Arc<Snapshot>,
    last_load: Mutex<LastLoad>,
    /// One reload at a time; a signal that comes meanwhile starts another afterwards.
    reloading: tokio::sync::Mutex<()>,
}

/// What became of the last load.
#[derive(Debug, Clone)]
pub struct LastLoad {
    /// When the snapshot in force was loaded.
    pub loaded_at: WallTime,
    /// Why the last reload was refused, if it was.
    pub error: Option<String>,
}

/// Why the process cannot start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The configuration has errors.
    #[error("{0}")]
    Config(Problems),
    /// It cannot be put into force.
    #[error(transparent)]
    Prepare(#[from] PrepareError),
    /// An embedded provider cannot be started.
    #[error("providers.{name}.mock: {source}")]
    Mock {
        /// The provider.
        name: String,
        /// Why.
        source: std::io::Error,
    },
    /// The store of records cannot be used.
    #[error("{0}")]
    Ledger(String),
}

impl App {
    /// Loads the configuration and puts the pieces together. Embedded providers run on `background`.
    pub async fn load(file: PathBuf, background: &Handle) -> Result<Arc<App>, StartError> {
        let loaded = first_load(&file).map_err(StartError::Config)?;
        warn_of(&loaded.warnings);
        let snapshot = Arc::new(loaded.snapshot);
        let (resolver, mocks) = (
            Arc::new(Resolver::default()),
            Mocks::new(background.clone()),
        );
        mocks.start_all(&snapshot)?;
        let clock = Clock::start();
        let buffered = Arc::new(BufferedBytes::default());
        let occupancy = Arc::new(Occupancy::default());
        let records = Records::start(&snapshot.ledger).map_err(StartError::Ledger)?;
        let recording = records.recording.as_ref();
        let setup = Setup {
            buffered: Arc::clone(&buffered),
            occupancy: Arc::clone(&occupancy),
            book: Arc::clone(&records.book),
            recording: recording.map(|recording| Arc::clone(recording.counts())),
            ..Setup::in_memory()
        };
        let strict = recording.and_then(|recording| recording.strict().cloned());
        let telemetry = Telemetry::with(match &records.boot_id {
            Some(boot_id) => Setup {
                boot_id: Arc::clone(boot_id),
                ..setup
            },
            None => setup,
        });
        let credentials = Credentials::new(background.clone(), clock, Arc::clone(&telemetry) as _);
        let health = HealthChecks::new(background.clone());
        let shared = Shared {
            resolver: &resolver,
            credentials: &credentials,
            health: &health,
        };
        let prepared = Prepared::new(Arc::clone(&snapshot), &shared, |provider| {
            mocks.address(provider)
        })?;
        prepared.resolve().await;
        prepared.tokens().await;

        telemetry.adopt(&snapshot, ReloadResult::Initial);
        let gateway = Gateway {
            config: ArcSwap::from_pointee(prepared),
            around: Surroundings {
                clock,
                observer: Arc::clone(&telemetry) as _,
                lifecycle: Lifecycle::default(),
                inflight: InFlight::default(),
                strict,
                drains: Arc::new(tokio::sync::Semaphore::new(READ_ON_MAX)),
            },
            buffered,
            occupancy,
            turned_away: Arc::default(),
        };
        Ok(Arc::new(App {
            file,
            gateway: Arc::new(gateway),
            telemetry,
            resolver,
            credentials,
            health,
            mocks,
            records,
            reader: look::reader(&snapshot.ledger.store).ok(),
            started: snapshot,
            last_load: Mutex::new(LastLoad {
                loaded_at: clock.wall(),
                error: None,
            }),
            reloading: tokio::sync::Mutex::new(()),
        }))
    }

    /// The snapshot in force.
    pub fn snapshot(&self) -> Arc<Snapshot> {
        Arc::clone(&self.gateway.config.load().snapshot)
    }

    /// Whether requests should be sent here.
    pub fn is_ready(&self) -> bool {
        !self.gateway.around.lifecycle.is_draining()
    }

    /// What became of the last load.
    pub fn last_load(&self) -> LastLoad {
        self.last_load.lock().clone()
    }

    /// Writes the records that are not written yet, within a bounded time. The last thing that a process does; a second call returns when
    /// the first one has.
    pub fn finish_records(&self) {
        self.records.finish();
    }

    /// Health checks that are wanted.
    pub fn health_checks(&self) -> usize {
        self.health.count()
    }

    /// What an embedded provider has seen, by the provider's name.
    pub fn mock(&self, provider: &str) -> Option<crate::mock::Recorder> {
        self.mocks.recorder(provider)
    }
}

/// Reads the configuration for the first time.
fn first_load(file: &Path) -> Result<Loaded, Problems> {
    let environment = Environment {
        env: &ProcessEnv,
        catalog: &Catalog,
        previous: None,
    };
    config::load(file, &environment)
}

fn warn_of(warnings: &[Problem]) {
    for warning in warnings {
        log::warn!("{warning}");
    }
}

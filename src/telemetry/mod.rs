//! Counts and records what the data plane reports: metrics, the access log, the records of operations.
//!
//! Not here: decisions, request state, HTTP. [`Telemetry`] implements [`Observer`](crate::proxy::host::Observer). Invariants:
//! one counter per fact, so that sums agree (admissions = the sum of `rondo_exhaustion_ends_total` and what is in flight);
//! labels come from the configuration and from closed enums, never from a client or a provider; on the hot path a series is found
//! by position, not by its labels.

mod access_log;
mod family;
mod generations;
mod labels;
mod ledger;
pub mod logger;
mod metrics;
mod process;
mod scrape;
mod series;
mod sink;
mod tally;
mod totals;

pub use access_log::{operation_line, refusal_line};
pub use series::{RouteCounters, TargetCounters};

use std::sync::{Arc, Mutex, PoisonError};

use generations::Generations;
use metrics::Families;
use prometheus::TextEncoder;
use rand::rngs::SmallRng;
use rand::{RngCore, SeedableRng};

use crate::ledger::{Book, Record};
use crate::policy::buffered::BufferedBytes;
use crate::policy::overload::Occupancy;
use crate::policy::snapshot::Snapshot;
use crate::proxy::host::Clock;
use crate::store::Counts;

/// How a (re)load of the configuration went.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ReloadResult {
    /// The load at start. It is no reload and is not counted as one.
    Initial,
    /// A new snapshot took over.
    Success,
    /// The file was read and changes nothing.
    Unchanged,
    /// The file was refused; the last good snapshot stays.
    Failure,
}

impl ReloadResult {
    /// The `result` label; `None` for what is not counted.
    pub const fn label(self) -> Option<&'static str> {
        match self {
            ReloadResult::Initial => None,
            ReloadResult::Success => Some("success"),
            ReloadResult::Unchanged => Some("unchanged"),
            ReloadResult::Failure => Some("failure"),
        }
    }
}

/// What telemetry is built from.
pub struct Setup {
    /// The process's account of held bodies, read at every scrape.
    pub buffered: Arc<BufferedBytes>,
    /// What is under way in the process, likewise.
    pub occupancy: Arc<Occupancy>,
    /// Names this process in the records.
    pub boot_id: Arc<str>,
    /// The records. Whoever collects them holds it as well.
    pub book: Arc<Book>,
    /// What recording counts, when there is a store.
    pub recording: Option<Arc<Counts>>,
}

impl Setup {
    /// Records in memory alone, under a boot id drawn by chance.
    pub fn in_memory() -> Setup {
        Setup {
            buffered: Arc::default(),
            occupancy: Arc::default(),
            boot_id: Arc::from(format!("{:016x}", SmallRng::from_os_rng().next_u64())),
            book: Arc::default(),
            recording: None,
        }
    }
}

impl std::fmt::Debug for Setup {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Setup")
            .field("boot_id", &self.boot_id)
            .finish_non_exhaustive()
    }
}

/// The process's counters, its access log, and the book of its operations.
#[derive(Debug)]
pub struct Telemetry {
    families: Arc<Families>,
    generations: Generations,
    buffered: Arc<BufferedBytes>,
    occupancy: Arc<Occupancy>,
    boot_id: Arc<str>,
    book: Arc<Book>,
    recording: Option<Arc<Counts>>,
    clock: Clock,
    /// Gauges that are read at a scrape are written before it is encoded; one scrape at a time.
    scrape: Mutex<()>,
}

impl Telemetry {
    /// Telemetry that keeps its records in memory alone, under a boot id drawn by chance.
    pub fn new(buffered: Arc<BufferedBytes>) -> Arc<Telemetry> {
        Telemetry::with(Setup {
            buffered,
            ..Setup::in_memory()
        })
    }

    /// Telemetry with its surroundings.
    pub fn with(setup: Setup) -> Arc<Telemetry> {
        let families = Arc::new(Families::new());
        process::register(families.registry());
        Arc::new(Telemetry {
            generations: Generations::new(Arc::clone(&families.totals)),
            families,
            buffered: setup.buffered,
            occupancy: setup.occupancy,
            boot_id: setup.boot_id,
            book: setup.book,
            recording: setup.recording,
            clock: Clock::start(),
            scrape: Mutex::new(()),
        })
    }

    /// Tells how a load went and which snapshot is in force now. Called before the snapshot serves its first operation.
    ///
    /// Series of routes that a reload removed stay until the process ends: counters never go backwards, and operations in flight
    /// still count on them. Only `rondo_exhaustion_waiting` and `rondo_config_info` follow the snapshot in force.
    pub fn adopt(&self, snapshot: &Arc<Snapshot>, result: ReloadResult) {
        if let Some(label) = result.label() {
            self.families.reloads.with_label_values(&[label]).inc();
        }
        if result == ReloadResult::Failure {
            return;
        }
        let _turn = self.scrape.lock().unwrap_or_else(PoisonError::into_inner);
        self.generations.adopt(snapshot);
        self.families.config_info.reset();
        let info = self
            .families
            .config_info
            .with_label_values(&[&snapshot.digest]);
        info.set(1);
        let seconds = self.clock.wall().unix_micros() / 1_000_000;
        self.families.reload_success_timestamp.set(seconds);
    }

    /// All metrics in the Prometheus text format.
    pub fn render(&self) -> String {
        let _turn = self.scrape.lock().unwrap_or_else(PoisonError::into_inner);
        let gauges = [
            (&self.families.buffered_bytes, self.buffered.held()),
            (&self.families.operations, self.occupancy.operations.taken()),
            (
                &self.families.connections,
                self.occupancy.connections.taken(),
            ),
        ];
        for (gauge, value) in gauges {
            gauge.set(i64::try_from(value).unwrap_or(i64::MAX));
        }
        self.families.waiting.reset();
        self.families.provider_healthy.reset();
        for route in self.generations.current_routes() {
            let waiting = i64::try_from(route.waiters.waiting()).unwrap_or(i64::MAX);
            let gauge = self.families.waiting.with_label_values(&[&route.name]);
            gauge.set(waiting);
            for health in route
                .targets
                .iter()
                .filter_map(|target| target.health.as_ref())
            {
                let gauge = &self.families.provider_healthy;
                let gauge = gauge.with_label_values(&[&health.provider]);
                gauge.set(i64::from(health.is_healthy()));
            }
        }
        self.families
            .ledger
            .read(&self.book, self.recording.as_deref());
        let mut text = String::new();
        if let Err(error) = TextEncoder::new().encode_utf8(&self.families.gather(), &mut text) {
            log::error!("metrics cannot be written: {error}");
        }
        text
    }

    /// What was counted for a route of the snapshot in force, for the admin page.
    pub fn counters(&self, route: &str) -> RouteCounters {
        let series = self.generations.by_name(route);
        series.map(|series| series.read()).unwrap_or_default()
    }

    /// At most `limit` records that fit, newest first: those in flight, then those that ended last.
    pub fn recent(&self, limit: usize, fits: impl Fn(&Record) -> bool) -> Vec<Arc<Record>> {
        self.book.recent(limit, fits)
    }

    /// The records themselves.
    pub fn book(&self) -> &Book {
        &self.book
    }
}

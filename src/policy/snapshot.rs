//! What one reload produced: everything an operation needs to know, compiled once.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use super::affinity::Affinity;
use super::clients::ClientKeys;
use super::pace::Pace;
use super::provider::Provider;
use super::route::{ModelPattern, Route};

/// An immutable configuration. Cheap to share; never changed.
#[derive(Debug)]
pub struct Snapshot {
    /// Counts from 1; a reload that changes something adds one.
    pub generation: u64,
    /// Hex digest of the configuration's text, for `rondo_config_info`.
    pub digest: String,
    /// Providers in configured order.
    pub providers: Vec<Arc<Provider>>,
    /// Routes in configured order.
    pub routes: Vec<Arc<Route>>,
    /// Process-wide settings.
    pub server: ServerSettings,
    /// The admin plane.
    pub admin: AdminSettings,
    /// Where operations are recorded.
    pub ledger: LedgerSettings,
    /// Built once from `routes`.
    pub models: ModelIndex,
    /// Whose answers were good. Shared with the snapshots before and after.
    pub affinity: Arc<Affinity>,
    /// Which clients are known, and whether others are refused.
    pub clients: ClientKeys,
}

impl Snapshot {
    /// The route for a public model name: an exact name first, then the longest prefix.
    pub fn route(&self, model: &str) -> Option<&Arc<Route>> {
        self.routes.get(self.models.find(model)?)
    }

    /// The provider of a target.
    pub fn provider(&self, index: usize) -> Option<&Arc<Provider>> {
        self.providers.get(index)
    }
}

/// `server`. What is marked *restart* is read when the process starts; a reload that changes it says so.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerSettings {
    /// Listeners (restart).
    pub listen: Vec<Listen>,
    /// Worker threads of the data plane (restart).
    pub threads: usize,
    /// Largest request body; 413 above.
    pub request_body_max: usize,
    /// Bodies held over the whole process (R-B7).
    pub buffered_bytes_max: u64,
    /// Grace for operations in flight after SIGTERM (restart).
    pub shutdown_grace: Duration,
    /// Whether `x-rondo-*` headers are sent.
    pub route_headers: bool,
    /// Time for a request head and for each pause inside a request body.
    pub client_read_timeout: Duration,
    /// Longest time that a client leaves a piece of its answer unread.
    pub client_write_timeout: Duration,
    /// Time for a whole request head.
    pub client_header_timeout: Duration,
    /// Bytes a second below which an upload is refused; `None` asks for no rate.
    pub upload_rate_min: Option<u64>,
    /// Bytes a second below which a client that keeps its answer waiting counts as gone; `None` asks for no rate.
    pub download_rate_min: Option<u64>,
    /// Operations at once; above it a new request gets 503.
    pub in_flight_max: u64,
    /// Client connections at once; above it a new one is turned away.
    pub connections_max: u64,
    /// Idle time of a client connection between requests (for HTTP/2: restart).
    pub keepalive_timeout: Duration,
}

impl ServerSettings {
    /// What an upload is held to.
    pub const fn upload_pace(&self) -> Pace {
        Pace {
            bytes_per_second: self.upload_rate_min,
            pause_max: self.client_read_timeout,
        }
    }

    /// What the reader of an answer is held to.
    pub const fn download_pace(&self) -> Pace {
        Pace {
            bytes_per_second: self.download_rate_min,
            pause_max: self.client_write_timeout,
        }
    }
}

/// One listener.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listen {
    /// `host:port`.
    pub address: String,
    /// Certificate and key files, for TLS with ALPN h2 and http/1.1.
    pub tls: Option<ListenTls>,
}

/// PEM files of a listener.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListenTls {
    /// Certificate chain.
    pub cert: String,
    /// Private key.
    pub key: String,
}

/// `admin`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AdminSettings {
    /// `host:port` (restart); `None` when the admin plane is off.
    pub listen: Option<String>,
    /// Bearer token; required when `listen` is not a loopback address.
    pub token: Option<super::secret::Secret>,
}

/// `ledger` (restart).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LedgerSettings {
    /// Where the records go.
    pub store: LedgerStore,
    /// When a record counts as written.
    pub durability: Durability,
    /// Age at which records are deleted.
    pub keep: Duration,
    /// Bytes that wait on disk at most while the store is away.
    pub spool_bytes_max: u64,
    /// Directory of what the process keeps beside the store; by default beside its file.
    pub state_dir: Option<String>,
}

/// `ledger.store` with what that store needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LedgerStore {
    /// Nothing is recorded.
    Off,
    /// A SQLite file; a relative path starts at the working directory.
    Sqlite {
        /// The database file.
        path: String,
    },
    /// A PostgreSQL database.
    Postgres {
        /// Connection URL. It carries a password, so it is a secret.
        url: super::secret::Secret,
    },
}

/// `ledger.durability`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// Records are written in groups; a crash of the machine may lose the last group.
    Batch,
    /// An attempt's pending record is on disk before its request is sent.
    Strict,
}

impl Durability {
    /// The YAML value.
    pub const fn label(self) -> &'static str {
        match self {
            Durability::Batch => "batch",
            Durability::Strict => "strict",
        }
    }
}

/// Finds the route of a model in two look-ups, whatever the number of routes.
#[derive(Debug, Default)]
pub struct ModelIndex {
    exact: HashMap<Box<str>, usize>,
    prefixes: HashMap<Box<str>, usize>,
    prefix_lengths: Vec<usize>,
}

impl ModelIndex {
    /// Builds the index. A name that two routes claim goes to the first; the compiler refuses such a configuration.
    pub fn new(routes: &[Arc<Route>]) -> ModelIndex {
        let mut index = ModelIndex::default();
        for (position, route) in routes.iter().enumerate() {
            for pattern in &route.models {
                match pattern {
                    ModelPattern::Exact(name) => {
                        index.exact.entry(name.clone()).or_insert(position);
                    }
                    ModelPattern::Prefix(prefix) => {
                        index.prefixes.entry(prefix.clone()).or_insert(position);
                    }
                }
            }
        }
        index.prefix_lengths = index.prefixes.keys().map(|prefix| prefix.len()).collect();
        index.prefix_lengths.sort_unstable_by(|a, b| b.cmp(a));
        index.prefix_lengths.dedup();
        index
    }

    /// Position of the route in [`Snapshot::routes`].
    pub fn find(&self, model: &str) -> Option<usize> {
        if let Some(position) = self.exact.get(model) {
            return Some(*position);
        }
        self.prefix_lengths
            .iter()
            .filter_map(|length| model.get(..*length))
            .find_map(|prefix| self.prefixes.get(prefix).copied())
    }
}

//! The process's logger: `env_logger`, with what libraries below `info` would tell of requests left out.
//!
//! Pingora 0.9.1 prints whole request headers at `debug` and `trace`, credentials and queries included; so do HTTP libraries. No setting
//! of `RUST_LOG` may put a secret into a log (R-X2), so their levels end at `info`
//! (`a_clients_credentials_reach_no_target`).

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use log::{Level, Log, Metadata, Record};

/// Beginnings of the targets whose lower levels are left out.
const TALKATIVE: &[&str] = &["pingora", "h2", "hyper", "rustls", "tokio_rustls"];

/// Beginnings of the targets whose lines any client can cause, as often as it likes: a handshake that breaks, half a head. One a second is
/// told; counters tell the rest.
const PROVOKED: &[&str] = &["pingora_core::services::listening", "pingora_core::apps"];

/// The second in which such a line was last told.
static TOLD_AT: AtomicU64 = AtomicU64::new(0);

/// A logger that leaves out what may hold secrets, and what would let a client fill the disk.
#[derive(Debug)]
pub struct Discreet<L>(pub L);

/// Installs the logger. Levels come from `RUST_LOG`, by default `info`.
pub fn init() {
    let environment = env_logger::Env::default().default_filter_or("info");
    let inner = env_logger::Builder::from_env(environment).build();
    let level = inner.filter();
    // Fails only when a logger is installed already, which then stays.
    if log::set_boxed_logger(Box::new(Discreet(inner))).is_ok() {
        log::set_max_level(level);
    }
}

fn may_tell(metadata: &Metadata<'_>) -> bool {
    let target = metadata.target();
    metadata.level() <= Level::Info || !TALKATIVE.iter().any(|name| target.starts_with(name))
}

fn is_provoked(target: &str) -> bool {
    PROVOKED.iter().any(|name| target.starts_with(name))
}

/// Whether none was told in this second.
fn is_due(now: SystemTime) -> bool {
    let second = now.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    TOLD_AT.swap(second, Ordering::Relaxed) != second
}

impl<L: Log> Log for Discreet<L> {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        may_tell(metadata) && self.0.enabled(metadata)
    }

    fn log(&self, record: &Record<'_>) {
        let metadata = record.metadata();
        let is_due = || !is_provoked(metadata.target()) || is_due(SystemTime::now());
        if may_tell(metadata) && is_due() {
            self.0.log(record);
        }
    }

    fn flush(&self) {
        self.0.flush();
    }
}

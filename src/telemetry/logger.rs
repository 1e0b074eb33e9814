//! The process's logger: `env_logger`, with what libraries below `info` would tell of requests left out.
//!
//! Pingora 0.9.1 prints whole request headers at `debug` and `trace`, credentials and queries included; so do HTTP libraries. No setting
//! of `RUST_LOG` may put a secret into a log (R-X2), so their levels end at `info`
//! (`a_clients_credentials_reach_no_target`).

use log::{Level, Log, Metadata, Record};

/// Beginnings of the targets whose lower levels are left out.
const TALKATIVE: &[&str] = &["pingora", "h2", "hyper", "rustls", "tokio_rustls"];

/// A logger that leaves out what may hold secrets.
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

impl<L: Log> Log for Discreet<L> {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        may_tell(metadata) && self.0.enabled(metadata)
    }

    fn log(&self, record: &Record<'_>) {
        if may_tell(record.metadata()) {
            self.0.log(record);
        }
    }

    fn flush(&self) {
        self.0.flush();
    }
}

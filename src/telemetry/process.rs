//! `process_*` of the operating system, where the client library can read them.

use prometheus::Registry;

/// Adds the process's own metrics to the registry.
#[cfg(target_os = "linux")]
pub(super) fn register(registry: &Registry) {
    let collector = prometheus::process_collector::ProcessCollector::for_self();
    if let Err(error) = registry.register(Box::new(collector)) {
        log::warn!("process metrics are off: {error}");
    }
}

/// Elsewhere there are none.
#[cfg(not(target_os = "linux"))]
pub(super) fn register(_registry: &Registry) {}

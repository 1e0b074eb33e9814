//! How many requests are in flight, for the drain.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A shared count.
#[derive(Debug, Clone, Default)]
pub struct InFlight(Arc<AtomicUsize>);

/// One request in flight; dropping it ends it.
#[derive(Debug)]
#[must_use]
pub struct Flight(Arc<AtomicUsize>);

impl InFlight {
    /// Counts one request until the returned value is dropped.
    pub fn enter(&self) -> Flight {
        self.0.fetch_add(1, Ordering::AcqRel);
        Flight(Arc::clone(&self.0))
    }

    /// Requests in flight.
    pub fn count(&self) -> usize {
        self.0.load(Ordering::Acquire)
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

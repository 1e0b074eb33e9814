//! Sends in flight at a target, for balancing by load.

use std::sync::Arc;

use super::sync::{AtomicU64, Ordering};

/// A count that operations share. It outlives snapshots.
#[derive(Debug, Default)]
pub struct Load {
    sends: AtomicU64,
}

impl Load {
    /// Counts one send until the returned value is dropped.
    pub fn enter(self: &Arc<Self>) -> InFlight {
        self.sends.fetch_add(1, Ordering::AcqRel);
        InFlight(Arc::clone(self))
    }

    /// Sends in flight at this moment.
    pub fn sends(&self) -> u64 {
        self.sends.load(Ordering::Acquire)
    }
}

/// One send in flight; dropping it ends it.
#[derive(Debug)]
#[must_use]
pub struct InFlight(Arc<Load>);

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.sends.fetch_sub(1, Ordering::AcqRel);
    }
}

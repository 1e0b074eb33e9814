//! How many of a kind there are at once: operations, client connections, operations of one client.
//!
//! Not here: how many there may be. The bound comes with each question, so that a reload changes it at once and loses no count.
//! Invariants: the bound is asked and the seat taken in one step; what is taken is given back by the guard, however its holder ends.

use std::sync::Arc;

use super::sync::{AtomicU64, Ordering};

/// A count of seats that are taken.
#[derive(Debug, Default)]
pub struct Seats {
    taken: AtomicU64,
}

impl Seats {
    /// Takes a seat unless `max` are taken already.
    pub fn take(self: &Arc<Self>, max: u64) -> Option<Seat> {
        let one_more = |taken: u64| (taken < max).then(|| taken + 1);
        let took = self
            .taken
            .fetch_update(Ordering::AcqRel, Ordering::Relaxed, one_more);
        took.ok().map(|_| Seat(Arc::clone(self)))
    }

    /// Seats that are taken at this moment.
    pub fn taken(&self) -> u64 {
        self.taken.load(Ordering::Relaxed)
    }
}

/// A seat; dropping it gives it back.
#[derive(Debug)]
#[must_use]
pub struct Seat(Arc<Seats>);

impl Drop for Seat {
    fn drop(&mut self) {
        self.0.taken.fetch_sub(1, Ordering::AcqRel);
    }
}

//! What is in flight: how many requests, and answers read on after their clients have left, for the drain; and which operations, for the
//! end of the process.
//!
//! Not here: waiting. Invariant: an operation is listed from before its record is begun until it is dropped, so that a process that ends
//! with operations in flight can settle each of them first (R-L2).

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use super::operation::OperationCell;

/// Parts of the list that are locked apart, so that the data plane's threads seldom meet. A power of two.
const SHARDS: usize = 16;

/// A shared count and list.
#[derive(Clone, Default)]
pub struct InFlight(Arc<Shared>);

/// By address. As long as the requests that it counts: the list needs no bound of its own.
type Shard = Mutex<HashMap<usize, Weak<OperationCell>>>;

#[derive(Default)]
struct Shared {
    count: AtomicUsize,
    operations: [Shard; SHARDS],
}

/// One request in flight; dropping it ends it.
#[must_use]
pub struct Flight(InFlight);

impl InFlight {
    /// Counts one request until the returned value is dropped.
    pub fn enter(&self) -> Flight {
        self.0.count.fetch_add(1, Ordering::AcqRel);
        Flight(self.clone())
    }

    /// Requests in flight.
    pub fn count(&self) -> usize {
        self.0.count.load(Ordering::Acquire)
    }

    /// Lists an operation until it is struck off.
    pub(super) fn enlist(&self, operation: &Arc<OperationCell>) {
        let address = Arc::as_ptr(operation).addr();
        if let Some(shard) = self.shard(address) {
            shard.lock().insert(address, Arc::downgrade(operation));
        }
    }

    /// Strikes an operation off.
    pub(super) fn strike(&self, operation: &OperationCell) {
        let address = std::ptr::from_ref(operation).addr();
        if let Some(shard) = self.shard(address) {
            shard.lock().remove(&address);
        }
    }

    /// Settles every operation that is still there, as dropped. For the last moment of the process: whoever serves one finds it ended.
    pub fn settle_all(&self) {
        for shard in &self.0.operations {
            let listed: Vec<_> = shard.lock().values().filter_map(Weak::upgrade).collect();
            for operation in listed {
                operation.report_end();
            }
        }
    }

    /// Allocations are aligned and spread; the low bits say nothing.
    fn shard(&self, address: usize) -> Option<&Shard> {
        self.0.operations.get((address >> 6) % SHARDS)
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        self.0.0.count.fetch_sub(1, Ordering::AcqRel);
    }
}

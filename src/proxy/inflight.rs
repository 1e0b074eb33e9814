//! What is in flight: how many requests, and answers read on after their clients have left, for the drain; and which operations, for the
//! end of the process.
//!
//! Not here: the drain's wait. Invariants: an operation is listed from before its record is begun until it is dropped, and its report is
//! counted from before that until it was told, so that a process that ends with operations in flight can settle each of them first, and
//! leave no report half told (R-L2).

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::thread::park_timeout;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::operation::OperationCell;

/// Parts of the list that are locked apart, so that the data plane's threads seldom meet. A power of two.
const SHARDS: usize = 16;

/// Time for reports that other threads are about to tell when the process ends. Each takes microseconds; a thread that is not given any
/// processor for so long is not waited for.
const REPORTS_TIME: Duration = Duration::from_secs(1);
/// How often that is looked for.
const REPORTS_LOOK: Duration = Duration::from_millis(1);

/// A shared count and list.
#[derive(Clone, Default)]
pub struct InFlight(Arc<Shared>);

/// By address. As long as the requests that it counts: the list needs no bound of its own.
type Shard = Mutex<HashMap<usize, Weak<OperationCell>>>;

#[derive(Default)]
struct Shared {
    count: AtomicUsize,
    reports: AtomicUsize,
    operations: [Shard; SHARDS],
}

/// One request in flight; dropping it ends it.
#[must_use]
pub struct Flight(InFlight);

/// A report that is being told; dropping it says that it was.
#[must_use]
pub(super) struct Report<'a>(&'a AtomicUsize);

impl Drop for Report<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

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

    /// Counts the report of an operation's end until the returned value is dropped.
    pub(super) fn report(&self) -> Report<'_> {
        self.0.reports.fetch_add(1, Ordering::AcqRel);
        Report(&self.0.reports)
    }

    /// Settles every operation that is still there, as dropped, and waits for what other threads are settling. For the last moment of the
    /// process: whoever serves one finds it ended.
    pub fn settle_all(&self) {
        let ends = Instant::now() + REPORTS_TIME;
        while !self.settle_listed() && Instant::now() < ends {
            park_timeout(REPORTS_LOOK);
        }
    }

    /// Whether nothing is left to be told: an operation that is listed but has no holder any more is being dropped by another thread.
    fn settle_listed(&self) -> bool {
        let mut is_settled = true;
        for shard in &self.0.operations {
            let listed: Vec<_> = shard.lock().values().map(Weak::upgrade).collect();
            for operation in listed {
                match operation {
                    Some(operation) => operation.report_end(),
                    None => is_settled = false,
                }
            }
        }
        is_settled && self.0.reports.load(Ordering::Acquire) == 0
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

//! The operations that ended last, for the admin page: bounded, newest first, in memory alone.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::entry::Record;
use crate::core::limits::RECENT_OPERATIONS_MAX;

/// A bounded list of settled records. Writers push one pointer; readers copy pointers and look at the records outside the lock.
#[derive(Debug)]
pub struct Ring {
    records: Mutex<VecDeque<Arc<Record>>>,
    records_max: usize,
}

impl Default for Ring {
    fn default() -> Self {
        Ring::new(RECENT_OPERATIONS_MAX)
    }
}

impl Ring {
    /// An empty ring of at most `records_max` records.
    pub fn new(records_max: usize) -> Ring {
        Ring {
            records: Mutex::new(VecDeque::with_capacity(records_max)),
            records_max,
        }
    }

    /// Adds a record; the oldest makes room.
    pub fn push(&self, record: Arc<Record>) {
        let mut records = self.lock();
        let surplus = if records.len() >= self.records_max {
            records.pop_back()
        } else {
            None
        };
        if self.records_max > 0 {
            records.push_front(record);
        }
        drop(records);
        // Freed outside the lock.
        drop(surplus);
    }

    /// Puts what `made` gives in the place of the record with this number, if it is still here.
    pub fn replace(&self, sequence: u64, made: impl FnOnce(&Record) -> Option<Record>) {
        let mut records = self.lock();
        let mut found = records.iter_mut();
        let Some(place) = found.find(|record| record.sequence == sequence) else {
            return;
        };
        if let Some(record) = made(place) {
            *place = Arc::new(record);
        }
    }

    /// All records, newest first.
    pub fn all(&self) -> Vec<Arc<Record>> {
        self.lock().iter().cloned().collect()
    }

    /// At most `limit` records that fit, newest first.
    pub fn recent(&self, limit: usize, fits: impl Fn(&Record) -> bool) -> Vec<Arc<Record>> {
        let all = self.all();
        all.into_iter()
            .filter(|record| fits(record))
            .take(limit)
            .collect()
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Arc<Record>>> {
        self.records.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

//! The records of all operations in flight, and the ring of those that ended.
//!
//! An operation is known by the address of its id's allocation, not by the id's text: two clients may send one `x-request-id` at
//! the same time, and each gets its own record. The book holds the id while the record is open, so the address stays unique.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::entry::{AttemptEntry, Moment, OperationEntry, Record};
use super::open::{AttemptFacts, Ending, OpenOperation, Opening};
use super::ring::Ring;
use crate::executor::effect::Note;

/// Parts of the book that are locked apart, so that the data plane's threads seldom meet. A power of two.
const SHARDS: usize = 16;
/// Operations that one part may hold open; beyond it an operation goes unrecorded and is counted as lost. Half a million operations
/// in flight are more than one process has file descriptors for.
const OPEN_PER_SHARD_MAX: usize = 32_768;

/// Where rows go beyond this process's memory. Called on the data plane's threads: must not block (R-L7).
pub trait Recorder: Send + Sync + 'static {
    /// An operation is owned.
    fn operation_pending(&self, operation: &OperationEntry);
    /// An attempt is owned.
    fn attempt_pending(&self, attempt: &AttemptEntry);
    /// An attempt has reached its terminal state.
    fn attempt_settled(&self, attempt: &AttemptEntry);
    /// An operation has reached its terminal state; its attempts have theirs.
    fn operation_settled(&self, record: &Arc<Record>);
}

/// Names an operation in flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Key(usize);

impl Key {
    fn of(id: &Arc<str>) -> Key {
        Key(Arc::as_ptr(id).cast::<u8>().addr())
    }

    /// Allocations are aligned and spread; the low bits say nothing.
    const fn shard(self) -> usize {
        (self.0 >> 5) % SHARDS
    }
}

type Shard = Mutex<HashMap<Key, OpenOperation>>;

/// All open records, and the last settled ones.
#[derive(Default)]
pub struct Book {
    shards: [Shard; SHARDS],
    ring: Ring,
    begun: AtomicU64,
    lost: AtomicU64,
    recorder: Option<Arc<dyn Recorder>>,
}

impl std::fmt::Debug for Book {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Book")
            .field("begun", &self.begun)
            .field("lost", &self.lost)
            .finish_non_exhaustive()
    }
}

impl Book {
    /// A book that also hands its rows to `recorder`.
    pub fn new(recorder: Option<Arc<dyn Recorder>>) -> Book {
        Book {
            recorder,
            ..Book::default()
        }
    }

    /// Opens a record. `opening.operation_id` must be the allocation that later calls name.
    pub fn begin(&self, opening: Opening) {
        let id = Arc::clone(&opening.operation_id);
        let sequence = self.begun.fetch_add(1, Ordering::Relaxed) + 1;
        let open = OpenOperation::begin(sequence, opening);
        let key = Key::of(&id);
        let Some(mut shard) = self.shard(key) else {
            return;
        };
        if shard.len() >= OPEN_PER_SHARD_MAX {
            self.lost.fetch_add(1, Ordering::Relaxed);
            return;
        }
        if let Some(recorder) = &self.recorder {
            recorder.operation_pending(&open.record().operation);
        }
        let before = shard.insert(key, open);
        debug_assert!(before.is_none(), "an operation was opened twice");
    }

    /// Takes a note for the operation with this id.
    pub fn note(&self, id: &Arc<str>, note: &Note, facts: AttemptFacts<'_>, at: Moment) {
        let key = Key::of(id);
        let Some(mut shard) = self.shard(key) else {
            return;
        };
        let Some(open) = shard.get_mut(&key) else {
            return;
        };
        let Some(entry) = open.note(note, facts, at) else {
            return;
        };
        if let Some(recorder) = &self.recorder {
            match entry.delivery {
                None => recorder.attempt_pending(entry),
                Some(_) => recorder.attempt_settled(entry),
            }
        }
    }

    /// Settles the operation with this id: its record leaves the book and enters the ring. `None` when it was lost.
    pub fn end(&self, id: &Arc<str>, ending: &Ending) -> Option<Arc<Record>> {
        let key = Key::of(id);
        let open = self.shard(key)?.remove(&key)?;
        let record = Arc::new(open.end(ending));
        if let Some(recorder) = &self.recorder {
            recorder.operation_settled(&record);
        }
        self.ring.push(Arc::clone(&record));
        Some(record)
    }

    /// At most `limit` records that fit, newest first: those in flight, then those that ended.
    pub fn recent(&self, limit: usize, fits: impl Fn(&Record) -> bool) -> Vec<Arc<Record>> {
        let mut records = self.open_now(limit, &fits);
        records.extend(self.ring.recent(limit, &fits));
        // An operation that ended between the two looks is in both: the settled one stands, since it sorts first.
        records.sort_by_key(|record| {
            let pending = record.operation.finished_at.is_none();
            (std::cmp::Reverse(record.sequence), pending)
        });
        records.dedup_by_key(|record| record.sequence);
        records.truncate(limit);
        records
    }

    /// The newest open records. Two passes, so that only `limit` records are copied and no lock is held for long.
    fn open_now(&self, limit: usize, fits: &impl Fn(&Record) -> bool) -> Vec<Arc<Record>> {
        let mut found: Vec<(u64, Key)> = Vec::new();
        for shard in &self.shards {
            let shard = lock(shard);
            let fitting = shard.iter().filter(|(_, open)| fits(open.record()));
            found.extend(fitting.map(|(key, open)| (open.record().sequence, *key)));
        }
        found.sort_unstable_by_key(|(sequence, _)| std::cmp::Reverse(*sequence));
        found
            .into_iter()
            .take(limit)
            .filter_map(|(sequence, key)| {
                let shard = self.shard(key)?;
                let record = shard.get(&key)?.record();
                (record.sequence == sequence).then(|| Arc::new(record.clone()))
            })
            .collect()
    }

    /// Operations in flight.
    pub fn open(&self) -> usize {
        self.shards.iter().map(|shard| lock(shard).len()).sum()
    }

    /// Operations that went unrecorded because the book was full.
    pub fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    /// The settled records.
    pub fn ring(&self) -> &Ring {
        &self.ring
    }

    fn shard(&self, key: Key) -> Option<MutexGuard<'_, HashMap<Key, OpenOperation>>> {
        self.shards.get(key.shard()).map(lock)
    }
}

fn lock(shard: &Shard) -> MutexGuard<'_, HashMap<Key, OpenOperation>> {
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}

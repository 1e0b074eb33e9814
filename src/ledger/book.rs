//! The records of all operations in flight, and the ring of those that ended.
//!
//! An operation is known by the address of its id's allocation, not by the id's text: two clients may send one `x-request-id` at
//! the same time, and each gets its own record. The book holds the id while the record is open, so the address stays unique.
//!
//! Rows that go further than this process's memory are pulled, not pushed: a change of an open record costs at most one entry in its
//! part's list of fresh ones, under the lock that is held anyway, and an end costs one push of a pointer. [`Book::collect`] does the
//! rest elsewhere. Invariant: after a collection every change made before it was handed out once, or superseded by a later one; where
//! only ripe records are asked for, every change made before the collection before it.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::coalesce::coalesce;
use super::entry::{Moment, Record};
use super::open::{AttemptFacts, Ending, OpenOperation, Opening};
use super::outbox::Outbox;
use super::ring::Ring;
use super::store::{LateUsage, Piece};
use crate::core::time::WallTime;
use crate::executor::effect::Note;

/// Parts of the book that are locked apart, so that the data plane's threads seldom meet. A power of two.
const SHARDS: usize = 16;
/// Operations that one part may hold open; beyond it an operation goes unrecorded and is counted as lost. Half a million operations
/// in flight are more than one process has file descriptors for.
const OPEN_PER_SHARD_MAX: usize = 32_768;
/// Entries of one part's list of fresh records. Every open record once, and as many that ended since the last collection; then the list
/// is thinned out.
const FRESH_PER_SHARD_MAX: usize = 2 * OPEN_PER_SHARD_MAX;

/// Names an operation in flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
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

/// Which open records are collected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Which {
    /// All that changed.
    All,
    /// Those that had changed by the last collection already. Most operations that are quick end in between, and are written once.
    Ripe,
}

/// An open record, and whether its part's list of fresh ones names it.
struct Slot {
    open: OpenOperation,
    listed: bool,
}

/// One part of the book.
#[derive(Default)]
struct Part {
    open: HashMap<Key, Slot>,
    /// Records that changed since the last collection. May name some that have ended since.
    fresh: Vec<Key>,
    /// Those that had changed by the last collection and were given time to end.
    ripe: Vec<Key>,
}

impl Part {
    /// Nobody collects in time: what has ended needs no place in the list. What is left is one entry for each open record.
    fn thin(&mut self) {
        let open = &self.open;
        let mut kept = HashSet::new();
        self.fresh
            .retain(|key| open.get(key).is_some_and(|slot| slot.listed) && kept.insert(*key));
    }

    /// Copies of the listed records that are still open.
    fn collect(&mut self, which: Which, into: &mut Vec<Arc<Record>>) {
        let mut due = std::mem::take(&mut self.ripe);
        match which {
            Which::All => due.append(&mut self.fresh),
            Which::Ripe => std::mem::swap(&mut self.fresh, &mut self.ripe),
        }
        for key in due {
            // An address may be listed for a record that ended and again for the one that came after it: the mark tells them apart.
            if let Some(slot) = self.open.get_mut(&key).filter(|slot| slot.listed) {
                slot.listed = false;
                into.push(Arc::new(slot.open.record().clone()));
            }
        }
    }
}

type Shard = Mutex<Part>;

/// All open records, and the last settled ones.
#[derive(Default)]
pub struct Book {
    shards: [Shard; SHARDS],
    ring: Ring,
    begun: AtomicU64,
    lost: AtomicU64,
    /// Where settled records leave by; `None` when nobody collects.
    outbox: Option<Outbox>,
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
    /// A book whose rows are collected. Without an outbox its records stay in memory alone, and nothing is kept for a collector.
    pub fn new(outbox: Option<Outbox>) -> Book {
        Book {
            outbox,
            ..Book::default()
        }
    }

    /// Opens a record. `opening.operation_id` must be the allocation that later calls name.
    pub fn begin(&self, opening: Opening) {
        let id = Arc::clone(&opening.operation_id);
        let sequence = self.begun.fetch_add(1, Ordering::Relaxed) + 1;
        let open = OpenOperation::begin(sequence, opening);
        let key = Key::of(&id);
        let Some(mut part) = self.shard(key) else {
            return;
        };
        if part.open.len() >= OPEN_PER_SHARD_MAX {
            self.lost.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let listed = self.outbox.is_some();
        let before = part.open.insert(key, Slot { open, listed });
        debug_assert!(before.is_none(), "an operation was opened twice");
        if listed {
            part.fresh.push(key);
        }
        if part.fresh.len() > FRESH_PER_SHARD_MAX {
            part.thin();
        }
    }

    /// Takes a note for the operation with this id.
    pub fn note(&self, id: &Arc<str>, note: &Note, facts: AttemptFacts<'_>, at: Moment) {
        let key = Key::of(id);
        let Some(mut shard) = self.shard(key) else {
            return;
        };
        let Part { open, fresh, .. } = &mut *shard;
        let Some(slot) = open.get_mut(&key) else {
            return;
        };
        let changed = slot.open.note(note, facts, at).is_some();
        if changed && self.outbox.is_some() && !slot.listed {
            slot.listed = true;
            fresh.push(key);
        }
    }

    /// Settles the operation with this id: its record leaves the book and enters the ring. `None` when it was lost.
    pub fn end(&self, id: &Arc<str>, ending: &Ending) -> Option<Arc<Record>> {
        let key = Key::of(id);
        let mut part = self.shard(key)?;
        let slot = part.open.remove(&key)?;
        let record = Arc::new(slot.open.end(ending));
        // Before the lock is given back, so that who looks finds it in one of the two.
        self.ring.push(Arc::clone(&record));
        drop(part);
        if let Some(outbox) = &self.outbox {
            outbox.push(Piece::Live(Arc::clone(&record)));
        }
        Some(record)
    }

    /// Usage that came after the end of its operation. Where the record is still in the ring, a new one takes its place.
    pub fn amend(&self, usage: LateUsage) {
        self.ring
            .replace(usage.sequence, |record| usage.applied(record));
        if let Some(outbox) = &self.outbox {
            outbox.push(Piece::Usage(usage));
        }
    }

    /// What changed since the last collection: open records as they stand, then those that ended. An operation that began and ended
    /// in between is handed out once, settled.
    pub fn collect(&self) -> Vec<Piece> {
        self.collect_open(Which::All)
    }

    /// The same, of the open records only these. What is left waits for the next collection, not longer.
    pub fn collect_open(&self, which: Which) -> Vec<Piece> {
        let Some(outbox) = &self.outbox else {
            return Vec::new();
        };
        // In this order: a record that ends between the two is handed out as open and then as settled, never only as open.
        let mut open = Vec::new();
        for shard in &self.shards {
            lock(shard).collect(which, &mut open);
        }
        coalesce(open, outbox.take())
    }

    /// Pieces that wait for the next collection, open records apart.
    pub fn uncollected(&self) -> usize {
        self.outbox.as_ref().map_or(0, Outbox::len)
    }

    /// At most `limit` records that fit, newest first, in the order of stores: by start, then by id.
    pub fn recent(&self, limit: usize, fits: impl Fn(&Record) -> bool) -> Vec<Arc<Record>> {
        let mut records = self.open_now(limit, &fits);
        // The ring is in the order of ends, so all of it is looked at.
        records.extend(self.ring.recent(usize::MAX, &fits));
        // An operation that ended between the two looks is in both: the settled one stands, since it sorts first.
        records.sort_by(|one, other| {
            let pending = |record: &Record| record.operation.finished_at.is_none();
            let newest = place(other).cmp(&place(one));
            newest.then_with(|| pending(one).cmp(&pending(other)))
        });
        records.dedup_by_key(|record| record.sequence);
        records.truncate(limit);
        records
    }

    /// The newest open records. Two passes, so that only `limit` records are copied and no lock is held for long.
    fn open_now(&self, limit: usize, fits: &impl Fn(&Record) -> bool) -> Vec<Arc<Record>> {
        let mut found: Vec<(WallTime, Arc<str>, u64, Key)> = Vec::new();
        for shard in &self.shards {
            let shard = lock(shard);
            let records = shard.open.iter();
            let records = records.map(|(key, slot)| (slot.open.record(), *key));
            let fitting = records.filter(|(record, _)| fits(record));
            found.extend(fitting.map(|(record, key)| {
                let (started_at, id, sequence) = place(record);
                (started_at, Arc::clone(id), sequence, key)
            }));
        }
        found.sort_unstable_by(|one, other| other.cmp(one));
        found
            .into_iter()
            .take(limit)
            .filter_map(|(_, _, sequence, key)| {
                let shard = self.shard(key)?;
                let record = shard.open.get(&key)?.open.record();
                (record.sequence == sequence).then(|| Arc::new(record.clone()))
            })
            .collect()
    }

    /// Operations in flight.
    pub fn open(&self) -> usize {
        self.shards.iter().map(|shard| lock(shard).open.len()).sum()
    }

    /// Rows that went unrecorded because the book, or the way out of it, was full.
    pub fn lost(&self) -> u64 {
        let unsent = self.outbox.as_ref().map_or(0, Outbox::lost);
        self.lost.load(Ordering::Relaxed).saturating_add(unsent)
    }

    /// The settled records.
    pub fn ring(&self) -> &Ring {
        &self.ring
    }

    fn shard(&self, key: Key) -> Option<MutexGuard<'_, Part>> {
        self.shards.get(key.shard()).map(lock)
    }
}

/// Where a record stands in the list. The number tells operations apart that share an `x-request-id` and the moment of their start.
fn place(record: &Record) -> (WallTime, &Arc<str>, u64) {
    let operation = &record.operation;
    (
        operation.started_at,
        &operation.operation_id,
        record.sequence,
    )
}

fn lock(shard: &Shard) -> MutexGuard<'_, Part> {
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}

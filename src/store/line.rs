//! The way from the collector to the writer: a short queue in memory, and the spool behind it.
//!
//! Invariants: what was collected first is written first; while the spool holds anything the queue takes nothing, so that the two never
//! overtake each other; the collector waits for neither store nor writer.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::counts::Counts;
use super::spool::{Spool, SpoolError};
use crate::ledger::store::Piece;

/// Collections that wait in memory for the writer. With the one that is being written and the one that is being collected, a process that
/// is killed has at most four times the time between two collections that is not in a file.
pub(super) const QUEUE_MAX: usize = 2;
/// Pieces that the queue takes when the spool cannot: the disk is full or broken, or the bound is reached. Beyond it rows are lost.
const RESERVE_PIECES_MAX: usize = 65_536;
/// Time between two lines of the log about one failure that lasts.
pub(super) const SAY_EVERY: Duration = Duration::from_secs(60);

/// Says a thing at once and then at most once a minute.
#[derive(Debug, Default)]
pub(super) struct Seldom(Option<Instant>);

impl Seldom {
    pub(super) fn is_due(&mut self, now: Instant) -> bool {
        let due = self
            .0
            .is_none_or(|last| now.saturating_duration_since(last) >= SAY_EVERY);
        if due {
            self.0 = Some(now);
        }
        due
    }
}

/// How pieces are handed over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Hand {
    /// In memory as long as the writer keeps up.
    Over,
    /// Through the spool, always.
    ToSpool,
}

/// What the writer has to do next.
#[derive(Debug)]
pub(super) enum Work {
    /// From the queue.
    Batch(Arc<Vec<Piece>>),
    /// A segment of the spool.
    Segment(u64),
}

#[derive(Debug)]
struct State {
    queue: VecDeque<Arc<Vec<Piece>>>,
    /// The batch that the writer has; it is nowhere else.
    taken: Option<Arc<Vec<Piece>>>,
    spool: Spool,
    rung: bool,
    said: Seldom,
}

/// The way.
#[derive(Debug)]
pub(super) struct Line {
    state: Mutex<State>,
    wake: Condvar,
    pub(super) counts: Arc<Counts>,
}

impl Line {
    pub(super) fn new(spool: Spool, counts: Arc<Counts>) -> Line {
        Line {
            state: Mutex::new(State {
                queue: VecDeque::new(),
                taken: None,
                spool,
                rung: false,
                said: Seldom::default(),
            }),
            wake: Condvar::new(),
            counts,
        }
    }

    /// Hands pieces on. Whether everything that was handed over is in the spool, or further, when this returns.
    pub(super) fn push(&self, pieces: Vec<Piece>, how: Hand) -> bool {
        if pieces.is_empty() {
            let state = self.lock();
            return state.queue.is_empty() && state.taken.is_none();
        }
        self.counts.enter(pieces.len());
        let mut state = self.lock();
        let by_queue = how == Hand::Over && state.spool.is_empty() && state.queue.len() < QUEUE_MAX;
        let spooled = if by_queue {
            state.queue.push_back(Arc::new(pieces));
            false
        } else {
            self.spool(&mut state, pieces)
        };
        // What an earlier failure left in memory may be what somebody waits for.
        let on_disk = spooled && state.queue.is_empty() && state.taken.is_none();
        state.rung = true;
        drop(state);
        self.wake.notify_one();
        on_disk
    }

    fn spool(&self, state: &mut State, mut pieces: Vec<Piece>) -> bool {
        let Err((taken, error)) = state.spool.append(&pieces) else {
            return true;
        };
        let rest = pieces.split_off(taken.min(pieces.len()));
        let held: usize = state.queue.iter().map(|batch| batch.len()).sum();
        let fits = held.saturating_add(rest.len()) <= RESERVE_PIECES_MAX;
        if state.said.is_due(Instant::now()) {
            let what = if fits { "kept in memory" } else { "lost" };
            log::error!(target: "rondo::ledger", "records cannot be spooled and are {what}: {error}");
        }
        if fits {
            state.queue.push_back(Arc::new(rest));
        } else {
            self.lose(&rest);
        }
        false
    }

    /// Counts pieces as lost.
    pub(super) fn lose(&self, pieces: &[Piece]) {
        self.counts.lose(pieces.iter().map(Piece::rows).sum());
        self.counts.leave(pieces.len());
    }

    /// What is to be written next: what was collected first.
    pub(super) fn take(&self) -> Option<Work> {
        let mut state = self.lock();
        if let Some(batch) = state.queue.pop_front() {
            state.taken = Some(Arc::clone(&batch));
            return Some(Work::Batch(batch));
        }
        state.spool.oldest().map(Work::Segment)
    }

    /// Whether anything is to be written, in memory and at all.
    pub(super) fn waits(&self) -> (bool, bool) {
        let state = self.lock();
        let queued = !state.queue.is_empty();
        (queued, queued || !state.spool.is_empty())
    }

    /// Reads a segment.
    pub(super) fn read(&self, number: u64) -> std::io::Result<Vec<u8>> {
        let path = self.lock().spool.path(number);
        std::fs::read(path)
    }

    /// Counts a segment as lost.
    pub(super) fn lose_segment(&self, number: u64) {
        let held = self.lock().spool.held(number);
        self.counts.lose(held.rows);
        self.counts.leave(held.pieces);
    }

    /// The store has what was taken.
    pub(super) fn written(&self) {
        self.lock().taken = None;
    }

    /// The store has that segment, or nobody can read it.
    pub(super) fn done_with(&self, number: u64) {
        self.lock().spool.remove(number);
    }

    /// The store takes nothing now: what is in memory goes to disk, before what is there already. `rest` is what is left of what was taken.
    pub(super) fn give_back(&self, rest: &[Piece]) {
        let mut state = self.lock();
        state.taken = None;
        if rest.is_empty() && state.queue.is_empty() {
            return;
        }
        let queued = state.queue.iter().flat_map(|batch| batch.iter());
        let pieces: Vec<Piece> = rest.iter().chain(queued).cloned().collect();
        match state.spool.prepend(&pieces) {
            Ok(()) => state.queue.clear(),
            Err(error) => {
                if state.said.is_due(Instant::now()) {
                    log::error!(target: "rondo::ledger", "records stay in memory while the store is away: {error}");
                }
                if !rest.is_empty() {
                    state.queue.push_front(Arc::new(rest.to_vec()));
                }
            }
        }
    }

    /// Saves what the writer has and what it has not taken, when there is no time to wait for it. Some of it may be written twice, which
    /// the store does not mind.
    pub(super) fn rescue(&self) -> Result<(), SpoolError> {
        let mut state = self.lock();
        let taken = state.taken.take();
        let batches = taken.iter().chain(state.queue.iter());
        let pieces: Vec<Piece> = batches.flat_map(|batch| batch.iter()).cloned().collect();
        let saved = state.spool.prepend(&pieces);
        if saved.is_ok() {
            state.queue.clear();
        } else {
            self.lose(&pieces);
        }
        saved
    }

    /// Sleeps until something is handed over, or until the time is over.
    pub(super) fn wait(&self, time: Duration) {
        let waited = self
            .wake
            .wait_timeout_while(self.lock(), time, |state| !state.rung)
            .unwrap_or_else(PoisonError::into_inner);
        let mut state = waited.0;
        state.rung = false;
    }

    /// Wakes the writer.
    pub(super) fn ring(&self) {
        self.lock().rung = true;
        self.wake.notify_one();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

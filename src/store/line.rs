//! The way from the collector to the writer: a short queue in memory, and the spool behind it.
//!
//! Invariants: what was collected first is written first: the queue, then the spool, then what stands behind the spool because it had no
//! room; while spool or rest hold anything the queue takes nothing. The collector waits for neither store nor writer.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::counts::Counts;
use super::spool::{Spool, SpoolError};
use crate::ledger::store::Piece;

/// Collections that wait in memory for the writer. With the one that is being written, and the two looks after which a record is collected, a
/// process that is killed has at most four times the time between two collections that is not in a file.
pub(super) const QUEUE_MAX: usize = 1;
/// Pieces that memory takes when the spool cannot: the disk is full or broken, or the bound is reached. Beyond it rows are lost.
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
    /// What the spool had no room for. It is younger than all that is there.
    behind: VecDeque<Arc<Vec<Piece>>>,
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
                behind: VecDeque::new(),
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
            return state.is_on_disk();
        }
        self.counts.enter(pieces.len());
        let mut state = self.lock();
        let is_first = state.spool.is_empty() && state.behind.is_empty();
        if how == Hand::Over && is_first && state.queue.len() < QUEUE_MAX {
            state.queue.push_back(Arc::new(pieces));
        } else {
            self.spool(&mut state, pieces);
        }
        // What an earlier failure left in memory may be what somebody waits for.
        let on_disk = state.is_on_disk();
        state.rung = true;
        drop(state);
        self.wake.notify_one();
        on_disk
    }

    fn spool(&self, state: &mut State, pieces: Vec<Piece>) {
        state.behind.push_back(Arc::new(pieces));
        let Err(error) = state.move_up() else {
            return;
        };
        let fits = state.held() <= RESERVE_PIECES_MAX;
        if state.said.is_due(Instant::now()) {
            let what = if fits { "kept in memory" } else { "lost" };
            log::error!(target: "rondo::ledger", "records cannot be spooled and are {what}: {error}");
        }
        if !fits && let Some(last) = state.behind.pop_back() {
            self.lose(&last);
        }
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
        if let Some(number) = state.spool.oldest() {
            return Some(Work::Segment(number));
        }
        let batch = state.behind.pop_front()?;
        state.taken = Some(Arc::clone(&batch));
        Some(Work::Batch(batch))
    }

    /// Whether anything is to be written, in memory and at all.
    pub(super) fn waits(&self) -> (bool, bool) {
        let state = self.lock();
        let queued = !state.queue.is_empty();
        let any = queued || !state.spool.is_empty() || !state.behind.is_empty();
        (queued, any)
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

    /// The store takes nothing now: what is in memory goes to disk, before and behind what is there already. `rest` is what is left of what
    /// was taken. Whether all of it is on disk.
    pub(super) fn give_back(&self, rest: &[Piece]) -> bool {
        let mut state = self.lock();
        state.taken = None;
        if let Err(error) = state.put_in_front(rest).and_then(|()| state.move_up()) {
            if state.said.is_due(Instant::now()) {
                log::error!(target: "rondo::ledger", "records stay in memory while the store is away: {error}");
            }
            return false;
        }
        true
    }

    /// Saves what the writer has and what it has not taken, when there is no time to wait for it. Some of it may be written twice, which
    /// the store does not mind. What cannot be saved is counted as lost.
    pub(super) fn rescue(&self) -> Result<(), SpoolError> {
        let mut state = self.lock();
        let taken = state.taken.take();
        let taken = taken.as_ref().map_or(&[][..], |taken| taken.as_slice());
        let saved = state.put_in_front(taken).and_then(|()| state.move_up());
        if saved.is_err() {
            let queue = std::mem::take(&mut state.queue);
            let behind = std::mem::take(&mut state.behind);
            for batch in queue.iter().chain(&behind) {
                self.lose(batch);
            }
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

impl State {
    /// Whether nothing is in memory alone.
    fn is_on_disk(&self) -> bool {
        self.queue.is_empty() && self.taken.is_none() && self.behind.is_empty()
    }

    /// Pieces in memory.
    fn held(&self) -> usize {
        let batches = self.queue.iter().chain(&self.behind);
        batches.map(|batch| batch.len()).sum()
    }

    /// Puts this and the queue in front of the spool, or this in front of the queue.
    fn put_in_front(&mut self, rest: &[Piece]) -> Result<(), SpoolError> {
        let queued = self.queue.iter().flat_map(|batch| batch.iter());
        let put = self.spool.prepend(rest.iter().chain(queued));
        match put {
            Ok(()) => self.queue.clear(),
            Err(_) if rest.is_empty() => {}
            Err(_) => self.queue.push_front(Arc::new(rest.to_vec())),
        }
        put
    }

    /// Moves what stands behind the spool into it, as far as it goes.
    fn move_up(&mut self) -> Result<(), SpoolError> {
        while let Some(batch) = self.behind.pop_front() {
            if let Err((taken, error)) = self.spool.append(&batch) {
                let rest = match batch.get(taken..) {
                    Some(rest) if taken > 0 => Arc::new(rest.to_vec()),
                    _ => batch,
                };
                self.behind.push_front(rest);
                return Err(error);
            }
        }
        Ok(())
    }
}

//! Settled records on their way out of the book: a bounded queue that the end of an operation pushes to and a collector empties.
//!
//! Not here: who collects, where it goes. Invariant: a push is one short critical section and never waits for anything else; what does
//! not fit is counted, row by row (R-L7).

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::store::Piece;
use crate::core::limits::SETTLED_RECORDS_MAX;

/// Room that an emptied queue keeps ready.
const ROOM: usize = 256;

/// The queue.
#[derive(Debug)]
pub struct Outbox {
    pieces: Mutex<Vec<Piece>>,
    pieces_max: usize,
    lost: AtomicU64,
}

impl Default for Outbox {
    fn default() -> Self {
        Outbox::new(SETTLED_RECORDS_MAX)
    }
}

impl Outbox {
    /// An empty queue of at most `pieces_max` pieces.
    pub fn new(pieces_max: usize) -> Outbox {
        Outbox {
            pieces: Mutex::default(),
            pieces_max,
            lost: AtomicU64::new(0),
        }
    }

    /// Adds a piece, or counts its rows as lost.
    pub fn push(&self, piece: Piece) {
        let mut pieces = self.lock();
        if pieces.len() >= self.pieces_max {
            drop(pieces);
            self.lost.fetch_add(piece.rows(), Ordering::Relaxed);
            return;
        }
        pieces.push(piece);
    }

    /// Everything that is in it, oldest first.
    pub fn take(&self) -> Vec<Piece> {
        // Made outside the lock, so that those who push next seldom have to grow it.
        let empty = Vec::with_capacity(ROOM);
        std::mem::replace(&mut *self.lock(), empty)
    }

    /// Pieces in it.
    pub fn len(&self) -> usize {
        self.lock().len()
    }

    /// Whether nothing is in it.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Rows that did not fit.
    pub fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Piece>> {
        self.pieces.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

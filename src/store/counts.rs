//! What the recorder counts of itself, for the metrics. Read at a scrape.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::core::settlement::State;
use crate::ledger::columns::{ATTEMPTS, OPERATIONS, Stored};
use crate::ledger::store::Piece;

/// Every state, in the order of the counters.
pub const STATES: [State; 9] = [
    State::Pending,
    State::Succeeded,
    State::Rejected,
    State::Refused,
    State::Failed,
    State::Ambiguous,
    State::Cancelled,
    State::TimedOut,
    State::Abandoned,
];

/// The kinds of rows, in the order of the counters.
pub const KINDS: [&str; 2] = ["operation", "attempt"];

/// The counters.
#[derive(Debug, Default)]
pub struct Counts {
    records: [[AtomicU64; STATES.len()]; KINDS.len()],
    lost: AtomicU64,
    waiting: AtomicU64,
    spool_bytes: AtomicU64,
    other_spool_bytes: AtomicU64,
    abandoned: AtomicU64,
    unconfirmed: AtomicU64,
    errors: AtomicU64,
}

impl Counts {
    /// Records that the store has taken, by kind and state. An operation's terminal record counts once, with each of its attempts; a pending
    /// one counts each time that it was written before.
    pub fn records(&self, kind: usize, state: usize) -> u64 {
        let counter = self.records.get(kind).and_then(|kind| kind.get(state));
        counter.map_or(0, |counter| counter.load(Ordering::Relaxed))
    }

    /// Rows that no store will ever have.
    pub fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    /// Pieces that were collected and not written yet: in memory and in this process's spool.
    pub fn waiting(&self) -> u64 {
        self.waiting.load(Ordering::Relaxed)
    }

    /// Bytes in the spool, those of other processes of the installation included.
    pub fn spool_bytes(&self) -> u64 {
        let others = self.other_spool_bytes.load(Ordering::Relaxed);
        let own = self.spool_bytes.load(Ordering::Relaxed);
        own.saturating_add(others)
    }

    /// Rows of ended processes that were settled as abandoned.
    pub fn abandoned(&self) -> u64 {
        self.abandoned.load(Ordering::Relaxed)
    }

    /// Sends that did not wait for their record any longer.
    pub fn unconfirmed(&self) -> u64 {
        self.unconfirmed.load(Ordering::Relaxed)
    }

    /// Failures of the store.
    pub fn errors(&self) -> u64 {
        self.errors.load(Ordering::Relaxed)
    }

    pub(super) fn lose(&self, rows: u64) {
        self.lost.fetch_add(rows, Ordering::Relaxed);
    }

    pub(super) fn enter(&self, pieces: usize) {
        self.waiting.fetch_add(wide(pieces), Ordering::Relaxed);
    }

    pub(super) fn leave(&self, pieces: usize) {
        let less = |waiting: u64| Some(waiting.saturating_sub(wide(pieces)));
        let _ = self
            .waiting
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
    }

    pub(super) fn spool_grew(&self, bytes: u64) {
        self.spool_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(super) fn spool_shrank(&self, bytes: u64) {
        let less = |held: u64| Some(held.saturating_sub(bytes));
        let _ = self
            .spool_bytes
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
    }

    /// What other processes' spools hold now.
    pub(super) fn others_spool(&self, bytes: u64) {
        self.other_spool_bytes.store(bytes, Ordering::Relaxed);
    }

    pub(super) fn abandon(&self, rows: u64) {
        self.abandoned.fetch_add(rows, Ordering::Relaxed);
    }

    pub(super) fn not_confirmed(&self) {
        self.unconfirmed.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn fail(&self) {
        self.errors.fetch_add(1, Ordering::Relaxed);
    }

    /// The store has taken the piece.
    pub(super) fn written(&self, piece: &Piece) {
        match piece {
            Piece::Live(record) => {
                let state = record.operation.state;
                self.count(0, state.label());
                if state != State::Pending {
                    for attempt in &record.attempts {
                        self.count(1, attempt.state.label());
                    }
                }
            }
            Piece::Spooled(record) => {
                let operation = state_of(&record.operation, OPERATIONS.position("state"));
                self.count(0, operation);
                if operation != State::Pending.label() {
                    let place = ATTEMPTS.position("state");
                    for attempt in &record.attempts {
                        self.count(1, state_of(attempt, place));
                    }
                }
            }
            Piece::Usage(_) => {}
        }
    }

    fn count(&self, kind: usize, label: &str) {
        let state = STATES.iter().position(|state| state.label() == label);
        let counter = state.and_then(|state| self.records.get(kind)?.get(state));
        if let Some(counter) = counter {
            counter.fetch_add(1, Ordering::Relaxed);
        }
    }
}

fn state_of(row: &[Stored], place: Option<usize>) -> &str {
    match place.and_then(|place| row.get(place)) {
        Some(Stored::Text(state)) => state,
        _ => "",
    }
}

fn wide(number: usize) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}

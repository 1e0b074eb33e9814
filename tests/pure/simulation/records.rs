//! The records that the operations of a world leave: a real book, fed as the shell feeds it, and a store that collects from it now and then.
//!
//! Audited here: one record an operation and one row an attempt, each settled once, what is settled never written again, and numbers that
//! are the operation's own.

use std::collections::BTreeMap;
use std::sync::Arc;

use rondo::core::api::Api;
use rondo::core::settlement::State;
use rondo::core::time::{MonoTime, WallTime};
use rondo::executor::effect::{Effects, OperationSettled};
use rondo::executor::plan::Plan;
use rondo::ledger::store::Piece;
use rondo::ledger::totals::{Open, Totals};
use rondo::ledger::{AttemptFacts, Book, Ending, Moment, Opening, Outbox, Record};
use rondo::policy::snapshot::Snapshot;

/// What the store has of an operation.
#[derive(Debug)]
struct Row {
    state: State,
    attempts: BTreeMap<u32, State>,
    sends: u32,
}

/// The book of a world, and its store.
pub struct Records {
    book: Book,
    totals: Totals,
    snapshot: Arc<Snapshot>,
    stored: BTreeMap<Arc<str>, Row>,
    begun: u64,
}

/// What the auditor saw of an operation that has ended.
pub struct Seen {
    pub settled: OperationSettled,
    pub attempts: u32,
    pub sends: u32,
    pub committed: Option<MonoTime>,
}

fn at(now: MonoTime) -> Moment {
    let micros = i64::try_from(now.as_micros()).unwrap();
    Moment {
        mono: now,
        wall: WallTime::from_unix_micros(1_700_000_000_000_000 + micros),
    }
}

impl Records {
    pub fn new(snapshot: Arc<Snapshot>) -> Records {
        Records {
            book: Book::new(Some(Outbox::default())),
            totals: Totals::default(),
            snapshot,
            stored: BTreeMap::new(),
            begun: 0,
        }
    }

    pub fn begin(&mut self, id: &Arc<str>, plan: &Plan, now: MonoTime) {
        self.begun += 1;
        self.book.begin(Opening {
            operation_id: Arc::clone(id),
            boot_id: Arc::from("boot"),
            snapshot: Arc::clone(&self.snapshot),
            route: Arc::clone(&plan.route),
            api: Api::OpenaiChat,
            public_model: Arc::from("m"),
            client_key: None,
            stream: false,
            started: at(now),
            request_bytes: plan.held_bytes,
        });
    }

    pub fn take(&mut self, id: &Arc<str>, effects: &Effects, now: MonoTime) {
        for note in &effects.notes {
            self.totals.add(note);
            self.book.note(id, note, AttemptFacts::default(), at(now));
        }
    }

    /// The operation has ended: its record says what was seen of it.
    pub fn end(&mut self, id: &Arc<str>, seen: &Seen, now: MonoTime) {
        let settled = seen.settled;
        let record = self.book.end(
            id,
            &Ending {
                status: 200,
                outcome: settled.outcome,
                state: settled.state,
                reason: settled.reason,
                target: None,
                sends: settled.sends,
                rounds: settled.rounds,
                waited: settled.waited,
                first_byte: seen.committed.map(at),
                ended: at(now),
                response_bytes: 0,
                usage: None,
            },
        );
        let record = record.expect("R-L1: an operation without a record");
        let attempts = &record.attempts;
        assert_eq!(
            attempts.len(),
            seen.attempts as usize,
            "R-L1: a row an attempt"
        );
        assert!(
            attempts
                .iter()
                .all(|attempt| attempt.state != State::Pending),
            "R-L1: an attempt stays open: {record:?}"
        );
        let numbers = attempts.iter().map(|attempt| attempt.attempt_no);
        assert!(
            numbers.eq(1..=seen.attempts),
            "attempts are numbered without gaps"
        );
        assert_eq!(
            record.operation.sends, seen.sends,
            "R-S23: sends of the record"
        );
        assert_eq!(record.operation.state, settled.state, "R-L1");
    }

    /// The store takes what changed. What it has as settled is never written again (R-L2).
    pub fn collect(&mut self) {
        for piece in self.book.collect() {
            let Piece::Live(record) = piece else {
                panic!("{piece:?}")
            };
            self.store(&record);
        }
    }

    fn store(&mut self, record: &Record) {
        let operation = &record.operation;
        let states = record
            .attempts
            .iter()
            .map(|attempt| (attempt.attempt_no, attempt.state));
        let row = Row {
            state: operation.state,
            attempts: states.collect(),
            sends: operation.sends,
        };
        let id = Arc::clone(&operation.operation_id);
        let Some(before) = self.stored.insert(id, row) else {
            return;
        };
        let row = &self.stored[&operation.operation_id];
        assert_eq!(
            before.state,
            State::Pending,
            "R-L2: a settled operation was written again"
        );
        assert!(before.sends <= row.sends, "a send was taken back");
        for (number, state) in &before.attempts {
            let now = row.attempts.get(number);
            let kept = *state == State::Pending || now == Some(state);
            assert!(
                kept && now.is_some(),
                "R-L2: attempt {number} was {state:?} and is {now:?}"
            );
        }
    }

    /// Everything has ended: the store has every record, settled, and the sums are those of the notes.
    pub fn close(mut self, attempts: u64, sends: u64) {
        self.collect();
        assert_eq!(
            (self.book.open(), self.book.lost()),
            (0, 0),
            "R-L1: open or lost"
        );
        assert_eq!(
            self.stored.len() as u64,
            self.begun,
            "R-L1: a record an operation"
        );
        let rows = self.stored.values();
        let pending = rows.clone().filter(|row| {
            let mut states = row.attempts.values().chain([&row.state]);
            states.any(|state| *state == State::Pending)
        });
        assert_eq!(pending.count(), 0, "R-L1: pending");
        let of_rows: usize = rows.clone().map(|row| row.attempts.len()).sum();
        assert_eq!(of_rows as u64, attempts, "R-S23: attempts");
        let sent: u64 = rows.map(|row| u64::from(row.sends)).sum();
        assert_eq!(sent, sends, "R-S23: sends");
        self.totals.check(Open::default()).unwrap();
        assert_eq!(self.totals.operations_settled, self.begun, "R-S23");
    }
}

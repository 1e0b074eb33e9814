//! The writer with a store that fails when the test says so, step by step under a clock that the test moves.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rondo::core::settlement::State;
use rondo::core::time::WallTime;
use rondo::ledger::columns::{Stored, StoredRecord};
use rondo::ledger::store::{
    Boot, HEARTBEAT, LEASE, LateUsage, OtherBoot, Piece, Query, Reader, Store, StoreError,
};
use rondo::ledger::{Book, Outbox};
use rondo::policy::snapshot::Durability;
use rondo::store::sqlite::{SqliteReader, SqliteStore};
use rondo::store::{Boots, Counts, Habits, Parts, Setup, Step};

use crate::store_sqlite::Dir;
use crate::store_suite::{START, all, attempt_column, boot, column, live, record, with_attempt};
use crate::world::{Does, World};

/// What a store that fails on request has seen.
#[derive(Default)]
pub struct Seen {
    /// Whether it can be reached.
    pub away: bool,
    /// Ids that it refuses.
    pub refused: Vec<String>,
    /// State of each operation.
    pub operations: BTreeMap<String, String>,
    /// Rows by id and number of the attempt.
    pub attempts: BTreeMap<(String, i64), String>,
    /// Calls, in order.
    pub calls: Vec<&'static str>,
    /// Operations in the order in which they became terminal.
    pub order: Vec<String>,
    /// Late usages.
    pub usages: u64,
    /// Others that it tells of.
    pub others: Vec<OtherBoot>,
    /// Pending rows of each dead boot.
    pub pending: BTreeMap<String, u64>,
    /// Its own clock, if it has one.
    pub clock: Option<WallTime>,
    /// Before when it was told to delete.
    pub pruned: Vec<WallTime>,
}

/// A store in memory.
#[derive(Clone, Default)]
pub struct Double(pub Arc<Mutex<Seen>>);

impl Double {
    fn call(&self, name: &'static str) -> Result<parking_lot::MutexGuard<'_, Seen>, StoreError> {
        let mut seen = self.0.lock();
        seen.calls.push(name);
        match seen.away {
            true => Err(StoreError::Unavailable("away".into())),
            false => Ok(seen),
        }
    }
}

impl Store for Double {
    fn open(&mut self, _: &Boot) -> Result<(), StoreError> {
        self.call("open").map(|_| ())
    }

    fn write(&mut self, pieces: &[Piece]) -> Result<u64, StoreError> {
        let mut seen = self.call("write")?;
        let records = pieces.iter().filter_map(|piece| match piece {
            Piece::Live(record) => Some(record.into()),
            Piece::Spooled(record) => Some(record.clone()),
            Piece::Usage(_) => None,
        });
        let usages = pieces
            .iter()
            .filter(|piece| matches!(piece, Piece::Usage(_)));
        seen.usages += usages.count() as u64;
        let records: Vec<StoredRecord> = records.collect();
        let text = |value: &Stored| match value {
            Stored::Text(text) => text.to_string(),
            other => panic!("{other:?}"),
        };
        for record in &records {
            if seen.refused.contains(&text(column(record, "operation_id"))) {
                return Err(StoreError::Refused("not this one".into()));
            }
        }
        for record in &records {
            let (id, state) = (
                text(column(record, "operation_id")),
                text(column(record, "state")),
            );
            for (number, attempt) in (1..).zip(&record.attempts) {
                let state = text(attempt_column(attempt, "state"));
                seen.attempts.insert((id.clone(), number), state);
            }
            if state != "pending" {
                seen.order.push(id.clone());
            }
            let kept = seen.operations.entry(id).or_default();
            if kept.is_empty() || kept == "pending" {
                *kept = state;
            }
        }
        Ok(0)
    }

    fn beat(&mut self, _: &Boot) -> Result<(), StoreError> {
        self.call("beat").map(|_| ())
    }

    fn others(&mut self, _: &Boot) -> Result<Vec<OtherBoot>, StoreError> {
        self.call("others").map(|seen| seen.others.clone())
    }

    fn abandon(&mut self, dead: &Boot, _: WallTime, rows_max: u32) -> Result<u64, StoreError> {
        let mut seen = self.call("abandon")?;
        let left = seen.pending.entry(dead.boot_id.to_string()).or_default();
        let step = (*left).min(u64::from(rows_max));
        *left -= step;
        if step == 0 {
            seen.others.retain(|other| other.boot != *dead);
        }
        Ok(step)
    }

    fn clock(&mut self, here: WallTime) -> Result<WallTime, StoreError> {
        self.call("clock").map(|seen| seen.clock.unwrap_or(here))
    }

    fn prune(&mut self, before: WallTime, _: u32) -> Result<u64, StoreError> {
        self.call("prune").map(|mut seen| {
            seen.pruned.push(before);
            0
        })
    }

    fn close(&mut self, _: &Boot) -> Result<(), StoreError> {
        self.call("close").map(|_| ())
    }
}

/// A book, the parts that empty it, and the clock.
pub struct Bench {
    pub dir: Dir,
    pub book: Arc<Book>,
    pub world: World,
    pub parts: Parts,
    pub now: Instant,
}

const DAY: Duration = Duration::from_secs(86_400);
pub const MIB: u64 = 1 << 20;

impl Bench {
    pub fn new(store: impl Store + 'static, strict: bool, spool_bytes_max: u64) -> Bench {
        Bench::in_dir(Dir::new(), store, strict, spool_bytes_max)
    }

    pub fn in_dir(
        dir: Dir,
        store: impl Store + 'static,
        strict: bool,
        spool_bytes_max: u64,
    ) -> Bench {
        let book = Arc::new(Book::new(Some(Outbox::default())));
        let boots = Boots::enter(&dir.0).unwrap();
        let boot_id = Arc::clone(&boots.own().boot_id);
        let parts = Parts::new(Setup {
            book: Arc::clone(&book),
            store: Box::new(store),
            is_open: false,
            boots,
            habits: Habits { keep: DAY, strict },
            spool_bytes_max,
        });
        Bench {
            dir,
            world: World::of(Arc::clone(&book), &boot_id),
            book,
            parts,
            now: Instant::now(),
        }
    }

    /// Operations that end well, each with one attempt.
    pub fn run(&mut self, names: impl IntoIterator<Item = String>) {
        for name in names {
            self.world.run(1, &name, &[Does::Answer]);
        }
    }

    pub fn collect(&mut self) {
        self.parts.collector.collect();
    }

    pub fn step(&mut self) -> Step {
        self.parts
            .writer
            .step(self.now, WallTime::from_unix_micros(START))
    }

    /// Steps until nothing is left to do now.
    pub fn settle(&mut self) {
        for _ in 0..10_000 {
            if self.step() != Step::Again {
                return;
            }
        }
        panic!("it never rests");
    }

    /// Lets time pass until everything is written.
    pub fn wait(&mut self, time: Duration) {
        self.now += time;
        self.settle();
    }

    pub fn counts(&self) -> Arc<Counts> {
        self.parts.counts()
    }

    pub fn spooled(&self) -> usize {
        let Ok(boots) = std::fs::read_dir(self.dir.0.join("spool")) else {
            return 0;
        };
        boots
            .map(|boot| std::fs::read_dir(boot.unwrap().path()).unwrap().count())
            .sum()
    }
}

pub fn names(prefix: &str, count: usize) -> Vec<String> {
    (0..count)
        .map(|number| format!("{prefix}-{number:04}"))
        .collect()
}

// R-L1: an operation that ends before it is collected is written once.
#[test]
fn what_is_collected_is_written_in_order() {
    let double = Double::default();
    let mut bench = Bench::new(double.clone(), false, MIB);
    bench.run(names("op", 1_200));
    bench.collect();
    bench.settle();
    let seen = double.0.lock();
    assert_eq!(seen.order, names("op", 1_200));
    assert_eq!(seen.attempts.len(), 1_200);
    assert_eq!(bench.counts().waiting() + bench.counts().lost(), 0);
    let succeeded = 1;
    assert_eq!(
        [0, 1].map(|kind| bench.counts().records(kind, succeeded)),
        [1_200, 1_200]
    );
    assert_eq!(bench.spooled(), 0);
}

// R-L7: while the store is away everything waits on disk, in order; nothing is lost.
#[test]
fn an_outage_loses_nothing_and_keeps_the_order() {
    let double = Double::default();
    let mut bench = Bench::new(double.clone(), false, 64 * MIB);
    bench.run(names("a", 10));
    bench.collect();
    bench.settle();
    double.0.lock().away = true;
    let mut expected = names("a", 10);
    for round in 0..20 {
        let names = names(&format!("b{round:02}"), 30);
        expected.extend(names.clone());
        bench.run(names);
        bench.collect();
        bench.now += Duration::from_millis(25);
        let _ = bench.step();
    }
    // What is neither on disk nor in the store is in none of both for the length of one collection.
    assert!(bench.spooled() >= 1);
    assert_eq!(bench.counts().waiting(), 600);
    double.0.lock().away = false;
    bench.wait(Duration::from_secs(20));
    assert_eq!(double.0.lock().order, expected);
    assert_eq!(
        (
            bench.counts().waiting(),
            bench.counts().lost(),
            bench.counts().spool_bytes()
        ),
        (0, 0, 0)
    );
    assert_eq!(bench.spooled(), 0);
    // And again over the queue.
    bench.run(names("c", 5));
    bench.collect();
    bench.settle();
    assert_eq!((double.0.lock().order.len(), bench.spooled()), (615, 0));
}

// A writer that cannot keep up is overtaken by nothing.
#[test]
fn a_slow_writer_is_relieved_by_the_spool() {
    let double = Double::default();
    let mut bench = Bench::new(double.clone(), false, 64 * MIB);
    let mut expected = Vec::new();
    for round in 0..6 {
        let names = names(&format!("r{round}"), 20);
        expected.extend(names.clone());
        bench.run(names);
        bench.collect();
    }
    assert!(bench.spooled() >= 1);
    let _ = bench.step();
    let _ = bench.step();
    bench.run(names("later", 3));
    bench.collect();
    expected.extend(names("later", 3));
    bench.settle();
    assert_eq!(double.0.lock().order, expected);
    assert_eq!(bench.spooled(), 0);
}

pub fn usage(sequence: u64) -> LateUsage {
    LateUsage {
        operation_id: Arc::from("op"),
        boot_id: Arc::from("b"),
        sequence,
        prompt_tokens: Some(11),
        completion_tokens: None,
        cached_tokens: None,
        reasoning_tokens: None,
        partial: false,
    }
}

// R-L7: what a store never takes is dropped alone.
#[test]
fn a_refused_record_is_dropped_and_the_others_stay() {
    let double = Double::default();
    double.0.lock().refused = vec!["op-0007".into(), "op-0600".into()];
    let mut bench = Bench::new(double.clone(), false, MIB);
    bench.run(names("op", 700));
    bench.collect();
    bench.settle();
    let mut expected = names("op", 700);
    expected.retain(|name| !["op-0007", "op-0600"].contains(&name.as_str()));
    assert_eq!(double.0.lock().order, expected);
    assert_eq!((bench.counts().lost(), bench.counts().waiting()), (4, 0));
}

// R-L6: the lease is renewed, also when there is nothing to write, and first of all.
#[test]
fn it_beats_while_it_is_idle() {
    let double = Double::default();
    let mut bench = Bench::new(double.clone(), false, MIB);
    bench.settle();
    let beats = || {
        double
            .0
            .lock()
            .calls
            .iter()
            .filter(|call| **call == "beat")
            .count()
    };
    assert_eq!(beats(), 1);
    for expected in 2..10 {
        let Step::Wait(time) = bench.step() else {
            panic!("busy")
        };
        assert!(time <= HEARTBEAT);
        bench.wait(HEARTBEAT);
        assert_eq!(beats(), expected);
    }
}

pub fn other(id: &str, instance: &str, silent: Duration) -> OtherBoot {
    OtherBoot {
        boot: Boot {
            boot_id: Arc::from(id),
            instance: Arc::from(instance),
        },
        silent,
    }
}

// R-L6: a strange process is dead when its lease ran out; new records go in between, and before.
#[test]
fn a_strange_process_is_dead_when_its_lease_ran_out() {
    let double = Double::default();
    let mut bench = Bench::new(double.clone(), false, MIB);
    double.0.lock().others = vec![other("00000000000000aa", "elsewhere", LEASE)];
    double
        .0
        .lock()
        .pending
        .insert("00000000000000aa".into(), 12_000);
    bench.settle();
    assert!(!double.0.lock().calls.contains(&"abandon"));
    double.0.lock().others[0].silent = LEASE + Duration::from_secs(1);
    double.0.lock().calls.clear();
    bench.now += LEASE;
    bench.run(names("op", 1_500));
    bench.collect();
    bench.settle();
    let seen = double.0.lock();
    let calls: Vec<&str> = seen
        .calls
        .iter()
        .copied()
        .filter(|call| ["write", "abandon"].contains(call))
        .collect();
    assert_eq!(
        calls,
        [
            "write", "write", "abandon", "write", "abandon", "abandon", "abandon"
        ]
    );
    assert_eq!(
        (seen.pending["00000000000000aa"], bench.counts().abandoned()),
        (0, 12_000)
    );
    assert_eq!(seen.others, []);
}

// R-L6: two processes share a file while one hands over to the other. Neither settles what the other has open.
#[test]
fn a_living_process_is_left_alone_and_a_dead_one_is_not() {
    let dir = Dir::new();
    let file = dir.file();
    let mine = || SqliteStore::new(&file, Durability::Batch);
    let mut old = Bench::in_dir(Dir(dir.0.clone()), mine(), false, MIB);
    let running = old.world.start(1, "open");
    drop(running);
    old.collect();
    old.settle();
    let mut new = Bench::in_dir(Dir(dir.0.clone()), mine(), false, MIB);
    new.settle();
    new.wait(Duration::from_secs(3_600));
    let reader = SqliteReader::new(&file);
    let find = |state: State| {
        let query = Query {
            limit: 10,
            state: Some(state),
            ..Query::default()
        };
        reader.find(&query).unwrap().len()
    };
    assert_eq!((find(State::Pending), find(State::Abandoned)), (1, 0));
    // The old one is killed: its lock goes with it.
    let Bench {
        parts,
        dir: its_dir,
        ..
    } = old;
    std::mem::forget(its_dir);
    drop(parts);
    new.wait(Duration::from_secs(10));
    assert_eq!((find(State::Pending), find(State::Abandoned)), (0, 1));
    std::mem::forget(new.dir);
}

// R-L6 R-L7: what a process spooled and did not write is written by the next one, before its open rows are settled.
#[test]
fn the_next_process_writes_what_the_last_one_spooled() {
    let dir = Dir::new();
    let double = Double::default();
    double.0.lock().away = true;
    let mut old = Bench::in_dir(Dir(dir.0.clone()), double.clone(), false, MIB);
    drop(old.world.start(1, "open"));
    old.run(names("op", 50));
    old.collect();
    let _ = old.step();
    assert_eq!(old.spooled(), 1);
    let Bench {
        parts,
        dir: its_dir,
        ..
    } = old;
    std::mem::forget(its_dir);
    drop(parts);
    // Killed in the middle of a write.
    let segment = std::fs::read_dir(dir.0.join("spool"))
        .unwrap()
        .next()
        .unwrap()
        .unwrap()
        .path();
    let segment = std::fs::read_dir(segment)
        .unwrap()
        .next()
        .unwrap()
        .unwrap()
        .path();
    let mut bytes = std::fs::read(&segment).unwrap();
    bytes.extend_from_slice(&[200, 0, 0, 0, 1, 2, 3]);
    std::fs::write(&segment, bytes).unwrap();

    let file = dir.file();
    let mut new = Bench::in_dir(
        Dir(dir.0.clone()),
        SqliteStore::new(&file, Durability::Batch),
        false,
        MIB,
    );
    assert!(new.counts().spool_bytes() > 0);
    new.settle();
    let reader = SqliteReader::new(&file);
    let records = all(&reader);
    let count = |state: &str| {
        let state = Stored::Text(state.into());
        records
            .iter()
            .filter(|record| *column(record, "state") == state)
            .count()
    };
    assert_eq!(
        (records.len(), count("succeeded"), count("abandoned")),
        (51, 50, 1)
    );
    assert_eq!(
        (
            new.spooled(),
            new.counts().spool_bytes(),
            new.counts().lost()
        ),
        (0, 0, 0)
    );
    let locks = std::fs::read_dir(dir.0.join("boots")).unwrap().count();
    assert_eq!(locks, 1, "its own");
    std::mem::forget(new.dir);
}

// In strict everything is on disk when the collection is over, and gone from there once the store has it.
#[test]
fn strict_goes_through_the_spool() {
    let double = Double::default();
    let mut bench = Bench::new(double.clone(), true, MIB);
    bench.settle();
    drop(bench.world.start(1, "open"));
    bench.collect();
    assert_eq!((bench.spooled(), double.0.lock().operations.len()), (1, 0));
    bench.run(names("op", 3));
    bench.collect();
    bench.wait(Duration::from_secs(1));
    assert_eq!((bench.spooled(), double.0.lock().operations.len()), (0, 4));
    assert_eq!(double.0.lock().operations["open"], "pending");
}

// A usage that comes late takes the same way.
#[test]
fn late_usage_survives_an_outage() {
    let dir = Dir::new();
    let file = dir.file();
    let mut bench = Bench::new(SqliteStore::new(&file, Durability::Batch), false, MIB);
    let record = bench.world.run(1, "op", &[Does::Answer]);
    bench.collect();
    bench.book.amend(LateUsage {
        boot_id: Arc::clone(&record.operation.boot_id),
        ..usage(record.sequence)
    });
    for round in 0..4 {
        bench.run([format!("more-{round}")]);
        bench.collect();
    }
    assert!(bench.spooled() > 0);
    bench.settle();
    let query = Query {
        limit: 1,
        id: Some("op".into()),
        ..Query::default()
    };
    let found = SqliteReader::new(&file).find(&query).unwrap();
    assert_eq!(*column(&found[0], "prompt_tokens"), Stored::Number(11));
}

// The double tells what the suite's records are.
#[test]
fn the_double_keeps_terminal_states() {
    let mut double = Double::default();
    double.open(&boot("b")).unwrap();
    let ended = with_attempt(record("b", 1, "op", State::Failed), State::Failed);
    double
        .write(&[live(&ended), live(&record("b", 1, "op", State::Pending))])
        .unwrap();
    assert_eq!(double.0.lock().operations["op"], "failed");
}

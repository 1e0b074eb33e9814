//! The SQLite store: what every store does, and what only a file can show.

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};

use rondo::core::settlement::State;
use rondo::core::time::WallTime;
use rondo::ledger::store::{Query, Reader, Store, StoreError};
use rondo::policy::snapshot::Durability;
use rondo::store::sqlite::{SqliteReader, SqliteStore, VERSION};
use rusqlite::Connection;

use crate::store_suite::{START, boot, live, record, suite, with_attempt};

/// A directory of its own for a test. It goes with the value.
pub struct Dir(pub PathBuf);

impl Dir {
    pub fn new() -> Dir {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("rondo-store-{}-{number}", std::process::id());
        Dir(PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name))
    }

    /// A file in it, which is not made.
    pub fn file(&self) -> PathBuf {
        self.0.join("rondo.db")
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn store(dir: &Dir) -> SqliteStore {
    SqliteStore::new(dir.file(), Durability::Batch)
}

// R-L1 R-L6
#[test]
fn sqlite_does_what_every_store_does() {
    let dir = Dir::new();
    let number = AtomicU64::new(0);
    suite(|| {
        let name = format!("{}.db", number.fetch_add(1, Ordering::Relaxed));
        let file = dir.0.join(name);
        let store = SqliteStore::new(&file, Durability::Strict);
        (Box::new(store), Box::new(SqliteReader::new(&file)))
    });
}

#[test]
fn the_files_are_their_owners_alone() {
    let dir = Dir::new();
    let mut store = store(&dir);
    store.open(&boot("b1")).unwrap();
    store
        .write(&[live(&record("b1", 1, "op", State::Pending))])
        .unwrap();
    let mode =
        |path: &std::path::Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&dir.0), 0o700);
    let mut names = Vec::new();
    for entry in std::fs::read_dir(&dir.0).unwrap() {
        let path = entry.unwrap().path();
        assert_eq!(mode(&path), 0o600, "{}", path.display());
        names.push(path.file_name().unwrap().to_str().unwrap().to_owned());
    }
    names.sort();
    assert_eq!(names, ["rondo.db", "rondo.db-shm", "rondo.db-wal"]);
}

#[test]
fn a_newer_file_is_refused_and_left_alone() {
    let dir = Dir::new();
    store(&dir).open(&boot("b1")).unwrap();
    Connection::open(dir.file())
        .unwrap()
        .pragma_update(None, "user_version", VERSION + 1)
        .unwrap();
    let refused = store(&dir).open(&boot("b2")).unwrap_err();
    assert!(matches!(refused, StoreError::Refused(_)));
    assert!(refused.to_string().contains("newer version"), "{refused}");
    let reader = SqliteReader::new(dir.file());
    assert!(matches!(
        reader.find(&Query::default()),
        Err(StoreError::Refused(_))
    ));
    let boots: i64 = Connection::open(dir.file())
        .unwrap()
        .query_row("SELECT count(*) FROM boots", [], |row| row.get(0))
        .unwrap();
    assert_eq!(boots, 1);
}

#[test]
fn a_path_that_cannot_be_is_unavailable() {
    let dir = Dir::new();
    std::fs::write(&dir.0, "a file where a directory should be").unwrap();
    let error = store(&dir).open(&boot("b1")).unwrap_err();
    assert!(matches!(error, StoreError::Unavailable(_)), "{error}");
    std::fs::remove_file(&dir.0).unwrap();
    assert!(matches!(
        SqliteReader::new(dir.file()).find(&Query::default()),
        Err(StoreError::Unavailable(_))
    ));
}

fn plan(connection: &Connection, query: &str) -> Vec<String> {
    let query = format!("EXPLAIN QUERY PLAN {query}");
    let mut plan = connection.prepare(&query).unwrap();
    let steps = plan.query_map([], |row| row.get(3)).unwrap();
    steps.collect::<Result<_, _>>().unwrap()
}

// R-L1: whoever writes to the file.
#[test]
fn a_trigger_keeps_terminal_states() {
    let dir = Dir::new();
    let mut store = store(&dir);
    store.open(&boot("b1")).unwrap();
    store
        .write(&[live(&with_attempt(
            with_attempt(record("b1", 1, "op", State::Succeeded), State::Failed),
            State::Succeeded,
        ))])
        .unwrap();
    let other = Connection::open(dir.file()).unwrap();
    let change = |change: &str| other.execute(change, []);
    for (forbidden, why) in [
        (
            "UPDATE records SET pending = 1",
            "a terminal state never changes",
        ),
        (
            "UPDATE records SET shape = shape + 1",
            "a terminal state never changes",
        ),
        (
            "UPDATE records SET attempt_pending = 1",
            "a terminal state never changes",
        ),
        (
            "UPDATE records SET attempt_shape = NULL",
            "a terminal state never changes",
        ),
        (
            "UPDATE further_attempts SET attempt_pending = 1",
            "a terminal state never changes",
        ),
        (
            "UPDATE operation_shapes SET state = 'failed'",
            "a shape never changes",
        ),
        (
            "UPDATE attempt_shapes SET state = 'failed'",
            "a shape never changes",
        ),
        ("UPDATE operations SET state = 'failed'", "it is a view"),
        ("DELETE FROM attempts", "it is a view"),
    ] {
        let refused = change(forbidden).unwrap_err().to_string();
        assert!(refused.contains(why), "{forbidden}: {refused}");
    }
    assert_eq!(
        change("UPDATE records SET shape = shape, attempt_pending = 0").unwrap(),
        1
    );
}

// R-L6: a crash with very many operations open is settled in steps, each over the index.
#[test]
fn very_many_pending_rows_are_abandoned_by_index() {
    const ROWS: u64 = 200_000;
    let dir = Dir::new();
    let mut store = store(&dir);
    store.open(&boot("b1")).unwrap();
    let plain = record("dead", 1, "seed", State::Pending);
    store.write(&[live(&plain)]).unwrap();
    let other = Connection::open(dir.file()).unwrap();
    let columns: Vec<String> = other
        .prepare("SELECT name FROM pragma_table_info('records')")
        .unwrap()
        .query_map([], |row| row.get(0))
        .unwrap()
        .collect::<Result<_, _>>()
        .unwrap();
    let columns = columns.join(", ");
    let values = columns
        .replacen("row", "n + 1", 1)
        .replace("operation_id", "printf('%032x', n)")
        .replace("sequence", "n + 1");
    other
        .execute_batch(&format!(
            "WITH RECURSIVE numbers(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < {ROWS})
             INSERT INTO records ({columns}) SELECT {values} FROM records, numbers",
        ))
        .unwrap();
    let plan = plan(
        &other,
        "SELECT operation_id FROM operations WHERE state = 'pending' AND boot_id = 'dead' LIMIT 5000",
    );
    assert_eq!(plan.len(), 2, "{plan:?}");
    let at = WallTime::from_unix_micros(START);
    let mut settled = 0;
    loop {
        match store.abandon(&boot("dead"), at, 5_000).unwrap() {
            0 => break,
            step => settled += step,
        }
    }
    assert_eq!(settled, ROWS + 1);
}

// The default listing and its pages read no more than they show.
#[test]
fn the_default_listing_walks_the_index_by_start() {
    let dir = Dir::new();
    store(&dir).open(&boot("b1")).unwrap();
    let other = Connection::open(dir.file()).unwrap();
    for condition in [
        "1",
        "(started_at, operation_id) < (5, 'x')",
        "started_at >= 5",
    ] {
        let plan = plan(
            &other,
            &format!(
                "SELECT * FROM operations WHERE {condition} ORDER BY started_at DESC, operation_id DESC LIMIT 5"
            ),
        );
        assert!(
            plan[0].contains("records_started")
                && plan[1].contains("PRIMARY KEY")
                && plan[2].contains("LAST TERM OF ORDER BY")
                && plan.len() == 3,
            "{plan:?}"
        );
    }
}

/// Joins of the two views that an operator would write, the operations first, as the views' own joins keep their order.
const JOINS: [&str; 4] = [
    "SELECT * FROM operations JOIN attempts USING (operation_id) WHERE operation_id = 'x'",
    "SELECT o.route, a.target FROM operations o JOIN attempts a USING (operation_id) WHERE o.started_at > 5",
    "SELECT o.* FROM operations o JOIN attempts a USING (operation_id) WHERE a.target = 't' AND o.started_at > 5",
    "SELECT a.* FROM operations o JOIN attempts a USING (operation_id) WHERE o.operation_id = 'x' ORDER BY attempt_no",
];

#[track_caller]
fn joins_search(connection: &Connection) {
    for query in JOINS {
        let plan = plan(connection, query);
        let reads_all = |step: &String| step.starts_with("SCAN") || step.starts_with("MATERIALIZE");
        assert!(!plan.iter().any(reads_all), "{query}: {plan:?}");
        assert!(plan.iter().any(|step| step.starts_with("SEARCH")));
    }
}

#[test]
fn a_join_of_the_views_searches() {
    let dir = Dir::new();
    store(&dir).open(&boot("b1")).unwrap();
    joins_search(&Connection::open(dir.file()).unwrap());
}

// The tables are what a version is; views are what this program shows of them, and an older one made others.
#[test]
fn views_that_another_program_made_are_made_anew() {
    let dir = Dir::new();
    store(&dir).open(&boot("b1")).unwrap();
    let other = Connection::open(dir.file()).unwrap();
    let known = rows(&other, "sqlite_schema");
    other
        .execute_batch(
            "DROP VIEW attempts; DROP VIEW operations;
             CREATE VIEW attempts AS SELECT operation_id, 1 AS attempt_no FROM records;",
        )
        .unwrap();
    store(&dir).open(&boot("b2")).unwrap();
    joins_search(&other);
    let renewed = rows(&other, "sqlite_schema");
    assert_eq!(renewed, known);
    // And what is as it should be is not touched: a change of the schema would have others prepare their statements anew.
    let changes = || -> i64 {
        other
            .query_row("PRAGMA schema_version", [], |row| row.get(0))
            .unwrap()
    };
    let before = changes();
    store(&dir).open(&boot("b3")).unwrap();
    assert_eq!(changes(), before);
}

/// Every row of a table, each value as SQL writes it.
fn rows(connection: &Connection, table: &str) -> Vec<Vec<String>> {
    let mut all = connection
        .prepare(&format!("SELECT * FROM {table} ORDER BY 1, 2"))
        .unwrap();
    let names: Vec<String> = all
        .column_names()
        .iter()
        .map(|name| (*name).to_owned())
        .collect();
    let values = all.query_map([], |row| {
        let values = names.iter().enumerate();
        values
            .map(|(at, name)| Ok(format!("{name} {:?}", row.get_ref(at)?)))
            .collect()
    });
    values.unwrap().collect::<Result<_, _>>().unwrap()
}

// R-L1 R-L6: what an older version wrote is there, and what it left open is settled.
#[test]
fn a_file_of_version_1_is_brought_up() {
    let dir = Dir::new();
    std::fs::create_dir(&dir.0).unwrap();
    let old = Connection::open(dir.file()).unwrap();
    old.execute_batch(include_str!("../fixtures/ledger-1.sql"))
        .unwrap();
    let before = (rows(&old, "operations"), rows(&old, "attempts"));
    assert_eq!((before.0.len(), before.1.len()), (5, 5));
    drop(old);
    let mut store = store(&dir);
    store.open(&boot("b1")).unwrap();
    let other = Connection::open(dir.file()).unwrap();
    assert_eq!(
        (rows(&other, "operations"), rows(&other, "attempts")),
        before
    );
    let tables: i64 = other
        .query_row(
            "SELECT count(*) FROM sqlite_schema WHERE name LIKE '%before' OR tbl_name LIKE '%before'",
            [],
            |row| row.get(0),
        )
        .unwrap();
    assert_eq!(tables, 0);
    // The dead process's own words, found in its spool, still reach the row that was renamed.
    let late = live(&record("dead", 5, "plain", State::Cancelled));
    assert_eq!(store.write(&[late]).unwrap(), 1);
    let at = WallTime::from_unix_micros(START);
    assert_eq!(store.abandon(&boot("dead"), at, 5_000).unwrap(), 2);
    let states: String = other
        .query_row(
            "SELECT group_concat(id || ' ' || state, ', ') FROM (SELECT operation_id AS id, state FROM operations
             UNION ALL SELECT operation_id || ' ' || attempt_no, state FROM attempts ORDER BY 1)",
            [],
            |row| row.get(0),
        )
        .unwrap();
    assert_eq!(
        states,
        "bare refused, open abandoned, open 1 ambiguous, open 2 abandoned, plain succeeded, plain 1 succeeded, \
         plain~dead-5 cancelled, two failed, two 1 rejected, two 2 failed"
    );
}

// A shape goes when it is in no use, and not before: names do not outlive their records for long.
#[test]
fn shapes_go_with_the_rows_that_had_them() {
    const ROWS: u64 = 70_000;
    let dir = Dir::new();
    let mut store = store(&dir);
    store.open(&boot("b1")).unwrap();
    let mut pieces: Vec<_> = (1..=ROWS)
        .map(|sequence| {
            let mut made = record("b1", sequence, &format!("op-{sequence}"), State::Succeeded);
            made.operation.public_model = format!("model-{}", sequence / 10_000).into();
            made.operation.stream = false;
            live(&with_attempt(made, State::Succeeded))
        })
        .collect();
    // The oldest is open for as long as all the others take.
    let open = record("b1", ROWS + 1, "open", State::Pending);
    pieces.insert(0, live(&open));
    for pieces in pieces.chunks(5_000) {
        store.write(pieces).unwrap();
    }
    let other = Connection::open(dir.file()).unwrap();
    let count = |what: &str| -> i64 {
        let count = format!("SELECT count(*) FROM {what}");
        other.query_row(&count, [], |row| row.get(0)).unwrap()
    };
    // One for each model and the open one; and the attempts', which was made twice.
    assert_eq!((count("operation_shapes"), count("attempt_shapes")), (9, 2));
    let all = WallTime::from_unix_micros(i64::MAX);
    let keep = WallTime::from_unix_micros(START + i64::try_from(ROWS).unwrap() * 1_000 - 500);
    while store.prune(keep, 10_000).unwrap() > 0 {}
    // The open row is the first, so all of them may be in use.
    assert_eq!((count("operations"), count("operation_shapes")), (2, 9));
    let ended = record("b1", ROWS + 1, "open", State::Failed);
    store.write(&[live(&ended)]).unwrap();
    assert_eq!(count("operations WHERE state = 'failed'"), 1);
    assert_eq!(store.prune(keep, 10).unwrap(), 0);
    other
        .execute("DELETE FROM records WHERE operation_id = 'open'", [])
        .unwrap();
    assert_eq!(store.prune(keep, 10).unwrap(), 0);
    assert_eq!((count("operations"), count("attempts")), (1, 1));
    assert_eq!((count("operation_shapes"), count("attempt_shapes")), (8, 1));
    // An emptied table goes on counting, and what is written next has its shapes.
    while store.prune(all, 10).unwrap() > 0 {}
    assert_eq!(count("records"), 0);
    store
        .write(&[live(&record("b1", ROWS + 2, "next", State::Succeeded))])
        .unwrap();
    assert_eq!(store.prune(keep, 10).unwrap(), 0);
    assert_eq!(
        (count("operations"), count("records WHERE row > 65536")),
        (1, 1)
    );
}

#[test]
fn no_row_gets_a_shape_that_is_gone() {
    // R-L1: a table that was emptied numbers its rows above every row that a deleted shape, which this process still knows, might serve.
    const FILLED: u64 = 60_000;
    const LAST: u64 = 65_600;
    let dir = Dir::new();
    let mut store = store(&dir);
    store.open(&boot("b1")).unwrap();
    let named = |sequence: u64, id: &str, state: State, model: &str| {
        let mut made = record("b1", sequence, id, state);
        made.operation.public_model = model.into();
        made.operation.stream = false;
        live(&made)
    };
    let pieces: Vec<_> = (0..LAST)
        .map(|sequence| {
            let model = match sequence {
                0 => "first",
                1..FILLED => "filler",
                _ => "late",
            };
            named(sequence, &format!("op-{sequence}"), State::Succeeded, model)
        })
        .collect();
    for pieces in pieces.chunks(5_000) {
        store.write(pieces).unwrap();
    }
    let other = Connection::open(dir.file()).unwrap();
    let count = |what: &str| -> i64 {
        let count = format!("SELECT count(*) FROM {what}");
        other.query_row(&count, [], |row| row.get(0)).unwrap()
    };
    let some = WallTime::from_unix_micros(START + i64::try_from(LAST).unwrap() * 1_000 - 20_500);
    while store.prune(some, 10_000).unwrap() > 0 {}
    assert_eq!(count("operation_shapes"), 1, "the late one is in use");
    let all = WallTime::from_unix_micros(i64::MAX);
    while store.prune(all, 10_000).unwrap() > 0 {}
    assert_eq!(count("records"), 0);
    store
        .write(&[named(LAST, "next", State::Pending, "first")])
        .unwrap();
    assert_eq!((count("records"), count("operations")), (1, 1));
    store
        .write(&[named(LAST, "next", State::Succeeded, "first")])
        .unwrap();
    assert_eq!((count("records"), count("operations")), (1, 1));
    assert_eq!(count("operations WHERE state = 'succeeded'"), 1);
}

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

use crate::store_suite::{START, boot, live, record, suite};

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

// R-L1: whoever writes to the file.
#[test]
fn a_trigger_keeps_terminal_states() {
    let dir = Dir::new();
    let mut store = store(&dir);
    store.open(&boot("b1")).unwrap();
    store
        .write(&[live(&record("b1", 1, "op", State::Succeeded))])
        .unwrap();
    let other = Connection::open(dir.file()).unwrap();
    let change = |state: &str| other.execute("UPDATE operations SET state = ?1", [state]);
    assert!(
        change("pending")
            .unwrap_err()
            .to_string()
            .contains("a terminal state never changes")
    );
    assert!(change("failed").is_err());
    assert_eq!(change("succeeded").unwrap(), 1);
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
    let columns: Vec<&str> = rondo::ledger::columns::OPERATIONS
        .columns
        .iter()
        .map(|c| c.name)
        .collect();
    let values = columns
        .join(", ")
        .replace("operation_id", "printf('%032x', n)")
        .replace("sequence", "n + 1");
    other
        .execute_batch(&format!(
            "WITH RECURSIVE numbers(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < {ROWS})
             INSERT INTO operations ({}) SELECT {values} FROM operations, numbers",
            columns.join(", ")
        ))
        .unwrap();
    let plan: Vec<String> = other
        .prepare("EXPLAIN QUERY PLAN SELECT operation_id FROM operations WHERE state = 'pending' AND boot_id = 'dead' LIMIT 5000")
        .unwrap()
        .query_map([], |row| row.get(3))
        .unwrap()
        .collect::<Result<_, _>>()
        .unwrap();
    assert!(
        plan.iter().any(|step| step.contains("operations_pending")),
        "{plan:?}"
    );
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
        let sql = format!(
            "EXPLAIN QUERY PLAN SELECT * FROM operations WHERE {condition} ORDER BY started_at DESC, operation_id DESC LIMIT 5"
        );
        let plan: Vec<String> = other
            .prepare(&sql)
            .unwrap()
            .query_map([], |row| row.get(3))
            .unwrap()
            .collect::<Result<_, _>>()
            .unwrap();
        assert!(
            plan[0].contains("operations_started") && plan.len() == 1,
            "{plan:?}"
        );
    }
}

//! Which tables a file has, and how older ones become these. `PRAGMA user_version` tells.

use rusqlite::{Connection, Transaction, TransactionBehavior};

use super::knowledge::Knowledge;
use super::layout::{tables, views};
use super::reader::{attempts_of, columns, stored};
use super::rows::{Rows, Values};
use crate::ledger::columns::{ATTEMPTS, OPERATIONS, Stored, Value};

/// The version of the tables that this program writes.
pub const VERSION: i64 = 2;

/// Why a file cannot be used.
#[derive(Debug)]
pub(super) enum Unfit {
    Sql(rusqlite::Error),
    /// It has tables of this later version.
    Newer(i64),
}

impl From<rusqlite::Error> for Unfit {
    fn from(error: rusqlite::Error) -> Unfit {
        Unfit::Sql(error)
    }
}

/// The version that a file has; 0 when it is new.
pub(super) fn version(connection: &Connection) -> Result<i64, Unfit> {
    let found = connection.pragma_query_value(None, "user_version", |row| row.get(0))?;
    match found {
        newer if newer > VERSION => Err(Unfit::Newer(newer)),
        known => Ok(known),
    }
}

/// Brings the file to this version, in one transaction: two processes that start at once do it one after the other.
pub(super) fn migrate(connection: &mut Connection) -> Result<(), Unfit> {
    if version(connection)? == VERSION && stale_views(connection)?.is_empty() {
        return Ok(());
    }
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    match version(&transaction)? {
        0 => {
            transaction.execute_batch(BOOTS)?;
            transaction.execute_batch(&tables())?;
        }
        1 => second(&transaction)?,
        _ => {}
    }
    for (name, made) in stale_views(&transaction)? {
        transaction.execute_batch(&format!("DROP VIEW IF EXISTS {name}; {made}"))?;
    }
    transaction.pragma_update(None, "user_version", VERSION)?;
    transaction.commit()?;
    Ok(())
}

/// The views that the file lacks, or has otherwise. They hold nothing, so they are no matter of the version: any program reads any of them.
fn stale_views(connection: &Connection) -> rusqlite::Result<Vec<(&'static str, String)>> {
    let mut found =
        connection.prepare("SELECT 1 FROM sqlite_schema WHERE type = 'view' AND sql = ?1")?;
    let mut stale = Vec::new();
    for (name, made) in views() {
        if !found.exists([&made])? {
            stale.push((name, made));
        }
    }
    Ok(stale)
}

/// The processes that write, as they were in version 1.
const BOOTS: &str =
    "CREATE TABLE boots (boot_id TEXT NOT NULL PRIMARY KEY, instance TEXT NOT NULL, started_at INTEGER NOT NULL,
         seen_at INTEGER NOT NULL, ended_at INTEGER) STRICT, WITHOUT ROWID;";

/// Version 2: one row holds an operation with its first attempt, and what many rows have in common is apart. In version 1 `operations` and
/// `attempts` were tables, with a row for each of theirs and every value in it. All is copied; a million operations take some ten seconds.
fn second(transaction: &Transaction<'_>) -> rusqlite::Result<()> {
    // Indexes and triggers go with the tables.
    transaction.execute_batch(
        "ALTER TABLE operations RENAME TO operations_before; ALTER TABLE attempts RENAME TO attempts_before;
         DROP TRIGGER operations_terminal; DROP TRIGGER attempts_terminal;",
    )?;
    transaction.execute_batch(&tables())?;
    let mut knowledge = Knowledge::new();
    let mut rows = Rows::new(transaction, &mut knowledge)?;
    let mut operations = transaction.prepare(&format!(
        "SELECT {} FROM operations_before ORDER BY started_at",
        columns(&OPERATIONS)
    ))?;
    let mut attempts = transaction.prepare(&attempts_of("attempts_before"))?;
    let mut found = operations.query([])?;
    while let Some(row) = found.next()? {
        let operation = stored(row, &OPERATIONS)?;
        let id = match operation.first() {
            Some(Stored::Text(id)) => &**id,
            _ => "",
        };
        let attempts = attempts.query_map([id], |row| stored(row, &ATTEMPTS))?;
        let attempts: Vec<Vec<Stored>> = attempts.collect::<rusqlite::Result<_>>()?;
        let attempts: Vec<Vec<Value<'_>>> = attempts.iter().map(|row| borrowed(row)).collect();
        rows.write(Values {
            operation: &borrowed(&operation),
            attempts: &attempts,
        })?;
    }
    drop((found, rows));
    drop((operations, attempts));
    transaction.execute_batch("DROP TABLE operations_before; DROP TABLE attempts_before;")
}

/// The values of a row that was read back.
pub(super) fn borrowed(row: &[Stored]) -> Vec<Value<'_>> {
    row.iter().map(Stored::value).collect()
}

//! The statements of the writer.

use crate::ledger::columns::{ATTEMPTS, OPERATIONS, Table};

/// Enters a boot, or says that it is alive. One that was taken for dead is not.
pub(super) const BEAT: &str =
    "INSERT INTO boots (boot_id, instance, started_at, seen_at) VALUES (?1, ?2, ?3, ?3)
    ON CONFLICT (boot_id) DO UPDATE SET seen_at = excluded.seen_at, ended_at = NULL";
/// The other boots that have not ended.
pub(super) const OTHERS: &str =
    "SELECT boot_id, instance, seen_at FROM boots WHERE ended_at IS NULL AND boot_id <> ?1
    ORDER BY started_at, boot_id";
/// A boot has ended.
pub(super) const END: &str =
    "UPDATE boots SET ended_at = ?2 WHERE boot_id = ?1 AND ended_at IS NULL";
/// Whether the row under this id belongs to that operation.
pub(super) const OWNER: &str =
    "SELECT boot_id = ?2 AND sequence = ?3 FROM operations WHERE operation_id = ?1";
/// Whether the operation was renamed when its first row was written. Whoever had its id then may have been pruned since.
pub(super) const RENAMED: &str = "SELECT EXISTS (SELECT 1 FROM operations WHERE operation_id = ?1)";
/// Settles pending attempts of a boot.
pub(super) const ABANDON_ATTEMPTS: &str =
    "UPDATE attempts SET state = 'abandoned', delivery = ?3, finished_at = ?2
    WHERE (operation_id, attempt_no) IN
        (SELECT operation_id, attempt_no FROM attempts WHERE state = 'pending' AND boot_id = ?1 LIMIT ?4)";
/// Settles pending operations of a boot.
pub(super) const ABANDON_OPERATIONS: &str =
    "UPDATE operations SET state = 'abandoned', reason = ?3, finished_at = ?2
    WHERE operation_id IN
        (SELECT operation_id FROM operations WHERE state = 'pending' AND boot_id = ?1 LIMIT ?4)";
/// The oldest settled operations.
pub(super) const OLD: &str =
    "SELECT operation_id FROM operations WHERE started_at < ?1 AND state <> 'pending'
    ORDER BY started_at LIMIT ?2";
pub(super) const DELETE_ATTEMPTS: &str = "DELETE FROM attempts WHERE operation_id = ?1";
pub(super) const DELETE_OPERATION: &str = "DELETE FROM operations WHERE operation_id = ?1";
pub(super) const DELETE_BOOTS: &str = "DELETE FROM boots WHERE ended_at < ?1";

/// The columns that late usage is written to, in the order of its values.
const USAGE: [&str; 5] = [
    "prompt_tokens",
    "completion_tokens",
    "cached_tokens",
    "reasoning_tokens",
    "usage_partial",
];

/// Statements that are made from the tables' columns.
#[derive(Debug)]
pub(super) struct Statements {
    /// Inserts an operation, or settles its pending row.
    pub operation: String,
    /// The same for an attempt.
    pub attempt: String,
    /// Writes usage over what is missing or partial.
    pub usage: String,
}

impl Statements {
    pub(super) fn new() -> Statements {
        Statements {
            operation: upsert(&OPERATIONS),
            attempt: upsert(&ATTEMPTS),
            usage: usage(),
        }
    }
}

/// A pending row of the same operation is overwritten; every other row stays (R-L1).
fn upsert(table: &Table) -> String {
    let name = table.name;
    let columns: Vec<&str> = table.columns.iter().map(|column| column.name).collect();
    let places: Vec<String> = (1..=columns.len())
        .map(|place| format!("?{place}"))
        .collect();
    let changing = columns
        .iter()
        .filter(|column| !table.key.contains(column) && !["boot_id", "sequence"].contains(column));
    let changes: Vec<String> = changing
        .map(|column| format!("{column} = excluded.{column}"))
        .collect();
    format!(
        "INSERT INTO {name} ({}) VALUES ({}) ON CONFLICT ({}) DO UPDATE SET {}
         WHERE {name}.state = 'pending' AND {name}.boot_id = excluded.boot_id AND {name}.sequence = excluded.sequence",
        columns.join(", "),
        places.join(", "),
        table.key.join(", "),
        changes.join(", "),
    )
}

fn usage() -> String {
    let places = (4..).zip(USAGE);
    let changes: Vec<String> = places
        .map(|(place, column)| format!("{column} = ?{place}"))
        .collect();
    format!(
        "UPDATE operations SET {} WHERE operation_id = ?1 AND boot_id = ?2 AND sequence = ?3 AND usage_partial IS NOT 0",
        changes.join(", ")
    )
}

//! The statements of the writer.

use super::layout::{Fact, Layout};
use super::shapes::SPAN;

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
/// The highest row. In a table that was emptied numbers go on above every row that a shape may serve, of those that are there and so also
/// of those that are gone (`no_row_gets_a_shape_that_is_gone`): none that any process still knows fits again.
pub(super) const HIGHEST: &str = "SELECT max(row) FROM records";
pub(super) const HIGHEST_BEFORE: &str = "SELECT coalesce(max(last), 0) FROM (
    SELECT max(after_row) + ?1 AS last FROM operation_shapes
    UNION ALL SELECT max(after_row) + ?1 FROM attempt_shapes)";
/// The row under this id: whether it belongs to that operation, and what may still be written to it.
pub(super) const FIND: &str =
    "SELECT r.row, r.started_at, r.pending, r.attempt_pending, s.boot_id = ?2 AND r.sequence = ?3
    FROM records r CROSS JOIN operation_shapes s ON s.shape = r.shape WHERE r.operation_id = ?1";
/// Operations of this boot that are pending under a name of their own.
pub(super) const RENAMED: &str = "SELECT r.sequence FROM operation_shapes s CROSS JOIN records r
    WHERE s.boot_id = ?1 AND r.shape = s.shape AND r.pending = 1
        AND substr(r.operation_id, -length(?1) - length(r.sequence) - 2) = '~' || ?1 || '-' || r.sequence";
/// Pending rows of a boot with their shapes: operations, first attempts, other attempts.
pub(super) const PENDING: &str = "SELECT r.row, r.shape FROM records r WHERE r.pending = 1
    AND r.shape IN (SELECT shape FROM operation_shapes WHERE boot_id = ?1) LIMIT ?2";
pub(super) const PENDING_FIRST: &str =
    "SELECT r.row, r.attempt_shape FROM records r WHERE r.attempt_pending = 1
    AND r.shape IN (SELECT shape FROM operation_shapes WHERE boot_id = ?1) LIMIT ?2";
pub(super) const PENDING_FURTHER: &str =
    "SELECT f.row, f.attempt_shape, f.attempt_no FROM further_attempts f CROSS JOIN records r ON r.row = f.row
    WHERE f.attempt_pending = 1 AND r.shape IN (SELECT shape FROM operation_shapes WHERE boot_id = ?1) LIMIT ?2";
/// Settles them.
pub(super) const ABANDON: &str =
    "UPDATE records SET pending = 0, shape = ?2, finished_us = ?3 - started_at WHERE row = ?1";
pub(super) const ABANDON_FIRST: &str = "UPDATE records SET attempt_pending = 0, attempt_shape = ?2, attempt_finished_us = ?3 - started_at WHERE row = ?1";
pub(super) const ABANDON_FURTHER: &str =
    "UPDATE further_attempts SET attempt_pending = 0, attempt_shape = ?2,
        attempt_finished_us = ?3 - (SELECT started_at FROM records r WHERE r.row = ?1)
    WHERE row = ?1 AND attempt_no = ?4";
/// The oldest settled operations.
pub(super) const OLD: &str = "SELECT row FROM records WHERE started_at < ?1 AND pending = 0
    ORDER BY started_at LIMIT ?2";
pub(super) const DELETE_ATTEMPTS: &str = "DELETE FROM further_attempts WHERE row = ?1";
pub(super) const DELETE_OPERATION: &str = "DELETE FROM records WHERE row = ?1";
pub(super) const DELETE_BOOTS: &str = "DELETE FROM boots WHERE ended_at < ?1";
/// Writes usage over what is missing or partial.
pub(super) const USAGE: &str =
    "UPDATE records SET prompt_tokens = ?4, completion_tokens = ?5, cached_tokens = ?6, reasoning_tokens = ?7, usage_partial = ?8
    WHERE operation_id = ?1 AND sequence = ?3 AND usage_partial IS NOT 0
        AND (SELECT boot_id FROM operation_shapes s WHERE s.shape = records.shape) = ?2";

/// Statements that are made from the tables' columns.
#[derive(Debug)]
pub(super) struct Statements {
    /// Inserts an operation with its first attempt, unless its id is taken.
    pub insert: String,
    /// Overwrites a pending operation.
    pub operation: String,
    /// Adds or overwrites its first attempt.
    pub attempt: String,
    /// The same for another attempt.
    pub further: String,
    /// Makes the shape of an abandoned row from that of a pending one.
    pub abandoned: String,
    /// The same for attempts.
    pub abandoned_attempt: String,
    /// Delete shapes that no row has.
    pub unused: [String; 2],
}

impl Statements {
    pub(super) fn new(operations: &Layout, attempts: &Layout) -> Statements {
        let unused = |layout: &Layout| {
            let table = layout.shapes;
            format!("DELETE FROM {table} WHERE after_row + {SPAN} < (SELECT min(row) FROM records)")
        };
        Statements {
            insert: insert(operations, attempts),
            operation: operation(operations),
            attempt: attempt(attempts),
            further: further(attempts),
            abandoned: copied(operations, "reason"),
            abandoned_attempt: copied(attempts, "delivery"),
            unused: [unused(operations), unused(attempts)],
        }
    }
}

fn names(layout: &Layout) -> Vec<String> {
    layout.facts.iter().map(Fact::name).collect()
}

fn places(from: usize, count: usize) -> String {
    let places: Vec<String> = (from..from.saturating_add(count))
        .map(|place| format!("?{place}"))
        .collect();
    places.join(", ")
}

/// Row, id, shape, pending, facts; shape, pending and facts of the first attempt.
fn insert(operations: &Layout, attempts: &Layout) -> String {
    let (mine, its) = (names(operations), names(attempts));
    let count = mine.len().saturating_add(its.len()).saturating_add(6);
    format!(
        "INSERT INTO records (row, operation_id, shape, pending, {}, attempt_shape, attempt_pending, {}) VALUES ({})
         ON CONFLICT (operation_id) DO NOTHING",
        mine.join(", "),
        its.join(", "),
        places(1, count)
    )
}

fn set(from: usize, names: &[String]) -> String {
    let changes: Vec<String> = (from..)
        .zip(names)
        .map(|(place, name)| format!("{name} = ?{place}"))
        .collect();
    changes.join(", ")
}

/// Row, shape, pending, facts. Number and start stay what they are.
fn operation(layout: &Layout) -> String {
    let facts = names(layout);
    let changing = (4..).zip(facts);
    let changes: String = changing
        .filter(|(_, name)| !["sequence", "started_at"].contains(&name.as_str()))
        .map(|(place, name)| format!(", {name} = ?{place}"))
        .collect();
    format!("UPDATE records SET shape = ?2, pending = ?3{changes} WHERE row = ?1 AND pending = 1")
}

/// Row, shape, pending, facts.
fn attempt(layout: &Layout) -> String {
    let changes = set(4, &names(layout));
    format!(
        "UPDATE records SET attempt_shape = ?2, attempt_pending = ?3, {changes}
         WHERE row = ?1 AND (attempt_shape IS NULL OR attempt_pending = 1)"
    )
}

/// Row, shape, pending, facts, number.
fn further(layout: &Layout) -> String {
    let facts = names(layout);
    let number = facts.len().saturating_add(4);
    format!(
        "INSERT INTO further_attempts (row, attempt_shape, attempt_pending, {}, attempt_no) VALUES ({})
         ON CONFLICT (row, attempt_no) DO UPDATE SET attempt_shape = ?2, attempt_pending = ?3, {}
         WHERE further_attempts.attempt_pending = 1",
        facts.join(", "),
        places(1, number),
        set(4, &facts)
    )
}

/// Shape, highest row, what stands in the column that says why.
fn copied(layout: &Layout, why: &str) -> String {
    let columns: Vec<&str> = layout.common_columns().map(|column| column.name).collect();
    let copied = columns.iter().map(|name| match *name {
        "state" => "'abandoned'",
        name if name == why => "?3",
        name => name,
    });
    format!(
        "INSERT INTO {table} (after_row, {}) SELECT ?2, {} FROM {table} WHERE shape = ?1",
        columns.join(", "),
        copied.collect::<Vec<_>>().join(", "),
        table = layout.shapes,
    )
}

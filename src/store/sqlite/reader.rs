//! Those who look into a SQLite file: connections of their own that cannot write, so that the writer never waits for them.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rusqlite::types::{Value as Sql, ValueRef};
use rusqlite::{Connection, OpenFlags, Row, params_from_iter};

use super::layout::attempt_rows;
use super::schema::{self, Unfit, VERSION};
use crate::core::time::WallTime;
use crate::ledger::columns::{ATTEMPTS, Kind, OPERATIONS, Stored, StoredRecord, Table};
use crate::ledger::store::{Query, Reader, StoreError, Sum, SumBy};

/// Idle connections that are kept. Those who look are few.
const IDLE_MAX: usize = 4;
/// How long a look waits for a file that another process has to itself.
const BUSY_MAX: Duration = Duration::from_secs(2);

/// A file that is looked into.
#[derive(Debug)]
pub struct SqliteReader {
    path: PathBuf,
    idle: Mutex<Vec<Connection>>,
}

impl SqliteReader {
    /// A reader of this file, which need not exist yet.
    pub fn new(path: impl Into<PathBuf>) -> SqliteReader {
        SqliteReader {
            path: path.into(),
            idle: Mutex::default(),
        }
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn with<T>(
        &self,
        look: impl FnOnce(&Connection) -> rusqlite::Result<T>,
    ) -> Result<T, StoreError> {
        let kept = self.lock().pop();
        let connection = match kept {
            Some(connection) => connection,
            None => self.connect()?,
        };
        let seen = look(&connection).map_err(|error| self.told(&error))?;
        let mut idle = self.lock();
        if idle.len() < IDLE_MAX {
            idle.push(connection);
        }
        Ok(seen)
    }

    fn connect(&self) -> Result<Connection, StoreError> {
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(&self.path, flags)
            .and_then(|connection| connection.busy_timeout(BUSY_MAX).map(|()| connection))
            .map_err(|error| self.told(&error))?;
        let path = self.path.display();
        match schema::version(&connection) {
            Ok(VERSION) => Ok(connection),
            Ok(found) => Err(StoreError::Unavailable(format!(
                "{path}: has no records of this version (schema {found}, needed is {VERSION})"
            ))),
            Err(Unfit::Newer(found)) => Err(StoreError::Refused(format!(
                "{path}: written by a newer version of rondo (schema {found}, this version knows {VERSION})"
            ))),
            Err(Unfit::Sql(error)) => Err(self.told(&error)),
        }
    }

    fn told(&self, error: &rusqlite::Error) -> StoreError {
        StoreError::Unavailable(format!("{}: {error}", self.path.display()))
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Connection>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Reader for SqliteReader {
    fn find(&self, query: &Query) -> Result<Vec<StoredRecord>, StoreError> {
        let (text, values) = listing(query);
        self.with(|connection| {
            // Both tables as they were at one moment.
            let moment = connection.unchecked_transaction()?;
            let mut operations = connection.prepare_cached(&text)?;
            let rows =
                operations.query_map(params_from_iter(values), |row| stored(row, &OPERATIONS))?;
            let rows = rows.collect::<rusqlite::Result<Vec<_>>>()?;
            let mut attempts = connection.prepare_cached(&attempts_of(ATTEMPTS.name))?;
            let mut records = Vec::with_capacity(rows.len());
            for operation in rows {
                let id = match operation.first() {
                    Some(Stored::Text(id)) => &**id,
                    _ => "",
                };
                let attempts = attempts.query_map([id], |row| stored(row, &ATTEMPTS))?;
                records.push(StoredRecord {
                    attempts: attempts.collect::<rusqlite::Result<_>>()?,
                    operation,
                });
            }
            drop((operations, attempts));
            moment.finish()?;
            Ok(records)
        })
    }

    fn sums(&self, by: SumBy, since: Option<WallTime>) -> Result<Vec<Sum>, StoreError> {
        let text = summing(by);
        let since = since.map_or(i64::MIN, WallTime::unix_micros);
        self.with(|connection| {
            let mut statement = connection.prepare_cached(&text)?;
            let mut rows = statement.query([since])?;
            let mut sums: Vec<Sum> = Vec::new();
            while let Some(row) = rows.next()? {
                let group: String = row.get(0)?;
                if sums.last().is_none_or(|last| last.group != group) {
                    sums.push(Sum {
                        group,
                        ..Sum::default()
                    });
                }
                if let Some(sum) = sums.last_mut() {
                    add(sum, row)?;
                }
            }
            Ok(sums)
        })
    }
}

fn add(sum: &mut Sum, row: &Row<'_>) -> rusqlite::Result<()> {
    let number = |index: usize| -> rusqlite::Result<u64> {
        let found: Option<i64> = row.get(index)?;
        Ok(u64::try_from(found.unwrap_or_default()).unwrap_or_default())
    };
    let rows = number(2)?;
    sum.rows = sum.rows.saturating_add(rows);
    sum.states.push((row.get(1)?, rows));
    let totals = [
        &mut sum.sends,
        &mut sum.latency_ms,
        &mut sum.timed,
        &mut sum.prompt_tokens,
        &mut sum.completion_tokens,
        &mut sum.cached_tokens,
        &mut sum.reasoning_tokens,
    ];
    for (index, total) in (3..).zip(totals) {
        *total = total.saturating_add(number(index)?);
    }
    Ok(())
}

pub(super) fn columns(table: &Table) -> String {
    let names: Vec<&str> = table.columns.iter().map(|column| column.name).collect();
    names.join(", ")
}

/// The list of operations, newest first. The index by start gives their order, those that began in the same microsecond apart, so the
/// default listing and a page of it read as many rows as they show.
fn listing(query: &Query) -> (String, Vec<Sql>) {
    let mut conditions = vec!["1"];
    let mut values: Vec<Sql> = Vec::new();
    let text = |text: &str| Sql::Text(text.to_owned());
    if let Some(before) = &query.before {
        conditions.push("(started_at, operation_id) < (?, ?)");
        values.push(Sql::Integer(before.started_at.unix_micros()));
        values.push(text(&before.operation_id));
    }
    if let Some(since) = query.since {
        conditions.push("started_at >= ?");
        values.push(Sql::Integer(since.unix_micros()));
    }
    if let Some(route) = &query.route {
        conditions.push("route = ?");
        values.push(text(route));
    }
    if let Some(state) = query.state {
        conditions.push("state = ?");
        values.push(text(state.label()));
    }
    if let Some(target) = &query.target {
        // In the tables themselves: for each operation the view would be read as a whole.
        conditions.push(
            "(EXISTS (SELECT 1 FROM records x CROSS JOIN attempt_shapes y ON y.shape = x.attempt_shape
                WHERE x.operation_id = operations.operation_id AND y.target = ?)
             OR EXISTS (SELECT 1 FROM records x CROSS JOIN further_attempts z ON z.row = x.row
                CROSS JOIN attempt_shapes y ON y.shape = z.attempt_shape
                WHERE x.operation_id = operations.operation_id AND y.target = ?))",
        );
        values.push(text(target));
        values.push(text(target));
    }
    if let Some(id) = &query.id {
        // The second half finds those that were renamed: their ids go on with a tilde.
        conditions.push("(operation_id = ? OR (operation_id >= ? AND operation_id < ?))");
        values.push(text(id));
        values.push(Sql::Text(format!("{id}~")));
        values.push(Sql::Text(format!("{id}\u{7f}")));
    }
    values.push(Sql::Integer(i64::try_from(query.limit).unwrap_or(i64::MAX)));
    let listed = format!(
        "SELECT {} FROM operations WHERE {} ORDER BY started_at DESC, operation_id DESC LIMIT ?",
        columns(&OPERATIONS),
        conditions.join(" AND ")
    );
    (listed, values)
}

pub(super) fn attempts_of(table: &str) -> String {
    let columns = columns(&ATTEMPTS);
    format!("SELECT {columns} FROM {table} WHERE operation_id = ?1 ORDER BY attempt_no")
}

/// Group, state, rows, sends, latency, rows that have one, and four kinds of tokens.
fn summing(by: SumBy) -> String {
    let operations = |group: &str| {
        format!(
            "SELECT {group}, state, count(*), sum(sends), sum(latency_ms), count(latency_ms), sum(prompt_tokens),
                 sum(completion_tokens), sum(cached_tokens), sum(reasoning_tokens)
             FROM operations WHERE started_at >= ?1 GROUP BY 1, 2 ORDER BY 1, 2"
        )
    };
    // An attempt was sent unless it is known not to have arrived; its operation's tokens are those of the attempt that was accepted.
    let attempts = |group: &str| {
        let tokens =
            |name: &str| format!("sum(CASE WHEN decision = 'accepted' THEN {name}_tokens END)");
        let rows = attempt_rows(
            ", r.started_at AS began, r.prompt_tokens AS prompt_tokens, r.completion_tokens AS completion_tokens, \
             r.cached_tokens AS cached_tokens, r.reasoning_tokens AS reasoning_tokens",
        );
        format!(
            "SELECT {group}, state, count(*), sum(delivery IS NOT NULL AND delivery <> 'not_delivered'), sum(latency_ms),
                 count(latency_ms), {}, {}, {}, {}
             FROM ({rows}) WHERE began >= ?1 GROUP BY 1, 2 ORDER BY 1, 2",
            tokens("prompt"),
            tokens("completion"),
            tokens("cached"),
            tokens("reasoning")
        )
    };
    match by {
        SumBy::Route => operations("route"),
        SumBy::State => operations("state"),
        SumBy::Target => attempts("target"),
        SumBy::Key => attempts("provider || '/' || coalesce(key_name, '-')"),
    }
}

pub(super) fn stored(row: &Row<'_>, table: &Table) -> rusqlite::Result<Vec<Stored>> {
    let columns = table.columns.iter().enumerate();
    columns
        .map(|(index, column)| {
            Ok(match (row.get_ref(index)?, column.kind) {
                (ValueRef::Null, _) => Stored::Null,
                (ValueRef::Integer(number), Kind::Flag) => Stored::Flag(number != 0),
                (ValueRef::Integer(number), _) => Stored::Number(number),
                (other, _) => Stored::Text(Box::from(other.as_str()?)),
            })
        })
        .collect()
}

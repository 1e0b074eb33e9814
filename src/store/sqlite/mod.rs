//! The store in a SQLite file: one connection that writes, in WAL mode, so that those who look never wait for it.
//!
//! Not here: threads, retries, the spool. Invariants, kept in SQL and not by whoever calls: a row whose state is not pending never changes
//! its state again (the `WHERE` of every upsert, and a trigger behind it); a key that another operation has is left alone, and the later
//! operation is kept under a name of its own.

mod reader;
mod schema;
mod sql;

pub use reader::SqliteReader;
pub use schema::VERSION;

use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rusqlite::types::{ToSqlOutput, ValueRef};
use rusqlite::{Connection, ErrorCode, OptionalExtension, ToSql, Transaction, params};

use crate::core::settlement::State;
use crate::core::time::WallTime;
use crate::ledger::columns::{OPERATIONS, Stored, Value, attempt_values, operation_values};
use crate::ledger::store::{
    ABANDONED_DELIVERY, ABANDONED_REASON, Boot, LateUsage, OtherBoot, Piece, Store, StoreError,
    renamed,
};
use crate::policy::snapshot::Durability;

use sql::Statements;

/// How long one statement waits for another process that has the file: a hand-over, a backup, a migration. It blocks the writer alone.
const BUSY_MAX: Duration = Duration::from_secs(5);
/// Statements that are kept prepared: all that the writer has.
const STATEMENTS_MAX: usize = 32;

/// Where a row has the id of its operation, in either table (`columns_stand_where_the_store_expects_them`).
const ID: usize = 0;

/// The store.
#[derive(Debug)]
pub struct SqliteStore {
    path: PathBuf,
    durability: Durability,
    statements: Statements,
    connection: Option<Connection>,
}

impl SqliteStore {
    /// A store in this file; nothing is touched before [`Store::open`].
    pub fn new(path: impl Into<PathBuf>, durability: Durability) -> SqliteStore {
        SqliteStore {
            path: path.into(),
            durability,
            statements: Statements::new(),
            connection: None,
        }
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn connect(&self) -> Result<Connection, StoreError> {
        make_private(&self.path).map_err(|error| {
            StoreError::Unavailable(format!("{}: {error}", self.path.display()))
        })?;
        let connection = Connection::open(&self.path).map_err(|error| self.told(&error))?;
        self.prepare(connection)
    }

    fn prepare(&self, mut connection: Connection) -> Result<Connection, StoreError> {
        let told = |error: &rusqlite::Error| self.told(error);
        connection
            .busy_timeout(BUSY_MAX)
            .map_err(|error| told(&error))?;
        connection.set_prepared_statement_cache_capacity(STATEMENTS_MAX);
        let set = |name: &str, value: &str| connection.pragma_update(None, name, value);
        // What is strict deletes its own copy once this file has the rows, so the file has to be on disk by then.
        let synchronous = match self.durability {
            Durability::Batch => "NORMAL",
            Durability::Strict => "FULL",
        };
        set("journal_mode", "WAL")
            .and_then(|()| set("synchronous", synchronous))
            .and_then(|()| set("foreign_keys", "OFF"))
            .map_err(|error| told(&error))?;
        schema::migrate(&mut connection).map_err(|error| match error {
            schema::Unfit::Sql(error) => told(&error),
            schema::Unfit::Newer(found) => StoreError::Refused(format!(
                "{}: written by a newer version of rondo (schema {found}, this version knows {VERSION}); \
                 use that version, or another ledger.path",
                self.path.display()
            )),
        })?;
        Ok(connection)
    }

    fn told(&self, error: &rusqlite::Error) -> StoreError {
        let what = format!("{}: {error}", self.path.display());
        match error.sqlite_error_code() {
            // What no repetition changes: the row itself is at fault.
            Some(ErrorCode::ConstraintViolation | ErrorCode::TypeMismatch | ErrorCode::TooBig) => {
                StoreError::Refused(what)
            }
            _ => StoreError::Unavailable(what),
        }
    }

    /// Does the work in one transaction.
    fn transact<T>(
        &mut self,
        work: impl FnOnce(&Transaction<'_>, &Statements) -> rusqlite::Result<T>,
    ) -> Result<T, StoreError> {
        let Some(connection) = self.connection.as_mut() else {
            return Err(StoreError::Unavailable("not open".to_owned()));
        };
        let statements = &self.statements;
        let done = connection
            .transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)
            .and_then(|transaction| {
                let done = work(&transaction, statements)?;
                transaction.commit().map(|()| done)
            });
        done.map_err(|error| self.told(&error))
    }
}

impl Store for SqliteStore {
    fn open(&mut self, boot: &Boot) -> Result<(), StoreError> {
        self.connection = None;
        self.connection = Some(self.connect()?);
        self.beat(boot)
    }

    fn write(&mut self, pieces: &[Piece]) -> Result<u64, StoreError> {
        self.transact(|transaction, statements| {
            let mut written = 0_usize;
            for piece in pieces {
                written += match piece {
                    Piece::Live(record) => {
                        let attempts = record.attempts.iter();
                        let attempts = attempts.map(|attempt| attempt_values(record, attempt));
                        write_record(transaction, statements, &operation_values(record), attempts)?
                    }
                    Piece::Spooled(record) => {
                        let operation: Vec<_> =
                            record.operation.iter().map(Stored::value).collect();
                        let attempts = record.attempts.iter().map(|attempt| {
                            attempt
                                .iter()
                                .map(Stored::value)
                                .collect::<Vec<Value<'_>>>()
                        });
                        write_record(transaction, statements, &operation, attempts)?
                    }
                    Piece::Usage(usage) => write_usage(transaction, statements, usage)?,
                };
            }
            Ok(u64::try_from(written).unwrap_or(u64::MAX))
        })
    }

    fn beat(&mut self, boot: &Boot) -> Result<(), StoreError> {
        let now = now_micros();
        self.transact(|transaction, _| {
            let mut statement = transaction.prepare_cached(sql::BEAT)?;
            statement.execute(params![&*boot.boot_id, &*boot.instance, now])?;
            Ok(())
        })
    }

    fn others(&mut self, boot: &Boot) -> Result<Vec<OtherBoot>, StoreError> {
        let now = now_micros();
        self.transact(|transaction, _| {
            let mut statement = transaction.prepare_cached(sql::OTHERS)?;
            let rows = statement.query_map(params![&*boot.boot_id], |row| {
                let seen: i64 = row.get(2)?;
                let silent = u64::try_from(now.saturating_sub(seen)).unwrap_or_default();
                Ok(OtherBoot {
                    boot: Boot {
                        boot_id: Arc::from(row.get_ref(0)?.as_str()?),
                        instance: Arc::from(row.get_ref(1)?.as_str()?),
                    },
                    silent: Duration::from_micros(silent),
                })
            })?;
            rows.collect()
        })
    }

    fn abandon(&mut self, dead: &Boot, at: WallTime, rows_max: u32) -> Result<u64, StoreError> {
        let now = now_micros();
        self.transact(|transaction, _| {
            let id = &*dead.boot_id;
            let mut attempts = transaction.prepare_cached(sql::ABANDON_ATTEMPTS)?;
            let mut operations = transaction.prepare_cached(sql::ABANDON_OPERATIONS)?;
            let (at, most) = (at.unix_micros(), i64::from(rows_max));
            let first = attempts.execute(params![id, at, ABANDONED_DELIVERY, most])?;
            let first = i64::try_from(first).unwrap_or(i64::MAX);
            let left = most.saturating_sub(first);
            let then = operations.execute(params![id, at, ABANDONED_REASON, left])?;
            let settled = first.saturating_add(i64::try_from(then).unwrap_or(i64::MAX));
            if settled == 0 {
                let mut ended = transaction.prepare_cached(sql::END)?;
                ended.execute(params![id, now])?;
            }
            Ok(u64::try_from(settled).unwrap_or_default())
        })
    }

    fn prune(&mut self, before: WallTime, operations_max: u32) -> Result<u64, StoreError> {
        let before = before.unix_micros();
        self.transact(|transaction, _| {
            let mut old = transaction.prepare_cached(sql::OLD)?;
            let ids = old.query_map(params![before, operations_max], |row| row.get(0))?;
            let ids: Vec<String> = ids.collect::<rusqlite::Result<_>>()?;
            let mut attempts = transaction.prepare_cached(sql::DELETE_ATTEMPTS)?;
            let mut operation = transaction.prepare_cached(sql::DELETE_OPERATION)?;
            for id in &ids {
                attempts.execute(params![id])?;
                operation.execute(params![id])?;
            }
            transaction
                .prepare_cached(sql::DELETE_BOOTS)?
                .execute(params![before])?;
            Ok(u64::try_from(ids.len()).unwrap_or(u64::MAX))
        })
    }

    fn close(&mut self, boot: &Boot) -> Result<(), StoreError> {
        let now = now_micros();
        self.transact(|transaction, _| {
            let mut ended = transaction.prepare_cached(sql::END)?;
            ended.execute(params![&*boot.boot_id, now]).map(|_| ())
        })?;
        // The last connection that closes takes the write-ahead log into the file.
        self.connection = None;
        Ok(())
    }
}

/// Writes an operation with its attempts, and gives the number of rows that changed.
fn write_record<'a, R: AsRef<[Value<'a>]>>(
    transaction: &Transaction<'_>,
    statements: &Statements,
    operation: &[Value<'a>],
    attempts: impl Iterator<Item = R>,
) -> rusqlite::Result<usize> {
    let mut upsert = transaction.prepare_cached(&statements.operation)?;
    let mut name = name_before(transaction, operation)?;
    let instead = name.as_deref().map(|name| (ID, name));
    let mut written = execute(&mut upsert, operation, instead)?;
    if written == 0 {
        if name.is_none() {
            name = other_name(transaction, operation)?;
        }
        if let Some(name) = &name {
            written = execute(&mut upsert, operation, Some((ID, name)))?;
        }
        // It is settled already, and with it all its attempts: this is the past.
        let state = OPERATIONS
            .position("state")
            .and_then(|at| operation.get(at));
        let pending = state == Some(&Value::Text(State::Pending.label()));
        if written == 0 && pending {
            return Ok(0);
        }
    }
    let mut upsert = transaction.prepare_cached(&statements.attempt)?;
    for attempt in attempts {
        let name = name.as_deref().map(|name| (ID, name));
        written += execute(&mut upsert, attempt.as_ref(), name)?;
    }
    Ok(written)
}

/// What a row of operations begins with: its id, its boot, its number there.
fn identity<'a>(operation: &[Value<'a>]) -> Option<(&'a str, &'a str, i64)> {
    match operation {
        [
            Value::Text(id),
            Value::Text(boot_id),
            Value::Number(sequence),
            ..,
        ] => Some((id, boot_id, *sequence)),
        _ => None,
    }
}

/// The name that the operation was given when its first row was written, if it was renamed.
fn name_before(
    transaction: &Transaction<'_>,
    operation: &[Value<'_>],
) -> rusqlite::Result<Option<String>> {
    let Some((id, boot_id, sequence)) = identity(operation) else {
        return Ok(None);
    };
    let name = renamed(id, boot_id, sequence);
    let mut found = transaction.prepare_cached(sql::RENAMED)?;
    let is_there = found.query_row(params![name], |row| row.get::<_, bool>(0))?;
    Ok(is_there.then_some(name))
}

/// The name of an operation whose key another one has; `None` when the row under the key is its own.
fn other_name(
    transaction: &Transaction<'_>,
    operation: &[Value<'_>],
) -> rusqlite::Result<Option<String>> {
    let Some((id, boot_id, sequence)) = identity(operation) else {
        return Ok(None);
    };
    let mut owner = transaction.prepare_cached(sql::OWNER)?;
    let is_own = owner
        .query_row(params![id, boot_id, sequence], |row| row.get::<_, bool>(0))
        .optional()?;
    Ok((is_own == Some(false)).then(|| renamed(id, boot_id, sequence)))
}

fn write_usage(
    transaction: &Transaction<'_>,
    statements: &Statements,
    usage: &LateUsage,
) -> rusqlite::Result<usize> {
    let sequence = i64::try_from(usage.sequence).unwrap_or(i64::MAX);
    let own = renamed(&usage.operation_id, &usage.boot_id, sequence);
    let mut update = transaction.prepare_cached(&statements.usage)?;
    for id in [&*usage.operation_id, &own] {
        let key = [
            Value::Text(id),
            Value::Text(&usage.boot_id),
            Value::Number(sequence),
        ];
        let values: Vec<Value<'_>> = key.into_iter().chain(usage.values()).collect();
        let changed = execute(&mut update, &values, None)?;
        if changed > 0 {
            return Ok(changed);
        }
    }
    Ok(0)
}

/// Runs a statement with these values; one of them may be replaced.
fn execute(
    statement: &mut rusqlite::CachedStatement<'_>,
    values: &[Value<'_>],
    instead: Option<(usize, &str)>,
) -> rusqlite::Result<usize> {
    for (index, value) in values.iter().enumerate() {
        let value = match instead {
            Some((at, text)) if at == index => Value::Text(text),
            _ => *value,
        };
        statement.raw_bind_parameter(index.saturating_add(1), Bound(value))?;
    }
    statement.raw_execute()
}

/// A value as SQLite takes it.
struct Bound<'a>(Value<'a>);

impl ToSql for Bound<'_> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(match self.0 {
            Value::Null => ValueRef::Null,
            Value::Text(text) => ValueRef::Text(text.as_bytes()),
            Value::Number(number) => ValueRef::Integer(number),
            Value::Flag(flag) => ValueRef::Integer(i64::from(flag)),
        }))
    }
}

/// Makes the file, and the directories above it, if they are not there: for their owner alone. SQLite gives its other files the same rights.
fn make_private(path: &Path) -> io::Result<()> {
    if let Some(above) = path.parent().filter(|above| !above.as_os_str().is_empty()) {
        make_private_dir(above)?;
    }
    let made = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path);
    match made {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => Ok(()),
    }
}

/// Makes a directory, and those above it, for their owner alone. One that is there stays as it is.
pub(super) fn make_private_dir(path: &Path) -> io::Result<()> {
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path)
}

/// The store's clock.
fn now_micros() -> i64 {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    i64::try_from(since.as_micros()).unwrap_or(i64::MAX)
}

//! The store in a SQLite file: one connection that writes, in WAL mode, so that those who look never wait for it.
//!
//! Not here: threads, retries, the spool. Invariants, kept in SQL and not by whoever calls: a row whose state is not pending never changes
//! its state again (the `WHERE` of every change, and a trigger behind it); a key that another operation has is left alone, and the later
//! operation is kept under a name of its own.

mod knowledge;
mod layout;
mod reader;
mod rows;
mod schema;
mod shapes;
mod sql;

pub use reader::SqliteReader;
pub use schema::VERSION;

use std::collections::HashMap;
use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rusqlite::{Connection, ErrorCode, Transaction, params};

use crate::core::time::WallTime;
use crate::ledger::columns::{Value, attempt_values, operation_values};
use crate::ledger::entry::Record;
use crate::ledger::store::{
    ABANDONED_DELIVERY, ABANDONED_REASON, Boot, OtherBoot, Piece, Store, StoreError,
};
use crate::policy::snapshot::Durability;

use knowledge::Knowledge;
use rows::{Rows, Values, highest};
use schema::borrowed;

/// How long one statement waits for another process that has the file: a hand-over, a backup, a migration. It blocks the writer alone.
const BUSY_MAX: Duration = Duration::from_secs(5);
/// Statements that are kept prepared: all that the writer has.
const STATEMENTS_MAX: usize = 32;
/// Pieces that are written before others may go first: some thirty microseconds. Where the writer shares a core with requests, a whole batch
/// at once is what the slowest hundredth of them waits for.
const PIECES_AT_ONCE: usize = 8;

/// The store.
#[derive(Debug)]
pub struct SqliteStore {
    path: PathBuf,
    durability: Durability,
    knowledge: Knowledge,
    connection: Option<Connection>,
}

impl SqliteStore {
    /// A store in this file; nothing is touched before [`Store::open`].
    pub fn new(path: impl Into<PathBuf>, durability: Durability) -> SqliteStore {
        SqliteStore {
            path: path.into(),
            durability,
            knowledge: Knowledge::new(),
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
        work: impl FnOnce(&Transaction<'_>, &mut Knowledge) -> rusqlite::Result<T>,
    ) -> Result<T, StoreError> {
        let Some(connection) = self.connection.as_mut() else {
            return Err(StoreError::Unavailable("not open".to_owned()));
        };
        let knowledge = &mut self.knowledge;
        let done = connection
            .transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)
            .and_then(|transaction| {
                let done = work(&transaction, knowledge)?;
                transaction.commit().map(|()| done)
            });
        done.map_err(|error| {
            self.knowledge.forget();
            self.told(&error)
        })
    }
}

impl Store for SqliteStore {
    fn open(&mut self, boot: &Boot) -> Result<(), StoreError> {
        self.connection = None;
        self.connection = Some(self.connect()?);
        // Whoever had the file meanwhile may have deleted what was known.
        self.knowledge.forget();
        self.transact(|transaction, knowledge| {
            let mut renamed = transaction.prepare_cached(sql::RENAMED)?;
            let renamed = renamed.query_map(params![&*boot.boot_id], |row| row.get(0))?;
            let renamed = renamed.collect::<rusqlite::Result<_>>()?;
            knowledge.names.begin(&boot.boot_id, renamed);
            Ok(())
        })?;
        self.beat(boot)
    }

    fn write(&mut self, pieces: &[Piece]) -> Result<u64, StoreError> {
        self.transact(|transaction, knowledge| {
            let mut rows = Rows::new(transaction, knowledge)?;
            let mut written = 0_usize;
            for (at, piece) in pieces.iter().enumerate() {
                if at.is_multiple_of(PIECES_AT_ONCE) {
                    std::thread::yield_now();
                }
                written += match piece {
                    Piece::Live(record) => write_live(&mut rows, record)?,
                    Piece::Spooled(record) => {
                        let attempts = record.attempts.iter();
                        let attempts: Vec<_> = attempts.map(|row| borrowed(row)).collect();
                        rows.write(Values {
                            operation: &borrowed(&record.operation),
                            attempts: &attempts,
                        })?
                    }
                    Piece::Usage(usage) => rows.usage(usage)?,
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
        let (now, at) = (now_micros(), at.unix_micros());
        self.transact(|transaction, knowledge| {
            let id = &*dead.boot_id;
            let statements = &knowledge.statements;
            let (mine, its) = (&statements.abandoned, &statements.abandoned_attempt);
            let mut left = rows_max;
            for (pending, copy, why, settle) in [
                (
                    sql::PENDING_FIRST,
                    its,
                    ABANDONED_DELIVERY,
                    sql::ABANDON_FIRST,
                ),
                (
                    sql::PENDING_FURTHER,
                    its,
                    ABANDONED_DELIVERY,
                    sql::ABANDON_FURTHER,
                ),
                (sql::PENDING, mine, ABANDONED_REASON, sql::ABANDON),
            ] {
                let rows = pending_rows(transaction, pending, id, left)?;
                abandon_rows(transaction, &rows, copy, why, settle, at)?;
                left = left.saturating_sub(u32::try_from(rows.len()).unwrap_or(u32::MAX));
            }
            let settled = rows_max.saturating_sub(left);
            if settled == 0 {
                let mut ended = transaction.prepare_cached(sql::END)?;
                ended.execute(params![id, now])?;
            }
            Ok(u64::from(settled))
        })
    }

    fn clock(&mut self, here: WallTime) -> Result<WallTime, StoreError> {
        Ok(here)
    }

    fn prune(&mut self, before: WallTime, operations_max: u32) -> Result<u64, StoreError> {
        let before = before.unix_micros();
        self.transact(|transaction, knowledge| {
            let mut old = transaction.prepare_cached(sql::OLD)?;
            let rows = old.query_map(params![before, operations_max], |row| row.get(0))?;
            let rows: Vec<i64> = rows.collect::<rusqlite::Result<_>>()?;
            let mut attempts = transaction.prepare_cached(sql::DELETE_ATTEMPTS)?;
            let mut operation = transaction.prepare_cached(sql::DELETE_OPERATION)?;
            for row in &rows {
                attempts.execute(params![row])?;
                operation.execute(params![row])?;
            }
            let gone = u64::try_from(rows.len()).unwrap_or(u64::MAX);
            if gone < u64::from(operations_max) {
                for unused in &knowledge.statements.unused {
                    transaction.prepare_cached(unused)?.execute([])?;
                }
            }
            transaction
                .prepare_cached(sql::DELETE_BOOTS)?
                .execute(params![before])?;
            Ok(gone)
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

/// Writes a record as it stands.
fn write_live(rows: &mut Rows<'_, '_>, record: &Record) -> rusqlite::Result<usize> {
    let operation = &operation_values(record);
    // Nearly every operation has one attempt, or none.
    match &record.attempts[..] {
        [] => rows.write::<[Value<'_>; 0]>(Values {
            operation,
            attempts: &[],
        }),
        [one] => rows.write(Values {
            operation,
            attempts: &[attempt_values(record, one)],
        }),
        more => {
            let attempts = more.iter().map(|attempt| attempt_values(record, attempt));
            rows.write(Values {
                operation,
                attempts: &attempts.collect::<Vec<_>>(),
            })
        }
    }
}

/// A pending row: its number, its shape, and the number of the attempt where the row is one of several.
type Pending = (i64, i64, Option<i64>);

fn pending_rows(
    transaction: &Transaction<'_>,
    text: &str,
    boot_id: &str,
    rows_max: u32,
) -> rusqlite::Result<Vec<Pending>> {
    let mut pending = transaction.prepare_cached(text)?;
    let has_number = pending.column_count() > 2;
    let rows = pending.query_map(params![boot_id, rows_max], |row| {
        let number = if has_number { row.get(2)? } else { None };
        Ok((row.get(0)?, row.get(1)?, number))
    })?;
    rows.collect()
}

/// Settles pending rows: each gets the shape that is its own but for the state and the reason.
fn abandon_rows(
    transaction: &Transaction<'_>,
    rows: &[Pending],
    copy: &str,
    why: &str,
    settle: &str,
    at: i64,
) -> rusqlite::Result<()> {
    let highest = highest(transaction)?.unwrap_or_default();
    let mut copy = transaction.prepare_cached(copy)?;
    let mut settle = transaction.prepare_cached(settle)?;
    let mut copies = HashMap::new();
    for (row, shape, number) in rows {
        let abandoned = match copies.get(shape) {
            Some(abandoned) => *abandoned,
            None => {
                copy.execute(params![shape, highest, why])?;
                let made = transaction.last_insert_rowid();
                copies.insert(*shape, made);
                made
            }
        };
        match number {
            Some(number) => settle.execute(params![row, abandoned, at, number])?,
            None => settle.execute(params![row, abandoned, at])?,
        };
    }
    Ok(())
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

//! The tables, and how older ones become these. `PRAGMA user_version` tells which a file has.

use rusqlite::{Connection, TransactionBehavior};

use crate::ledger::columns::{ATTEMPTS, Kind, OPERATIONS, Presence, Table};

/// The version of the tables that this program writes.
pub const VERSION: i64 = 1;

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
    if version(connection)? == VERSION {
        return Ok(());
    }
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    if version(&transaction)? < 1 {
        transaction.execute_batch(&first())?;
    }
    transaction.pragma_update(None, "user_version", VERSION)?;
    transaction.commit()?;
    Ok(())
}

/// Version 1. The keys hold the rows (`WITHOUT ROWID`): ids are ordered by time, so that the trees grow at their ends. Beside them there is
/// what retention, recovery and the listing by time need, and nothing else; each index is paid for at every write.
fn first() -> String {
    let (operations, attempts) = (table(&OPERATIONS), table(&ATTEMPTS));
    let guards = guard(&OPERATIONS) + &guard(&ATTEMPTS);
    format!(
        "{operations}{attempts}\
         CREATE TABLE boots (boot_id TEXT NOT NULL PRIMARY KEY, instance TEXT NOT NULL, started_at INTEGER NOT NULL,
             seen_at INTEGER NOT NULL, ended_at INTEGER) STRICT, WITHOUT ROWID;
         CREATE INDEX operations_started ON operations (started_at);
         CREATE INDEX operations_pending ON operations (boot_id) WHERE state = 'pending';
         CREATE INDEX attempts_pending ON attempts (boot_id) WHERE state = 'pending';
         {guards}"
    )
}

fn table(table: &Table) -> String {
    let columns = table.columns.iter().map(|column| {
        let kind = match column.kind {
            Kind::Text => "TEXT",
            Kind::Count | Kind::Flag | Kind::Time => "INTEGER",
        };
        let presence = match column.presence {
            Presence::Always => " NOT NULL",
            Presence::Maybe => "",
        };
        format!("{} {kind}{presence}, ", column.name)
    });
    let columns: String = columns.collect();
    let key = table.key.join(", ");
    format!(
        "CREATE TABLE {} ({columns}PRIMARY KEY ({key})) STRICT, WITHOUT ROWID;\n",
        table.name
    )
}

/// The second lock on the door: whoever writes, a terminal state stays (R-L1).
fn guard(table: &Table) -> String {
    let name = table.name;
    format!(
        "CREATE TRIGGER {name}_terminal BEFORE UPDATE OF state ON {name}
             WHEN old.state <> 'pending' AND new.state <> old.state
             BEGIN SELECT raise(ABORT, 'a terminal state never changes'); END;\n"
    )
}

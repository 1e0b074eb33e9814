//! The tables in the database, by version.
//!
//! Not here: what they mean (`ledger::columns`). Invariants: a version is reached in one transaction, by one gateway at a time; tables of
//! a newer version are left alone; a terminal row's state does not change, whoever asks (R-L1).

use std::fmt::Write;

use super::link::Link;
use crate::ledger::columns::{ATTEMPTS, Column, Kind, OPERATIONS, Presence, Table};
use crate::ledger::store::StoreError;

/// The version that this code writes. A new column of `ledger::columns` raises it, and its step below says
/// `ALTER TABLE .. ADD COLUMN IF NOT EXISTS`, since version 1 makes the tables as they are now.
pub const VERSION: i64 = 1;

/// Held while versions change. Any number, as long as every gateway takes the same: the first eight letters of "rondo schema".
const ADVISORY_LOCK: i64 = 0x726f_6e64_6f20_7363;

/// From the catalogue's table: `to_regclass` answers from a cache that does not notice what another session made in the meantime.
const STANDS: &str = "SELECT EXISTS (SELECT 1 FROM pg_catalog.pg_class \
     WHERE relname = 'rondo_schema' AND pg_catalog.pg_table_is_visible(oid))";
const FOUND: &str = "SELECT coalesce(max(version), 0) FROM rondo_schema";

/// Brings the tables to [`VERSION`]. Needs no right to create anything when they are there.
pub(super) async fn migrate(link: &mut Link) -> Result<(), StoreError> {
    if found(link).await? == VERSION {
        return Ok(());
    }
    link.transaction(async |link| {
        let lock = format!("SELECT pg_advisory_xact_lock({ADVISORY_LOCK})");
        link.batch(&lock).await?;
        // Another gateway may have been faster.
        let from = found(link).await?;
        if from < 1 {
            link.batch(&first()).await?;
        }
        for version in from.saturating_add(1)..=VERSION {
            let entered = format!("INSERT INTO rondo_schema (version) VALUES ({version})");
            link.batch(&entered).await?;
        }
        Ok(())
    })
    .await
}

async fn found(link: &mut Link) -> Result<i64, StoreError> {
    let wrong = |error: tokio_postgres::Error| StoreError::Unavailable(error.to_string());
    let rows = link.query(STANDS, &[]).await?;
    let row = rows.first();
    if !row.map_or(Ok(false), |row| row.try_get(0)).map_err(wrong)? {
        return Ok(0);
    }
    let rows = link.query(FOUND, &[]).await?;
    let row = rows.first();
    let version = row.map_or(Ok(0), |row| row.try_get(0)).map_err(wrong)?;
    if version > VERSION {
        return Err(StoreError::Refused(format!(
            "the tables have version {version}, this gateway knows versions up to {VERSION}: a newer gateway made them"
        )));
    }
    Ok(version)
}

/// Everything, as of version 1. Text is compared byte by byte: ids are no words, and every store gives one order.
fn first() -> String {
    let mut sql = String::from("CREATE TABLE rondo_schema (version BIGINT PRIMARY KEY);\n");
    for table in [&OPERATIONS, &ATTEMPTS] {
        create(&mut sql, table);
    }
    sql.push_str(
        r#"
        CREATE TABLE boots (
            boot_id TEXT COLLATE "C" PRIMARY KEY,
            instance TEXT COLLATE "C" NOT NULL,
            started_at BIGINT NOT NULL,
            seen_at BIGINT NOT NULL,
            ended_at BIGINT
        );
        CREATE INDEX operations_by_start ON operations (started_at, operation_id);
        CREATE INDEX operations_pending ON operations (boot_id) WHERE state = 'pending';
        CREATE INDEX attempts_pending ON attempts (boot_id) WHERE state = 'pending';
        CREATE FUNCTION rondo_terminal_stays() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN
            RAISE EXCEPTION 'a row of % that is % cannot become %', TG_TABLE_NAME, OLD.state, NEW.state;
        END $$;
        CREATE TRIGGER operations_terminal_stays BEFORE UPDATE ON operations FOR EACH ROW
            WHEN (OLD.state <> 'pending' AND NEW.state IS DISTINCT FROM OLD.state)
            EXECUTE FUNCTION rondo_terminal_stays();
        CREATE TRIGGER attempts_terminal_stays BEFORE UPDATE ON attempts FOR EACH ROW
            WHEN (OLD.state <> 'pending' AND NEW.state IS DISTINCT FROM OLD.state)
            EXECUTE FUNCTION rondo_terminal_stays();
        "#,
    );
    sql
}

fn create(sql: &mut String, table: &Table) {
    let columns: Vec<String> = table.columns.iter().map(column).collect();
    // Writing to a String does not fail.
    let _ = writeln!(
        sql,
        "CREATE TABLE {} ({}, PRIMARY KEY ({}));",
        table.name,
        columns.join(", "),
        names(table.key.iter().copied())
    );
}

fn column(column: &Column) -> String {
    let collation = match column.kind {
        Kind::Text => r#" COLLATE "C""#,
        Kind::Count | Kind::Flag | Kind::Time => "",
    };
    let presence = match column.presence {
        Presence::Always => " NOT NULL",
        Presence::Maybe => "",
    };
    let kind = sql_type(column.kind);
    format!("\"{}\" {kind}{collation}{presence}", column.name)
}

/// The type of a column.
pub(super) fn sql_type(kind: Kind) -> &'static str {
    match kind {
        Kind::Text => "text",
        Kind::Count | Kind::Time => "bigint",
        Kind::Flag => "boolean",
    }
}

/// Quoted names, with commas between.
pub(super) fn names<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let quoted: Vec<String> = names.map(|name| format!("\"{name}\"")).collect();
    quoted.join(", ")
}

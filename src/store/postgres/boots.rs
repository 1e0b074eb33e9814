//! The processes that share the database: their lease, and what becomes of the rows of a dead one (R-L6); and the end of old records.
//!
//! Not here: who counts as dead (`ledger::store::is_dead`). Invariants: only the server's clock is compared; every step touches a bounded
//! number of rows; a boot has ended only when none of its rows is pending.

use std::sync::Arc;
use std::time::Duration;

use super::error::failed;
use super::link::Link;
use crate::core::time::WallTime;
use crate::ledger::store::{Boot, OtherBoot, StoreError};

/// Other boots that are told of at once. More processes than that do not share one database; who is not told of now is told of later.
const OTHERS_MAX: i64 = 1000;

/// A boot that was taken for dead and comes back has not ended.
const ENTER: &str = "INSERT INTO boots AS b (boot_id, instance, started_at, seen_at) \
     SELECT $1, $2, n.at, n.at FROM (SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint AS at) n \
     ON CONFLICT (boot_id) DO UPDATE SET seen_at = excluded.seen_at, ended_at = NULL";

const OTHERS: &str = "SELECT boot_id, instance, \
     greatest((extract(epoch FROM clock_timestamp()) * 1000000)::bigint - seen_at, 0) \
     FROM boots WHERE ended_at IS NULL AND boot_id <> $1 ORDER BY started_at, boot_id LIMIT $2";

const END: &str = "UPDATE boots SET ended_at = (extract(epoch FROM clock_timestamp()) * 1000000)::bigint \
     WHERE boot_id = $1 AND ended_at IS NULL";

const ABANDON_ATTEMPTS: &str = "UPDATE attempts SET state = 'abandoned', finished_at = $2, latency_ms = NULL, \
     delivery = coalesce(delivery, 'ambiguous') WHERE (operation_id, attempt_no) IN (\
     SELECT operation_id, attempt_no FROM attempts WHERE boot_id = $1 AND state = 'pending' \
     ORDER BY operation_id, attempt_no LIMIT $3 FOR UPDATE)";

const ABANDON_OPERATIONS: &str = "UPDATE operations SET state = 'abandoned', finished_at = $2, latency_ms = NULL, \
     http_status = NULL, reason = 'process_ended' WHERE operation_id IN (\
     SELECT operation_id FROM operations WHERE boot_id = $1 AND state = 'pending' \
     ORDER BY operation_id LIMIT $3 FOR UPDATE)";

const OLD: &str = "SELECT operation_id FROM operations WHERE started_at < $1 AND state <> 'pending' \
     ORDER BY started_at, operation_id LIMIT $2 FOR UPDATE SKIP LOCKED";
const PRUNE_ATTEMPTS: &str = "DELETE FROM attempts WHERE operation_id = ANY($1::text[])";
const PRUNE_OPERATIONS: &str = "DELETE FROM operations WHERE operation_id = ANY($1::text[])";
/// A boot that ended has no pending rows, and nothing else asks for it.
const PRUNE_BOOTS: &str = "DELETE FROM boots WHERE ended_at < $1";

const CLOCK: &str = "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint";

/// What time it is on the server.
pub(super) async fn clock(link: &mut Link) -> Result<WallTime, StoreError> {
    let rows = link.query(CLOCK, &[]).await?;
    let told = rows.first().map(|row| row.try_get(0)).transpose();
    let told = told.map_err(|error| failed(&error))?;
    Ok(WallTime::from_unix_micros(told.unwrap_or_default()))
}

/// Enters the boot, or renews its lease.
pub(super) async fn enter(link: &mut Link, boot: &Boot) -> Result<(), StoreError> {
    link.execute(ENTER, &[&&*boot.boot_id, &&*boot.instance])
        .await?;
    Ok(())
}

pub(super) async fn others(link: &mut Link, boot: &Boot) -> Result<Vec<OtherBoot>, StoreError> {
    let rows = link.query(OTHERS, &[&&*boot.boot_id, &OTHERS_MAX]).await?;
    let read = rows.iter().map(|row| {
        let silent: i64 = row.try_get(2)?;
        Ok(OtherBoot {
            boot: Boot {
                boot_id: Arc::from(row.try_get::<_, &str>(0)?),
                instance: Arc::from(row.try_get::<_, &str>(1)?),
            },
            silent: Duration::from_micros(u64::try_from(silent).unwrap_or(0)),
        })
    });
    let read: Result<_, tokio_postgres::Error> = read.collect();
    read.map_err(|error| failed(&error))
}

pub(super) async fn abandon(
    link: &mut Link,
    dead: &Boot,
    at: WallTime,
    rows_max: u32,
) -> Result<u64, StoreError> {
    let (boot, at) = (&*dead.boot_id, at.unix_micros());
    link.transaction(async |link| {
        let rows_max = i64::from(rows_max);
        let attempts = link
            .execute(ABANDON_ATTEMPTS, &[&boot, &at, &rows_max])
            .await?;
        let left = rows_max.saturating_sub(i64::try_from(attempts).unwrap_or(i64::MAX));
        if left <= 0 {
            return Ok(attempts);
        }
        let operations = link
            .execute(ABANDON_OPERATIONS, &[&boot, &at, &left])
            .await?;
        let settled = attempts.saturating_add(operations);
        if settled == 0 {
            link.execute(END, &[&boot]).await?;
        }
        Ok(settled)
    })
    .await
}

pub(super) async fn prune(
    link: &mut Link,
    before: WallTime,
    operations_max: u32,
) -> Result<u64, StoreError> {
    let before = before.unix_micros();
    link.transaction(async |link| {
        let most = i64::from(operations_max);
        let rows = link.query(OLD, &[&before, &most]).await?;
        let read: Result<Vec<&str>, _> = rows.iter().map(|row| row.try_get(0)).collect();
        let mut ids = read.map_err(|error| failed(&error))?;
        link.execute(PRUNE_BOOTS, &[&before]).await?;
        if ids.is_empty() {
            return Ok(0);
        }
        ids.sort_unstable();
        link.execute(PRUNE_ATTEMPTS, &[&ids]).await?;
        link.execute(PRUNE_OPERATIONS, &[&ids]).await
    })
    .await
}

pub(super) async fn close(link: &mut Link, boot: &Boot) -> Result<(), StoreError> {
    link.execute(END, &[&&*boot.boot_id]).await?;
    Ok(())
}

//! Looking at the records: a small pool of connections that cannot write, and the list of records.
//!
//! Invariants: at most [`CONNECTIONS_MAX`] connections; a record and its attempts are of one moment; a connection that failed does not go
//! back to the pool.

use std::fmt;

use deadpool_postgres::{
    Hook, HookError, Manager, ManagerConfig, Object, Pool, PoolError, RecyclingMethod,
    Runtime as PoolRuntime,
};
use tokio::runtime::{Builder, Runtime};
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use super::error::{failed, unconnected};
use super::link::session;
use super::schema::names;
use super::sums;
use super::target::{Bounds, Target};
use crate::core::time::WallTime;
use crate::ledger::columns::{ATTEMPTS, Kind, OPERATIONS, Stored, StoredRecord, Table};
use crate::ledger::store::{Query, Reader, StoreError, Sum, SumBy};

/// Connections for looking. A person and a dashboard or two; a fifth question waits.
pub const CONNECTIONS_MAX: usize = 4;

/// The reader's side. Calls block and must not come from a thread that drives an async runtime.
pub struct PostgresReader {
    pool: Pool,
    bounds: Bounds,
    /// Taken only by the drop.
    runtime: Option<Runtime>,
}

impl fmt::Debug for PostgresReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresReader")
            .field("url", &"[redacted]")
            .finish_non_exhaustive()
    }
}

impl PostgresReader {
    /// A reader that is not connected yet.
    pub fn new(target: &Target) -> Result<PostgresReader, StoreError> {
        let wrong = |what: String| StoreError::Unavailable(what);
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("rondo-records")
            .enable_all()
            .build()
            .map_err(|error| wrong(format!("no runtime: {error}")))?;
        let recycling_method = RecyclingMethod::Fast;
        let manager = Manager::from_config(
            target.config.clone(),
            target.tls.clone(),
            ManagerConfig { recycling_method },
        );
        let settings = format!(
            "{}; SET default_transaction_read_only = on",
            session(target.bounds.statement)
        );
        let prepare = Hook::async_fn(move |client, _| {
            let settings = settings.clone();
            Box::pin(async move {
                let ran = client.batch_execute(&settings).await;
                ran.map_err(HookError::Backend)
            })
        });
        let pool = Pool::builder(manager)
            .max_size(CONNECTIONS_MAX)
            .runtime(PoolRuntime::Tokio1)
            .create_timeout(Some(target.bounds.connect))
            .post_create(prepare)
            .build()
            .map_err(|error| wrong(error.to_string()))?;
        Ok(PostgresReader {
            pool,
            bounds: target.bounds,
            runtime: Some(runtime),
        })
    }

    /// Does the work on a connection of the pool, within the bound of a call.
    fn call<T>(
        &self,
        work: impl AsyncFnOnce(&Object) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let Some(runtime) = &self.runtime else {
            return Err(StoreError::Unavailable("the reader has ended".into()));
        };
        let late = || StoreError::Unavailable("the database did not answer in time".into());
        runtime.block_on(async {
            let client = tokio::time::timeout(self.bounds.call, self.pool.get()).await;
            let client = client.map_err(|_| late())?;
            let client = client.map_err(|error| unpooled(&error))?;
            let done = tokio::time::timeout(self.bounds.call, work(&client)).await;
            let done = done.unwrap_or_else(|_| Err(late()));
            if done.is_err() {
                drop(Object::take(client));
            }
            done
        })
    }
}

impl Drop for PostgresReader {
    fn drop(&mut self) {
        self.pool.close();
        // Plainly dropped, a runtime panics on the threads of another.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl Reader for PostgresReader {
    fn find(&self, query: &Query) -> Result<Vec<StoredRecord>, StoreError> {
        self.call(async |client| {
            begin(client).await?;
            let found = find(client, query).await?;
            commit(client).await?;
            Ok(found)
        })
    }

    fn sums(&self, by: SumBy, since: Option<WallTime>) -> Result<Vec<Sum>, StoreError> {
        self.call(async |client| {
            let since = since.map_or(i64::MIN, WallTime::unix_micros);
            sums::from(&query(client, &sums::sql(by), &[&since]).await?)
        })
    }
}

fn unpooled(error: &PoolError) -> StoreError {
    match error {
        PoolError::Backend(error) => unconnected(error),
        PoolError::PostCreateHook(HookError::Backend(error)) => failed(error),
        PoolError::Timeout(_) => {
            StoreError::Unavailable("cannot connect: no answer in time".into())
        }
        PoolError::Closed | PoolError::NoRuntimeSpecified | PoolError::PostCreateHook(_) => {
            StoreError::Unavailable("the pool of connections is closed".into())
        }
    }
}

/// One moment for everything that follows.
async fn begin(client: &Object) -> Result<(), StoreError> {
    let began = client.batch_execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY");
    began.await.map_err(|error| failed(&error))
}

async fn commit(client: &Object) -> Result<(), StoreError> {
    let ended = client.batch_execute("COMMIT");
    ended.await.map_err(|error| failed(&error))
}

async fn query(
    client: &Object,
    sql: &str,
    parameters: &[&(dyn ToSql + Sync)],
) -> Result<Vec<Row>, StoreError> {
    let statement = client.prepare_cached(sql).await;
    let statement = statement.map_err(|error| failed(&error))?;
    let rows = client.query(&statement, parameters).await;
    rows.map_err(|error| failed(&error))
}

async fn find(client: &Object, asked: &Query) -> Result<Vec<StoredRecord>, StoreError> {
    let (sql, parameters) = select(asked);
    let parameters: Vec<_> = parameters.iter().map(|value| &**value).collect();
    let rows = query(client, &sql, &parameters).await?;
    let mut records = Vec::with_capacity(rows.len());
    for row in &rows {
        records.push(StoredRecord {
            operation: stored(row, &OPERATIONS)?,
            attempts: Vec::new(),
        });
    }
    let ids = records.iter().map(|record| record.operation.first());
    let ids: Vec<&str> = ids.map(id).collect();
    let sql = format!(
        "SELECT {} FROM attempts WHERE operation_id = ANY($1::text[]) ORDER BY operation_id, attempt_no",
        names(ATTEMPTS.columns.iter().map(|column| column.name))
    );
    let places: std::collections::HashMap<String, usize> = (0..)
        .zip(&ids)
        .map(|(place, id)| ((*id).to_owned(), place))
        .collect();
    for row in &query(client, &sql, &[&ids]).await? {
        let attempt = stored(row, &ATTEMPTS)?;
        let place = places.get(id(attempt.first()));
        if let Some(record) = place.and_then(|place| records.get_mut(*place)) {
            record.attempts.push(attempt);
        }
    }
    Ok(records)
}

/// The id is the first column of both tables.
fn id(value: Option<&Stored>) -> &str {
    match value {
        Some(Stored::Text(text)) => text,
        _ => "",
    }
}

fn stored(row: &Row, table: &Table) -> Result<Vec<Stored>, StoreError> {
    let columns = (0..).zip(table.columns);
    let read = columns.map(|(place, column)| {
        Ok(match column.kind {
            Kind::Text => row
                .try_get::<_, Option<&str>>(place)?
                .map(|text| Stored::Text(Box::from(text))),
            Kind::Count | Kind::Time => row.try_get::<_, Option<i64>>(place)?.map(Stored::Number),
            Kind::Flag => row.try_get::<_, Option<bool>>(place)?.map(Stored::Flag),
        }
        .unwrap_or(Stored::Null))
    });
    let read: Result<_, tokio_postgres::Error> = read.collect();
    read.map_err(|error| failed(&error))
}

/// The statement with only those conditions that were asked for, so that the planner sees what it has to find.
fn select<'a>(asked: &'a Query) -> (String, Vec<Box<dyn ToSql + Sync + 'a>>) {
    let mut parameters: Vec<Box<dyn ToSql + Sync + 'a>> = Vec::new();
    let mut conditions = vec!["true".to_owned()];
    let mut given = |value: Box<dyn ToSql + Sync + 'a>| {
        parameters.push(value);
        format!("${}", parameters.len())
    };
    if let Some(route) = &asked.route {
        conditions.push(format!("o.route = {}", given(Box::new(route))));
    }
    if let Some(state) = asked.state {
        conditions.push(format!("o.state = {}", given(Box::new(state.label()))));
    }
    if let Some(target) = &asked.target {
        conditions.push(format!(
            "EXISTS (SELECT 1 FROM attempts a WHERE a.operation_id = o.operation_id AND a.target = {})",
            given(Box::new(target))
        ));
    }
    if let Some(id) = &asked.id {
        // The range is for the index; byte 127 follows the tilde.
        conditions.push(format!(
            "(o.operation_id = {0} OR (o.operation_id > {0} || '~' AND o.operation_id < {0} || chr(127) \
             AND o.operation_id = {0} || '~' || o.boot_id || '-' || o.sequence))",
            given(Box::new(id))
        ));
    }
    if let Some(since) = asked.since {
        conditions.push(format!(
            "o.started_at >= {}",
            given(Box::new(since.unix_micros()))
        ));
    }
    if let Some(before) = &asked.before {
        conditions.push(format!(
            "(o.started_at, o.operation_id) < ({}, {})",
            given(Box::new(before.started_at.unix_micros())),
            given(Box::new(&before.operation_id))
        ));
    }
    let limit = i64::try_from(asked.limit).unwrap_or(i64::MAX);
    let limit = given(Box::new(limit));
    let columns = OPERATIONS.columns.iter();
    let columns: Vec<String> = columns
        .map(|column| format!("o.\"{}\"", column.name))
        .collect();
    let sql = format!(
        "SELECT {} FROM operations o WHERE {} ORDER BY o.started_at DESC, o.operation_id DESC LIMIT {limit}",
        columns.join(", "),
        conditions.join(" AND "),
    );
    (sql, parameters)
}

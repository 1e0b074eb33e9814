//! One connection of the writer, with its prepared statements.
//!
//! Not here: what is asked. Invariant: whoever made a transaction either committed it or gives the link up.

use std::collections::HashMap;
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Row, Statement};

use super::error::{failed, unconnected};
use super::target::Target;
use crate::ledger::store::StoreError;

/// Time for a farewell to the server. Without one it only notes the loss in its log.
const FAREWELL_MAX: Duration = Duration::from_secs(1);

/// Parameters of a statement.
pub(super) type Parameters<'a> = [&'a (dyn ToSql + Sync)];

pub(super) struct Link {
    client: Client,
    driver: JoinHandle<()>,
    statements: HashMap<&'static str, Statement>,
}

impl Link {
    pub(super) async fn connect(target: &Target) -> Result<Link, StoreError> {
        let connected = target.config.connect(target.tls.clone());
        let within = tokio::time::timeout(target.bounds.connect, connected);
        let (client, connection) = within
            .await
            .map_err(|_| StoreError::Unavailable("cannot connect: no answer in time".into()))?
            .map_err(|error| unconnected(&error))?;
        // What ends it shows in the next call.
        let driver = tokio::spawn(async move {
            let _ = connection.await;
        });
        let link = Link {
            client,
            driver,
            statements: HashMap::new(),
        };
        link.batch(&session(target.bounds.statement)).await?;
        Ok(link)
    }

    pub(super) fn is_closed(&self) -> bool {
        self.client.is_closed()
    }

    /// Runs statements without parameters.
    pub(super) async fn batch(&self, sql: &str) -> Result<(), StoreError> {
        let ran = self.client.batch_execute(sql).await;
        ran.map_err(|error| failed(&error))
    }

    /// Runs a statement that is prepared once, and gives its rows.
    pub(super) async fn query(
        &mut self,
        sql: &'static str,
        parameters: &Parameters<'_>,
    ) -> Result<Vec<Row>, StoreError> {
        let statement = self.prepared(sql).await?;
        let rows = self.client.query(&statement, parameters).await;
        rows.map_err(|error| failed(&error))
    }

    /// The same for a statement without rows; gives how many it changed.
    pub(super) async fn execute(
        &mut self,
        sql: &'static str,
        parameters: &Parameters<'_>,
    ) -> Result<u64, StoreError> {
        let statement = self.prepared(sql).await?;
        let changed = self.client.execute(&statement, parameters).await;
        changed.map_err(|error| failed(&error))
    }

    async fn prepared(&mut self, sql: &'static str) -> Result<Statement, StoreError> {
        if let Some(statement) = self.statements.get(sql) {
            return Ok(statement.clone());
        }
        let statement = self.client.prepare(sql).await;
        let statement = statement.map_err(|error| failed(&error))?;
        self.statements.insert(sql, statement.clone());
        Ok(statement)
    }

    /// Does the work in one transaction. What it needs of isolation is said, since a database may have another default.
    pub(super) async fn transaction<T>(
        &mut self,
        work: impl AsyncFnOnce(&mut Link) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        self.batch("BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE")
            .await?;
        match work(self).await {
            Ok(value) => {
                self.batch("COMMIT").await?;
                Ok(value)
            }
            Err(refused @ StoreError::Refused(_)) => {
                self.batch("ROLLBACK").await?;
                Err(refused)
            }
            Err(unavailable @ StoreError::Unavailable(_)) => Err(unavailable),
        }
    }

    /// Ends the connection in order.
    pub(super) async fn close(self) {
        drop(self.statements);
        drop(self.client);
        let _ = tokio::time::timeout(FAREWELL_MAX, self.driver).await;
    }
}

/// Settings of a session: no statement and no lock outlives its caller by much.
pub(super) fn session(statement: Duration) -> String {
    let ms = statement.as_millis();
    format!(
        "SET statement_timeout = {ms}; SET lock_timeout = {ms}; \
         SET idle_in_transaction_session_timeout = {ms}; SET client_min_messages = warning"
    )
}

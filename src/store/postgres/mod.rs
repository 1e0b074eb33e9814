//! The store of records in PostgreSQL, which several gateways may share: [`PostgresStore`] writes, [`PostgresReader`] looks.
//!
//! Not here: when to write, spool or recover (the writer). Invariants: a call ends within its bound, whatever the server does; after a
//! failure of the connection the next call has a new one; every connection has found the tables at this version.

mod arrays;
mod boots;
mod error;
mod gathered;
mod link;
mod read;
mod schema;
mod sums;
pub mod target;
mod tls;
mod write;

use std::fmt;

use tokio::runtime::{Builder, Runtime};

pub use self::read::PostgresReader;
pub use self::schema::VERSION;
pub use self::target::{BadUrl, Bounds, Target};

use self::link::Link;
use crate::core::time::WallTime;
use crate::ledger::store::{Boot, OtherBoot, Piece, Store, StoreError};

/// The writer's side. Its calls block, so it belongs on a thread of its own, outside of any async runtime.
pub struct PostgresStore {
    target: Target,
    /// Taken only by the drop.
    runtime: Option<Runtime>,
    link: Option<Link>,
}

impl fmt::Debug for PostgresStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresStore")
            .field("target", &self.target)
            .field("connected", &self.link.is_some())
            .finish_non_exhaustive()
    }
}

impl PostgresStore {
    /// A store that is not connected yet.
    pub fn new(target: Target) -> PostgresStore {
        PostgresStore {
            target,
            runtime: None,
            link: None,
        }
    }

    /// Does the work on the connection, or on a new one, within the bound of a call. A connection that failed is not used again.
    fn call<T>(
        &mut self,
        work: impl AsyncFnOnce(&mut Link) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let runtime = match self.runtime.take() {
            Some(runtime) => runtime,
            None => alone()?,
        };
        let link = self.link.take().filter(|link| !link.is_closed());
        let target = &self.target;
        let done = runtime.block_on(async {
            let work = async {
                let mut link = match link {
                    Some(link) => link,
                    None => connected(target).await?,
                };
                let done = work(&mut link).await;
                let kept = !matches!(done, Err(StoreError::Unavailable(_)));
                Ok((kept.then_some(link), done))
            };
            tokio::time::timeout(target.bounds.call, work).await
        });
        self.runtime = Some(runtime);
        match done {
            Ok(Ok((link, done))) => {
                self.link = link;
                done
            }
            Ok(Err(error)) => Err(error),
            Err(_) => {
                let bound = target.bounds.call.as_millis();
                let text = format!("the database did not answer within {bound} ms");
                Err(StoreError::Unavailable(text))
            }
        }
    }
}

async fn connected(target: &Target) -> Result<Link, StoreError> {
    let mut link = Link::connect(target).await?;
    schema::migrate(&mut link).await?;
    Ok(link)
}

fn alone() -> Result<Runtime, StoreError> {
    let runtime = Builder::new_current_thread().enable_all().build();
    runtime.map_err(|error| StoreError::Unavailable(format!("no runtime: {error}")))
}

impl Store for PostgresStore {
    fn open(&mut self, boot: &Boot) -> Result<(), StoreError> {
        self.call(async |link| boots::enter(link, boot).await)
    }

    fn write(&mut self, pieces: &[Piece]) -> Result<u64, StoreError> {
        self.call(async |link| write::write(link, pieces).await)
    }

    fn beat(&mut self, boot: &Boot) -> Result<(), StoreError> {
        self.call(async |link| boots::enter(link, boot).await)
    }

    fn others(&mut self, boot: &Boot) -> Result<Vec<OtherBoot>, StoreError> {
        self.call(async |link| boots::others(link, boot).await)
    }

    fn abandon(&mut self, dead: &Boot, at: WallTime, rows_max: u32) -> Result<u64, StoreError> {
        self.call(async |link| boots::abandon(link, dead, at, rows_max).await)
    }

    fn clock(&mut self, _: WallTime) -> Result<WallTime, StoreError> {
        self.call(boots::clock)
    }

    fn prune(&mut self, before: WallTime, operations_max: u32) -> Result<u64, StoreError> {
        self.call(async |link| boots::prune(link, before, operations_max).await)
    }

    fn close(&mut self, boot: &Boot) -> Result<(), StoreError> {
        self.call(async |link| boots::close(link, boot).await)?;
        if let (Some(link), Some(runtime)) = (self.link.take(), &self.runtime) {
            runtime.block_on(link.close());
        }
        Ok(())
    }
}

impl Drop for PostgresStore {
    fn drop(&mut self) {
        // Plainly dropped, a runtime panics on the threads of another.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

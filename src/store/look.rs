//! Which reader looks into a store. A reader never makes one.

use std::path::Path;
use std::sync::Arc;

use super::postgres::{Bounds, PostgresReader, Target};
use super::sqlite::SqliteReader;
use crate::ledger::store::Reader;
use crate::policy::snapshot::LedgerStore;

/// Why nobody can look: said to people, with what to do.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unseen {
    /// Nothing is recorded.
    #[error(
        "ledger.store is off: the last operations are in the gateway's memory alone, see its admin page or GET /admin/api/operations; \
         to keep records, set ledger.store"
    )]
    Off,
    /// There is no such file.
    #[error(
        "there is no store at {path}: {why}\n\
         The gateway makes it when it starts. Relative names begin at the working directory, which is {here}."
    )]
    NoFile {
        /// What was looked for.
        path: String,
        /// Where it was looked for.
        here: String,
        /// Why it was not found.
        why: String,
    },
    /// The URL of PostgreSQL does not say where to look.
    #[error("the URL of the store: {0}")]
    Url(String),
}

/// A reader of this store, which need not be there yet.
pub fn reader(store: &LedgerStore) -> Result<Arc<dyn Reader>, Unseen> {
    match store {
        LedgerStore::Off => Err(Unseen::Off),
        LedgerStore::Sqlite { path } => Ok(Arc::new(SqliteReader::new(path))),
        LedgerStore::Postgres { url } => {
            let target = Target::parse(url.expose(), Bounds::USUAL);
            let target = target.map_err(|error| Unseen::Url(error.to_string()))?;
            let reader = PostgresReader::new(&target);
            let reader = reader.map_err(|error| Unseen::Url(error.to_string()))?;
            Ok(Arc::new(reader))
        }
    }
}

/// A reader of a store that should be there.
pub fn look(store: &LedgerStore) -> Result<Arc<dyn Reader>, Unseen> {
    if let LedgerStore::Sqlite { path } = store {
        is_file(path)?;
    }
    reader(store)
}

fn is_file(path: &str) -> Result<(), Unseen> {
    let why = match std::fs::metadata(Path::new(path)) {
        Ok(found) if found.is_file() => return Ok(()),
        Ok(_) => "that is not a file".to_owned(),
        Err(error) => error.to_string(),
    };
    let here = std::env::current_dir();
    Err(Unseen::NoFile {
        path: path.to_owned(),
        here: here.map_or_else(
            |_| "not known".to_owned(),
            |here| here.display().to_string(),
        ),
        why,
    })
}

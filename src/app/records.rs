//! Recording as the configuration asks for it: which store, where its files are, and the end of it all.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crate::ledger::store::Store;
use crate::ledger::{Book, Outbox};
use crate::policy::snapshot::{Durability, LedgerSettings, LedgerStore};
use crate::store::postgres::{Bounds, PostgresStore, Target};
use crate::store::sqlite::SqliteStore;
use crate::store::{Boots, Habits, Recording, Setup};

/// Time that the end of the process gives to its records. What is not written by then waits on disk for the next start.
pub const FINISH_MAX: Duration = Duration::from_secs(5);

/// Where the state is kept beside a database that is elsewhere.
const POSTGRES_STATE_DIR: &str = "data/rondo.state";

/// The records of this process, and who writes them.
#[derive(Debug)]
pub(super) struct Records {
    pub book: Arc<Book>,
    /// Names this process; `None` when nothing is written.
    pub boot_id: Option<Arc<str>>,
    pub recording: Option<Recording>,
}

impl Records {
    /// Opens the store and starts to write to it. With `store: off` nothing is started and nothing is kept ready.
    pub(super) fn start(ledger: &LedgerSettings) -> Result<Records, String> {
        let (store, state_dir) = match &ledger.store {
            LedgerStore::Off => {
                return Ok(Records {
                    book: Arc::default(),
                    boot_id: None,
                    recording: None,
                });
            }
            LedgerStore::Sqlite { path } => {
                let store = SqliteStore::new(path, ledger.durability);
                (Box::new(store) as Box<dyn Store>, beside(Path::new(path)))
            }
            LedgerStore::Postgres { url } => {
                let target = Target::parse(url.expose(), Bounds::USUAL);
                let target = target.map_err(|error| format!("ledger.url: {error}"))?;
                let store = PostgresStore::new(target);
                (
                    Box::new(store) as Box<dyn Store>,
                    PathBuf::from(POSTGRES_STATE_DIR),
                )
            }
        };
        let state_dir = ledger.state_dir.as_ref().map_or(state_dir, PathBuf::from);
        let boots = Boots::enter(&state_dir)
            .map_err(|error| format!("ledger: {}: {error}", state_dir.display()))?;
        begin(store, boots, ledger)
    }

    /// Writes what is left.
    pub(super) fn finish(&self) {
        if let Some(recording) = &self.recording {
            recording.finish(FINISH_MAX);
        }
    }
}

fn begin(
    mut store: Box<dyn Store>,
    boots: Boots,
    ledger: &LedgerSettings,
) -> Result<Records, String> {
    // A file that cannot be used is a mistake that somebody has to mend; a server that cannot be reached may come back.
    let is_file = matches!(ledger.store, LedgerStore::Sqlite { .. });
    let opened = match is_file {
        true => store.open(boots.own()).map(|()| true),
        false => Ok(false),
    };
    let is_open = opened.map_err(|error| format!("ledger: {error}"))?;
    let book = Arc::new(Book::new(Some(Outbox::default())));
    let boot_id = Arc::clone(&boots.own().boot_id);
    let recording = Recording::start(Setup {
        book: Arc::clone(&book),
        store,
        is_open,
        boots,
        habits: Habits {
            keep: ledger.keep,
            strict: ledger.durability == Durability::Strict,
        },
        spool_bytes_max: ledger.spool_bytes_max,
    });
    Ok(Records {
        book,
        boot_id: Some(boot_id),
        recording: Some(recording.map_err(|error| format!("ledger: {error}"))?),
    })
}

/// Where the state is kept that belongs to a file.
fn beside(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".state");
    PathBuf::from(name)
}

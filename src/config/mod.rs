//! YAML in, a [`Snapshot`] out, or every error at once with its place in the file.
//!
//! `node` reads YAML into a tree with positions, `check` holds the tree against the tables in `keys`, `compile` turns it into a
//! snapshot and checks what takes more than one key. Not here: sockets, Pingora, the swap of snapshots.
//!
//! Invariants: a file with an error yields no snapshot; no error, warning or view carries a secret; what is not in the tables is refused.

mod address;
mod check;
mod compile;
pub mod defaults;
mod effective;
mod jsonschema;
mod keys;
mod node;
mod problem;
mod reader;
pub mod reload;
mod schema;
mod secret;
pub mod units;

use std::io;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::core::api::ApiSet;
use crate::core::time::WallTime;
use crate::policy::snapshot::{LedgerSettings, Snapshot};

pub use compile::compile_text;
pub use effective::{effective, effective_routing};
pub use jsonschema::json_schema;
pub(crate) use problem::distance;
pub use problem::{Position, Problem, Problems};

/// What a good file yields.
#[derive(Debug)]
pub struct Loaded {
    /// The compiled configuration.
    pub snapshot: Snapshot,
    /// What the operator should look at; the file is used all the same.
    pub warnings: Vec<Problem>,
    /// What differs from the previous snapshot and takes effect after a restart only; empty without a previous one.
    pub needs_restart: Vec<String>,
}

/// Environment variables, files and the machine, as far as a configuration refers to them.
pub trait Env {
    /// The value of an environment variable, if it is set and is text.
    fn var(&self, name: &str) -> Option<String>;
    /// The contents of a file.
    fn read(&self, path: &Path) -> io::Result<Vec<u8>>;
    /// The default of `server.threads`.
    fn cores(&self) -> usize;
    /// The time, for warnings of keys that expire. By default none does.
    fn wall(&self) -> WallTime {
        WallTime::default()
    }
}

/// The [`Env`] of this process.
#[derive(Debug, Clone, Copy, Default)]
pub struct ProcessEnv;

impl Env for ProcessEnv {
    fn var(&self, name: &str) -> Option<String> {
        std::env::var(name).ok()
    }

    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        std::fs::read(path)
    }

    fn cores(&self) -> usize {
        std::thread::available_parallelism().map_or(1, usize::from)
    }

    fn wall(&self) -> WallTime {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        let micros = since.unwrap_or_default().as_micros();
        WallTime::from_unix_micros(i64::try_from(micros).unwrap_or(i64::MAX))
    }
}

/// What is known about adapters. The mock layer implements it, where adapters and scripts are both known.
pub trait AdapterCatalog {
    /// The adapter's own name and the API formats that it speaks.
    fn find(&self, name: &str) -> Option<(&'static str, ApiSet)>;
    /// Every adapter of this build.
    fn names(&self) -> Vec<&'static str>;
    /// The public address of the adapter's provider, where there is one.
    fn default_base_url(&self, name: &str) -> Option<&'static str>;
    /// What is wrong with a mock script, if something is.
    fn check_mock(&self, script: &str) -> Result<(), String>;
}

/// What [`load`] needs beside the file.
pub struct Environment<'a> {
    /// Variables and files.
    pub env: &'a dyn Env,
    /// Adapters.
    pub catalog: &'a dyn AdapterCatalog,
    /// The snapshot in use, at a reload: its waiting rooms and cooldowns are carried over.
    pub previous: Option<&'a Snapshot>,
}

/// Reads and compiles a file. Names in it are relative to its directory.
pub fn load(file: &Path, environment: &Environment<'_>) -> Result<Loaded, Problems> {
    let text = read(file, environment.env)?;
    let base_dir = file.parent().unwrap_or(Path::new(""));
    compile_text(
        &file.display().to_string(),
        &text,
        base_dir,
        environment.env,
        environment.catalog,
        environment.previous,
    )
}

/// What a file says of `ledger`. Its form is checked as a whole; of its secrets only the ledger's need to be there, so that one can look
/// at records without the keys of the providers.
pub fn load_ledger(file: &Path, environment: &Environment<'_>) -> Result<LedgerSettings, Problems> {
    let text = read(file, environment.env)?;
    compile::ledger_of(file, &text, environment)
}

fn read(file: &Path, env: &dyn Env) -> Result<String, Problems> {
    let bytes = env
        .read(file)
        .map_err(|error| Problems::unreadable(file, &error.to_string()))?;
    String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        Problems::unreadable(file, &format!("byte {at} is not UTF-8 text"))
    })
}

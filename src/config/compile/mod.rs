//! Turns a checked tree into a snapshot. Every check that takes more than one key, a file, the environment or the catalog is here.
//!
//! Keys that count extras (`max_retries`, `max_rounds`, `sticky_key_attempts`) become totals here and nowhere else, and the keys of the
//! scheduler are read here and nowhere else.

mod aws;
mod aws_chain;
mod aws_profile;
mod cells;
mod clients;
mod github;
mod google;
mod identity;
mod process;
mod profiles;
mod providers;
mod routes;
mod routing;
mod rules;

use std::path::Path;
use std::sync::Arc;

use super::keys::ROOT;
use super::node::{self, Node};
use super::problem::{Problems, Report, Spot};
use super::reader::Map;
use super::schema::Kind;
use super::{AdapterCatalog, Env, Environment, Loaded, check, reload};
use crate::policy::ordering;
use crate::policy::snapshot::{LedgerSettings, ModelIndex, Snapshot};

/// Compiles the text of a configuration.
///
/// `origin` is what messages call the file, `base_dir` where relative names in it start. With `previous`, the generation is one
/// higher, and waiting rooms and cooldowns are carried over from it.
pub fn compile_text(
    origin: &str,
    text: &str,
    base_dir: &Path,
    env: &dyn Env,
    catalog: &dyn AdapterCatalog,
    previous: Option<&Snapshot>,
) -> Result<Loaded, Problems> {
    let mut compiler = Compiler {
        report: Report::new(origin),
        base_dir,
        env,
        catalog,
        previous,
    };
    let snapshot =
        node::parse(text, &mut compiler.report).map(|root| compiler.snapshot(&root, digest(text)));
    let Some(snapshot) = snapshot else {
        // Without a tree the report holds at least one error, so this is that error.
        return Err(compiler.report.into_problems());
    };
    let warnings = compiler.report.finish()?;
    let needs_restart = previous.map_or_else(Vec::new, |previous| {
        reload::needs_restart(previous, &snapshot)
    });
    Ok(Loaded {
        snapshot,
        warnings,
        needs_restart,
    })
}

/// What a file says of `ledger`, without the secrets that other parts of it name.
pub(super) fn ledger_of(
    file: &Path,
    text: &str,
    environment: &Environment<'_>,
) -> Result<LedgerSettings, Problems> {
    let mut compiler = Compiler {
        report: Report::new(&file.display().to_string()),
        base_dir: file.parent().unwrap_or(Path::new("")),
        env: environment.env,
        catalog: environment.catalog,
        previous: None,
    };
    let Some(root) = node::parse(text, &mut compiler.report) else {
        return Err(compiler.report.into_problems());
    };
    check::value(&mut compiler.report, &Kind::Mapping(&ROOT), &root, "");
    let root = Map::new(&root, String::new(), &ROOT);
    let settings = compiler.ledger(&root.map("ledger"));
    compiler.report.finish().map(|_| settings)
}

/// What every part of the compilation uses.
pub(super) struct Compiler<'a> {
    pub report: Report,
    pub base_dir: &'a Path,
    pub env: &'a dyn Env,
    pub catalog: &'a dyn AdapterCatalog,
    pub previous: Option<&'a Snapshot>,
}

impl Compiler<'_> {
    fn snapshot(&mut self, root: &Node, digest: String) -> Snapshot {
        check::value(&mut self.report, &Kind::Mapping(&ROOT), root, "");
        let root = Map::new(root, String::new(), &ROOT);
        let server = self.server(&root.map("server"));
        let admin = self.admin(&root.map("admin"), &server);
        let ledger = self.ledger(&root.map("ledger"));
        let providers = self.providers(&root);
        let clients = self.clients(&root.map("client_keys"));
        let routes = self.routes(&root, &providers, &clients);
        let providers = providers.into_iter().filter_map(|entry| entry.provider);
        let models = ModelIndex::new(&routes);
        let mut snapshot = Snapshot {
            generation: self.previous.map_or(1, |previous| previous.generation + 1),
            digest,
            providers: providers.map(Arc::new).collect(),
            routes,
            server,
            admin,
            ledger,
            models,
            affinity: self.affinity(),
            clients,
        };
        prepare(&mut snapshot);
        snapshot
    }

    /// The contents of a file that the configuration names, relative to its own directory.
    pub fn read(&mut self, spot: &Spot, file: &str) -> Option<Vec<u8>> {
        let path = self.base_dir.join(file);
        match self.env.read(&path) {
            Ok(bytes) => Some(bytes),
            Err(error) => {
                let message = format!("cannot read the file {}: {error}", path.display());
                self.report.refuse(spot, message);
                None
            }
        }
    }

    /// The contents of a PEM file that must hold a block of this kind.
    pub fn read_pem(&mut self, spot: &Spot, file: &str, block: &str) -> Option<Vec<u8>> {
        let bytes = self.read(spot, file)?;
        let begin = memchr::memmem::find_iter(&bytes, "-----BEGIN ");
        let mut labels = begin.filter_map(|at| bytes.get(at + "-----BEGIN ".len()..));
        let found = labels.any(|rest| {
            let line = rest.split(|b| *b == b'\n').next().unwrap_or_default();
            memchr::memmem::find(line, block.as_bytes()).is_some()
        });
        if found {
            return Some(bytes);
        }
        let message = format!("the file {file} holds no PEM block `-----BEGIN ... {block}-----`");
        self.report.refuse(spot, message);
        None
    }
}

/// Orders that every request meets are made once.
fn prepare(snapshot: &mut Snapshot) {
    let routes = snapshot.routes.iter();
    let prepared: Vec<_> = routes
        .map(|route| ordering::prepare(snapshot, route))
        .collect();
    for (route, prepared) in snapshot.routes.iter_mut().zip(prepared) {
        Arc::make_mut(route).prepared = prepared;
    }
}

/// 64-bit FNV-1a in hex: tells configurations apart, proves nothing.
fn digest(text: &str) -> String {
    const OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
    const PRIME: u64 = 0x0100_0000_01b3;
    let hash = text.bytes().fold(OFFSET, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(PRIME)
    });
    format!("{hash:016x}")
}

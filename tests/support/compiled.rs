//! A snapshot compiled from YAML in the test, with the adapters of this build and an environment that holds nothing.

use std::io;
use std::path::Path;
use std::sync::Arc;

use rondo::config::{AdapterCatalog, Env, compile_text};
use rondo::core::api::ApiSet;
use rondo::policy::snapshot::Snapshot;
use rondo::providers::registry;

struct Nothing;

impl Env for Nothing {
    fn var(&self, _name: &str) -> Option<String> {
        None
    }

    fn read(&self, _path: &Path) -> io::Result<Vec<u8>> {
        Err(io::ErrorKind::NotFound.into())
    }

    fn cores(&self) -> usize {
        2
    }
}

struct Adapters;

impl AdapterCatalog for Adapters {
    fn find(&self, name: &str) -> Option<(&'static str, ApiSet)> {
        registry::find(name).map(|adapter| (adapter.name, adapter.speaks))
    }

    fn names(&self) -> Vec<&'static str> {
        registry::all().iter().map(|adapter| adapter.name).collect()
    }

    fn default_base_url(&self, _name: &str) -> Option<&'static str> {
        None
    }
}

pub fn compiled(yaml: &str, previous: Option<&Snapshot>) -> Arc<Snapshot> {
    let loaded = compile_text(
        "test.yaml",
        yaml,
        Path::new(""),
        &Nothing,
        &Adapters,
        previous,
    );
    Arc::new(
        loaded
            .unwrap_or_else(|problems| panic!("{problems}"))
            .snapshot,
    )
}

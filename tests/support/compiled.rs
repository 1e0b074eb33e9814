//! A snapshot compiled from YAML in the test, with the adapters of this build and an environment that holds nothing.

use std::io;
use std::path::Path;
use std::sync::Arc;

use rondo::config::{Env, compile_text};
use rondo::mock::Catalog;
use rondo::policy::snapshot::Snapshot;

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

pub fn compiled(yaml: &str, previous: Option<&Snapshot>) -> Arc<Snapshot> {
    let loaded = compile_text(
        "test.yaml",
        yaml,
        Path::new(""),
        &Nothing,
        &Catalog,
        previous,
    );
    Arc::new(
        loaded
            .unwrap_or_else(|problems| panic!("{problems}"))
            .snapshot,
    )
}

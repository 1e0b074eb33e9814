//! The files in `conf/` load.

use std::path::{Path, PathBuf};

use rondo::config::{Env, Environment, Loaded, Problems, effective, load};
use rondo::mock::Catalog;
use serde_json::Value;

use super::FakeEnv;
use super::google::account;

/// Real files, and variables that are all set.
struct Everything(FakeEnv);

impl Env for Everything {
    fn var(&self, name: &str) -> Option<String> {
        // A key of a service account is looked into.
        let account = (name == "VERTEX_SERVICE_ACCOUNT").then(|| account(""));
        Some(account.unwrap_or_else(|| format!("value-of-{name}")))
    }

    fn read(&self, path: &Path) -> std::io::Result<Vec<u8>> {
        std::fs::read(path)
    }

    fn cores(&self) -> usize {
        self.0.cores()
    }
}

fn load_file(path: &Path) -> Result<Loaded, Problems> {
    let env = Everything(FakeEnv::default());
    let environment = Environment {
        env: &env,
        catalog: &Catalog,
        previous: None,
    };
    load(path, &environment)
}

fn conf() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("conf")
}

#[test]
fn the_annotated_file_loads_with_the_warnings_it_announces() {
    let loaded =
        load_file(&conf().join("rondo.yaml")).unwrap_or_else(|problems| panic!("\n{problems}"));
    let warnings: Vec<String> = loaded
        .warnings
        .iter()
        .map(|warning| warning.message.clone())
        .collect();
    assert!(
        warnings.iter().all(|w| w.starts_with("not a candidate")),
        "{warnings:?}"
    );
}

#[test]
fn what_the_annotated_file_calls_a_default_is_one() {
    let text = std::fs::read_to_string(conf().join("rondo.yaml")).unwrap();
    let given = effective(&load_file(&conf().join("rondo.yaml")).unwrap().snapshot);
    let least = "
providers:
  openai: { adapter: openai, keys: [{ name: main, secret: { env: OPENAI_API_KEY } }] }
routes: [{ name: gpt, models: [\"*\"], targets: [{ name: primary, provider: openai }, { name: backup, provider: openai, model: x }] }]
";
    let least = effective(&super::snapshot_with(
        least,
        &Everything(FakeEnv::default()),
        &Catalog,
    ));
    assert!(text.contains("all others show their"));
    for part in ["server", "admin", "ledger"] {
        assert_eq!(given[part], least[part]);
    }
    assert_eq!(given["providers"]["openai"], least["providers"]["openai"]);
    let routing = |view: &Value| {
        let mut routing = view["routes"][0]["routing"].clone();
        let settings = routing.as_object_mut().unwrap();
        // The second round and the sends that it needs are shown on.
        settings.remove("exhaustion_retry");
        settings.remove("max_upstream_sends");
        routing
    };
    assert_eq!(routing(&given), routing(&least));
}

#[test]
fn every_example_loads_without_a_warning() {
    let mut seen = 0;
    for entry in std::fs::read_dir(conf().join("examples")).unwrap() {
        let path = entry.unwrap().path();
        let loaded = load_file(&path).unwrap_or_else(|problems| panic!("\n{problems}"));
        let warnings: Vec<String> = loaded
            .warnings
            .iter()
            .filter(|warning| !warning.message.starts_with("not a candidate"))
            .map(|warning| warning.to_string())
            .collect();
        assert!(warnings.is_empty(), "{warnings:?}");
        seen += 1;
    }
    assert!(seen >= 6);
}

// R-C1
#[test]
fn a_file_that_cannot_be_read_is_one_problem() {
    let missing = load_file(Path::new("/nowhere/rondo.yaml"))
        .unwrap_err()
        .to_string();
    assert!(
        missing.starts_with("/nowhere/rondo.yaml:1:1: config: cannot read the file: "),
        "{missing}"
    );
    let mut env = FakeEnv::default();
    env.files.insert("x.yaml".into(), vec![b'a', 0xff]);
    let environment = Environment {
        env: &env,
        catalog: &Catalog,
        previous: None,
    };
    let binary = load(Path::new("x.yaml"), &environment)
        .unwrap_err()
        .to_string();
    assert_eq!(
        binary,
        "x.yaml:1:1: config: cannot read the file: byte 1 is not UTF-8 text"
    );
}

// Whoever looks at records needs the store's secret, and none of the providers'.
#[test]
fn the_ledger_is_read_without_the_keys_of_providers() {
    use rondo::config::{Environment, load_ledger};
    use rondo::policy::snapshot::LedgerStore;

    let read = |ledger: &str, with_database: bool| {
        let text = format!(
            "providers: {{ a: {{ adapter: openai, keys: [{{ name: k, secret: {{ env: NOT_HERE }} }}] }} }}\n\
             routes: [{{ name: r, models: [m], targets: [{{ name: t, provider: a }}] }}]\nledger: {ledger}\n"
        );
        let mut env = super::FakeEnv::default();
        env.file("/etc/rondo/rondo.yaml", &text);
        if with_database {
            env.set("DATABASE_URL", "postgres://u:secret-of-db@db/rondo");
        }
        let environment = Environment {
            env: &env,
            catalog: &super::FakeCatalog,
            previous: None,
        };
        load_ledger(std::path::Path::new("/etc/rondo/rondo.yaml"), &environment)
            .map(|settings| settings.store)
            .map_err(|problems| problems.to_string())
    };
    let path = "records.db".to_owned();
    assert_eq!(
        read("{ path: records.db }", false),
        Ok(LedgerStore::Sqlite { path })
    );
    let postgres = "{ store: postgres, url: { env: DATABASE_URL } }";
    assert!(matches!(
        read(postgres, true),
        Ok(LedgerStore::Postgres { .. })
    ));
    assert!(read(postgres, false).unwrap_err().contains("DATABASE_URL"));
    assert!(
        read("{ speed: 3 }", false)
            .unwrap_err()
            .contains("ledger.speed")
    );
}

//! `rondo ledger` from outside, on a SQLite file: what it prints, where, how it exits, and that it only reads.

use std::path::PathBuf;
use std::process::Output;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rondo::ledger::columns::StoredRecord;
use rondo::ledger::store::{Boot, Piece, Store};
use rondo::policy::snapshot::Durability;
use rondo::store::sqlite::SqliteStore;
use serde_json::Value;

use crate::support::process::{command, run};
use crate::world::{Does, World};

/// A directory that goes away with the test.
pub struct Folder(PathBuf);

impl Folder {
    pub fn new() -> Folder {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("ledger-cli-{}-{number}", std::process::id());
        let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
        std::fs::create_dir_all(&path).unwrap();
        Folder(path)
    }

    pub fn file(&self, name: &str) -> String {
        self.0.join(name).to_str().unwrap().to_owned()
    }

    fn names(&self) -> Vec<String> {
        let entries = std::fs::read_dir(&self.0).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<String> = names.collect();
        names.sort();
        names
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A store with four operations of one process. The writer stays open, as that of a running gateway does.
fn filled(path: &str) -> SqliteStore {
    let mut world = World::new();
    let records = [
        world.run(0, "one", &[Does::Answer]),
        world.run(0, "two", &[Does::Break, Does::Answer]),
        world.run(1, "three", &[Does::Answer]),
        world.run(0, "four", &[Does::Throttle, Does::Answer]),
    ];
    let mut store = SqliteStore::new(path, Durability::Batch);
    let boot = Boot {
        boot_id: Arc::from("boot"),
        instance: Arc::from("here"),
    };
    store.open(&boot).unwrap();
    let pieces = records.map(|record| Piece::Spooled(StoredRecord::from(&record)));
    store.write(&pieces).unwrap();
    store
}

fn out(output: &Output) -> &str {
    std::str::from_utf8(&output.stdout).unwrap()
}

fn err(output: &Output) -> &str {
    std::str::from_utf8(&output.stderr).unwrap()
}

pub fn ledger(path: &str, args: &[&str]) -> Output {
    run(&[&["ledger"], args, &["--store", path]].concat())
}

fn good(output: &Output) -> Vec<&str> {
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    out(output).lines().collect()
}

pub fn objects(output: &Output) -> Vec<Value> {
    let lines = good(output).into_iter();
    lines
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

fn ids(objects: &[Value]) -> Vec<&str> {
    objects
        .iter()
        .map(|object| object["operation_id"].as_str().unwrap())
        .collect()
}

// R-S23
#[test]
fn recent_lists_filters_and_pages() {
    let folder = Folder::new();
    let path = folder.file("rondo.db");
    let _writer = filled(&path);
    let output = ledger(&path, &["recent"]);
    let lines = good(&output);
    assert_eq!(lines.len(), 5, "{lines:?}");
    assert!(lines[0].starts_with("STARTED ") && lines[0].ends_with("TRIES"));
    assert!(
        lines[1].contains("  four  ")
            && lines[1].ends_with("primary:rejected/throttle,backup:succeeded"),
        "{}",
        lines[1]
    );
    assert!(!out(&output).contains('\u{1b}'), "no colours");

    let check = |args: &[&str], expected: &[&str]| {
        let output = ledger(&path, &[&["recent", "--json"], args].concat());
        assert_eq!(ids(&objects(&output)), expected, "{args:?}");
    };
    check(&[], &["four", "three", "two", "one"]);
    check(&["--route", "plain"], &["three"]);
    check(&["--target", "backup"], &["four", "two"]);
    check(&["--state", "failed"], &[]);
    check(&["--since", "2023-01-01", "--limit", "1"], &["four"]);
    check(&["--since", "1s"], &[]);

    let mut seen = Vec::new();
    let mut before = Vec::new();
    loop {
        let arguments: Vec<&str> = before.iter().map(String::as_str).collect();
        let output = ledger(
            &path,
            &[&["recent", "--json", "--limit", "3"], &arguments[..]].concat(),
        );
        seen.extend(ids(&objects(&output)).into_iter().map(str::to_owned));
        match err(&output).trim().strip_prefix("next: ") {
            Some(next) => before = vec!["--before".to_owned(), next.to_owned()],
            None => break,
        }
    }
    assert_eq!(seen, ["four", "three", "two", "one"]);
    assert!(out(&ledger(&path, &["recent", "--limit", "3"])).contains("\nolder ones: --before "));
}

#[test]
fn show_tells_the_story() {
    let folder = Folder::new();
    let path = folder.file("rondo.db");
    let _writer = filled(&path);
    let output = ledger(&path, &["show", "two"]);
    let text = good(&output).join("\n");
    assert!(text.starts_with("two: succeeded 200\n"), "{text}");
    let places = [
        "primary",
        "refused",
        "server_error",
        "next_target",
        "backup",
        "accepted",
        "\nend ",
        "\nwaits ",
        "\ntokens ",
    ];
    let found: Vec<_> = places.iter().map(|place| text.find(place)).collect();
    assert!(
        found.iter().all(Option::is_some) && found.is_sorted(),
        "{found:?} in {text}"
    );
    let json = objects(&ledger(&path, &["show", "two", "--json"]));
    assert_eq!(json.len(), 1);
    assert_eq!(json[0]["attempts"][0]["http_status"], 500);
    assert!(json[0].get("sequence").is_none());

    let output = ledger(&path, &["show", "nobody"]);
    assert_eq!((output.status.code(), out(&output)), (Some(1), ""));
    assert!(err(&output).contains("no operation has this id"));
}

#[test]
fn sum_adds_up() {
    let folder = Folder::new();
    let path = folder.file("rondo.db");
    let _writer = filled(&path);
    let json = objects(&ledger(&path, &["sum", "--json"]));
    let rows: Vec<_> = json
        .iter()
        .map(|sum| {
            (
                sum["group"].as_str().unwrap(),
                sum["rows"].as_u64().unwrap(),
            )
        })
        .collect();
    assert_eq!(rows, [("gpt", 3), ("plain", 1)]);
    assert_eq!(json[0]["sends"], 5);
    assert_eq!(json[0]["states"]["succeeded"], 3);
    let groups = |by: &str| -> Vec<String> {
        let json = objects(&ledger(&path, &["sum", "--json", "--by", by]));
        json.iter()
            .map(|sum| sum["group"].as_str().unwrap().to_owned())
            .collect()
    };
    assert_eq!(groups("target"), ["backup", "only", "primary"]);
    assert_eq!(groups("key"), ["acme/main"]);
    assert_eq!(groups("state"), ["succeeded"]);
    let output = ledger(&path, &["sum", "--by", "target"]);
    let lines = good(&output);
    assert!(
        lines[0].starts_with("TARGET") && lines.len() == 4,
        "{lines:?}"
    );
    assert_eq!(
        objects(&ledger(&path, &["sum", "--since", "1s", "--json"])),
        [Value::Null; 0]
    );
}

#[test]
fn nothing_is_made_and_what_is_missing_is_said() {
    let folder = Folder::new();
    let check = |path: &str, says: &[&str]| {
        for args in [&["recent"][..], &["show", "one"], &["sum"]] {
            let output = ledger(path, args);
            assert_eq!(
                (output.status.code(), out(&output)),
                (Some(2), ""),
                "{output:?}"
            );
            for word in says {
                assert!(err(&output).contains(word), "{word} in {}", err(&output));
            }
        }
    };
    let missing = folder.file("nowhere/rondo.db");
    check(
        &missing,
        &[&missing, "there is no store", "when it starts", "--store"],
    );
    let empty = folder.file("empty.db");
    std::fs::write(&empty, "").unwrap();
    check(&empty, &[&empty, "no records of this version"]);
    let garbage = folder.file("garbage.db");
    std::fs::write(&garbage, "no database at all ".repeat(100)).unwrap();
    check(&garbage, &[&garbage]);
    check(folder.0.to_str().unwrap(), &["that is not a file"]);
    assert_eq!(
        folder.names(),
        ["empty.db", "garbage.db"],
        "nothing was made"
    );
    assert_eq!(std::fs::read(&empty).unwrap(), b"");
}

/// The store is the configuration's, whose other secrets need not be there.
#[test]
fn the_configuration_names_the_store() {
    let folder = Folder::new();
    let (path, config) = (folder.file("rondo.db"), folder.file("rondo.yaml"));
    let _writer = filled(&path);
    let yaml = |ledger: &str| {
        format!(
            "providers: {{ a: {{ adapter: openai, keys: [{{ name: k, secret: {{ env: RONDO_TEST_NOT_SET }} }}] }} }}\n\
             routes: [{{ name: r, models: [m], targets: [{{ name: t, provider: a }}] }}]\nledger: {ledger}\n"
        )
    };
    std::fs::write(&config, yaml(&format!("{{ path: '{path}' }}"))).unwrap();
    assert_eq!(
        objects(&run(&["ledger", "recent", "--json", "-c", &config])).len(),
        4
    );
    let by_variable = command(&["ledger", "show", "one"])
        .env("RONDO_CONFIG", &config)
        .output()
        .unwrap();
    assert_eq!(by_variable.status.code(), Some(0), "{by_variable:?}");
    let check = |says: &str| {
        let output = run(&["ledger", "recent", "-c", &config]);
        assert_eq!(output.status.code(), Some(2));
        assert!(err(&output).contains(says), "{says} in {}", err(&output));
    };
    std::fs::write(&config, yaml("{ store: off }")).unwrap();
    check("ledger.store is off");
    std::fs::write(&config, yaml("{ speed: 1 }")).unwrap();
    check("--store PATH|URL");
}

#[test]
fn what_is_not_understood_is_refused_with_what_would_be() {
    let check = |args: &[&str], says: &str| {
        let output = ledger("x.db", args);
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        assert!(err(&output).contains(says), "{says} in {}", err(&output));
    };
    check(&["recent", "--limit", "0"], "from 1 to 1024");
    check(&["recent", "--state", "done"], "one of: pending");
    check(&["recent", "--since", "soon"], "1h");
    check(&["recent", "--before", "x"], "`next`");
    check(&["sum", "--by", "model"], "route, target, key, state");
    check(&["show"], "ID");
    for args in [
        &["ledger", "--help"][..],
        &["ledger", "recent", "--help"],
        &["ledger", "show", "--help"],
        &["ledger", "sum", "--help"],
    ] {
        let output = run(args);
        assert_eq!(output.status.code(), Some(0));
        assert!(
            out(&output).contains("Examples:\n  rondo ledger "),
            "{args:?}"
        );
    }
}

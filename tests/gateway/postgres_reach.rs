//! Reaching PostgreSQL: what a URL says, what of it is never told, and whom TLS trusts.

use std::path::{Path, PathBuf};

use rondo::ledger::store::{Reader, Store, SumBy};
use rondo::store::postgres::{BadUrl, Bounds, Target};

use crate::postgres::{opened, unavailable};
use crate::store_suite::boot;
use crate::support::database::{Cluster, fresh, in_schema, reader, store, target, texts};

fn bad(url: &str) -> String {
    let error: BadUrl = Target::parse(url, Bounds::USUAL).unwrap_err();
    error.to_string()
}

#[test]
fn what_is_wrong_is_told_without_the_url() {
    let cases = [
        ("mysql://u:hunter2@h/d", "postgres://"),
        ("host=h user=u password=hunter2", "postgres://"),
        ("postgres://u:hunter2@h/d?sslmode=sometimes", "sslmode"),
        ("postgres://u:hunter2@h/d?sslcert=x", "sslcert"),
        ("postgres://u:hun@ter2?hunter2=1@h/d", "unknown"),
        (
            "postgres://u:hunter2@h/d?connect_timeout=hunter2",
            "connect_timeout",
        ),
        ("postgres://u:hunter2@h:hunter2/d", "port"),
        ("postgres://u:hunter2@/d", "no host"),
        ("postgres://h/d", "no user"),
        (
            "postgres://u:hunter2@h/d?sslrootcert=/no/such/file",
            "sslrootcert",
        ),
    ];
    for (url, wanted) in cases {
        let text = bad(url);
        assert!(text.contains(wanted), "{url}: {text}");
        assert!(!text.contains("hunter2"), "{text}");
    }
}

#[test]
fn nothing_prints_the_password() {
    let url = "postgres://u:hunter2@127.0.0.1:1/d?sslmode=disable";
    let mut store = store(url);
    let text = unavailable(store.open(&boot("a")));
    let reader = reader(url);
    let look = unavailable(reader.sums(SumBy::State, None));
    let debug = format!("{:?} {store:?} {reader:?} {text} {look}", target(url));
    assert!(!debug.contains("hunter2"), "{debug}");
}

#[test]
fn a_wrong_password_is_not_told() {
    let url = fresh();
    let (before, after) = url.split_once('@').unwrap();
    let (user, _) = before.rsplit_once(':').unwrap();
    let text = unavailable(store(&format!("{user}:hunter2@{after}")).open(&boot("a")));
    assert!(text.contains("authentication failed"), "{text}");
    assert!(!text.contains("hunter2"), "{text}");
}

#[test]
fn a_schema_of_the_url_is_used() {
    let url = fresh();
    let _store = opened(&url, "a");
    let schema = texts(&url, "SELECT current_schema()::text").remove(0);
    let bare = url.split('?').next().unwrap();
    let found = texts(
        bare,
        "SELECT schemaname::text FROM pg_tables WHERE tablename = 'rondo_schema'",
    );
    assert!(found.contains(&schema));
    let nowhere = in_schema(bare, "no_such_schema");
    let text = unavailable(store(&nowhere).open(&boot("a")));
    assert!(text.contains("schema"), "{text}");
}

/// A certificate for loopback, and its key.
fn certificate(name: &str) -> (PathBuf, PathBuf) {
    let made = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()]).unwrap();
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    let files =
        ["crt", "key"].map(|end| folder.join(format!("pg-{}-{name}.{end}", std::process::id())));
    std::fs::write(&files[0], made.cert.pem()).unwrap();
    std::fs::write(&files[1], made.key_pair.serialize_pem()).unwrap();
    let [certificate, key] = files;
    (certificate, key)
}

#[test]
fn the_server_is_checked_when_asked_for() {
    let (good, key) = certificate("good");
    let (other, _) = certificate("other");
    let cluster = Cluster::with_tls(&good, &key);
    let open = |parameters: String| {
        let mut store = store(&format!("{}?{parameters}", cluster.url));
        store.open(&boot("a"))
    };
    let encoded = |file: &Path| file.display().to_string().replace('/', "%2F");
    let good = encoded(&good);
    open(format!("sslmode=require&sslrootcert={good}")).unwrap();
    open(format!("sslmode=verify-full&sslrootcert={good}")).unwrap();
    open(format!("sslrootcert={good}")).unwrap();
    open("sslmode=prefer".to_owned()).unwrap();
    open(String::new()).unwrap();
    let text = unavailable(open(format!(
        "sslmode=require&sslrootcert={}",
        encoded(&other)
    )));
    assert!(text.contains("certificate"), "{text}");
    let text = unavailable(open("sslmode=require&sslrootcert=system".to_owned()));
    assert!(text.contains("certificate"), "{text}");
    // The server lets only TLS in.
    let text = unavailable(open("sslmode=disable".to_owned()));
    assert!(text.contains("pg_hba"), "{text}");
    // A name that the certificate does not have.
    let named = cluster.url.replace("127.0.0.1", "localhost");
    let url = format!("{named}?sslmode=require&hostaddr=127.0.0.1&sslrootcert={good}");
    unavailable(store(&url).open(&boot("a")));
}

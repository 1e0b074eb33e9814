//! Records of real processes: what is in the file after they ended, however that was.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use parking_lot::Mutex;
use rondo::core::settlement::State;
use rondo::ledger::columns::{Stored, StoredRecord};
use rondo::ledger::spool::decode;
use rondo::ledger::store::{Piece, Query, Reader};
use rondo::store::sqlite::SqliteReader;

use crate::store_sqlite::Dir;
use crate::store_suite::{all, attempt_column, column};
use crate::support::caller::{Caller, Way};
use crate::support::client::{Connection, call, chat, chat_body, request, whole};
use crate::support::process::{Process, config, free_address, run};
use crate::support::raw::Upstream;
use crate::support::stage::{EVENTS, Stage};
use crate::support::{Rondo, until, write_config};

const GOOD: &str = r#"{"choices":[{"message":{"content":"hello"}}]}"#;

fn one(provider: &str) -> String {
    format!(
        "providers:\n  one: {provider}\nroutes:\n  - name: chat\n    models: [m]\n    targets: [{{ name: first, provider: one }}]\n    routing: {{ sticky_key_attempts: 1, max_upstream_sends: 1 }}\n"
    )
}

fn recorded(dir: &Dir, provider: &str, more: &str) -> String {
    let file = dir.file();
    format!(
        "{}\nledger: {{ store: sqlite, path: {}{more} }}\n",
        one(provider),
        file.display()
    )
}

fn text(value: &Stored) -> &str {
    match value {
        Stored::Text(text) => text,
        other => panic!("{other:?}"),
    }
}

fn states(records: &[StoredRecord]) -> BTreeMap<String, usize> {
    let mut states = BTreeMap::new();
    for record in records {
        *states
            .entry(text(column(record, "state")).to_owned())
            .or_default() += 1;
        for attempt in &record.attempts {
            let state = text(attempt_column(attempt, "state"));
            *states.entry(format!("attempt {state}")).or_default() += 1;
        }
    }
    states
}

fn found(dir: &Dir, state: State) -> usize {
    let query = Query {
        limit: 100_000,
        state: Some(state),
        ..Query::default()
    };
    SqliteReader::new(dir.file())
        .find(&query)
        .map_or(0, |found| found.len())
}

/// A provider that answers well for ever.
async fn good() -> Upstream {
    Upstream::start(|mut link| async move { while link.answer(200, GOOD).await.is_some() {} }).await
}

// R-L6: an end in order writes everything, and nothing waits afterwards.
#[tokio::test]
async fn what_was_served_is_in_the_file_after_the_end() {
    for signal in ["TERM", "INT"] {
        let (dir, upstream) = (Dir::new(), good().await);
        let mut process = Process::start("", &recorded(&dir, &upstream.provider(""), "")).await;
        for _ in 0..20 {
            assert_eq!(call(process.addr, chat("m")).await.status, 200);
        }
        process.signal(signal);
        assert!(process.ended().await.success());
        let records = all(&SqliteReader::new(dir.file()));
        let expected = [
            ("succeeded".to_owned(), 20),
            ("attempt succeeded".to_owned(), 20),
        ];
        assert_eq!(states(&records), BTreeMap::from(expected), "{signal}");
        let spool = dir.file().with_extension("db.state").join("spool");
        let left = std::fs::read_dir(spool).map_or(0, Iterator::count);
        assert_eq!(left, 0);
        // Ids that the gateway makes are ordered by time.
        let ids: Vec<&str> = records
            .iter()
            .map(|record| text(column(record, "operation_id")))
            .collect();
        let stamps: Vec<&str> = ids.iter().map(|id| &id[..12]).collect();
        assert!(
            stamps.iter().rev().is_sorted() && ids.iter().all(|id| id.len() == 32),
            "{ids:?}"
        );
    }
}

// R-L6: what the end cuts is settled by the process itself, with SIGINT as cancelled where the runtime drops it, else as abandoned.
#[tokio::test]
async fn what_the_end_cuts_is_settled_by_it() {
    for (signal, grace) in [
        ("TERM", "shutdown_grace_ms: 50"),
        ("INT", "shutdown_grace_ms: 60000"),
    ] {
        let (dir, stage) = (Dir::new(), Stage::h1(EVENTS).await);
        let rest = recorded(&dir, &stage.upstream.provider(""), "");
        let mut process = Process::start(grace, &rest).await;
        let mut caller = Caller::ask(
            Way::H1Close,
            process.addr,
            "/v1/chat/completions",
            &chat_body("m", true),
        )
        .await;
        stage.say("data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"Hel\"}}]}\n\n");
        caller.read_to("Hel").await;
        until(|| found(&dir, State::Pending) == 1).await;
        process.signal(signal);
        assert!(process.ended().await.success());
        let states = states(&all(&SqliteReader::new(dir.file())));
        assert_eq!(states.values().sum::<usize>(), 2, "{signal}: {states:?}");
        let ended = |name: &&String| {
            ["cancelled", "abandoned"]
                .iter()
                .any(|end| name.ends_with(end))
        };
        assert!(
            states.keys().all(|name| ended(&name)),
            "{signal}: {states:?}"
        );
    }
}

// R-L7: a store that takes nothing while 200 requests pass fails none of them, and has all of them afterwards.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_pass_while_the_store_is_busy() {
    let (dir, upstream) = (Dir::new(), good().await);
    let rondo = Rondo::start(&recorded(&dir, &upstream.provider(""), "")).await;
    let other = rusqlite::Connection::open(dir.file()).unwrap();
    other
        .busy_timeout(std::time::Duration::from_secs(5))
        .unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let mut connection = Connection::h1(rondo.addr).await;
    for _ in 0..200 {
        assert_eq!(connection.call(chat("m")).await.status, 200);
    }
    assert_eq!(found(&dir, State::Succeeded), 0);
    rondo
        .until(|rondo| rondo.metric("rondo_ledger_queue", &[]) >= 200.0)
        .await;
    other.execute_batch("COMMIT").unwrap();
    until(|| found(&dir, State::Succeeded) == 200).await;
    rondo
        .until(|rondo| rondo.metric("rondo_ledger_queue", &[]) == 0.0)
        .await;
    let sum = |name: &str, labels: &[&str]| rondo.metric(name, labels);
    for kind in ["kind=\"operation\"", "kind=\"attempt\""] {
        assert_eq!(
            sum("rondo_ledger_records_total", &[kind, "state=\"succeeded\""]),
            200.0
        );
    }
    assert_eq!(sum("rondo_ledger_lost_total", &[]), 0.0);
    assert_eq!(sum("rondo_ledger_spool_bytes", &[]), 0.0);
    rondo.assert_quiet().await;
}

/// Whether a pending attempt of that operation is in a file: in the spool, or in the store.
fn on_disk(dir: &Path, id: &str) -> bool {
    let fits = |piece: &Piece| match piece {
        Piece::Spooled(record) => {
            text(column(record, "operation_id")) == id && !record.attempts.is_empty()
        }
        Piece::Live(_) | Piece::Usage(_) => false,
    };
    // The writer may take it out of the one and put it into the other while this looks: first the one, then the other.
    let boots = std::fs::read_dir(dir.join("rondo.db.state/spool"))
        .into_iter()
        .flatten();
    let files = boots.flat_map(|boot| {
        std::fs::read_dir(boot.unwrap().path())
            .into_iter()
            .flatten()
    });
    let mut contents = files.filter_map(|file| std::fs::read(file.unwrap().path()).ok());
    if contents.any(|bytes| decode(&bytes).pieces.iter().any(fits)) {
        return true;
    }
    let query = Query {
        limit: 1,
        id: Some(id.to_owned()),
        ..Query::default()
    };
    let found = SqliteReader::new(dir.join("rondo.db"))
        .find(&query)
        .unwrap();
    found
        .first()
        .is_some_and(|record| !record.attempts.is_empty())
}

// R-L1 R-L6: in strict a provider never sees a request whose attempt is not on disk.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn strict_writes_before_it_sends() {
    let dir = Dir::new();
    let seen: Arc<Mutex<Vec<bool>>> = Arc::default();
    let (its_dir, its_seen) = (dir.0.clone(), Arc::clone(&seen));
    let upstream = Upstream::start(move |mut link| {
        let (dir, seen) = (its_dir.clone(), Arc::clone(&its_seen));
        async move {
            while let Some(request) = link.request().await {
                seen.lock().push(on_disk(&dir, &id_of(&request.head)));
                link.write(&reply()).await;
            }
        }
    })
    .await;
    let rondo = Rondo::start(&recorded(
        &dir,
        &upstream.provider(""),
        ", durability: strict",
    ))
    .await;
    let calls = (0..40).map(|_| call(rondo.addr, chat("m")));
    for answer in futures::future::join_all(calls).await {
        assert_eq!(answer.status, 200);
    }
    assert_eq!(*seen.lock(), [true; 40]);
    assert_eq!(rondo.metric("rondo_ledger_unconfirmed_total", &[]), 0.0);
    until(|| found(&dir, State::Succeeded) == 40).await;
    rondo.assert_quiet().await;
}

// R-L7: a disk that takes nothing does not hold a send back; it is counted.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn strict_sends_all_the_same_when_the_disk_is_broken() {
    let (dir, upstream) = (Dir::new(), good().await);
    let rondo = Rondo::start(&recorded(
        &dir,
        &upstream.provider(""),
        ", durability: strict",
    ))
    .await;
    let spool = dir.0.join("rondo.db.state/spool");
    let _ = std::fs::remove_dir_all(&spool);
    std::fs::write(&spool, "no directory").unwrap();
    for _ in 0..5 {
        assert_eq!(call(rondo.addr, chat("m")).await.status, 200);
    }
    assert_eq!(rondo.metric("rondo_ledger_unconfirmed_total", &[]), 5.0);
    until(|| found(&dir, State::Succeeded) == 5).await;
    assert_eq!(rondo.metric("rondo_ledger_lost_total", &[]), 0.0);
}

fn id_of(head: &str) -> String {
    let line = head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("x-request-id")
            .then(|| value.trim().to_owned())
    });
    line.expect("a request has an id")
}

fn reply() -> String {
    let length = GOOD.len();
    format!(
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{GOOD}"
    )
}

// R-L6 R-S23: killed under load and started again, nothing is pending, nothing is there twice, and in strict each send has its row.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_process_leaves_one_row_for_each_send() {
    let dir = Dir::new();
    let sent: Arc<Mutex<BTreeSet<String>>> = Arc::default();
    let its_sent = Arc::clone(&sent);
    let upstream = Upstream::start(move |mut link| {
        let sent = Arc::clone(&its_sent);
        async move {
            while let Some(request) = link.request().await {
                assert!(sent.lock().insert(id_of(&request.head)), "sent twice");
                link.write(&reply()).await;
            }
        }
    })
    .await;
    let rest = recorded(&dir, &upstream.provider(""), ", durability: strict");
    let (addr, admin) = (free_address(), free_address());
    for _ in 0..2 {
        let file = write_config(&config(addr, admin, "", &rest));
        let mut process = Process::launch(file, addr, admin, &[]);
        process.until_accepting(true).await;
        let before = upstream.requests();
        let clients: Vec<_> = (0..8).map(|_| tokio::spawn(load(addr))).collect();
        until(|| upstream.requests() >= before + 150).await;
        process.signal("KILL");
        process.ended().await;
        for client in clients {
            client.await.unwrap();
        }
    }
    let file = write_config(&config(addr, admin, "", &rest));
    let mut process = Process::launch(file, addr, admin, &[]);
    process.until_accepting(true).await;
    until(|| found(&dir, State::Pending) == 0 && found(&dir, State::Succeeded) > 0).await;
    process.signal("TERM");
    assert!(process.ended().await.success());
    let records = all(&SqliteReader::new(dir.file()));
    let states = states(&records);
    assert_eq!(
        states.get("pending").or(states.get("attempt pending")),
        None,
        "{states:?}"
    );
    let mut rows = BTreeMap::new();
    for record in &records {
        let id = text(column(record, "operation_id")).to_owned();
        assert!(!id.contains('~'), "{id} is there twice");
        rows.insert(id, record.attempts.len());
    }
    for id in sent.lock().iter() {
        assert_eq!(rows.get(id), Some(&1), "{id}");
    }
}

/// Requests one after the other, until the gateway is gone.
async fn load(addr: std::net::SocketAddr) {
    let stream = tokio::net::TcpStream::connect(addr).await.unwrap();
    stream.set_nodelay(true).unwrap();
    let io = hyper_util::rt::TokioIo::new(stream);
    let (mut sender, connection) = hyper::client::conn::http1::handshake(io).await.unwrap();
    tokio::spawn(connection);
    loop {
        let body = whole(chat_body("m", false));
        if sender.ready().await.is_err() {
            return;
        }
        let asked = sender
            .send_request(request("/v1/chat/completions", &[], body))
            .await;
        let Ok(answer) = asked else { return };
        let read = http_body_util::BodyExt::collect(answer.into_body()).await;
        if read.is_err() {
            return;
        }
    }
}

// R-L6: at a hand-over two processes share the file, and the new one leaves alone what the old one has open.
#[tokio::test]
async fn a_hand_over_abandons_nothing() {
    let (dir, stage) = (Dir::new(), Stage::h1(EVENTS).await);
    let rest = recorded(&dir, &stage.upstream.provider(""), "");
    let mut old = Process::start("", &rest).await;
    let mut caller = Caller::ask(
        Way::H1Close,
        old.addr,
        "/v1/chat/completions",
        &chat_body("m", true),
    )
    .await;
    stage.say("data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"Hel\"}}]}\n\n");
    caller.read_to("Hel").await;
    until(|| found(&dir, State::Pending) == 1).await;
    let mut new = Process::launch(old.file.clone(), old.addr, old.admin, &["--upgrade"]);
    old.signal("QUIT");
    new.until_logged("listening on", 1).await;
    // Both have entered the file; the new one has looked for dead ones before it wrote that it is there.
    let boots = || -> i64 {
        let file = rusqlite::Connection::open(dir.file()).unwrap();
        file.query_row(
            "SELECT count(*) FROM boots WHERE ended_at IS NULL",
            [],
            |row| row.get(0),
        )
        .unwrap()
    };
    until(|| boots() == 2).await;
    stage.say("data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"lo\"}}]}\n\n");
    caller.read_to("lo").await;
    assert_eq!(
        (found(&dir, State::Pending), found(&dir, State::Abandoned)),
        (1, 0)
    );
    stage.say("data: [DONE]\n\n");
    stage.end();
    caller.read_to("[DONE]").await;
    assert!(old.ended().await.success());
    assert_eq!(
        (found(&dir, State::Succeeded), found(&dir, State::Abandoned)),
        (1, 0)
    );
    new.signal("TERM");
    assert!(new.ended().await.success());
    assert_eq!(boots(), 0);
}

// R-C1: a store that cannot be used ends the start, and says what it is.
#[test]
fn a_store_that_cannot_be_used_ends_the_start() {
    let dir = Dir::new();
    std::fs::write(&dir.0, "a file").unwrap();
    let secret = "postgres://rondo:sk-very-secret@127.0.0.1:1/x?sslmode=sometimes";
    let cases = [
        (
            format!("{{ store: sqlite, path: {} }}", dir.file().display()),
            "ledger",
        ),
        (
            format!("{{ store: postgres, url: {{ literal: \"{secret}\" }} }}"),
            "ledger.url",
        ),
    ];
    for (ledger, wanted) in cases {
        let yaml = format!(
            "{}ledger: {ledger}\n",
            one("{ adapter: openai, mock: { answers: [ok] } }")
        );
        let file = write_config(&config(free_address(), free_address(), "", &yaml));
        let done = run(&["run", "-c", file.to_str().unwrap()]);
        let _ = std::fs::remove_file(&file);
        let told = String::from_utf8(done.stderr).unwrap();
        assert_eq!(done.status.code(), Some(2), "{told}");
        assert!(
            told.contains(wanted) && !told.contains("sk-very-secret"),
            "{told}"
        );
    }
    let _ = std::fs::remove_file(&dir.0);
}

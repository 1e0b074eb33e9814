//! The store in PostgreSQL, on a real one: what its SQL keeps, and what it does when the server is gone.

use std::sync::Arc;
use std::time::{Duration, Instant};

use rondo::core::settlement::State;
use rondo::core::time::WallTime;
use rondo::ledger::columns::{ATTEMPTS, Kind, OPERATIONS, Presence, StoredRecord};
use rondo::ledger::entry::Record;
use rondo::ledger::store::{LateUsage, Piece, Query, Reader, Store, StoreError, SumBy, renamed};
use rondo::store::postgres::{Bounds, PostgresStore, Target, VERSION};

use crate::store_suite::{self, START, boot, suite, with_attempt};
use crate::support::database::{Cluster, fresh, number, reader, sql, store, texts};

/// An operation with one attempt.
fn record(id: &str, boot: &str, sequence: u64, state: State) -> Record {
    with_attempt(store_suite::record(boot, sequence, id, state), state)
}

fn live(id: &str, boot: &str, sequence: u64, state: State) -> Piece {
    store_suite::live(&record(id, boot, sequence, state))
}

pub fn opened(url: &str, name: &str) -> PostgresStore {
    let mut store = store(url);
    store.open(&boot(name)).unwrap();
    store
}

fn ids(url: &str) -> Vec<String> {
    texts(
        url,
        "SELECT operation_id || ' ' || state FROM operations ORDER BY operation_id",
    )
}

pub fn unavailable<T: std::fmt::Debug>(done: Result<T, StoreError>) -> String {
    match done {
        Err(StoreError::Unavailable(text)) => text,
        other => panic!("{other:?}"),
    }
}

fn refused<T: std::fmt::Debug>(done: Result<T, StoreError>) -> String {
    match done {
        Err(StoreError::Refused(text)) => text,
        other => panic!("{other:?}"),
    }
}

// R-L1 R-L6
#[test]
fn postgres_does_what_every_store_does() {
    suite(|| {
        let url = fresh();
        (Box::new(store(&url)), Box::new(reader(&url)))
    });
}

#[test]
fn the_tables_are_those_of_the_ledger() {
    let url = fresh();
    let _store = opened(&url, "a");
    for table in [&OPERATIONS, &ATTEMPTS] {
        let found = texts(
            &url,
            &format!(
                "SELECT column_name || ' ' || data_type || ' ' || is_nullable FROM information_schema.columns \
                 WHERE table_schema = current_schema() AND table_name = '{}' ORDER BY ordinal_position",
                table.name
            ),
        );
        let wanted = table.columns.iter().map(|column| {
            let kind = match column.kind {
                Kind::Text => "text",
                Kind::Count | Kind::Time => "bigint",
                Kind::Flag => "boolean",
            };
            let maybe = match column.presence {
                Presence::Always => "NO",
                Presence::Maybe => "YES",
            };
            format!("{} {kind} {maybe}", column.name)
        });
        assert_eq!(found, wanted.collect::<Vec<_>>());
    }
    assert_eq!(
        number(&url, "SELECT max(version) FROM rondo_schema"),
        VERSION
    );
}

#[test]
fn many_starts_at_once_migrate_once() {
    let url = fresh();
    let starts: Vec<_> = (0..8)
        .map(|n| {
            let url = url.clone();
            std::thread::spawn(move || store(&url).open(&boot(&format!("b{n}"))))
        })
        .collect();
    for start in starts {
        start.join().unwrap().unwrap();
    }
    assert_eq!(number(&url, "SELECT count(*) FROM rondo_schema"), 1);
    assert_eq!(number(&url, "SELECT count(*) FROM boots"), 8);
}

#[test]
fn newer_tables_are_left_alone() {
    let url = fresh();
    opened(&url, "a").close(&boot("a")).unwrap();
    sql(&url, "INSERT INTO rondo_schema VALUES (99)");
    let text = refused(store(&url).open(&boot("b")));
    assert!(text.contains("version 99"), "{text}");
    assert_eq!(number(&url, "SELECT count(*) FROM boots"), 1);
}

// R-L1
#[test]
fn what_is_terminal_stays() {
    let url = fresh();
    let mut store = opened(&url, "a");
    assert_eq!(
        store.write(&[live("x", "a", 1, State::Pending)]).unwrap(),
        2
    );
    assert_eq!(
        store.write(&[live("x", "a", 1, State::Succeeded)]).unwrap(),
        2
    );
    for state in [State::Pending, State::Failed] {
        assert_eq!(store.write(&[live("x", "a", 1, state)]).unwrap(), 0);
    }
    // In one batch as in two.
    let both = [
        live("y", "a", 2, State::Pending),
        live("y", "a", 2, State::Failed),
        live("y", "a", 2, State::Succeeded),
        live("y", "a", 2, State::Pending),
    ];
    assert_eq!(store.write(&both).unwrap(), 2);
    assert_eq!(ids(&url), ["x succeeded", "y failed"]);
}

// R-L1: a pending version that comes late brings no pending attempts with it.
#[test]
fn the_past_adds_nothing() {
    let url = fresh();
    let mut store = opened(&url, "a");
    let mut settled = record("x", "a", 1, State::Refused);
    settled.attempts.clear();
    store.write(&[Piece::Live(Arc::new(settled))]).unwrap();
    assert_eq!(
        store.write(&[live("x", "a", 1, State::Pending)]).unwrap(),
        0
    );
    assert_eq!(number(&url, "SELECT count(*) FROM attempts"), 0);
}

// R-L1: whoever writes.
#[test]
fn the_database_itself_keeps_terminal_states() {
    let url = fresh();
    let mut store = opened(&url, "a");
    store.write(&[live("x", "a", 1, State::Succeeded)]).unwrap();
    for table in ["operations", "attempts"] {
        let tried = std::thread::spawn({
            let url = url.clone();
            move || sql(&url, &format!("UPDATE {table} SET state = 'failed'"))
        });
        assert!(tried.join().is_err(), "{table} let a terminal row go");
    }
    assert_eq!(ids(&url), ["x succeeded"]);
}

#[test]
fn one_id_of_many_operations_keeps_them_apart() {
    let url = fresh();
    let mut store = opened(&url, "a");
    let pending: Vec<_> = (1..=50)
        .map(|n| live("x", "a", n, State::Pending))
        .collect();
    assert_eq!(store.write(&pending).unwrap(), 100);
    let settled: Vec<_> = (1..=50)
        .rev()
        .map(|n| live("x", "a", n, State::Succeeded))
        .collect();
    assert_eq!(store.write(&settled).unwrap(), 100);
    assert_eq!(store.write(&settled).unwrap(), 0);
    assert_eq!(
        number(
            &url,
            "SELECT count(*) FROM operations WHERE state = 'succeeded'"
        ),
        50
    );
    let wanted = renamed("x", "a", 2);
    assert!(ids(&url).contains(&format!("{wanted} succeeded")));
    let found = reader(&url)
        .find(&Query {
            limit: 100,
            id: Some("x".into()),
            ..Query::default()
        })
        .unwrap();
    assert_eq!(found.len(), 50);
    assert!(found.iter().all(|record| record.attempts.len() == 1));
}

#[test]
fn a_renamed_operation_stays_renamed() {
    let url = fresh();
    let mut store = opened(&url, "a");
    store.write(&[live("x", "a", 1, State::Succeeded)]).unwrap();
    store.write(&[live("x", "a", 2, State::Pending)]).unwrap();
    sql(
        &url,
        "DELETE FROM attempts WHERE operation_id = 'x'; DELETE FROM operations WHERE operation_id = 'x'",
    );
    let settled = [live("x", "a", 2, State::Succeeded)];
    assert_eq!(store.write(&settled).unwrap(), 2);
    assert_eq!(store.write(&settled).unwrap(), 0);
    let name = renamed("x", "a", 2);
    assert_eq!(ids(&url), [format!("{name} succeeded")]);
}

#[test]
fn two_writers_with_the_same_ids() {
    let url = fresh();
    let writers: Vec<_> = ["a", "b"]
        .into_iter()
        .map(|name| {
            let url = url.clone();
            std::thread::spawn(move || {
                let mut store = opened(&url, name);
                for n in 0..20_u64 {
                    // Opposite orders: without sorting they would lock each other out.
                    let mut ids: Vec<u64> = (0..10).collect();
                    if name == "b" {
                        ids.reverse();
                    }
                    for state in [State::Pending, State::Succeeded] {
                        let pieces: Vec<_> = ids
                            .iter()
                            .map(|id| live(&format!("x{id}-{n}"), name, n * 10 + id, state))
                            .collect();
                        store.write(&pieces).unwrap();
                    }
                }
            })
        })
        .collect();
    for writer in writers {
        writer.join().unwrap();
    }
    let count = |what: &str| number(&url, &format!("SELECT count(*) FROM {what}"));
    assert_eq!(count("operations WHERE state = 'succeeded'"), 400);
    assert_eq!(count("attempts WHERE state = 'succeeded'"), 400);
    assert_eq!(
        count("operations WHERE operation_id LIKE '%~%'"),
        200,
        "one of each pair has a name of its own"
    );
}

// R-L8
#[test]
fn late_usage_fills_what_is_missing_or_partial() {
    let url = fresh();
    let mut store = opened(&url, "a");
    let usage = |sequence: u64, prompt: u64, partial: bool| {
        Piece::Usage(LateUsage {
            operation_id: Arc::from("x"),
            boot_id: Arc::from("a"),
            sequence,
            prompt_tokens: Some(prompt),
            completion_tokens: None,
            cached_tokens: None,
            reasoning_tokens: None,
            partial,
        })
    };
    let both = [
        live("x", "a", 1, State::Succeeded),
        live("x", "a", 2, State::Cancelled),
        usage(2, 7, true),
    ];
    assert_eq!(store.write(&both).unwrap(), 5);
    assert_eq!(store.write(&[usage(2, 8, false)]).unwrap(), 1);
    assert_eq!(
        store
            .write(&[usage(2, 9, false), usage(3, 9, false)])
            .unwrap(),
        0
    );
    assert_eq!(
        number(&url, "SELECT sum(prompt_tokens)::bigint FROM operations"),
        8
    );
    assert_eq!(
        ids(&url),
        [
            "x succeeded".to_owned(),
            format!("{} cancelled", renamed("x", "a", 2))
        ]
    );
}

// R-L6
#[test]
fn a_dead_boot_is_settled_step_by_step() {
    let url = fresh();
    let mut dead = opened(&url, "dead");
    let pending: Vec<_> = (1..=5)
        .map(|n| live(&format!("d{n}"), "dead", n, State::Pending))
        .collect();
    dead.write(&pending).unwrap();
    drop(dead);
    let mut alive = opened(&url, "alive");
    alive
        .write(&[live("mine", "alive", 1, State::Pending)])
        .unwrap();
    let others = alive.others(&boot("alive")).unwrap();
    assert_eq!(others.len(), 1);
    assert_eq!(others[0].boot, boot("dead"));
    let at = WallTime::from_unix_micros(77);
    let mut steps = Vec::new();
    loop {
        let settled = alive.abandon(&boot("dead"), at, 4).unwrap();
        steps.push(settled);
        if settled == 0 {
            break;
        }
    }
    assert_eq!(steps, [4, 4, 2, 0]);
    assert!(alive.others(&boot("alive")).unwrap().is_empty());
    let told = texts(
        &url,
        "SELECT DISTINCT concat_ws(' ', state, reason, finished_at, coalesce(latency_ms, -1), coalesce(http_status, -1)) \
         FROM operations WHERE boot_id = 'dead'",
    );
    assert_eq!(told, ["abandoned process_ended 77 -1 -1"]);
    let told = texts(
        &url,
        "SELECT DISTINCT concat_ws(' ', state, delivery, finished_at) FROM attempts WHERE boot_id = 'dead'",
    );
    assert_eq!(told, ["abandoned ambiguous 77"]);
    assert_eq!(
        number(
            &url,
            "SELECT count(*) FROM operations WHERE state = 'pending'"
        ),
        1
    );
    // What the dead one still had in its spool does not undo it.
    let late = StoredRecord::from(&record("d1", "dead", 1, State::Succeeded));
    assert_eq!(alive.write(&[Piece::Spooled(late)]).unwrap(), 0);
}

#[test]
fn old_records_go_and_pending_ones_stay() {
    let url = fresh();
    let mut store = opened(&url, "a");
    let settled: Vec<_> = (1..=5)
        .map(|n| live(&format!("s{n}"), "a", n, State::Succeeded))
        .collect();
    store.write(&settled).unwrap();
    store.write(&[live("p", "a", 1, State::Pending)]).unwrap();
    let before = WallTime::from_unix_micros(START + 4_000);
    assert_eq!(store.prune(before, 2).unwrap(), 2);
    assert_eq!(store.prune(before, 2).unwrap(), 1);
    assert_eq!(store.prune(before, 2).unwrap(), 0);
    assert_eq!(ids(&url), ["p pending", "s4 succeeded", "s5 succeeded"]);
    assert_eq!(number(&url, "SELECT count(*) FROM attempts"), 3);
}

#[test]
fn sums_saturate_and_are_in_order() {
    let url = fresh();
    let mut store = opened(&url, "a");
    for n in 1..=2 {
        let mut record = record(&format!("s{n}"), "a", n, State::Succeeded);
        record.operation.prompt_tokens = Some(u64::MAX);
        store.write(&[Piece::Live(Arc::new(record))]).unwrap();
    }
    store.write(&[live("p", "a", 3, State::Pending)]).unwrap();
    let reader = reader(&url);
    let states = reader.sums(SumBy::State, None).unwrap();
    let groups: Vec<_> = states.iter().map(|sum| (&*sum.group, sum.rows)).collect();
    assert_eq!(groups, [("pending", 1), ("succeeded", 2)]);
    let keys = reader.sums(SumBy::Key, None).unwrap();
    assert_eq!(keys.len(), 1);
    assert_eq!(
        (&*keys[0].group, keys[0].rows, keys[0].sends),
        ("acme/main", 3, 2)
    );
    assert_eq!(keys[0].prompt_tokens, u64::try_from(i64::MAX).unwrap());
    assert_eq!(
        keys[0].states,
        [("pending".to_owned(), 1), ("succeeded".to_owned(), 2)]
    );
}

#[test]
fn what_no_text_can_hold_is_refused_and_the_rest_goes_on() {
    let url = fresh();
    let mut store = opened(&url, "a");
    refused(store.write(&[live("a\0b", "a", 1, State::Pending)]));
    refused(store.write(&[Piece::Spooled(StoredRecord {
        operation: Vec::new(),
        attempts: Vec::new(),
    })]));
    assert_eq!(
        store.write(&[live("x", "a", 2, State::Pending)]).unwrap(),
        2
    );
}

#[test]
fn missing_rights_and_tables_are_no_fault_of_the_rows() {
    let url = fresh();
    let mut store = opened(&url, "a");
    sql(&url, "ALTER TABLE operations RENAME TO elsewhere");
    unavailable(store.write(&[live("x", "a", 1, State::Pending)]));
    sql(&url, "ALTER TABLE elsewhere RENAME TO operations");
    assert_eq!(
        store.write(&[live("x", "a", 1, State::Pending)]).unwrap(),
        2
    );
}

// A database administrator may make the tables; the gateway then needs no right to make anything.
#[test]
fn a_user_with_rights_to_rows_alone_is_enough() {
    let url = fresh();
    opened(&url, "a").close(&boot("a")).unwrap();
    let schema = texts(&url, "SELECT current_schema()::text").remove(0);
    let user = format!("{schema}_user");
    sql(
        &url,
        &format!(
            "CREATE ROLE {user} LOGIN PASSWORD 'pw'; GRANT USAGE ON SCHEMA {schema} TO {user}; \
             GRANT SELECT ON rondo_schema TO {user}; \
             GRANT SELECT, INSERT, UPDATE, DELETE ON operations, attempts, boots TO {user}"
        ),
    );
    let (_, rest) = url.split_once('@').unwrap();
    let theirs = format!("postgres://{user}:pw@{rest}");
    let mut store = opened(&theirs, "b");
    assert_eq!(
        store.write(&[live("x", "b", 1, State::Succeeded)]).unwrap(),
        2
    );
    assert_eq!(
        store
            .prune(WallTime::from_unix_micros(i64::MAX), 9)
            .unwrap(),
        1
    );
}

// R-L7
#[test]
fn a_stopped_server_is_unavailable_and_then_has_every_row() {
    let mut cluster = Cluster::start();
    let url = cluster.url.clone();
    let mut store = opened(&url, "a");
    let mut written = 0;
    for n in 1..=40 {
        let piece = [live(&format!("x{n}"), "a", n, State::Succeeded)];
        if n == 10 {
            cluster.stop();
            unavailable(store.write(&piece));
            unavailable(store.beat(&boot("a")));
            unavailable(reader(&url).sums(SumBy::State, None));
            cluster.restart();
        }
        written += store.write(&piece).unwrap();
    }
    assert_eq!(written, 80);
    assert_eq!(number(&url, "SELECT count(*) FROM operations"), 40);
    assert_eq!(number(&url, "SELECT count(*) FROM attempts"), 40);
}

// R-L7
#[test]
fn a_frozen_server_is_unavailable_within_the_bound() {
    let mut cluster = Cluster::start();
    let bounds = Bounds {
        connect: Duration::from_millis(200),
        call: Duration::from_millis(400),
        statement: Duration::from_secs(60),
    };
    let mut store = PostgresStore::new(Target::parse(&cluster.url, bounds).unwrap());
    let reader =
        rondo::store::postgres::PostgresReader::new(&Target::parse(&cluster.url, bounds).unwrap())
            .unwrap();
    while store.open(&boot("a")).is_err() {}
    while reader.sums(SumBy::State, None).is_err() {}
    cluster.pause();
    for _ in 0..2 {
        let began = Instant::now();
        unavailable(store.write(&[live("x", "a", 1, State::Pending)]));
        unavailable(reader.sums(SumBy::State, None));
        let took = began.elapsed();
        assert!(took < Duration::from_secs(10), "{took:?}");
    }
    cluster.resume();
    while store.write(&[live("x", "a", 1, State::Succeeded)]).is_err() {}
    while reader.sums(SumBy::State, None).is_err() {}
    assert_eq!(ids(&cluster.url), ["x succeeded"]);
}

#[test]
fn an_outage_during_the_first_start_is_survived() {
    let mut cluster = Cluster::start();
    cluster.stop();
    let mut store = store(&cluster.url);
    let text = unavailable(store.open(&boot("a")));
    assert!(text.contains("cannot connect"), "{text}");
    cluster.restart();
    store.open(&boot("a")).unwrap();
}

// As after a failover, when the old primary is a standby.
#[test]
fn a_server_that_only_reads_is_unavailable() {
    let url = fresh();
    opened(&url, "a").close(&boot("a")).unwrap();
    let standby = format!("{url}%20-c%20default_transaction_read_only%3Don");
    let text = unavailable(store(&standby).open(&boot("b")));
    assert!(text.contains("read-only"), "{text}");
}

#[test]
fn a_terminated_session_is_made_anew() {
    let url = format!("{}&application_name=terminated", fresh());
    let mut store = opened(&url, "a");
    sql(
        &url,
        "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity \
         WHERE application_name = 'terminated' AND pid <> pg_backend_pid()",
    );
    unavailable(store.write(&[live("x", "a", 1, State::Pending)]));
    assert_eq!(
        store.write(&[live("x", "a", 1, State::Pending)]).unwrap(),
        2
    );
}

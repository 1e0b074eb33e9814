//! A gateway whose PostgreSQL goes away: no client notices, and nothing is lost.

use std::path::PathBuf;
use std::sync::Arc;

use rondo::core::settlement::State;
use tokio::sync::Semaphore;
use tokio::task::{JoinSet, spawn_blocking};

use crate::support::client::{Connection, call, chat};
use crate::support::database::{Cluster, fresh, number, sql, texts};
use crate::support::process::Process;
use crate::support::{Rondo, soon, until};

const CLIENTS: usize = 8;
const REQUESTS: usize = 200;

/// A folder for the URL, which is a secret and so in a file, and for the gateway's state.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str, url: &str) -> Folder {
        let name = format!("rondo-pg-{name}-{}", std::process::id());
        let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("url"), url).unwrap();
        Folder(folder)
    }

    fn ledger(&self) -> String {
        let folder = self.0.display();
        format!(
            "\nledger: {{ store: postgres, url: {{ file: \"{folder}/url\" }}, state_dir: \"{folder}/state\" }}\n"
        )
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn routes(script: &str) -> String {
    format!(
        "providers:\n  up: {{ adapter: openai, mock: {{ answers: [{script}] }} }}\n\
         routes:\n  - {{ name: chat, models: [m], targets: [{{ name: t, provider: up }}] }}\n"
    )
}

/// Clients that send as many requests as there are permits, and give the statuses.
fn clients(rondo: &Rondo, permits: &Arc<Semaphore>) -> JoinSet<Vec<u16>> {
    let mut clients = JoinSet::new();
    for _ in 0..CLIENTS {
        let (addr, permits) = (rondo.addr, Arc::clone(permits));
        clients.spawn(async move {
            let mut connection = Connection::h1(addr).await;
            let mut statuses = Vec::new();
            while let Ok(permit) = permits.acquire().await {
                permit.forget();
                statuses.push(connection.call(chat("m")).await.status.as_u16());
            }
            statuses
        });
    }
    clients
}

// R-L7 R-L1
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_outage_under_load_fails_no_request_and_loses_no_row() {
    let mut cluster = spawn_blocking(Cluster::start).await.unwrap();
    let url = cluster.url.clone();
    let folder = Folder::new("outage", &url);
    let rondo = Rondo::start(&(routes("ok") + &folder.ledger())).await;
    let permits = Arc::new(Semaphore::new(0));
    let clients = clients(&rondo, &permits);
    let settled =
        |rondo: &Rondo| rondo.metric("rondo_ledger_records_total", &["kind=\"operation\""]);

    permits.add_permits(60);
    rondo.until(|rondo| settled(rondo) >= 10.0).await;
    // The rest of these are on their way, to the target or to the store, when it goes.
    let stopped = spawn_blocking(move || {
        cluster.stop();
        cluster
    });
    let mut cluster = stopped.await.unwrap();
    permits.add_permits(80);
    rondo
        .until(|rondo| rondo.metric("rondo_requests_total", &[]) >= 140.0)
        .await;
    rondo
        .until(|rondo| rondo.metric("rondo_ledger_store_errors_total", &[]) >= 1.0)
        .await;
    assert!(settled(&rondo) < 140.0);
    permits.add_permits(60);
    let started = spawn_blocking(move || {
        cluster.restart();
        cluster
    });
    let cluster = started.await.unwrap();
    rondo
        .until(|rondo| rondo.metric("rondo_requests_total", &[]) >= 200.0)
        .await;
    permits.close();
    let statuses: Vec<u16> = soon(clients.join_all()).await.concat();
    assert_eq!(statuses, [200; REQUESTS]);

    rondo
        .until(|rondo| settled(rondo) >= 200.0 && rondo.metric("rondo_ledger_queue", &[]) == 0.0)
        .await;
    rondo.assert_quiet().await;
    assert_eq!(rondo.metric("rondo_ledger_lost_total", &[]), 0.0);
    assert_eq!(rondo.metric("rondo_ledger_spool_bytes", &[]), 0.0);
    let count = |what: &str| number(&url, &format!("SELECT count(*) FROM {what}"));
    assert_eq!(count("operations WHERE state = 'succeeded'"), 200);
    assert_eq!(count("operations"), 200);
    assert_eq!(count("attempts WHERE state = 'succeeded'"), 200);
    let sends = rondo.metric("rondo_upstream_sends_total", &[]);
    assert_eq!(count("attempts") as f64, sends);
    let own = rondo.records();
    assert!(
        own.iter()
            .all(|record| record.operation.state == State::Succeeded)
    );
    drop(cluster);
}

// R-L6: two gateways on one database; one is killed, and only its rows are settled by its next start.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_gateway_s_rows_are_settled_by_its_next_start() {
    let url = spawn_blocking(fresh).await.unwrap();
    let (mine, theirs) = (Folder::new("mine", &url), Folder::new("theirs", &url));
    // The other gateway only has a row; its lease is not over.
    let other = "INSERT INTO boots SELECT 'other', 'elsewhere', n, n, NULL FROM \
         (SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint AS n) t";
    let pending = "SELECT count(*) FROM operations WHERE state = 'pending'";
    let config = routes("{ silence: true }") + &mine.ledger();
    let mut first = Process::start("threads: 1", &config).await;
    let addr = first.addr;
    let waiting = tokio::spawn(async move { call(addr, chat("m")).await });
    until(|| number(&url, "SELECT count(*) FROM pg_tables WHERE tablename = 'operations' AND schemaname = current_schema()") == 1).await;
    until(|| number(&url, pending) == 1).await;
    sql(&url, other);
    sql(
        &url,
        "CREATE TEMP TABLE o AS SELECT * FROM operations; UPDATE o SET operation_id = 'theirs', boot_id = 'other'; \
         INSERT INTO operations SELECT * FROM o",
    );
    first.signal("KILL");
    first.ended().await;
    waiting.abort();
    let second = Process::start("threads: 1", &config).await;
    until(|| number(&url, pending) == 1).await;
    let told = texts(
        &url,
        "SELECT o.state || ' ' || o.reason || ' ' || coalesce(a.state || ' ' || a.delivery, '-') FROM operations o \
         LEFT JOIN attempts a USING (operation_id) ORDER BY o.state",
    );
    assert_eq!(
        told,
        ["abandoned process_ended abandoned ambiguous", "pending  -"]
    );
    drop((second, theirs));
}

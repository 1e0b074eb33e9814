//! The client leaves: whatever the operation does at that moment, it ends at once, nothing more is sent, and nothing is left behind.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use rondo::core::settlement::State;
use rondo::ledger::Record;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};

use crate::support::caller::{Caller, Way};
use crate::support::client::{call, chat, chat_body};
use crate::support::{Rondo, soon};

const CHAT: &str = "/v1/chat/completions";
/// Far more than it takes and far less than any timeout of the configurations here.
const AT_ONCE: Duration = Duration::from_secs(1);

/// A gateway whose one target answers with this script entry, over HTTP/1.1 or HTTP/2.
async fn one_target(answer: &str, http2: bool) -> Rondo {
    Rondo::start(&format!(
        r#"
providers:
  one: {{ adapter: openai, http2: {http2}, mock: {{ answers: [{answer}] }} }}
  two: {{ adapter: openai, mock: {{ answers: [ok] }} }}
routes:
  - name: chat
    models: [m]
    targets: [{{ name: first, provider: one }}, {{ name: second, provider: two }}]
"#
    ))
    .await
}

/// What must hold after one client has left one operation: it ended soon, as cancelled, and sent nothing more.
async fn assert_cancelled(rondo: &Rondo, left: Instant, sends: f64) {
    rondo.idle().await;
    let took = left.elapsed();
    assert!(took < AT_ONCE, "{took:?}");
    let labels = ["outcome=\"cancelled\"", "status=\"499\""];
    assert_eq!(rondo.metric("rondo_requests_total", &labels), 1.0);
    assert_eq!(rondo.metric("rondo_requests_total", &[]), 1.0);
    assert_eq!(rondo.metric("rondo_upstream_sends_total", &[]), sends);
    rondo.assert_quiet().await;
    let records = rondo.records();
    // A drop before there is an operation writes nothing.
    assert_eq!(records.len() as f64, 1.0 - rondo.refusals());
    for record in records {
        assert_rows_cancelled(&record);
    }
}

/// Both rows of a cancelled operation: 499 and the time that it really took; what failed before the client left stays what it was.
fn assert_rows_cancelled(record: &Record) {
    let operation = &record.operation;
    let row = (operation.state, operation.http_status, operation.reason);
    assert_eq!(row, (State::Cancelled, Some(499), "client_gone"));
    assert_eq!(
        (operation.error_class, operation.usage_partial),
        (None, None)
    );
    assert!(
        operation.finished_at > Some(operation.started_at),
        "{operation:?}"
    );
    assert!(operation.latency_ms >= Some(STAY_MS), "{operation:?}");
    let last = record.attempts.last().unwrap();
    if last.state == State::Rejected {
        // It left between two attempts, and is charged to neither.
        assert_eq!((record.attempts.len(), operation.rounds), (1, 1));
        assert_eq!(last.http_status, Some(429));
        return;
    }
    assert_eq!((last.state, last.error_class), (State::Cancelled, None));
    assert!(last.finished_at > Some(last.started_at), "{last:?}");
    assert!(last.latency_ms >= Some(STAY_MS), "{last:?}");
    assert!(last.latency_ms <= operation.latency_ms, "{record:?}");
}

/// Time that a client stays before it leaves, so that there is a latency to be seen.
const STAY_MS: u64 = 5;

async fn stay() {
    tokio::time::sleep(Duration::from_millis(STAY_MS + 1)).await;
}

/// During the upload there is no operation yet: nothing is sent, and the held bytes are given back.
#[tokio::test]
async fn leaving_during_the_upload() {
    // R-D4 R-B7 R-L1 R-L2
    for way in Way::ALL {
        let rondo = one_target("ok", false).await;
        let body = chat_body("m", false);
        let caller = Caller::begin(way, rondo.addr, CHAT, &body, body.len() / 2).await;
        rondo
            .until(|rondo| rondo.app.gateway.buffered.held() > 0)
            .await;
        stay().await;
        let left = Instant::now();
        caller.leave();
        assert_cancelled(&rondo, left, 0.0).await;
        assert_eq!(rondo.refusals(), 1.0, "{way:?}");
    }
}

/// A pending connect is given up at once, not when its timeout comes.
#[tokio::test]
async fn leaving_during_the_connect() {
    // R-B8 C122 R-L1 R-L2
    for way in Way::ALL {
        let full = FullListener::new().await;
        let rondo = Rondo::start(&format!(
            r#"
providers:
  one: {{ adapter: openai, base_url: "http://{}", timeouts: {{ connect_ms: 60000 }} }}
  two: {{ adapter: openai, mock: {{ answers: [ok] }} }}
routes:
  - name: chat
    models: [m]
    targets: [{{ name: first, provider: one }}, {{ name: second, provider: two }}]
"#,
            full.addr
        ))
        .await;
        let caller = Caller::ask(way, rondo.addr, CHAT, &chat_body("m", false)).await;
        rondo
            .until(|rondo| rondo.metric("rondo_upstream_sends_total", &[]) == 1.0)
            .await;
        stay().await;
        let left = Instant::now();
        caller.leave();
        assert_cancelled(&rondo, left, 1.0).await;
        assert_eq!(rondo.mock("two").sends(), 0, "{way:?}");
    }
}

/// C109, C117, C118: while the answer's header is waited for.
#[tokio::test]
async fn leaving_before_the_header() {
    // R-D4 R-L5 R-L1 R-L2
    for (way, http2) in everywhere() {
        let rondo = one_target("hang", http2).await;
        let caller = Caller::ask(way, rondo.addr, CHAT, &chat_body("m", false)).await;
        soon(rondo.mock("one").wait_for_bodies(1)).await;
        stay().await;
        let left = Instant::now();
        caller.leave();
        soon(rondo.mock("one").wait_for_closed(1)).await;
        assert_cancelled(&rondo, left, 1.0).await;
        assert_eq!(rondo.mock("two").sends(), 0, "{way:?} {http2}");
    }
}

/// While a stream is held that has shown nothing but a comment: nothing was written to the client, and nothing ever is.
#[tokio::test]
async fn leaving_while_a_stream_is_held() {
    // R-A4 R-D4 R-L1 R-L2
    let silent = "{ sse: [{ comment: wait }, { silence: true }] }";
    for (way, http2) in everywhere() {
        let rondo = one_target(silent, http2).await;
        let caller = Caller::ask(way, rondo.addr, CHAT, &chat_body("m", true)).await;
        soon(rondo.mock("one").wait_for_bodies(1)).await;
        stay().await;
        let left = Instant::now();
        caller.leave();
        soon(rondo.mock("one").wait_for_closed(1)).await;
        assert_cancelled(&rondo, left, 1.0).await;
    }
}

/// C111, C120: in the middle of a stream. The upstream is closed, so that it stops generating; the record says 499, whatever was written.
#[tokio::test]
async fn leaving_in_the_middle_of_a_stream() {
    // R-D4 R-L5 R-L1 R-L2
    let slow = "{ sse: [{ data: { choices: [{ index: 0, delta: { content: Hello } }] } }, { silence: true }] }";
    for (way, http2) in everywhere() {
        let rondo = one_target(slow, http2).await;
        let mut caller = Caller::ask(way, rondo.addr, CHAT, &chat_body("m", true)).await;
        caller.read_to("Hello").await;
        stay().await;
        let left = Instant::now();
        caller.leave();
        soon(rondo.mock("one").wait_for_closed(1)).await;
        assert_cancelled(&rondo, left, 1.0).await;
        // C120: no failure of the target, and no cooldown.
        let records = rondo.records();
        assert_eq!(
            records[0].operation.http_status,
            Some(499),
            "{way:?} {http2}"
        );
    }
}

/// C113: a client that leaves during the wait between rounds ends it, and what was sent stays what it was.
#[tokio::test]
async fn leaving_between_the_rounds() {
    // R-S15 R-S9 R-B6 R-L1 R-L2 R-L5
    for way in Way::ALL {
        let rondo = Rondo::start(&waiting_route(20_000)).await;
        let caller = Caller::ask(way, rondo.addr, CHAT, &chat_body("m", false)).await;
        rondo.until_waiting(1).await;
        stay().await;
        let left = Instant::now();
        caller.leave();
        assert_cancelled(&rondo, left, 1.0).await;
        assert_eq!(rondo.mock("one").sends(), 1, "{way:?}");
        assert_eq!(
            rondo.metric("rondo_exhaustion_ends_total", &["end=\"wait_client_gone\""]),
            1.0
        );
    }
}

/// One target that throttles once for so many milliseconds, and a route that waits for it.
fn waiting_route(millis: u64) -> String {
    let seconds = millis as f64 / 1000.0;
    format!(
        r#"
providers:
  one: {{ adapter: openai, mock: {{ answers: [{{ preset: openai.throttle, retry_after: {seconds} }}, ok] }} }}
routes:
  - name: chat
    models: [m]
    targets: [{{ name: first, provider: one }}]
    routing:
      mode: priority_failover
      max_target_attempts: 1
      max_upstream_sends: 2
      exhaustion_retry: {{ max_rounds: 1, max_wait_ms: 30000 }}
"#
    )
}

fn everywhere() -> impl Iterator<Item = (Way, bool)> {
    Way::ALL
        .into_iter()
        .flat_map(|way| [(way, false), (way, true)])
}

/// A client that leaves lowers nobody's health: the next request finds the target as it was.
#[tokio::test]
async fn a_cancel_is_nobodys_failure() {
    // R-L5
    let rondo = one_target("hang, ok", false).await;
    let caller = Caller::ask(Way::H1Close, rondo.addr, CHAT, &chat_body("m", false)).await;
    soon(rondo.mock("one").wait_for_bodies(1)).await;
    caller.leave();
    soon(rondo.mock("one").wait_for_closed(1)).await;
    rondo.idle().await;
    let attempts = |labels: &[&str]| rondo.metric("rondo_attempts_total", labels);
    assert_eq!(attempts(&[]), 1.0);
    assert_eq!(
        attempts(&["outcome=\"cancelled\"", "decision=\"stop\""]),
        1.0
    );
    for counter in [
        "failovers_total",
        "provider_retries_total",
        "route_exhaustions_total",
    ] {
        assert_eq!(
            rondo.metric(&format!("rondo_{counter}"), &[]),
            0.0,
            "{counter}"
        );
    }
    let now = rondo.app.gateway.around.clock.mono();
    for key in rondo.app.snapshot().routes[0]
        .targets
        .iter()
        .flat_map(|target| &target.keys)
    {
        assert!(key.cooldown.remaining_after(now).is_none(), "a cooldown");
        assert!(key.aside.remaining_after(now).is_none(), "set aside");
    }
    let answer = call(rondo.addr, chat("m")).await;
    assert_eq!(answer.header("x-rondo-target"), Some("first"));
    assert_eq!(attempts(&["outcome=\"succeeded\""]), 1.0);
    rondo.assert_quiet().await;
}

/// C124: a thousand clients that leave at any moment around the dispatch point. Afterwards every slot and byte is back, and every send has its attempt.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_cancels_race_with_dispatch() {
    // R-B8 R-L2 R-S22
    let rondo = Rondo::start(
        r#"
providers:
  one: { adapter: openai, mock: { seed: 7, answers: [
    { choose: [{ p: 0.4, answer: { preset: openai.throttle, retry_after: 0.02 } }, { p: 0.6, answer: ok }] }] } }
  two: { adapter: openai, http2: true, mock: { seed: 8, answers: [
    { choose: [{ p: 0.7, answer: { preset: openai.throttle, retry_after: 0.02 } }, { p: 0.3, answer: ok }] }] } }
routes:
  - name: chat
    models: [m]
    targets: [{ name: first, provider: one }, { name: second, provider: two }]
    routing:
      max_target_attempts: 2
      max_upstream_sends: 4
      exhaustion_retry: { max_rounds: 1, max_wait_ms: 2000 }
"#,
    )
    .await;
    let mut random = SmallRng::seed_from_u64(124);
    for _ in 0..20 {
        let callers: Vec<_> = (0..50)
            .map(|number| {
                let way = Way::ALL[number % 4];
                let (addr, turns) = (rondo.addr, random.random_range(0..4_000));
                tokio::spawn(async move {
                    let caller = Caller::ask(way, addr, CHAT, &chat_body("m", false)).await;
                    for _ in 0..turns {
                        tokio::task::yield_now().await;
                    }
                    caller.leave();
                })
            })
            .collect();
        for caller in callers {
            soon(caller).await.unwrap();
        }
    }
    rondo.assert_quiet().await;
    let sends = rondo.metric("rondo_upstream_sends_total", &[]);
    let arrived = rondo.mock("one").sends() + rondo.mock("two").sends();
    assert!(
        arrived as f64 <= sends,
        "{arrived} requests arrived, {sends} were counted"
    );
    assert!(
        rondo
            .mock("one")
            .duplicates()
            .values()
            .all(|count| *count <= 2)
    );
    assert!(
        rondo
            .mock("two")
            .duplicates()
            .values()
            .all(|count| *count <= 2)
    );
}

/// A listener that accepts nothing and whose backlog is full: connecting to it takes for ever.
struct FullListener {
    addr: SocketAddr,
    _listener: TcpListener,
    _fill: Vec<TcpStream>,
}

impl FullListener {
    async fn new() -> FullListener {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
        let listener = socket.listen(1).unwrap();
        let addr = listener.local_addr().unwrap();
        let mut fill = Vec::new();
        let patience = Duration::from_millis(200);
        while let Ok(connected) = tokio::time::timeout(patience, TcpStream::connect(addr)).await {
            fill.push(connected.unwrap());
        }
        FullListener {
            addr,
            _listener: listener,
            _fill: fill,
        }
    }
}

/// The client's half-close right after its request counts as leaving: nobody can tell it from a client that is gone.
#[tokio::test]
async fn a_half_closed_client_has_left() {
    // R-D4
    let rondo = one_target("hang", false).await;
    let body = chat_body("m", false);
    let mut stream = TcpStream::connect(rondo.addr).await.unwrap();
    let head = format!(
        "POST {CHAT} HTTP/1.1\r\nhost: h\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    stream
        .write_all(format!("{head}{body}").as_bytes())
        .await
        .unwrap();
    soon(rondo.mock("one").wait_for_bodies(1)).await;
    stay().await;
    let left = Instant::now();
    stream.shutdown().await.unwrap();
    let mut rest = Vec::new();
    soon(stream.read_to_end(&mut rest)).await.unwrap();
    assert_eq!(rest, b"", "nothing is written to a client that is gone");
    assert_cancelled(&rondo, left, 1.0).await;
}

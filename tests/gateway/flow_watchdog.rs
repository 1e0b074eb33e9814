//! Time that runs out while the client leaves, on real sockets: each operation has one record, and 504 whenever the instant had passed.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use rondo::core::outcome::Outcome;
use rondo::core::settlement::{OperationOutcome, State};
use rondo::core::usage::Usage;
use rondo::executor::effect::Note;
use rondo::ledger::Record;
use rondo::ledger::totals::{Open, Totals};
use rondo::policy::overload::{Overload, SlowPhase};
use rondo::proxy::host::{
    AttemptExtras, DrainEnd, Exchanged, Observer, OperationEnd, OperationFacts, Refusal, Stamp,
};

use crate::support::caller::{Caller, Way};
use crate::support::client::{Connection, call, chat, chat_body};
use crate::support::{Rondo, Watched, soon};

const CHAT: &str = "/v1/chat/completions";
/// When time runs out: long enough for a request to reach its target, short enough for many.
const RUNS_OUT: Duration = Duration::from_millis(30);

/// Looks at every settlement with the exact instant at which it was made.
struct Judge {
    inner: Watched,
    limit: Limit,
    seen: Mutex<Seen>,
}

/// What ends the operations here.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Limit {
    /// The operation's deadline: its instant is known from outside.
    Deadline,
    /// The first byte: no earlier than so long after the dispatch.
    FirstByte,
}

#[derive(Default)]
struct Seen {
    totals: Totals,
    cancelled: u64,
    timed_out: u64,
    /// The time had run out before the request could leave: a busy machine.
    unsent: u64,
    ended: u64,
    wrong: Vec<String>,
}

impl Judge {
    fn judge(&self, facts: &OperationFacts, note: &Note, at: Stamp) {
        let mut seen = self.seen.lock();
        seen.totals.add(note);
        let Note::AttemptSettled(settled) = note else {
            return;
        };
        let began = facts.started.mono;
        let has_passed = at.mono >= began.after(RUNS_OUT);
        let is_unsent = settled.delivery() == Outcome::NotDelivered.label();
        let fits = match (settled.state, self.limit) {
            (State::TimedOut, _) => has_passed,
            (State::Cancelled, Limit::Deadline) => !has_passed,
            (State::Cancelled, Limit::FirstByte) => true,
            (State::Failed, Limit::Deadline) => has_passed && is_unsent,
            _ => false,
        };
        if !fits {
            let took = at.mono.since(began);
            seen.wrong.push(format!(
                "{:?} after {took:?}, {}",
                settled.state,
                settled.delivery()
            ));
        }
        seen.cancelled += u64::from(settled.state == State::Cancelled);
        seen.timed_out += u64::from(settled.state == State::TimedOut);
        seen.unsent += u64::from(settled.state == State::Failed);
    }
}

impl Observer for Judge {
    fn request_opened(&self) {
        self.inner.request_opened();
    }

    fn request_closed(&self) {
        self.inner.request_closed();
    }

    fn operation_started(&self, facts: &OperationFacts) {
        self.inner.operation_started(facts);
    }

    fn note(&self, facts: &OperationFacts, note: &Note, extras: AttemptExtras<'_>, at: Stamp) {
        self.judge(facts, note, at);
        self.inner.note(facts, note, extras, at);
    }

    fn operation_ended(&self, facts: &OperationFacts, end: &OperationEnd) -> Option<u64> {
        self.seen.lock().ended += 1;
        let fits = matches!(
            (end.outcome, end.status),
            (OperationOutcome::TimedOut, 504) | (OperationOutcome::Cancelled, 499)
        );
        if !fits {
            let what = format!("{:?} with {}", end.outcome, end.status);
            self.seen.lock().wrong.push(what);
        }
        self.inner.operation_ended(facts, end)
    }

    fn usage_came(&self, facts: &OperationFacts, sequence: u64, usage: Usage) {
        self.inner.usage_came(facts, sequence, usage);
    }

    fn drain_begun(&self) {
        self.inner.drain_begun();
    }

    fn drain_ended(&self, end: DrainEnd) {
        self.inner.drain_ended(end);
    }

    fn refused(&self, refusal: &Refusal) {
        self.inner.refused(refusal);
    }

    fn overloaded(&self, limit: Overload) {
        self.inner.overloaded(limit);
    }

    fn slow_client(&self, phase: SlowPhase) {
        self.inner.slow_client(phase);
    }

    fn token_exchanged(&self, provider: &str, result: Exchanged) {
        self.inner.token_exchanged(provider, result);
    }
}

async fn judged(limit: Limit) -> (Rondo, Arc<Judge>) {
    let millis = RUNS_OUT.as_millis();
    let (first_byte, deadline) = match limit {
        Limit::Deadline => (60_000, millis),
        Limit::FirstByte => (millis, 60_000),
    };
    let yaml = format!(
        r#"
providers:
  one: {{ adapter: openai, http2: true, timeouts: {{ first_byte_ms: {first_byte} }}, mock: {{ answers: [hang] }} }}
routes:
  - {{ name: chat, models: [m], deadline_ms: {deadline}, targets: [{{ name: first, provider: one }}] }}
"#
    );
    let mut judge = None;
    let rondo = Rondo::start_observed(&yaml, |inner| {
        let new = Arc::new(Judge {
            inner,
            limit,
            seen: Mutex::default(),
        });
        judge = Some(Arc::clone(&new));
        new
    })
    .await;
    (rondo, judge.unwrap())
}

/// A client on one HTTP/2 connection whose streams are reset at a moment around the instant.
async fn streams(rondo: std::net::SocketAddr, seed: u64, rounds: usize, at_once: usize) {
    let mut random = SmallRng::seed_from_u64(seed);
    let stream = tokio::net::TcpStream::connect(rondo).await.unwrap();
    stream.set_nodelay(true).unwrap();
    let (sender, connection) = h2::client::handshake(stream).await.unwrap();
    let connection = tokio::spawn(connection);
    let body = Bytes::from(chat_body("m", false));
    for _ in 0..rounds {
        let mut sender = sender.clone().ready().await.unwrap();
        let mut open = Vec::new();
        for _ in 0..at_once {
            let request = http::Request::post(format!("http://gateway.test{CHAT}"))
                .header("content-type", "application/json")
                .body(())
                .unwrap();
            let (response, mut upload) = sender.send_request(request, false).unwrap();
            upload.send_data(body.clone(), true).unwrap();
            sender = sender.ready().await.unwrap();
            open.push((response, upload));
        }
        let asked = tokio::time::Instant::now();
        let leaves: Vec<_> = open
            .into_iter()
            .map(|(response, mut upload)| {
                let leaves = asked + jitter(&mut random);
                let turns = random.random_range(0..200);
                tokio::spawn(async move {
                    tokio::time::sleep_until(leaves).await;
                    for _ in 0..turns {
                        tokio::task::yield_now().await;
                    }
                    upload.send_reset(h2::Reason::CANCEL);
                    drop(response);
                })
            })
            .collect();
        for leave in leaves {
            soon(leave).await.unwrap();
        }
    }
    connection.abort();
}

/// Most leave within two milliseconds of the instant, some long before.
fn jitter(random: &mut SmallRng) -> Duration {
    if random.random_range(0..8) == 0 {
        return random.random_range(Duration::ZERO..RUNS_OUT);
    }
    let around = Duration::from_millis(2);
    random.random_range(RUNS_OUT - around..RUNS_OUT + around)
}

/// Clients over HTTP/1.1 that close their connections in the same way.
async fn closes(rondo: std::net::SocketAddr, seed: u64, count: usize) {
    let mut random = SmallRng::seed_from_u64(seed);
    for number in 0..count {
        let way = Way::ALL[number % 2];
        let asked = tokio::time::Instant::now();
        let caller = Caller::ask(way, rondo, CHAT, &chat_body("m", false)).await;
        tokio::time::sleep_until(asked + jitter(&mut random)).await;
        caller.leave();
    }
}

async fn race(limit: Limit) {
    let (rondo, judge) = judged(limit).await;
    let mut clients = tokio::task::JoinSet::new();
    for seed in 0..6 {
        clients.spawn(streams(rondo.addr, seed, 45, 17));
    }
    for seed in 6..14 {
        clients.spawn(closes(rondo.addr, seed, 52));
    }
    while let Some(client) = clients.join_next().await {
        client.unwrap();
    }
    rondo.assert_quiet().await;
    assert_eq!(rondo.app.telemetry.book().open(), 0, "records left open");
    let seen = judge.seen.lock();
    assert!(seen.wrong.is_empty(), "{:?}", seen.wrong);
    seen.totals.check(Open::default()).unwrap();
    assert_eq!(
        seen.totals.operations_settled, seen.ended,
        "one terminal record each"
    );
    assert_eq!(
        seen.totals.attempts_settled,
        seen.cancelled + seen.timed_out + seen.unsent
    );
    println!(
        "{} ended: {} cancelled, {} timed out",
        seen.ended, seen.cancelled, seen.timed_out
    );
    let requests = |labels: &[&str]| rondo.metric("rondo_requests_total", labels);
    let late = requests(&["outcome=\"timed_out\"", "status=\"504\""]);
    let left = requests(&["outcome=\"cancelled\"", "status=\"499\""]);
    assert_eq!(late + left, requests(&[]), "504 or 499, and nothing else");
    assert_eq!(
        late + left - rondo_refused(&rondo, seen.ended),
        seen.ended as f64
    );
    assert!(seen.cancelled > 0 && seen.timed_out > 0, "they never met");
}

/// Requests that were given up before they were operations.
fn rondo_refused(rondo: &Rondo, ended: u64) -> f64 {
    rondo.metric("rondo_requests_total", &[]) - ended as f64
}

/// Ten thousand in two halves. The deadline's instant is known to a microsecond, so that every settlement is judged exactly.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn five_thousand_disconnects_race_with_the_deadline() {
    // R-L1 R-L4 R-B4
    race(Limit::Deadline).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn five_thousand_disconnects_race_with_the_first_byte() {
    // R-L1 R-L4
    race(Limit::FirstByte).await;
}

fn only(rondo: &Rondo) -> Arc<Record> {
    let mut records = rondo.records();
    assert_eq!(records.len(), 1);
    records.remove(0)
}

/// The watchdog alone: what the client reads is what the record says.
#[tokio::test]
async fn the_watchdog_settles_504_itself() {
    // R-L4
    let (rondo, _) = judged(Limit::FirstByte).await;
    let answer = call(rondo.addr, chat("m")).await;
    assert_eq!(answer.status, 504);
    rondo.assert_quiet().await;
    let record = only(&rondo);
    assert_eq!(record.operation.state, State::TimedOut);
    assert_eq!(record.operation.http_status, Some(504));
    assert_eq!(record.attempts[0].state, State::TimedOut);
    assert!(record.attempts[0].latency_ms >= Some(30));
}

/// A stream that is silent too long is partial and timed out; the client that leaves on its in-band error changes nothing.
#[tokio::test]
async fn a_silent_stream_times_out_whoever_leaves() {
    // R-L4
    let yaml = r#"
providers:
  one:
    adapter: openai
    timeouts: { idle_ms: 60 }
    mock: { answers: [{ sse: [{ data: { choices: [{ index: 0, delta: { content: Hello } }] } }, { silence: true }] }] }
routes:
  - { name: chat, models: [m], targets: [{ name: first, provider: one }] }
"#;
    for way in Way::ALL {
        let rondo = Rondo::start(yaml).await;
        let mut caller = Caller::ask(way, rondo.addr, CHAT, &chat_body("m", true)).await;
        caller.read_to("stream_interrupted").await;
        caller.leave();
        rondo.assert_quiet().await;
        let record = only(&rondo);
        let (operation, attempt) = (&record.operation, &record.attempts[0]);
        let row = (operation.state, operation.http_status, operation.reason);
        assert_eq!(
            row,
            (State::TimedOut, Some(200), "stream_timeout"),
            "{way:?}"
        );
        assert_eq!(
            (attempt.state, attempt.delivery),
            (State::TimedOut, Some("partial"))
        );
    }
}

/// A connection that was kept over a timed-out request serves the next one.
#[tokio::test]
async fn a_client_that_stays_reads_its_504_and_goes_on() {
    // R-L4
    let (rondo, _) = judged(Limit::Deadline).await;
    let mut client = Connection::h2(rondo.addr).await;
    for _ in 0..2 {
        assert_eq!(client.call(chat("m")).await.status, 504);
    }
    rondo.assert_quiet().await;
}

//! Every record that was begun is settled once, whatever becomes of the task that served it: a panic while it is served, the end of the process.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use rondo::core::settlement::State;
use rondo::core::usage::Usage;
use rondo::executor::effect::Note;
use rondo::mock::{MockServer, Script};
use rondo::policy::overload::{Overload, SlowPhase};
use rondo::proxy::host::{
    AttemptExtras, DrainEnd, Exchanged, Observer, OperationEnd, OperationFacts, Refusal, Stamp,
};

use crate::support::caller::{Caller, Way};
use crate::support::client::{Connection, call, chat, chat_body};
use crate::support::process::Process;
use crate::support::{Rondo, Watched, soon};

const CHAT: &str = "/v1/chat/completions";
const YAML: &str = r#"
providers:
  one: { adapter: openai, mock: { answers: [ok] } }
routes:
  - { name: chat, models: [m], targets: [{ name: first, provider: one }] }
"#;

/// Where the observer panics, once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Spot {
    Started,
    Opened,
    Dispatched,
    AttemptSettled,
    OperationSettled,
    Ended,
}

impl Spot {
    const ALL: [Spot; 6] = [
        Spot::Started,
        Spot::Opened,
        Spot::Dispatched,
        Spot::AttemptSettled,
        Spot::OperationSettled,
        Spot::Ended,
    ];

    fn is_at(self, note: &Note) -> bool {
        match self {
            Spot::Opened => matches!(note, Note::AttemptOpened(_)),
            Spot::Dispatched => matches!(note, Note::SendDispatched(_)),
            Spot::AttemptSettled => matches!(note, Note::AttemptSettled(_)),
            Spot::OperationSettled => matches!(note, Note::OperationSettled(_)),
            Spot::Started | Spot::Ended => false,
        }
    }
}

/// An observer with a defect: it panics when it is told of a request, before or after telemetry has been told.
struct Faulty {
    inner: Watched,
    spot: Spot,
    before: bool,
    has_panicked: AtomicBool,
    started: AtomicU64,
    ended: AtomicU64,
}

impl Faulty {
    fn at(&self, is_there: bool, before: bool) {
        if is_there && self.before == before && !self.has_panicked.swap(true, Ordering::SeqCst) {
            panic!("planted at {:?}, before: {before}", self.spot);
        }
    }
}

impl Observer for Faulty {
    fn request_opened(&self) {
        self.inner.request_opened();
    }

    fn request_closed(&self) {
        self.inner.request_closed();
    }

    fn operation_started(&self, facts: &OperationFacts) {
        self.started.fetch_add(1, Ordering::SeqCst);
        self.at(self.spot == Spot::Started, true);
        self.inner.operation_started(facts);
        self.at(self.spot == Spot::Started, false);
    }

    fn note(&self, facts: &OperationFacts, note: &Note, extras: AttemptExtras<'_>, at: Stamp) {
        self.at(self.spot.is_at(note), true);
        self.inner.note(facts, note, extras, at);
        self.at(self.spot.is_at(note), false);
    }

    fn operation_ended(&self, facts: &OperationFacts, end: &OperationEnd) -> Option<u64> {
        self.ended.fetch_add(1, Ordering::SeqCst);
        let sequence = self.inner.operation_ended(facts, end);
        self.at(self.spot == Spot::Ended, false);
        sequence
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

async fn faulty(spot: Spot, before: bool) -> (Rondo, Arc<Faulty>) {
    let mut faulty = None;
    let rondo = Rondo::start_observed(YAML, |inner| {
        let new = Arc::new(Faulty {
            inner,
            spot,
            before,
            has_panicked: AtomicBool::new(false),
            started: AtomicU64::new(0),
            ended: AtomicU64::new(0),
        });
        faulty = Some(Arc::clone(&new));
        new
    })
    .await;
    (rondo, faulty.unwrap())
}

/// A panic anywhere costs its own request: the record is settled once, no lock stays held, and the next request is served.
#[tokio::test]
async fn a_panic_settles_its_record_and_nothing_else() {
    // R-L1 R-L2
    for (spot, before) in Spot::ALL
        .into_iter()
        .flat_map(|spot| [(spot, true), (spot, false)])
    {
        if (spot, before) == (Spot::Ended, true) {
            continue;
        }
        for way in [Way::H1Close, Way::H2Close] {
            panic_at(spot, before, way).await;
        }
    }
}

async fn panic_at(spot: Spot, before: bool, way: Way) {
    let context = format!("{spot:?}, before: {before}, {way:?}");
    let (rondo, faulty) = faulty(spot, before).await;
    let mut caller = Caller::ask(way, rondo.addr, CHAT, &chat_body("m", false)).await;
    rondo
        .until(|_| faulty.has_panicked.load(Ordering::SeqCst))
        .await;
    soon(async { while caller.read().await.is_some() {} }).await;
    rondo.idle().await;
    let book = rondo.app.telemetry.book();
    assert_eq!(book.open(), 0, "{context}");
    assert_eq!(rondo.app.gateway.buffered.held(), 0, "{context}");
    let ends = (
        faulty.started.load(Ordering::SeqCst),
        faulty.ended.load(Ordering::SeqCst),
    );
    assert_eq!(ends, (1, 1), "{context}");
    // Every lock is free and every reader reads.
    assert!(
        rondo
            .app
            .telemetry
            .render()
            .contains("rondo_inflight_requests 0")
    );
    let records = rondo.records();
    let was_recorded = (spot, before) != (Spot::Started, true);
    assert_eq!(records.len(), usize::from(was_recorded), "{context}");
    for record in &records {
        assert!(
            record.operation.state != State::Pending,
            "{context}: {record:?}"
        );
        assert!(record.operation.finished_at.is_some(), "{context}");
        let settled = |state| state != State::Pending;
        assert!(
            record.attempts.iter().all(|attempt| settled(attempt.state)),
            "{context}"
        );
        if !matches!(
            spot,
            Spot::AttemptSettled | Spot::OperationSettled | Spot::Ended
        ) {
            assert_eq!(record.operation.state, State::Cancelled, "{context}");
            assert_eq!(record.operation.http_status, Some(499), "{context}");
        }
    }
    let answer = call(rondo.addr, chat("m")).await;
    assert_eq!(answer.status, 200, "{context}");
    rondo.idle().await;
    assert_eq!(rondo.records().len(), records.len() + 1, "{context}");
    assert_eq!(
        rondo.records().last().unwrap().operation.state,
        State::Succeeded
    );
}

/// What is refused before there is an operation has no record, and nothing is owed.
#[tokio::test]
async fn a_drop_before_ownership_writes_nothing() {
    // R-L2
    let (rondo, faulty) = faulty(Spot::Ended, true).await;
    let mut client = Connection::h1(rondo.addr).await;
    assert_eq!(client.call(chat("unknown")).await.status, 404);
    let body = chat_body("m", false);
    let caller = Caller::begin(Way::H2Reset, rondo.addr, CHAT, &body, body.len() / 2).await;
    rondo
        .until(|rondo| rondo.app.gateway.buffered.held() > 0)
        .await;
    caller.leave();
    rondo.assert_quiet().await;
    assert_eq!(faulty.started.load(Ordering::SeqCst), 0);
    assert_eq!(faulty.ended.load(Ordering::SeqCst), 0);
    assert!(rondo.records().is_empty());
}

/// A process that is interrupted, or whose grace period is over, drops what is in flight without another word: each operation still ends.
#[tokio::test]
async fn the_end_of_the_process_settles_what_it_drops() {
    // R-L2 R-C3
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let script = Script::parse("answers: [hang]").unwrap();
    let upstream = MockServer::start("one", script, listener).unwrap();
    let route = format!(
        "providers:\n  one: {{ adapter: openai, base_url: \"http://{}\" }}\nroutes:\n  - {{ name: chat, models: [m], targets: [{{ name: first, provider: one }}] }}\n",
        upstream.addr()
    );
    for (number, signal) in ["INT", "TERM"].into_iter().enumerate() {
        let mut process = Process::start("shutdown_grace_ms: 200", &route).await;
        let _h1 = Caller::ask(Way::H1Close, process.addr, CHAT, &chat_body("m", false)).await;
        let _h2 = Caller::ask(Way::H2Close, process.addr, CHAT, &chat_body("m", false)).await;
        soon(upstream.recorder().wait_for_bodies(2 * number + 2)).await;
        process.signal(signal);
        process.ended().await;
        let lines = process.until_logged("status=499", 2).await;
        for line in &lines {
            assert!(line.contains("outcome=cancelled"), "{signal}: {line}");
        }
        assert_eq!(lines.len(), 2, "{signal}");
    }
}

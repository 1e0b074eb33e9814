//! The records of operations that a real executor runs: one record each, one terminal state each, sums that balance.

use std::sync::Arc;
use std::time::Duration;

use rand::SeedableRng;
use rand::rngs::SmallRng;
use rondo::core::api::Api;
use rondo::core::class::Class;
use rondo::core::decision::{Decision, Round};
use rondo::core::outcome::{AttemptReport, Carrier, Outcome, Reply, Scope};
use rondo::core::settlement::{OperationOutcome, State};
use rondo::core::time::{MonoTime, WallTime};
use rondo::executor::Executor;
use rondo::executor::effect::{AttemptSettled, Begin, Next, Note};
use rondo::executor::event::{Event, StreamEnd};
use rondo::executor::plan::Plan;
use rondo::ledger::entry::{Capture, may_overwrite};
use rondo::ledger::store::Piece;
use rondo::ledger::totals::{Open, Totals};
use rondo::ledger::{
    AttemptFacts, Book, Ending, Moment, OpenOperation, Opening, Outbox, Record, Ring,
};

use rondo::policy::ordering::Candidate;
use rondo::policy::snapshot::Snapshot;

use crate::compiled::compiled;

const START: u64 = 1_000_000;

/// One route with two targets, a second round, and 5xx answers that move on.
const YAML: &str = r#"
providers:
  acme:
    adapter: openai
    base_url: "http://localhost:1"
    keys: [{ name: main, secret: { literal: sk-very-secret } }]
routes:
  - name: gpt
    models: [gpt-x]
    targets:
      - { name: primary, provider: acme }
      - { name: backup, provider: acme, model: gpt-prod }
    routing:
      max_target_attempts: 2
      max_upstream_sends: 4
      exhaustion_retry: { max_rounds: 1, max_wait_ms: 2000 }
      fallback_strategy: [http_429, http_5xx]
      sticky_key_attempts: 1
"#;

fn snapshot() -> Arc<Snapshot> {
    compiled(YAML, None)
}

fn at(micros: u64) -> Moment {
    Moment {
        mono: MonoTime::from_micros(START + micros),
        wall: WallTime::from_unix_micros(1_700_000_000_000_000 + i64::try_from(micros).unwrap()),
    }
}

fn report(outcome: Outcome, class: Class, status: Option<u16>) -> AttemptReport {
    AttemptReport {
        outcome,
        class,
        scope: Scope::Candidate,
        carrier: Carrier::Status,
        status,
        pushback: None,
        reply: None,
    }
}

/// An operation with a real executor, whose notes go to a book and to the sums.
struct World {
    snapshot: Arc<Snapshot>,
    book: Book,
    totals: Totals,
    executor: Executor,
    chance: SmallRng,
    id: Arc<str>,
    settled: Option<rondo::executor::effect::OperationSettled>,
}

impl World {
    fn new() -> World {
        World::with(snapshot(), Book::new(Some(Outbox::default())), "op-1")
    }

    fn with(snapshot: Arc<Snapshot>, book: Book, id: &str) -> World {
        let route = Arc::clone(&snapshot.routes[0]);
        let id: Arc<str> = Arc::from(id);
        book.begin(opening(&snapshot, &id));
        let executor = Executor::new(Plan {
            candidates: Candidate::each(&route),
            sticky_tries: route.routing.sticky_tries,
            pin: None,
            route,
            binding: None,
            caller_retry: false,
            caller_owns_retries: true,
            began: at(0).mono,
            deadline: at(600_000_000).mono,
            tokens: 10,
            held_bytes: 10,
        });
        World {
            snapshot,
            book,
            totals: Totals::default(),
            executor,
            chance: SmallRng::seed_from_u64(7),
            id,
            settled: None,
        }
    }

    fn feed(&mut self, micros: u64, event: Event) -> Next {
        let effects = self
            .executor
            .handle(at(micros).mono, event, &mut self.chance);
        let facts = AttemptFacts {
            upstream_request_id: Some("req_up"),
            first_byte: None,
        };
        for note in &effects.notes {
            self.totals.add(note);
            self.book.note(&self.id, note, facts, at(micros));
            if let Note::OperationSettled(settled) = note {
                self.settled = Some(*settled);
            }
        }
        effects.next
    }

    fn send(&mut self, micros: u64, report: AttemptReport) -> Next {
        assert!(matches!(self.feed(micros, Event::SendBegun), Next::Send));
        self.feed(micros + 10_000, Event::Outcome(report))
    }

    fn cool(&self, micros: u64) {
        for target in &self.snapshot.routes[0].targets {
            target.keys[0].cooldown.extend(at(micros).mono);
        }
    }

    fn end(&mut self, micros: u64, status: u16, target: Option<usize>) -> Arc<Record> {
        let settled = self.settled.unwrap();
        let ending = Ending {
            status,
            outcome: settled.outcome,
            state: settled.state,
            reason: settled.reason,
            target,
            sends: settled.sends,
            rounds: settled.rounds,
            waited: settled.waited,
            first_byte: Some(at(micros)),
            ended: at(micros),
            response_bytes: 5,
            usage: None,
        };
        self.totals.check(Open::default()).unwrap();
        self.book.end(&self.id, &ending).unwrap()
    }
}

fn opening(snapshot: &Arc<Snapshot>, id: &Arc<str>) -> Opening {
    Opening {
        operation_id: Arc::clone(id),
        boot_id: Arc::from("boot"),
        snapshot: Arc::clone(snapshot),
        route: Arc::clone(&snapshot.routes[0]),
        api: Api::OpenaiChat,
        client_key: None,
        public_model: Arc::from("gpt-x"),
        stream: true,
        started: at(0),
        request_bytes: 10,
    }
}

/// The rows of what is collected now.
fn collected(book: &Book) -> Vec<String> {
    let mut rows = Vec::new();
    for piece in book.collect() {
        let Piece::Live(record) = piece else {
            panic!("{piece:?}")
        };
        let operation = &record.operation;
        let (id, state) = (&operation.operation_id, operation.state.label());
        rows.push(format!("operation {id} {state}"));
        for attempt in &record.attempts {
            let (number, state) = (attempt.attempt_no, attempt.state.label());
            rows.push(format!("attempt {number} {state}"));
        }
    }
    rows
}

// R-S23, R-L1; a failover leaves one operation row and one row per attempt, each pending and then terminal once.
#[test]
fn one_operation_row_and_one_row_per_attempt() {
    let mut world = World::new();
    world.feed(0, Event::Admitted);
    assert_eq!(
        collected(&world.book),
        ["operation op-1 pending", "attempt 1 pending"]
    );
    let refused = report(Outcome::Refused, Class::ServerError, Some(500));
    world.send(1_000, refused);
    let then = [
        "operation op-1 pending",
        "attempt 1 refused",
        "attempt 2 pending",
    ];
    assert_eq!(collected(&world.book), then);
    let good = report(Outcome::Succeeded, Class::Ok, Some(200));
    world.send(20_000, good);
    world.feed(31_000, Event::Committed);
    world.feed(40_000, Event::StreamEnded(StreamEnd::Complete));
    let record = world.end(50_000, 200, Some(1));
    let expected = [
        "operation op-1 succeeded",
        "attempt 1 refused",
        "attempt 2 succeeded",
    ];
    assert_eq!(collected(&world.book), expected);
    assert_eq!(collected(&world.book), [""; 0]);
    assert_eq!((world.book.open(), world.book.ring().all().len()), (0, 1));

    let operation = &record.operation;
    assert_eq!(operation.state, State::Succeeded);
    assert_eq!((operation.sends, operation.rounds), (2, 1));
    assert_eq!(operation.latency_ms, Some(50));
    assert_eq!(operation.error_class, None);
    assert_eq!(operation.response_capture, Capture::Complete);
    assert_eq!(record.delivered_by.as_deref(), Some("backup"));

    let [first, second] = &record.attempts[..] else {
        panic!("two attempts")
    };
    assert_eq!((&*first.target, &*first.provider), ("primary", "acme"));
    assert_eq!(first.key_name.as_deref(), Some("main"));
    assert_eq!(&*first.upstream_model, "gpt-x");
    assert_eq!(first.delivery, Some("refused"));
    assert_eq!(first.error_class, Some(Class::ServerError));
    assert_eq!(first.decision, Some(Decision::NextTarget));
    assert_eq!(first.latency_ms, Some(11));
    assert_eq!(first.upstream_request_id.as_deref(), Some("req_up"));
    assert_eq!(&*second.upstream_model, "gpt-prod");
    assert_eq!((second.class, second.error_class), (Some(Class::Ok), None));
    assert!(!format!("{record:?}").contains("sk-very-secret"));
}

// R-L1: what is terminal stays; only a pending row is written to.
#[test]
fn a_late_pending_write_never_overwrites_a_terminal_state() {
    let terminal = [
        State::Succeeded,
        State::Rejected,
        State::Refused,
        State::Failed,
        State::Ambiguous,
        State::Cancelled,
        State::TimedOut,
        State::Abandoned,
    ];
    assert!(may_overwrite(State::Pending));
    assert!(terminal.into_iter().all(|state| !may_overwrite(state)));

    let begin = Begin {
        attempt_no: 1,
        candidate: 0,
        target: 0,
        round: rondo::core::decision::Round::First,
        retry_index: 0,
        key: 0,
    };
    let settled = Note::AttemptSettled(AttemptSettled {
        begin,
        sent: true,
        report: None,
        decision: Decision::Accept,
        state: State::Cancelled,
    });
    let (snapshot, id) = (snapshot(), Arc::from("op"));
    let mut open = OpenOperation::begin(1, opening(&snapshot, &id));
    let facts = AttemptFacts::default();
    assert!(
        open.note(&Note::AttemptOpened(begin), facts, at(0))
            .is_some()
    );
    assert!(open.note(&settled, facts, at(1)).is_some());
    assert!(
        open.note(&Note::AttemptOpened(begin), facts, at(2))
            .is_none()
    );
    assert_eq!(open.record().attempts.len(), 1);
    assert_eq!(open.record().attempts[0].state, State::Cancelled);
}

// R-L1: a second settlement is a fault of ours, and loud in tests.
#[test]
#[should_panic(expected = "settled twice")]
#[cfg(debug_assertions)]
fn a_double_settlement_is_an_error_of_ours() {
    let begin = Begin {
        attempt_no: 1,
        candidate: 0,
        target: 0,
        round: rondo::core::decision::Round::First,
        retry_index: 0,
        key: 0,
    };
    let settled = |state| {
        Note::AttemptSettled(AttemptSettled {
            begin,
            sent: true,
            report: None,
            decision: Decision::Accept,
            state,
        })
    };
    let (snapshot, id) = (snapshot(), Arc::from("op"));
    let mut open = OpenOperation::begin(1, opening(&snapshot, &id));
    let facts = AttemptFacts::default();
    open.note(&Note::AttemptOpened(begin), facts, at(0));
    open.note(&settled(State::Succeeded), facts, at(1));
    open.note(&settled(State::Cancelled), facts, at(2));
}

// R-L1, R-L5: a client that leaves during a send settles both as cancelled, and the attempt is blamed for nothing.
#[test]
fn a_drop_during_a_send_settles_both_as_cancelled() {
    let mut world = World::new();
    world.feed(0, Event::Admitted);
    world.feed(1_000, Event::SendBegun);
    assert_eq!(world.totals.sends, 1);
    let open = Open {
        attempts: 1,
        sends: 1,
        ..Open::default()
    };
    world.totals.check(open).unwrap();
    world.feed(9_000, Event::Dropped);
    let record = world.end(9_000, 499, None);
    assert_eq!(record.operation.state, State::Cancelled);
    assert_eq!(record.operation.http_status, Some(499));
    let attempt = &record.attempts[0];
    assert_eq!(attempt.state, State::Cancelled);
    assert_eq!(
        (attempt.delivery, attempt.error_class),
        (Some("ambiguous"), None)
    );
    assert_eq!(attempt.latency_ms, Some(9));
}

// A good answer that breaks off is a transport failure, not an `ok`.
#[test]
fn a_broken_stream_is_recorded_as_partial() {
    let mut world = World::new();
    world.feed(0, Event::Admitted);
    let good = report(Outcome::Succeeded, Class::OkStream, Some(200));
    world.send(0, good);
    world.feed(20_000, Event::Committed);
    world.feed(30_000, Event::StreamEnded(StreamEnd::UpstreamBroke));
    let record = world.end(30_000, 200, Some(0));
    assert_eq!(record.attempts[0].delivery, Some("partial"));
    assert_eq!(record.attempts[0].class, Some(Class::OkStream));
    assert_eq!(record.attempts[0].error_class, Some(Class::Transport));
    assert_eq!(record.operation.error_class, Some(Class::Transport));
    assert_eq!(record.operation.response_capture, Capture::Partial);
}

// R-S22: whichever way the admitted operation goes, the sums balance at every step.
#[test]
fn admissions_balance_however_the_wait_and_the_second_round_end() {
    let good = || report(Outcome::Succeeded, Class::Ok, Some(200));
    let error = || report(Outcome::Refused, Class::ServerError, Some(500));
    type End = fn(&mut World, AttemptReport);
    let through: End = |world, report| {
        world.feed(3_000_000, Event::WaitElapsed);
        let open = Open {
            in_second_round: 1,
            attempts: 1,
            ..Open::default()
        };
        world.totals.check(open).unwrap();
        world.send(3_000_000, report);
        if world.settled.is_none() {
            world.feed(3_100_000, Event::StreamEnded(StreamEnd::Complete));
        }
    };
    let again: End = |world, _| {
        world.cool(9_000_000);
        world.feed(3_000_000, Event::WaitElapsed);
        world.feed(3_100_000, Event::StreamEnded(StreamEnd::Complete));
    };
    let gone: End = |world, _| drop(world.feed(500_000, Event::ClientGone));
    let drain: End = |world, _| {
        world.feed(500_000, Event::ShutdownBegun);
        world.feed(600_000, Event::StreamEnded(StreamEnd::Complete));
    };
    let late: End = |world, _| {
        world.feed(700_000, Event::DeadlinePassed);
        world.feed(700_000, Event::StreamEnded(StreamEnd::Complete));
    };
    let cases: [(End, AttemptReport, [u64; 4], OperationOutcome); 6] = [
        (through, good(), [1, 0, 0, 0], OperationOutcome::Succeeded),
        (through, error(), [0, 0, 1, 0], OperationOutcome::Failed),
        (again, good(), [0, 1, 0, 0], OperationOutcome::Exhausted),
        (gone, good(), [0, 0, 0, 1], OperationOutcome::Cancelled),
        // The wait was for remembered cooldowns: it ends with their 429 (R-C3).
        (drain, good(), [0, 0, 0, 1], OperationOutcome::Exhausted),
        (late, good(), [0, 0, 0, 1], OperationOutcome::Exhausted),
    ];
    for (number, (run, report, ends, outcome)) in cases.into_iter().enumerate() {
        let mut world = World::new();
        world.cool(1_000_000);
        let next = world.feed(0, Event::Admitted);
        assert!(matches!(next, Next::Wait(_)), "case {number}");
        let asleep = Open {
            asleep: 1,
            ..Open::default()
        };
        world.totals.check(asleep).unwrap();
        run(&mut world, report);
        let totals = &world.totals;
        let found = [
            totals.successes,
            totals.exhausted_again,
            totals.other_ends,
            totals.waits_cut,
        ];
        assert_eq!((found, totals.admissions), (ends, 1), "case {number}");
        let record = world.end(4_000_000, 200, None);
        assert_eq!(world.settled.unwrap().outcome, outcome, "case {number}");
        assert!(record.operation.wait_ms >= 500, "case {number}");
    }
}

// R-L3: neither a pending record nor a settled one keeps the body of an answer, or anything of it but its size.
#[test]
fn a_record_holds_no_body() {
    let snapshot = snapshot();
    let reply = Arc::new(Reply {
        status: 500,
        headers: Vec::new(),
        body: vec![b'x'; 64 << 10],
    });
    let mut open = OpenOperation::begin(1, opening(&snapshot, &Arc::from("op")));
    let begin = Begin {
        attempt_no: 1,
        candidate: 0,
        target: 0,
        round: Round::First,
        retry_index: 0,
        key: 0,
    };
    let facts = AttemptFacts::default();
    let _ = open.note(&Note::AttemptOpened(begin), facts, at(1));
    let settled = Note::AttemptSettled(AttemptSettled {
        begin,
        sent: true,
        report: Some(AttemptReport {
            reply: Some(Arc::clone(&reply)),
            ..report(Outcome::Refused, Class::ServerError, Some(500))
        }),
        decision: Decision::RoundOver,
        state: State::Refused,
    });
    let entry = open.note(&settled, facts, at(2));
    assert_eq!(entry.unwrap().error_class, Some(Class::ServerError));
    drop(settled);
    assert_eq!(Arc::strong_count(&reply), 1, "the pending record holds it");
    assert_eq!(open.record().operation.request_capture, Capture::Complete);
}

// Two clients may send one id at the same time: each operation gets its own record.
#[test]
fn one_request_id_twice_at_once_gives_two_records() {
    let (snapshot, book) = (snapshot(), Book::default());
    let (one, two): (Arc<str>, Arc<str>) = (Arc::from("same"), Arc::from("same"));
    book.begin(opening(&snapshot, &one));
    book.begin(opening(&snapshot, &two));
    assert_eq!((book.open(), book.lost()), (2, 0));
    let ending = Ending {
        status: 499,
        outcome: OperationOutcome::Cancelled,
        state: State::Cancelled,
        reason: "client_gone",
        target: None,
        sends: 0,
        rounds: 1,
        waited: Duration::ZERO,
        first_byte: None,
        ended: at(5),
        response_bytes: 0,
        usage: None,
    };
    let settled = book.end(&two, &ending).unwrap();
    assert_eq!((settled.sequence, book.open()), (2, 1));
    assert!(book.end(&two, &ending).is_none());
    let recent = book.recent(10, |_| true);
    let states: Vec<_> = recent
        .iter()
        .map(|r| (r.sequence, r.operation.state))
        .collect();
    assert_eq!(states, [(2, State::Cancelled), (1, State::Pending)]);
}

#[test]
fn the_ring_is_bounded_and_newest_first() {
    let (snapshot, ring) = (snapshot(), Ring::new(3));
    for sequence in 1..=5 {
        let open = OpenOperation::begin(sequence, opening(&snapshot, &Arc::from("op")));
        ring.push(Arc::new(open.record().clone()));
    }
    let sequences = |records: Vec<Arc<Record>>| -> Vec<u64> {
        records.iter().map(|record| record.sequence).collect()
    };
    assert_eq!(sequences(ring.all()), [5, 4, 3]);
    assert_eq!(sequences(ring.recent(1, |r| r.sequence < 5)), [4]);
    let none = Ring::new(0);
    none.push(ring.all().remove(0));
    assert!(none.all().is_empty());
}

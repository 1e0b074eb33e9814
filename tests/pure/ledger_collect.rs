//! The way out of the book: every change is collected, once, and what ends between two collections is collected as settled alone.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use proptest::prelude::*;
use rondo::core::api::Api;
use rondo::core::decision::{Decision, Round};
use rondo::core::settlement::{OperationOutcome, State};
use rondo::core::time::{MonoTime, WallTime};
use rondo::executor::effect::{AttemptSettled, Begin, Note};
use rondo::ledger::book::Which;
use rondo::ledger::store::{LateUsage, Piece};
use rondo::ledger::{AttemptFacts, Book, Ending, Moment, Opening, Outbox, Record};
use rondo::policy::snapshot::Snapshot;

use crate::compiled::compiled;

const YAML: &str = r#"
providers:
  acme: { adapter: openai, base_url: "http://localhost:1", keys: [{ name: main, secret: { literal: sk-x } }] }
routes:
  - { name: gpt, models: [gpt-x], targets: [{ name: primary, provider: acme }] }
"#;

const NOW: Moment = Moment {
    mono: MonoTime::ZERO,
    wall: WallTime::from_unix_micros(5),
};

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
        started: NOW,
        request_bytes: 10,
    }
}

fn begin(attempt_no: u32) -> Begin {
    Begin {
        attempt_no,
        candidate: 0,
        target: 0,
        round: Round::First,
        retry_index: 0,
        key: 0,
    }
}

fn settled(attempt_no: u32) -> Note {
    Note::AttemptSettled(AttemptSettled {
        begin: begin(attempt_no),
        sent: true,
        report: None,
        decision: Decision::Accept,
        state: State::Cancelled,
    })
}

const ENDING: Ending = Ending {
    status: 499,
    outcome: OperationOutcome::Cancelled,
    state: State::Cancelled,
    reason: "client_gone",
    target: None,
    sends: 0,
    rounds: 1,
    waited: Duration::ZERO,
    first_byte: None,
    ended: NOW,
    response_bytes: 0,
    usage: None,
};

fn records(book: &Book) -> Vec<Arc<Record>> {
    let pieces = book.collect().into_iter();
    let records = pieces.map(|piece| match piece {
        Piece::Live(record) => record,
        other => panic!("{other:?}"),
    });
    records.collect()
}

/// What an operation of the test is doing.
struct Running {
    id: Arc<str>,
    sequence: u64,
    attempts: u32,
    open: bool,
}

proptest! {
    // R-L1 R-L6: whatever begins, changes and ends between the collections, in any order.
    #[test]
    fn every_change_is_collected_once(steps in prop::collection::vec((0_u8..6, 0_usize..8), 1..200)) {
        let (snapshot, book) = (compiled(YAML, None), Book::new(Some(Outbox::default())));
        let mut running: Vec<Running> = Vec::new();
        let (mut begun, mut ended) = (0, 0);
        // By number: how the operation stands in the book, and how it was last collected.
        let mut stands: BTreeMap<u64, String> = BTreeMap::new();
        let mut collected: BTreeMap<u64, String> = BTreeMap::new();
        let mut changed: BTreeMap<u64, bool> = BTreeMap::new();
        let mut terminal = 0;
        let steps = steps.into_iter().chain([(5, 0)]);
        for (what, which) in steps {
            let count = running.len().max(1);
            let picked = running.get_mut(which % count);
            match (what, picked) {
                (0, _) => {
                    begun += 1;
                    // The text is the same for all: an operation is known by its allocation.
                    let id: Arc<str> = Arc::from("same");
                    book.begin(opening(&snapshot, &id));
                    running.push(Running { id, sequence: begun, attempts: 0, open: false });
                    stands.insert(begun, "pending []".into());
                    changed.insert(begun, true);
                }
                (1, Some(one)) if !one.open => {
                    one.attempts += 1;
                    one.open = true;
                    book.note(&one.id, &Note::AttemptOpened(begin(one.attempts)), AttemptFacts::default(), NOW);
                    stands.insert(one.sequence, shape("pending", one));
                    changed.insert(one.sequence, true);
                }
                (2, Some(one)) if one.open => {
                    one.open = false;
                    book.note(&one.id, &settled(one.attempts), AttemptFacts::default(), NOW);
                    stands.insert(one.sequence, shape("pending", one));
                    changed.insert(one.sequence, true);
                }
                // Notes that change no row.
                (3, Some(one)) => book.note(&one.id, &Note::WaitBegun, AttemptFacts::default(), NOW),
                (4, Some(one)) if !one.open => {
                    stands.insert(one.sequence, shape("cancelled", one));
                    changed.insert(one.sequence, true);
                    let at = running.iter().position(|found| Arc::ptr_eq(&found.id, &running[which % count].id)).unwrap();
                    let one = running.remove(at);
                    prop_assert!(book.end(&one.id, &ENDING).is_some());
                    ended += 1;
                }
                (5, _) => {
                    let mut seen = Vec::new();
                    for record in records(&book) {
                        let states: Vec<&str> = record.attempts.iter().map(|attempt| attempt.state.label()).collect();
                        let shape = format!("{} {states:?}", record.operation.state.label()).replace('"', "");
                        prop_assert!(!seen.contains(&record.sequence), "twice in one collection");
                        seen.push(record.sequence);
                        terminal += u64::from(record.operation.state != State::Pending);
                        collected.insert(record.sequence, shape);
                    }
                    let due: Vec<u64> = changed.iter().filter(|(_, is)| **is).map(|(sequence, _)| *sequence).collect();
                    seen.sort_unstable();
                    prop_assert_eq!(seen, due, "what changed, and nothing else");
                    changed.clear();
                    prop_assert_eq!(&collected, &stands);
                }
                _ => {}
            }
        }
        prop_assert_eq!(terminal, ended, "each end once");
        prop_assert_eq!(book.collect().len(), 0);
    }
}

fn shape(state: &str, one: &Running) -> String {
    let mut states = vec!["cancelled"; usize::try_from(one.attempts).unwrap()];
    if one.open {
        *states.last_mut().unwrap() = "pending";
    }
    format!("{state} {states:?}").replace('"', "")
}

// R-L1: what ends before the second look is written once; what goes on is written pending, and changes again.
#[test]
fn what_is_open_is_collected_when_it_is_ripe() {
    let (snapshot, book) = (compiled(YAML, None), Book::new(Some(Outbox::default())));
    let ids: Vec<Arc<str>> = (0..3)
        .map(|number| Arc::from(format!("op-{number}")))
        .collect();
    let states = || -> Vec<(u64, usize, &str)> {
        let pieces = book.collect_open(Which::Ripe).into_iter();
        let states = pieces.map(|piece| match piece {
            Piece::Live(record) => {
                let state = record.operation.state.label();
                (record.sequence, record.attempts.len(), state)
            }
            other => panic!("{other:?}"),
        });
        states.collect()
    };
    book.begin(opening(&snapshot, &ids[0]));
    book.begin(opening(&snapshot, &ids[1]));
    assert_eq!(states(), []);
    assert!(book.end(&ids[0], &ENDING).is_some());
    book.begin(opening(&snapshot, &ids[2]));
    // A change while it ripens is collected with it.
    let opened = Note::AttemptOpened(begin(1));
    book.note(&ids[1], &opened, AttemptFacts::default(), NOW);
    assert_eq!(states(), [(2, 1, "pending"), (1, 0, "cancelled")]);
    // One after that is collected as late as the first.
    book.note(&ids[1], &settled(1), AttemptFacts::default(), NOW);
    assert_eq!(states(), [(3, 0, "pending")]);
    assert_eq!(states(), [(2, 1, "pending")]);
    assert_eq!(states(), []);
    // Who asks for all gets what is ripe and what is not.
    book.note(&ids[2], &opened, AttemptFacts::default(), NOW);
    assert_eq!(states(), []);
    let note = Note::AttemptOpened(begin(2));
    book.note(&ids[1], &note, AttemptFacts::default(), NOW);
    assert_eq!(book.collect().len(), 2);
    assert_eq!((book.collect().len(), states().len()), (0, 0));
}

// R-L7: what nobody collects in time is counted, attempts included, and the end of an operation goes on.
#[test]
fn what_does_not_fit_is_counted_row_by_row() {
    let (snapshot, book) = (compiled(YAML, None), Book::new(Some(Outbox::new(2))));
    for number in 0..4 {
        let id: Arc<str> = Arc::from(format!("op-{number}"));
        book.begin(opening(&snapshot, &id));
        book.note(
            &id,
            &Note::AttemptOpened(begin(1)),
            AttemptFacts::default(),
            NOW,
        );
        book.note(&id, &settled(1), AttemptFacts::default(), NOW);
        assert!(book.end(&id, &ENDING).is_some());
    }
    assert_eq!((book.lost(), book.uncollected()), (4, 2));
    let ids: Vec<u64> = records(&book)
        .iter()
        .map(|record| record.sequence)
        .collect();
    assert_eq!(ids, [1, 2]);
    assert_eq!(book.uncollected(), 0);
}

// A book that nobody collects keeps nothing for a collector.
#[test]
fn a_book_without_a_store_hands_out_nothing() {
    let (snapshot, book) = (compiled(YAML, None), Book::default());
    let id: Arc<str> = Arc::from("op");
    book.begin(opening(&snapshot, &id));
    book.amend(late("op"));
    assert!(book.end(&id, &ENDING).is_some());
    assert_eq!(
        (book.collect().len(), book.uncollected(), book.lost()),
        (0, 0, 0)
    );
}

// R-L8: usage comes after the settlement that it belongs to.
#[test]
fn late_usage_follows_its_operation() {
    let (snapshot, book) = (compiled(YAML, None), Book::new(Some(Outbox::default())));
    let id: Arc<str> = Arc::from("op");
    book.begin(opening(&snapshot, &id));
    assert!(book.end(&id, &ENDING).is_some());
    book.amend(late("op"));
    let pieces = book.collect();
    assert!(
        matches!(&pieces[..], [Piece::Live(_), Piece::Usage(usage)] if usage.prompt_tokens == Some(4))
    );
}

fn late(id: &str) -> LateUsage {
    LateUsage {
        operation_id: Arc::from(id),
        boot_id: Arc::from("boot"),
        sequence: 1,
        prompt_tokens: Some(4),
        completion_tokens: None,
        cached_tokens: None,
        reasoning_tokens: None,
        partial: true,
    }
}

// A list of changes that nobody collects stays as long as the records that are open.
#[test]
fn what_ended_does_not_pile_up_uncollected() {
    let (snapshot, book) = (compiled(YAML, None), Book::new(Some(Outbox::new(0))));
    let kept: Arc<str> = Arc::from("kept");
    book.begin(opening(&snapshot, &kept));
    // Far more than a part's list can hold, and all in one part where the allocator gives one place again and again.
    for _ in 0..200_000 {
        let id: Arc<str> = Arc::from("op");
        book.begin(opening(&snapshot, &id));
        let _ = book.end(&id, &ENDING);
    }
    let found = records(&book);
    assert_eq!(found.len(), 1);
    assert_eq!(&*found[0].operation.operation_id, "kept");
}

// Who looks while an operation ends sees it, as open or as settled.
#[test]
fn an_operation_that_ends_is_never_out_of_sight() {
    let (snapshot, book) = (compiled(YAML, None), Book::default());
    let begun = AtomicU64::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for number in 1..=20_000 {
                let id: Arc<str> = Arc::from("op");
                book.begin(opening(&snapshot, &id));
                begun.store(number, Ordering::Release);
                let _ = book.end(&id, &ENDING);
            }
        });
        loop {
            let last = begun.load(Ordering::Acquire);
            let newest = book
                .recent(1, |_| true)
                .first()
                .map_or(0, |record| record.sequence);
            assert!(
                newest >= last,
                "{newest} is the newest that is seen, {last} has begun"
            );
            if last == 20_000 {
                break;
            }
        }
    });
}

//! Usage that comes after an operation has settled: it is written over usage that is missing or partial, and over nothing else.

use std::sync::Arc;
use std::time::Duration;

use rondo::core::api::Api;
use rondo::core::settlement::{OperationOutcome, State};
use rondo::core::time::{MonoTime, WallTime};
use rondo::core::usage::Usage;
use rondo::ledger::store::Piece;
use rondo::ledger::{Book, Ending, LateUsage, Moment, Opening, Outbox, Record};

use crate::compiled::compiled;

const YAML: &str = r#"
providers: { acme: { adapter: openai, base_url: "http://localhost:1", keys: [{ name: k, secret: { literal: s } }] } }
routes: [{ name: gpt, models: [gpt-x], targets: [{ name: only, provider: acme }] }]
"#;

fn at(micros: u64) -> Moment {
    Moment {
        mono: MonoTime::from_micros(1_000_000 + micros),
        wall: WallTime::from_unix_micros(1_700_000_000_000_000),
    }
}

/// A book with one operation that was cancelled and had this usage.
fn settled(outbox: Option<Outbox>, usage: Option<Usage>) -> (Book, Arc<Record>) {
    let (book, snapshot) = (Book::new(outbox), compiled(YAML, None));
    let id: Arc<str> = Arc::from("op");
    book.begin(Opening {
        operation_id: Arc::clone(&id),
        boot_id: Arc::from("boot"),
        route: Arc::clone(&snapshot.routes[0]),
        snapshot,
        api: Api::OpenaiChat,
        client_key: None,
        public_model: Arc::from("gpt-x"),
        stream: true,
        started: at(0),
        request_bytes: 10,
    });
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
        ended: at(5_000),
        response_bytes: 0,
        usage,
    };
    let record = book.end(&id, &ending).unwrap();
    (book, record)
}

fn late(sequence: u64, partial: bool) -> LateUsage {
    LateUsage {
        operation_id: Arc::from("op"),
        boot_id: Arc::from("boot"),
        sequence,
        prompt_tokens: Some(7),
        completion_tokens: Some(9),
        cached_tokens: None,
        reasoning_tokens: Some(2),
        partial,
    }
}

fn counts(prompt: u64, partial: bool) -> Option<Usage> {
    Some(Usage {
        prompt_tokens: Some(prompt),
        cached_tokens: Some(1),
        partial,
        ..Usage::default()
    })
}

#[test]
fn late_usage_changes_nothing_but_usage() {
    // R-L8 R-L1
    for (before, partial) in [(None, false), (None, true), (counts(3, true), false)] {
        let (book, record) = settled(None, before);
        book.amend(late(record.sequence, partial));
        let mut wanted = (*record).clone();
        wanted.operation.prompt_tokens = Some(7);
        wanted.operation.completion_tokens = Some(9);
        wanted.operation.cached_tokens = None;
        wanted.operation.reasoning_tokens = Some(2);
        wanted.operation.usage_partial = Some(partial);
        assert_eq!(*book.recent(9, |_| true)[0], wanted, "{before:?}");
    }
}

#[test]
fn final_usage_is_final() {
    // R-L8 R-L1
    let (book, record) = settled(None, counts(3, false));
    book.amend(late(record.sequence, false));
    assert_eq!(book.recent(9, |_| true), [record]);
}

#[test]
fn the_store_is_told_although_the_ring_forgot() {
    // R-L8
    let (book, record) = settled(Some(Outbox::default()), None);
    book.collect();
    book.amend(late(record.sequence + 1, false));
    assert_eq!(book.recent(9, |_| true), [record], "another number");
    let pieces = book.collect();
    let [Piece::Usage(usage)] = pieces.as_slice() else {
        panic!("{pieces:?}");
    };
    assert_eq!(*usage, late(2, false));
}

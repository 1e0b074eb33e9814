//! What every store of records must do, whatever it is made of. [`suite`] is run on each of them; it names the claim that fails.

mod looks;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use rondo::core::api::Api;
use rondo::core::decision::{Decision, Round};
use rondo::core::settlement::State;
use rondo::core::time::WallTime;
use rondo::ledger::columns::{ATTEMPTS, OPERATIONS, Stored, StoredRecord};
use rondo::ledger::entry::{AttemptEntry, Capture, OperationEntry, Record};
use rondo::ledger::store::{
    ABANDONED_DELIVERY, ABANDONED_REASON, Boot, LateUsage, Piece, Query, Reader, Store, SumBy,
    renamed,
};

/// When the first operation of a test begins, in microseconds.
pub const START: i64 = 1_700_000_000_000_000;

/// A store that holds nothing, not opened yet, and a reader of the same.
pub type Made = (Box<dyn Store>, Box<dyn Reader>);

/// What is shown of a fresh store.
type Claim = fn(Made);

/// Runs every claim on a fresh store. R-L1 R-L6
pub fn suite(make: impl Fn() -> Made) {
    let claims: &[(&str, Claim)] = &[
        ("a row is written as it is", a_row_is_written_as_it_is),
        (
            "pending becomes terminal once",
            pending_becomes_terminal_once,
        ),
        (
            "no order of pieces undoes a terminal state",
            no_order_undoes_a_terminal_state,
        ),
        (
            "one id twice is two operations",
            one_id_twice_is_two_operations,
        ),
        (
            "late usage fills what is missing",
            late_usage_fills_what_is_missing,
        ),
        (
            "a dead boot's rows are abandoned in steps",
            a_dead_boots_rows_are_abandoned,
        ),
        ("boots come and go", boots_come_and_go),
        (
            "old operations are pruned in steps",
            old_operations_are_pruned,
        ),
        (
            "a renamed operation stays renamed",
            a_renamed_operation_stays_renamed,
        ),
        ("records are found, newest first", looks::records_are_found),
        ("sums agree with the rows", looks::sums_agree_with_the_rows),
        ("nothing is nothing", nothing_is_nothing),
    ];
    for (name, claim) in claims {
        eprintln!("store: {name}");
        claim(make());
    }
}

/// The boot with this id, of the installation `here`.
pub fn boot(id: &str) -> Boot {
    Boot {
        boot_id: Arc::from(id),
        instance: Arc::from("here"),
    }
}

/// An operation without attempts.
pub fn record(boot: &str, sequence: u64, id: &str, state: State) -> Record {
    let ended = state != State::Pending;
    let started = WallTime::from_unix_micros(START + i64::try_from(sequence).unwrap() * 1_000);
    let operation = OperationEntry {
        operation_id: Arc::from(id),
        boot_id: Arc::from(boot),
        route: Arc::from("gpt"),
        api: Api::OpenaiChat,
        public_model: Arc::from("gpt-4o, \"größer\" ✓"),
        stream: sequence.is_multiple_of(2),
        state,
        http_status: ended.then_some(200),
        error_class: None,
        reason: "",
        client_key: None,
        started_at: started,
        first_byte_at: None,
        finished_at: ended.then_some(started),
        latency_ms: ended.then_some(7),
        wait_ms: 0,
        sends: 1,
        rounds: 1,
        request_bytes: u64::MAX,
        response_bytes: 12,
        request_capture: Capture::Complete,
        response_capture: Capture::Absent,
        prompt_tokens: None,
        completion_tokens: None,
        cached_tokens: None,
        reasoning_tokens: None,
        profile: "default".into(),
        usage_partial: None,
    };
    Record {
        sequence,
        operation,
        attempts: Vec::new(),
        delivered_by: None,
    }
}

/// Adds an attempt in this state, at a target named after its number.
pub fn with_attempt(mut record: Record, state: State) -> Record {
    let attempt_no = u32::try_from(record.attempts.len()).unwrap() + 1;
    let ended = state != State::Pending;
    let operation = &record.operation;
    let delivery = match state {
        State::Pending => None,
        State::Succeeded => Some("succeeded"),
        State::Failed => Some("not_delivered"),
        _ => Some("ambiguous"),
    };
    record.attempts.push(AttemptEntry {
        operation_id: Arc::clone(&operation.operation_id),
        attempt_no,
        round: Round::First,
        candidate_index: usize::try_from(attempt_no).unwrap() - 1,
        retry_index: 0,
        target: Arc::from(format!("target-{attempt_no}")),
        provider: Arc::from("acme"),
        key_name: (attempt_no == 1).then(|| Arc::from("main")),
        upstream_model: Arc::from("gpt-4o"),
        state,
        delivery,
        class: None,
        certified: false,
        decision: (state == State::Succeeded).then_some(Decision::Accept),
        http_status: None,
        error_class: None,
        upstream_request_id: None,
        retry_after_ms: None,
        started_at: operation.started_at,
        first_byte_at: None,
        finished_at: ended.then_some(operation.started_at),
        latency_ms: ended.then_some(5),
    });
    record
}

/// The piece of a record.
pub fn live(record: &Record) -> Piece {
    Piece::Live(Arc::new(record.clone()))
}

/// A column of an operation's row.
pub fn column<'r>(record: &'r StoredRecord, name: &str) -> &'r Stored {
    &record.operation[OPERATIONS.position(name).unwrap()]
}

/// A column of an attempt's row.
pub fn attempt_column<'r>(row: &'r [Stored], name: &str) -> &'r Stored {
    &row[ATTEMPTS.position(name).unwrap()]
}

fn text(text: &str) -> Stored {
    Stored::Text(Box::from(text))
}

/// The newest records.
pub fn all(reader: &dyn Reader) -> Vec<StoredRecord> {
    let limit = 1_000_000;
    reader
        .find(&Query {
            limit,
            ..Query::default()
        })
        .unwrap()
}

fn ids(records: &[StoredRecord]) -> Vec<String> {
    let texts = records
        .iter()
        .map(|record| match column(record, "operation_id") {
            Stored::Text(id) => id.to_string(),
            other => panic!("{other:?}"),
        });
    texts.collect()
}

fn opened((mut store, reader): Made) -> (Box<dyn Store>, Box<dyn Reader>) {
    store.open(&boot("b1")).unwrap();
    (store, reader)
}

fn a_row_is_written_as_it_is(made: Made) {
    let (mut store, reader) = opened(made);
    let mut whole = with_attempt(record("b1", 1, "op", State::Succeeded), State::Ambiguous);
    whole = with_attempt(whole, State::Succeeded);
    whole.operation.client_key = Some(Arc::from("alice"));
    whole.operation.usage_partial = Some(false);
    whole.operation.prompt_tokens = Some(3);
    assert_eq!(store.write(&[live(&whole)]).unwrap(), 3);
    assert_eq!(all(&*reader), [StoredRecord::from(&whole)]);
    // What comes back from the spool is the same row.
    let spooled = StoredRecord::from(&with_attempt(
        record("b1", 2, "op-2", State::Pending),
        State::Pending,
    ));
    assert_eq!(store.write(&[Piece::Spooled(spooled.clone())]).unwrap(), 2);
    assert_eq!(all(&*reader)[0], spooled);
}

fn pending_becomes_terminal_once(made: Made) {
    let (mut store, reader) = opened(made);
    let pending = with_attempt(record("b1", 1, "op", State::Pending), State::Pending);
    let settled = with_attempt(record("b1", 1, "op", State::Succeeded), State::Succeeded);
    let other = with_attempt(record("b1", 1, "op", State::Cancelled), State::Cancelled);
    assert_eq!(store.write(&[live(&pending)]).unwrap(), 2);
    assert_eq!(store.write(&[live(&settled)]).unwrap(), 2);
    let expected = [StoredRecord::from(&settled)];
    for late in [&pending, &other, &settled] {
        assert_eq!(store.write(&[live(late)]).unwrap(), 0);
        assert_eq!(all(&*reader), expected);
    }
    // Both in one transaction, the wrong way round.
    let ended = record("b1", 2, "op-2", State::Failed);
    let begun = with_attempt(record("b1", 2, "op-2", State::Pending), State::Pending);
    store.write(&[live(&ended), live(&begun)]).unwrap();
    assert_eq!(all(&*reader)[0], StoredRecord::from(&ended));
}

fn no_order_undoes_a_terminal_state(made: Made) {
    let (mut store, reader) = opened(made);
    let mut chance = SmallRng::seed_from_u64(7);
    // By boot and number: the first terminal state of the operation, and of each of its attempts.
    type Seen = (Option<State>, BTreeMap<u32, Option<State>>);
    let mut model: BTreeMap<(String, u64), Seen> = BTreeMap::new();
    let terminal = [State::Succeeded, State::Failed, State::Cancelled];
    for _ in 0..60 {
        let mut pieces = Vec::new();
        for _ in 0..chance.random_range(1..6) {
            let boot = ["b1", "b2", "b3"][chance.random_range(0..3)];
            let sequence = chance.random_range(1..9_u64);
            // Always the same id for the same operation, and few of them for many.
            let id = format!("op-{}", (sequence + u64::from(boot == "b2")) % 3);
            let ends = chance.random_bool(0.4);
            let state = if ends {
                terminal[chance.random_range(0..3)]
            } else {
                State::Pending
            };
            let mut made = record(boot, sequence, &id, state);
            for _ in 0..chance.random_range(0..4) {
                let settled = ends || chance.random_bool(0.5);
                let state = if settled {
                    terminal[chance.random_range(0..3)]
                } else {
                    State::Pending
                };
                made = with_attempt(made, state);
            }
            let seen = model.entry((boot.to_owned(), sequence)).or_default();
            let was_over = seen.0.is_some();
            seen.0 = seen.0.or(ends.then_some(state));
            if ends || !was_over {
                for attempt in &made.attempts {
                    let over = (attempt.state != State::Pending).then_some(attempt.state);
                    let kept = seen.1.entry(attempt.attempt_no).or_default();
                    *kept = kept.or(over);
                }
            }
            pieces.push(match chance.random_bool(0.5) {
                true => live(&made),
                false => Piece::Spooled(StoredRecord::from(&made)),
            });
        }
        store.write(&pieces).unwrap();
    }
    let found = all(&*reader);
    let label = |state: Option<State>| text(state.unwrap_or(State::Pending).label());
    assert_eq!(found.len(), model.len());
    let mut names = BTreeSet::new();
    for record in &found {
        let (Stored::Text(boot), Stored::Number(sequence)) =
            (column(record, "boot_id"), column(record, "sequence"))
        else {
            panic!("{record:?}")
        };
        let key = (boot.to_string(), u64::try_from(*sequence).unwrap());
        let (state, attempts) = &model[&key];
        assert_eq!(*column(record, "state"), label(*state), "{key:?}");
        let states: Vec<Stored> = attempts.values().map(|state| label(*state)).collect();
        let rows = record.attempts.iter();
        let stored: Vec<Stored> = rows
            .map(|row| attempt_column(row, "state").clone())
            .collect();
        assert_eq!(stored, states, "{key:?}");
        assert!(names.insert(format!("{:?}", column(record, "operation_id"))));
    }
}

fn one_id_twice_is_two_operations(made: Made) {
    let (mut store, reader) = opened(made);
    let first = with_attempt(record("b1", 1, "same", State::Succeeded), State::Succeeded);
    let begun = with_attempt(record("b1", 2, "same", State::Pending), State::Pending);
    let ended = with_attempt(record("b1", 2, "same", State::Cancelled), State::Cancelled);
    let elsewhere = record("b2", 1, "same", State::Failed);
    store.write(&[live(&first), live(&begun)]).unwrap();
    assert_eq!(store.write(&[live(&ended)]).unwrap(), 2);
    assert_eq!(
        store
            .write(&[live(&elsewhere), live(&begun), live(&ended)])
            .unwrap(),
        1
    );
    let found: BTreeSet<(String, String)> = all(&*reader)
        .iter()
        .map(|record| {
            let id = ids(std::slice::from_ref(record)).remove(0);
            for row in &record.attempts {
                assert_eq!(*attempt_column(row, "operation_id"), text(&id));
            }
            match column(record, "state") {
                Stored::Text(state) => (id, state.to_string()),
                other => panic!("{other:?}"),
            }
        })
        .collect();
    let expected = [
        ("same".to_owned(), "succeeded".to_owned()),
        (renamed("same", "b1", 2), "cancelled".to_owned()),
        (renamed("same", "b2", 1), "failed".to_owned()),
    ];
    assert_eq!(found, BTreeSet::from(expected));
    let query = Query {
        limit: 10,
        id: Some("same".to_owned()),
        ..Query::default()
    };
    assert_eq!(reader.find(&query).unwrap().len(), 3);
}

fn usage(sequence: u64, id: &str, prompt: u64, partial: bool) -> Piece {
    Piece::Usage(LateUsage {
        operation_id: Arc::from(id),
        boot_id: Arc::from("b1"),
        sequence,
        prompt_tokens: Some(prompt),
        completion_tokens: None,
        cached_tokens: None,
        reasoning_tokens: Some(1),
        partial,
    })
}

// R-L8
fn late_usage_fills_what_is_missing(made: Made) {
    let (mut store, reader) = opened(made);
    let mut known = record("b1", 2, "known", State::Succeeded);
    (known.operation.prompt_tokens, known.operation.usage_partial) = (Some(8), Some(false));
    let bare = record("b1", 1, "bare", State::Cancelled);
    let twin = record("b1", 3, "bare", State::Cancelled);
    store
        .write(&[live(&bare), live(&known), live(&twin)])
        .unwrap();
    let tokens = |id: &str| {
        let records = all(&*reader);
        let at = ids(&records).iter().position(|found| found == id).unwrap();
        let found = &records[at];
        assert_eq!(
            *column(found, "state"),
            text(if id == "known" {
                "succeeded"
            } else {
                "cancelled"
            })
        );
        (
            column(found, "prompt_tokens").clone(),
            column(found, "usage_partial").clone(),
        )
    };
    assert_eq!(store.write(&[usage(1, "bare", 5, true)]).unwrap(), 1);
    assert_eq!(tokens("bare"), (Stored::Number(5), Stored::Flag(true)));
    assert_eq!(store.write(&[usage(1, "bare", 6, false)]).unwrap(), 1);
    assert_eq!(store.write(&[usage(1, "bare", 7, false)]).unwrap(), 0);
    assert_eq!(tokens("bare"), (Stored::Number(6), Stored::Flag(false)));
    assert_eq!(store.write(&[usage(2, "known", 9, false)]).unwrap(), 0);
    assert_eq!(tokens("known"), (Stored::Number(8), Stored::Flag(false)));
    // Of one whose id another had, and of one that nobody knows.
    assert_eq!(
        store
            .write(&[usage(3, "bare", 4, false), usage(9, "bare", 4, false)])
            .unwrap(),
        1
    );
    assert_eq!(
        tokens(&renamed("bare", "b1", 3)),
        (Stored::Number(4), Stored::Flag(false))
    );
}

fn a_dead_boots_rows_are_abandoned(made: Made) {
    let (mut store, reader) = opened(made);
    store.beat(&boot("dead")).unwrap();
    let mut pieces = Vec::new();
    for sequence in 1..=10 {
        let id = format!("dead-{sequence}");
        let open = with_attempt(
            record("dead", sequence, &id, State::Pending),
            State::Ambiguous,
        );
        pieces.push(live(&with_attempt(open, State::Pending)));
    }
    pieces.push(live(&record("dead", 11, "over", State::Succeeded)));
    pieces.push(live(&with_attempt(
        record("b1", 1, "mine", State::Pending),
        State::Pending,
    )));
    store.write(&pieces).unwrap();
    let at = WallTime::from_unix_micros(START + 99);
    let (mut settled, mut steps) = (Vec::new(), 0);
    loop {
        let step = store.abandon(&boot("dead"), at, 6).unwrap();
        assert!(step <= 6 && steps < 9, "{step}");
        steps += 1;
        // While a row is left the boot has not ended.
        assert_eq!(
            store.others(&boot("b1")).unwrap().len(),
            usize::from(step > 0)
        );
        settled.push(step);
        if step == 0 {
            break;
        }
    }
    assert_eq!(settled.iter().sum::<u64>(), 20, "{settled:?}");
    assert_eq!(store.abandon(&boot("dead"), at, 6).unwrap(), 0);
    for found in all(&*reader) {
        let id = ids(std::slice::from_ref(&found)).remove(0);
        let state = match &*id {
            "over" => "succeeded",
            "mine" => "pending",
            _ => "abandoned",
        };
        assert_eq!(*column(&found, "state"), text(state), "{id}");
        if state != "abandoned" {
            continue;
        }
        assert_eq!(*column(&found, "reason"), text(ABANDONED_REASON));
        assert_eq!(*column(&found, "finished_at"), Stored::Number(START + 99));
        assert_eq!(*column(&found, "latency_ms"), Stored::Null);
        let [settled, open] = &found.attempts[..] else {
            panic!("{found:?}")
        };
        assert_eq!(*attempt_column(settled, "state"), text("ambiguous"));
        assert_eq!(*attempt_column(open, "state"), text("abandoned"));
        assert_eq!(*attempt_column(open, "delivery"), text(ABANDONED_DELIVERY));
        assert_eq!(
            *attempt_column(open, "finished_at"),
            Stored::Number(START + 99)
        );
    }
    // It lived after all, and what it knows comes late.
    let late = record("dead", 1, "dead-1", State::Succeeded);
    assert_eq!(store.write(&[live(&late)]).unwrap(), 0);
}

fn boots_come_and_go(made: Made) {
    let (mut store, _reader) = opened(made);
    assert_eq!(store.others(&boot("b1")).unwrap(), []);
    let stranger = Boot {
        boot_id: Arc::from("b2"),
        instance: Arc::from("there"),
    };
    store.beat(&stranger).unwrap();
    let others = store.others(&boot("b1")).unwrap();
    assert_eq!(others.len(), 1);
    assert_eq!(others[0].boot, stranger);
    assert_eq!(store.others(&stranger).unwrap()[0].boot, boot("b1"));
    // Taken for dead, and heard of again.
    assert_eq!(
        store
            .abandon(&stranger, WallTime::from_unix_micros(START), 5)
            .unwrap(),
        0
    );
    assert_eq!(store.others(&boot("b1")).unwrap(), []);
    store.beat(&stranger).unwrap();
    assert_eq!(store.others(&boot("b1")).unwrap().len(), 1);
    store.close(&boot("b1")).unwrap();
    store.open(&stranger).unwrap();
    assert_eq!(store.others(&stranger).unwrap(), []);
    // Opening twice is opening.
    store.open(&stranger).unwrap();
}

fn old_operations_are_pruned(made: Made) {
    let (mut store, reader) = opened(made);
    let settled = (1..=6).map(|sequence| {
        let id = format!("op-{sequence}");
        live(&with_attempt(
            record("b1", sequence, &id, State::Failed),
            State::Failed,
        ))
    });
    let open = live(&record("b1", 0, "open", State::Pending));
    store
        .write(&settled.chain([open]).collect::<Vec<_>>())
        .unwrap();
    let before = WallTime::from_unix_micros(START + 5_000);
    assert_eq!(store.prune(before, 3).unwrap(), 3);
    assert_eq!(ids(&all(&*reader)), ["op-6", "op-5", "op-4", "open"]);
    assert_eq!(store.prune(before, 3).unwrap(), 1);
    assert_eq!(store.prune(before, 3).unwrap(), 0);
    let left = all(&*reader);
    assert_eq!(ids(&left), ["op-6", "op-5", "open"]);
    assert_eq!(
        reader.sums(SumBy::Target, None).unwrap()[0].rows,
        2,
        "their attempts went with them"
    );
}

/// Even when the operation that had its id first is pruned while it runs.
fn a_renamed_operation_stays_renamed(made: Made) {
    let (mut store, reader) = opened(made);
    let run = |state| {
        live(&with_attempt(
            record("b1", 7, "same", state),
            if state == State::Pending {
                state
            } else {
                State::Succeeded
            },
        ))
    };
    store
        .write(&[live(&record("b1", 1, "same", State::Succeeded))])
        .unwrap();
    store.write(&[run(State::Pending)]).unwrap();
    let before = WallTime::from_unix_micros(START + 5_000);
    assert_eq!(store.prune(before, 10).unwrap(), 1);
    assert_eq!(store.write(&[run(State::Succeeded)]).unwrap(), 2);
    assert_eq!(store.write(&[run(State::Succeeded)]).unwrap(), 0);
    let left = all(&*reader);
    assert_eq!(ids(&left), [renamed("same", "b1", 7)]);
    assert_eq!(column(&left[0], "state"), &text("succeeded"));
    assert_eq!(left[0].attempts.len(), 1);
}

fn nothing_is_nothing(made: Made) {
    let (mut store, reader) = opened(made);
    assert_eq!(store.write(&[]).unwrap(), 0);
    assert_eq!(all(&*reader), []);
    assert_eq!(reader.sums(SumBy::Key, None).unwrap(), []);
    assert_eq!(
        store
            .prune(WallTime::from_unix_micros(i64::MAX), 10)
            .unwrap(),
        0
    );
}

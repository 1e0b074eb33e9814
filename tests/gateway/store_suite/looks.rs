//! What one sees who looks into a store.

use std::sync::Arc;

use rondo::core::settlement::State;
use rondo::core::time::WallTime;
use rondo::ledger::columns::Stored;
use rondo::ledger::store::{Cursor, Query, Sum, SumBy};

use super::{Made, START, column, ids, live, opened, record, with_attempt};

pub fn records_are_found(made: Made) {
    let (mut store, reader) = opened(made);
    let mut pieces = Vec::new();
    for sequence in 1..=20_u64 {
        let state = if sequence.is_multiple_of(5) {
            State::Failed
        } else {
            State::Succeeded
        };
        let mut made = record("b1", sequence, &format!("op-{sequence:02}"), state);
        if sequence.is_multiple_of(4) {
            made.operation.route = Arc::from("other");
            made = with_attempt(made, State::Ambiguous);
        }
        // Two begin in one microsecond: their ids tell them apart.
        if sequence.is_multiple_of(2) {
            made.operation.started_at =
                WallTime::from_unix_micros(START + i64::try_from(sequence - 1).unwrap() * 1_000);
        }
        pieces.push(live(&with_attempt(made, state)));
    }
    store.write(&pieces).unwrap();
    let newest: Vec<String> = (1..=20).rev().map(|n| format!("op-{n:02}")).collect();
    // Page by page.
    let (mut paged, mut before) = (Vec::new(), None);
    loop {
        let query = Query {
            limit: 3,
            before: before.take(),
            ..Query::default()
        };
        let page = reader.find(&query).unwrap();
        let Some(last) = page.last() else { break };
        let Stored::Number(started) = column(last, "started_at") else {
            panic!("{last:?}")
        };
        before = Some(Cursor {
            started_at: WallTime::from_unix_micros(*started),
            operation_id: ids(std::slice::from_ref(last)).remove(0),
        });
        paged.extend(ids(&page));
    }
    assert_eq!(paged, newest);
    let find = |query: Query| {
        ids(&reader
            .find(&Query {
                limit: 100,
                ..query
            })
            .unwrap())
    };
    let is = |fits: fn(u64) -> bool| -> Vec<String> {
        (1..=20)
            .rev()
            .filter(|n| fits(*n))
            .map(|n| format!("op-{n:02}"))
            .collect()
    };
    assert_eq!(
        find(Query {
            route: Some("other".into()),
            ..Query::default()
        }),
        is(|n| n % 4 == 0)
    );
    assert_eq!(
        find(Query {
            state: Some(State::Failed),
            ..Query::default()
        }),
        is(|n| n % 5 == 0)
    );
    assert_eq!(
        find(Query {
            target: Some("target-2".into()),
            ..Query::default()
        }),
        is(|n| n % 4 == 0)
    );
    assert_eq!(
        find(Query {
            id: Some("op-07".into()),
            ..Query::default()
        }),
        ["op-07"]
    );
    assert_eq!(
        find(Query {
            id: Some("op-0".into()),
            ..Query::default()
        }),
        [""; 0]
    );
    let since = Some(WallTime::from_unix_micros(START + 17_000));
    assert_eq!(
        find(Query {
            since,
            ..Query::default()
        }),
        is(|n| n >= 17)
    );
    let both = Query {
        since,
        state: Some(State::Failed),
        route: Some("other".into()),
        ..Query::default()
    };
    assert_eq!(find(both), ["op-20"]);
    let odd = "no'such; DROP TABLE operations --".to_owned();
    assert_eq!(
        find(Query {
            route: Some(odd),
            ..Query::default()
        }),
        [""; 0]
    );
}

pub fn sums_agree_with_the_rows(made: Made) {
    let (mut store, reader) = opened(made);
    let mut good = with_attempt(record("b1", 1, "good", State::Succeeded), State::Failed);
    good = with_attempt(good, State::Succeeded);
    good.operation.prompt_tokens = Some(10);
    good.operation.completion_tokens = Some(4);
    let cut = with_attempt(record("b1", 2, "cut", State::Cancelled), State::Ambiguous);
    let mut open = record("b1", 3, "open", State::Pending);
    open.operation.route = Arc::from("zeta");
    store
        .write(&[live(&good), live(&cut), live(&open)])
        .unwrap();
    let states = |pairs: &[(&str, u64)]| {
        let pairs = pairs
            .iter()
            .map(|(state, rows)| ((*state).to_owned(), *rows));
        pairs.collect::<Vec<_>>()
    };
    let gpt = Sum {
        group: "gpt".into(),
        rows: 2,
        states: states(&[("cancelled", 1), ("succeeded", 1)]),
        sends: 2,
        latency_ms: 14,
        timed: 2,
        prompt_tokens: 10,
        completion_tokens: 4,
        ..Sum::default()
    };
    let zeta = Sum {
        group: "zeta".into(),
        rows: 1,
        states: states(&[("pending", 1)]),
        sends: 1,
        ..Sum::default()
    };
    assert_eq!(
        reader.sums(SumBy::Route, None).unwrap(),
        [gpt, zeta.clone()]
    );
    let since = Some(WallTime::from_unix_micros(START + 3_000));
    assert_eq!(reader.sums(SumBy::Route, since).unwrap(), [zeta]);
    let groups = |by| -> Vec<(String, u64)> {
        let sums = reader.sums(by, None).unwrap();
        sums.into_iter().map(|sum| (sum.group, sum.rows)).collect()
    };
    assert_eq!(
        groups(SumBy::State),
        states(&[("cancelled", 1), ("pending", 1), ("succeeded", 1)])
    );
    // A provider without a key for the second attempt.
    assert_eq!(
        groups(SumBy::Key),
        states(&[("acme/-", 1), ("acme/main", 2)])
    );
    let targets = reader.sums(SumBy::Target, None).unwrap();
    let first = Sum {
        group: "target-1".into(),
        rows: 2,
        states: states(&[("ambiguous", 1), ("failed", 1)]),
        // The other one did not arrive.
        sends: 1,
        latency_ms: 10,
        timed: 2,
        ..Sum::default()
    };
    let second = Sum {
        group: "target-2".into(),
        rows: 1,
        states: states(&[("succeeded", 1)]),
        sends: 1,
        latency_ms: 5,
        timed: 1,
        prompt_tokens: 10,
        completion_tokens: 4,
        ..Sum::default()
    };
    assert_eq!(targets, [first, second]);
}

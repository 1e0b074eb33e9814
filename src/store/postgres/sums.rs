//! Sums over records: the statements and what is read from them.
//!
//! Invariant: numbers saturate; nothing overflows, in the database or here.

use std::collections::BTreeMap;

use tokio_postgres::Row;

use super::error::failed;
use crate::ledger::store::{StoreError, Sum, SumBy};

/// The statement; its one parameter is the earliest start. It gives one row for each group and state.
pub(super) fn sql(by: SumBy) -> String {
    match by {
        SumBy::Route => operations("o.route"),
        SumBy::State => operations("o.state"),
        SumBy::Target => attempts("a.target"),
        SumBy::Key => attempts("a.provider || '/' || coalesce(a.key_name, '-')"),
    }
}

fn operations(group: &str) -> String {
    let (sends, latency) = (least("o.sends"), least("o.latency_ms"));
    let tokens = TOKENS
        .map(|column| least(&format!("o.{column}")))
        .join(", ");
    format!(
        "SELECT {group}, o.state, count(*), {sends}, {latency}, count(o.latency_ms), {tokens} \
         FROM operations o WHERE o.started_at >= $1 GROUP BY 1, 2 ORDER BY 1, 2"
    )
}

/// An attempt was sent unless it is known not to have arrived. The tokens of an operation are those of the attempt that was accepted.
fn attempts(group: &str) -> String {
    let accepted = |column| format!("CASE WHEN a.decision = 'accepted' THEN o.{column} END");
    let tokens = TOKENS.map(|column| least(&accepted(column))).join(", ");
    format!(
        "SELECT {group}, a.state, count(*), count(*) FILTER (WHERE a.delivery <> 'not_delivered'), {}, \
         count(a.latency_ms), {tokens} FROM operations o JOIN attempts a ON a.operation_id = o.operation_id \
         WHERE o.started_at >= $1 GROUP BY 1, 2 ORDER BY 1, 2",
        least("a.latency_ms")
    )
}

const TOKENS: [&str; 4] = [
    "prompt_tokens",
    "completion_tokens",
    "cached_tokens",
    "reasoning_tokens",
];

/// A sum that still fits what is read back.
fn least(what: &str) -> String {
    format!("least(coalesce(sum({what}), 0), {})::bigint", i64::MAX)
}

/// The groups in their order.
pub(super) fn from(rows: &[Row]) -> Result<Vec<Sum>, StoreError> {
    let mut groups: BTreeMap<String, Sum> = BTreeMap::new();
    for row in rows {
        let read = read(row).map_err(|error| failed(&error))?;
        let sum = groups.entry(read.group.clone()).or_insert_with(|| Sum {
            group: read.group.clone(),
            ..Sum::default()
        });
        add(sum, read);
    }
    Ok(groups.into_values().collect())
}

fn add(sum: &mut Sum, more: Sum) {
    let pairs = [
        (&mut sum.rows, more.rows),
        (&mut sum.sends, more.sends),
        (&mut sum.latency_ms, more.latency_ms),
        (&mut sum.timed, more.timed),
        (&mut sum.prompt_tokens, more.prompt_tokens),
        (&mut sum.completion_tokens, more.completion_tokens),
        (&mut sum.cached_tokens, more.cached_tokens),
        (&mut sum.reasoning_tokens, more.reasoning_tokens),
    ];
    for (total, part) in pairs {
        *total = total.saturating_add(part);
    }
    sum.states.extend(more.states);
}

/// A row, as the sums over a group of one state.
fn read(row: &Row) -> Result<Sum, tokio_postgres::Error> {
    let count = |place: usize| -> Result<u64, tokio_postgres::Error> {
        Ok(u64::try_from(row.try_get::<_, i64>(place)?).unwrap_or(0))
    };
    let rows = count(2)?;
    Ok(Sum {
        group: row.try_get(0)?,
        rows,
        states: vec![(row.try_get(1)?, rows)],
        sends: count(3)?,
        latency_ms: count(4)?,
        timed: count(5)?,
        prompt_tokens: count(6)?,
        completion_tokens: count(7)?,
        cached_tokens: count(8)?,
        reasoning_tokens: count(9)?,
    })
}

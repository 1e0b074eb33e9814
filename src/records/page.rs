//! One page of records, from a store and from what the process still has in memory.
//!
//! Not here: reading either. The order in which they are read matters: memory, the store, and memory once more for the rows that the
//! store gave ([`again`]). An operation may end, and be written, between any two of them, and still is on the page once.
//! Operations are told apart by boot and number, so two with one `x-request-id` are two; only if they also began in the same microsecond
//! may a page end between them and the next one miss the second, since a store knows it under a name of its own.
//! Invariants: newest first, by start and id; each operation once; what is not on the page and older than its end is on a later one.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::ask::fits;
use super::row::Row;
use crate::core::settlement::State;
use crate::core::time::WallTime;
use crate::ledger::Record;
use crate::ledger::columns::StoredRecord;
use crate::ledger::store::{Cursor, Query};

/// Names an operation for ever: its boot, and its number there. An `x-request-id` does not; clients use one twice.
type Identity = (String, i64);

/// A page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page {
    /// The records, newest first. Fewer than asked for does not mean that there are no more: `next` does.
    pub records: Vec<StoredRecord>,
    /// Where the next page begins; `None` at the end.
    pub next: Option<Cursor>,
}

/// The query to ask both sides with: one record more than the page has, which tells whether there is a next one.
pub fn one_more(query: &Query) -> Query {
    Query {
        limit: query.limit.saturating_add(1),
        ..query.clone()
    }
}

/// Picks from memory the operations that the store gave rows of, whatever the query says of them.
pub fn again(stored: &[StoredRecord]) -> impl Fn(&Record) -> bool + use<> {
    let known: HashSet<Identity> = stored.iter().map(identity).collect();
    move |record| known.contains(&identity_in_memory(record))
}

/// Puts a page together. `memory` is what memory gave for [`one_more`] of the query, `stored` what the store gave for it, and `now`
/// what memory had for [`again`] afterwards.
pub fn merge(
    query: &Query,
    memory: &[Arc<Record>],
    stored: Vec<StoredRecord>,
    now: &[Arc<Record>],
) -> Page {
    let now: HashMap<Identity, &Arc<Record>> = now
        .iter()
        .map(|record| (identity_in_memory(record), record))
        .collect();
    // Where one side gave all that was asked for, what lies beyond its last record is not known.
    let asked = query.limit.saturating_add(1);
    let last_in_memory = memory.get(asked.saturating_sub(1)..);
    let last_stored = stored.get(asked.saturating_sub(1)..);
    let ends = [
        last_in_memory.and_then(|rest| Some(place_in_memory(rest.last()?))),
        last_stored.and_then(|rest| {
            let last = rest.last()?;
            let known = now.get(&identity(last));
            Some(known.map_or_else(|| place(last), |record| place_in_memory(record)))
        }),
    ];
    let end = ends.into_iter().flatten().max();
    let mut known: HashMap<Identity, (Place, StoredRecord)> = memory
        .iter()
        .map(|record| (identity_in_memory(record), in_memory(record)))
        .collect();
    for row in stored {
        let identity = identity(&row);
        match now.get(&identity).copied() {
            None => known.insert(identity, (place(&row), row)),
            // The row is behind: what memory says decides, also whether the record is asked for.
            Some(record) if is_pending(&row) => match fits(query, record) {
                true => known.insert(identity, in_memory(record)),
                false => known.remove(&identity),
            },
            // The row is the last word. It keeps the place that memory gave it, under the id that the client sent.
            Some(record) => known.insert(identity, (place_in_memory(record), row)),
        };
    }
    finish(query, known.into_values().collect(), end)
}

/// A page from memory alone.
pub fn of_memory(query: &Query, memory: &[Arc<Record>]) -> Page {
    finish(query, memory.iter().map(in_memory).collect(), None)
}

/// A page from a store alone.
pub fn of_store(query: &Query, stored: Vec<StoredRecord>) -> Page {
    let placed = stored.into_iter().map(|row| (place(&row), row)).collect();
    finish(query, placed, None)
}

fn finish(query: &Query, mut placed: Vec<(Place, StoredRecord)>, end: Option<Place>) -> Page {
    placed.sort_by(|(one, _), (other, _)| other.cmp(one));
    if let Some(end) = &end {
        placed.retain(|(place, _)| place >= end);
    }
    let more = placed.len() > query.limit;
    placed.truncate(query.limit);
    let last = match more {
        true => placed.last().map(|(place, _)| place.clone()),
        false => end,
    };
    Page {
        records: placed.into_iter().map(|(_, record)| record).collect(),
        next: last.map(|(started_at, operation_id)| Cursor {
            started_at,
            operation_id,
        }),
    }
}

/// By what the list is ordered.
type Place = (WallTime, String);

fn place(row: &StoredRecord) -> Place {
    let operation = Row::operation(row);
    let started_at = operation.time("started_at").unwrap_or_default();
    let id = operation.text("operation_id").unwrap_or_default();
    (started_at, id.to_owned())
}

fn place_in_memory(record: &Record) -> Place {
    let operation = &record.operation;
    (operation.started_at, operation.operation_id.to_string())
}

fn in_memory(record: &Arc<Record>) -> (Place, StoredRecord) {
    (place_in_memory(record), StoredRecord::from(record))
}

fn identity(row: &StoredRecord) -> Identity {
    let operation = Row::operation(row);
    let boot_id = operation.text("boot_id").unwrap_or_default().to_owned();
    (boot_id, operation.number("sequence").unwrap_or_default())
}

fn identity_in_memory(record: &Record) -> Identity {
    let sequence = i64::try_from(record.sequence).unwrap_or(i64::MAX);
    (record.operation.boot_id.to_string(), sequence)
}

fn is_pending(row: &StoredRecord) -> bool {
    Row::operation(row).text("state") == Some(State::Pending.label())
}

//! A store in memory, for those who look: rows are put in, and whether it answers is the test's to say.
#![allow(dead_code)]

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use rondo::core::time::WallTime;
use rondo::ledger::columns::{OPERATIONS, Stored, StoredRecord};
use rondo::ledger::store::{Query, Reader, StoreError, Sum, SumBy};
use rondo::records::Row;

#[derive(Default)]
pub struct Shelf {
    rows: Mutex<Vec<StoredRecord>>,
    pub is_down: AtomicBool,
}

impl Shelf {
    /// Writes a record, over the one of the same operation.
    pub fn put(&self, record: StoredRecord) {
        let mut rows = self.rows.lock().unwrap();
        rows.retain(|row| identity(row) != identity(&record));
        rows.push(record);
    }

    fn up(&self) -> Result<(), StoreError> {
        match self.is_down.load(Ordering::SeqCst) {
            false => Ok(()),
            true => Err(StoreError::Unavailable("it is down".to_owned())),
        }
    }
}

/// The record in another state, as a store that is behind has it.
pub fn in_state(mut record: StoredRecord, state: &str) -> StoredRecord {
    record.operation[OPERATIONS.position("state").unwrap()] = Stored::Text(state.into());
    record
}

/// The record under another id.
pub fn under_id(mut record: StoredRecord, id: &str) -> StoredRecord {
    record.operation[0] = Stored::Text(id.into());
    for attempt in &mut record.attempts {
        attempt[0] = Stored::Text(id.into());
    }
    record
}

pub fn place(record: &StoredRecord) -> (WallTime, String) {
    let row = Row::operation(record);
    (
        row.time("started_at").unwrap(),
        row.text("operation_id").unwrap().to_owned(),
    )
}

fn identity(record: &StoredRecord) -> (String, i64) {
    let row = Row::operation(record);
    (
        row.text("boot_id").unwrap().to_owned(),
        row.number("sequence").unwrap(),
    )
}

impl Reader for Shelf {
    fn find(&self, query: &Query) -> Result<Vec<StoredRecord>, StoreError> {
        self.up()?;
        let fits = |record: &&StoredRecord| {
            let row = Row::operation(record);
            let is = |column: &str, wanted: Option<&str>| {
                wanted.is_none_or(|wanted| row.text(column) == Some(wanted))
            };
            let (started_at, id) = place(record);
            let is_named = query
                .id
                .as_ref()
                .is_none_or(|wanted| id == *wanted || id.starts_with(&format!("{wanted}~")));
            let tried = query.target.as_deref().is_none_or(|target| {
                Row::attempts(record).any(|row| row.text("target") == Some(target))
            });
            let before = query
                .before
                .as_ref()
                .is_none_or(|before| (started_at, &id) < (before.started_at, &before.operation_id));
            is("route", query.route.as_deref())
                && is("state", query.state.map(|state| state.label()))
                && query.since.is_none_or(|since| started_at >= since)
                && is_named
                && tried
                && before
        };
        let rows = self.rows.lock().unwrap();
        let mut found: Vec<StoredRecord> = rows.iter().filter(fits).cloned().collect();
        found.sort_by_key(|record| std::cmp::Reverse(place(record)));
        found.truncate(query.limit);
        Ok(found)
    }

    fn sums(&self, by: SumBy, since: Option<WallTime>) -> Result<Vec<Sum>, StoreError> {
        self.up()?;
        assert_eq!(by, SumBy::Route, "the double knows routes");
        let mut sums: BTreeMap<String, Sum> = BTreeMap::new();
        for record in self.rows.lock().unwrap().iter() {
            let row = Row::operation(record);
            if since.is_some_and(|since| place(record).0 < since) {
                continue;
            }
            let group = row.text("route").unwrap().to_owned();
            let sum = sums.entry(group.clone()).or_default();
            sum.group = group;
            sum.rows += 1;
            sum.sends += u64::try_from(row.number("sends").unwrap()).unwrap();
        }
        Ok(sums.into_values().collect())
    }
}

//! The JSON of records and sums: the columns by their names, times in UTC with microseconds.

use serde::ser::{SerializeMap, SerializeSeq};
use serde::{Serialize, Serializer};

use super::ask::sum_by_label;
use super::row::Row;
use super::utc::Utc;
use crate::core::time::WallTime;
use crate::ledger::columns::{Kind, Stored, StoredRecord};
use crate::ledger::store::{Sum, SumBy};

/// An operation: its columns, and its attempts under `attempts`.
#[derive(Debug, Clone, Copy)]
pub struct RecordView<'a>(pub &'a StoredRecord);

impl Serialize for RecordView<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        // How stores tell two operations with one `x-request-id` apart is no part of the story.
        columns(Row::operation(self.0), &["sequence"], &mut map)?;
        map.serialize_entry("attempts", &Attempts(self.0))?;
        map.end()
    }
}

struct Attempts<'a>(&'a StoredRecord);

impl Serialize for Attempts<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let rows = Row::attempts(self.0);
        let mut list = serializer.serialize_seq(Some(rows.len()))?;
        for row in rows {
            list.serialize_element(&Attempt(row))?;
        }
        list.end()
    }
}

struct Attempt<'a>(Row<'a>);

impl Serialize for Attempt<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        columns(self.0, &["boot_id", "sequence"], &mut map)?;
        map.end()
    }
}

fn columns<M: SerializeMap>(row: Row<'_>, without: &[&str], map: &mut M) -> Result<(), M::Error> {
    let all = row.table.columns.iter().zip(row.values);
    for (column, value) in all.filter(|(column, _)| !without.contains(&column.name)) {
        match (value, column.kind) {
            (Stored::Number(micros), Kind::Time) => {
                let time = Utc(WallTime::from_unix_micros(*micros));
                map.serialize_entry(column.name, &time)?;
            }
            (Stored::Number(number), Kind::Text | Kind::Count | Kind::Flag) => {
                map.serialize_entry(column.name, number)?;
            }
            (Stored::Text(text), _) => map.serialize_entry(column.name, text)?,
            (Stored::Flag(flag), _) => map.serialize_entry(column.name, flag)?,
            (Stored::Null, _) => map.serialize_entry(column.name, &())?,
        }
    }
    Ok(())
}

/// The sums of one group.
#[derive(Debug, Clone, Copy)]
pub struct SumView<'a> {
    /// What the group is one of.
    pub by: SumBy,
    /// The sums.
    pub sum: &'a Sum,
}

impl Serialize for SumView<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let sum = self.sum;
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("by", sum_by_label(self.by))?;
        map.serialize_entry("group", &sum.group)?;
        map.serialize_entry("rows", &sum.rows)?;
        map.serialize_entry("states", &States(&sum.states))?;
        for (name, value) in [
            ("sends", sum.sends),
            ("latency_ms", sum.latency_ms),
            ("timed", sum.timed),
            ("prompt_tokens", sum.prompt_tokens),
            ("completion_tokens", sum.completion_tokens),
            ("cached_tokens", sum.cached_tokens),
            ("reasoning_tokens", sum.reasoning_tokens),
        ] {
            map.serialize_entry(name, &value)?;
        }
        map.end()
    }
}

struct States<'a>(&'a [(String, u64)]);

impl Serialize for States<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(state, rows)| (state, rows)))
    }
}

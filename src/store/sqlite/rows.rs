//! How a record is written: the values of its rows go to where they lie in the file.
//!
//! Not here: transactions. Invariants: a row that is not pending is not written to; a key that another operation has is left alone, and
//! the later operation keeps the name that it was given then.

use rusqlite::types::{ToSqlOutput, ValueRef};
use rusqlite::{CachedStatement, OptionalExtension, ToSql, Transaction, params};

use super::knowledge::Knowledge;
use super::layout::{How, Layout};
use super::shapes::SPAN;
use super::sql;
use crate::core::settlement::State;
use crate::ledger::columns::Value;
use crate::ledger::store::{LateUsage, renamed};

/// A value as SQLite takes it.
pub(super) struct Bound<'a>(pub Value<'a>);

impl ToSql for Bound<'_> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(match self.0 {
            Value::Null => ValueRef::Null,
            Value::Text(text) => ValueRef::Text(text.as_bytes()),
            Value::Number(number) => ValueRef::Integer(number),
            Value::Flag(flag) => ValueRef::Integer(i64::from(flag)),
        }))
    }
}

/// A row that is there.
#[derive(Debug, Clone, Copy)]
struct Found {
    row: i64,
    started_at: i64,
    is_pending: bool,
    /// Of its first attempt; `None` when there is none.
    attempt_is_pending: Option<bool>,
    is_own: bool,
}

/// Writes the records of one transaction.
pub(super) struct Rows<'t, 'k> {
    transaction: &'t Transaction<'t>,
    knowledge: &'k mut Knowledge,
    insert: CachedStatement<'t>,
    /// What the statement has bound, texts apart: most values of one row are those of the row before.
    bound: Vec<Option<Value<'static>>>,
    /// The highest row.
    highest: i64,
    is_empty: bool,
}

/// An operation with its attempts, as values in the order of their tables' columns.
#[derive(Debug)]
pub(super) struct Values<'r, 'v, A> {
    pub operation: &'r [Value<'v>],
    pub attempts: &'r [A],
}

// Written out, since a derived one would ask the same of `A`.
impl<A> Clone for Values<'_, '_, A> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<A> Copy for Values<'_, '_, A> {}

impl<'t, 'k> Rows<'t, 'k> {
    pub(super) fn new(
        transaction: &'t Transaction<'t>,
        knowledge: &'k mut Knowledge,
    ) -> rusqlite::Result<Rows<'t, 'k>> {
        let highest = highest(transaction)?;
        let insert = transaction.prepare_cached(&knowledge.statements.insert)?;
        let count = insert.parameter_count().saturating_add(1);
        Ok(Rows {
            transaction,
            knowledge,
            insert,
            bound: vec![None; count],
            highest: match highest {
                Some(row) => row,
                None => transaction.query_row(sql::HIGHEST_BEFORE, [SPAN], |row| row.get(0))?,
            },
            is_empty: highest.is_none(),
        })
    }

    /// Writes an operation with its attempts, and gives the number of rows that changed.
    pub(super) fn write<'v, A: AsRef<[Value<'v>]>>(
        &mut self,
        values: Values<'_, 'v, A>,
    ) -> rusqlite::Result<usize> {
        let Some((id, boot_id, sequence)) = identity(values.operation) else {
            return Ok(0);
        };
        if self.knowledge.names.may_be_renamed(boot_id, sequence) {
            let name = renamed(id, boot_id, sequence);
            if let Some(found) = self.find(&name, boot_id, sequence)? {
                return self.change(found, values);
            }
        }
        if let Some(written) = self.insert(id, values)? {
            return Ok(written);
        }
        let found = self.find(id, boot_id, sequence)?;
        if let Some(found) = found.filter(|found| found.is_own) {
            return self.change(found, values);
        }
        let name = renamed(id, boot_id, sequence);
        if let Some(written) = self.insert(&name, values)? {
            self.knowledge.names.note(sequence);
            return Ok(written);
        }
        match self.find(&name, boot_id, sequence)? {
            Some(found) => self.change(found, values),
            None => Ok(0),
        }
    }

    /// Adds it under this id; `None` when there is one.
    fn insert<'v, A: AsRef<[Value<'v>]>>(
        &mut self,
        id: &str,
        values: Values<'_, 'v, A>,
    ) -> rusqlite::Result<Option<usize>> {
        let Values {
            operation,
            attempts,
        } = values;
        let started = number(operation, self.knowledge.operations.started);
        let (first, further) = split(attempts);
        let shape = self.operation_shape(operation)?;
        let attempt_shape = first.map(|first| self.attempt_shape(first)).transpose()?;
        // In a table that was emptied numbers go on where they were.
        let row = self
            .is_empty
            .then(|| Value::Number(self.highest.saturating_add(1)));
        let mut next = 1;
        let mut bind = |value: Value<'_>| {
            let at = next;
            next += 1;
            bind_changed(&mut self.insert, &mut self.bound, at, value)
        };
        bind(row.unwrap_or(Value::Null))?;
        bind(Value::Text(id))?;
        let layout = &self.knowledge.operations;
        kept(layout, operation, started, shape).try_for_each(&mut bind)?;
        let layout = &self.knowledge.attempts;
        match first.zip(attempt_shape) {
            Some((first, shape)) => {
                kept(layout, first, started, shape).try_for_each(&mut bind)?;
            }
            None => none_kept(layout).try_for_each(&mut bind)?,
        }
        if self.insert.raw_execute()? == 0 {
            return Ok(None);
        }
        self.is_empty = false;
        self.highest = self.highest.max(self.transaction.last_insert_rowid());
        let row = self.transaction.last_insert_rowid();
        let mut written = 1_usize.saturating_add(usize::from(first.is_some()));
        for attempt in further {
            written += self.further(row, started, attempt.as_ref())?;
        }
        Ok(Some(written))
    }

    /// Writes to a row that is there what may still be written to it.
    fn change<'v, A: AsRef<[Value<'v>]>>(
        &mut self,
        found: Found,
        values: Values<'_, 'v, A>,
    ) -> rusqlite::Result<usize> {
        let Values {
            operation,
            attempts,
        } = values;
        let mut written = 0;
        if found.is_pending {
            let shape = self.operation_shape(operation)?;
            let started = found.started_at;
            let values = kept(&self.knowledge.operations, operation, started, shape);
            let text = &self.knowledge.statements.operation;
            let statement = self.transaction.prepare_cached(text)?;
            written += run(statement, found.row, values, None)?;
        } else if is_pending(&self.knowledge.operations, operation) {
            // It is settled already, and with it all its attempts: this is the past.
            return Ok(0);
        }
        let (first, further) = split(attempts);
        if let Some(first) = first.filter(|_| found.attempt_is_pending != Some(false)) {
            let shape = self.attempt_shape(first)?;
            let values = kept(&self.knowledge.attempts, first, found.started_at, shape);
            let text = &self.knowledge.statements.attempt;
            let statement = self.transaction.prepare_cached(text)?;
            written += run(statement, found.row, values, None)?;
        }
        for attempt in further {
            written += self.further(found.row, found.started_at, attempt.as_ref())?;
        }
        Ok(written)
    }

    fn further(
        &mut self,
        row: i64,
        started: i64,
        attempt: &[Value<'_>],
    ) -> rusqlite::Result<usize> {
        let shape = self.attempt_shape(attempt)?;
        let values = kept(&self.knowledge.attempts, attempt, started, shape);
        let text = &self.knowledge.statements.further;
        let statement = self.transaction.prepare_cached(text)?;
        run(statement, row, values, Some(attempt_no(attempt)))
    }

    fn find(&self, id: &str, boot_id: &str, sequence: i64) -> rusqlite::Result<Option<Found>> {
        let mut find = self.transaction.prepare_cached(sql::FIND)?;
        let found = find.query_row(params![id, boot_id, sequence], |row| {
            Ok(Found {
                row: row.get(0)?,
                started_at: row.get(1)?,
                is_pending: row.get(2)?,
                attempt_is_pending: row.get(3)?,
                is_own: row.get(4)?,
            })
        });
        found.optional()
    }

    fn operation_shape(&mut self, values: &[Value<'_>]) -> rusqlite::Result<i64> {
        let (known, layout) = (
            &mut self.knowledge.operation_shapes,
            &self.knowledge.operations,
        );
        known.number(self.transaction, layout, values, self.highest)
    }

    fn attempt_shape(&mut self, values: &[Value<'_>]) -> rusqlite::Result<i64> {
        let (known, layout) = (&mut self.knowledge.attempt_shapes, &self.knowledge.attempts);
        known.number(self.transaction, layout, values, self.highest)
    }

    /// Usage that came after the end of its operation.
    pub(super) fn usage(&mut self, usage: &LateUsage) -> rusqlite::Result<usize> {
        let sequence = i64::try_from(usage.sequence).unwrap_or(i64::MAX);
        let own = renamed(&usage.operation_id, &usage.boot_id, sequence);
        let mut update = self.transaction.prepare_cached(sql::USAGE)?;
        for id in [&*usage.operation_id, &own] {
            let key = [
                Value::Text(id),
                Value::Text(&usage.boot_id),
                Value::Number(sequence),
            ];
            for (place, value) in (1..).zip(key.into_iter().chain(usage.values())) {
                update.raw_bind_parameter(place, Bound(value))?;
            }
            let changed = update.raw_execute()?;
            if changed > 0 {
                return Ok(changed);
            }
        }
        Ok(0)
    }
}

/// The highest row of the records.
pub(super) fn highest(transaction: &Transaction<'_>) -> rusqlite::Result<Option<i64>> {
    let mut highest = transaction.prepare_cached(sql::HIGHEST)?;
    highest.query_row([], |row| row.get(0))
}

/// The attempt that lies in the record itself, and the others.
fn split<'r, 'v, A: AsRef<[Value<'v>]>>(attempts: &'r [A]) -> (Option<&'r [Value<'v>]>, &'r [A]) {
    match attempts.split_first() {
        Some((first, others)) if attempt_no(first.as_ref()) == 1 => (Some(first.as_ref()), others),
        _ => (None, attempts),
    }
}

/// What a row of operations begins with: its id, its boot, its number there.
fn identity<'a>(operation: &[Value<'a>]) -> Option<(&'a str, &'a str, i64)> {
    match operation {
        [
            Value::Text(id),
            Value::Text(boot_id),
            Value::Number(sequence),
            ..,
        ] => Some((id, boot_id, *sequence)),
        _ => None,
    }
}

/// What a row of attempts has in its second place.
fn attempt_no(attempt: &[Value<'_>]) -> i64 {
    number(attempt, 1)
}

fn number(values: &[Value<'_>], at: usize) -> i64 {
    match values.get(at) {
        Some(Value::Number(number)) => *number,
        _ => 0,
    }
}

fn is_pending(layout: &Layout, values: &[Value<'_>]) -> bool {
    values.get(layout.state) == Some(&Value::Text(State::Pending.label()))
}

/// A row as it is kept: its shape, whether it is pending, and what it has for itself.
fn kept<'v>(
    layout: &Layout,
    values: &[Value<'v>],
    started: i64,
    shape: i64,
) -> impl Iterator<Item = Value<'v>> {
    let facts = layout.facts.iter().map(move |fact| {
        let value = values.get(fact.at).copied().unwrap_or(Value::Null);
        match (fact.how, value) {
            (How::Since, Value::Number(at)) => Value::Number(at.saturating_sub(started)),
            _ => value,
        }
    });
    let pending = Value::Flag(is_pending(layout, values));
    [Value::Number(shape), pending].into_iter().chain(facts)
}

/// The same of a row that there is not.
fn none_kept(layout: &Layout) -> impl Iterator<Item = Value<'static>> {
    let count = layout.facts.len().saturating_add(2);
    std::iter::repeat_n(Value::Null, count)
}

/// Binds a value, unless it is bound already.
fn bind_changed(
    statement: &mut CachedStatement<'_>,
    bound: &mut [Option<Value<'static>>],
    at: usize,
    value: Value<'_>,
) -> rusqlite::Result<()> {
    let kept = match value {
        Value::Text(_) => None,
        Value::Null => Some(Value::Null),
        Value::Number(number) => Some(Value::Number(number)),
        Value::Flag(flag) => Some(Value::Flag(flag)),
    };
    if let Some(before) = bound.get_mut(at) {
        if kept.is_some() && *before == kept {
            return Ok(());
        }
        *before = kept;
    }
    statement.raw_bind_parameter(at, Bound(value))
}

/// Runs a statement that takes a row, what is kept of it, and perhaps a number.
fn run<'v>(
    mut statement: CachedStatement<'_>,
    row: i64,
    kept: impl Iterator<Item = Value<'v>>,
    number: Option<i64>,
) -> rusqlite::Result<usize> {
    let values = std::iter::once(Value::Number(row)).chain(kept);
    for (place, value) in (1..).zip(values.chain(number.map(Value::Number))) {
        statement.raw_bind_parameter(place, Bound(value))?;
    }
    statement.raw_execute()
}

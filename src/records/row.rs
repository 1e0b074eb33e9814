//! A row by the names of its columns.

use crate::core::time::WallTime;
use crate::ledger::columns::{ATTEMPTS, OPERATIONS, Stored, StoredRecord, Table};

/// A row with its table. What a row does not have, because it is of another form, reads as nothing.
#[derive(Debug, Clone, Copy)]
pub struct Row<'a> {
    pub(super) table: &'static Table,
    pub(super) values: &'a [Stored],
}

impl<'a> Row<'a> {
    /// The operation's row.
    pub fn operation(record: &'a StoredRecord) -> Row<'a> {
        Row {
            table: &OPERATIONS,
            values: &record.operation,
        }
    }

    /// The rows of its attempts, in order.
    pub fn attempts(record: &'a StoredRecord) -> impl ExactSizeIterator<Item = Row<'a>> {
        record.attempts.iter().map(|values| Row {
            table: &ATTEMPTS,
            values,
        })
    }

    /// The text in a column; `None` when it is empty.
    pub fn text(self, column: &str) -> Option<&'a str> {
        match self.value(column)? {
            Stored::Text(text) => Some(text),
            Stored::Null | Stored::Number(_) | Stored::Flag(_) => None,
        }
    }

    /// The number in a column.
    pub fn number(self, column: &str) -> Option<i64> {
        match self.value(column)? {
            Stored::Number(number) => Some(*number),
            Stored::Null | Stored::Text(_) | Stored::Flag(_) => None,
        }
    }

    /// The flag in a column.
    pub fn flag(self, column: &str) -> Option<bool> {
        match self.value(column)? {
            Stored::Flag(flag) => Some(*flag),
            Stored::Null | Stored::Text(_) | Stored::Number(_) => None,
        }
    }

    /// The time in a column.
    pub fn time(self, column: &str) -> Option<WallTime> {
        self.number(column).map(WallTime::from_unix_micros)
    }

    fn value(self, column: &str) -> Option<&'a Stored> {
        let position = self.table.position(column);
        debug_assert!(
            position.is_some(),
            "{} has no column {column}",
            self.table.name
        );
        self.values.get(position?)
    }
}

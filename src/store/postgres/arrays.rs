//! Rows turned into columns: the arrays that a statement unnests, so that one statement with fixed text writes any number of rows.
//!
//! Invariant: every array has one value a row, and the kind of its column.

use tokio_postgres::types::ToSql;

use super::gathered::misshapen;
use super::schema::sql_type;
use crate::ledger::columns::{Kind, Table, Value};
use crate::ledger::store::StoreError;

enum Array<'a> {
    Text(Vec<Option<&'a str>>),
    Number(Vec<Option<i64>>),
    Flag(Vec<Option<bool>>),
}

/// Rows of a table.
pub(super) struct Arrays<'a> {
    table: &'static Table,
    columns: Vec<Array<'a>>,
    rows: usize,
}

impl<'a> Arrays<'a> {
    pub(super) fn of(table: &'static Table) -> Arrays<'a> {
        let columns = table.columns.iter().map(|column| match column.kind {
            Kind::Text => Array::Text(Vec::new()),
            Kind::Count | Kind::Time => Array::Number(Vec::new()),
            Kind::Flag => Array::Flag(Vec::new()),
        });
        Arrays {
            table,
            columns: columns.collect(),
            rows: 0,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.rows == 0
    }

    /// Adds a row, under this id instead of its own.
    pub(super) fn push(&mut self, id: &'a str, values: &[Value<'a>]) -> Result<(), StoreError> {
        if values.len() != self.columns.len() {
            return Err(misshapen(self.table));
        }
        let columns = self.table.columns.iter().zip(&mut self.columns);
        for ((column, array), value) in columns.zip(values) {
            let value = match column.name {
                "operation_id" => Value::Text(id),
                _ => *value,
            };
            match (array, value) {
                (Array::Text(texts), Value::Text(text)) => texts.push(Some(text)),
                (Array::Text(texts), Value::Null) => texts.push(None),
                (Array::Number(numbers), Value::Number(number)) => numbers.push(Some(number)),
                (Array::Number(numbers), Value::Null) => numbers.push(None),
                (Array::Flag(flags), Value::Flag(flag)) => flags.push(Some(flag)),
                (Array::Flag(flags), Value::Null) => flags.push(None),
                _ => return Err(misshapen(self.table)),
            }
        }
        self.rows = self.rows.saturating_add(1);
        Ok(())
    }

    pub(super) fn parameters(&self) -> Vec<&(dyn ToSql + Sync)> {
        let columns = self.columns.iter().map(|array| match array {
            Array::Text(texts) => texts as &(dyn ToSql + Sync),
            Array::Number(numbers) => numbers,
            Array::Flag(flags) => flags,
        });
        columns.collect()
    }
}

/// `$1::text[], $2::bigint[], ..` for a table.
pub(super) fn placeholders(table: &Table) -> String {
    let numbered = (1_usize..).zip(table.columns);
    let casts: Vec<String> = numbered
        .map(|(number, column)| format!("${number}::{}[]", sql_type(column.kind)))
        .collect();
    casts.join(", ")
}

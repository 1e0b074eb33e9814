//! What a batch says, row by row: each operation and each attempt once.
//!
//! Not here: SQL. Invariants: of two versions of a row in one batch the later stands, unless the earlier is terminal (R-L1), as if they
//! had been written one after the other; rows stand in the order of their keys, so that gateways lock them in one order.

use std::collections::BTreeMap;

use crate::core::settlement::State;
use crate::ledger::columns::{
    ATTEMPTS, OPERATIONS, Stored, Table, Value, attempt_values, operation_values,
};
use crate::ledger::store::{LateUsage, Piece, StoreError};

/// Names an operation over all processes: the boot, and its number there.
pub(super) type Owner<'a> = (&'a str, i64);

/// A row's values, in the order of its table's columns.
pub(super) type Values<'a> = Vec<Value<'a>>;

/// An operation with its attempts by number.
pub(super) struct Operation<'a> {
    /// The id that its client gave.
    pub(super) id: &'a str,
    pub(super) owner: Owner<'a>,
    pub(super) values: Values<'a>,
    pub(super) attempts: BTreeMap<i64, Values<'a>>,
}

/// A batch.
pub(super) struct Gathered<'a> {
    /// By id, then in the order in which they first came.
    pub(super) operations: Vec<Operation<'a>>,
    /// By id.
    pub(super) usages: Vec<&'a LateUsage>,
}

impl<'a> Gathered<'a> {
    pub(super) fn from(pieces: &'a [Piece]) -> Result<Gathered<'a>, StoreError> {
        let mut places: BTreeMap<Owner<'a>, usize> = BTreeMap::new();
        let mut operations: Vec<Operation<'a>> = Vec::new();
        let mut usages: BTreeMap<(&str, &str, u64), &LateUsage> = BTreeMap::new();
        for piece in pieces {
            let operation = match piece {
                Piece::Usage(usage) => {
                    let key = (&*usage.operation_id, &*usage.boot_id, usage.sequence);
                    let kept = usages.entry(key).or_insert(usage);
                    if kept.partial {
                        *kept = usage;
                    }
                    continue;
                }
                Piece::Live(record) => {
                    let attempts = record.attempts.iter();
                    let attempts = attempts.map(|attempt| attempt_values(record, attempt).into());
                    Operation::new(operation_values(record).into(), attempts)?
                }
                Piece::Spooled(record) => {
                    let attempts = record.attempts.iter().map(|row| borrowed(row));
                    Operation::new(borrowed(&record.operation), attempts)?
                }
            };
            let place = *places.entry(operation.owner).or_insert(operations.len());
            match operations.get_mut(place) {
                Some(earlier) => earlier.overwrite(operation),
                None => operations.push(operation),
            }
        }
        operations.sort_by_key(|operation| operation.id);
        Ok(Gathered {
            operations,
            usages: usages.into_values().collect(),
        })
    }
}

impl<'a> Operation<'a> {
    fn new(
        values: Values<'a>,
        rows: impl Iterator<Item = Values<'a>>,
    ) -> Result<Operation<'a>, StoreError> {
        let (id, boot, sequence) = (
            text(&OPERATIONS, &values, "operation_id")?,
            text(&OPERATIONS, &values, "boot_id")?,
            number(&OPERATIONS, &values, "sequence")?,
        );
        let mut attempts = BTreeMap::new();
        for row in rows {
            attempts.insert(number(&ATTEMPTS, &row, "attempt_no")?, row);
        }
        Ok(Operation {
            id,
            owner: (boot, sequence),
            values,
            attempts,
        })
    }

    pub(super) fn is_pending(&self) -> bool {
        is_pending(&OPERATIONS, &self.values)
    }

    fn overwrite(&mut self, later: Operation<'a>) {
        match (self.is_pending(), later.is_pending()) {
            (true, _) => self.values = later.values,
            // The past, and so are its attempts.
            (false, true) => return,
            (false, false) => {}
        }
        for (number, row) in later.attempts {
            let kept = self.attempts.get(&number);
            if kept.is_none_or(|kept| is_pending(&ATTEMPTS, kept)) {
                self.attempts.insert(number, row);
            }
        }
    }
}

fn borrowed(row: &[Stored]) -> Values<'_> {
    row.iter().map(Stored::value).collect()
}

fn is_pending(table: &Table, values: &[Value<'_>]) -> bool {
    get(table, values, "state") == Some(Value::Text(State::Pending.label()))
}

fn get<'a>(table: &Table, values: &[Value<'a>], name: &str) -> Option<Value<'a>> {
    values.get(table.position(name)?).copied()
}

fn text<'a>(table: &Table, values: &[Value<'a>], name: &str) -> Result<&'a str, StoreError> {
    match get(table, values, name) {
        Some(Value::Text(text)) => Ok(text),
        _ => Err(misshapen(table)),
    }
}

fn number(table: &Table, values: &[Value<'_>], name: &str) -> Result<i64, StoreError> {
    match get(table, values, name) {
        Some(Value::Number(number)) => Ok(number),
        _ => Err(misshapen(table)),
    }
}

/// What a row of the spool may be when another version wrote it.
pub(super) fn misshapen(table: &Table) -> StoreError {
    StoreError::Refused(format!("a row of {} has other columns", table.name))
}

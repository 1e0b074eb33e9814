//! The shapes that the writer knows by number, so that a row costs a hash and a comparison, and not a row of its own.
//!
//! Not here: what a shape holds ([`super::layout`]). Invariant: a shape is given to no row whose number is more than [`SPAN`] above the
//! highest that there was when it was made. So a shape is in no use, and may be deleted, once all rows are above that: no clock, no count
//! and no index is needed for it, and what is known to another process stays true.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hash, Hasher};

use foldhash::fast::RandomState;
use rusqlite::Transaction;

use super::layout::Layout;
use super::rows::Bound;
use crate::ledger::columns::{Stored, Value};

/// Rows for which a shape serves. Few enough that names of routes and models do not outlive their records for long, many enough that a
/// shape's own row is nothing beside them.
pub(super) const SPAN: i64 = 65_536;
/// Shapes that are known at a time; then all are forgotten and made anew. Some hundred bytes each.
const KNOWN_MAX: usize = 4_096;

#[derive(Debug)]
struct Shape {
    number: i64,
    /// The last row that it may be given to.
    until: i64,
    values: Box<[Stored]>,
}

/// The shapes of one table.
#[derive(Debug)]
pub(super) struct Shapes {
    insert: String,
    known: Vec<Shape>,
    /// From the hash of its values to its place. Of two with one hash, the later one.
    places: HashMap<u64, usize, RandomState>,
    hasher: RandomState,
}

impl Shapes {
    pub(super) fn new(layout: &Layout) -> Shapes {
        let names: String = layout
            .common_columns()
            .map(|column| format!(", {}", column.name))
            .collect();
        let values: String = (2..layout.common.len().saturating_add(2))
            .map(|place| format!(", ?{place}"))
            .collect();
        let table = layout.shapes;
        Shapes {
            insert: format!("INSERT INTO {table} (after_row{names}) VALUES (?1{values})"),
            known: Vec::new(),
            places: HashMap::default(),
            hasher: RandomState::default(),
        }
    }

    /// Forgets all of them: what was made in a transaction that failed is not there.
    pub(super) fn forget(&mut self) {
        self.known.clear();
        self.places.clear();
    }

    /// The number of the shape of these values, which a row gets while `row` is the highest.
    pub(super) fn number(
        &mut self,
        transaction: &Transaction<'_>,
        layout: &Layout,
        values: &[Value<'_>],
        row: i64,
    ) -> rusqlite::Result<i64> {
        let fits = |shape: &&Shape| row < shape.until && shape.is(layout, values);
        let mut hasher = self.hasher.build_hasher();
        common(layout, values).for_each(|value| value.hash(&mut hasher));
        let hash = hasher.finish();
        if let Some(at) = self.places.get(&hash).copied()
            && let Some(shape) = self.known.get(at).filter(fits)
        {
            return Ok(shape.number);
        }
        let mut insert = transaction.prepare_cached(&self.insert)?;
        insert.raw_bind_parameter(1, row)?;
        for (place, value) in (2..).zip(common(layout, values)) {
            insert.raw_bind_parameter(place, Bound(value))?;
        }
        insert.raw_execute()?;
        if self.known.len() >= KNOWN_MAX {
            self.forget();
        }
        let (at, number) = (self.known.len(), transaction.last_insert_rowid());
        self.known.push(Shape {
            number,
            until: row.saturating_add(SPAN),
            values: common(layout, values).map(Stored::from).collect(),
        });
        self.places.insert(hash, at);
        Ok(number)
    }
}

impl Shape {
    fn is(&self, layout: &Layout, values: &[Value<'_>]) -> bool {
        let mine = self.values.iter().map(Stored::value);
        mine.eq(common(layout, values))
    }
}

/// The part of a row's values that its shape holds.
fn common<'a>(layout: &Layout, values: &[Value<'a>]) -> impl Iterator<Item = Value<'a>> {
    let at = layout.common.iter();
    at.map(|at| values.get(*at).copied().unwrap_or(Value::Null))
}

//! Operations and sums, as the API answers them.

use serde::Serialize;
use serde::ser::{SerializeSeq, Serializer};

use crate::ledger::columns::StoredRecord;
use crate::ledger::store::{Sum, SumBy};
use crate::records::cursor;
use crate::records::json::{RecordView, SumView};
use crate::records::page::Page;

/// What came of asking the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(in crate::admin) enum StoreState {
    /// It answered.
    Ok,
    /// It did not; the answer is what memory has.
    Unavailable,
    /// There is none.
    Off,
}

/// A page of operations.
#[derive(Serialize)]
pub(in crate::admin) struct OperationsView<'a> {
    operations: Records<'a>,
    next: Option<String>,
    store: StoreState,
}

impl<'a> OperationsView<'a> {
    pub(in crate::admin) fn new(page: &'a Page, store: StoreState) -> OperationsView<'a> {
        OperationsView {
            operations: Records(&page.records),
            next: page.next.as_ref().map(cursor::to_text),
            store,
        }
    }
}

struct Records<'a>(&'a [StoredRecord]);

impl Serialize for Records<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.iter().map(RecordView))
    }
}

/// One operation. `others` have the same `x-request-id` and are older.
#[derive(Serialize)]
pub(in crate::admin) struct OperationView<'a> {
    pub(in crate::admin) operation: RecordView<'a>,
    pub(in crate::admin) others: usize,
    pub(in crate::admin) store: StoreState,
}

/// Sums by group.
#[derive(Serialize)]
pub(in crate::admin) struct SumsView<'a> {
    sums: Sums<'a>,
}

impl<'a> SumsView<'a> {
    pub(in crate::admin) fn new(by: SumBy, sums: &'a [Sum]) -> SumsView<'a> {
        SumsView {
            sums: Sums { by, sums },
        }
    }
}

struct Sums<'a> {
    by: SumBy,
    sums: &'a [Sum],
}

impl Serialize for Sums<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut list = serializer.serialize_seq(Some(self.sums.len()))?;
        for sum in self.sums {
            list.serialize_element(&SumView { by: self.by, sum })?;
        }
        list.end()
    }
}

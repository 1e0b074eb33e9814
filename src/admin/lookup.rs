//! The endpoints that look at records: in memory and, if there is one, in the store.
//!
//! Not here: how a page is put together ([`crate::records::page`]), threads and time limits ([`super::reading`]). Invariant: what
//! memory has is told even when the store does not answer, and the answer says so.

use std::sync::Arc;

use hyper::StatusCode;

use super::AdminHost;
use super::api::bad_query;
use super::server::{Answer, json, problem};
use super::views::{OperationView, OperationsView, StoreState, SumsView};
use crate::ledger::Record;
use crate::ledger::columns::StoredRecord;
use crate::ledger::store::{Query, Reader, StoreError};
use crate::records::ask::{PAGE_RECORDS_MAX, fits};
use crate::records::json::RecordView;
use crate::records::page::{self, Page};
use crate::records::query;

/// Whether the store may be asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Depth {
    /// Memory and the store. This blocks.
    Store,
    /// Memory alone, because the store took too long.
    Memory,
}

pub(super) fn operations(host: &dyn AdminHost, asked: Option<&str>, depth: Depth) -> Answer {
    match query::operations(asked, host.now().wall) {
        Ok(query) => {
            let (page, store) = look(host, &query, depth);
            json(StatusCode::OK, &OperationsView::new(&page, store))
        }
        Err(message) => bad_query(&message),
    }
}

/// The newest operation with this `x-request-id`; `id` is as it stands in the path.
pub(super) fn operation(
    host: &dyn AdminHost,
    id: &str,
    asked: Option<&str>,
    depth: Depth,
) -> Answer {
    if let Err(message) = query::refuse_any(asked) {
        return bad_query(&message);
    }
    let Some(id) = query::decode(id) else {
        return bad_query("the id is not percent-encoded UTF-8");
    };
    let query = Query {
        limit: PAGE_RECORDS_MAX,
        id: Some(id),
        ..Query::default()
    };
    let (page, store) = look(host, &query, depth);
    match (page.records.split_first(), store) {
        (Some((newest, others)), _) => {
            let view = OperationView {
                operation: RecordView(newest),
                others: others.len(),
                store,
            };
            json(StatusCode::OK, &view)
        }
        (None, StoreState::Unavailable) => unavailable(),
        (None, StoreState::Ok | StoreState::Off) => {
            let text = "no operation has this id, or its record was deleted";
            problem(StatusCode::NOT_FOUND, "not_found", text)
        }
    }
}

pub(super) fn sums(host: &dyn AdminHost, asked: Option<&str>, depth: Depth) -> Answer {
    let (by, since) = match query::sums(asked, host.now().wall) {
        Ok(asked) => asked,
        Err(message) => return bad_query(&message),
    };
    match (host.reader(), depth) {
        (None, _) => {
            let text = "sums are made by the store, and ledger.store is off";
            problem(StatusCode::NOT_FOUND, "no_store", text)
        }
        (Some(_), Depth::Memory) => unavailable(),
        (Some(reader), Depth::Store) => match reader.sums(by, since) {
            Ok(sums) => json(StatusCode::OK, &SumsView::new(by, &sums)),
            Err(error) => {
                warn(&error);
                unavailable()
            }
        },
    }
}

fn look(host: &dyn AdminHost, query: &Query, depth: Depth) -> (Page, StoreState) {
    let wide = page::one_more(query);
    let memory = host.recent(wide.limit, &|record| fits(query, record));
    let reader = match (host.reader(), depth) {
        (None, _) => return (page::of_memory(query, &memory), StoreState::Off),
        (Some(_), Depth::Memory) => {
            return (page::of_memory(query, &memory), StoreState::Unavailable);
        }
        (Some(reader), Depth::Store) => reader,
    };
    match read(&*reader, &wide) {
        Some(stored) => (with_stored(host, query, &memory, stored), StoreState::Ok),
        None => (page::of_memory(query, &memory), StoreState::Unavailable),
    }
}

fn with_stored(
    host: &dyn AdminHost,
    query: &Query,
    memory: &[Arc<Record>],
    stored: Vec<StoredRecord>,
) -> Page {
    let now = host.recent(stored.len(), &page::again(&stored));
    page::merge(query, memory, stored, &now)
}

fn read(reader: &dyn Reader, query: &Query) -> Option<Vec<StoredRecord>> {
    match reader.find(query) {
        Ok(stored) => Some(stored),
        Err(error) => {
            warn(&error);
            None
        }
    }
}

fn warn(error: &StoreError) {
    log::warn!("records cannot be read from the store: {error}");
}

fn unavailable() -> Answer {
    let text = "the store of records does not answer; the log says why";
    problem(StatusCode::SERVICE_UNAVAILABLE, "store_unavailable", text)
}

//! What one request carries. Dropping it settles what is dropped.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::StatusCode;

use super::host::{Observer, Refusal, Stamp};
use super::inflight::Flight;
use super::operation::{OperationCell, Surroundings};
use super::prepared::Prepared;
use crate::core::api::Api;
use crate::core::time::MonoTime;
use crate::policy::buffered::Reservation;
use crate::policy::overload::Overload;
use crate::policy::seats::Seat;
use crate::providers::answer::RequestTraits;
use crate::providers::inbound::{GeminiVerb, Version};
use crate::providers::scan::Scan;

/// The context of one request.
pub struct RequestCtx {
    observer: Arc<dyn Observer>,
    /// The operation, once the request has become one.
    pub operation: Option<Operation>,
    /// What it has of the process's bounds; given back when it is over, or refused.
    pub seats: Vec<Seat>,
    /// Last, so that it is dropped last: who sees no request in flight sees no held body either.
    _flight: Flight,
}

/// An operation with what its attempts are made from.
pub struct Operation {
    /// The shared part.
    pub cell: Arc<OperationCell>,
    /// The configuration it began with, with its providers ready.
    pub config: Arc<Prepared>,
    /// The pristine body, as long as another attempt may need it.
    pub body: Bytes,
    /// What the scan of it found.
    pub scan: Scan,
    /// Verb of a Gemini path.
    pub verb: Option<GeminiVerb>,
    /// The version of the API that the client's path names.
    pub version: Version,
    /// The client's query.
    pub query: Option<Box<str>>,
    /// The operation's deadline.
    pub deadline: MonoTime,
    /// What matters for reading answers.
    pub traits: RequestTraits,
    /// The body's share of the process's account; given back with the body.
    pub reservation: Reservation,
}

impl Operation {
    /// The head of an answer goes to the client: nothing is sent again.
    pub fn commit(&mut self, status: StatusCode) {
        self.cell.committed(status.as_u16());
        self.release_body();
    }

    /// Lets go of the body: nothing is sent again once an answer has begun, and the answer may take long (R-L3).
    fn release_body(&mut self) {
        self.body = Bytes::new();
        self.reservation.shrink_to(0);
    }
}

impl RequestCtx {
    /// The context of a request whose head was read.
    pub fn open(around: &Surroundings) -> RequestCtx {
        let flight = around.inflight.enter();
        around.observer.request_opened();
        RequestCtx {
            observer: Arc::clone(&around.observer),
            operation: None,
            seats: Vec::new(),
            _flight: flight,
        }
    }

    /// The shared part of the operation.
    pub fn cell(&self) -> Option<&Arc<OperationCell>> {
        self.operation.as_ref().map(|operation| &operation.cell)
    }

    /// The request was refused before it became an operation.
    pub fn refused(&mut self, who: &Requester, told: Told, now: Stamp) {
        // From here on it is only told so, which must not keep others out.
        self.seats.clear();
        let latency: Duration = now.mono.since(who.started.mono);
        let (id, api) = (Arc::clone(&who.id), who.api);
        let Told {
            route,
            status,
            code,
            overload,
        } = told;
        if let Some(limit) = overload {
            self.observer.overloaded(limit);
        }
        self.observer.refused(&Refusal {
            id,
            route,
            api,
            status,
            code,
            overload,
            latency,
        });
    }
}

/// What a refused client is told.
pub struct Told {
    /// The route, when one was found.
    pub route: Option<Arc<str>>,
    /// HTTP status.
    pub status: u16,
    /// The stable code.
    pub code: &'static str,
    /// The bound at which it was turned away, if it was that.
    pub overload: Option<Overload>,
}

/// What is known of a request before it is an operation.
#[derive(Debug, Clone)]
pub struct Requester {
    /// `x-request-id`.
    pub id: Arc<str>,
    /// When its header was complete.
    pub started: Stamp,
    /// Its API format, when the path named one.
    pub api: Option<Api>,
}

impl Drop for RequestCtx {
    fn drop(&mut self) {
        if let Some(operation) = &self.operation {
            operation.cell.report_end();
        }
        self.observer.request_closed();
    }
}

//! The JSON endpoints: what is asked of the host, in the shapes of [`super::views`]. Those of operations are in [`super::lookup`].

use hyper::StatusCode;

use super::AdminHost;
use super::server::{Answer, json, problem};
use super::views::{ConfigView, ReloadOutcome, RoutesView};
use crate::explain::{self, Live, Request, Unexplained};
use crate::records::query::{self, refuse_any};

pub(super) fn routes(host: &dyn AdminHost, query: Option<&str>) -> Answer {
    if let Err(message) = refuse_any(query) {
        return bad_query(&message);
    }
    let (snapshot, now) = (host.snapshot(), host.now().mono);
    let view = RoutesView::new(&snapshot, now, |route| host.counters(route));
    json(StatusCode::OK, &view)
}

/// What would be done with a request at this moment. The client's headers are the query's, never those of who asks.
pub(super) fn explain(host: &dyn AdminHost, query: Option<&str>) -> Answer {
    let asked = match query::explain(query) {
        Ok(asked) => asked,
        Err(message) => return bad_query(&message),
    };
    let (snapshot, now) = (host.snapshot(), host.now());
    let request = Request {
        model: &asked.model,
        api: asked.api,
        body: None,
        stream: asked.stream,
        headers: &asked.headers,
        client_key: asked.client_key.as_deref(),
        wall: now.wall,
    };
    match explain::explain(&snapshot, &request, Some(Live { now: now.mono })) {
        Ok(explanation) => json(StatusCode::OK, &explain::to_json(&explanation)),
        Err(unexplained) => {
            let message = unexplained.to_string();
            match unexplained {
                Unexplained::UnknownModel { .. } => {
                    problem(StatusCode::NOT_FOUND, "model_not_found", &message)
                }
                Unexplained::UnknownClientKey { .. } | Unexplained::Body { .. } => {
                    bad_query(&message)
                }
            }
        }
    }
}

pub(super) fn config(host: &dyn AdminHost, query: Option<&str>) -> Answer {
    if let Err(message) = refuse_any(query) {
        return bad_query(&message);
    }
    let view = ConfigView::new(
        &host.snapshot(),
        host.effective_config(),
        host.loaded_at(),
        host.last_error(),
    );
    json(StatusCode::OK, &view)
}

pub(super) fn reload(host: &dyn AdminHost, query: Option<&str>) -> Answer {
    if let Err(message) = refuse_any(query) {
        return bad_query(&message);
    }
    let report = host.reload();
    let status = match report.result {
        ReloadOutcome::Success | ReloadOutcome::Unchanged => StatusCode::OK,
        ReloadOutcome::Failure => StatusCode::BAD_REQUEST,
        ReloadOutcome::Busy => StatusCode::CONFLICT,
    };
    json(status, &report)
}

pub(super) fn bad_query(message: &str) -> Answer {
    problem(StatusCode::BAD_REQUEST, "bad_query", message)
}

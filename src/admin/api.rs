//! The JSON endpoints: what is asked of the host, in the shapes of [`super::views`]. Those of operations are in [`super::lookup`].

use hyper::StatusCode;

use super::AdminHost;
use super::query::refuse_any;
use super::server::{Answer, json, problem};
use super::views::{ConfigView, ReloadOutcome, RoutesView};

pub(super) fn routes(host: &dyn AdminHost, query: Option<&str>) -> Answer {
    if let Err(message) = refuse_any(query) {
        return bad_query(&message);
    }
    let (snapshot, now) = (host.snapshot(), host.now().mono);
    let view = RoutesView::new(&snapshot, now, |route| host.counters(route));
    json(StatusCode::OK, &view)
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

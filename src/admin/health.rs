//! Whether the process runs, and whether it takes requests.

use hyper::StatusCode;
use serde_json::json;

use super::server::{self, Answer};

/// The process runs: it could write this.
pub(super) fn healthz() -> Answer {
    server::json(StatusCode::OK, &json!({ "status": "ok" }))
}

/// 503 before a configuration is loaded and while draining, so that a balancer looks elsewhere.
pub(super) fn readyz(is_ready: bool) -> Answer {
    if is_ready {
        server::json(StatusCode::OK, &json!({ "status": "ready" }))
    } else {
        let status = StatusCode::SERVICE_UNAVAILABLE;
        server::json(status, &json!({ "status": "not_ready" }))
    }
}

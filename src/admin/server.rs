//! The endpoints, and their one door. Each answer is made whole by [`Admin::respond`]; Pingora only carries it.
//!
//! | endpoint | answers | open |
//! |---|---|---|
//! | `GET /healthz` | the process runs | always |
//! | `GET /readyz` | requests are welcome, else 503 | always |
//! | `GET /admin` | the page; it holds no data of its own | always |
//! | `GET /metrics` | Prometheus text | with the token, if one is set |
//! | `GET /admin/api/operations` | operations with their attempts, newest first, page by page | likewise |
//! | `GET /admin/api/operations/{id}` | the newest operation with this `x-request-id` | likewise |
//! | `GET /admin/api/operations/sums` | sums of the store by route, target, key or state | likewise |
//! | `GET /admin/api/routes` | live state of routes and targets | likewise |
//! | `GET /admin/api/explain` | what would be done with a request at this moment | likewise |
//! | `GET /admin/api/config` | the effective configuration, redacted | likewise |
//! | `POST /admin/api/reload` | reads the configuration again | likewise |
//!
//! `HEAD` is `GET` without the body. Everything else is 404 or 405, as JSON.

use std::sync::Arc;

use async_trait::async_trait;
use hyper::header::{self, HeaderName, HeaderValue};
use hyper::{HeaderMap, Response, StatusCode, Uri};
use pingora_core::apps::http_app::ServeHttp;
use pingora_core::protocols::http::ServerSession;
use pingora_core::services::listening::Service;
use serde::Serialize;

use super::access::{self, Denied};
use super::lookup::{self, Depth};
use super::reading::Readings;
use super::{AdminHost, api, health, page};
use crate::policy::secret::Secret;

/// A whole answer.
pub(super) type Answer = Response<Vec<u8>>;

/// The admin plane's HTTP application.
#[derive(Clone)]
pub struct Admin {
    host: Arc<dyn AdminHost>,
    readings: Readings,
}

impl std::fmt::Debug for Admin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Admin")
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Endpoint<'a> {
    Healthz,
    Readyz,
    Page,
    Metrics,
    Operations,
    /// Of this id, as it stands in the path.
    Operation(&'a str),
    Sums,
    Routes,
    Explain,
    Config,
    Reload,
}

impl<'a> Endpoint<'a> {
    fn of(path: &'a str) -> Option<Endpoint<'a>> {
        Some(match path {
            "/healthz" => Endpoint::Healthz,
            "/readyz" => Endpoint::Readyz,
            "/admin" | "/admin/" => Endpoint::Page,
            "/metrics" => Endpoint::Metrics,
            "/admin/api/operations" => Endpoint::Operations,
            "/admin/api/operations/sums" => Endpoint::Sums,
            "/admin/api/routes" => Endpoint::Routes,
            "/admin/api/explain" => Endpoint::Explain,
            "/admin/api/config" => Endpoint::Config,
            "/admin/api/reload" => Endpoint::Reload,
            _ => {
                let id = path.strip_prefix("/admin/api/operations/")?;
                let is_one = !id.is_empty() && !id.contains('/');
                return is_one.then_some(Endpoint::Operation(id));
            }
        })
    }

    /// Whether the store may be asked, so that the answer may take long.
    const fn looks_at_records(self) -> bool {
        matches!(
            self,
            Endpoint::Operations | Endpoint::Operation(_) | Endpoint::Sums
        )
    }

    const fn methods(self) -> &'static str {
        match self {
            Endpoint::Reload => "POST",
            Endpoint::Healthz
            | Endpoint::Readyz
            | Endpoint::Page
            | Endpoint::Metrics
            | Endpoint::Operations
            | Endpoint::Operation(_)
            | Endpoint::Sums
            | Endpoint::Routes
            | Endpoint::Explain
            | Endpoint::Config => "GET, HEAD",
        }
    }

    const fn is_open(self) -> bool {
        matches!(self, Endpoint::Healthz | Endpoint::Readyz | Endpoint::Page)
    }
}

impl Admin {
    /// The application for this process.
    pub fn new(host: Arc<dyn AdminHost>) -> Admin {
        Admin {
            host,
            readings: Readings::default(),
        }
    }

    /// The application as a Pingora service, without listeners yet.
    pub fn service(host: Arc<dyn AdminHost>) -> Service<Admin> {
        Service::new("admin".to_owned(), Admin::new(host))
    }

    /// Answers a request. For records this asks the store, and so may block.
    pub fn respond(
        &self,
        method: &str,
        path: &str,
        query: Option<&str>,
        headers: &HeaderMap,
    ) -> Response<Vec<u8>> {
        let target = (path, query);
        self.respond_from(method, target, headers, Depth::Store)
    }

    fn respond_from(
        &self,
        method: &str,
        target: (&str, Option<&str>),
        headers: &HeaderMap,
        depth: Depth,
    ) -> Answer {
        let mut answer = self.route(method, target, headers, depth);
        let length = HeaderValue::from(answer.body().len());
        answer.headers_mut().insert(header::CONTENT_LENGTH, length);
        if method == "HEAD" {
            answer.body_mut().clear();
        }
        answer
    }

    fn route(
        &self,
        method: &str,
        (path, query): (&str, Option<&str>),
        headers: &HeaderMap,
        depth: Depth,
    ) -> Answer {
        let Some(endpoint) = Endpoint::of(path) else {
            return problem(StatusCode::NOT_FOUND, "not_found", "no such endpoint");
        };
        let allowed = endpoint.methods();
        if !allowed.split(", ").any(|allowed| allowed == method) {
            let text = format!("this endpoint answers {allowed}");
            let answer = problem(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", &text);
            return with_header(answer, header::ALLOW, allowed);
        }
        if !endpoint.is_open()
            && let Err(denied) = self.admit(method, headers)
        {
            return deny(denied);
        }
        let host = &*self.host;
        match endpoint {
            Endpoint::Healthz => health::healthz(),
            Endpoint::Readyz => health::readyz(host.is_ready()),
            Endpoint::Page => page::page(),
            Endpoint::Metrics => text("text/plain; version=0.0.4; charset=utf-8", host.metrics()),
            Endpoint::Operations => lookup::operations(host, query, depth),
            Endpoint::Operation(id) => lookup::operation(host, id, query, depth),
            Endpoint::Sums => lookup::sums(host, query, depth),
            Endpoint::Routes => api::routes(host, query),
            Endpoint::Explain => api::explain(host, query),
            Endpoint::Config => api::config(host, query),
            Endpoint::Reload => api::reload(host, query),
        }
    }

    /// Answers a request about records: from memory alone when the store takes too long.
    async fn look(&self, method: &str, uri: &Uri, headers: &HeaderMap) -> Answer {
        let answer = {
            let (admin, method) = (self.clone(), method.to_owned());
            let (uri, headers) = (uri.clone(), headers.clone());
            self.readings
                .run(move || admin.respond(&method, uri.path(), uri.query(), &headers))
                .await
        };
        answer.unwrap_or_else(|| {
            log::warn!("records cannot be read from the store in time");
            let target = (uri.path(), uri.query());
            self.respond_from(method, target, headers, Depth::Memory)
        })
    }

    fn admit(&self, method: &str, headers: &HeaderMap) -> Result<(), Denied> {
        let snapshot = self.host.snapshot();
        let token = snapshot.admin.token.as_ref().map(Secret::expose);
        access::admit(token, method, headers)
    }
}

#[async_trait]
impl ServeHttp for Admin {
    async fn response(&self, session: &mut ServerSession) -> Response<Vec<u8>> {
        let (method, uri, headers) = {
            let head = session.req_header();
            (head.method.clone(), head.uri.clone(), head.headers.clone())
        };
        let asked = Endpoint::of(uri.path());
        if method != "POST" && asked.is_some_and(Endpoint::looks_at_records) {
            return self.look(method.as_str(), &uri, &headers).await;
        }
        if method != "POST" {
            return self.respond(method.as_str(), uri.path(), uri.query(), &headers);
        }
        // A body that came along is not read: the connection ends with the answer. A reload reads files, so it gets its own thread.
        session.set_keepalive(None);
        let admin = self.clone();
        let task = tokio::task::spawn_blocking(move || {
            admin.respond(method.as_str(), uri.path(), uri.query(), &headers)
        });
        task.await.unwrap_or_else(|_| {
            let text = "the reload broke off; the snapshot in force stays";
            problem(StatusCode::INTERNAL_SERVER_ERROR, "internal", text)
        })
    }
}

fn deny(denied: Denied) -> Answer {
    match denied {
        Denied::Token => {
            let text = "the admin token is needed as `authorization: Bearer ...`";
            let answer = problem(StatusCode::UNAUTHORIZED, "unauthorized", text);
            with_header(answer, header::WWW_AUTHENTICATE, "Bearer")
        }
        Denied::Host => {
            let text = "without an admin token only a loopback host name is answered";
            problem(StatusCode::FORBIDDEN, "foreign_host", text)
        }
        Denied::Origin => {
            let text = "requests that another site's page makes are refused";
            problem(StatusCode::FORBIDDEN, "foreign_origin", text)
        }
    }
}

/// An error of the admin plane.
pub(super) fn problem(status: StatusCode, code: &'static str, message: &str) -> Answer {
    let error = serde_json::json!({ "code": code, "message": message });
    json(status, &serde_json::json!({ "error": error }))
}

/// An answer in JSON.
pub(super) fn json(status: StatusCode, value: &impl Serialize) -> Answer {
    let (status, body) = match serde_json::to_string(value) {
        Ok(body) => (status, body),
        Err(error) => {
            log::error!("an admin answer cannot be written: {error}");
            (StatusCode::INTERNAL_SERVER_ERROR, "{}".to_owned())
        }
    };
    let mut answer = text("application/json", body);
    *answer.status_mut() = status;
    answer
}

/// A 200 answer of this type. Live state is never cached, and never taken for another type.
pub(super) fn text(content_type: &'static str, body: String) -> Answer {
    let answer = Response::new(body.into_bytes());
    let answer = with_header(answer, header::CONTENT_TYPE, content_type);
    let answer = with_header(answer, header::CACHE_CONTROL, "no-store");
    with_header(answer, header::X_CONTENT_TYPE_OPTIONS, "nosniff")
}

pub(super) fn with_header(mut answer: Answer, name: HeaderName, value: &'static str) -> Answer {
    let value = HeaderValue::from_static(value);
    answer.headers_mut().insert(name, value);
    answer
}

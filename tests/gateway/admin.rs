//! The admin plane's endpoints, through the function that Pingora's application wraps, and once through a socket.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::IntoRawFd;
use std::sync::Arc;

use hyper::{HeaderMap, StatusCode};
use parking_lot::Mutex;
use pingora_core::server::Fds;
use pingora_core::services::Service as _;
use rondo::admin::{Admin, AdminHost, ReloadOutcome, ReloadReport};
use rondo::config::effective;
use rondo::core::time::WallTime;
use rondo::ledger::Record;
use rondo::ledger::store::Reader;
use rondo::policy::secret::Secret;
use rondo::policy::snapshot::Snapshot;
use rondo::proxy::host::Stamp;
use rondo::telemetry::{RouteCounters, Telemetry};
use serde_json::Value;

use crate::reader::Shelf;
use crate::world::{Does, World};

pub struct Host {
    snapshot: Arc<Snapshot>,
    pub telemetry: Arc<Telemetry>,
    now: Stamp,
    is_ready: bool,
    reload: ReloadOutcome,
    pub shelf: Option<Arc<Shelf>>,
}

impl AdminHost for Host {
    fn snapshot(&self) -> Arc<Snapshot> {
        Arc::clone(&self.snapshot)
    }
    fn is_ready(&self) -> bool {
        self.is_ready
    }
    fn effective_config(&self) -> Value {
        effective(&self.snapshot)
    }
    fn loaded_at(&self) -> WallTime {
        WallTime::from_unix_micros(0)
    }
    fn last_error(&self) -> Option<String> {
        Some("rondo.yaml:1:1: no".to_owned())
    }
    fn reload(&self) -> ReloadReport {
        ReloadReport {
            result: self.reload,
            errors: Vec::new(),
            needs_restart: vec!["server.listen".to_owned()],
        }
    }
    fn recent(&self, limit: usize, fits: &dyn Fn(&Record) -> bool) -> Vec<Arc<Record>> {
        self.telemetry.recent(limit, fits)
    }
    fn reader(&self) -> Option<Arc<dyn Reader>> {
        self.shelf.clone().map(|shelf| shelf as _)
    }
    fn counters(&self, route: &str) -> RouteCounters {
        self.telemetry.counters(route)
    }
    fn metrics(&self) -> String {
        self.telemetry.render()
    }
    fn now(&self) -> Stamp {
        self.now
    }
}

/// A process that has served four operations.
pub fn host() -> Host {
    let mut world = World::new();
    world.run(0, "one", &[Does::Answer]);
    world.run(0, "two", &[Does::Break, Does::Answer]);
    world.run(1, "three", &[Does::Answer]);
    world.run(0, "four", &[Does::Throttle, Does::Answer]);
    Host {
        now: world.now(),
        snapshot: world.snapshot,
        telemetry: world.telemetry,
        is_ready: true,
        reload: ReloadOutcome::Success,
        shelf: None,
    }
}

fn with_token(mut host: Host, token: &str) -> Host {
    let mut snapshot = crate::compiled::compiled(crate::world::YAML, Some(&host.snapshot));
    Arc::get_mut(&mut snapshot).unwrap().admin.token = Some(Secret::new(token));
    host.snapshot = snapshot;
    host
}

fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
    let pairs = pairs.iter();
    pairs
        .map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()))
        .collect()
}

pub fn get(host: Host, target: &str) -> (StatusCode, Value) {
    let (path, query) = match target.split_once('?') {
        Some((path, query)) => (path, Some(query)),
        None => (target, None),
    };
    let answer = Admin::new(Arc::new(host)).respond("GET", path, query, &HeaderMap::new());
    let length = answer.headers()["content-length"].to_str().unwrap();
    assert_eq!(length, answer.body().len().to_string());
    assert_eq!(answer.headers()["content-type"], "application/json");
    let body = serde_json::from_slice(answer.body()).unwrap();
    (answer.status(), body)
}

pub fn ids(body: &Value) -> Vec<&str> {
    let operations = body["operations"].as_array().unwrap();
    operations
        .iter()
        .map(|operation| operation["operation_id"].as_str().unwrap())
        .collect()
}

#[test]
fn operations_come_newest_first_with_their_attempts() {
    let (status, body) = get(host(), "/admin/api/operations");
    assert_eq!(status, StatusCode::OK);
    assert_eq!(ids(&body), ["four", "three", "two", "one"]);
    let two = &body["operations"][2];
    assert_eq!(
        (&two["state"], &two["sends"]),
        (&"succeeded".into(), &2.into())
    );
    let attempts = two["attempts"].as_array().unwrap();
    assert_eq!(attempts.len(), 2);
    assert_eq!(attempts[0]["delivery"], "refused");
    assert_eq!(attempts[0]["decision"], "next_target");
    assert_eq!(attempts[0]["http_status"], 500);
    assert_eq!(attempts[1]["upstream_model"], "gpt-prod");
    assert!(two["started_at"].as_str().unwrap().ends_with('Z'));
    assert!(!body.to_string().contains("sk-very-secret"));
}

#[test]
fn operations_are_filtered() {
    let check = |query: &str, expected: &[&str]| {
        let (status, body) = get(host(), &format!("/admin/api/operations?{query}"));
        assert_eq!(status, StatusCode::OK, "{query}");
        assert_eq!(ids(&body), expected, "{query}");
    };
    check("limit=1", &["four"]);
    check("route=plain", &["three"]);
    check("target=backup", &["four", "two"]);
    check("id=tw%6f", &["two"]);
    check("state=pending", &[]);
    check("state=succeeded&route=gpt&limit=2", &["four", "two"]);
}

#[test]
fn a_bad_query_is_refused_with_what_is_allowed() {
    let check = |query: &str, says: &str| {
        let (status, body) = get(host(), &format!("/admin/api/operations?{query}"));
        assert_eq!(status, StatusCode::BAD_REQUEST, "{query}");
        let message = body["error"]["message"].as_str().unwrap();
        assert!(message.contains(says), "{query}: {message}");
    };
    for limit in [
        "limit=0",
        "limit=1025",
        "limit=-1",
        "limit=+1",
        "limit=",
        "limit=x",
    ] {
        check(limit, "from 1 to 1024");
    }
    check("state=done", "one of: pending, succeeded");
    check(
        "limt=3",
        "allowed: limit, route, state, target, id, since, before",
    );
    check("limit=1&limit=2", "given twice");
    check("id=%zz", "percent-encoded");
    check("id=%ff", "percent-encoded");
    check(&format!("id={}", "a".repeat(3000)), "longer than 2048");
    let (status, _) = get(host(), "/admin/api/routes?x=1");
    assert_eq!(status, StatusCode::BAD_REQUEST);
}

#[test]
fn routes_show_live_state_and_counters() {
    let host = host();
    let target = &host.snapshot.routes[0].targets[1];
    let until = host
        .now
        .mono
        .after(std::time::Duration::from_micros(1_500_001));
    target.keys[0].cooldown.extend(until);
    let (status, body) = get(host, "/admin/api/routes");
    assert_eq!(status, StatusCode::OK);
    let route = &body["routes"][0];
    assert_eq!(
        (&route["name"], &route["mode"]),
        (&"gpt".into(), &"priority_failover".into())
    );
    assert_eq!(route["models"][0], "gpt-x");
    assert_eq!(route["waiting"], 0);
    assert_eq!(route["budgets"]["sends_max"], 4);
    assert_eq!(route["budgets"]["wait_max_ms"], 2000);
    let [primary, backup] = &route["targets"].as_array().unwrap()[..] else {
        panic!("two targets")
    };
    assert_eq!(
        (&primary["sends"], &backup["sends"]),
        (&3.into(), &2.into())
    );
    assert_eq!(primary["attempts"]["rejected"], 1);
    assert_eq!(backup["cooling_for_ms"], 1501);
    assert_eq!(backup["keys"][0]["state"], "cooling");
    assert_eq!(backup["keys"][0]["for_ms"], 1501);
    assert_eq!(primary["ownership"], "external");
    assert_eq!(
        (&backup["model"], &backup["provider"]),
        (&"gpt-prod".into(), &"acme".into())
    );
}

#[test]
fn the_configuration_is_shown_redacted() {
    let (status, body) = get(host(), "/admin/api/config");
    assert_eq!(status, StatusCode::OK);
    assert_eq!(body["loaded_at"], "1970-01-01T00:00:00.000000Z");
    assert_eq!(body["last_error"], "rondo.yaml:1:1: no");
    assert!(body["config"]["routes"].is_array());
    assert!(!body.to_string().contains("sk-very-secret"));
}

#[test]
fn health_and_readiness_differ() {
    let mut draining = host();
    draining.is_ready = false;
    assert_eq!(get(draining, "/readyz").0, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(get(host(), "/readyz").0, StatusCode::OK);
    let mut draining = host();
    draining.is_ready = false;
    assert_eq!(get(draining, "/healthz").0, StatusCode::OK);
}

// R-C2: the answer says what happened and what waits for a restart.
#[test]
fn a_reload_answers_with_its_result() {
    let cases = [
        (ReloadOutcome::Success, 200, "success"),
        (ReloadOutcome::Unchanged, 200, "unchanged"),
        (ReloadOutcome::Failure, 400, "failure"),
        (ReloadOutcome::Busy, 409, "busy"),
    ];
    for (outcome, status, label) in cases {
        let mut host = host();
        host.reload = outcome;
        let admin = Admin::new(Arc::new(host));
        let answer = admin.respond("POST", "/admin/api/reload", None, &HeaderMap::new());
        assert_eq!(answer.status().as_u16(), status);
        let body: Value = serde_json::from_slice(answer.body()).unwrap();
        assert_eq!(body["result"], label);
        assert_eq!(body["needs_restart"][0], "server.listen");
    }
}

#[test]
fn everything_else_is_404_or_405_as_json() {
    let admin = Admin::new(Arc::new(host()));
    let none = HeaderMap::new();
    for path in [
        "/",
        "/admin/api",
        "/admin/api/operations/",
        "/v1/models",
        "/metrics/",
    ] {
        let (status, body) = get(host(), path);
        assert_eq!(status, StatusCode::NOT_FOUND, "{path}");
        assert_eq!(body["error"]["code"], "not_found");
    }
    let answer = admin.respond("GET", "/admin/api/reload", None, &none);
    assert_eq!(
        (answer.status().as_u16(), &answer.headers()["allow"]),
        (405, &"POST".parse().unwrap())
    );
    let answer = admin.respond("DELETE", "/metrics", None, &none);
    assert_eq!(answer.status().as_u16(), 405);
    let answer = admin.respond("HEAD", "/admin", None, &none);
    assert_eq!((answer.status().as_u16(), answer.body().len()), (200, 0));
    assert_ne!(answer.headers()["content-length"], "0");
}

// R-X2: with a token, nothing but health and the empty page is told without it.
#[test]
fn the_token_guards_what_is_worth_guarding() {
    let admin = Admin::new(Arc::new(with_token(host(), "s3cret")));
    let guarded = [
        ("GET", "/metrics"),
        ("GET", "/admin/api/operations"),
        ("GET", "/admin/api/operations/two"),
        ("GET", "/admin/api/routes"),
        ("GET", "/admin/api/config"),
        ("POST", "/admin/api/reload"),
    ];
    for (method, path) in guarded {
        let status = |value: Option<&str>| {
            let given: Vec<_> = value.map(|v| ("authorization", v)).into_iter().collect();
            admin
                .respond(method, path, None, &headers(&given))
                .status()
                .as_u16()
        };
        let wrong = [
            "Bearer",
            "Bearer ",
            "Bearer s3cre",
            "Bearer s3cret0",
            "Bearer s3creT",
            "s3cret",
            "Basic s3cret",
        ];
        assert_eq!(status(None), 401, "{path}");
        for value in wrong {
            assert_eq!(status(Some(value)), 401, "{path} {value}");
        }
        assert_eq!(status(Some("bearer s3cret")), 200, "{path}");
    }
    for path in ["/healthz", "/readyz", "/admin"] {
        let answer = admin.respond("GET", path, None, &HeaderMap::new());
        assert_eq!(answer.status().as_u16(), 200, "{path}");
    }
}

// Without a token, a web page in the operator's browser must reach nothing: neither by a name that resolves here nor across sites.
#[test]
fn a_foreign_page_reaches_nothing() {
    let admin = Admin::new(Arc::new(host()));
    let status = |method: &str, path: &str, pairs: &[(&'static str, &str)]| {
        admin
            .respond(method, path, None, &headers(pairs))
            .status()
            .as_u16()
    };
    let config = "/admin/api/config";
    assert_eq!(status("GET", config, &[("host", "evil.example:9090")]), 403);
    assert_eq!(
        status("GET", config, &[("host", "127.0.0.1.evil.example")]),
        403
    );
    for host in [
        "127.0.0.1:9090",
        "localhost:9090",
        "[::1]:9090",
        "LOCALHOST",
    ] {
        assert_eq!(status("GET", config, &[("host", host)]), 200, "{host}");
    }
    let host = ("host", "localhost:9090");
    let reload = "/admin/api/reload";
    assert_eq!(
        status("POST", reload, &[host, ("origin", "https://evil.example")]),
        403
    );
    assert_eq!(status("POST", reload, &[host, ("origin", "null")]), 403);
    assert_eq!(
        status("POST", reload, &[host, ("origin", "http://localhost:9090")]),
        200
    );
    assert_eq!(status("POST", reload, &[host]), 200);
}

#[test]
fn the_page_stands_alone() {
    let admin = Admin::new(Arc::new(host()));
    let answer = admin.respond("GET", "/admin", None, &HeaderMap::new());
    assert_eq!(answer.headers()["content-type"], "text/html; charset=utf-8");
    let page = std::str::from_utf8(answer.body()).unwrap();
    for outside in [
        "http://",
        "https://",
        "src=",
        "@import",
        "innerHTML",
        "url(",
    ] {
        assert!(!page.contains(outside), "{outside}");
    }
    assert!(page.contains("lang=\"en\"") && page.contains("prefers-color-scheme: dark"));
}

/// Through Pingora: listener, header parsing, content length and keep-alive.
#[test]
fn the_application_answers_on_a_socket() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let mut fds = Fds::new();
    fds.add(address.clone(), listener.into_raw_fd());
    let mut service = Admin::service(Arc::new(host()));
    service.add_tcp(&address);
    let (stop, watch) = tokio::sync::watch::channel(false);
    let fds = Some(Arc::new(Mutex::new(fds)));
    let task = runtime.spawn(async move { service.start_service(fds, watch, 1).await });

    let mut stream = TcpStream::connect(&address).unwrap();
    let patience = Some(std::time::Duration::from_secs(10));
    stream.set_read_timeout(patience).unwrap();
    let ask = |stream: &mut TcpStream, line: &str| {
        write!(
            stream,
            "{line} HTTP/1.1\r\nhost: {address}\r\ncontent-length: 0\r\n\r\n"
        )
        .unwrap();
        read_answer(stream)
    };
    let (head, body) = ask(&mut stream, "GET /metrics");
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    assert!(body.contains("rondo_upstream_sends_total{"), "{body}");
    let (head, body) = ask(&mut stream, "GET /nothing");
    assert!(
        head.starts_with("HTTP/1.1 404") && body.contains("not_found"),
        "{head}"
    );
    let (head, body) = ask(&mut stream, "POST /admin/api/reload");
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    assert!(body.contains("\"result\":\"success\""), "{body}");
    stop.send(true).unwrap();
    runtime.block_on(task).unwrap();
}

fn read_answer(stream: &mut TcpStream) -> (String, String) {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte).unwrap();
        head.push(byte[0]);
    }
    let head = String::from_utf8(head).unwrap().to_lowercase();
    let length = head
        .lines()
        .find_map(|line| line.strip_prefix("content-length: "))
        .unwrap();
    let mut body = vec![0; length.trim().parse().unwrap()];
    stream.read_exact(&mut body).unwrap();
    (
        head.replacen("http", "HTTP", 1),
        String::from_utf8(body).unwrap(),
    )
}

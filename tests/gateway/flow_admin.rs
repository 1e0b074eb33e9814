//! The admin plane of a running process: what it tells of operations, routes and the configuration, and the reload that it offers.

use crate::support::client::{ask, call, chat};
use crate::support::process::Process;

fn config(deadline: u64) -> String {
    format!(
        r#"
providers:
  one: {{ adapter: openai, keys: [{{ name: main, secret: {{ literal: sk-shown-to-nobody }} }}], mock: {{ answers: [{{ preset: openai.throttle, retry_after: 30 }}] }} }}
  two: {{ adapter: openai, mock: {{ answers: [ok] }} }}
routes:
  - {{ name: chat, models: [m], deadline_ms: {deadline}, targets: [{{ name: first, provider: one }}, {{ name: second, provider: two }}] }}
"#
    )
}

/// Every endpoint of the contract, after one operation that failed over.
#[tokio::test]
async fn the_admin_plane_tells_what_happened() {
    // R-S23 R-C4 R-X2
    let process = Process::start("", &config(60_000)).await;
    let answer = call(process.addr, chat("m")).await;
    assert_eq!(answer.status, 200);
    let id = answer.header("x-request-id").unwrap();
    let get = async |path: &str| {
        let answer = ask(process.admin, "GET", path).await;
        assert_eq!(answer.status, 200, "{path}");
        assert!(!answer.text().contains("sk-shown-to-nobody"), "{path}");
        answer
    };
    for open in ["/healthz", "/readyz"] {
        get(open).await;
    }
    let mut metrics = get("/metrics").await;
    while !metrics.text().contains("rondo_inflight_requests 0\n") {
        metrics = get("/metrics").await;
    }
    for line in [
        "rondo_upstream_sends_total{round=\"1\",route=\"chat\",target=\"first\"} 1",
        "rondo_failovers_total{from=\"first\",reason=\"throttle\",route=\"chat\",to=\"second\"} 1",
        "rondo_requests_total{api=\"openai_chat\",outcome=\"succeeded\",route=\"chat\",status=\"200\"} 1",
    ] {
        assert!(
            metrics.text().lines().any(|known| known == line),
            "{line} in {}",
            metrics.text()
        );
    }
    let operations = get("/admin/api/operations?limit=5").await;
    assert!(operations.text().contains(id), "{}", operations.text());
    let routes = get("/admin/api/routes").await;
    assert!(routes.text().contains("\"chat\""), "{}", routes.text());
    let shown = get("/admin/api/config").await;
    assert!(shown.text().contains("[redacted]"), "{}", shown.text());
}

/// `POST /admin/api/reload` does what SIGHUP does, and says what came of it.
#[tokio::test]
async fn the_admin_plane_reloads() {
    // R-C2
    let process = Process::start("", &config(60_000)).await;
    let reload = async || ask(process.admin, "POST", "/admin/api/reload").await;
    assert_eq!(reload().await.json()["result"], "unchanged");
    process.write("threads: 7", &config(50_000));
    let answer = reload().await.json();
    assert_eq!(answer["result"], "success", "{answer}");
    assert!(
        answer["needs_restart"][0]
            .as_str()
            .unwrap()
            .starts_with("server.threads"),
        "{answer}"
    );
    process.write("", "routes: []\n");
    let answer = reload().await;
    assert_eq!(answer.json()["result"], "failure", "{answer:?}");
    assert!(answer.text().contains("routes"), "{answer:?}");
    let config = ask(process.admin, "GET", "/admin/api/config").await;
    assert!(
        config.text().contains("50000"),
        "the last good one is in force"
    );
    assert_eq!(call(process.addr, chat("m")).await.status, 200);
    assert_eq!(
        ask(process.admin, "GET", "/admin/api/reload").await.status,
        405
    );
}

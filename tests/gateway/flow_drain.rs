//! The end of the process: what waits is answered, what streams may finish, nothing new is accepted, and the exit says that all is well.

use std::net::TcpListener;
use std::time::{Duration, Instant};

use rondo::mock::{MockServer, Script};

use crate::support::caller::{Caller, Way};
use crate::support::client::{Connection, ask, call, chat, chat_body};
use crate::support::process::Process;
use crate::support::{Rondo, soon};

const CHAT: &str = "/v1/chat/completions";
/// Far less than the grace period that the configurations here give.
const SOON: Duration = Duration::from_secs(5);

fn provider(script: &str) -> MockServer {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    MockServer::start("one", Script::parse(script).unwrap(), listener).unwrap()
}

/// A route to one provider that waits up to half a minute between rounds.
fn route(provider: &MockServer) -> String {
    format!(
        r#"
providers:
  one: {{ adapter: openai, base_url: "http://{}" }}
routes:
  - name: chat
    models: [m]
    targets: [{{ name: first, provider: one }}]
    routing:
      mode: priority_failover
      max_target_attempts: 1
      max_upstream_sends: 2
      exhaustion_retry: {{ max_rounds: 1, max_wait_ms: 30000 }}
"#,
        provider.addr()
    )
}

const STREAM: &str = "answers: [{ sse: [{ data: { choices: [{ index: 0, delta: { content: Hello } }] } }, { silence: true }] }]";

/// An operation that sleeps between rounds gets its 429 at once, with the time that is left and the reason.
#[tokio::test]
async fn a_drain_ends_the_wait_with_its_429() {
    // R-C3 R-S15
    for way in [Way::H1Close, Way::H2Close] {
        let rondo = Rondo::start(
            r#"
providers:
  one: { adapter: openai, mock: { answers: [{ preset: openai.throttle, retry_after: 20 }] } }
routes:
  - name: chat
    models: [m]
    targets: [{ name: first, provider: one }]
    routing: { mode: priority_failover, max_target_attempts: 1, max_upstream_sends: 2, exhaustion_retry: { max_rounds: 1, max_wait_ms: 30000 } }
"#,
        )
        .await;
        let addr = rondo.addr;
        let waiting = tokio::spawn(async move {
            let mut connection = match way {
                Way::H1Close => Connection::h1(addr).await,
                _ => Connection::h2(addr).await,
            };
            connection.call(chat("m")).await
        });
        rondo.until_waiting(1).await;
        let began = Instant::now();
        rondo.app.gateway.around.lifecycle.begin_drain();
        let answer = soon(waiting).await.unwrap();
        assert!(began.elapsed() < SOON);
        assert_eq!(answer.status, 429);
        assert_eq!(answer.header("x-rondo-reason"), Some("shutdown"));
        assert_eq!(answer.header("retry-after"), Some("20"));
        assert_eq!(answer.json()["error"]["code"], "rate_limit_exceeded");
        assert_eq!(rondo.mock("one").sends(), 1);
        rondo.assert_quiet().await;
        assert_eq!(
            rondo.metric("rondo_exhaustion_ends_total", &["end=\"wait_shutdown\""]),
            1.0
        );
        assert!(!rondo.app.is_ready());
    }
}

/// During a drain a request in flight is not sent a second time; its failure is told as it is.
#[tokio::test]
async fn a_drain_permits_no_further_send() {
    // R-C3 R-S9
    let rondo = Rondo::start(
        r#"
providers:
  one: { adapter: openai, mock: { answers: [{ preset: openai.throttle, retry_after: 5, delay_ms: 200 }] } }
  two: { adapter: openai, mock: { answers: [ok] } }
routes:
  - { name: chat, models: [m], targets: [{ name: first, provider: one }, { name: second, provider: two }] }
"#,
    )
    .await;
    let asked = tokio::spawn(call(rondo.addr, chat("m")));
    soon(rondo.mock("one").wait_for(1)).await;
    rondo.app.gateway.around.lifecycle.begin_drain();
    let answer = soon(asked).await.unwrap();
    assert_eq!(answer.status, 429, "{answer:?}");
    assert_eq!(answer.header("x-rondo-reason"), Some("shutdown"));
    assert_eq!(rondo.mock("two").sends(), 0);
    rondo.assert_quiet().await;
}

/// SIGTERM with nothing in flight: exit 0, long before the grace period is over.
#[tokio::test]
async fn an_idle_process_leaves_at_once() {
    // R-C3
    let upstream = provider("answers: [ok]");
    let mut process = Process::start("shutdown_grace_ms: 60000", &route(&upstream)).await;
    let mut kept = Connection::h1(process.addr).await;
    assert_eq!(kept.call(chat("m")).await.status, 200);
    let began = Instant::now();
    process.signal("TERM");
    let status = process.ended().await;
    assert!(began.elapsed() < SOON, "{:?}", began.elapsed());
    assert_eq!(status.code(), Some(0));
    process.until_logged("drained", 1).await;
}

/// SIGTERM while one operation waits and another streams: the first is answered, the second finishes, a third finds nobody.
#[tokio::test]
async fn a_terminated_process_finishes_what_it_began() {
    // R-C3
    for way in [Way::H1Close, Way::H2Close] {
        finish_what_was_begun(way).await;
    }
}

async fn finish_what_was_begun(way: Way) {
    let upstream = provider(
        "models: { wait: { answers: [{ preset: openai.throttle, retry_after: 20 }] } }\nanswers: [{ text: 'one two three', chunks: 3, gap_ms: 700 }]",
    );
    let config = route(&upstream).replace("models: [m]", "models: [m, wait]");
    let mut process = Process::start("shutdown_grace_ms: 60000", &config).await;
    let addr = process.addr;
    let mut stream = Caller::ask(way, addr, CHAT, &chat_body("m", true)).await;
    // The stream's head: it is committed.
    match way {
        Way::H1Close => stream.read_to("200 OK").await,
        _ => stream.read_to("data:").await,
    }
    let waiting = tokio::spawn(call(addr, chat("wait")));
    let throttled = |seen: &[rondo::mock::SeenRequest]| {
        seen.iter().any(|seen| {
            seen.answer.as_deref() == Some("openai.throttle") && seen.answered.is_some()
        })
    };
    soon(upstream.recorder().wait_until(throttled)).await;
    process.signal("TERM");
    let answer = soon(waiting).await.unwrap();
    assert_eq!(answer.status, 429, "{answer:?}");
    assert_eq!(answer.header("x-rondo-reason"), Some("shutdown"));
    process.until_accepting(false).await;
    // The admin plane outlives the data plane's listeners and says why.
    assert_eq!(ask(process.admin, "GET", "/readyz").await.status, 503);
    assert_eq!(ask(process.admin, "GET", "/healthz").await.status, 200);
    let metrics = ask(process.admin, "GET", "/metrics").await;
    assert!(
        metrics.text().contains("rondo_inflight_requests 1\n"),
        "{}",
        metrics.text()
    );
    stream.read_to("[DONE]").await;
    let status = process.ended().await;
    assert_eq!(status.code(), Some(0));
    assert_eq!(upstream.recorder().sends(), 2);
}

/// What does not end within the grace period is cut, and its upstream with it.
#[tokio::test]
async fn the_grace_period_ends() {
    // R-C3
    let upstream = provider(STREAM);
    let mut process = Process::start("shutdown_grace_ms: 300", &route(&upstream)).await;
    let mut stream = Caller::ask(Way::H1Close, process.addr, CHAT, &chat_body("m", true)).await;
    stream.read_to("Hello").await;
    let began = Instant::now();
    process.signal("TERM");
    let status = process.ended().await;
    let took = began.elapsed();
    assert!(
        (Duration::from_millis(300)..SOON).contains(&took),
        "{took:?}"
    );
    assert_eq!(status.code(), Some(0));
    soon(async { while stream.read().await.is_some() {} }).await;
    soon(upstream.recorder().wait_for_closed(1)).await;
    process.until_logged("did not end", 1).await;
}

/// SIGINT does not wait for anything.
#[tokio::test]
async fn an_interrupted_process_stops_at_once() {
    // R-C3
    let upstream = provider(STREAM);
    let mut process = Process::start("shutdown_grace_ms: 60000", &route(&upstream)).await;
    let mut stream = Caller::ask(Way::H1Close, process.addr, CHAT, &chat_body("m", true)).await;
    stream.read_to("Hello").await;
    let began = Instant::now();
    process.signal("INT");
    process.ended().await;
    assert!(began.elapsed() < SOON, "{:?}", began.elapsed());
    soon(upstream.recorder().wait_for_closed(1)).await;
}

/// SIGQUIT hands the listeners to a new process: no connection is refused, failover goes on, what streams on the old one finishes, and
/// the old one exits 0.
#[tokio::test]
async fn an_upgrade_refuses_nobody() {
    // R-C3
    let busy = provider("answers: [{ preset: openai.throttle, retry_after: 5 }]");
    let good = provider(
        "models: { slow: { answers: [{ text: 'one two three', chunks: 3, gap_ms: 2000 }] } }\nanswers: [ok]",
    );
    let config = |name: &str| {
        format!(
            r#"
providers:
  busy: {{ adapter: openai, base_url: "http://{}" }}
  good: {{ adapter: openai, base_url: "http://{}" }}
routes:
  - name: chat
    models: [m, slow]
    targets: [{{ name: busy, provider: busy }}, {{ name: {name}, provider: good }}]
    routing: {{ cooldown: {{ max_ms: 0 }} }}
"#,
            busy.addr(),
            good.addr()
        )
    };
    let mut old = Process::start("", &config("old")).await;
    let mut stream = Caller::ask(Way::H1Close, old.addr, CHAT, &chat_body("slow", true)).await;
    stream.read_to("200 OK").await;
    old.write("", &config("new"));
    let new = Process::launch(old.file.clone(), old.addr, old.admin, &["--upgrade"]);
    new.until_logged("Bootstrap starting", 1).await;
    old.signal("QUIT");
    let mut by_new = 0;
    let mut by_old = 0;
    soon(async {
        while by_new < 20 {
            let answer = call(old.addr, chat("m")).await;
            assert_eq!(answer.status, 200, "{answer:?}");
            match answer.header("x-rondo-target") {
                Some("new") => by_new += 1,
                other => {
                    assert_eq!(other, Some("old"));
                    by_old += 1;
                }
            }
        }
    })
    .await;
    assert!(by_old > 0, "the old one answers until the new one does");
    stream.read_to("[DONE]").await;
    assert_eq!(old.ended().await.code(), Some(0));
    for _ in 0..20 {
        let answer = call(new.addr, chat("m")).await;
        assert_eq!(answer.header("x-rondo-target"), Some("new"));
        assert_eq!(ask(new.admin, "GET", "/readyz").await.status, 200);
    }
}

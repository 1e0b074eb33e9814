//! Budgets, bounds and what may move on, on real sockets.

use std::time::{Duration, Instant};

use rondo::core::limits::WAITERS_PER_ROUTE_MAX;

use crate::support::client::{Answer, Connection, call, chat, chat_body, post, request, whole};
use crate::support::{Rondo, soon};

/// Far more than an answer takes that waits for nothing.
const AT_ONCE: Duration = Duration::from_secs(1);

/// A gateway with as many OpenAI targets as scripts, `t1` and so on, and a route with this `routing`.
async fn targets(scripts: &[&str], routing: &str) -> Rondo {
    let mut providers = String::new();
    let mut list = String::new();
    for (index, script) in scripts.iter().enumerate() {
        let number = index + 1;
        providers +=
            &format!("  t{number}: {{ adapter: openai, mock: {{ answers: [{script}] }} }}\n");
        list += &format!("      - {{ name: t{number}, provider: t{number} }}\n");
    }
    Rondo::start(&format!(
        "providers:\n{providers}routes:\n  - name: chat\n    models: [m]\n    targets:\n{list}    routing: {{ {routing} }}\n"
    ))
    .await
}

const THROTTLE: &str = "{ preset: openai.throttle, retry_after: 5 }";

async fn sends(rondo: &Rondo, count: usize) -> Vec<String> {
    let names = ["t1", "t2", "t3"];
    rondo.assert_quiet().await;
    rondo.sends(&names[..count])
}

/// C130: more operations want to sleep than may. The rest is answered at once, and the counts are exact.
#[tokio::test]
async fn the_waiting_room_is_bounded() {
    // R-B6 R-S10 R-S22
    let script = "{ preset: openai.throttle, retry_after: 20 }";
    let round = "mode: priority_failover, max_target_attempts: 1, max_upstream_sends: 2, exhaustion_retry: { max_rounds: 1, max_wait_ms: 30000 }";
    let rondo = targets(&[script], round).await.with_traffic();
    let slots = usize::from(WAITERS_PER_ROUTE_MAX);
    let surplus = 44;
    // One is throttled; what it learned holds for the others, which go to sleep without a send.
    let mut calls = vec![tokio::spawn(call(rondo.addr, chat("m")))];
    rondo.until_waiting(1).await;
    calls.extend((1..slots + surplus).map(|_| tokio::spawn(call(rondo.addr, chat("m")))));
    rondo.until_waiting(slots as u64).await;
    let full = ["reason=\"admission_full\""];
    let refused = |rondo: &Rondo| rondo.metric("rondo_exhaustion_suppressions_total", &full);
    rondo.until(|rondo| refused(rondo) == surplus as f64).await;
    rondo
        .until(|_| calls.iter().filter(|call| call.is_finished()).count() == surplus)
        .await;
    assert_eq!(rondo.metric("rondo_exhaustion_waiting", &[]), slots as f64);
    assert!(rondo.app.snapshot().routes[0].waiters.waiting_bytes() > 0);
    let mut answers = 0;
    for call in calls {
        if call.is_finished() {
            let answer = soon(call).await.unwrap();
            assert_eq!(answer.status, 429);
            assert_eq!(answer.header("x-rondo-reason"), Some("admission_full"));
            assert!(answer.header("retry-after").is_some());
            answers += 1;
        } else {
            call.abort();
        }
    }
    assert_eq!(answers, surplus);
    assert_eq!(rondo.mock("t1").sends(), 1);
    rondo.assert_quiet().await;
    assert_eq!(
        rondo.metric("rondo_exhaustion_admissions_total", &[]),
        slots as f64
    );
    assert_eq!(
        rondo.metric("rondo_exhaustion_ends_total", &["end=\"wait_client_gone\""]),
        slots as f64
    );
}

/// The process's account of held bodies is bounded: beyond it a request is refused before it is read.
#[tokio::test]
async fn held_bodies_are_bounded() {
    // R-B7
    let rondo = Rondo::start(
        r#"
server: { max_request_body: 64KiB, max_buffered_bytes: 64KiB }
providers:
  one: { adapter: openai, mock: { answers: [hang] } }
routes:
  - { name: chat, models: [m], targets: [{ name: first, provider: one }] }
"#,
    )
    .await;
    let large = |bytes: usize| {
        let text = "x".repeat(bytes);
        post(
            "/v1/chat/completions",
            format!(r#"{{"model":"m","messages":[{{"role":"user","content":"{text}"}}]}}"#),
        )
    };
    let addr = rondo.addr;
    let held = tokio::spawn(async move { call(addr, large(40 << 10)).await });
    soon(rondo.mock("one").wait_for_bodies(1)).await;
    let answer = call(rondo.addr, large(40 << 10)).await;
    assert_eq!(answer.status, 503, "{answer:?}");
    assert_eq!(answer.json()["error"]["code"], "overloaded");
    assert_eq!(answer.header("retry-after"), Some("1"));
    held.abort();
    soon(rondo.mock("one").wait_for_closed(1)).await;
    rondo.assert_quiet().await;
    assert_eq!(rondo.refusals(), 1.0);
}

/// `primary_only`: the first target alone, though there are others.
#[tokio::test]
async fn primary_only_stays_with_the_first() {
    // R-F6
    let rondo = targets(&[THROTTLE, "ok"], "mode: primary_only").await;
    let answer = call(rondo.addr, chat("m")).await;
    assert_eq!(answer.status, 429);
    assert_eq!(sends(&rondo, 2).await, ["t1"]);
}

/// `max_retries`: tries after the first; at the cap the upstream's own answer is returned.
#[tokio::test]
async fn max_retries_caps_the_sends() {
    // R-F3 R-B1
    for (retries, status, expected) in [
        (0, 429, &["t1"][..]),
        (1, 429, &["t1", "t2"]),
        (2, 200, &["t1", "t2", "t3"]),
    ] {
        let rondo = targets(
            &[THROTTLE, THROTTLE, "ok"],
            &format!("max_retries: {retries}"),
        )
        .await;
        let answer = call(rondo.addr, chat("m")).await;
        assert_eq!(answer.status, status, "max_retries {retries}: {answer:?}");
        assert_eq!(sends(&rondo, 3).await, expected);
    }
    let rondo = targets(
        &["openai.server_error", "ok"],
        "max_retries: 0, fallback_strategy: [http_5xx]",
    )
    .await;
    let answer = call(rondo.addr, chat("m")).await;
    assert_eq!(answer.status, 500, "a 500 stays 500");
    assert_eq!(answer.json()["error"]["type"], "server_error");
}

/// The send budget ends the operation, however many targets are left.
#[tokio::test]
async fn the_send_budget_is_never_refilled() {
    // R-B1
    let scripts = [THROTTLE, THROTTLE, "ok"];
    let rondo = targets(&scripts, "max_target_attempts: 2").await;
    assert_eq!(call(rondo.addr, chat("m")).await.status, 429);
    assert_eq!(sends(&rondo, 3).await, ["t1", "t2"]);
}

/// A failure later than the limit is returned itself.
#[tokio::test]
async fn a_late_failure_is_returned_itself() {
    // R-F4
    let slow = "{ preset: openai.throttle, retry_after: 1, delay_ms: 120 }";
    let rondo = targets(&[slow, "ok"], "retry_on_failure_within_ms: 100").await;
    let answer = call(rondo.addr, chat("m")).await;
    assert_eq!(answer.status, 429);
    assert_eq!(answer.header("x-rondo-reason"), Some("slow_failure"));
    assert_eq!(sends(&rondo, 2).await, ["t1"]);
    let rondo = targets(&[THROTTLE, "ok"], "retry_on_failure_within_ms: 5000").await;
    assert_eq!(call(rondo.addr, chat("m")).await.status, 200);
}

/// What moves on by itself, what only by choice, and what never does.
#[tokio::test]
async fn what_moves_on_is_what_the_route_says() {
    // R-F1 R-F2 R-F7
    let cases: [(&str, &str, u16); 10] = [
        ("openai.throttle_uncertified", "", 200),
        ("openai.throttle_uncertified", "fallback_strategy: []", 429),
        ("openai.server_error", "", 500),
        (
            "openai.server_error",
            "fallback_strategy: [http_5xx], sticky_key_attempts: 1",
            200,
        ),
        ("openai.auth", "", 401),
        ("openai.auth", "fallback_http_statuses: [401]", 200),
        (
            "openai.context",
            "fallback_strategy: [http_429, http_5xx, transport_error]",
            400,
        ),
        ("reset", "", 502),
        (
            "reset",
            "fallback_strategy: [transport_error], sticky_key_attempts: 1",
            200,
        ),
        ("nginx.503", "", 503),
    ];
    for (preset, routing, status) in cases {
        let rondo = targets(&[preset, "ok"], routing).await;
        let answer = call(rondo.addr, chat("m")).await;
        assert_eq!(answer.status, status, "{preset} {routing}: {answer:?}");
        let expected: &[&str] = if status == 200 {
            &["t1", "t2"]
        } else {
            &["t1"]
        };
        assert_eq!(sends(&rondo, 2).await, expected, "{preset} {routing}");
    }
}

/// The first candidate gets one more try after a failure of its own: a 5xx that may move on.
#[tokio::test]
async fn the_first_candidate_is_tried_again_after_a_5xx() {
    // R-K1 R-K2 R-K3
    let rondo = targets(
        &["openai.server_error, ok", "ok"],
        "fallback_strategy: [http_5xx]",
    )
    .await;
    let answer = call(rondo.addr, chat("m")).await;
    assert_eq!(answer.status, 200);
    assert_eq!(answer.header("x-rondo-target"), Some("t1"));
    assert_eq!(answer.header("x-rondo-attempts"), Some("2"));
    assert_eq!(sends(&rondo, 2).await, ["t1", "t1"]);
    let records = rondo.records();
    let tries: Vec<_> = records[0]
        .attempts
        .iter()
        .map(|a| (a.candidate_index, a.retry_index))
        .collect();
    assert_eq!(tries, [(0, 0), (0, 1)]);
    assert_eq!(
        rondo.metric("rondo_provider_retries_total", &["status=\"500\""]),
        1.0
    );

    // The second one does not: one try each.
    let five = "openai.server_error";
    let rondo = targets(&[five, five, "ok"], "fallback_strategy: [http_5xx]").await;
    assert_eq!(call(rondo.addr, chat("m")).await.status, 200);
    assert_eq!(sends(&rondo, 3).await, ["t1", "t1", "t2", "t3"]);
}

/// A refused connection: nothing was delivered, so the first candidate is tried again and then the next.
#[tokio::test]
async fn a_refused_connection_moves_on() {
    // R-K2 R-F1 R-D1
    let closed = {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.local_addr().unwrap()
    };
    let config = |second: &str| {
        format!(
            r#"
providers:
  gone: {{ adapter: openai, base_url: "http://{closed}" }}
  two: {{ adapter: openai, {second} }}
routes:
  - {{ name: chat, models: [m], targets: [{{ name: first, provider: gone }}, {{ name: second, provider: two }}] }}
"#
        )
    };
    let rondo = Rondo::start(&config("mock: { answers: [ok] }")).await;
    let answer = call(rondo.addr, chat("m")).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    assert_eq!(answer.header("x-rondo-target"), Some("second"));
    assert_eq!(
        rondo.metric("rondo_upstream_sends_total", &["target=\"first\""]),
        2.0
    );
    rondo.assert_quiet().await;

    let rondo = Rondo::start(&config(&format!("base_url: 'http://{closed}'"))).await;
    let answer = call(rondo.addr, chat("m")).await;
    assert_eq!(answer.status, 502, "{answer:?}");
    assert_eq!(answer.json()["error"]["code"], "upstream_unreachable");
    rondo.assert_quiet().await;
    // The second stands at the same address, so only the first was tried, and once more.
    let labels = ["outcome=\"not_delivered\""];
    assert_eq!(rondo.metric("rondo_attempts_total", &labels), 2.0);
}

/// Counting tokens stays with one provider: another one counts otherwise.
#[tokio::test]
async fn token_counts_stay_with_one_provider() {
    // R-F8
    let rondo = Rondo::start(
        r#"
providers:
  one: { adapter: anthropic, mock: { answers: [{ preset: anthropic.throttle, retry_after: 5 }] } }
  two: { adapter: anthropic, mock: { answers: [ok] } }
routes:
  - { name: chat, models: [m], targets: [{ name: first, provider: one }, { name: second, provider: two }] }
"#,
    )
    .await;
    let count = request(
        "/v1/messages/count_tokens",
        &[],
        whole(chat_body("m", false)),
    );
    assert_eq!(call(rondo.addr, count).await.status, 429);
    assert_eq!(rondo.sends(&["one", "two"]), ["one"]);
    rondo.assert_quiet().await;
}

/// The deadline cuts what has not begun to answer, at the client's own time; C08: and it is not sent again.
#[tokio::test]
async fn the_deadline_ends_a_silent_upstream() {
    // R-B4 R-D4
    let rondo = targets(
        &["hang", "ok"],
        "fallback_strategy: [http_429, http_5xx, transport_error]",
    )
    .await;
    let headers = [("x-request-timeout-ms", "300")];
    let began = Instant::now();
    let answer = call(
        rondo.addr,
        request(
            "/v1/chat/completions",
            &headers,
            whole(chat_body("m", false)),
        ),
    )
    .await;
    assert!(began.elapsed() >= Duration::from_millis(300));
    assert!(began.elapsed() < AT_ONCE);
    assert_eq!(answer.status, 504, "{answer:?}");
    soon(rondo.mock("t1").wait_for_closed(1)).await;
    assert_eq!(sends(&rondo, 2).await, ["t1"]);
    let labels = ["outcome=\"timed_out\"", "status=\"504\""];
    assert_eq!(rondo.metric("rondo_requests_total", &labels), 1.0);
}

/// A stream that has begun is not cut by the deadline.
#[tokio::test]
async fn the_deadline_does_not_cut_a_stream() {
    // R-B4
    let rondo = targets(&["{ text: 'a b c d', chunks: 4, gap_ms: 100 }"], "").await;
    let headers = [("x-request-timeout-ms", "250")];
    let answer: Answer = Connection::h1(rondo.addr)
        .await
        .call(request(
            "/v1/chat/completions",
            &headers,
            whole(chat_body("m", true)),
        ))
        .await;
    assert_eq!(answer.status, 200);
    assert!(
        answer.text().ends_with("data: [DONE]\n\n"),
        "{}",
        answer.text()
    );
    rondo.assert_quiet().await;
}

/// C110: an upstream that never answers costs one send and a 504, and the client's connection stays usable.
#[tokio::test]
async fn a_silent_upstream_times_out() {
    // R-D4 C110
    let rondo = Rondo::start(
        r#"
providers:
  one: { adapter: openai, timeouts: { first_byte_ms: 200 }, mock: { answers: [hang] } }
  two: { adapter: openai, mock: { answers: [ok] } }
routes:
  - { name: chat, models: [m], targets: [{ name: first, provider: one }, { name: second, provider: two }] }
"#,
    )
    .await;
    let answer = call(rondo.addr, chat("m")).await;
    assert_eq!(answer.status, 504, "{answer:?}");
    assert_eq!(answer.json()["error"]["code"], "upstream_timeout");
    assert_eq!(rondo.sends(&["one", "two"]), ["one"]);
    soon(rondo.mock("one").wait_for_closed(1)).await;
    rondo.assert_quiet().await;
    let labels = ["outcome=\"timed_out\"", "status=\"504\""];
    assert_eq!(rondo.metric("rondo_requests_total", &labels), 1.0);
}

/// After a timeout of its target a client's connection still serves the next request.
#[tokio::test]
async fn the_connection_survives_a_timeout() {
    // R-D4
    let rondo = targets(&["hang, ok"], "").await;
    let mut connection = Connection::h1(rondo.addr).await;
    let headers = [("x-request-timeout-ms", "100")];
    let body = whole(chat_body("m", false));
    let answer = connection
        .call(request("/v1/chat/completions", &headers, body))
        .await;
    assert_eq!(answer.status, 504, "{answer:?}");
    let answer = connection.call(chat("m")).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    assert_eq!(sends(&rondo, 1).await, ["t1", "t1"]);
}

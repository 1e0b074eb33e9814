//! The second round on real sockets: when it happens, what it sends, what the client gets, and what each reason against it looks like from outside.

use std::time::{Duration, Instant};

use serde_json::Value;

use crate::support::Rondo;
use crate::support::client::{Answer, Body, Connection, call, chat, chat_body, request, whole};

/// Far more than an answer takes that waits for nothing, and far less than any delay that these scripts ask for.
const AT_ONCE: Duration = Duration::from_secs(1);

/// A gateway with two OpenAI targets that play these scripts, and a route with this `routing`.
async fn two(one: &str, two: &str, routing: &str) -> Rondo {
    Rondo::start(&format!(
        r#"
providers:
  one: {{ adapter: openai, keys: [{{ name: a, secret: {{ literal: key-of-one }} }}], mock: {{ answers: [{one}] }} }}
  two: {{ adapter: openai, keys: [{{ name: b, secret: {{ literal: key-of-two }} }}], mock: {{ answers: [{two}] }} }}
routes:
  - name: chat
    models: [m]
    targets:
      - {{ name: first, provider: one, model: model-of-one }}
      - {{ name: second, provider: two, model: model-of-two-with-a-longer-name }}
    routing: {{ {routing} }}
"#
    ))
    .await
}

const ROUND: &str = "max_target_attempts: 2, max_upstream_sends: 4, exhaustion_retry: { max_rounds: 1, max_wait_ms: 2000 }";

fn throttle(seconds: f64) -> String {
    format!("{{ preset: openai.throttle, retry_after: {seconds} }}")
}

/// What R-S20 wants of a final throttle.
#[track_caller]
fn assert_throttled(answer: &Answer, reason: &str, between: std::ops::RangeInclusive<u64>) {
    assert_eq!(answer.status, 429, "{answer:?}");
    assert_eq!(answer.header("x-rondo-reason"), Some(reason), "{answer:?}");
    assert_eq!(answer.header("x-should-retry"), Some("true"));
    let number = |name| answer.header(name).unwrap().parse::<u64>().unwrap();
    let millis = number("retry-after-ms");
    assert!(between.contains(&millis), "{millis} ms");
    assert_eq!(number("retry-after"), millis.div_ceil(1000).max(1));
}

fn suppressed(rondo: &Rondo, reason: &str) {
    let name = "rondo_exhaustion_suppressions_total";
    assert_eq!(
        rondo.metric(name, &[&format!("reason=\"{reason}\"")]),
        1.0,
        "{reason}"
    );
    assert_eq!(rondo.metric(name, &[]), 1.0, "exactly one reason");
}

/// C14: every target is throttled once; one pause, one more pass, which starts at the first target.
#[tokio::test]
async fn one_pause_and_one_more_pass() {
    // R-S5 R-S14 R-S16 R-S21
    let rondo = two(
        &format!("{}, ok", throttle(0.2)),
        &format!("{}, ok", throttle(0.2)),
        ROUND,
    )
    .await;
    let began = Instant::now();
    let answer = call(rondo.addr, chat("m")).await;
    assert!(
        began.elapsed() >= Duration::from_millis(200),
        "never before the provider's instant"
    );
    assert_eq!(answer.status, 200, "{answer:?}");
    assert_eq!(answer.header("x-rondo-round"), Some("2"));
    assert_eq!(answer.header("x-rondo-attempts"), Some("3"));
    assert_eq!(answer.header("x-rondo-target"), Some("first"));
    assert_eq!(rondo.sends(&["one", "two"]), ["one", "two", "one"]);
    rondo.assert_quiet().await;
    assert_eq!(
        rondo.metric("rondo_exhaustion_successes_total", &["route=\"chat\""]),
        1.0
    );
    assert_eq!(rondo.metric("rondo_exhaustion_waits_total", &[]), 1.0);
    assert_eq!(
        rondo.metric(
            "rondo_failovers_total",
            &["from=\"first\"", "to=\"second\""]
        ),
        1.0
    );
    assert_eq!(
        rondo.metric("rondo_upstream_sends_total", &["round=\"2\""]),
        1.0
    );
    assert_eq!(rondo.metric("rondo_route_exhaustions_total", &[]), 0.0);
}

/// C15: the targets' delays differ. The wait is for the first that opens; the one that still cools is passed over without a send.
#[tokio::test]
async fn the_second_round_waits_for_the_first_to_open() {
    // R-S13 R-S16
    let rondo = two(&throttle(30.0), &format!("{}, ok", throttle(0.3)), ROUND).await;
    let answer = call(rondo.addr, chat("m")).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    assert_eq!(answer.header("x-rondo-target"), Some("second"));
    assert_eq!(rondo.sends(&["one", "two"]), ["one", "two", "two"]);
    rondo.assert_quiet().await;
    let skipped = rondo.metric(
        "rondo_candidates_skipped_total",
        &["target=\"first\"", "round=\"2\""],
    );
    assert_eq!(skipped, 1.0);
}

/// Every send is made fresh for its target, in both rounds: credential, model, length.
#[tokio::test]
async fn every_send_is_fresh_for_its_target() {
    // R-S17 R-X1 R-X2
    // The first one's second answer is slow, so that the second one has opened again when its turn comes.
    let again = "{ preset: openai.throttle, retry_after: 0.1, delay_ms: 200 }";
    let first = format!("{}, {again}", throttle(0.1));
    let rondo = two(&first, &format!("{}, ok", throttle(0.1)), ROUND).await;
    let answer = call(
        rondo.addr,
        request(
            "/v1/chat/completions",
            &[("authorization", "Bearer key-of-the-client")],
            whole(chat_body("m", false)),
        ),
    )
    .await;
    assert_eq!(answer.status, 200, "{answer:?}");
    assert_eq!(rondo.sends(&["one", "two"]), ["one", "two", "one", "two"]);
    let expected = [
        ("one", "key-of-one", "model-of-one"),
        ("two", "key-of-two", "model-of-two-with-a-longer-name"),
    ];
    for (provider, key, model) in expected {
        for seen in rondo.mock(provider).requests() {
            assert_eq!(
                seen.header("authorization"),
                Some(format!("Bearer {key}").as_str())
            );
            let body = chat_body(model, false);
            assert_eq!(seen.body, body.as_bytes(), "{provider}");
            assert_eq!(
                seen.header("content-length"),
                Some(body.len().to_string().as_str())
            );
            assert_eq!(seen.request_id(), answer.header("x-request-id"));
        }
    }
    rondo.assert_quiet().await;
}

/// A delay beyond `max_wait_ms` is never waited out in part: the answer comes at once and says exactly how long is left.
#[tokio::test]
async fn a_long_delay_is_answered_at_once() {
    // R-S13 R-S20
    let rondo = two(&throttle(40.0), &throttle(30.0), ROUND).await;
    let began = Instant::now();
    let answer = call(rondo.addr, chat("m")).await;
    assert!(began.elapsed() < AT_ONCE);
    assert_throttled(&answer, "wait_too_long", 29_000..=30_000);
    assert_eq!(answer.header("retry-after"), Some("30"));
    assert_eq!(answer.header("x-rondo-round"), Some("1"));
    assert_eq!(rondo.sends(&["one", "two"]), ["one", "two"]);
    suppressed(&rondo, "wait_too_long");
    rondo.assert_quiet().await;
    assert_eq!(rondo.metric("rondo_route_exhaustions_total", &[]), 1.0);
}

/// Exhausted twice: the last certified answer, in its own words, with the time that is left.
#[tokio::test]
async fn the_last_certified_answer_is_told() {
    // R-S20 R-D1 R-S19
    let say = |who: &str, seconds: f64| {
        format!(
            "{{ preset: openai.throttle, retry_after: {seconds}, body: {{ error: {{ message: {who}, type: requests, code: rate_limit_exceeded }} }} }}"
        )
    };
    // Slow, so that the second target has opened again when its turn comes.
    let slow = say("one-2", 7.0).replace("preset:", "delay_ms: 200, preset:");
    let first = format!("{}, {slow}", say("one-1", 0.1));
    let second = format!("{}, {}", say("two-1", 0.1), say("two-2", 9.0));
    let rondo = two(&first, &second, ROUND).await;
    let answer = call(rondo.addr, chat("m")).await;
    assert_throttled(&answer, "exhausted", 6_000..=7_000);
    assert_eq!(answer.json()["error"]["message"], "two-2");
    assert_eq!(answer.header("x-rondo-round"), Some("2"));
    assert_eq!(answer.header("x-rondo-attempts"), Some("4"));
    assert_eq!(answer.header("x-rondo-target"), Some("second"));
    rondo.assert_quiet().await;
    assert_eq!(
        rondo.metric("rondo_exhaustion_ends_total", &["end=\"exhausted\""]),
        1.0
    );
    assert_eq!(rondo.metric("rondo_route_exhaustions_total", &[]), 1.0);
    assert_eq!(
        rondo.metric("rondo_exhaustion_suppressions_total", &[]),
        0.0
    );
}

/// What the first target said in its headers is not said again with the second target's answer.
#[tokio::test]
async fn headers_belong_to_the_attempt_that_is_told() {
    // R-D2 C92
    let one =
        "{ preset: openai.throttle, retry_after: 60, headers: { x-ratelimit-of-one: \"0\" } }";
    let two_says =
        "{ preset: openai.throttle, retry_after: 9, headers: { x-ratelimit-of-two: \"3\" } }";
    let rondo = two(one, two_says, "mode: priority_failover").await;
    let answer = call(rondo.addr, chat("m")).await;
    assert_throttled(&answer, "exhausted", 8_000..=9_000);
    assert_eq!(answer.header("x-ratelimit-of-two"), Some("3"));
    assert_eq!(answer.header("x-ratelimit-of-one"), None);
    rondo.assert_quiet().await;
}

/// The final throttle speaks the client's own format, for every family.
#[tokio::test]
async fn the_final_throttle_speaks_the_clients_format() {
    // R-S20 R-D3
    let gemini = "/v1beta/models/m:generateContent";
    let words = r#"{"contents":[{"role":"user","parts":[{"text":"Hi"}]}]}"#.to_owned();
    type Case<'c> = (&'c str, &'c str, String, fn(&Value) -> bool);
    let cases: [Case<'_>; 3] = [
        (
            "openai",
            "/v1/chat/completions",
            chat_body("m", false),
            |body| body["error"]["code"].is_string() && body["error"]["message"].is_string(),
        ),
        ("anthropic", "/v1/messages", chat_body("m", false), |body| {
            body["type"] == "error" && body["error"]["type"] == "rate_limit_error"
        }),
        ("gemini", gemini, words, |body| {
            body["error"]["status"] == "RESOURCE_EXHAUSTED"
        }),
    ];
    for (adapter, path, body, fits) in cases {
        let script = format!("[{{ preset: {adapter}.throttle, retry_after: 20 }}]");
        let rondo = Rondo::start(&format!(
            r#"
providers:
  one: {{ adapter: {adapter}, mock: {{ answers: {script} }} }}
  two: {{ adapter: {adapter}, mock: {{ answers: {script} }} }}
routes:
  - {{ name: chat, models: [m], targets: [{{ name: first, provider: one }}, {{ name: second, provider: two }}], routing: {{ {ROUND} }} }}
"#
        ))
        .await;
        let mut connection = Connection::h1(rondo.addr).await;
        let mut ask = async || {
            connection
                .call(request(path, &[], whole(body.clone())))
                .await
        };
        // The provider's own answer, and then, while both targets cool, the gateway's.
        for (turn, code) in [(1, None), (2, Some("upstream_throttled"))] {
            let answer = ask().await;
            assert_throttled(&answer, "wait_too_long", 18_000..=20_000);
            let json = answer.json();
            assert!(fits(&json), "{adapter} {turn}: {json}");
            if let Some(code) = code {
                let said = answer.text().to_lowercase();
                assert!(said.contains(code), "{adapter}: {json}");
            }
        }
        assert_eq!(rondo.sends(&["one", "two"]), ["one", "two"], "{adapter}");
        rondo.assert_quiet().await;
    }
}

fn with_headers(headers: &[(&str, &str)]) -> http::Request<Body> {
    request(
        "/v1/chat/completions",
        headers,
        whole(chat_body("m", false)),
    )
}

/// A request that is its caller's retry gets no second round, so that layers do not multiply.
#[tokio::test]
async fn a_callers_retry_gets_no_second_round() {
    // R-S11
    let rondo = two(&throttle(0.2), &throttle(0.3), ROUND).await;
    let answer = call(
        rondo.addr,
        with_headers(&[("x-stainless-retry-count", "1")]),
    )
    .await;
    assert_throttled(&answer, "caller_retry", 1..=200);
    suppressed(&rondo, "caller_retry");
    assert_eq!(rondo.sends(&["one", "two"]), ["one", "two"]);
    rondo.assert_quiet().await;
}

/// C55: a quota that waiting does not clear ends the operation with its own answer.
#[tokio::test]
async fn a_hard_quota_is_not_waited_for() {
    // R-S5 R-S11
    let rondo = two(&throttle(0.2), "openai.quota", ROUND).await;
    let began = Instant::now();
    let answer = call(rondo.addr, chat("m")).await;
    assert!(began.elapsed() < AT_ONCE);
    assert_eq!(answer.status, 429, "{answer:?}");
    assert_eq!(answer.json()["error"]["code"], "insufficient_quota");
    assert_eq!(rondo.sends(&["one", "two"]), ["one", "two"]);
    suppressed(&rondo, "hard_quota");
    rondo.assert_quiet().await;
    assert_eq!(rondo.metric("rondo_exhaustion_admissions_total", &[]), 0.0);
}

/// A request that is bound to a target's state stays there, and gets no second round.
#[tokio::test]
async fn a_bound_request_stays_where_it_is() {
    // R-S7 R-F8
    let rondo = two(&throttle(0.2), "ok", ROUND).await;
    let body = r#"{"model":"m","previous_response_id":"resp_1","input":"Hi"}"#;
    let answer = call(rondo.addr, request("/v1/responses", &[], whole(body))).await;
    assert_throttled(&answer, "state_bound", 1..=200);
    assert_eq!(rondo.sends(&["one", "two"]), ["one"]);
    suppressed(&rondo, "state_bound");
    rondo.assert_quiet().await;
}

/// Without the setting, and with 0 rounds, nothing of it can be observed.
#[tokio::test]
async fn without_the_setting_nothing_differs() {
    // R-S1 R-S2
    let mut seen = Vec::new();
    for routing in [
        "max_target_attempts: 2, max_upstream_sends: 4",
        "max_target_attempts: 2, max_upstream_sends: 4, exhaustion_retry: { max_rounds: 0 }",
    ] {
        let rondo = two(&throttle(0.2), &throttle(0.2), routing).await;
        let answer = call(rondo.addr, with_headers(&[("x-request-id", "same")])).await;
        assert_throttled(&answer, "exhausted", 1..=200);
        assert_eq!(rondo.sends(&["one", "two"]), ["one", "two"]);
        for name in [
            "waits_total",
            "admissions_total",
            "suppressions_total",
            "ends_total",
        ] {
            assert_eq!(
                rondo.metric(&format!("rondo_exhaustion_{name}"), &[]),
                0.0,
                "{name}"
            );
        }
        let mut headers = answer.headers.clone();
        for varies in ["date", "retry-after-ms"] {
            headers.remove(varies);
        }
        seen.push((headers, answer.body));
        rondo.assert_quiet().await;
    }
    assert_eq!(seen[0], seen[1]);
}

/// C13: another target is free, so nobody waits; and the next request does not even ask the one that cools.
#[tokio::test]
async fn a_free_target_is_used_at_once() {
    // R-F1 R-F6
    let rondo = two(&throttle(120.0), "ok", ROUND).await;
    let began = Instant::now();
    for _ in 0..2 {
        let answer = call(rondo.addr, chat("m")).await;
        assert_eq!(answer.status, 200);
        assert_eq!(answer.header("x-rondo-target"), Some("second"));
    }
    assert!(began.elapsed() < AT_ONCE);
    assert_eq!(rondo.sends(&["one", "two"]), ["one", "two", "two"]);
    rondo.assert_quiet().await;
    assert_eq!(
        rondo.metric("rondo_candidates_skipped_total", &["target=\"first\""]),
        1.0
    );
}

/// `cooldown: { max_ms: 0 }`: what one operation learns, the next does not know.
#[tokio::test]
async fn without_cooldowns_every_operation_asks_again() {
    // R-S12
    let rondo = two(&throttle(120.0), "ok", "cooldown: { max_ms: 0 }").await;
    for _ in 0..2 {
        assert_eq!(call(rondo.addr, chat("m")).await.status, 200);
    }
    assert_eq!(rondo.sends(&["one", "two"]), ["one", "two", "one", "two"]);
    rondo.assert_quiet().await;
}

/// A cooldown that runs counts as a throttle without a send: the second request waits for it and then goes out.
#[tokio::test]
async fn a_remembered_throttle_can_be_waited_out() {
    // R-S5
    let script = format!("{}, ok", throttle(0.4));
    let rondo = two(&script, &script, &format!("{ROUND}, max_retries: 1")).await;
    let first = call(rondo.addr, chat("m")).await;
    assert_throttled(&first, "send_budget", 1..=400);
    let second = call(rondo.addr, chat("m")).await;
    assert_eq!(second.status, 200, "{second:?}");
    assert_eq!(second.header("x-rondo-round"), Some("2"));
    assert_eq!(second.header("x-rondo-attempts"), Some("1"));
    rondo.assert_quiet().await;
}

/// A wait that does not fit the client's own deadline is not begun.
#[tokio::test]
async fn a_wait_that_misses_the_deadline_is_not_begun() {
    // R-S10 R-B4
    let rondo = two(&throttle(1.5), &throttle(1.5), ROUND).await;
    let began = Instant::now();
    let answer = call(
        rondo.addr,
        with_headers(&[("x-request-timeout-ms", "1600")]),
    )
    .await;
    assert!(began.elapsed() < AT_ONCE);
    assert_throttled(&answer, "deadline", 1..=1_500);
    suppressed(&rondo, "deadline");
    rondo.assert_quiet().await;
}

/// An ambiguous failure in the second round ends the operation: there is no other round.
#[tokio::test]
async fn an_ambiguous_second_round_ends_it() {
    // R-S19 R-D1
    let rondo = two(&format!("{}, reset", throttle(0.1)), &throttle(0.1), ROUND).await;
    let answer = call(rondo.addr, chat("m")).await;
    assert_eq!(answer.status, 502, "{answer:?}");
    assert_eq!(answer.json()["error"]["code"], "upstream_ambiguous");
    assert_eq!(rondo.sends(&["one", "two"]), ["one", "two", "one"]);
    rondo.assert_quiet().await;
    assert_eq!(
        rondo.metric("rondo_exhaustion_ends_total", &["end=\"other\""]),
        1.0
    );
}

/// The connection of a client survives every kind of final throttle: the provider's own, the gateway's, with and without a wait.
#[tokio::test]
async fn the_connection_survives_a_final_throttle() {
    // R-S20
    let rondo = two(&throttle(0.1), &throttle(0.1), ROUND).await;
    let mut connection = Connection::h1(rondo.addr).await;
    for _ in 0..2 {
        let answer = connection.call(chat("m")).await;
        assert_throttled(&answer, "exhausted", 1..=100);
        let answer = connection
            .call(with_headers(&[("x-stainless-retry-count", "1")]))
            .await;
        assert_throttled(&answer, "caller_retry", 1..=100);
    }
    let answer = connection
        .call(crate::support::client::post("/v1/chat/completions", "{}"))
        .await;
    assert_eq!(answer.status, 400);
    rondo.assert_quiet().await;
}

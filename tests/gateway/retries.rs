//! Own retries and pools of keys on real sockets: what is sent with which key, what the client gets, what is counted and logged.

use std::time::{Duration, Instant};

use crate::hygiene::{assert_private, capture, logged};
use crate::support::Rondo;
use crate::support::caller::{Caller, Way};
use crate::support::client::{call, chat, chat_body, post};

const CHAT: &str = "/v1/chat/completions";
/// Far more than an answer takes that waits for nothing, and far less than any pause that is cut here.
const AT_ONCE: Duration = Duration::from_secs(1);

/// A gateway with one internal provider that plays this script.
async fn internal(answers: &str, retry: &str) -> Rondo {
    Rondo::start(&format!(
        r#"
providers:
  one:
    adapter: openai
    ownership: internal
    retry: {{ {retry} }}
    keys: [{{ name: main, secret: {{ literal: target-secret-a }} }}]
    mock: {{ answers: [{answers}], loop: false }}
routes:
  - name: chat
    models: [m]
    targets: [{{ name: first, provider: one }}]
    routing: {{ max_upstream_sends: 8 }}
"#
    ))
    .await
}

const QUICK: &str = "max_attempts: 4, max_elapsed_ms: 20000, base_delay_ms: 2, max_delay_ms: 8";

fn retries(rondo: &Rondo, status: &str) -> f64 {
    rondo.metric("rondo_provider_retries_total", &[status])
}

// R-P1 R-P7
#[tokio::test]
async fn an_internal_provider_is_retried_until_it_answers() {
    capture();
    let answers =
        "{ status: 503 }, { status: 520 }, { preset: openai.throttle, retry_after: 0.05 }, ok";
    let rondo = internal(answers, QUICK).await;
    let began = Instant::now();
    let answer = call(rondo.addr, chat("m")).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    assert!(
        began.elapsed() >= Duration::from_millis(50),
        "R-P3: the provider's delay is a floor"
    );
    assert_eq!(answer.header("x-should-retry"), None);
    assert_eq!(answer.header("x-rondo-attempts"), Some("4"));
    assert_eq!(rondo.mock("one").sends(), 4);
    rondo.assert_quiet().await;
    for status in ["status=\"503\"", "status=\"520\"", "status=\"429\""] {
        assert_eq!(retries(&rondo, status), 1.0, "{status}");
    }
    let id = answer.header("x-request-id").unwrap();
    let lines = logged(id, "rondo::retry");
    assert_eq!(lines.len(), 3, "{lines:?}");
    for (line, (number, status)) in lines.iter().zip([(1, 503), (2, 520), (3, 429)]) {
        assert!(
            line.contains(&format!("attempt={number} status={status} delay_ms=")),
            "{line}"
        );
        assert!(line.contains(" reason="), "{line}");
    }
    let record = &rondo.records()[0];
    let indexes: Vec<_> = record.attempts.iter().map(|a| a.retry_index).collect();
    assert_eq!(indexes, [0, 1, 2, 3]);
    assert!(record.operation.wait_ms >= 50, "the pauses are time slept");
}

// R-P1 R-P2 R-P5 R-P7: a mix that never ends, and a last body that is long.
#[tokio::test]
async fn used_up_retries_keep_the_last_status_and_body() {
    capture();
    let body = "x".repeat(40_000);
    let answers = format!(
        "{{ preset: openai.throttle, retry_after: 0.01 }}, {{ status: 500 }}, {{ status: 503 }}, {{ status: 529, headers: {{ content-type: text/plain, retry-after: 7 }}, body: '{body}' }}"
    );
    let rondo = internal(&answers, QUICK).await;
    let answer = call(rondo.addr, chat("m")).await;
    assert_eq!(answer.status, 529);
    assert_eq!(answer.header("x-should-retry"), Some("false"));
    assert_eq!(answer.header("content-type"), Some("text/plain"));
    assert_eq!(answer.text(), body);
    assert_eq!(rondo.mock("one").sends(), 4);
    rondo.assert_quiet().await;
    assert_eq!(retries(&rondo, ""), 3.0);
    let id = answer.header("x-request-id").unwrap();
    let lines = logged(id, "rondo::retry");
    let spent = |line: &&String| line.contains("own retries used up");
    assert_eq!(
        (lines.len(), lines.iter().filter(spent).count()),
        (4, 1),
        "{lines:?}"
    );
}

// R-P3: a delay beyond the bound ends the sequence at once.
#[tokio::test]
async fn a_delay_beyond_the_bound_is_the_callers() {
    let answers = "{ status: 503, headers: { retry-after: 60 } }, ok";
    let rondo = internal(answers, QUICK).await;
    let began = Instant::now();
    let answer = call(rondo.addr, chat("m")).await;
    assert_eq!(answer.status, 503);
    assert!(began.elapsed() < AT_ONCE);
    assert_eq!(answer.header("retry-after"), Some("60"));
    assert_eq!(answer.header("x-should-retry"), Some("false"));
    assert_eq!(rondo.mock("one").sends(), 1);
    rondo.assert_quiet().await;
}

// R-P1: external sets nothing and retries nothing.
#[tokio::test]
async fn an_external_provider_is_left_to_the_caller() {
    let rondo = Rondo::start(
        r#"
providers:
  one: { adapter: openai, mock: { answers: [{ status: 503, headers: { retry-after: 1 } }] } }
routes: [{ name: chat, models: [m], targets: [{ name: first, provider: one }] }]
"#,
    )
    .await;
    let answer = call(rondo.addr, chat("m")).await;
    assert_eq!(answer.status, 503);
    assert_eq!(answer.header("x-should-retry"), None);
    assert_eq!(answer.header("retry-after"), Some("1"));
    assert_eq!(rondo.mock("one").sends(), 1);
    rondo.assert_quiet().await;
}

// R-P6 R-L5: the client leaves during the pause.
#[tokio::test]
async fn leaving_during_a_pause_ends_it() {
    let slow = "max_attempts: 2, max_elapsed_ms: 60000, base_delay_ms: 40000, max_delay_ms: 40000";
    for way in Way::ALL {
        let rondo = internal("{ status: 503 }, ok", slow).await;
        let caller = Caller::ask(way, rondo.addr, CHAT, &chat_body("m", false)).await;
        rondo.until_waiting(1).await;
        let left = Instant::now();
        caller.leave();
        rondo.idle().await;
        assert!(left.elapsed() < AT_ONCE, "{way:?}: {:?}", left.elapsed());
        rondo.assert_quiet().await;
        assert_eq!(rondo.mock("one").sends(), 1, "{way:?}");
        assert_eq!(rondo.records()[0].operation.http_status, Some(499));
    }
}

// R-P6 R-C3: a drain ends the pause with the failure that is known.
#[tokio::test]
async fn a_drain_ends_a_pause() {
    let slow = "max_attempts: 2, max_elapsed_ms: 60000, base_delay_ms: 40000, max_delay_ms: 40000";
    let rondo = internal("{ status: 503 }, ok", slow).await;
    let asked = tokio::spawn(call(rondo.addr, chat("m")));
    rondo.until_waiting(1).await;
    rondo.app.gateway.around.lifecycle.begin_drain();
    let answer = crate::support::soon(asked).await.unwrap();
    assert_eq!(answer.status, 503);
    assert_eq!(answer.header("x-should-retry"), Some("false"));
    rondo.assert_quiet().await;
}

/// A gateway with one provider that has two keys.
async fn pool(adapter: &str, answers: &str, routing: &str) -> Rondo {
    Rondo::start(&format!(
        r#"
providers:
  one:
    adapter: {adapter}
    keys:
      - {{ name: main, secret: {{ literal: target-secret-a }} }}
      - {{ name: spare, secret: {{ literal: target-secret-b }} }}
    mock: {{ answers: [{answers}], loop: false }}
routes:
  - name: chat
    models: [m]
    targets: [{{ name: first, provider: one }}]
    routing: {{ max_upstream_sends: 4 {routing} }}
"#
    ))
    .await
}

fn credentials(rondo: &Rondo) -> Vec<String> {
    let requests = rondo.mock("one").requests();
    let names = ["authorization", "x-api-key", "x-goog-api-key"];
    let of = |seen: &rondo::mock::SeenRequest| {
        let values = names.iter().filter_map(|name| seen.header(name));
        values
            .map(|value| value.trim_start_matches("Bearer ").to_owned())
            .collect::<Vec<_>>()
    };
    requests.iter().flat_map(of).collect()
}

fn key_names(rondo: &Rondo) -> Vec<String> {
    let records = rondo.records();
    let attempts = records.iter().flat_map(|record| &record.attempts);
    attempts
        .map(|a| a.key_name.as_deref().unwrap_or("-").to_owned())
        .collect()
}

// C13 R-X2: the second key is tried at once, with its own credential; the records name it.
#[tokio::test]
async fn a_throttled_key_gives_way_to_the_next() {
    capture();
    let rondo = pool(
        "openai",
        "{ preset: openai.throttle, retry_after: 30 }, ok",
        "",
    )
    .await;
    let began = Instant::now();
    let answer = call(rondo.addr, chat("m")).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    assert!(began.elapsed() < AT_ONCE);
    assert_eq!(answer.header("x-rondo-attempts"), Some("2"));
    // The first key cools for later operations, too.
    assert_eq!(call(rondo.addr, chat("m")).await.status, 200);
    rondo.assert_quiet().await;
    assert_eq!(
        credentials(&rondo),
        ["target-secret-a", "target-secret-b", "target-secret-b"]
    );
    assert_eq!(key_names(&rondo), ["main", "spare", "spare"]);
    let next = rondo.metric("rondo_attempts_total", &["decision=\"next_key\""]);
    assert_eq!(next, 1.0);
    assert_eq!(
        rondo.metric("rondo_failovers_total", &[]),
        0.0,
        "no other target was tried"
    );
    assert_private(&rondo, &answer);
}

// A refused key is set aside for every later operation; the client never learns of it.
#[tokio::test]
async fn a_refused_key_is_set_aside() {
    capture();
    for refusal in ["openai.auth", "openai.quota"] {
        let rondo = pool("openai", &format!("{refusal}, ok"), "").await;
        for _ in 0..3 {
            let answer = call(rondo.addr, chat("m")).await;
            assert_eq!(answer.status, 200, "{refusal}: {answer:?}");
            assert_private(&rondo, &answer);
        }
        rondo.assert_quiet().await;
        assert_eq!(
            key_names(&rondo),
            ["main", "spare", "spare", "spare"],
            "{refusal}"
        );
    }
}

// R-F7 R-D3: all keys refused: 502 in the client's own envelope, on the operation that finds out and on later ones, which send nothing.
#[tokio::test]
async fn when_every_key_is_refused_the_client_is_told_that_it_is_not_its_own() {
    capture();
    for (adapter, refusal, path) in [
        ("openai", "openai.auth", CHAT),
        ("anthropic", "anthropic.auth", "/v1/messages"),
        (
            "gemini",
            "{ status: 403, body: { error: { code: 403, status: PERMISSION_DENIED, message: 'Method does not allow unregistered callers' } } }",
            "/v1beta/models/m:generateContent",
        ),
    ] {
        let rondo = pool(adapter, refusal, "").await;
        for sends in [2, 2] {
            let answer = call(rondo.addr, post(path, chat_body("m", false))).await;
            assert_eq!(answer.status, 502, "{adapter}: {answer:?}");
            // Gemini writes its reasons in capitals.
            let text = answer.text().to_ascii_lowercase();
            assert!(
                text.contains("upstream_credentials_exhausted"),
                "{adapter}: {text}"
            );
            assert_eq!(rondo.mock("one").sends(), sends, "{adapter}");
            assert_private(&rondo, &answer);
        }
        rondo.assert_quiet().await;
        let reason = &rondo.records()[0].operation.reason;
        assert_eq!(*reason, "credentials_exhausted");
    }
}

// R-F7: without a key of ours, the refusal is the client's to read.
#[tokio::test]
async fn without_keys_a_refusal_passes_unchanged() {
    let rondo = Rondo::start(
        r#"
providers:
  one: { adapter: openai, mock: { answers: [openai.auth] } }
routes: [{ name: chat, models: [m], targets: [{ name: first, provider: one }] }]
"#,
    )
    .await;
    let answer = call(rondo.addr, chat("m")).await;
    assert_eq!(answer.status, 401);
    assert_eq!(answer.json()["error"]["code"], "invalid_api_key");
    rondo.assert_quiet().await;
}

// Nothing but used-up quotas: the providers' own answer first, then a 429 that sends nothing; neither is worth a retry.
#[tokio::test]
async fn used_up_quotas_are_not_retried_by_anyone() {
    let rondo = pool("openai", "openai.quota", "").await;
    let first = call(rondo.addr, chat("m")).await;
    let second = call(rondo.addr, chat("m")).await;
    for answer in [&first, &second] {
        assert_eq!(answer.status, 429, "{answer:?}");
        assert_eq!(answer.header("x-should-retry"), Some("false"));
    }
    assert_eq!(first.json()["error"]["code"], "insufficient_quota");
    assert_eq!(second.header("x-rondo-reason"), Some("hard_quota"));
    assert_eq!(rondo.mock("one").sends(), 2);
    rondo.assert_quiet().await;
}

// R-F8: state belongs to the account of the first key.
#[tokio::test]
async fn a_bound_request_stays_with_the_first_key() {
    let rondo = pool(
        "openai",
        "{ preset: openai.throttle, retry_after: 30 }, ok",
        "",
    )
    .await;
    let body = r#"{"model":"m","input":"x","previous_response_id":"resp_1"}"#;
    for _ in 0..2 {
        let answer = call(rondo.addr, post("/v1/responses", body)).await;
        assert_eq!(answer.status, 429, "{answer:?}");
    }
    assert_eq!(credentials(&rondo), ["target-secret-a"]);
    rondo.assert_quiet().await;
}

// R-S13 R-S16: both keys throttled: the second round uses the one that is free first.
#[tokio::test]
async fn the_second_round_uses_the_key_that_is_free_first() {
    let answers = "{ preset: openai.throttle, retry_after: 30 }, { preset: openai.throttle, retry_after: 0.1 }, ok";
    let round = ", mode: priority_failover, max_target_attempts: 1, exhaustion_retry: { max_rounds: 1, max_wait_ms: 2000 }";
    let rondo = pool("openai", answers, round).await;
    let answer = call(rondo.addr, chat("m")).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    assert_eq!(answer.header("x-rondo-round"), Some("2"));
    assert_eq!(
        credentials(&rondo),
        ["target-secret-a", "target-secret-b", "target-secret-b"]
    );
    rondo.assert_quiet().await;
}

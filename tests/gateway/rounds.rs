//! The second round on real sockets.

use crate::support::Rondo;
use crate::support::client::{call, chat};

const TWO_TARGETS: &str = r#"
providers:
  one: { adapter: openai, mock: { answers: [{ preset: openai.throttle, retry_after: 0.2 }, ok] } }
  two: { adapter: openai, mock: { answers: [{ preset: openai.throttle, retry_after: 0.2 }, ok] } }
routes:
  - name: chat
    models: [m]
    targets: [{ name: first, provider: one }, { name: second, provider: two }]
    routing:
      max_target_attempts: 2
      max_upstream_sends: 4
      exhaustion_retry: { max_rounds: 1, max_wait_ms: 2000 }
"#;

/// C14: every target is throttled once; one pause, one more pass.
#[tokio::test]
async fn one_pause_and_one_more_pass() {
    // R-S5 R-S14 R-S16 R-S21
    let rondo = Rondo::start(TWO_TARGETS).await;
    let answer = call(rondo.addr, chat("m")).await;
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
}

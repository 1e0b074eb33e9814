//! Public failures of other gateways in reading answers and delays, each as the smallest answer that shows what is done here instead.

use std::time::Duration;

use rondo::core::class::Class;
use rondo::core::decision::may_move_on;
use rondo::core::fallback::Fallback;
use rondo::core::limits::PUSHBACK_MAX;
use rondo::core::outcome::{AttemptReport, Scope};
use rondo::providers::answer::Verdict;

use super::providers_support::{answer, certified};

const LIMITED: &str =
    r#"{"error":{"message":"m","type":"requests","param":null,"code":"rate_limit_exceeded"}}"#;

/// Whether the route's rules let such an answer move on to the next target.
fn moves_on(verdict: &Verdict, fallback: &Fallback) -> bool {
    let report = AttemptReport {
        outcome: verdict.outcome,
        class: verdict.class,
        scope: verdict.scope,
        carrier: verdict.carrier,
        status: Some(verdict.status),
        pushback: verdict.pushback,
        reply: None,
    };
    may_move_on(&report, fallback)
}

fn by_default() -> Fallback {
    Fallback {
        http_429: true,
        ..Fallback::default()
    }
}

fn told(retry_after: &str) -> Option<Duration> {
    let answer = answer("openai", 429, LIMITED).with("retry-after", retry_after);
    assert!(
        answer.certified(),
        "a strange delay takes nothing from the proof"
    );
    answer.verdict().pushback
}

/// The kind of quota wins over the delay that stands beside it.
#[test]
fn a_daily_quota_with_a_short_delay_is_still_a_daily_quota() {
    // R-A1 R-S5 C59
    let body = r#"{"error":{"code":429,"message":"m","status":"RESOURCE_EXHAUSTED","details":[
        {"@type":"type.googleapis.com/google.rpc.QuotaFailure","violations":[{"quotaId":"GenerateRequestsPerDayPerProjectPerModel-FreeTier"}]},
        {"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"36s"}]}}"#;
    let verdict = answer("gemini", 429, body).verdict();
    assert!(!certified(&verdict));
    assert_eq!(verdict.class, Class::QuotaHard);
}

/// The error type of the header is what counts, not the status that it comes with.
#[test]
fn a_throttle_of_bedrock_is_one_under_either_status() {
    // R-A1 C60
    for status in [400, 429] {
        let throttled = answer("bedrock", status, r#"{"message":"Too many requests"}"#)
            .with("x-amzn-errortype", "ThrottlingException");
        assert!(throttled.certified(), "{status}");
        assert_eq!(throttled.verdict().class, Class::Throttle);
    }
}

/// Pages of an edge network are never parsed, prove nothing, and move on only where the operator opts in.
#[test]
fn pages_of_an_edge_prove_nothing() {
    // R-A1 R-F2 C62
    let opted = Fallback {
        http_5xx: true,
        ..by_default()
    };
    for status in [520, 522, 524] {
        let page = answer("openai", status, "<html>error</html>").with("content-type", "text/html");
        let verdict = page.verdict();
        assert!(!certified(&verdict), "{status}");
        assert!(!moves_on(&verdict, &by_default()), "{status}");
        assert!(moves_on(&verdict, &opted), "{status}");
    }
}

/// A 429 moves on whether or not it can be certified, and whether or not it says when to come back.
#[test]
fn a_429_moves_on_by_default() {
    // R-F1 R-F2 C66 C67 C70
    let vertex = r#"{"error":{"code":429,"message":"Resource exhausted, please try again later.","status":"RESOURCE_EXHAUSTED"}}"#;
    let certain = answer("vertex", 429, vertex).verdict();
    assert!(certified(&certain) && certain.pushback.is_none());
    let unclear = answer("openai", 429, "{}").verdict();
    assert!(!certified(&unclear));
    for verdict in [certain, unclear] {
        assert!(moves_on(&verdict, &by_default()));
    }
}

/// 5xx and single statuses move on where the route says so, and only there.
#[test]
fn other_failures_move_on_where_the_route_says_so() {
    // R-F2 R-F7 C71 C74
    let unavailable = answer(
        "openai",
        503,
        r#"{"error":{"message":"m","type":"x","code":null}}"#,
    );
    let unknown = answer(
        "openai",
        404,
        r#"{"error":{"message":"m","type":"invalid_request_error","param":null,"code":"model_not_found"}}"#,
    );
    let opted = Fallback {
        http_5xx: true,
        statuses: vec![404],
        ..by_default()
    };
    for verdict in [unavailable.verdict(), unknown.verdict()] {
        assert!(!moves_on(&verdict, &by_default()));
        assert!(moves_on(&verdict, &opted));
    }
}

/// A spent balance is a quota whatever status carries it. It proves nothing, and moves on where its status is listed.
#[test]
fn a_spent_balance_is_a_quota_under_any_status() {
    // R-A1 R-F2 C32
    let capped = r#"{"type":"error","error":{"type":"invalid_request_error",
        "message":"You have reached your specified API usage limits. You will regain access on 2026-09-01 at 00:00 UTC."}}"#;
    let credits = r#"{"error":{"code":402,"message":"Insufficient credits","metadata":{}}}"#;
    for (adapter, status, body) in [("anthropic", 400, capped), ("openrouter", 402, credits)] {
        let verdict = answer(adapter, status, body).verdict();
        assert_eq!(verdict.class, Class::QuotaHard, "{adapter}");
        assert_eq!(verdict.scope, Scope::Credential, "{adapter}");
        assert!(!certified(&verdict), "{adapter}");
        assert!(!moves_on(&verdict, &by_default()), "{adapter}");
        let listed = Fallback {
            statuses: vec![status],
            ..by_default()
        };
        assert!(moves_on(&verdict, &listed), "{adapter}");
    }
    // Any other 400 of that type is the caller's.
    let other = r#"{"type":"error","error":{"type":"invalid_request_error","message":"max_tokens: required"}}"#;
    assert_ne!(
        answer("anthropic", 400, other).verdict().class,
        Class::QuotaHard
    );
}

/// A content filter is the caller's to mend: no other target is asked, even where 5xx may move on.
#[test]
fn a_content_filter_is_terminal() {
    // R-F7 C76
    let body = r#"{"error":{"message":"m","type":null,"param":"prompt","code":"content_filter","status":400,
        "innererror":{"code":"ResponsibleAIPolicyViolation"}}}"#;
    let verdict = answer("azure_openai", 400, body).verdict();
    assert_eq!(verdict.class, Class::ContentPolicy);
    let opted = Fallback {
        http_5xx: true,
        ..by_default()
    };
    assert!(!moves_on(&verdict, &opted));
}

/// Delays are told as they are. What is longer than anybody waits is long, not missing; what is nonsense is missing, not zero.
#[test]
fn strange_delays_are_read_safely() {
    // R-A3 C81 C82 C83 C84 C85 C86 C87
    let seconds = |seconds| Some(Duration::from_secs(seconds));
    assert_eq!(told("1200"), seconds(1200), "long, and told so");
    assert_eq!(told("61"), seconds(61), "not cut to a minute");
    assert_eq!(told("277403"), seconds(277_403));
    assert_eq!(told("99999999999999999999999999"), Some(PUSHBACK_MAX));
    for nonsense in ["-1", "-43", "soon", "", "5, 10", "1e3", "NaN", "Infinity"] {
        assert_eq!(told(nonsense), None, "{nonsense:?}");
    }
}

/// A date counts from the answer's own date, and one that has passed means now.
#[test]
fn dates_count_from_the_answers_own() {
    // R-A3 C84 C89
    let dated = |retry_after| {
        let answer = answer("openai", 429, LIMITED).with("date", "Sun, 06 Nov 1994 08:49:37 GMT");
        answer.with("retry-after", retry_after).verdict().pushback
    };
    let later = Some(Duration::from_secs(30));
    assert_eq!(dated("Sun, 06 Nov 1994 08:50:07 GMT"), later);
    assert_eq!(dated("Sunday, 06-Nov-94 08:50:07 GMT"), later);
    assert_eq!(dated("Sun Nov  6 08:50:07 1994"), later);
    assert_eq!(dated("Sun, 06 Nov 1994 08:00:00 GMT"), Some(Duration::ZERO));
}

//! For every row that certifies: an answer that it certifies, and its nearest neighbours that it must not.

use std::collections::BTreeSet;

use rondo::core::outcome::Outcome;
use rondo::providers::answer::BodyEnd;
use rondo::providers::registry;
use rondo::providers::rules::Proof;

use super::providers_support::{Answer, answer};

/// The name of a row, an answer for it, and bodies or statuses that differ in one thing.
pub struct Case {
    rule: &'static str,
    good: Answer<'static>,
    misses: &'static [(u16, &'static str)],
}

pub fn case(
    rule: &'static str,
    good: Answer<'static>,
    misses: &'static [(u16, &'static str)],
) -> Case {
    Case { rule, good, misses }
}

const GEMINI_GOOD: &str = r#"{"error":{"code":429,"message":"m","status":"RESOURCE_EXHAUSTED","details":[{"@type":"type.googleapis.com/google.rpc.QuotaFailure","violations":[{"quotaId":"GenerateRequestsPerMinutePerProject","quotaValue":"10"}]}]}}"#;

fn cases() -> Vec<Case> {
    let mut all = main_vendors();
    all.extend(super::providers_cases::cases());
    all.extend(super::providers_clouds::cases());
    all
}

fn main_vendors() -> Vec<Case> {
    vec![
        case(
            "openai.429.rate_limit_exceeded",
            answer(
                "openai",
                429,
                r#"{"error":{"message":"m","type":"requests","param":null,"code":"rate_limit_exceeded"}}"#,
            ),
            &[
                (
                    429,
                    r#"{"error":{"message":"m","type":null,"code":"rate_limit_exceeded"}}"#,
                ),
                (
                    429,
                    r#"{"error":{"message":"m","type":"insufficient_quota","code":"rate_limit_exceeded"}}"#,
                ),
                (
                    429,
                    r#"{"error":{"message":"m","type":"requests","code":"rate_limit_exceeded_now"}}"#,
                ),
                (
                    429,
                    r#"{"error":{"message":"m","type":"requests","code":null}}"#,
                ),
                (
                    429,
                    r#"{"error":{"message":7,"type":"requests","code":"rate_limit_exceeded"}}"#,
                ),
                (
                    429,
                    r#"{"error":{"message":"m","type":"requests","param":[],"code":"rate_limit_exceeded"}}"#,
                ),
                (
                    429,
                    r#"{"error":{"message":"litellm.RateLimitError: m","type":"requests","code":"rate_limit_exceeded"}}"#,
                ),
                (
                    429,
                    r#"{"error":{"message":"Request too large for m","type":"tokens","code":"rate_limit_exceeded"}}"#,
                ),
                (
                    429,
                    r#"[{"error":{"message":"m","type":"requests","code":"rate_limit_exceeded"}}]"#,
                ),
                (
                    429,
                    r#"{"message":"m","type":"requests","code":"rate_limit_exceeded"}"#,
                ),
                (
                    503,
                    r#"{"error":{"message":"m","type":"requests","code":"rate_limit_exceeded"}}"#,
                ),
                (
                    500,
                    r#"{"error":{"message":"m","type":"requests","code":"rate_limit_exceeded"}}"#,
                ),
            ],
        ),
        case(
            "openai.429.slow_down",
            answer(
                "openai",
                429,
                r#"{"error":{"message":"m","type":"rate_limit_error","code":"slow_down"}}"#,
            ),
            &[
                (
                    429,
                    r#"{"error":{"message":"m","type":"requests","code":"slow_down"}}"#,
                ),
                (
                    500,
                    r#"{"error":{"message":"m","type":"rate_limit_error","code":"slow_down"}}"#,
                ),
            ],
        ),
        case(
            "openai.503.server_is_overloaded",
            answer(
                "openai",
                503,
                r#"{"error":{"message":"m","type":"service_unavailable_error","code":"server_is_overloaded"}}"#,
            ),
            &[
                (
                    503,
                    r#"{"error":{"message":"m","type":"service_unavailable_error","code":null}}"#,
                ),
                (
                    503,
                    r#"{"error":{"message":"m","type":"server_error","code":"server_is_overloaded"}}"#,
                ),
                (
                    500,
                    r#"{"error":{"message":"m","type":"service_unavailable_error","code":"server_is_overloaded"}}"#,
                ),
                (
                    429,
                    r#"{"error":{"message":"m","type":"service_unavailable_error","code":"server_is_overloaded"}}"#,
                ),
            ],
        ),
        case(
            "openai.429.resource_unavailable",
            answer(
                "openai",
                429,
                r#"{"error":{"message":"m","type":"rate_limit_error","code":"resource_unavailable"}}"#,
            ),
            &[
                (
                    429,
                    r#"{"error":{"message":"m","type":"server_error","code":"resource_unavailable"}}"#,
                ),
                (
                    503,
                    r#"{"error":{"message":"m","type":"rate_limit_error","code":"resource_unavailable"}}"#,
                ),
            ],
        ),
        case(
            "anthropic.429.rate_limit_error",
            answer(
                "anthropic",
                429,
                r#"{"type":"error","error":{"type":"rate_limit_error","message":"m"}}"#,
            )
            .with("retry-after", "3"),
            &[
                (
                    429,
                    r#"{"type":"error","error":{"type":"rate_limit_error","message":"m","details":{"error_code":"new_code"}}}"#,
                ),
                (
                    429,
                    r#"{"type":"error","error":{"type":"rate_limit_error","message":"m","details":{"error_code":7}}}"#,
                ),
                (
                    429,
                    r#"{"type":"error","error":{"type":"rate_limit_error","message":"m","details":"ramp_limit_exceeded"}}"#,
                ),
                (
                    429,
                    r#"{"type":"error","error":{"type":"overloaded_error","message":"m"}}"#,
                ),
                (
                    429,
                    r#"{"error":{"type":"rate_limit_error","message":"m"}}"#,
                ),
                (
                    429,
                    r#"{"type":"error","error":{"type":"rate_limit_error"}}"#,
                ),
                (
                    529,
                    r#"{"type":"error","error":{"type":"rate_limit_error","message":"m"}}"#,
                ),
            ],
        ),
        case(
            "anthropic.529.overloaded_error",
            answer(
                "anthropic",
                529,
                r#"{"type":"error","error":{"type":"overloaded_error","message":"m","details":null}}"#,
            ),
            &[
                (
                    529,
                    r#"{"type":"error","error":{"type":"overloaded_error","message":"m","details":{"error_code":"compaction_unavailable"}}}"#,
                ),
                (
                    529,
                    r#"{"type":"error","error":{"type":"api_error","message":"m"}}"#,
                ),
                (
                    500,
                    r#"{"type":"error","error":{"type":"overloaded_error","message":"m"}}"#,
                ),
                (
                    503,
                    r#"{"type":"error","error":{"type":"overloaded_error","message":"m"}}"#,
                ),
            ],
        ),
        case(
            "gemini.429.per_minute",
            answer("gemini", 429, GEMINI_GOOD),
            &[
                (
                    429,
                    r#"{"error":{"code":429,"message":"m","status":"RESOURCE_EXHAUSTED"}}"#,
                ),
                (
                    429,
                    r#"{"error":{"code":429,"message":"m","status":"RESOURCE_EXHAUSTED","details":[{"@type":"google.rpc.QuotaFailure"}]}}"#,
                ),
                (
                    429,
                    r#"{"error":{"code":429,"message":"m","status":"RESOURCE_EXHAUSTED","details":[{"@type":"google.rpc.QuotaFailure","violations":[]}]}}"#,
                ),
                (
                    429,
                    r#"{"error":{"code":429,"message":"m","status":"RESOURCE_EXHAUSTED","details":[{"@type":"google.rpc.QuotaFailure","violations":[{"quotaId":"XPerMinute"},{"quotaId":"XPerHour"}]}]}}"#,
                ),
                (
                    429,
                    r#"{"error":{"code":429,"message":"m","status":"RESOURCE_EXHAUSTED","details":[{"@type":"google.rpc.QuotaFailure","violations":[{"quotaId":"XPerMinute","quotaValue":"0"}]}]}}"#,
                ),
                (
                    429,
                    r#"{"error":{"code":503,"message":"m","status":"RESOURCE_EXHAUSTED","details":[{"@type":"google.rpc.QuotaFailure","violations":[{"quotaId":"XPerMinute"}]}]}}"#,
                ),
                (
                    429,
                    r#"{"error":{"code":429,"message":"m","status":"UNAVAILABLE","details":[{"@type":"google.rpc.QuotaFailure","violations":[{"quotaId":"XPerMinute"}]}]}}"#,
                ),
                (503, GEMINI_GOOD),
            ],
        ),
        case(
            "gemini.429.rate_limit_exceeded",
            answer(
                "gemini",
                429,
                r#"{"error":{"code":"rate_limit_exceeded","message":"m"}}"#,
            ),
            &[
                (429, r#"{"error":{"code":"quota_exceeded","message":"m"}}"#),
                (
                    503,
                    r#"{"error":{"code":"rate_limit_exceeded","message":"m"}}"#,
                ),
            ],
        ),
    ]
}

#[test]
fn every_certifying_row_has_a_case() {
    // R-A1
    let tested: BTreeSet<_> = cases().iter().map(|case| case.rule).collect();
    let known: BTreeSet<_> = registry::all()
        .iter()
        .flat_map(|adapter| adapter.rules.iter().copied().flatten())
        .filter(|rule| rule.proof != Proof::None)
        .map(|rule| rule.name)
        .collect();
    assert_eq!(tested, known);
}

#[test]
fn a_certificate_needs_every_part_of_its_row() {
    // R-A1 R-S5
    for case in cases() {
        let verdict = case.good.verdict();
        let Outcome::Rejected(certificate) = verdict.outcome else {
            panic!("{} does not certify: {verdict:?}", case.rule);
        };
        assert_eq!(certificate.rule(), case.rule);
        assert_eq!(verdict.rule, case.rule);
        assert_eq!(certificate.class(), verdict.class);
        for (status, body) in case.misses {
            let miss = Answer {
                status: *status,
                body: body.as_bytes(),
                ..case.good.clone()
            };
            let verdict = miss.verdict();
            assert_eq!(verdict.outcome, Outcome::Refused, "{status} {body}");
        }
    }
}

#[test]
fn what_surrounds_the_body_can_void_any_certificate() {
    // R-A1 R-A2 R-A5
    for case in cases() {
        let (good, rule) = (case.good, case.rule);
        assert!(
            !good.clone().with("x-should-retry", "false").certified(),
            "{rule}"
        );
        assert!(
            !good.clone().with("x-should-retry", "False").certified(),
            "{rule}"
        );
        assert!(
            good.clone().with("x-should-retry", "true").certified(),
            "{rule}"
        );
        assert!(
            !good.clone().with("content-type", "text/html").certified(),
            "{rule}"
        );
        assert!(
            !good
                .clone()
                .with("content-type", "application/jsonl")
                .certified(),
            "{rule}"
        );
        assert!(
            !good.clone().with("content-encoding", "gzip").certified(),
            "{rule}"
        );
        assert!(
            !good.clone().with("content-encoding", "br").certified(),
            "{rule}"
        );
        assert!(
            !good.clone().with("content-length", "100000").certified(),
            "{rule}"
        );
        assert!(
            !good.clone().with("content-length", "x").certified(),
            "{rule}"
        );
        let changed = |end, side_effects| Answer {
            end,
            side_effects,
            ..good.clone()
        };
        assert!(!changed(BodyEnd::Truncated, false).certified(), "{rule}");
        assert!(!changed(BodyEnd::OverBound, false).certified(), "{rule}");
        assert!(!changed(BodyEnd::Complete, true).certified(), "{rule}");
        let longer = [good.body, b" {}"].concat();
        let trailing = Answer {
            body: &longer,
            ..good.clone()
        };
        assert!(!trailing.certified(), "{rule}");
        for cut in 0..good.body.len() {
            let cut = Answer {
                body: &good.body[..cut],
                ..good.clone()
            };
            assert!(!cut.certified(), "{rule}");
        }
    }
}

#[test]
fn rule_names_are_unique_and_certificates_carry_pushback_classes() {
    // R-A1
    for adapter in registry::all() {
        let rules: Vec<_> = adapter
            .deny
            .iter()
            .chain(adapter.rules)
            .copied()
            .flatten()
            .collect();
        let names: BTreeSet<_> = rules.iter().map(|rule| rule.name).collect();
        assert_eq!(names.len(), rules.len(), "{}", adapter.name);
        for rule in rules {
            assert!(
                rule.proof == Proof::None || rule.class.is_pushback(),
                "{}",
                rule.name
            );
        }
        for rule in adapter.deny.iter().copied().flatten() {
            assert_eq!(rule.proof, Proof::None, "{}", rule.name);
        }
    }
}

//! Certified answers and near misses of Vertex, Bedrock and Copilot, and where Bedrock may carry its code.

use rondo::core::class::Class;
use rondo::core::outcome::Outcome;

use super::providers_near_misses::{Case, case};
use super::providers_support::{Answer, answer};

pub fn cases() -> Vec<Case> {
    let mut all = bedrock();
    all.extend(vertex());
    all.extend(copilot());
    all
}

fn bedrock() -> Vec<Case> {
    let coded = |status, body| answer("bedrock", status, body);
    vec![
        case(
            "bedrock.429.throttling",
            coded(429, r#"{"__type":"ThrottlingException","message":"m"}"#),
            &[
                (
                    429,
                    r#"{"__type":"TooManyRequestsException","message":"m"}"#,
                ),
                (429, r#"{"__type":"LimitExceededException","message":"m"}"#),
                (429, r#"{"__type":"ThrottlingException","message":7}"#),
                (
                    429,
                    r#"{"__type":"ThrottlingException","message":"Too many tokens per day"}"#,
                ),
                (429, r#"{"__type":"throttlingException","message":"m"}"#),
                (429, r#"{"__type":["ThrottlingException"],"message":"m"}"#),
                (429, r#"{"message":"ThrottlingException"}"#),
                (
                    400,
                    r#"{"__type":"ServiceQuotaExceededException","message":"m"}"#,
                ),
                (503, r#"{"__type":"ThrottlingException","message":"m"}"#),
                (500, r#"{"__type":"ThrottlingException","message":"m"}"#),
            ],
        ),
        case(
            "bedrock.429.model_not_ready",
            coded(429, r#"{"code":"ModelNotReadyException","message":"m"}"#),
            &[
                (429, r#"{"code":"ModelTimeoutException","message":"m"}"#),
                (503, r#"{"code":"ModelNotReadyException","message":"m"}"#),
            ],
        ),
        case(
            "bedrock.503.service_unavailable",
            coded(
                503,
                r#"{"Code":"ServiceUnavailableException","Message":"m"}"#,
            ),
            &[
                (503, r#"{"Code":"InternalServerException","Message":"m"}"#),
                (503, r#"{"Message":"Service Unavailable"}"#),
                (
                    500,
                    r#"{"Code":"ServiceUnavailableException","Message":"m"}"#,
                ),
                (
                    429,
                    r#"{"Code":"ServiceUnavailableException","Message":"m"}"#,
                ),
            ],
        ),
        case(
            "bedrock.529.overloaded_error",
            coded(
                529,
                r#"{"type":"error","error":{"type":"overloaded_error","message":"m"}}"#,
            ),
            &[
                (
                    529,
                    r#"{"type":"error","error":{"type":"api_error","message":"m"}}"#,
                ),
                (
                    529,
                    r#"{"type":"error","error":{"type":"overloaded_error","message":"m","details":{"error_code":"compaction_unavailable"}}}"#,
                ),
                (
                    503,
                    r#"{"type":"error","error":{"type":"overloaded_error","message":"m"}}"#,
                ),
            ],
        ),
    ]
}

fn vertex() -> Vec<Case> {
    vec![
        case(
            "vertex.429.resource_exhausted",
            answer(
                "vertex",
                429,
                r#"{"error":{"code":429,"message":"m","status":"RESOURCE_EXHAUSTED"}}"#,
            ),
            &[
                (
                    429,
                    r#"{"error":{"code":429,"message":"Quota exceeded for logprobs requests per day","status":"RESOURCE_EXHAUSTED"}}"#,
                ),
                (
                    429,
                    r#"{"error":{"code":429,"message":"m","status":"RESOURCE_EXHAUSTED","details":[{"@type":"google.rpc.QuotaFailure","violations":[{"quotaId":"XPerDay"}]}]}}"#,
                ),
                (
                    429,
                    r#"{"error":{"code":503,"message":"m","status":"RESOURCE_EXHAUSTED"}}"#,
                ),
                (
                    429,
                    r#"{"error":{"message":"m","status":"RESOURCE_EXHAUSTED"}}"#,
                ),
                (
                    429,
                    r#"{"error":{"code":429,"message":"m","status":"UNAVAILABLE"}}"#,
                ),
                (
                    429,
                    r#"{"error":{"code":429,"message":"m","status":"RESOURCE_EXHAUSTED","details":"x"}}"#,
                ),
                (
                    503,
                    r#"{"error":{"code":429,"message":"m","status":"RESOURCE_EXHAUSTED"}}"#,
                ),
                (
                    402,
                    r#"{"error":{"code":429,"message":"m","status":"RESOURCE_EXHAUSTED"}}"#,
                ),
                (
                    429,
                    r#"{"type":"error","error":{"type":"rate_limit_error","message":"m"}}"#,
                ),
            ],
        ),
        case(
            "vertex.529.overloaded_error",
            answer(
                "vertex",
                529,
                r#"{"type":"error","error":{"type":"overloaded_error","message":"m"}}"#,
            ),
            &[
                (
                    529,
                    r#"{"type":"error","error":{"type":"api_error","message":"m"}}"#,
                ),
                (
                    529,
                    r#"{"type":"error","error":{"type":"overloaded_error","message":"m","details":{"error_code":"x"}}}"#,
                ),
                (
                    500,
                    r#"{"type":"error","error":{"type":"overloaded_error","message":"m"}}"#,
                ),
            ],
        ),
    ]
}

fn copilot() -> Vec<Case> {
    vec![
        case(
            "copilot.429.rate_limited",
            answer(
                "copilot",
                429,
                r#"{"code":"user_model_rate_limited:pro","message":"m"}"#,
            ),
            &[
                (
                    429,
                    r#"{"code":"user_model_rate_limited_pro","message":"m"}"#,
                ),
                (429, r#"{"code":"x:rate_limited","message":"m"}"#),
                (429, r#"{"code":"rate_limited"}"#),
                (
                    429,
                    r#"{"error":{"code":"extension_blocked","type":"rate_limit_error","message":"m"}}"#,
                ),
                (429, r#"{"error":{"code":"quota_exceeded","message":"m"}}"#),
                (503, r#"{"code":"rate_limited","message":"m"}"#),
                (402, r#"{"code":"rate_limited","message":"m"}"#),
            ],
        ),
        case(
            "copilot.429.model_overloaded",
            answer(
                "copilot",
                429,
                r#"{"error":{"code":"model_overloaded","message":"m"}}"#,
            ),
            &[
                (429, r#"{"error":{"code":"overloaded","message":"m"}}"#),
                (
                    503,
                    r#"{"error":{"code":"model_overloaded","message":"m"}}"#,
                ),
            ],
        ),
    ]
}

const CODE: &str = "x-amzn-errortype";

fn throttled(code: &'static str, body: &'static str) -> Answer<'static> {
    answer("bedrock", 429, body).with(CODE, code)
}

#[test]
fn bedrock_codes_are_read_from_the_header_or_the_body() {
    // R-A1
    let named = [
        ("ThrottlingException", r#"{"message":"m"}"#),
        (
            "ThrottlingException:http://internal.amazon.com/coral/",
            r#"{"message":null}"#,
        ),
        ("com.amazon.coral#ThrottlingException:http://x/", "{}"),
        (
            "ThrottlingException",
            r#"{"__type":"com.amazon.bedrock#ThrottlingException"}"#,
        ),
        ("ThrottlingException", ""),
    ];
    for (code, body) in named {
        let verdict = throttled(code, body).verdict();
        assert_eq!(verdict.rule, "bedrock.429.throttling", "{code} {body}");
        assert!(
            matches!(verdict.outcome, Outcome::Rejected(_)),
            "{code} {body}"
        );
    }
    let empty = throttled("ThrottlingException", "").with("content-type", "text/plain");
    assert!(
        empty.certified(),
        "an empty body has no media type to speak of"
    );
}

#[test]
fn bedrock_codes_that_contradict_each_other_prove_nothing() {
    // R-A1
    let unclear = [
        (
            "ThrottlingException",
            r#"{"__type":"ValidationException","message":"m"}"#,
        ),
        (
            "TooManyRequestsException",
            r#"{"message":"Too Many Requests"}"#,
        ),
        ("LimitExceededException", r#"{"message":"Limit Exceeded"}"#),
        ("", r#"{"message":"m"}"#),
        (":ThrottlingException", r#"{"message":"m"}"#),
    ];
    for (code, body) in unclear {
        let verdict = throttled(code, body).verdict();
        assert_eq!(verdict.outcome, Outcome::Refused, "{code} {body}");
        assert_eq!(verdict.class, Class::Ambiguous, "{code} {body}");
    }
    let page = throttled("ThrottlingException", "<html></html>").with("content-type", "text/html");
    assert!(!page.certified(), "a page is not the service's");
    let mut twice = throttled("ThrottlingException", r#"{"message":"m"}"#);
    twice.headers.push((CODE, "ThrottlingException"));
    assert!(!twice.certified(), "which line counts cannot be told");
    let other = answer("openai", 429, r#"{"message":"m"}"#).with(CODE, "ThrottlingException");
    assert_eq!(other.verdict().class, Class::Ambiguous, "not AWS");
}

#[test]
fn a_problem_document_counts_for_the_adapter_that_says_so() {
    // R-A1
    let problem = r#"{"status":429,"title":"Too Many Requests"}"#;
    let media = ("content-type", "application/problem+json");
    let nvidia = answer("nvidia_nim", 429, problem).with(media.0, media.1);
    assert_eq!(nvidia.verdict().class, Class::Throttle);
    assert!(!nvidia.certified());
    let rejected = r#"{"error":{"message":"m","type":"requests","code":"rate_limit_exceeded"}}"#;
    let openai = answer("openai", 429, rejected).with(media.0, media.1);
    assert_eq!(openai.verdict().class, Class::Ambiguous);
}

//! Answers with an error status: delivery, class and delay.

use std::io::Write;
use std::time::Duration;

use rondo::core::class::Class;
use rondo::core::limits::{PUSHBACK_MAX, REPLY_BODY_MAX};
use rondo::core::outcome::{Carrier, Outcome, Scope};
use rondo::providers::answer::{BodyEnd, Verdict};
use rondo::providers::headers::{passes_with_answer, passes_with_error, upstream_request_id};

use super::providers_support::{Answer, answer, certified};

const LIMITED: &str =
    r#"{"error":{"message":"m","type":"requests","param":null,"code":"rate_limit_exceeded"}}"#;

#[test]
fn compatible_servers_certify_the_dialect_they_imitate() {
    // R-A1 R-S5
    let openai = answer("openai_compatible", 429, LIMITED).with("retry-after", "2");
    assert!(openai.certified());
    assert_eq!(openai.verdict().pushback, Some(Duration::from_secs(2)));
    let limited = r#"{"type":"error","error":{"type":"rate_limit_error","message":"m"}}"#;
    let anthropic = answer("anthropic_compatible", 429, limited);
    assert!(!anthropic.certified());
    assert!(anthropic.with("retry-after", "1").certified());
    let busy = r#"{"type":"error","error":{"type":"overloaded_error","message":"m"}}"#;
    assert!(answer("anthropic_compatible", 529, busy).certified());
}

#[test]
fn a_bare_status_proves_nothing() {
    // R-A1
    for adapter in [
        "openai",
        "openai_compatible",
        "anthropic_compatible",
        "gemini",
    ] {
        for body in ["", "null", "{}", r#"{"message":"Too Many Requests"}"#] {
            let verdict = answer(adapter, 429, body).verdict();
            assert_eq!(verdict.outcome, Outcome::Refused);
            assert_eq!(verdict.class, Class::Ambiguous, "{adapter} {body}");
        }
    }
}

#[test]
fn the_operator_may_vouch_for_a_bare_status() {
    // R-A1
    let vouched = |status, body| Answer {
        trust: &[400, 429, 503],
        ..answer("openai_compatible", status, body)
    };
    let verdict = vouched(429, "").verdict();
    assert!(certified(&verdict));
    assert_eq!(
        (verdict.class, verdict.rule),
        (Class::Throttle, "operator.trust_status")
    );
    let page = vouched(503, "<html>")
        .with("content-type", "text/html")
        .verdict();
    assert!(certified(&page));
    assert_eq!(page.class, Class::Overload);
    assert!(!vouched(500, "").certified());
    assert!(!vouched(429, "").with("x-should-retry", "false").certified());
    let spent =
        r#"{"error":{"message":"m","type":"insufficient_quota","code":"insufficient_quota"}}"#;
    assert_eq!(vouched(429, spent).verdict().class, Class::QuotaHard);
    assert!(!vouched(429, spent).certified());
    assert!(!vouched(429, r#"{"a":1,"a":2}"#).certified());
    let long = r#"{"error":{"message":"m","type":"x","code":"context_length_exceeded"}}"#;
    assert!(!vouched(400, long).certified());
    let tools = Answer {
        side_effects: true,
        ..vouched(429, "")
    };
    assert!(!tools.certified());
    let early = Answer {
        end: BodyEnd::Truncated,
        ..vouched(429, "")
    };
    assert!(!early.certified());
}

#[test]
fn c55_a_spent_quota_is_never_certified() {
    // R-S5 C55
    let body = r#"{"error":{"message":"You exceeded your current quota","type":"insufficient_quota","param":null,"code":"insufficient_quota"}}"#;
    for adapter in ["openai", "openai_compatible"] {
        let verdict = answer(adapter, 429, body)
            .with("retry-after", "1")
            .verdict();
        assert_eq!(verdict.outcome, Outcome::Refused);
        assert_eq!(
            (verdict.class, verdict.scope),
            (Class::QuotaHard, Scope::Credential)
        );
    }
}

#[test]
fn an_incomplete_answer_is_ambiguous_and_an_oversized_one_is_refused() {
    // R-A2
    let ended = |end| {
        let answer = Answer {
            end,
            ..answer("openai", 429, LIMITED)
        };
        let verdict = answer.with("retry-after", "4").verdict();
        assert_eq!(verdict.pushback, Some(Duration::from_secs(4)));
        (verdict.outcome, verdict.class)
    };
    assert_eq!(
        ended(BodyEnd::Truncated),
        (Outcome::Ambiguous, Class::Malformed)
    );
    assert_eq!(
        ended(BodyEnd::OverBound),
        (Outcome::Refused, Class::Malformed)
    );
    let short = answer("openai", 429, LIMITED)
        .with("content-length", "9999")
        .verdict();
    assert_eq!(
        (short.outcome, short.class),
        (Outcome::Ambiguous, Class::Malformed)
    );
    let long = " ".repeat(REPLY_BODY_MAX) + LIMITED;
    let long = answer("openai", 429, &long).verdict();
    assert_eq!(
        (long.outcome, long.class),
        (Outcome::Refused, Class::Malformed)
    );
}

#[test]
fn broken_bodies_are_malformed() {
    // R-A2
    let duplicate = r#"{"error":{"message":"m","type":"tokens","code":"rate_limit_exceeded","code":"rate_limit_exceeded"}}"#;
    let deep = "[".repeat(200) + &"]".repeat(200);
    for body in ["{", "{}{}", "\u{feff}{}", "nul", duplicate, &deep] {
        let verdict = answer("openai", 429, body).verdict();
        assert_eq!(
            (verdict.outcome, verdict.class),
            (Outcome::Refused, Class::Malformed),
            "{body}"
        );
    }
    let latin = Answer {
        body: b"{\"error\":{\"message\":\"\xe9\"}}",
        ..answer("openai", 429, "")
    };
    assert_eq!(latin.verdict().class, Class::Malformed);
}

fn encoded(name: &str, body: &[u8]) -> Verdict {
    let answer = Answer {
        body,
        ..answer("openai", 429, "")
    };
    answer.with("content-encoding", name).verdict()
}

/// A Brotli stream with one uncompressed meta-block and the empty last one.
fn uncompressed_brotli(body: &[u8]) -> Vec<u8> {
    let header = (u32::try_from(body.len()).unwrap() - 1) << 4 | 1 << 20;
    [&header.to_le_bytes()[..3], body, &[3]].concat()
}

#[test]
fn encoded_bodies_are_decoded_within_the_bound() {
    // R-A2
    let level = flate2::Compression::default();
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), level);
    gzip.write_all(LIMITED.as_bytes()).unwrap();
    let gzip = gzip.finish().unwrap();
    let mut zlib = flate2::write::ZlibEncoder::new(Vec::new(), level);
    zlib.write_all(LIMITED.as_bytes()).unwrap();
    let zlib = zlib.finish().unwrap();
    let mut raw = flate2::write::DeflateEncoder::new(Vec::new(), level);
    raw.write_all(LIMITED.as_bytes()).unwrap();
    let raw = raw.finish().unwrap();
    let zstd = ruzstd::encoding::compress_to_vec(
        LIMITED.as_bytes(),
        ruzstd::encoding::CompressionLevel::Fastest,
    );
    let brotli = uncompressed_brotli(LIMITED.as_bytes());
    for (name, body) in [
        ("br", &brotli),
        ("zstd", &zstd),
        ("gzip", &gzip),
        ("GZIP", &gzip),
        ("deflate", &zlib),
        ("deflate", &raw),
    ] {
        assert!(certified(&encoded(name, body)), "{name}");
        for cut in 0..body.len() {
            let verdict = encoded(name, &body[..cut]);
            assert_eq!(
                (verdict.outcome, verdict.class),
                (Outcome::Refused, Class::Malformed)
            );
        }
        let mut damaged = body.clone();
        *damaged.last_mut().unwrap() ^= 1;
        let has_checksum = !matches!((name, body == &raw), ("br", _) | (_, true));
        assert!(
            !has_checksum || encoded(name, &damaged).class == Class::Malformed,
            "{name}"
        );
        let trailing = [body.as_slice(), b"x"].concat();
        assert_eq!(encoded(name, &trailing).class, Class::Malformed);
    }
    let mut bomb = flate2::write::GzEncoder::new(Vec::new(), level);
    bomb.write_all(&vec![b' '; 8 << 20]).unwrap();
    assert_eq!(
        encoded("gzip", &bomb.finish().unwrap()).class,
        Class::Malformed
    );
    let zeros = vec![b' '; 8 << 20];
    let bomb = ruzstd::encoding::compress_to_vec(
        zeros.as_slice(),
        ruzstd::encoding::CompressionLevel::Fastest,
    );
    assert_eq!(encoded("zstd", &bomb).class, Class::Malformed);
    assert_eq!(encoded("gzip, gzip", &gzip).class, Class::Malformed);
}

#[test]
fn an_unclear_word_about_retries_forbids_them() {
    // R-A1
    let mut answer = answer("openai", 429, LIMITED);
    answer
        .headers
        .extend([("x-should-retry", "true"), ("x-should-retry", "false")]);
    assert!(!answer.certified());
}

#[test]
fn redirects_are_never_followed() {
    // R-A1
    let verdict = answer("openai", 307, LIMITED)
        .with("location", "https://elsewhere")
        .verdict();
    assert_eq!(
        (verdict.outcome, verdict.class),
        (Outcome::Refused, Class::Config)
    );
    assert_eq!((verdict.status, verdict.carrier), (307, Carrier::Status));
}

#[test]
fn delays_follow_their_order_and_malformed_ones_are_missing() {
    // R-A3 R-S12
    let delay = |headers: &[(&'static str, &'static str)]| {
        let mut answer = answer("openai_compatible", 429, LIMITED);
        answer.headers.extend_from_slice(headers);
        answer.verdict().pushback
    };
    let millis = |millis| Some(Duration::from_millis(millis));
    assert_eq!(
        delay(&[("retry-after-ms", "20"), ("retry-after", "9")]),
        millis(20)
    );
    assert_eq!(
        delay(&[("retry-after-ms", "x"), ("retry-after", "9")]),
        millis(9000)
    );
    assert_eq!(delay(&[("retry-after", "0.0001")]), millis(1));
    assert_eq!(
        delay(&[("retry-after", "9"), ("x-ms-retry-after-ms", "7")]),
        millis(9000)
    );
    assert_eq!(
        delay(&[("retry-after", "soon"), ("x-ms-retry-after-ms", "7")]),
        millis(7)
    );
    assert_eq!(
        delay(&[("retry-after", "99999999999999999999")]),
        Some(PUSHBACK_MAX)
    );
    assert_eq!(
        delay(&[("retry-after-ms", "9007199254740992")]),
        Some(PUSHBACK_MAX)
    );
    let date = "Tue, 01 Sep 2026 10:00:07 GMT";
    assert_eq!(
        delay(&[("retry-after", date)]),
        None,
        "no clock but the answer's own"
    );
    assert_eq!(
        delay(&[
            ("retry-after", date),
            ("date", "Tue, 01 Sep 2026 10:00:00 GMT")
        ]),
        millis(7000)
    );
    assert_eq!(
        delay(&[("retry-after", "5"), ("retry-after", "5")]),
        None,
        "repeated"
    );
    for bad in [
        "", "+5", "-5", "1e3", "5s", ".5", "5.", "5, 10", "NaN", "inf", "٥", "0x5",
    ] {
        assert_eq!(delay(&[("retry-after", bad)]), None, "{bad}");
    }
}

#[test]
fn only_harmless_headers_reach_the_client() {
    // R-D2 R-X2
    for name in [
        "content-type",
        "Retry-After",
        "retry-after-ms",
        "x-should-retry",
        "x-ratelimit-reset-tokens",
        "anthropic-ratelimit-tokens-reset",
        "openai-processing-ms",
        "request-id",
    ] {
        assert!(
            passes_with_error(name) && passes_with_answer(name),
            "{name}"
        );
    }
    for name in [
        "Set-Cookie",
        "authorization",
        "x-api-key",
        "www-authenticate",
        "connection",
        "transfer-encoding",
        "server",
        "cf-ray",
        "x-rondo-route",
        "x-request-id",
        "openai-organization",
    ] {
        assert!(
            !passes_with_error(name) && !passes_with_answer(name),
            "{name}"
        );
    }
    assert!(passes_with_answer("content-encoding") && passes_with_error("content-encoding"));
    assert!(passes_with_answer("x-new-feature") && !passes_with_error("x-new-feature"));
    let sane = [("request-id", "req_1")];
    assert_eq!(upstream_request_id(&sane), Some("req_1"));
    assert_eq!(upstream_request_id(&[("x-request-id", "a b")]), None);
}

//! Attempt reports by name. A token says what an upstream did; the tables of tests are written in tokens.
//!
//! | token | meaning |
//! |---|---|
//! | `ok` | a good answer |
//! | `429` `529` `429/800` | certified throttle or overload, without and with a delay in milliseconds |
//! | `c503/800` | a certified overload that came as 503 |
//! | `s429/800` | the same inside a stream |
//! | `u429` `u529` `u503` | the same statuses without a certificate |
//! | `su529` `s500` | uncertified errors inside a stream |
//! | `quota` `auth` `config` `context` `policy` | refusals by class |
//! | `400` `404` `500` `502` ... | refusals by status |
//! | `auth403` `auth429` `quota402` `context500` `config503` | the same classes under other statuses |
//! | `bare503` | a 503 that says nothing more |
//! | `unreached` | no connection: nobody else at the address gets one |
//! | `region` | 403 for everything at the provider |
//! | `nd` `reset` `timeout` `malformed` `partial` | no answer, or a broken one |

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use rondo::core::api::Api;
use rondo::core::certificate::{PushbackKind, RejectionCertificate};
use rondo::core::class::Class;
use rondo::core::outcome::{AttemptReport, Carrier, Outcome, Reply, Scope};
use rondo::providers::answer::{BodyEnd, RequestTraits, ResponseHead};
use rondo::providers::classify::classify;
use rondo::providers::registry;
use rondo::providers::rules::scope_of;

/// A certificate, earned like every other one: by an answer that the tables know. Two are enough for all tests.
pub fn certificate(kind: PushbackKind) -> RejectionCertificate {
    static THROTTLE: LazyLock<RejectionCertificate> = LazyLock::new(|| earn(429, THROTTLE_BODY));
    static OVERLOAD: LazyLock<RejectionCertificate> = LazyLock::new(|| earn(503, OVERLOAD_BODY));
    let certificate = match kind {
        PushbackKind::Throttle => *THROTTLE,
        PushbackKind::Overload => *OVERLOAD,
    };
    assert_eq!(certificate.kind(), kind);
    certificate
}

const THROTTLE_BODY: &str = r#"{"error":{"message":"Rate limit reached for gpt-4o","type":"requests","param":null,"code":"rate_limit_exceeded"}}"#;
const OVERLOAD_BODY: &str = r#"{"error":{"message":"The server is overloaded","type":"service_unavailable_error","param":null,"code":"server_is_overloaded"}}"#;

fn earn(status: u16, body: &str) -> RejectionCertificate {
    let traits = RequestTraits {
        api: Api::OpenaiChat,
        stream: false,
        side_effects: false,
    };
    let headers = [("content-type", "application/json")];
    let head = ResponseHead {
        status,
        headers: &headers,
    };
    let adapter = registry::find("openai").unwrap();
    let verdict = classify(
        adapter,
        &traits,
        &[],
        &head,
        body.as_bytes(),
        BodyEnd::Complete,
    );
    match verdict.outcome {
        Outcome::Rejected(certificate) => certificate,
        other => panic!("{status} earned {other:?} by {}", verdict.rule),
    }
}

pub fn report(
    outcome: Outcome,
    class: Class,
    status: Option<u16>,
    carrier: Carrier,
) -> AttemptReport {
    let scope = scope_of(class);
    let is_error = matches!(outcome, Outcome::Refused | Outcome::Rejected(_));
    let reply = status.filter(|_| is_error).map(|status| {
        Arc::new(Reply {
            status,
            headers: vec![("content-type".into(), "application/json".into())],
            body: Vec::new(),
        })
    });
    AttemptReport {
        outcome,
        class,
        scope,
        carrier,
        status,
        pushback: None,
        reply,
    }
}

pub fn rejected(kind: PushbackKind, carrier: Carrier, delay: Option<Duration>) -> AttemptReport {
    let (class, status) = match kind {
        PushbackKind::Throttle => (Class::Throttle, 429),
        PushbackKind::Overload => (Class::Overload, 529),
    };
    let outcome = Outcome::Rejected(certificate(kind));
    AttemptReport {
        pushback: delay,
        ..report(outcome, class, Some(status), carrier)
    }
}

pub fn refused(status: u16, class: Class, carrier: Carrier) -> AttemptReport {
    report(Outcome::Refused, class, Some(status), carrier)
}

pub fn success() -> AttemptReport {
    report(Outcome::Succeeded, Class::Ok, Some(200), Carrier::Status)
}

pub fn not_delivered() -> AttemptReport {
    report(Outcome::NotDelivered, Class::Transport, None, Carrier::None)
}

pub fn ambiguous(class: Class) -> AttemptReport {
    report(Outcome::Ambiguous, class, None, Carrier::None)
}

pub fn partial() -> AttemptReport {
    report(
        Outcome::Partial,
        Class::Transport,
        Some(200),
        Carrier::Stream,
    )
}

/// The report that a token names.
pub fn named(token: &str) -> AttemptReport {
    match token {
        "ok" => return success(),
        "nd" => return not_delivered(),
        "unreached" => {
            let scope = Scope::Endpoint;
            return AttemptReport {
                scope,
                ..not_delivered()
            };
        }
        "region" => {
            let scope = Scope::Provider;
            return AttemptReport {
                scope,
                ..refused(403, Class::Config, Carrier::Status)
            };
        }
        "reset" => return ambiguous(Class::Transport),
        "timeout" => return ambiguous(Class::Timeout),
        "malformed" => return ambiguous(Class::Malformed),
        "partial" => return partial(),
        "quota" => return refused(429, Class::QuotaHard, Carrier::Status),
        "auth" => return refused(401, Class::Auth, Carrier::Status),
        "auth403" => return refused(403, Class::Auth, Carrier::Status),
        "auth429" => return refused(429, Class::Auth, Carrier::Status),
        "quota402" => return refused(402, Class::QuotaHard, Carrier::Status),
        "context500" => return refused(500, Class::ContextOverflow, Carrier::Status),
        "config503" => return refused(503, Class::Config, Carrier::Status),
        "config" => return refused(404, Class::Config, Carrier::Status),
        "context" => return refused(400, Class::ContextOverflow, Carrier::Status),
        "bare503" => return refused(503, Class::Ambiguous, Carrier::Status),
        "policy" => return refused(400, Class::ContentPolicy, Carrier::Status),
        _ => {}
    }
    let (head, delay) = match token.split_once('/') {
        Some((head, delay)) => (head, Some(Duration::from_millis(delay.parse().unwrap()))),
        None => (token, None),
    };
    let (carrier, head) = match head.strip_prefix('s') {
        Some(rest) => (Carrier::Stream, rest),
        None => (Carrier::Status, head),
    };
    let (certified, status) = match head.strip_prefix('u') {
        Some(rest) => (false, rest),
        None => (matches!(head, "429" | "529"), head),
    };
    let status: u16 = status
        .trim_start_matches('c')
        .parse()
        .unwrap_or_else(|_| panic!("unknown token {token}"));
    if token.starts_with("c503") {
        let overload = rejected(PushbackKind::Overload, Carrier::Status, delay);
        return AttemptReport {
            status: Some(503),
            ..overload
        };
    }
    if certified {
        let kind = if status == 429 {
            PushbackKind::Throttle
        } else {
            PushbackKind::Overload
        };
        return rejected(kind, carrier, delay);
    }
    AttemptReport {
        pushback: delay,
        ..refused(status, class_of(status), carrier)
    }
}

fn class_of(status: u16) -> Class {
    match status {
        429 => Class::Throttle,
        503 | 529 => Class::Overload,
        401 | 403 => Class::Auth,
        400..=499 => Class::Config,
        _ => Class::ServerError,
    }
}

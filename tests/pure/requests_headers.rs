//! Headers: what a client's say, and what a target is sent.

use std::time::Duration;

use http::header::{HeaderName, HeaderValue};
use rondo::core::api::Api;
use rondo::policy::secret::Secret;
use rondo::providers::client_headers::{caller_retry, client_timeout, sane_request_id};
use rondo::providers::outbound_headers::{AuthScheme, HeaderError, Prepared, request_headers};

type Sent = Vec<(HeaderName, HeaderValue)>;

fn send(
    api: Api,
    auth: AuthScheme,
    secret: &str,
    client: &[(&str, &str)],
) -> Result<Sent, HeaderError> {
    let secret = Secret::new(secret);
    let prepared = Prepared {
        api,
        request_id: "req-1",
        auth,
        secret: Some(&secret),
        content_length: 42,
    };
    request_headers(
        client.iter().map(|(name, value)| (*name, value.as_bytes())),
        &prepared,
    )
}

fn values<'s>(sent: &'s Sent, name: &str) -> Vec<&'s str> {
    sent.iter()
        .filter(|(n, _)| n == name)
        .map(|(_, value)| value.to_str().unwrap())
        .collect()
}

// R-X2, C169, C171
#[test]
fn nothing_of_a_client_passes_but_what_is_listed() {
    let client = [
        ("Authorization", "Bearer CLIENT"),
        ("x-api-key", "CLIENT"),
        ("x-goog-api-key", "CLIENT"),
        ("api-key", "CLIENT"),
        ("Proxy-Authorization", "CLIENT"),
        ("cookie", "CLIENT"),
        ("host", "CLIENT"),
        ("x-internal-user", "CLIENT"),
        ("openai-organization", "CLIENT"),
        ("x-request-id", "CLIENT"),
        ("content-length", "7"),
        ("transfer-encoding", "chunked"),
        ("connection", "x-api-key"),
        ("accept-encoding", "br"),
        ("expect", "100-continue"),
        ("x-forwarded-for", "CLIENT"),
        ("Content-Type", "application/json; charset=utf-8"),
        ("ACCEPT", "text/event-stream"),
        ("user-agent", "app/1"),
        ("traceparent", "00-1-2-01"),
        ("openai-beta", "x=v1"),
    ];
    let sent = send(Api::OpenaiChat, AuthScheme::Bearer, "TARGET", &client).unwrap();
    let text: Vec<_> = sent
        .iter()
        .map(|(n, v)| format!("{n}: {}", v.to_str().unwrap()))
        .collect();
    assert_eq!(
        text,
        [
            "content-type: application/json; charset=utf-8",
            "accept: text/event-stream",
            "user-agent: app/1",
            "traceparent: 00-1-2-01",
            "openai-beta: x=v1",
            "x-request-id: req-1",
            "content-length: 42",
            "authorization: Bearer TARGET",
        ]
    );
    assert!(!format!("{sent:?}").contains("TARGET"));
}

// R-X2
#[test]
fn a_credential_goes_where_its_provider_wants_it() {
    let cases = [
        (AuthScheme::Bearer, Some(("authorization", "Bearer K"))),
        (AuthScheme::XApiKey, Some(("x-api-key", "K"))),
        (AuthScheme::XGoogApiKey, Some(("x-goog-api-key", "K"))),
        (AuthScheme::ApiKey, Some(("api-key", "K"))),
        (AuthScheme::None, None),
    ];
    for (scheme, wanted) in cases {
        let sent = send(Api::OpenaiChat, scheme, "K", &[]).unwrap();
        let found: Vec<_> = sent
            .iter()
            .filter(|(_, value)| value.is_sensitive())
            .collect();
        let found: Vec<_> = found
            .iter()
            .map(|(n, v)| (n.as_str(), v.to_str().unwrap()))
            .collect();
        assert_eq!(found, Vec::from_iter(wanted));
    }
    assert_eq!(
        send(Api::OpenaiChat, AuthScheme::Bearer, "a\nb", &[]),
        Err(HeaderError::Secret)
    );
}

#[test]
fn the_version_header_has_a_default_for_anthropic_alone() {
    let version = |api, client: &[(&str, &str)]| {
        let sent = send(api, AuthScheme::None, "", client).unwrap();
        values(&sent, "anthropic-version").join(",")
    };
    assert_eq!(version(Api::AnthropicMessages, &[]), "2023-06-01");
    assert_eq!(version(Api::AnthropicCountTokens, &[]), "2023-06-01");
    assert_eq!(
        version(
            Api::AnthropicMessages,
            &[("Anthropic-Version", "2026-10-21")]
        ),
        "2026-10-21"
    );
    assert_eq!(version(Api::OpenaiChat, &[]), "");
    assert_eq!(version(Api::Gemini, &[]), "");
}

#[test]
fn lists_repeat_and_single_headers_do_not() {
    let client = [
        ("anthropic-beta", "a"),
        ("content-type", "application/json"),
        ("anthropic-beta", "b,c"),
        ("content-type", "text/evil"),
    ];
    let sent = send(Api::AnthropicMessages, AuthScheme::None, "", &client).unwrap();
    assert_eq!(values(&sent, "anthropic-beta"), ["a", "b,c"]);
    assert_eq!(values(&sent, "content-type"), ["application/json"]);
}

#[test]
fn passed_headers_are_bounded() {
    let long = "x".repeat(4097);
    let bad = [
        ("user-agent", "a\nb"),
        ("traceparent", "a\0"),
        ("openai-beta", long.as_str()),
    ];
    let sent = send(Api::OpenaiChat, AuthScheme::None, "", &bad).unwrap();
    assert_eq!(sent.len(), 3, "{sent:?}");
    let many = [("anthropic-beta", "b"); 1000];
    let sent = send(Api::OpenaiChat, AuthScheme::None, "", &many).unwrap();
    assert_eq!(values(&sent, "anthropic-beta").len(), 32);
}

fn timeout(headers: &[(&str, &str)]) -> Option<Duration> {
    let find = |name: &str| {
        headers
            .iter()
            .find(|(n, _)| *n == name)
            .map(|(_, v)| v.as_bytes())
    };
    client_timeout(find)
}

// R-B4
#[test]
fn the_shortest_timeout_of_a_client_counts() {
    let seconds = Duration::from_secs;
    type Case<'c> = (&'c [(&'c str, &'c str)], Option<Duration>);
    let cases: [Case<'_>; 8] = [
        (&[], None),
        (
            &[("x-request-timeout-ms", "1500")],
            Some(Duration::from_millis(1500)),
        ),
        (&[("x-stainless-timeout", "600")], Some(seconds(600))),
        (&[("x-stainless-read-timeout", "600.0")], Some(seconds(600))),
        (
            &[("x-stainless-timeout", " 0.25 ")],
            Some(Duration::from_millis(250)),
        ),
        (
            &[
                ("x-stainless-timeout", "600"),
                ("x-request-timeout-ms", "1000"),
            ],
            Some(seconds(1)),
        ),
        (
            &[
                ("x-stainless-timeout", "9"),
                ("x-stainless-read-timeout", "5"),
            ],
            Some(seconds(5)),
        ),
        (
            &[
                ("x-stainless-timeout", "junk"),
                ("x-request-timeout-ms", "7000"),
            ],
            Some(seconds(7)),
        ),
    ];
    for (headers, wanted) in cases {
        assert_eq!(timeout(headers), wanted, "{headers:?}");
    }
    for junk in [
        "",
        "0",
        "0.0",
        "-1",
        "+1",
        "1e3",
        "1.",
        ".5",
        "1.2.3",
        "NaN",
        "inf",
        "1,2",
        "99999999999999999999",
    ] {
        assert_eq!(timeout(&[("x-stainless-timeout", junk)]), None, "{junk}");
    }
    // Too long for a clock is longer than any deadline, and no overflow.
    assert!(timeout(&[("x-stainless-timeout", "999999999999999999")]) > Some(seconds(1 << 33)));
}

// R-S11
#[test]
fn a_clients_own_retry_is_told() {
    for (value, wanted) in [
        ("1", true),
        ("2", true),
        ("010", true),
        ("0", false),
        ("00", false),
        ("", false),
        ("-1", false),
        ("x", false),
    ] {
        assert_eq!(caller_retry(|_| Some(value.as_bytes())), wanted, "{value}");
    }
    assert!(!caller_retry(|_| None));
    assert!(!caller_retry(
        |name| (name == "x-stainless-timeout").then_some(b"1")
    ));
}

#[test]
fn a_request_id_is_kept_only_if_it_is_sane() {
    let longest = "x".repeat(128);
    for id in ["a", "req_01-A.b:c", &longest] {
        assert_eq!(sane_request_id(id.as_bytes()), Some(id));
    }
    let long = "x".repeat(129);
    for id in ["", "a b", "a\nb", "a\"b", "é", "a/b", "a{b", &long] {
        assert_eq!(sane_request_id(id.as_bytes()), None, "{id}");
    }
}

//! WebSocket handshakes: what is one, whose model it names, what of it reaches a target, and what a refusal says.

use http::{HeaderMap, HeaderName, HeaderValue};
use rondo::core::api::Api;
use rondo::core::class::Class;
use rondo::core::outcome::{Outcome, Scope};
use rondo::policy::provider::Azure;
use rondo::providers::answer::{BodyEnd, RequestTraits, ResponseHead};
use rondo::providers::classify::classify;
use rondo::providers::handshake::{
    NoHandshake, NoModel, check, headers, is_accepted, model, query_for, reread, scan,
};
use rondo::providers::inbound::Version;
use rondo::providers::openai::ADAPTER;
use rondo::providers::request_style::{PathParts, RequestStyle, target_path};

fn map(lines: &[(&str, &str)]) -> HeaderMap {
    let mut map = HeaderMap::new();
    for (name, value) in lines {
        let name: HeaderName = name.parse().unwrap();
        map.append(name, HeaderValue::from_str(value).unwrap());
    }
    map
}

const GOOD: [(&str, &str); 4] = [
    ("upgrade", "WebSocket"),
    ("connection", "keep-alive, UPGRADE"),
    ("sec-websocket-version", "13"),
    ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
];

#[test]
fn a_handshake_is_complete_or_none() {
    assert_eq!(check(&map(&GOOD)), Ok(()));
    let without = [
        NoHandshake::NotAsked,
        NoHandshake::NotAsked,
        NoHandshake::Version,
        NoHandshake::Key,
    ];
    for (index, why) in without.into_iter().enumerate() {
        let mut lines = GOOD.to_vec();
        let (name, value) = lines.remove(index);
        assert_eq!(check(&map(&lines)), Err(why), "without {name}");
        lines.push((name, "other"));
        assert_eq!(check(&map(&lines)), Err(why), "another {name}");
        if index >= 2 {
            lines.extend([(name, value)]);
            assert_eq!(check(&map(&lines)), Err(why), "{name} twice");
        }
    }
}

#[test]
fn the_query_names_the_model_and_the_header_stands_in() {
    type Case<'a> = (&'a str, Option<&'a [u8]>, Result<&'a str, NoModel>);
    let cases: [Case<'_>; 10] = [
        ("model=m", None, Ok("m")),
        ("a=b&model=a%2Fb&c", None, Ok("a/b")),
        ("mod%65l=m", None, Ok("m")),
        ("model=m", Some(b"h"), Ok("m")),
        ("a=b", Some(b" h "), Ok("h")),
        ("", None, Err(NoModel::Missing)),
        ("model=", Some(b"h"), Err(NoModel::Invalid)),
        ("model=a&model=a", None, Err(NoModel::Invalid)),
        ("model=%0a", None, Err(NoModel::Invalid)),
        ("", Some(b"\xff"), Err(NoModel::Invalid)),
    ];
    for (query, header, expected) in cases {
        let found = model(Some(query), header);
        assert_eq!(found.as_deref().map_err(|why| *why), expected, "{query}");
    }
}

#[test]
fn the_target_gets_its_own_model() {
    // R-X1
    let realtime = |query| query_for(Api::OpenaiRealtime, query, "model", "a/b");
    assert_eq!(realtime(Some("x=1&model=m&y")), "x=1&model=a%2Fb&y");
    assert_eq!(realtime(Some("deployment=d&model=m")), "model=a%2Fb");
    assert_eq!(realtime(None), "model=a%2Fb");
    let responses = |query| query_for(Api::OpenaiResponsesSocket, query, "model", "b");
    assert_eq!(responses(Some("model=m")), "model=b");
    assert_eq!(responses(Some("x=1")), "x=1");

    let path = |api, azure: &Azure, query| {
        let parts = PathParts {
            stream: false,
            api,
            verb: None,
            version: Version::V1,
            base_path: "/",
            model: "d",
            query: Some(query),
        };
        target_path(RequestStyle::Azure, azure, &parts)
    };
    let plain = Azure {
        deployments: false,
        api_version: None,
        bearer: false,
    };
    let dated = Azure {
        deployments: true,
        api_version: Some("2025-04-01-preview".into()),
        bearer: false,
    };
    let query = "model=m&api-version=1";
    assert_eq!(
        path(Api::OpenaiRealtime, &plain, "model=m"),
        "/openai/v1/realtime?model=d"
    );
    assert_eq!(
        path(Api::OpenaiRealtime, &dated, query),
        "/openai/realtime?deployment=d&api-version=2025-04-01-preview"
    );
    assert_eq!(
        path(Api::OpenaiResponsesSocket, &dated, query),
        "/openai/responses?model=d&api-version=2025-04-01-preview"
    );
}

#[test]
fn a_call_binds_its_handshake() {
    // R-S7
    let bound = |query| scan(Api::OpenaiRealtime, Some(query)).binding.is_some();
    assert!(bound("call_id=rtc_1&model=m") && bound("call%5Fid=rtc_1"));
    assert!(!bound("model=call_id") && !bound(""));
}

#[test]
fn no_subprotocol_hides_a_credential() {
    // R-X2
    let sent = |protocols: &str| {
        let client = [
            ("Sec-WebSocket-Protocol", protocols.as_bytes()),
            ("authorization", b"Bearer sk-client".as_slice()),
        ];
        let found = headers(client)
            .into_iter()
            .find(|(name, _)| name == "sec-websocket-protocol");
        found.map(|(_, value)| value.to_str().unwrap().to_owned())
    };
    assert_eq!(sent("realtime").as_deref(), Some("realtime"));
    assert_eq!(
        sent("realtime, openai-insecure-api-key.sk-1,openai-beta.realtime-v1").as_deref(),
        Some("realtime, openai-beta.realtime-v1")
    );
    let long = format!("openai-beta.{}", "a".repeat(60));
    for none in [
        "openai-insecure-api-key.sk-1",
        "OpenAI-Insecure-API-Key.sk-1",
        "openai-organization.org-1, openai-project.p",
        "bearer.sk-1",
        "openai-beta.a=b",
        &long,
        "",
    ] {
        assert_eq!(sent(none), None, "{none}");
    }
}

#[test]
fn only_a_switch_to_what_was_asked_is_one() {
    let accepted = |status, lines: &[(&str, &str)]| {
        let headers = map(lines);
        is_accepted(&ResponseHead {
            status,
            headers: &headers,
        })
    };
    let good = [("upgrade", "WebSocket"), ("sec-websocket-accept", "x")];
    assert!(accepted(101, &good));
    assert!(!accepted(200, &good));
    assert!(!accepted(101, &good[..1]) && !accepted(101, &good[1..]));
    assert!(!accepted(101, &[good[0], good[1], good[1]]));
    assert!(!accepted(101, &[("upgrade", "h2c"), good[1]]));
}

#[test]
fn an_empty_403_of_an_edge_blames_no_key() {
    // R-K2
    let traits = RequestTraits {
        api: Api::OpenaiRealtime,
        stream: false,
        side_effects: false,
    };
    let judged = |status, lines: &[(&str, &str)], body: &[u8]| {
        let headers = map(lines);
        let head = ResponseHead {
            status,
            headers: &headers,
        };
        let verdict = classify(&ADAPTER, &traits, &[], &head, body, BodyEnd::Complete);
        reread(verdict, &head, body)
    };
    let edge = judged(403, &[("cf-ray", "x")], b"");
    assert_eq!(
        (edge.outcome, edge.class),
        (Outcome::Refused, Class::Ambiguous)
    );
    assert_eq!((edge.scope, edge.status), (Scope::Candidate, 502));
    let body = br#"{"error":{"message":"No.","type":"x","param":null,"code":null}}"#;
    // Without the mark it stays a 403, whoever sent it.
    let bare = judged(403, &[], b"");
    assert_eq!((bare.class, bare.status), (Class::Ambiguous, 403));
    for near in [
        judged(
            403,
            &[("cf-ray", "x"), ("content-type", "application/json")],
            body,
        ),
        judged(401, &[("cf-ray", "x")], b""),
    ] {
        assert_eq!((near.class, near.scope), (Class::Auth, Scope::Credential));
    }
}

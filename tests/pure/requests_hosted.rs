//! Anthropic's messages at Vertex and Bedrock: what leaves the body, what enters it, and that nothing else changes.

use bytes::Bytes;
use proptest::prelude::*;
use rondo::core::api::Api;
use rondo::explain::{Request, explain, to_json};
use rondo::policy::ordering::Exclusion;
use rondo::providers::hosted::{Hosted, splice};
use rondo::providers::inbound::Version;
use rondo::providers::registry;
use rondo::providers::request_style::{PathParts, RequestStyle, can_stream, target_path};
use rondo::providers::scan::scan;
use serde_json::{Map, Value, json};

use crate::compiled::compiled;

const VERTEX: &str = r#""anthropic_version":"vertex-2023-10-16""#;
const BEDROCK: &str = r#""anthropic_version":"bedrock-2023-05-31""#;

fn sent(host: Hosted, body: &str, betas: &[&str]) -> String {
    let body = Bytes::copy_from_slice(body.as_bytes());
    let segments = splice(&body, host, betas);
    let length = segments.len();
    let bytes: Vec<u8> = segments.into_iter().flatten().collect();
    assert_eq!(bytes.len(), length);
    String::from_utf8(bytes).unwrap()
}

/// The body at both hosts; `V` stands for the version.
fn check(body: &str, vertex: &str, bedrock: &str) {
    // R-X1
    assert!(
        scan(Api::AnthropicMessages, body.as_bytes()).is_ok(),
        "{body}"
    );
    assert_eq!(sent(Hosted::Vertex, body, &[]), vertex.replace('V', VERTEX));
    assert_eq!(
        sent(Hosted::Bedrock, body, &[]),
        bedrock.replace('V', BEDROCK)
    );
}

#[test]
fn the_version_takes_the_place_of_the_model_and_every_other_byte_stays() {
    let both = |body: &str, wanted: &str| check(body, wanted, wanted);
    both(r#"{"model":"m","a":1e2}"#, r#"{V,"a":1e2}"#);
    both(
        "{ \"a\" : \"é\\u00e9\",\n  \"model\" : \"m\" ,\t\"b\":[{}] }\n",
        "{ \"a\" : \"é\\u00e9\",\n  V ,\t\"b\":[{}] }\n",
    );
    both(
        r#"{"a":{"model":"x","stream":true},"model":"m"}"#,
        r#"{"a":{"model":"x","stream":true},V}"#,
    );
    both(r#"{"mod\u0065l":"m"}"#, "{V}");
    check(
        r#"{"stream": true, "model":"m", "a":1}"#,
        r#"{"stream": true, V, "a":1}"#,
        r#"{ V, "a":1}"#,
    );
    check(
        r#"{"model":"m","a":1,"stream":false}"#,
        r#"{V,"a":1,"stream":false}"#,
        r#"{V,"a":1}"#,
    );
    check(
        r#"{"model":"m","stream":true,"b":2,"stream":true}"#,
        r#"{V,"stream":true,"b":2,"stream":true}"#,
        r#"{V,"b":2}"#,
    );
}

#[test]
fn a_model_that_is_named_twice_leaves_twice() {
    let body = r#"{"model":"a", "x":1, "model":"b"}"#;
    check(body, r#"{V, "x":1}"#, r#"{V, "x":1}"#);
}

#[test]
fn a_version_of_the_client_s_stays_and_the_model_leaves_with_its_comma() {
    let cases = [
        (
            r#"{"model":"m","anthropic_version":"own","a":1}"#,
            r#"{"anthropic_version":"own","a":1}"#,
        ),
        (
            r#"{"anthropic_version":"own", "model":"m", "a":1}"#,
            r#"{"anthropic_version":"own", "a":1}"#,
        ),
        (
            r#"{"anthropic_version":"own", "model":"m" }"#,
            r#"{"anthropic_version":"own" }"#,
        ),
        (
            r#"{ "model":"m", "model":"m" , "anthropic_version":"own"}"#,
            r#"{ "anthropic_version":"own"}"#,
        ),
    ];
    for (body, wanted) in cases {
        check(body, wanted, wanted);
    }
}

#[test]
fn bedrock_reads_beta_features_in_the_body() {
    let body = r#"{"model":"m","a":1}"#;
    let betas = ["one-2025, two", " ", "three\u{7f}", "fo\"ur"];
    let wanted = format!(r#"{{{BEDROCK},"anthropic_beta":["one-2025","two","fo\"ur"],"a":1}}"#);
    assert_eq!(sent(Hosted::Bedrock, body, &betas), wanted);
    assert_eq!(
        sent(Hosted::Vertex, body, &betas),
        format!(r#"{{{VERTEX},"a":1}}"#)
    );
    let own = r#"{"model":"m","anthropic_beta":[]}"#;
    let wanted = format!(r#"{{{BEDROCK},"anthropic_beta":[]}}"#);
    assert_eq!(sent(Hosted::Bedrock, own, &betas), wanted);
    let both = r#"{"model":"m","anthropic_beta":[],"anthropic_version":"own"}"#;
    let wanted = r#"{"anthropic_beta":[],"anthropic_version":"own"}"#;
    assert_eq!(sent(Hosted::Bedrock, both, &betas), wanted);
}

#[test]
fn a_member_that_repeats_for_ever_costs_no_slices() {
    let body = format!(
        "{{\"model\":\"m\"{}}}",
        ",\"stream\":true,\"a\":[1]".repeat(1000)
    );
    let shared = Bytes::from(body.clone());
    assert!(splice(&shared, Hosted::Bedrock, &[]).iter().len() <= 17);
    let wanted = format!("{{{BEDROCK}{}}}", ",\"a\":[1]".repeat(1000));
    assert_eq!(sent(Hosted::Bedrock, &body, &[]), wanted);
}

#[test]
fn only_messages_of_these_hosts_have_another_body() {
    for adapter in registry::all() {
        for api in adapter.speaks.iter() {
            let expected = match (adapter.name, api) {
                ("vertex", Api::AnthropicMessages) => Some(Hosted::Vertex),
                ("bedrock", Api::AnthropicMessages) => Some(Hosted::Bedrock),
                _ => None,
            };
            assert_eq!(
                Hosted::of(adapter.style, api),
                expected,
                "{} {api}",
                adapter.name
            );
            let frames = (adapter.name, api) == ("bedrock", Api::AnthropicMessages);
            assert_eq!(can_stream(adapter.style, api), !frames);
        }
    }
    assert!(Exclusion::StreamFormat.sentence().contains("frames"));
}

#[test]
fn paths_say_whether_an_answer_streams_and_carry_no_query_of_anthropic_s() {
    let path = |style, api, stream| {
        let parts = PathParts {
            api,
            verb: None,
            version: Version::V1,
            base_path: "/b",
            model: "c@1",
            stream,
            query: Some("beta=true"),
        };
        target_path(style, &Default::default(), &parts)
    };
    let at = "/b/publishers/anthropic/models";
    let (messages, counts) = (Api::AnthropicMessages, Api::AnthropicCountTokens);
    let vertex = |api, stream| path(RequestStyle::Vertex, api, stream);
    assert_eq!(vertex(messages, false), format!("{at}/c%401:rawPredict"));
    assert_eq!(
        vertex(messages, true),
        format!("{at}/c%401:streamRawPredict")
    );
    assert_eq!(
        vertex(counts, false),
        format!("{at}/count-tokens:rawPredict")
    );
    let bedrock = path(RequestStyle::Bedrock, messages, false);
    assert_eq!(bedrock, "/b/model/c%401/invoke");
}

#[test]
fn explain_tells_why_bedrock_is_no_candidate_for_a_stream() {
    let yaml = "
providers:
  aws: { adapter: bedrock, base_url: 'https://aws.example', keys: [{ name: k, secret: { literal: x } }] }
  own: { adapter: anthropic, base_url: 'https://own.example', keys: [{ name: k, secret: { literal: x } }] }
routes:
  - name: r
    models: [claude]
    targets: [{ name: first, provider: aws, model: c }, { name: second, provider: own }]
";
    let snapshot = compiled(yaml, None);
    let told = |stream| {
        let asking = Request {
            wall: rondo::core::time::WallTime::default(),
            model: "claude",
            api: Some(Api::AnthropicMessages),
            body: None,
            stream,
            headers: &[],
            client_key: None,
        };
        to_json(&explain(&snapshot, &asking, None).unwrap())
    };
    let streamed = told(true);
    assert_eq!(
        streamed["candidates"][0]["target"], "second",
        "{streamed:#}"
    );
    assert_eq!(streamed["excluded"][0]["reason"], "stream_format");
    let whole = told(false);
    assert_eq!(
        whole["candidates"][0]["path"], "/model/c/invoke",
        "{whole:#}"
    );
    assert_eq!(whole["excluded"], json!([]));
}

proptest! {
    #[test]
    fn what_is_sent_says_the_same_but_for_what_the_host_wants(
        members in proptest::collection::btree_map("[a-c]{0,2}|stream|anthropic_version", "[^\\p{Cc}]{0,5}", 0..6),
        at in any::<prop::sample::Index>(),
        pretty in any::<bool>(),
        vertex in any::<bool>(),
    ) {
        let mut members: Vec<(String, Value)> = members.into_iter().map(|(k, v)| (k, json!([v]))).collect();
        members.insert(at.index(members.len() + 1), ("model".to_owned(), json!("m")));
        let body = Value::Object(Map::from_iter(members.clone()));
        let text = if pretty { format!("{body:#}") } else { body.to_string() };
        let (host, version) = match vertex {
            true => (Hosted::Vertex, "vertex-2023-10-16"),
            false => (Hosted::Bedrock, "bedrock-2023-05-31"),
        };
        let found: Value = serde_json::from_str(&sent(host, &text, &[])).unwrap();
        let mut wanted = Map::from_iter(members);
        wanted.remove("model");
        if !vertex {
            wanted.remove("stream");
        }
        wanted.entry("anthropic_version").or_insert(json!(version));
        prop_assert_eq!(found, Value::Object(wanted));
    }
}

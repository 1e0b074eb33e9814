//! Bedrock's own formats: paths in both directions, what binds a request, errors, headers and signatures of requests.

use bytes::Bytes;
use http::header::{HeaderName, HeaderValue};
use rondo::core::api::{Api, Family};
use rondo::core::time::WallTime;
use rondo::policy::aws::{AwsIdentity, Source};
use rondo::policy::provider::Azure;
use rondo::policy::secret::Secret;
use rondo::providers::dialect::refuses;
use rondo::providers::envelope::{GatewayCode, GatewayError, encode};
use rondo::providers::inbound::{Inbound, Sent, Version, family_of, recognise};
use rondo::providers::outbound::{Segments, splice};
use rondo::providers::outbound_headers::{AuthScheme, Prepared, request_headers};
use rondo::providers::planning;
use rondo::providers::request_style::{PathParts, RequestStyle, target_path};
use rondo::providers::scan::scan;
use rondo::providers::signing::{Unsigned, add_signature};
use serde_json::Value;

const ARN: &str = "arn:aws:bedrock:us-east-1:123456789012:inference-profile/a.b-v1:0";
const VERBS: [(&str, Api, bool); 5] = [
    ("converse", Api::BedrockConverse, false),
    ("converse-stream", Api::BedrockConverse, true),
    ("invoke", Api::BedrockInvoke, false),
    ("invoke-with-response-stream", Api::BedrockInvoke, true),
    ("count-tokens", Api::BedrockCountTokens, false),
];

fn to_target(api: Api, stream: bool, base_path: &str, model: &str) -> String {
    let parts = PathParts {
        api,
        verb: None,
        version: Version::V1,
        base_path,
        model,
        stream,
        query: None,
    };
    target_path(RequestStyle::Bedrock, &Azure::default(), &parts)
}

#[test]
fn a_path_names_model_and_verb_and_goes_on_as_it_came() {
    // R-X1
    let arn = ARN.replace(':', "%3A").replace('/', "%2F");
    for (verb, api, stream) in VERBS {
        for (sent, model) in [
            ("a.b-v1%3A0", "a.b-v1:0"),
            ("a.b-v1:0", "a.b-v1:0"),
            (&arn, ARN),
        ] {
            let path = format!("/model/{sent}/{verb}");
            let Inbound::Operation(found) = recognise("POST", &path) else {
                panic!("{path}")
            };
            assert_eq!((found.api, found.stream_by_path), (api, Some(stream)));
            assert_eq!(found.path_model.as_deref(), Some(model));
            let encoded = model.replace(':', "%3A").replace('/', "%2F");
            for base in ["", "/", "/openai/v1"] {
                let wanted = format!("/model/{encoded}/{verb}");
                assert_eq!(to_target(api, stream, base, model), wanted);
            }
            let behind = to_target(api, stream, "/proxy", model);
            assert_eq!(behind, format!("/proxy/model/{encoded}/{verb}"));
        }
    }
    assert_eq!(
        to_target(Api::BedrockConverse, false, "", ".."),
        "/model/%252E%252E/converse"
    );
    assert_eq!(
        to_target(Api::OpenaiChat, false, "", "m"),
        "/openai/v1/chat/completions"
    );
}

#[test]
fn other_paths_are_none() {
    for path in [
        "/model/a/b/converse",
        "/model/a/count_tokens",
        "/model//converse",
        "/model/a/Converse",
        "/model/a/converse/x",
        "/model/a",
        "/model/%zz/converse",
        "/model/%00/converse",
    ] {
        assert_eq!(recognise("POST", path), Inbound::NotFound, "{path}");
    }
    assert_eq!(
        recognise("GET", "/model/a/converse"),
        Inbound::MethodNotAllowed { allow: "POST" }
    );
    assert_eq!(
        family_of("/model/a/x", Sent::Yes, Sent::Yes),
        Family::Bedrock
    );
}

fn binding(api: Api, body: &str) -> Option<&'static str> {
    let found = scan(api, body.as_bytes()).unwrap();
    planning::binding(&found, "m", |_| false)
}

#[test]
fn bodies_pass_as_they_came_whatever_they_name() {
    // R-X1
    let body = Bytes::from_static(b"{ \"model\" : 7, \"stream\":true,\"messages\":[]}");
    for api in [Api::BedrockConverse, Api::BedrockInvoke] {
        let found = scan(api, &body).unwrap();
        assert_eq!((found.model.as_deref(), found.stream), (None, false));
        assert_eq!(
            splice(&body, &found, "other"),
            Segments::whole(body.clone())
        );
        assert!(scan(api, b"[]").is_err());
    }
}

#[test]
fn what_one_account_issued_binds() {
    // R-S7
    let converse = Api::BedrockConverse;
    let bound = [
        (r#"{"guardrailConfig":{"guardrailIdentifier":"g"}}"#, "id"),
        (
            r#"{"messages":[{"content":[{"image":{"source":{"s3Location":{"uri":"s3://b/k"}}}}]}]}"#,
            "file",
        ),
        (
            r#"{"messages":[{"content":[{"reasoningContent":{"reasoningText":{"text":"t","signature":"s"}}}]}]}"#,
            "signature",
        ),
    ];
    for (body, wanted) in bound {
        assert_eq!(binding(converse, body), Some(wanted), "{body}");
    }
    let invoke = r#"{"messages":[{"content":[{"type":"thinking","signature":"s"}]}]}"#;
    assert_eq!(binding(Api::BedrockInvoke, invoke), Some("signature"));
    let free = r#"{"messages":[{"content":[{"text":"hi"},{"toolUse":{"toolUseId":"t","name":"n","input":{"file_id":"x"}}},{"toolResult":{"content":[{"json":{"file_id":"x"}}]}}]}],
        "toolConfig":{"tools":[{"toolSpec":{"name":"n","inputSchema":{"json":{"properties":{"file_id":{}}}}}},{"cachePoint":{"type":"default"}}]},
        "promptVariables":{"file_id":{"text":"x"}},"requestMetadata":{"session_id":"x"}}"#;
    assert_eq!(binding(converse, free), None);
    let plain = scan(converse, free.as_bytes()).unwrap();
    assert!(!plain.side_effects);
    let header = planning::binding(&plain, "m", |name| {
        name == "x-amzn-bedrock-guardrailidentifier"
    });
    assert_eq!(header, Some("id"));
    assert_eq!(planning::binding(&plain, ARN, |_| false), Some("model"));
    let chat = scan(Api::OpenaiChat, br#"{"model":"m"}"#).unwrap();
    assert_eq!(planning::binding(&chat, "m", |_| true), None);
}

#[test]
fn tools_of_the_system_run_there() {
    // R-A5
    let body = r#"{"toolConfig":{"tools":[{"systemTool":{"name":"search"}}]}}"#;
    assert!(
        scan(Api::BedrockConverse, body.as_bytes())
            .unwrap()
            .side_effects
    );
}

#[test]
fn errors_have_the_form_of_aws() {
    // R-D3
    for code in GatewayCode::ALL {
        let error = GatewayError::plain(code);
        let body: Value = serde_json::from_slice(&encode(Family::Bedrock, &error, "r")).unwrap();
        assert_eq!(body["message"], error.message());
        assert_eq!(body["reason"], code.label());
        let kind = body["__type"].as_str().unwrap();
        assert!(kind.ends_with("Exception"), "{kind}");
        let is_throttle = kind == "ThrottlingException";
        assert_eq!(is_throttle, code.status() == 429);
    }
}

#[test]
fn a_guardrail_that_steps_in_is_an_answer() {
    // R-A4
    let refused = [
        r#"{"stopReason":"guardrail_intervened"}"#,
        r#"{"stopReason":"content_filtered"}"#,
        r#"{"stop_reason":"refusal"}"#,
    ];
    for body in refused {
        assert!(refuses(
            Api::BedrockConverse,
            &serde_json::from_str(body).unwrap()
        ));
    }
    for body in [
        r#"{"stopReason":"end_turn"}"#,
        "{}",
        r#"{"stop_reason":"end_turn"}"#,
    ] {
        assert!(!refuses(
            Api::BedrockInvoke,
            &serde_json::from_str(body).unwrap()
        ));
    }
}

fn headers(api: Api, client: &[(&str, &str)]) -> Vec<(HeaderName, HeaderValue)> {
    let prepared = Prepared {
        api,
        request_id: "r",
        auth: AuthScheme::None,
        secret: None,
        content_length: 2,
    };
    let client = client.iter().map(|(name, value)| (*name, value.as_bytes()));
    request_headers(client, &prepared).unwrap()
}

fn has(headers: &[(HeaderName, HeaderValue)], name: &str) -> bool {
    headers.iter().any(|(found, _)| found == name)
}

#[test]
fn guardrails_pass_and_credentials_of_clients_do_not() {
    // R-X2
    let sent = [
        ("x-amzn-bedrock-guardrailidentifier", "g"),
        ("X-Amzn-Bedrock-GuardrailVersion", "1"),
        ("authorization", "AWS4-HMAC-SHA256 Credential=client"),
        ("x-amz-security-token", "client"),
        ("x-amz-date", "20200101T000000Z"),
    ];
    let found = headers(Api::BedrockInvoke, &sent);
    assert!(has(&found, "x-amzn-bedrock-guardrailidentifier"));
    assert!(has(&found, "x-amzn-bedrock-guardrailversion"));
    for name in ["authorization", "x-amz-security-token", "x-amz-date"] {
        assert!(!has(&found, name), "{name}");
    }
    let elsewhere = headers(Api::OpenaiChat, &sent);
    assert!(!has(&elsewhere, "x-amzn-bedrock-guardrailidentifier"));
}

#[test]
fn a_signature_covers_what_the_request_means() {
    // R-X2
    let signed = |body: &'static str, path: &str, guardrail: &str, token: Option<&str>| {
        let client = [("x-amzn-bedrock-guardrailidentifier", guardrail)];
        let mut found = headers(Api::BedrockInvoke, &client);
        let who = AwsIdentity {
            region: "us-east-1".into(),
            access_key_id: Secret::new("AKIDEXAMPLE"),
            secret_access_key: Secret::new("secret"),
            session_token: token.map(Secret::new),
            source: Source::Configuration,
        };
        let unsigned = Unsigned {
            path,
            authority: "host",
            body: &Segments::whole(Bytes::from_static(body.as_bytes())),
        };
        let now = WallTime::from_unix_micros(1_440_938_160_000_000);
        add_signature(&mut found, &unsigned, &who, now).unwrap();
        for (name, value) in &found {
            let is_own = ["authorization", "x-amz-date", "x-amz-security-token"];
            assert_eq!(value.is_sensitive(), is_own.contains(&name.as_str()));
        }
        let own = found.iter().find(|(name, _)| name == "authorization");
        own.unwrap().1.to_str().unwrap().to_owned()
    };
    let plain = signed("{}", "/p", "g", None);
    assert!(plain.starts_with("AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150830/us-east-1/bedrock/aws4_request, SignedHeaders=content-type;host;x-amz-date;x-amzn-bedrock-guardrailidentifier, Signature="), "{plain}");
    assert_eq!(plain, signed("{}", "/p", "g", None));
    for other in [
        signed("[]", "/p", "g", None),
        signed("{}", "/q", "g", None),
        signed("{}", "/p", "h", None),
        signed("{}", "/p", "g", Some("t")),
    ] {
        assert_ne!(plain, other);
    }
}

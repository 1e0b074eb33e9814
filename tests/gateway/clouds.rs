//! Providers that want more than a key: signatures of AWS, and tokens that are exchanged ahead.

use std::sync::{Arc, Mutex};

use hmac::{Hmac, Mac};
use rondo::core::settlement::State;
use rondo::providers::event_stream::encode;
use serde_json::json;
use sha2::{Digest, Sha256};
use tokio::io::AsyncWriteExt;

use crate::support::client::{Connection, call, post, request, whole};
use crate::support::raw::{Request, Upstream};
use crate::support::{Rondo, soon};

const SECRET: &str = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY";
const MODEL: &str = "us.anthropic.claude-v1:0";

/// A provider of Bedrock's runtime: answers every request with these bytes, and keeps what it was asked.
pub async fn runtime(answer: Vec<u8>) -> (Upstream, Arc<Mutex<Vec<Request>>>) {
    let asked: Arc<Mutex<Vec<Request>>> = Arc::default();
    let seen = Arc::clone(&asked);
    let upstream = Upstream::start(move |mut link| {
        let (answer, seen) = (answer.clone(), Arc::clone(&seen));
        async move {
            while let Some(request) = link.request().await {
                seen.lock().unwrap().push(request);
                let _ = link.stream.write_all(&answer).await;
            }
        }
    })
    .await;
    (upstream, asked)
}

pub fn answer(content_type: &str, body: &[u8]) -> Vec<u8> {
    let length = body.len();
    let head = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: {content_type}\r\ncontent-length: {length}\r\n\r\n"
    );
    [head.as_bytes(), body].concat()
}

/// A signing provider, and a scripted one behind it.
pub fn signing(upstream: &Upstream) -> String {
    format!(
        "
providers:
  aws:
    adapter: bedrock
    base_url: \"http://{}\"
    aws:
      region: eu-central-1
      access_key_id: {{ literal: AKIDEXAMPLE }}
      secret_access_key: {{ literal: \"{SECRET}\" }}
      session_token: {{ literal: token-of-session }}
  other: {{ adapter: bedrock, mock: {{ answers: [ok] }} }}
routes:
  - name: claude
    models: [claude]
    targets: [{{ name: first, provider: aws, model: \"{MODEL}\" }}, {{ name: second, provider: other, model: x }}]
    routing: {{ sticky_key_attempts: 1, cooldown: {{ max_ms: 0 }} }}
",
        upstream.addr
    )
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn keyed(key: &[u8], text: &str) -> Vec<u8> {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).unwrap();
    mac.update(text.as_bytes());
    mac.finalize().into_bytes().to_vec()
}

pub fn assert_signed(request: &Request) {
    let who = Signer {
        id: "AKIDEXAMPLE",
        secret: SECRET,
        token: Some("token-of-session"),
        scope: "eu-central-1/bedrock",
    };
    assert_signed_by(request, &who);
}

/// Who must have signed, and for what.
pub struct Signer<'a> {
    pub id: &'a str,
    pub secret: &'a str,
    pub token: Option<&'a str>,
    /// Region and service.
    pub scope: &'a str,
}

/// Holds the signature of a request against what arrived, as the service does: from the bytes on the wire alone.
pub fn assert_signed_by(request: &Request, who: &Signer<'_>) {
    let mut lines = request.head.lines();
    let line: Vec<&str> = lines.next().unwrap().split(' ').collect();
    let headers: Vec<(String, String)> = lines
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
        .collect();
    let value = |name: &str| {
        let mut found = headers.iter().filter(|(known, _)| known == name);
        let first = found.next().unwrap_or_else(|| panic!("no {name}"));
        assert!(found.next().is_none(), "{name} twice");
        first.1.as_str()
    };
    let authorization = value("authorization");
    let part = |name: &str| {
        let (_, rest) = authorization.split_once(name).unwrap();
        rest.split([',', ' ']).next().unwrap()
    };
    let id = format!("{}/", who.id);
    let scope = part("Credential=").strip_prefix(&id).unwrap();
    let covered: String = part("SignedHeaders=")
        .split(';')
        .map(|name| format!("{name}:{}\n", value(name)))
        .collect();
    let token = headers
        .iter()
        .find(|(name, _)| name == "x-amz-security-token");
    assert_eq!(token.map(|(_, token)| token.as_str()), who.token);
    let always = ["host", "x-amz-date", "content-type"].into_iter();
    for name in always.chain(who.token.map(|_| "x-amz-security-token")) {
        assert!(covered.contains(&format!("{name}:")), "{covered}");
    }
    // The path as it came, encoded once more: of what these paths hold only the percent sign changes.
    let canonical = format!(
        "{}\n{}\n\n{covered}\n{}\n{}",
        line[0],
        line[1].replace('%', "%25"),
        part("SignedHeaders="),
        hex(&Sha256::digest(&request.body)),
    );
    let text = format!(
        "AWS4-HMAC-SHA256\n{}\n{scope}\n{}",
        value("x-amz-date"),
        hex(&Sha256::digest(canonical.as_bytes())),
    );
    let day = &value("x-amz-date")[..8];
    assert_eq!(scope, format!("{day}/{}/aws4_request", who.scope));
    let mut key = format!("AWS4{}", who.secret).into_bytes();
    let parts = [day].into_iter().chain(who.scope.split('/'));
    for part in parts.chain(["aws4_request"]) {
        key = keyed(&key, part);
    }
    assert_eq!(part("Signature="), hex(&keyed(&key, &text)));
}

const GOOD: &[u8] = br#"{"output":{"message":{"role":"assistant","content":[{"text":"hi"}]}},"stopReason":"end_turn"}"#;

#[tokio::test(flavor = "multi_thread")]
async fn the_service_accepts_the_signature_of_every_format() {
    // R-X1 R-X2
    let (upstream, asked) = runtime(answer("application/json", GOOD)).await;
    let rondo = Rondo::start(&signing(&upstream)).await;
    let body = r#"{ "messages":[{"role":"user","content":[{"text":"caf\u00e9 é"}]}], "model": "mine", "top":1e2 }"#;
    let chat = r#"{"model":"claude","messages":[]}"#;
    let cases = [
        (
            "/model/claude/converse",
            "/model/us.anthropic.claude-v1%3A0/converse",
            body,
            body,
        ),
        (
            "/model/%63laude/invoke",
            "/model/us.anthropic.claude-v1%3A0/invoke",
            body,
            body,
        ),
        (
            "/v1/chat/completions",
            "/openai/v1/chat/completions",
            chat,
            r#"{"model":"us.anthropic.claude-v1:0","messages":[]}"#,
        ),
    ];
    for (path, target, sent, arrives) in cases {
        let own = [
            ("authorization", "AWS4-HMAC-SHA256 Credential=of-client"),
            ("x-amz-date", "20200101T000000Z"),
            ("x-amz-security-token", "of-client"),
            ("x-amzn-bedrock-trace", "ENABLED"),
        ];
        let found = call(rondo.addr, request(path, &own, whole(sent))).await;
        assert_eq!(found.status, 200, "{found:?}");
        assert_eq!(found.body, GOOD);
        let request = asked.lock().unwrap().pop().unwrap();
        assert!(
            request
                .head
                .starts_with(&format!("POST {target} HTTP/1.1\r\n")),
            "{request:?}"
        );
        assert_eq!(request.body, arrives.as_bytes());
        assert!(!request.head.contains("of-client"));
        assert_signed(&request);
        let traced = request.head.contains("x-amzn-bedrock-trace;")
            || request.head.contains(";x-amzn-bedrock-trace");
        assert_eq!(traced, path.starts_with("/model/"), "{}", request.head);
    }
    let labels = ["api=\"bedrock_converse\"", "outcome=\"succeeded\""];
    assert_eq!(rondo.metric("rondo_requests_total", &labels), 1.0);
    rondo.assert_quiet().await;
}

fn frame(kind: &str, name: &str, value: &str, payload: &str) -> Vec<u8> {
    encode(
        &[
            (":message-type", kind),
            (name, value),
            (":content-type", "application/json"),
        ],
        payload.as_bytes(),
    )
    .unwrap()
}

const FRAMES: &str = "application/vnd.amazon.eventstream";

#[tokio::test(flavor = "multi_thread")]
async fn frames_pass_as_they_came() {
    // R-A4 R-X1
    let event = |name, payload| frame("event", ":event-type", name, payload);
    let stream = [
        event("messageStart", r#"{"role":"assistant"}"#),
        event(
            "contentBlockDelta",
            r#"{"delta":{"text":"hi"},"contentBlockIndex":0}"#,
        ),
        event("messageStop", r#"{"stopReason":"end_turn"}"#),
        event("metadata", r#"{"usage":{"inputTokens":1}}"#),
    ]
    .concat();
    let (upstream, asked) = runtime(answer(FRAMES, &stream)).await;
    let rondo = Rondo::start(&signing(&upstream)).await;
    let path = "/model/claude/converse-stream";
    let found = call(rondo.addr, post(path, r#"{"messages":[]}"#)).await;
    assert_eq!(found.header("content-type"), Some(FRAMES));
    assert_eq!(found.body, stream);
    let record = rondo.records().pop().unwrap();
    assert!(record.operation.stream);
    let request = asked.lock().unwrap().pop().unwrap();
    assert!(
        request
            .head
            .starts_with("POST /model/us.anthropic.claude-v1%3A0/converse-stream ")
    );
    assert_signed(&request);
    rondo.assert_quiet().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_exception_before_output_is_read_and_never_certified() {
    // R-A4
    let stream = [
        frame(
            "event",
            ":event-type",
            "messageStart",
            r#"{"role":"assistant"}"#,
        ),
        frame(
            "exception",
            ":exception-type",
            "throttlingException",
            r#"{"message":"Too many requests"}"#,
        ),
    ]
    .concat();
    let (upstream, _) = runtime(answer(FRAMES, &stream)).await;
    let strict = "cooldown: { max_ms: 0 }, fallback_strategy: []";
    let yaml = signing(&upstream).replace("cooldown: { max_ms: 0 }", strict);
    let rondo = Rondo::start(&yaml).await;
    let path = "/model/claude/converse-stream";
    let found = call(rondo.addr, post(path, r#"{"messages":[]}"#)).await;
    assert_eq!(found.status, 429, "{found:?}");
    assert_eq!(found.json()["message"], "Too many requests");
    let record = rondo.records().pop().unwrap();
    let [attempt] = record.attempts.as_slice() else {
        panic!("sent again: {record:?}")
    };
    assert!(!attempt.certified);
    assert_eq!(attempt.class.map(|class| class.label()), Some("throttle"));
    assert!(rondo.mock("other").requests().is_empty());
    rondo.assert_quiet().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_certified_throttle_moves_on_to_the_other_model() {
    // R-A1 R-X1
    let body = br#"{"message":"Too many requests"}"#;
    let text = format!(
        "HTTP/1.1 429 Too Many Requests\r\nx-amzn-errortype: ThrottlingException:http://internal.amazon.com/\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    let (upstream, _) = runtime([text.as_bytes(), body].concat()).await;
    let rondo = Rondo::start(&signing(&upstream)).await;
    let found = call(
        rondo.addr,
        post("/model/claude/converse", r#"{"messages":[]}"#),
    )
    .await;
    assert_eq!(found.header("x-rondo-target"), Some("second"), "{found:?}");
    assert_eq!(found.json()["stopReason"], "end_turn");
    let seen = rondo.mock("other").requests().remove(0);
    assert_eq!(seen.path, "/model/x/converse");
    assert_eq!(seen.header("authorization"), None);
    let record = rondo.records().pop().unwrap();
    assert!(record.attempts[0].certified);
    assert_eq!(record.attempts[0].state, State::Rejected);
    rondo.assert_quiet().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn refusals_have_the_form_of_aws() {
    // R-D3
    let (upstream, asked) = runtime(answer("application/json", GOOD)).await;
    let rondo = Rondo::start(&signing(&upstream)).await;
    let mut client = Connection::h1(rondo.addr).await;
    for (path, body, status, kind) in [
        (
            "/model/unknown/converse",
            "{}",
            404,
            "ResourceNotFoundException",
        ),
        ("/model/claude/converse", "[", 400, "ValidationException"),
        (
            "/model/claude/nothing",
            "{}",
            404,
            "ResourceNotFoundException",
        ),
    ] {
        let found = soon(client.call(post(path, body))).await;
        assert_eq!(found.status, status, "{found:?}");
        assert_eq!(found.json()["__type"], json!(kind));
        assert!(found.json()["message"].is_string());
    }
    assert!(asked.lock().unwrap().is_empty());
    rondo.assert_quiet().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn scripts_speak_the_dialect_of_the_runtime() {
    let yaml = "
providers:
  one: { adapter: bedrock, mock: { answers: [throttle, overloaded] } }
  two: { adapter: bedrock, mock: { answers: [ok] } }
routes:
  - name: m
    models: [m]
    targets: [{ name: first, provider: one }, { name: second, provider: two }]
    routing: { sticky_key_attempts: 1, cooldown: { max_ms: 0 } }
";
    let rondo = Rondo::start(yaml).await;
    for class in ["throttle", "overload"] {
        let found = call(rondo.addr, post("/model/m/converse", "{}")).await;
        assert_eq!(found.header("x-rondo-target"), Some("second"), "{found:?}");
        let record = rondo.records().pop().unwrap();
        let first = &record.attempts[0];
        assert!(first.certified, "{first:?}");
        assert_eq!(first.class.map(|class| class.label()), Some(class));
    }
    rondo.assert_quiet().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_identity_is_not_the_client_s() {
    // R-X2
    let body = br#"{"message":"The security token included in the request is expired"}"#;
    let text = format!(
        "HTTP/1.1 403 Forbidden\r\nx-amzn-errortype: ExpiredTokenException\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    let (upstream, _) = runtime([text.as_bytes(), body].concat()).await;
    let yaml = signing(&upstream).replace(", { name: second, provider: other, model: x }", "");
    let rondo = Rondo::start(&yaml).await;
    for _ in 0..2 {
        let path = "/model/claude/converse";
        let found = call(rondo.addr, post(path, r#"{"messages":[]}"#)).await;
        assert_eq!(found.status, 502, "{found:?}");
        assert_eq!(found.json()["reason"], "upstream_credentials_exhausted");
    }
    assert_eq!(upstream.requests(), 1, "it is set aside");
    rondo.assert_quiet().await;
}

//! Tokens that are exchanged ahead: for Vertex by a service account, for Copilot by a lasting token.

use std::sync::{Arc, Mutex};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::signature::{KeyPair, RSA_PKCS1_2048_8192_SHA256, RsaKeyPair, UnparsedPublicKey};
use rondo::core::settlement::State;
use rustls_pki_types::PrivatePkcs8KeyDer;
use rustls_pki_types::pem::PemObject;
use serde_json::{Value, json};

use crate::support::client::{call, chat, post};
use crate::support::raw::{Request, Upstream};
use crate::support::tls::Identity;
use crate::support::{Rondo, soon, until};

const KEY: &str = include_str!("../fixtures/rfc7515-a2.pem");

type Asked = Arc<Mutex<Vec<Request>>>;

/// A server that gives these JSON answers in turn, the last one for ever, and keeps what it was asked.
async fn answering(answers: &[(u16, String)]) -> (Upstream, Asked) {
    let asked = Asked::default();
    let (seen, answers) = (Arc::clone(&asked), answers.to_vec());
    let upstream = Upstream::start(move |mut link| {
        let (seen, answers) = (Arc::clone(&seen), answers.clone());
        async move {
            while let Some(request) = link.request().await {
                let turn = {
                    let mut seen = seen.lock().unwrap();
                    seen.push(request);
                    seen.len() - 1
                };
                let (status, body) = &answers[turn.min(answers.len() - 1)];
                link.write(&crate::support::raw::json(*status, body)).await;
            }
        }
    })
    .await;
    (upstream, asked)
}

fn token(name: &str, seconds: u64) -> (u16, String) {
    let body = json!({ "access_token": name, "expires_in": seconds, "token_type": "Bearer" });
    (200, body.to_string())
}

fn good() -> Vec<(u16, String)> {
    vec![(200, r#"{"id":"x","choices":[],"candidates":[]}"#.to_owned())]
}

/// A provider of Vertex whose tokens come from the endpoint, and a scripted one behind it.
fn vertex(target: &Upstream, endpoint: &Upstream) -> String {
    let account = json!({
        "type": "service_account", "project_id": "p", "private_key_id": "k1", "private_key": KEY,
        "client_email": "me@p.iam", "token_uri": format!("http://{}/token", endpoint.addr),
    });
    let account = Value::from(account.to_string());
    format!(
        "
providers:
  cloud:
    adapter: vertex
    base_url: \"http://{}\"
    gcp: {{ location: l, service_account: {{ literal: {account} }} }}
  other: {{ adapter: openai_compatible, mock: {{ answers: [ok] }} }}
routes:
  - name: m
    models: [m]
    targets: [{{ name: first, provider: cloud, model: g }}, {{ name: second, provider: other }}]
    routing: {{ sticky_key_attempts: 1, cooldown: {{ max_ms: 0 }} }}
",
        target.addr
    )
}

/// Holds an assertion against the account's public key.
fn assert_signed(request: &Request, audience: &str) {
    let body = std::str::from_utf8(&request.body).unwrap();
    let (_, assertion) = body.split_once("&assertion=").unwrap();
    let (signed, signature) = assertion.rsplit_once('.').unwrap();
    let der = PrivatePkcs8KeyDer::from_pem_slice(KEY.as_bytes()).unwrap();
    let pair = RsaKeyPair::from_pkcs8(der.secret_pkcs8_der()).unwrap();
    let public = UnparsedPublicKey::new(&RSA_PKCS1_2048_8192_SHA256, pair.public_key().as_ref());
    let signature = URL_SAFE_NO_PAD.decode(signature).unwrap();
    public.verify(signed.as_bytes(), &signature).unwrap();
    let claims = URL_SAFE_NO_PAD
        .decode(signed.split_once('.').unwrap().1)
        .unwrap();
    let claims: Value = serde_json::from_slice(&claims).unwrap();
    assert_eq!(claims["aud"], audience);
    assert_eq!(
        claims["exp"].as_u64().unwrap() - claims["iat"].as_u64().unwrap(),
        3600
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn the_account_s_token_is_shown_to_the_target_alone() {
    // R-X2
    let (target, asked) = answering(&good()).await;
    let (endpoint, exchanged) = answering(&[token("ya29.first", 3600)]).await;
    let rondo = Rondo::start(&vertex(&target, &endpoint)).await;
    // The start has waited for the token: the first request has it.
    assert_eq!(endpoint.requests(), 1);
    let path = "/v1beta/models/m:generateContent";
    let messages = |stream| format!(r#"{{"model":"m","stream":{stream},"messages":[]}}"#);
    for request in [
        chat("m"),
        post(path, r#"{"contents":[]}"#),
        post("/v1/messages", messages(false)),
        post("/v1/messages?beta=true", messages(true)),
        post(
            "/v1/messages/count_tokens",
            r#"{"model":"m","messages":[]}"#,
        ),
    ] {
        let found = call(rondo.addr, request).await;
        assert_eq!(found.header("x-rondo-target"), Some("first"), "{found:?}");
    }
    let base = "/v1/projects/p/locations/l";
    let paths = [
        format!("{base}/endpoints/openapi/chat/completions"),
        format!("{base}/publishers/google/models/g:generateContent"),
        format!("{base}/publishers/anthropic/models/g:rawPredict"),
        format!("{base}/publishers/anthropic/models/g:streamRawPredict"),
        format!("{base}/publishers/anthropic/models/count-tokens:rawPredict"),
    ];
    let bodies = |from: usize| {
        let asked = asked.lock().unwrap();
        let bodies = asked[from..].iter().map(|request| request.body.clone());
        bodies
            .map(|body| String::from_utf8(body).unwrap())
            .collect::<Vec<_>>()
    };
    // R-X1
    let version = r#""anthropic_version":"vertex-2023-10-16""#;
    let whole = format!(r#"{{{version},"stream":false,"messages":[]}}"#);
    let stream = format!(r#"{{{version},"stream":true,"messages":[]}}"#);
    let counts = r#"{"model":"g","messages":[]}"#.to_owned();
    assert_eq!(bodies(2), [whole, stream, counts]);
    for (request, path) in asked.lock().unwrap().iter().zip(paths) {
        assert!(
            request.head.starts_with(&format!("POST {path} ")),
            "{request:?}"
        );
        assert!(
            request
                .head
                .contains("authorization: Bearer ya29.first\r\n"),
            "{request:?}"
        );
    }
    let exchange = exchanged.lock().unwrap().remove(0);
    assert!(
        exchange.head.starts_with("POST /token HTTP/1.1\r\n"),
        "{exchange:?}"
    );
    assert_signed(&exchange, &format!("http://{}/token", endpoint.addr));
    assert_eq!(endpoint.requests(), 1, "one token for all requests");
    rondo.assert_quiet().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_is_exchanged_over_tls_with_the_provider_s_own_authority() {
    // R-X2
    let (target, _) = answering(&good()).await;
    let (endpoint, exchanged) = answering(&[token("ya29.tls", 3600)]).await;
    let (identity, other) = (Identity::new(), Identity::new());
    let front = identity.front(endpoint.addr, &["h2", "http/1.1"]).await;
    let with_ca = |ca: &str| {
        let plain = format!("http://{}/token", endpoint.addr);
        let over_tls = format!("https://localhost:{}/token", front.port());
        let yaml = vertex(&target, &endpoint).replace(&plain, &over_tls);
        yaml.replace(
            "adapter: vertex\n",
            &format!("adapter: vertex\n    ca: \"{ca}\"\n"),
        )
    };
    let rondo = Rondo::start(&with_ca(&identity.files.cert)).await;
    let found = call(rondo.addr, chat("m")).await;
    assert_eq!(found.header("x-rondo-target"), Some("first"), "{found:?}");
    let exchange = exchanged.lock().unwrap().remove(0);
    assert_signed(
        &exchange,
        &format!("https://localhost:{}/token", front.port()),
    );
    let renewed = ["provider=\"cloud\"", "result=\"renewed\""];
    assert_eq!(rondo.metric("rondo_token_exchanges_total", &renewed), 1.0);
    // Another authority: nothing is sent to the endpoint, nothing to the target.
    let rondo = Rondo::start(&with_ca(&other.files.cert)).await;
    let found = call(rondo.addr, chat("m")).await;
    assert_eq!(found.header("x-rondo-target"), Some("second"), "{found:?}");
    assert_eq!((endpoint.requests(), target.requests()), (1, 1));
    let unreachable = ["provider=\"cloud\"", "result=\"unreachable\""];
    assert!(rondo.metric("rondo_token_exchanges_total", &unreachable) >= 1.0);
    rondo.assert_quiet().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_token_nothing_is_delivered_and_the_next_target_is_tried() {
    // R-A1
    let refusals = [
        (400, r#"{"error":"invalid_grant"}"#, "refused"),
        (200, r#"{"access_token":"x"}"#, "malformed"),
        (302, "{}", "refused"),
    ];
    for (status, body, result) in refusals {
        let (target, _) = answering(&good()).await;
        let (endpoint, _) = answering(&[(status, body.to_owned())]).await;
        let rondo = Rondo::start(&vertex(&target, &endpoint)).await;
        let found = call(rondo.addr, chat("m")).await;
        assert_eq!(found.header("x-rondo-target"), Some("second"), "{found:?}");
        let record = rondo.records().pop().unwrap();
        assert_eq!(record.attempts[0].state, State::Failed, "{record:?}");
        let labels = ["target=\"first\"", "outcome=\"not_delivered\""];
        assert_eq!(rondo.metric("rondo_attempts_total", &labels), 1.0);
        assert_eq!(record.operation.sends, 1);
        let labels = ["provider=\"cloud\"", &format!("result=\"{result}\"")];
        assert!(rondo.metric("rondo_token_exchanges_total", &labels) >= 1.0);
        assert_eq!((target.connections(), target.requests()), (0, 0));
        rondo.assert_quiet().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_is_renewed_before_its_end() {
    let (target, asked) = answering(&good()).await;
    let tokens = [
        token("first", 4),
        (503, "{}".to_owned()),
        token("second", 3600),
    ];
    let (endpoint, _) = answering(&tokens).await;
    let rondo = Rondo::start(&vertex(&target, &endpoint)).await;
    assert_eq!(call(rondo.addr, chat("m")).await.status, 200);
    // A failed exchange is followed by another.
    until(|| endpoint.requests() == 3).await;
    let shown = |name: &str| {
        let last = asked
            .lock()
            .unwrap()
            .last()
            .map(|request| request.head.clone());
        last.is_some_and(|head| head.contains(&format!("authorization: Bearer {name}\r\n")))
    };
    assert!(shown("first"));
    soon(async {
        while !shown("second") {
            assert_eq!(call(rondo.addr, chat("m")).await.status, 200);
        }
    })
    .await;
    assert_eq!(endpoint.requests(), 3);
    rondo.assert_quiet().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reload_keeps_tokens_and_an_old_source_ends() {
    // R-C2
    let (target, _) = answering(&good()).await;
    let (endpoint, _) = answering(&[token("t", 3600)]).await;
    let yaml = vertex(&target, &endpoint);
    let rondo = Rondo::start(&yaml).await;
    let reloaded = |from: &str, to: &str| {
        let text = format!("{}\nledger: {{ store: off }}\n", yaml.replace(from, to));
        std::fs::write(&rondo.file, text).unwrap();
    };
    reloaded("name: second,", "name: third,");
    rondo.app.reload().await;
    assert_eq!(endpoint.requests(), 1, "the token stays");
    assert_eq!(call(rondo.addr, chat("m")).await.status, 200);
    reloaded("me@p.iam", "you@p.iam");
    rondo.app.reload().await;
    assert_eq!(endpoint.requests(), 2, "another account, another token");
    rondo.assert_quiet().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn copilot_sees_short_lived_tokens_and_who_asks() {
    // R-X2
    let (target, asked) = answering(&good()).await;
    let ends = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let ends = ends.unwrap().as_secs() + 1800;
    let short = json!({ "token": "tid=1;sku=x", "expires_at": ends, "refresh_in": 1500 });
    let (endpoint, exchanged) = answering(&[(200, short.to_string())]).await;
    let yaml = format!(
        "
providers:
  copilot:
    adapter: copilot
    base_url: \"http://{}\"
    copilot: {{ token: {{ literal: gho_lasting }}, token_url: \"http://{}/t\" }}
routes:
  - {{ name: m, models: [m], targets: [{{ name: first, provider: copilot }}] }}
",
        target.addr, endpoint.addr
    );
    let rondo = Rondo::start(&yaml).await;
    let mut request = chat("m");
    let claims = http::HeaderValue::from_static("of-client");
    request
        .headers_mut()
        .insert("copilot-integration-id", claims);
    assert_eq!(call(rondo.addr, request).await.status, 200);
    let exchange = exchanged.lock().unwrap().remove(0);
    assert!(
        exchange.head.starts_with("GET /t HTTP/1.1\r\n"),
        "{exchange:?}"
    );
    let head = exchange.head.to_lowercase();
    assert!(
        head.contains("authorization: token gho_lasting\r\n"),
        "{head}"
    );
    assert!(head.contains("editor-version: rondo/"), "{head}");
    let head = asked.lock().unwrap().remove(0).head.to_lowercase();
    assert!(head.starts_with("post /chat/completions "), "{head}");
    assert!(
        head.contains("authorization: bearer tid=1;sku=x\r\n"),
        "{head}"
    );
    assert!(head.contains("editor-version: rondo/"), "{head}");
    assert!(head.contains("copilot-integration-id: rondo\r\n"), "{head}");
    assert!(
        head.contains("openai-intent: conversation-panel\r\n"),
        "{head}"
    );
    assert!(
        head.contains("x-github-api-version: 2025-05-01\r\n"),
        "{head}"
    );
    assert!(
        !head.contains("gho_") && !head.contains("of-client"),
        "{head}"
    );
    rondo.assert_quiet().await;
}

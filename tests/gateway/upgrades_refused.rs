//! Handshakes that end with an answer of the gateway: what cannot be upgraded here, and what nobody answers.

use crate::support::Rondo;
use crate::support::client::Connection;
use crate::support::raw::{RawClient, Upstream, two};
use crate::support::socket::{SWITCH, Target, code, handshake, refused};

const REALTIME: &str = "/v1/realtime?model=m";
const RESPONSES: &str = "/v1/responses?model=m";

/// C158: nothing answers. Where the same can be asked over HTTP the client is told so; elsewhere it is a 502.
#[tokio::test]
async fn an_unreachable_socket_is_a_426_where_http_can_do_the_same() {
    let gone = Upstream::start(|link| async move { drop(link) }).await;
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let nowhere = format!(
        "{{ adapter: openai, base_url: \"http://{}\" }}",
        closed.local_addr().unwrap()
    );
    drop(closed);
    for (provider, status, code_of_502) in [
        (nowhere, "502", "upstream_unreachable"),
        (gone.provider(""), "502", "upstream_ambiguous"),
    ] {
        let rondo = Rondo::start(&two(&provider, &provider)).await;
        let (head, body) = refused(&rondo, RESPONSES).await;
        assert!(head.starts_with("http/1.1 426"), "{head}");
        assert!(head.contains("upgrade: websocket"), "{head}");
        assert_eq!(code(&body), "upgrade_required");
        let (head, body) = refused(&rondo, REALTIME).await;
        assert!(head.starts_with(&format!("http/1.1 {status}")), "{head}");
        assert_eq!(code(&body), code_of_502);
        rondo.assert_quiet().await;
    }
}

/// What is no handshake, or cannot be one here.
#[tokio::test]
async fn what_cannot_be_upgraded_is_a_426() {
    // R-D3
    let target = Target::start(&[SWITCH]).await;
    let yaml = format!(
        "providers:\n  one: {}\n  two: {{ adapter: groq, base_url: \"http://{}\" }}\nroutes:\n  - {{ name: chat, models: [m], targets: [{{ name: first, provider: one }}] }}\n  - {{ name: plain, models: [p], targets: [{{ name: first, provider: two }}] }}\n",
        target.provider(),
        target.upstream.addr
    );
    let rondo = Rondo::start(&yaml).await;
    let bare = |line: &str, headers: &str| {
        format!("{line} HTTP/1.1\r\nhost: gateway.test\r\n{headers}content-length: 0\r\n\r\n")
    };
    let full = handshake(REALTIME, "");
    let cases = [
        (
            bare("GET /v1/realtime?model=m", ""),
            426,
            "upgrade_required",
        ),
        (bare("GET /v1/responses", ""), 426, "upgrade_required"),
        (
            full.replace("upgrade: websocket", "upgrade: h2c"),
            426,
            "upgrade_required",
        ),
        (
            full.replace("keep-alive, Upgrade", "keep-alive"),
            426,
            "upgrade_required",
        ),
        (
            full.replace("version: 13", "version: 8"),
            426,
            "upgrade_required",
        ),
        (
            full.replace("HTTP/1.1", "HTTP/1.0"),
            426,
            "upgrade_required",
        ),
        (
            handshake("/v1/realtime?model=p", ""),
            426,
            "upgrade_required",
        ),
        (
            full.replace("dGhlIHNhbXBsZSBub25jZQ==", "short"),
            400,
            "invalid_request",
        ),
        (
            handshake(REALTIME, "content-length: 3\r\n") + "abc",
            400,
            "invalid_request",
        ),
        (handshake("/v1/realtime", ""), 400, "model_missing"),
        (handshake("/v1/responses", ""), 400, "model_missing"),
        (
            handshake("/v1/realtime?model=m&model=p", ""),
            400,
            "invalid_request",
        ),
        (
            handshake("/v1/realtime?model=%zz", ""),
            400,
            "invalid_request",
        ),
        (
            handshake("/v1/realtime?model=other", ""),
            404,
            "model_not_found",
        ),
        (
            bare("POST /v1/realtime?model=m", ""),
            405,
            "method_not_allowed",
        ),
        (bare("PUT /v1/responses", ""), 405, "method_not_allowed"),
    ];
    for (request, status, label) in &cases {
        let mut client = RawClient::connect(rondo.addr).await;
        client.write(request).await;
        let (head, body) = client.answer().await;
        assert_eq!(
            (&head[9..12], code(&body).as_str()),
            (status.to_string().as_str(), *label),
            "{request}\n{head}"
        );
        assert_eq!(
            head.contains("upgrade: websocket"),
            *status == 426,
            "{head}"
        );
    }
    let mut h2 = Connection::h2(rondo.addr).await;
    let request = http::Request::get("http://gateway.test/v1/realtime?model=m");
    let request = request.body(crate::support::client::whole("")).unwrap();
    let answer = h2.call(request).await;
    assert_eq!(answer.status, 426);
    assert_eq!(answer.json()["error"]["code"], "upgrade_required");
    assert_eq!(target.sends(), 0);
    rondo.assert_quiet().await;
    assert_eq!(rondo.refusals(), cases.len() as f64 + 1.0);
}

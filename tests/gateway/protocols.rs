//! What a client may send and what it may not: sizes, framing, methods, paths, and that its connection survives an error.

use std::time::Duration;

use bytes::Bytes;
use futures::channel::mpsc;
use http::Request;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;

use crate::support::client::{
    Answer, Body, Connection, call, chat, chat_body, parts, post, request, whole,
};
use crate::support::raw::{RawClient, pause, post_text};
use crate::support::{Rondo, soon};

const CHAT: &str = "/v1/chat/completions";

const ROUTES: &str = r#"
providers:
  openai: { adapter: openai, mock: { answers: [ok] } }
  anthropic: { adapter: anthropic, mock: { answers: [ok] } }
  gemini: { adapter: gemini, mock: { answers: [ok] } }
routes:
  - { name: openai, models: [m, "gpt-*"], targets: [{ name: openai, provider: openai }] }
  - { name: anthropic, models: [claude], targets: [{ name: anthropic, provider: anthropic }] }
  - { name: gemini, models: [gemini], targets: [{ name: gemini, provider: gemini }] }
"#;

async fn start(server: &str) -> Rondo {
    Rondo::start(&format!("server: {{ {server} }}{ROUTES}")).await
}

/// A body that a test writes in its own time.
fn open_body() -> (mpsc::UnboundedSender<Bytes>, Body) {
    let (sender, receiver) = mpsc::unbounded();
    let frames = futures::StreamExt::map(receiver, |part| Ok(Frame::data(part)));
    (sender, BodyExt::boxed(StreamBody::new(frames)))
}

fn padded(size: usize) -> String {
    let mut text = chat_body("m", false);
    while text.len() < size {
        text.push(' ');
    }
    text
}

fn bare(method: &str, path: &str, headers: &[(&str, &str)]) -> Request<Body> {
    let mut builder = Request::builder()
        .method(method)
        .uri(format!("http://gateway.test{path}"));
    builder = builder.header("host", "gateway.test");
    for (name, value) in headers {
        builder = builder.header(*name, *value);
    }
    builder.body(whole("")).unwrap()
}

// R-B7: whatever carries it, a body above the bound is 413, and one at the bound is not.
#[tokio::test]
async fn a_body_above_the_bound_is_413() {
    let rondo = start("max_request_body: 64KiB").await;
    for size in [64 << 10, (64 << 10) + 1, 300_000] {
        let wanted = if size > 64 << 10 { 413 } else { 200 };
        let cut = || {
            let text = padded(size).into_bytes();
            text.chunks(10_000)
                .map(Bytes::copy_from_slice)
                .collect::<Vec<_>>()
        };
        for is_h2 in [false, true] {
            for body in [whole(padded(size)), parts(cut())] {
                let mut client = match is_h2 {
                    true => Connection::h2(rondo.addr).await,
                    false => Connection::h1(rondo.addr).await,
                };
                let answer = client.call(request(CHAT, &[], body)).await;
                assert_eq!(answer.status, wanted, "{size} h2: {is_h2} {answer:?}");
                if wanted == 413 {
                    assert_eq!(answer.json()["error"]["code"], "request_too_large");
                }
                if is_h2 {
                    // The stream is over, the connection is not.
                    assert_eq!(client.call(chat("m")).await.status, 200);
                }
            }
        }
    }
    rondo.assert_quiet().await;
}

// C152: a client that writes its whole body before it reads gets the answer, not a reset.
#[tokio::test]
async fn a_client_that_writes_first_reads_its_413() {
    let rondo = start("max_request_body: 64KiB").await;
    for expects in ["", "expect: 100-continue\r\n"] {
        for path in [
            CHAT,
            "/v1/nowhere",
            "/v1beta/models/unknown:generateContent",
        ] {
            let mut client = RawClient::connect(rondo.addr).await;
            client
                .write(&post_text(path, expects, &padded(4 << 20)))
                .await;
            let (head, _) = client.answer().await;
            let wanted = if path == CHAT {
                "http/1.1 413"
            } else {
                "http/1.1 404"
            };
            assert!(head.starts_with(wanted), "{head}");
            assert!(head.contains("connection: close"), "{head}");
            let (_, in_order) = client.rest().await;
            assert!(in_order, "reset after the answer");
        }
    }
    rondo.assert_quiet().await;
}

// R-B7, C129: above the process's bound a request is refused before it is read.
#[tokio::test]
async fn a_full_process_answers_503_before_reading() {
    let rondo = start("max_request_body: 64KiB, max_buffered_bytes: 64KiB").await;
    let (_open, body) = open_body();
    let length = [("content-length", "65000")];
    let mut holder = Connection::h1(rondo.addr).await;
    let held = tokio::spawn(async move { holder.send(request(CHAT, &length, body)).await });
    soon(async {
        while rondo.app.gateway.buffered.held() == 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    let refused = |answer: &Answer| {
        assert_eq!(answer.status, 503, "{answer:?}");
        assert_eq!(answer.header("retry-after"), Some("1"));
        assert_eq!(answer.json()["error"]["code"], "overloaded");
    };
    refused(&call(rondo.addr, post(CHAT, padded(2000))).await);
    let mut h2 = Connection::h2(rondo.addr).await;
    refused(&h2.call(post(CHAT, padded(2000))).await);
    refused(
        &h2.call(request(CHAT, &[], parts(vec![Bytes::from(padded(2000))])))
            .await,
    );
    // Who asks before sending is not told to go on.
    let mut raw = RawClient::connect(rondo.addr).await;
    let head = post_text(CHAT, "expect: 100-continue\r\n", &padded(2000));
    raw.write(head.split_once("\r\n\r\n").unwrap().0).await;
    raw.write("\r\n\r\n").await;
    let (head, _) = raw.answer().await;
    assert!(head.starts_with("http/1.1 503"), "{head}");
    drop(raw);
    held.abort();
    drop(_open);
    rondo.assert_quiet().await;
    assert_eq!(call(rondo.addr, chat("m")).await.status, 200);
}

// C152: "100 Continue" exactly when the body is wanted.
#[tokio::test]
async fn continue_is_said_when_the_body_is_wanted() {
    let rondo = start("max_request_body: 64KiB").await;
    let body = chat_body("m", false);
    let mut client = RawClient::connect(rondo.addr).await;
    for _ in 0..2 {
        let text = post_text(CHAT, "expect: 100-continue\r\n", &body);
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        client.write(&format!("{head}\r\n\r\n")).await;
        assert_eq!(
            client.read_to("\r\n\r\n").await,
            "HTTP/1.1 100 Continue\r\n\r\n"
        );
        client.write(body).await;
        let (head, _) = client.answer().await;
        assert!(head.starts_with("http/1.1 200"), "{head}");
    }
    assert!(
        rondo
            .mock("openai")
            .requests()
            .iter()
            .all(|seen| seen.header("expect").is_none())
    );
    for (path, length, wanted) in [
        (CHAT, "100000", "http/1.1 413"),
        ("/v1/nowhere", "10", "http/1.1 404"),
        ("/v1/models", "10", "http/1.1 405"),
        (
            "/v1beta/models/unknown:generateContent",
            "10",
            "http/1.1 404",
        ),
        (CHAT, "0", "http/1.1 400"),
    ] {
        let mut client = RawClient::connect(rondo.addr).await;
        client
            .write(&format!("POST {path} HTTP/1.1\r\nhost: g\r\nexpect: 100-continue\r\ncontent-length: {length}\r\n\r\n"))
            .await;
        let (head, _) = client.answer().await;
        assert!(head.starts_with(wanted), "{path}: {head}");
    }
    rondo.assert_quiet().await;
}

// A client that pauses inside its body. Pingora 0.9.1 has no timeout of its own for HTTP/2.
#[tokio::test]
async fn a_paused_upload_is_408() {
    let rondo = start("client_read_timeout_ms: 100").await;
    for is_h2 in [false, true] {
        for length in [&[("content-length", "1000")][..], &[]] {
            let (sender, body) = open_body();
            sender
                .unbounded_send(Bytes::from_static(b"{\"model\":"))
                .unwrap();
            let mut client = match is_h2 {
                true => Connection::h2(rondo.addr).await,
                false => Connection::h1(rondo.addr).await,
            };
            let answer = client.call(request(CHAT, length, body)).await;
            assert_eq!(answer.status, 408, "h2: {is_h2} {answer:?}");
            assert_eq!(answer.json()["error"]["code"], "request_timeout");
        }
    }
    assert_eq!(rondo.mock("openai").sends(), 0);
    rondo.assert_quiet().await;
}

// C129: a client that drips bytes, each in time, is cut in the end.
#[tokio::test]
async fn a_dripping_upload_is_408() {
    let rondo = start("client_read_timeout_ms: 50").await;
    let (sender, body) = open_body();
    let drip = tokio::spawn(async move {
        while sender.unbounded_send(Bytes::from_static(b" ")).is_ok() {
            pause(Duration::from_millis(10)).await;
        }
    });
    let answer = Connection::h2(rondo.addr)
        .await
        .call(request(CHAT, &[], body))
        .await;
    assert_eq!(answer.status, 408, "{answer:?}");
    drip.abort();
    rondo.assert_quiet().await;
}

/// The paths of the three families with a body for each.
const FAMILIES: [(&str, &str); 3] = [
    (CHAT, "openai"),
    ("/v1/messages", "anthropic"),
    ("/v1beta/models/gemini:generateContent", "gemini"),
];

fn assert_envelope(answer: &Answer, family: &str, status: u16, code: &str) {
    assert_eq!(answer.status, status, "{family}: {answer:?}");
    assert_eq!(answer.header("content-type"), Some("application/json"));
    assert!(answer.header("x-request-id").is_some());
    let json = answer.json();
    match family {
        "openai" => assert_eq!(json["error"]["code"], code, "{json}"),
        "anthropic" => {
            assert_eq!(json["type"], "error", "{json}");
            assert_eq!(json["error"]["details"]["code"], code, "{json}");
        }
        _ => {
            assert_eq!(json["error"]["code"], status, "{json}");
            assert_eq!(
                json["error"]["details"][0]["reason"],
                code.to_uppercase(),
                "{json}"
            );
        }
    }
}

// R-D3: errors of the gateway speak the client's dialect, and its connection goes on.
#[tokio::test]
async fn errors_speak_the_clients_dialect_and_keep_its_connection() {
    let rondo = start("max_request_body: 64KiB").await;
    for is_h2 in [false, true] {
        let mut client = match is_h2 {
            true => Connection::h2(rondo.addr).await,
            false => Connection::h1(rondo.addr).await,
        };
        for (path, family) in FAMILIES {
            for body in ["", " ", "{", "[]", "nonsense", "{\"model\":\"m\",}"] {
                let answer = client.call(post(path, body)).await;
                let code = answer.json().to_string();
                assert_eq!(answer.status, 400, "{family} {body:?}: {code}");
                assert_envelope(&answer, family, 400, "invalid_json");
            }
            let unknown = match family {
                "gemini" => post("/v1beta/models/unknown:generateContent", "{}"),
                _ => post(path, r#"{"model":"unknown","messages":[]}"#),
            };
            assert_envelope(&client.call(unknown).await, family, 404, "model_not_found");
            for method in ["GET", "PUT", "DELETE", "OPTIONS", "PATCH"] {
                let answer = client.call(bare(method, path, &[])).await;
                assert_envelope(&answer, family, 405, "method_not_allowed");
                assert_eq!(answer.header("allow"), Some("POST"));
            }
            let answer = client.call(bare("HEAD", path, &[])).await;
            assert_eq!((answer.status.as_u16(), answer.body.len()), (405, 0));
            let put =
                Request::put(format!("http://gateway.test{path}")).header("host", "gateway.test");
            let answer = client
                .call(put.body(whole("a body that nobody reads")).unwrap())
                .await;
            assert_envelope(&answer, family, 405, "method_not_allowed");
        }
        let answer = client.call(post("/v1/nowhere", "{}")).await;
        assert_envelope(&answer, "openai", 404, "path_not_found");
        let answer = client.call(post("/v1beta/nowhere", "{}")).await;
        assert_envelope(&answer, "gemini", 404, "path_not_found");
        let answer = client.call(post(CHAT, "{}")).await;
        assert_envelope(&answer, "openai", 400, "model_missing");
        assert_eq!(client.call(chat("m")).await.status, 200, "h2: {is_h2}");
    }
    assert_eq!(rondo.mock("openai").sends(), 2);
    rondo.assert_quiet().await;
}

#[tokio::test]
async fn the_list_of_models_has_three_shapes() {
    let rondo = start("route_headers: true").await;
    let mut client = Connection::h1(rondo.addr).await;
    let openai = client.call(bare("GET", "/v1/models", &[])).await;
    assert_eq!(openai.status, 200);
    assert_eq!(openai.json()["object"], "list");
    let ids: Vec<_> = openai.json()["data"].as_array().unwrap().clone();
    let ids: Vec<_> = ids
        .iter()
        .map(|entry| entry["id"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(ids, ["m", "claude", "gemini"]);
    let version = [("anthropic-version", "2023-06-01")];
    let anthropic = client.call(bare("GET", "/v1/models", &version)).await;
    assert_eq!(anthropic.json()["has_more"], false);
    let gemini = client
        .call(bare("GET", "/v1/models", &[("x-goog-api-key", "k")]))
        .await;
    assert_eq!(gemini.json()["models"][0]["name"], "models/m");
    let answer = client.call(bare("POST", "/v1/models", &[])).await;
    assert_eq!(
        (answer.status.as_u16(), answer.header("allow")),
        (405, Some("GET"))
    );
    rondo.assert_quiet().await;
}

// C136: framing that two parsers may read differently.
#[tokio::test]
async fn ambiguous_framing_never_reaches_a_target() {
    let rondo = start("max_request_body: 64KiB").await;
    let body = chat_body("m", false);
    let length = body.len();
    let chunked = format!("{length:x}\r\n{body}\r\n0\r\n\r\n");
    for (headers, body) in [
        (
            format!("content-length: {length}\r\ntransfer-encoding: chunked\r\n"),
            &chunked,
        ),
        (
            format!("content-length: {length}\r\ncontent-length: 3\r\n"),
            &body,
        ),
        ("content-length: -1\r\n".to_owned(), &body),
        ("content-length: 1e3\r\n".to_owned(), &body),
        ("transfer-encoding: gzip\r\n".to_owned(), &body),
    ] {
        let mut client = RawClient::connect(rondo.addr).await;
        client
            .write(&format!(
                "POST {CHAT} HTTP/1.1\r\nhost: g\r\n{headers}\r\n{body}"
            ))
            .await;
        // Whatever is answered, nothing follows on this connection.
        let (answer, _) = client.rest().await;
        let status = answer.split(' ').nth(1).unwrap_or("").to_owned();
        assert!(
            answer.is_empty() || status.starts_with('4'),
            "{headers}: {answer}"
        );
    }
    assert_eq!(rondo.mock("openai").sends(), 0);
    rondo.assert_quiet().await;
}

// A body of many tiny parts takes no more memory than its bytes.
#[tokio::test]
async fn tiny_chunks_are_one_body() {
    let rondo = start("max_request_body: 64KiB").await;
    let body = chat_body("m", false);
    let tiny: Vec<_> = body
        .bytes()
        .map(|byte| Bytes::copy_from_slice(&[byte]))
        .collect();
    for is_h2 in [false, true] {
        let mut client = match is_h2 {
            true => Connection::h2(rondo.addr).await,
            false => Connection::h1(rondo.addr).await,
        };
        assert_eq!(
            client
                .call(request(CHAT, &[], parts(tiny.clone())))
                .await
                .status,
            200
        );
    }
    let seen = rondo.mock("openai").requests();
    assert!(
        seen.iter().all(|seen| seen.body == body.as_bytes()),
        "{seen:?}"
    );
    rondo.assert_quiet().await;
}

// A client that leaves inside its upload leaves nothing behind.
#[tokio::test]
async fn a_broken_upload_leaves_nothing_behind() {
    let rondo = start("max_request_body: 64KiB").await;
    let mut raw = RawClient::connect(rondo.addr).await;
    raw.write(&format!(
        "POST {CHAT} HTTP/1.1\r\nhost: g\r\ncontent-length: 1000\r\n\r\n{{\"mo"
    ))
    .await;
    drop(raw);
    let mut raw = RawClient::connect(rondo.addr).await;
    raw.write(&format!(
        "POST {CHAT} HTTP/1.1\r\nhost: g\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n"
    ))
    .await;
    let _ = raw.rest().await;
    let (sender, body) = open_body();
    sender
        .unbounded_send(Bytes::from_static(b"{\"model\":"))
        .unwrap();
    let mut h2 = Connection::h2(rondo.addr).await;
    let sending =
        tokio::time::timeout(Duration::from_millis(50), h2.send(request(CHAT, &[], body)));
    assert!(sending.await.is_err(), "no answer before the body");
    drop((sender, h2));
    assert_eq!(call(rondo.addr, chat("m")).await.status, 200);
    assert_eq!(rondo.mock("openai").sends(), 1);
    rondo.assert_quiet().await;
}

// A client of HTTP/1.0 waits for the end of the connection. Answers without a length are in `downstream`.
#[tokio::test]
async fn an_http10_client_gets_a_whole_answer() {
    let rondo = start("max_request_body: 64KiB").await;
    for path in [CHAT, "/v1/nowhere"] {
        let mut client = RawClient::connect(rondo.addr).await;
        let text = post_text(path, "", &chat_body("m", false));
        client.write(&text.replace("HTTP/1.1", "HTTP/1.0")).await;
        let (answer, in_order) = client.rest().await;
        assert!(in_order);
        assert!(
            answer.to_lowercase().contains("connection: close"),
            "{answer}"
        );
        assert!(answer.ends_with('}'), "{answer}");
    }
    rondo.assert_quiet().await;
}

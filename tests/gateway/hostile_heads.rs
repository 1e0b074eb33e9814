//! Heads that are too large: refused or cut off, without holding what they send. HTTP/2's are in `hostile_h2_floods`.

use rondo::core::limits::HEAD_BYTES_MAX;
use rondo::mock::{MockServer, Script};
use tokio::task::JoinSet;

use crate::hostile_framing::{Fate, Scene};
use crate::support::auditor::asking;
use crate::support::client::{call, chat};
use crate::support::process::Process;
use crate::support::raw::RawClient;

const START: &str = "POST /v1/chat/completions HTTP/1.1\r\nhost: g\r\n";

fn whole(headers: &str) -> Vec<u8> {
    let body = asking("vector");
    let length = body.len();
    format!("{START}{headers}content-length: {length}\r\n\r\n{body}").into_bytes()
}

// R-B7: up to its bound a head is taken, above it not.
#[tokio::test]
async fn a_head_has_its_size() {
    let mut scene = Scene::start().await;
    let nearly = HEAD_BYTES_MAX - 4_096;
    let beyond = HEAD_BYTES_MAX + (64 << 10);
    for (case, bytes, fate) in [
        (
            "a large header",
            whole(&format!("x: {}\r\n", "y".repeat(nearly))),
            Fate::Once,
        ),
        ("many headers", whole(&"x: y\r\n".repeat(200)), Fate::Once),
        (
            "empty lines before it",
            ["\r\n".repeat(100).into_bytes(), whole("")].concat(),
            Fate::Once,
        ),
        (
            "too many empty lines",
            ["\r\n".repeat(HEAD_BYTES_MAX).into_bytes(), whole("")].concat(),
            Fate::Refused,
        ),
        (
            "too large a header",
            whole(&format!("x: {}\r\n", "y".repeat(2 * beyond))),
            Fate::Refused,
        ),
        (
            "too many headers",
            whole(&"x: y\r\n".repeat(300)),
            Fate::Refused,
        ),
        (
            "headers without end",
            whole(&"x: y\r\n".repeat(beyond / 3)),
            Fate::Refused,
        ),
        (
            "cookies",
            whole(&format!("cookie: {}\r\n", "c=d; ".repeat(beyond / 2))),
            Fate::Refused,
        ),
        (
            "a long target",
            format!(
                "POST /v1/{} HTTP/1.1\r\nhost: g\r\n\r\n",
                "x".repeat(2 * beyond)
            )
            .into_bytes(),
            Fate::Refused,
        ),
        (
            "a long method",
            format!("{} / HTTP/1.1\r\nhost: g\r\n\r\n", "X".repeat(2 * beyond)).into_bytes(),
            Fate::Refused,
        ),
        (
            "a long name",
            whole(&format!("{}: y\r\n", "x".repeat(2 * beyond))),
            Fate::Refused,
        ),
    ] {
        scene.check(case, &bytes, fate).await;
    }
    scene.end().await;
}

// R-B7: a hundred heads of nearly a megabyte each, none of which ends, are not held.
#[tokio::test]
async fn large_heads_are_not_held() {
    const CLIENTS: usize = 100;
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let mock = MockServer::start("one", Script::parse("answers: [ok]").unwrap(), listener).unwrap();
    let yaml = format!(
        "providers:\n  one: {{ adapter: openai, base_url: \"http://{}\" }}\nroutes:\n  - {{ name: chat, models: [m], targets: [{{ name: first, provider: one }}] }}\n",
        mock.addr()
    );
    let process = Process::start("threads: 1", &yaml).await;
    assert_eq!(call(process.addr, chat("m")).await.status, 200);
    let before = process.memory_now();
    let mut clients = JoinSet::new();
    for _ in 0..CLIENTS {
        let mut client = RawClient::connect(process.addr).await;
        clients.spawn(async move {
            client.bytes(START.as_bytes()).await;
            client.bytes("y".repeat(1_000_000).as_bytes()).await;
            client.rest().await.0
        });
    }
    while let Some(answer) = clients.join_next().await {
        let answer = answer.unwrap();
        assert!(
            answer.is_empty() || answer.starts_with("HTTP/1.1 431"),
            "{answer}"
        );
    }
    assert_eq!(call(process.addr, chat("m")).await.status, 200);
    let held = process.memory_peak().saturating_sub(before);
    println!("{} KiB for each", (held / CLIENTS) >> 10);
    assert!(held < CLIENTS * 4 * HEAD_BYTES_MAX, "{} KiB", held >> 10);
    assert_eq!(mock.recorder().sends(), 2);
}

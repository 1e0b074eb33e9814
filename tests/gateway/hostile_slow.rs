//! Clients that take their time with what is not a body: heads, the preface of HTTP/2, the idle time between requests. Each is ended by a
//! limit with a name, and nobody else waits for it. Slow bodies are in `protocols`, clients that do not read in `flow_slow`.

use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::task::JoinSet;

use crate::support::auditor::{Auditor, served};
use crate::support::client::{Connection, chat};
use crate::support::frames::{CONTINUATION, HEADERS, PREFACE, SETTINGS, bytes};
use crate::support::raw::RawClient;
use crate::support::tls::Identity;
use crate::support::{Rondo, soon};

const ROUTES: &str = "providers:\n  one: { adapter: openai, mock: { answers: [ok] } }\nroutes:\n  - { name: chat, models: [m], targets: [{ name: first, provider: one }] }\n";
/// The pause between two bytes of a client that drips: well within every limit.
const DRIP: Duration = Duration::from_millis(10);

/// Writes byte by byte for as long as the other side takes it, again from the start where it ends, and returns what was answered.
async fn drip(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    first: &[u8],
    then: &[u8],
) -> String {
    let _ = stream.write_all(first).await;
    let mut answer = Vec::new();
    let mut next = then.iter().cycle();
    soon(async {
        loop {
            match tokio::time::timeout(DRIP, stream.read_buf(&mut answer)).await {
                Ok(Ok(0) | Err(_)) => break,
                Ok(Ok(_)) => {}
                Err(_) => {
                    if let Some(byte) = next.next() {
                        let _ = stream.write_all(&[*byte]).await;
                    }
                }
            }
        }
    })
    .await;
    String::from_utf8_lossy(&answer).into_owned()
}

// R-B4 R-X3: a head comes whole in its time, from the connection on, or from the end of the idle time.
#[tokio::test]
async fn a_head_has_its_time() {
    let rondo = Rondo::start(&format!(
        "server: {{ client_header_timeout_ms: 200, keepalive_timeout_ms: 1000 }}\n{ROUTES}"
    ))
    .await;
    let begun = b"POST /v1/chat/completions HTTP/1.1\r\nhost: g\r\n".as_slice();
    let whole = b"GET /v1/models HTTP/1.1\r\nhost: g\r\n\r\n".as_slice();
    for (case, first, then) in [
        ("nothing", b"".as_slice(), b"".as_slice()),
        ("a request line", b"", b"POST /v1/chat/completions/and/more"),
        ("a header", begun, b"x-slow: abcdefgh\r\n"),
        ("empty lines", b"", b"\r\n"),
        ("silence in a head", begun, b""),
        ("the next head", whole, b"x"),
        ("silence in a preface", &PREFACE[..20], b""),
    ] {
        let stream = RawClient::connect(rondo.addr).await.stream;
        let answer = drip(stream, first, then).await;
        let answers = usize::from(first == whole);
        assert_eq!(
            answer.matches("HTTP/1.1 200").count(),
            answers,
            "{case}: {answer}"
        );
        assert_eq!(
            answer.matches("HTTP/1.1 ").count(),
            answers,
            "{case}: {answer}"
        );
    }
    assert_eq!(rondo.mock("one").sends(), 0);
    rondo.assert_quiet().await;
}

// R-B4: the same under TLS, where the handshake has come before.
#[tokio::test]
async fn a_head_has_its_time_under_tls() {
    let identity = Identity::new();
    let yaml = format!(
        "server: {{ client_header_timeout_ms: 200, keepalive_timeout_ms: 1000 }}\n{ROUTES}"
    );
    let rondo = Rondo::start_listening(&yaml, Some(identity.files.clone())).await;
    let stream = identity.connect(rondo.addr, "http/1.1").await;
    let answer = drip(
        stream,
        b"POST /v1/chat/completions HTTP/1.1\r\n",
        b"x-slow: y\r\n",
    )
    .await;
    assert_eq!(answer, "");
    // And who has promised HTTP/2 begins with its preface, whole and in time, and with nothing else.
    for (first, then) in [
        (b"".as_slice(), b"".as_slice()),
        (&PREFACE[..20], b""),
        (b"GET /v1/models HTTP/1.1\r\nhost: g\r\n\r\n", b""),
    ] {
        let stream = identity.connect(rondo.addr, "h2").await;
        assert_eq!(drip(stream, first, then).await, "");
    }
    let mut client = Connection::h1_tls(rondo.addr, &identity).await;
    assert_eq!(client.call(chat("m")).await.status, 200);
    rondo.assert_quiet().await;
}

// R-B4: many at once keep nobody from being served.
#[tokio::test]
async fn slow_heads_disturb_nobody() {
    let auditor = Auditor::start().await;
    let rondo = auditor.behind("client_header_timeout_ms: 1000").await;
    let mut slow = JoinSet::new();
    for number in 0..200 {
        let first = [
            "",
            "PRI * HTTP/2.0\r\n",
            "POST /v1/chat/completions HTTP/1.1\r\nx: y",
        ][number % 3];
        let stream = RawClient::connect(rondo.addr).await.stream;
        slow.spawn(drip(stream, first.as_bytes(), b""));
    }
    for number in 0..20 {
        served(rondo.addr, &format!("quick-{number}"), "beside slow ones").await;
    }
    while let Some(answer) = slow.join_next().await {
        assert_eq!(answer.unwrap(), "");
    }
    rondo.assert_quiet().await;
}

// Pingora 0.9.1 waits for 24 bytes, to see whether they are HTTP/2's.
#[tokio::test]
async fn the_shortest_request_is_answered() {
    let rondo = Rondo::start(ROUTES).await;
    for text in [
        "GET / HTTP/1.0\r\n\r\n",
        "PRI / HTTP/1.0\r\n\r\n",
        "P / HTTP/1.0\r\n\r\n",
    ] {
        let mut client = RawClient::connect(rondo.addr).await;
        client.write(text).await;
        let (answer, _) = client.rest().await;
        assert!(answer.starts_with("HTTP/1.1 404"), "{text}: {answer}");
    }
    rondo.assert_quiet().await;
}

// A connection without a request is kept for its time and no longer, whatever it speaks; one with a request is not idle.
#[tokio::test]
async fn an_idle_connection_ends() {
    let yaml = "server: { keepalive_timeout_ms: 1000 }\nproviders:\n  one: { adapter: openai, mock: { answers: [{ preset: ok, delay_ms: 1500 }] } }\nroutes:\n  - { name: chat, models: [m], targets: [{ name: first, provider: one }] }\n";
    let rondo = Rondo::start(yaml).await;
    let h1 = async {
        let mut client = RawClient::connect(rondo.addr).await;
        client
            .write("GET /v1/models HTTP/1.1\r\nhost: g\r\n\r\n")
            .await;
        let (answer, in_order) = client.rest().await;
        assert!(answer.starts_with("HTTP/1.1 200") && in_order, "{answer}");
    };
    let h2 = async {
        let mut client = RawClient::connect(rondo.addr).await;
        client.bytes(PREFACE).await;
        client.bytes(&bytes(SETTINGS, 0, 0, &[])).await;
        client.rest().await;
    };
    // The beginning of a head that never ends is not a request.
    let half = async {
        let mut client = RawClient::connect(rondo.addr).await;
        client.bytes(PREFACE).await;
        client.bytes(&bytes(SETTINGS, 0, 0, &[])).await;
        client.bytes(&bytes(HEADERS, 0, 1, &[0x82])).await;
        let mut answer = Vec::new();
        soon(async {
            while !matches!(
                tokio::time::timeout(DRIP, client.stream.read_buf(&mut answer)).await,
                Ok(Ok(0) | Err(_))
            ) {
                client.bytes(&bytes(CONTINUATION, 0, 1, &[])).await;
            }
        })
        .await;
    };
    let busy = async {
        let mut client = Connection::h2(rondo.addr).await;
        assert_eq!(client.call(chat("m")).await.status, 200);
    };
    tokio::join!(h1, h2, half, busy);
    rondo.assert_quiet().await;
}

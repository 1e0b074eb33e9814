//! What the gateway's own half of HTTP/1.1 tells its clients: lengths, chunks and connections, by version, method and kind of answer.

use crate::hygiene::{capture, logged};
use crate::support::Rondo;
use crate::support::client::{Connection, chat, chat_body};
use crate::support::held::{DONE, Held, STREAM, chunk, event, turns, unchunked};
use crate::support::raw::{GOOD, RawClient, json, post_text};

const CHAT: &str = "/v1/chat/completions";
const SERVER: &str = "max_request_body: 64KiB";

fn asked(version: &str, headers: &str, stream: bool) -> String {
    post_text(CHAT, headers, &chat_body("m", stream)).replace("HTTP/1.1", version)
}

/// A whole answer whose length the provider does not tell.
fn without_length() -> String {
    let head =
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n";
    format!("{head}{}0\r\n\r\n", chunk(GOOD))
}

/// The values of a header, in a head in lower case.
fn all<'h>(head: &'h str, name: &str) -> Vec<&'h str> {
    let of_it = |line: &'h str| line.strip_prefix(name)?.strip_prefix(": ");
    head.lines().filter_map(of_it).collect()
}

fn one<'h>(head: &'h str, name: &str) -> Option<&'h str> {
    let values = all(head, name);
    assert!(values.len() <= 1, "{name} in {head}");
    values.first().copied()
}

/// A list of models, to see whether a connection goes on.
async fn goes_on(client: &mut RawClient) {
    client
        .write("GET /v1/models HTTP/1.1\r\nhost: g\r\n\r\n")
        .await;
    let (head, body) = client.answer().await;
    assert!(head.starts_with("http/1.1 200"), "{head}");
    assert!(body.contains("\"object\":\"list\""), "{body}");
}

/// HTTP/1.0 knows no chunks: what has no length ends with the connection.
#[tokio::test]
async fn http10_gets_no_chunks() {
    // R-X4
    for headers in ["", "connection: keep-alive\r\n"] {
        let mut held = Held::start().await;
        let rondo = held.behind(SERVER).await;
        let mut client = RawClient::connect(rondo.addr).await;
        client.write(&asked("HTTP/1.0", headers, true)).await;
        held.came().await;
        held.say(&format!("{STREAM}{}", chunk(&event("one"))));
        let head = client.read_to("\r\n\r\n").await.to_lowercase();
        assert!(head.starts_with("http/1.1 200"), "{head}");
        assert_eq!(one(&head, "connection"), Some("close"));
        assert_eq!(one(&head, "transfer-encoding"), None);
        assert_eq!(one(&head, "content-length"), None);
        assert_eq!(client.read_to("\n\n").await, event("one"));
        held.say(&chunk(&event("two")));
        assert_eq!(client.read_to("\n\n").await, event("two"));
        held.end(&format!("{}0\r\n\r\n", chunk(DONE)));
        assert_eq!(client.rest().await, (DONE.to_owned(), true));
        rondo.assert_quiet().await;
    }
}

/// HTTP/1.0 keeps its connection when it asks for that and the answer has a length, the provider's or ours; and is told so.
#[tokio::test]
async fn http10_keeps_its_connection_if_it_asks() {
    let mut held = Held::start().await;
    let rondo = held.behind(SERVER).await;
    let mut client = RawClient::connect(rondo.addr).await;
    for answer in [json(200, GOOD), without_length(), json(200, GOOD)] {
        let text = asked("HTTP/1.0", "connection: Keep-Alive\r\n", false);
        client.write(&text).await;
        held.came().await;
        held.end(&answer);
        let (head, body) = client.answer().await;
        assert_eq!(one(&head, "connection"), Some("keep-alive"), "{head}");
        assert_eq!(one(&head, "transfer-encoding"), None, "{head}");
        assert_eq!(body, GOOD);
    }
    client.write(&asked("HTTP/1.0", "", false)).await;
    held.came().await;
    held.end(&json(200, GOOD));
    let (head, body) = client.answer().await;
    assert_eq!(one(&head, "connection"), Some("close"), "{head}");
    assert_eq!(body, GOOD);
    assert_eq!(client.rest().await, (String::new(), true));
    rondo.assert_quiet().await;
}

/// What is whole at once has a length, whoever gave it; what comes bit by bit has chunks. Nothing is said of a connection that goes on.
#[tokio::test]
async fn a_whole_answer_has_a_length_and_a_stream_has_chunks() {
    // R-X4
    let mut held = Held::start().await;
    let rondo = held.behind(SERVER).await;
    let mut client = RawClient::connect(rondo.addr).await;
    for answer in [json(200, GOOD), without_length()] {
        client.write(&asked("HTTP/1.1", "", false)).await;
        held.came().await;
        held.end(&answer);
        let (head, body) = client.answer().await;
        let length = GOOD.len().to_string();
        assert_eq!(one(&head, "content-length"), Some(&*length), "{head}");
        assert_eq!(one(&head, "transfer-encoding"), None, "{head}");
        assert_eq!(one(&head, "connection"), None, "{head}");
        assert!(one(&head, "date").is_some(), "{head}");
        assert_eq!(body, GOOD);
    }
    client.write(&asked("HTTP/1.1", "", true)).await;
    held.came().await;
    held.say(&format!("{STREAM}{}", chunk(&event("one"))));
    let head = client.read_to("\r\n\r\n").await.to_lowercase();
    assert_eq!(one(&head, "transfer-encoding"), Some("chunked"), "{head}");
    assert_eq!(one(&head, "content-length"), None, "{head}");
    assert_eq!(one(&head, "connection"), None, "{head}");
    held.end(&format!("{}0\r\n\r\n", chunk(DONE)));
    let body = client.read_to("\r\n0\r\n\r\n").await;
    assert_eq!(unchunked(&body), event("one") + DONE);
    goes_on(&mut client).await;
    rondo.assert_quiet().await;
}

/// An answer whose status has no body tells of none (RFC 9110, 8.6), and nothing is waited for behind it.
#[tokio::test]
async fn an_answer_without_a_body_has_no_length() {
    // R-D1
    for answer in [
        "HTTP/1.1 204 No Content\r\ncontent-length: 5\r\n\r\n",
        "HTTP/1.1 204 No Content\r\ncontent-type: text/plain\r\n\r\n",
    ] {
        let mut held = Held::start().await;
        let rondo = held.behind(SERVER).await;
        let mut client = RawClient::connect(rondo.addr).await;
        client.write(&asked("HTTP/1.1", "", false)).await;
        held.came().await;
        held.end(answer);
        let head = client.read_to("\r\n\r\n").await.to_lowercase();
        assert!(head.starts_with("http/1.1 204"), "{head}");
        for name in ["content-length", "transfer-encoding", "connection"] {
            assert_eq!(one(&head, name), None, "{head}");
        }
        goes_on(&mut client).await;
        let mut client = Connection::h2(rondo.addr).await;
        let answered = tokio::spawn(async move { client.call(chat("m")).await });
        held.came().await;
        held.end(answer);
        let seen = answered.await.unwrap();
        assert_eq!(seen.status, 204);
        assert_eq!(seen.header("content-length"), None, "{seen:?}");
        rondo.assert_quiet().await;
    }
}

/// HEAD gets the head of a refusal alone, and its connection goes on.
#[tokio::test]
async fn head_gets_no_body() {
    // R-D3
    let held = Held::start().await;
    let rondo = held.behind(SERVER).await;
    let mut client = RawClient::connect(rondo.addr).await;
    for path in [CHAT, "/v1/models", "/v1/nowhere"] {
        client
            .write(&format!("HEAD {path} HTTP/1.1\r\nhost: g\r\n\r\n"))
            .await;
        let head = client.read_to("\r\n\r\n").await.to_lowercase();
        assert!(head.starts_with("http/1.1 40"), "{head}");
        assert!(one(&head, "content-length") > Some("0"), "{head}");
        goes_on(&mut client).await;
    }
    rondo.assert_quiet().await;
}

/// A body that nobody wants is passed over while that costs less than a new connection. Otherwise the answer says that this was the last
/// one, and is not overtaken by a reset.
#[tokio::test]
async fn a_list_has_no_use_for_a_body() {
    let held = Held::start().await;
    let rondo = held.behind(SERVER).await;
    let list = |headers: &str| format!("GET /v1/models HTTP/1.1\r\nhost: g\r\n{headers}\r\n");
    let mut client = RawClient::connect(rondo.addr).await;
    for length in [0, 1, 64 << 10] {
        let text = list(&format!("content-length: {length}\r\n")) + &"x".repeat(length);
        client.write(&text).await;
        let (head, _) = client.answer().await;
        assert!(head.starts_with("http/1.1 200"), "{head}");
        assert_eq!(one(&head, "connection"), None, "{length}");
    }
    let large = (64 << 10) + 1;
    for text in [
        list(&format!("content-length: {large}\r\n")) + &"x".repeat(large),
        list("transfer-encoding: chunked\r\n") + &chunk(&"x".repeat(large)) + "0\r\n\r\n",
        list("content-length: 5\r\nexpect: 100-continue\r\n"),
    ] {
        let mut client = RawClient::connect(rondo.addr).await;
        client.write(&text).await;
        let (head, _) = client.answer().await;
        assert!(head.starts_with("http/1.1 200"), "{head}");
        assert_eq!(one(&head, "connection"), Some("close"), "{head}");
        client.stream.set_nodelay(true).unwrap();
        tokio::io::AsyncWriteExt::shutdown(&mut client.stream)
            .await
            .unwrap();
        assert_eq!(client.rest().await, (String::new(), true));
    }
    rondo.assert_quiet().await;
}

/// A head that cannot be taken is refused at once, in words, and counted.
#[tokio::test]
async fn a_bad_head_is_told_what_is_wrong() {
    // R-D3 R-B7
    capture();
    let held = Held::start().await;
    // Longer than a test waits: whoever is refused by this time is not refused at once.
    let rondo = held.behind("client_header_timeout_ms: 120000").await;
    let hello = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 and so on \r\n\r\n";
    let large = format!("GET / HTTP/1.1\r\nx: {}", "y".repeat(66_000));
    let many = format!("GET / HTTP/1.1\r\n{}\r\n", "x: y\r\n".repeat(257));
    let cases: [(&[u8], &str, &str); 8] = [
        (hello, "400", "request line"),
        (b"nonsense\r\n\r\n", "400", "request line"),
        (b"GET / HTTP/1.1\r\na b: c\r\n\r\n", "400", "name"),
        (b"GET / HTTP/1.1\r\n\r\n", "400", "no host"),
        (
            b"GET / HTTP/1.1\r\nhost: a\r\nhost: b\r\n\r\n",
            "400",
            "two hosts",
        ),
        (
            b"POST / HTTP/1.1\r\nhost: g\r\ncontent-length: x\r\n\r\n",
            "400",
            "length",
        ),
        (large.as_bytes(), "431", "65536 bytes"),
        (many.as_bytes(), "431", "256 headers"),
    ];
    for (number, (bytes, status, says)) in cases.into_iter().enumerate() {
        // The first request of a connection, and one on a kept connection.
        let mut client = RawClient::connect(rondo.addr).await;
        if number % 2 == 1 {
            goes_on(&mut client).await;
        }
        client.bytes(bytes).await;
        let (head, body) = client.answer().await;
        let case = format!("{says}: {head}{body}");
        assert!(head.starts_with(&format!("http/1.1 {status}")), "{case}");
        assert_eq!(one(&head, "connection"), Some("close"), "{case}");
        let error: serde_json::Value = serde_json::from_str(&body).unwrap();
        assert_eq!(error["error"]["code"], "invalid_request", "{case}");
        let message = error["error"]["message"].as_str().unwrap();
        assert!(message.contains(says), "{case}");
        let id = one(&head, "x-request-id").unwrap();
        let lines = logged(id, "rondo::access");
        assert_eq!(lines.len(), 1, "{case}");
        assert!(
            lines[0].contains(&format!(" status={status} ")),
            "{lines:?}"
        );
        assert_eq!(client.rest().await, (String::new(), true), "{case}");
        assert_eq!(rondo.refusals(), (number + 1) as f64, "{case}");
    }
    let counted = |status: &str| rondo.metric("rondo_requests_total", &[status]);
    assert_eq!(counted("status=\"400\""), 6.0);
    assert_eq!(counted("status=\"431\""), 2.0);
    assert_eq!(held.sends(), 0);
    rondo.assert_quiet().await;
}

/// When the server stops, who asks nothing is not waited for, and who waits for an answer is told that it is the last.
#[tokio::test]
async fn connections_end_with_the_server() {
    // R-C3
    let mut held = Held::start().await;
    let rondo = held.behind(SERVER).await;
    let mut idle = RawClient::connect(rondo.addr).await;
    goes_on(&mut idle).await;
    let mut streaming = RawClient::connect(rondo.addr).await;
    streaming.write(&asked("HTTP/1.1", "", true)).await;
    held.came().await;
    held.say(&format!("{STREAM}{}", chunk(&event("one"))));
    let head = streaming.read_to("\r\n\r\n").await.to_lowercase();
    assert_eq!(one(&head, "connection"), None, "{head}");
    rondo.stop();
    assert_eq!(idle.rest().await, (String::new(), true));
    held.end(&format!("{}0\r\n\r\n", chunk(DONE)));
    let (body, in_order) = streaming.rest().await;
    assert!(in_order);
    assert_eq!(unchunked(&body), event("one") + DONE);
    rondo.assert_quiet().await;
    busy(&mut held).await;
}

async fn busy(held: &mut Held) {
    let rondo = held.behind(SERVER).await;
    let mut waiting = RawClient::connect(rondo.addr).await;
    waiting.write(&asked("HTTP/1.1", "", false)).await;
    held.came().await;
    rondo.stop();
    turns().await;
    held.end(&json(200, GOOD));
    let (head, body) = waiting.answer().await;
    assert_eq!(one(&head, "connection"), Some("close"), "{head}");
    assert_eq!(body, GOOD);
    assert_eq!(waiting.rest().await, (String::new(), true));
    rondo.assert_quiet().await;
}

/// "100 Continue" is for a body that is wanted and has not begun to come, and for HTTP/1.1.
#[tokio::test]
async fn continue_is_said_to_who_waits_for_it() {
    let mut held = Held::start().await;
    let rondo = held.behind(SERVER).await;
    for (version, apart, told) in [
        ("HTTP/1.1", true, true),
        ("HTTP/1.1", false, false),
        ("HTTP/1.0", true, false),
        ("HTTP/1.0", false, false),
    ] {
        let text = asked(version, "expect: 100-continue\r\n", false);
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        let mut client = RawClient::connect(rondo.addr).await;
        if apart {
            client.write(&format!("{head}\r\n\r\n")).await;
            rondo.until(reads_a_body).await;
            client.write(body).await;
        } else {
            client.write(&text).await;
        }
        assert!(held.came().await.body == body.as_bytes());
        held.end(&json(200, GOOD));
        let first = client.read_to("\r\n\r\n").await;
        let is_told = first == "HTTP/1.1 100 Continue\r\n\r\n";
        assert_eq!(is_told, told, "{version} apart: {apart}: {first}");
        drop(client);
        rondo.assert_quiet().await;
    }
}

fn reads_a_body(rondo: &Rondo) -> bool {
    rondo.app.gateway.buffered.held() > 0
}

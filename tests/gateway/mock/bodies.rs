//! Bodies as the script shapes, paces and breaks them.

use std::io;

use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;

use super::{CHAT, HELLO, post, raw, request, script, soon, start};

#[tokio::test]
async fn overrides_change_a_preset() {
    let server = start(
        "answers:
  - { preset: openai.throttle, retry_after: 1.5, headers: { x-a: [1, b], content-type: null } }
  - { preset: throttle, status: 503, body: { error: { code: 7 } } }",
    );
    let answer = post(server.addr(), CHAT, HELLO).await;
    assert_eq!(answer.header("retry-after"), Some("2"));
    assert_eq!(answer.header("retry-after-ms"), Some("1500"));
    assert_eq!(answer.header("content-type"), None);
    assert!(answer.head.contains("x-a: 1\r\nx-a: b"), "{}", answer.head);
    let answer = post(server.addr(), CHAT, HELLO).await;
    assert_eq!(
        (answer.status, answer.text()),
        (503, r#"{"error":{"code":7}}"#)
    );
}

#[tokio::test]
async fn lengths_are_told_as_the_script_says() {
    let server = start(
        "answers:
  - { status: 200, body: hello, content_length: chunked }
  - { status: 200, body: hello, content_length: 100, abort_after: 3 }
  - { sse: [{data: a}, {data: {b: 1}}], content_length: exact }",
    );
    let answer = post(server.addr(), CHAT, HELLO).await;
    assert_eq!(answer.header("transfer-encoding"), Some("chunked"));
    assert_eq!((answer.text(), answer.is_whole), ("hello", true));
    let answer = post(server.addr(), CHAT, HELLO).await;
    assert_eq!(answer.header("content-length"), Some("100"));
    assert_eq!((answer.text(), answer.is_whole), ("hel", false));
    let answer = post(server.addr(), CHAT, HELLO).await;
    assert_eq!(answer.header("content-length"), Some("24"));
    assert_eq!(answer.text(), "data: a\n\ndata: {\"b\":1}\n\n".to_owned());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_body_can_break_off_after_every_byte() {
    let body = r#"{"error":{}}"#;
    for cut in 0..body.len() {
        for framing in ["exact", "chunked"] {
            let server = start(&format!(
                "answers: [{{status: 500, body: '{body}', content_length: {framing}, abort_after: {cut}}}]"
            ));
            let answer = post(server.addr(), CHAT, HELLO).await;
            assert_eq!(
                (answer.text(), answer.is_whole),
                (&body[..cut], false),
                "{framing}"
            );
            let seen = soon(server.recorder().wait_for_bodies(1)).await;
            assert!(seen[0].closed_by_client.is_none() && seen[0].answered.is_none());
        }
    }
}

#[tokio::test]
async fn a_large_body_breaks_off_exactly() {
    let body = "x".repeat(3_000_000);
    let server = start(&format!(
        "answers: [{{body: {body}, abort_after: 2000000}}]"
    ));
    let answer = post(server.addr(), CHAT, HELLO).await;
    assert_eq!(answer.body.len(), 2_000_000);
}

#[tokio::test]
async fn a_connection_can_end_without_a_header() {
    let server = start("answers: [{abort: before_head}, reset, {abort: reset}]");
    let bytes = request(CHAT, "", HELLO);
    let (read, end) = raw(server.addr(), &bytes).await;
    assert!(read.is_empty() && end.is_ok());
    for _ in 0..2 {
        let (read, end) = raw(server.addr(), &bytes).await;
        assert!(read.is_empty());
        assert_eq!(end.unwrap_err().kind(), io::ErrorKind::ConnectionReset);
    }
    let seen = soon(server.recorder().wait_for_bodies(3)).await;
    assert!(seen.iter().all(|seen| seen.closed_by_client.is_none()));
}

#[tokio::test]
async fn refused_connections_are_reset_before_a_request() {
    let server = start("refuse_connections: true");
    let mut tcp = TcpStream::connect(server.addr()).await.unwrap();
    assert!(soon(tcp.read(&mut [0; 1])).await.is_err());
    assert_eq!(
        (
            server.recorder().connections_opened(),
            server.recorder().sends()
        ),
        (1, 0)
    );
    server.set_script(script(""));
    assert_eq!(post(server.addr(), CHAT, HELLO).await.status, 200);
}

#[tokio::test]
async fn a_trickle_sends_piece_by_piece() {
    let server = start(
        "answers: [{body: abcdefg, trickle: {bytes: 3, gap_ms: 2}, content_length: chunked}]",
    );
    let (read, end) = raw(server.addr(), &request(CHAT, "", HELLO)).await;
    end.unwrap();
    let text = String::from_utf8(read).unwrap();
    assert!(
        text.ends_with("\r\n\r\n3\r\nabc\r\n3\r\ndef\r\n1\r\ng\r\n0\r\n\r\n"),
        "{text}"
    );
}

#[tokio::test]
async fn events_pause_where_the_script_says() {
    let server = start(
        "answers: [{sse: [{comment: ping}, {event: x, data: a, id: '1'}, {raw: \"data: b\\n\\n\", gap_ms: 2}]}]",
    );
    let (read, _) = raw(server.addr(), &request(CHAT, "", HELLO)).await;
    let text = String::from_utf8(read).unwrap();
    let first = ": ping\n\nevent: x\nid: 1\ndata: a\n\n";
    let chunks = format!(
        "{:X}\r\n{first}\r\n9\r\ndata: b\n\n\r\n0\r\n\r\n",
        first.len()
    );
    assert!(text.ends_with(&chunks), "{text}");
}

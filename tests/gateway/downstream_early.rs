//! What a client sends when nobody expects it: behind its request, in odd pieces, not at all; and clients that leave as they ask.

use rondo::core::settlement::State;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};

use crate::support::client::chat_body;
use crate::support::held::{DONE, Held, STREAM, chunk, event, turns, unchunked};
use crate::support::raw::{GOOD, RawClient, json, post_text};
use crate::support::soon;

const CHAT: &str = "/v1/chat/completions";
/// What is kept of a client that has no answer yet.
const EARLY_BYTES_MAX: usize = 64 << 10;

fn asked(stream: bool) -> String {
    post_text(CHAT, "", &chat_body("m", stream))
}

/// When the rest of what a client sends comes.
#[derive(Debug, Clone, Copy, PartialEq)]
enum When {
    /// With its request.
    Together,
    /// While its answer is awaited.
    Awaited,
    /// While its answer streams.
    Streaming,
}

const ANY_TIME: [When; 3] = [When::Together, When::Awaited, When::Streaming];

/// Asks for a stream with this behind the request, and reads the head and the body of the answer; the connection is left as it is then.
async fn with_more(held: &mut Held, client: &mut RawClient, when: When, more: &str) -> [String; 2] {
    match when {
        When::Together => client.write(&(asked(true) + more)).await,
        When::Awaited | When::Streaming => client.write(&asked(true)).await,
    }
    held.came().await;
    if when == When::Awaited {
        client.write(more).await;
        turns().await;
    }
    held.say(&format!("{STREAM}{}", chunk(&event("one"))));
    let head = client.read_to("\r\n\r\n").await.to_lowercase();
    let first = client.read_to("\n\n\r\n").await;
    if when == When::Streaming {
        client.write(more).await;
        turns().await;
    }
    held.end(&format!("{}0\r\n\r\n", chunk(DONE)));
    let last = client.read_to("\r\n0\r\n\r\n").await;
    [head, unchunked(&(first + &last))]
}

/// Old browsers put an empty line behind a body; it is nothing (RFC 9112, 2.2).
#[tokio::test]
async fn an_empty_line_behind_a_body_is_nothing() {
    // R-D4
    let mut held = Held::start().await;
    let rondo = held.behind("").await;
    let mut client = RawClient::connect(rondo.addr).await;
    for more in ["\r\n", "\n", "\r\n\r\n"] {
        for when in ANY_TIME {
            let [head, body] = with_more(&mut held, &mut client, when, more).await;
            assert!(!head.contains("connection:"), "{when:?}: {head}");
            assert_eq!(body, event("one") + DONE, "{when:?}");
        }
    }
    rondo.assert_quiet().await;
    assert_eq!(rondo.records().len(), 9);
    let ended = rondo.records().into_iter();
    assert!({ ended }.all(|record| record.operation.state == State::Succeeded));
}

/// Another request before the answer to the first is not served, and takes nothing from the first: its answer comes whole, and is the
/// last of its connection, which says so when that was known in time.
#[tokio::test]
async fn a_request_before_the_answer_is_not_served() {
    // R-D4 R-B5
    for when in ANY_TIME {
        let mut held = Held::start().await;
        let rondo = held.behind("").await;
        let mut client = RawClient::connect(rondo.addr).await;
        let [head, body] = with_more(&mut held, &mut client, when, &asked(true)).await;
        let told = head.contains("connection: close\r\n");
        assert_eq!(told, when != When::Streaming, "{when:?}: {head}");
        assert_eq!(body, event("one") + DONE, "{when:?}");
        assert_eq!(client.rest().await, (String::new(), true), "{when:?}");
        rondo.assert_quiet().await;
        assert_eq!(held.sends(), 1, "{when:?}");
        let records = rondo.records();
        assert_eq!(records.len(), 1, "{when:?}");
        assert_eq!(records[0].operation.state, State::Succeeded, "{when:?}");
    }
}

/// Nor is who goes on sending when its answer has come overtaken by a reset.
#[tokio::test]
async fn who_goes_on_sending_reads_its_answer() {
    let mut held = Held::start().await;
    let rondo = held.behind("").await;
    let mut client = RawClient::connect(rondo.addr).await;
    client.write(&(asked(false) + "POST")).await;
    held.came().await;
    held.end(&json(200, GOOD));
    let (head, body) = client.answer().await;
    assert!(head.contains("connection: close\r\n"), "{head}");
    assert_eq!(body, GOOD);
    for _ in 0..8 {
        // Each fails once there was a reset.
        client.write(&"y".repeat(32 << 10)).await;
        turns().await;
    }
    assert_eq!(client.rest().await, (String::new(), true));
    rondo.assert_quiet().await;
    assert_eq!(held.sends(), 1);
}

/// Whoever goes on sending before its answer is not read any more above the bound; the answer comes all the same, and is the last.
#[tokio::test]
async fn too_much_before_an_answer_pushes_back() {
    // R-D4 R-L1
    for bytes in [EARLY_BYTES_MAX, EARLY_BYTES_MAX + 1, 16 << 20] {
        let mut held = Held::start().await;
        let rondo = held.behind("").await;
        let client = RawClient::connect(rondo.addr).await;
        let (read, mut write) = client.stream.into_split();
        write.write_all(asked(false).as_bytes()).await.unwrap();
        held.came().await;
        let more = tokio::spawn(async move {
            let wrote = write.write_all(&vec![b'x'; bytes]).await;
            (wrote.is_ok(), write)
        });
        turns().await;
        // More than what the system holds for both sides is not taken.
        assert_eq!(more.is_finished(), bytes < 16 << 20, "{bytes}");
        held.end(&json(200, GOOD));
        let mut answer = String::new();
        let mut read = BufReader::new(read);
        while !answer.ends_with(GOOD) {
            let came = soon(read.fill_buf()).await.unwrap();
            assert!(!came.is_empty(), "ended after {answer}");
            answer.push_str(std::str::from_utf8(came).unwrap());
            let length = came.len();
            read.consume(length);
        }
        assert!(answer.contains("connection: close\r\n"), "{answer}");
        // It is read to its end behind the answer, and nothing of it is served.
        assert!(soon(more).await.unwrap().0, "{bytes}");
        rondo.assert_quiet().await;
        let records = rondo.records();
        let states: Vec<_> = records
            .iter()
            .map(|record| record.operation.state)
            .collect();
        assert_eq!(states, [State::Succeeded], "{bytes}");
        assert_eq!(held.sends(), 1);
    }
}

/// A question of so many bytes, each unlike its neighbours.
fn question(bytes: usize) -> String {
    let head = r#"{"model":"m","messages":[{"role":"user","content":""#;
    let tail = "\"}]}";
    let letters =
        (0_u32..).map(|at| char::from(b'a' + (at.wrapping_mul(2_654_435_761) >> 27) as u8 % 26));
    let text: String = letters.take(bytes - head.len() - tail.len()).collect();
    format!("{head}{text}{tail}")
}

/// Pieces of odd sizes.
fn pieces(bytes: &[u8]) -> Vec<&[u8]> {
    let sizes = [1, 4095, 4096, 4097, 13, 65_535, 65_537, 131_071, 262_144];
    let (mut rest, mut pieces) = (bytes, Vec::new());
    for size in sizes.into_iter().cycle() {
        if rest.is_empty() {
            break;
        }
        let (piece, later) = rest.split_at(size.min(rest.len()));
        pieces.push(piece);
        rest = later;
    }
    pieces
}

/// A body arrives byte for byte, however its head and it are cut on their way.
#[tokio::test]
async fn a_body_in_any_pieces_is_the_same() {
    // R-X1 R-X3
    let mut held = Held::start().await;
    let rondo = held.behind("").await;
    let mut client = RawClient::connect(rondo.addr).await;
    for size in [100 << 10, 8 << 20] {
        let body = question(size);
        assert_eq!(body.len(), size);
        let text = post_text(CHAT, "", &body);
        let head = text.len() - size;
        for apart in [true, false] {
            let whole = text.as_bytes();
            let (slow, quick) = whole.split_at(if apart { head + 3 } else { 0 });
            for byte in slow.chunks(1) {
                client.bytes(byte).await;
                tokio::task::yield_now().await;
            }
            for piece in pieces(quick) {
                client.bytes(piece).await;
                tokio::task::yield_now().await;
            }
            let came = held.came().await;
            assert!(came.body == body.as_bytes(), "{size}, apart: {apart}");
            held.end(&json(200, GOOD));
            assert_eq!(client.answer().await.1, GOOD);
        }
    }
    rondo.assert_quiet().await;
}

/// A body that ends before its end is no operation, and nothing of it is sent.
#[tokio::test]
async fn half_a_body_is_no_operation() {
    // R-D4 R-L2
    let body = question(100 << 10);
    let with_length = post_text(CHAT, "", &body);
    let in_chunks = format!(
        "POST {CHAT} HTTP/1.1\r\nhost: g\r\ntransfer-encoding: chunked\r\n\r\n{}",
        chunk(&body)
    );
    for text in [&with_length[..with_length.len() - 1], &in_chunks] {
        for reset in [false, true] {
            let held = Held::start().await;
            let rondo = held.behind("").await;
            let mut client = RawClient::connect(rondo.addr).await;
            client.write(text).await;
            rondo
                .until(|rondo| rondo.app.gateway.buffered.held() > 0)
                .await;
            if reset {
                client.stream.set_zero_linger().unwrap();
            }
            drop(client);
            rondo.until(|rondo| rondo.refusals() == 1.0).await;
            rondo.assert_quiet().await;
            assert_eq!((held.sends(), rondo.records().len()), (0, 0));
        }
    }
}

/// A client that has left by the time that its request could be sent is sent nothing for: it asks and leaves in one go, before the
/// gateway, which shares this thread, has its turn.
#[tokio::test]
async fn who_asks_and_leaves_is_sent_nothing_for() {
    // R-B8 R-L1
    for reset in [false, true] {
        let held = Held::start().await;
        let rondo = held.behind("").await;
        let client = RawClient::connect(rondo.addr).await;
        // It is accepted, and waits for a head.
        rondo
            .until(|rondo| rondo.app.gateway.occupancy.connections.taken() == 1)
            .await;
        let text = asked(false);
        let written = client.stream.try_write(text.as_bytes()).unwrap();
        assert_eq!(written, text.len());
        if reset {
            client.stream.set_zero_linger().unwrap();
        }
        drop(client);
        rondo
            .until(|rondo| rondo.app.gateway.occupancy.connections.taken() == 0)
            .await;
        rondo.assert_quiet().await;
        assert_eq!(held.sends(), 0, "reset: {reset}");
        assert_eq!(rondo.metric("rondo_upstream_sends_total", &[]), 0.0);
        for record in rondo.records() {
            assert_eq!(record.operation.state, State::Cancelled, "reset: {reset}");
        }
    }
}

//! HTTP/2 answers with a length whose stream ends later than their last byte: they are over when they are whole.

use std::sync::Arc;

use http_body_util::BodyExt;
use rondo::core::settlement::State;
use tokio::sync::Notify;

use crate::support::client::{Connection, chat};
use crate::support::frames::{CANCEL, DATA, END_HEADERS, END_STREAM, HEADERS, RST_STREAM, bytes};
use crate::support::raw::{GOOD, Link, RawClient, Upstream, json, post_text};
use crate::support::{Rondo, client, soon};

const CHAT: &str = "/v1/chat/completions";

fn one(provider: &str) -> String {
    format!(
        "providers:\n  one: {provider}\nroutes:\n  - {{ name: chat, models: [m], targets: [{{ name: first, provider: one }}] }}\n"
    )
}

/// A head with a length and what follows it, in one write: whoever reads the one has the other.
async fn answer(link: &mut Link, stream: u32, length: usize, rest: &[Vec<u8>]) {
    let length = length.to_string();
    // `:status: 200` is field 8 of the static table; `content-type` has number 31 there and `content-length` 28.
    let mut block = vec![0x88, 0x0f, 0x10, 16];
    block.extend_from_slice(b"application/json");
    block.extend_from_slice(&[0x0f, 0x0d, u8::try_from(length.len()).unwrap()]);
    block.extend_from_slice(length.as_bytes());
    let mut whole = bytes(HEADERS, END_HEADERS, stream, &block);
    whole.extend(rest.iter().flatten());
    link.bytes(&whole).await;
}

fn data(stream: u32, flags: u8, text: &str) -> Vec<u8> {
    bytes(DATA, flags, stream, text.as_bytes())
}

/// An upstream that keeps the end of each answer back until the next request has come.
async fn withholding() -> Upstream {
    Upstream::start(|mut link| async move {
        link.greet(&[]).await;
        let mut open = None;
        while let Some(stream) = link.stream().await {
            if let Some(open) = open.replace(stream) {
                link.frame(DATA, END_STREAM, open, b"").await;
            }
            answer(&mut link, stream, GOOD.len(), &[data(stream, 0, GOOD)]).await;
        }
    })
    .await
}

#[track_caller]
fn assert_succeeded(rondo: &Rondo, count: usize) {
    let records = rondo.records();
    assert_eq!(records.len(), count);
    assert_eq!(
        rondo.metric("rondo_requests_total", &["outcome=\"succeeded\""]),
        count as f64
    );
    for record in records {
        assert_eq!(
            (record.operation.state, record.attempts.len()),
            (State::Succeeded, 1),
            "{record:?}"
        );
    }
}

// R-X4 R-L1 R-S23: the next request does not wait for the end of the stream before it, and the upstream connection serves it.
#[tokio::test]
async fn the_next_request_does_not_wait_for_the_end_of_a_stream() {
    for is_h2 in [false, true] {
        let upstream = withholding().await;
        let rondo = Rondo::start(&one(&upstream.provider(", http2: true"))).await;
        let mut client = match is_h2 {
            true => Connection::h2(rondo.addr).await,
            false => Connection::h1(rondo.addr).await,
        };
        for _ in 0..3 {
            let answer = client.call(chat("m")).await;
            assert_eq!(
                (answer.status.as_u16(), answer.text()),
                (200, GOOD),
                "h2: {is_h2}"
            );
        }
        rondo.assert_quiet().await;
        assert_succeeded(&rondo, 3);
        assert_eq!((upstream.requests(), upstream.connections()), (3, 1));
    }
}

// R-L1 R-S23: who has the whole answer may leave.
#[tokio::test]
async fn a_client_that_leaves_with_its_whole_answer_cancels_nothing() {
    let upstream = withholding().await;
    let rondo = Rondo::start(&one(&upstream.provider(", http2: true"))).await;
    let mut client = RawClient::connect(rondo.addr).await;
    client
        .write(&post_text(CHAT, "", &client::chat_body("m", false)))
        .await;
    let (head, body) = client.answer().await;
    assert!(head.starts_with("http/1.1 200"), "{head}");
    assert_eq!(body, GOOD);
    drop(client);
    rondo.assert_quiet().await;
    assert_succeeded(&rondo, 1);
}

// R-L1: a stream that is reset after its last byte has broken nothing, and one that ends before it has.
#[tokio::test]
async fn an_answer_is_broken_by_its_length_alone() {
    let upstream = Upstream::start(|mut link| async move {
        link.greet(&[]).await;
        let mut turn = 0;
        while let Some(stream) = link.stream().await {
            let end = match turn {
                0 => bytes(RST_STREAM, 0, stream, &CANCEL.to_be_bytes()),
                _ => data(stream, END_STREAM, ""),
            };
            let length = GOOD.len() + turn;
            answer(&mut link, stream, length, &[data(stream, 0, GOOD), end]).await;
            turn += 1;
        }
    })
    .await;
    let rondo = Rondo::start(&one(&upstream.provider(", http2: true"))).await;
    let mut client = Connection::h1(rondo.addr).await;
    let whole = client.call(chat("m")).await;
    assert_eq!((whole.status.as_u16(), whole.text()), (200, GOOD));
    rondo.assert_quiet().await;
    assert_succeeded(&rondo, 1);
    let short = soon(client.send(chat("m"))).await.unwrap().into_body();
    assert!(
        soon(short.collect()).await.is_err(),
        "a short answer was called whole"
    );
    rondo.until(|rondo| rondo.records().len() == 2).await;
    assert_ne!(rondo.records()[1].operation.state, State::Succeeded);
    rondo.assert_quiet().await;
}

// R-X4: an answer without a body is whole with its head.
#[tokio::test]
async fn an_empty_answer_is_whole_with_its_head() {
    let upstream = Upstream::start(|mut link| async move {
        link.greet(&[]).await;
        let mut open = None;
        while let Some(stream) = link.stream().await {
            if let Some(open) = open.replace(stream) {
                link.frame(DATA, END_STREAM, open, b"").await;
            }
            answer(&mut link, stream, 0, &[]).await;
        }
    })
    .await;
    let rondo = Rondo::start(&one(&upstream.provider(", http2: true"))).await;
    let mut client = Connection::h1(rondo.addr).await;
    let first = client.call(chat("m")).await.status;
    assert_eq!(client.call(chat("m")).await.status, first);
    rondo.assert_quiet().await;
    assert_eq!((upstream.requests(), upstream.connections()), (2, 1));
}

// R-X4: trailers pass with an answer that has a length.
#[tokio::test]
async fn trailers_follow_an_answer_with_a_length() {
    let upstream = Upstream::start(|mut link| async move {
        link.greet(&[]).await;
        while let Some(stream) = link.stream().await {
            let block = [&[0x00, 4][..], b"x-tr", &[3], b"end"].concat();
            let trailers = bytes(HEADERS, END_HEADERS | END_STREAM, stream, &block);
            answer(
                &mut link,
                stream,
                GOOD.len(),
                &[data(stream, 0, GOOD), trailers],
            )
            .await;
        }
    })
    .await;
    let rondo = Rondo::start(&one(&upstream.provider(", http2: true"))).await;
    let mut client = Connection::h2(rondo.addr).await;
    for _ in 0..2 {
        let answer = soon(client.send(chat("m"))).await.unwrap();
        let body = soon(answer.into_body().collect()).await.unwrap();
        assert_eq!(body.trailers().unwrap()["x-tr"], "end");
        assert_eq!(body.to_bytes(), GOOD);
    }
    rondo.assert_quiet().await;
    assert_succeeded(&rondo, 2);
    assert_eq!(upstream.connections(), 1);
}

// R-X4: an HTTP/1.1 upstream that says `close` and does so late: its answer is whole by its length.
#[tokio::test]
async fn a_connection_that_closes_late_delays_nothing() {
    let (second, told) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (come, wait) = (Arc::clone(&second), Arc::clone(&told));
    let upstream = Upstream::start(move |mut link| {
        let (come, wait) = (Arc::clone(&come), Arc::clone(&wait));
        async move {
            if link.request().await.is_none() {
                return;
            }
            if link.number == 2 {
                come.notify_one();
            }
            let closing = json(200, GOOD).replacen("\r\n", "\r\nconnection: close\r\n", 1);
            link.write(&closing).await;
            wait.notified().await;
        }
    })
    .await;
    let rondo = Rondo::start(&one(&upstream.provider(""))).await;
    let mut client = Connection::h1(rondo.addr).await;
    for _ in 0..2 {
        let answer = client.call(chat("m")).await;
        assert_eq!((answer.status.as_u16(), answer.text()), (200, GOOD));
    }
    soon(second.notified()).await;
    rondo.assert_quiet().await;
    assert_succeeded(&rondo, 2);
    told.notify_waiters();
}

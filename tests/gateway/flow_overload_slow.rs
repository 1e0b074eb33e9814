//! Clients that are slow on purpose: with their head, with their body, with reading.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use pingora_core::ErrorType;
use pingora_http::ResponseHeader;
use rondo::proxy::downstream::Piece;
use rondo::proxy::downstream::http1::{Finished, Http1};
use rondo::proxy::line::Line;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;

use crate::support::caller::{Caller, Way};
use crate::support::client::{Connection, chat, chat_body};
use crate::support::raw::{RawClient, pause, post_text};
use crate::support::tls::Identity;
use crate::support::{Rondo, soon};

const CHAT: &str = "/v1/chat/completions";

fn config(server: &str, provider: &str) -> String {
    format!(
        "server: {{ {server} }}\nproviders:\n  one: {provider}\nroutes:\n  - {{ name: chat, models: [m], targets: [{{ name: first, provider: one }}] }}\n"
    )
}

const MOCK: &str = "{ adapter: openai, mock: { answers: [ok] } }";

fn slow(rondo: &Rondo, phase: &str) -> f64 {
    let label = format!("phase=\"{phase}\"");
    rondo.metric("rondo_slow_clients_total", &[&label])
}

/// Writes these bytes one after the other until the other side closes.
async fn drip(mut stream: impl AsyncReadExt + AsyncWriteExt + Unpin, text: &str) {
    for byte in text.bytes().cycle() {
        if stream.write_all(&[byte]).await.is_err() {
            return;
        }
        let mut answer = [0; 1];
        match tokio::time::timeout(Duration::from_millis(5), stream.read(&mut answer)).await {
            Ok(Ok(0) | Err(_)) => return,
            Ok(Ok(_)) => panic!("an answer to half a head"),
            Err(_) => {}
        }
    }
}

/// The head of a request has a time, however its bytes come, on a new connection and on one that was used.
#[tokio::test]
async fn a_head_that_does_not_come_closes_its_connection() {
    // R-B7
    let server = "client_header_timeout_ms: 200, keepalive_timeout_ms: 1000";
    let rondo = Rondo::start(&config(server, MOCK)).await;
    // Nothing; half a head; a head that never ends.
    let mut nothing = TcpStream::connect(rondo.addr).await.unwrap();
    assert_eq!(soon(nothing.read(&mut [0; 1])).await.unwrap_or(0), 0);
    let mut half = RawClient::connect(rondo.addr).await;
    half.write("POST /v1/chat/completions HTTP/1.1\r\nhost: g\r\n")
        .await;
    assert_eq!(half.rest().await.0, "");
    let mut dripping = RawClient::connect(rondo.addr).await;
    dripping.write("GET /v1/models HTTP/1.1\r\na: ").await;
    soon(drip(dripping.stream, "b")).await;
    assert_eq!(slow(&rondo, "head"), 3.0);
    // On a kept connection the time begins with the first byte, and idle alone is no offence.
    let mut kept = RawClient::connect(rondo.addr).await;
    kept.write(&post_text(CHAT, "", &chat_body("m", false)))
        .await;
    assert!(kept.answer().await.0.starts_with("http/1.1 200"));
    let began = Instant::now();
    soon(drip(kept.stream, "x")).await;
    let took = began.elapsed();
    assert!(took >= Duration::from_millis(200), "{took:?}");
    assert_eq!(slow(&rondo, "head"), 4.0);
    let mut idle = RawClient::connect(rondo.addr).await;
    idle.write(&post_text(CHAT, "", &chat_body("m", false)))
        .await;
    assert!(idle.answer().await.0.starts_with("http/1.1 200"));
    assert_eq!(idle.rest().await.0, "");
    assert_eq!(slow(&rondo, "head"), 4.0);
    rondo
        .until(|rondo| rondo.app.gateway.occupancy.connections.taken() == 0)
        .await;
    rondo.assert_quiet().await;
}

/// The time of a head is none of its request's: an answer may take much longer.
#[tokio::test]
async fn the_time_of_a_head_is_over_when_it_has_come() {
    // R-B4
    let slow_answer = "{ adapter: openai, mock: { answers: [{ preset: ok, delay_ms: 600 }] } }";
    let server = "client_header_timeout_ms: 100, keepalive_timeout_ms: 1000";
    let identity = Identity::new();
    let rondo = Rondo::start(&config(server, slow_answer)).await;
    let yaml = config(server, slow_answer);
    let tls = Rondo::start_listening(&yaml, Some(identity.files.clone())).await;
    let mut client = Connection::h1(rondo.addr).await;
    assert_eq!(client.call(chat("m")).await.status, 200);
    let mut client = Connection::h2(rondo.addr).await;
    assert_eq!(client.call(chat("m")).await.status, 200);
    let mut client = Connection::h1_tls(tls.addr, &identity).await;
    assert_eq!(client.call(chat("m")).await.status, 200);
    let mut client = Connection::h2_tls(tls.addr, &identity).await;
    assert_eq!(client.call(chat("m")).await.status, 200);
    assert_eq!(slow(&rondo, "head") + slow(&tls, "head"), 0.0);
    // Over TLS the head of HTTP/1.1 has the same time.
    let half = identity.connect(tls.addr, "http/1.1").await;
    soon(drip(half, "y")).await;
    assert_eq!(slow(&tls, "head"), 1.0);
}

/// A connection of HTTP/2 on which nothing is under way is closed when it was idle as long as it may.
#[tokio::test]
async fn an_idle_connection_of_http2_is_closed() {
    // R-B7
    let identity = Identity::new();
    let yaml = config("keepalive_timeout_ms: 200", MOCK);
    let plain = Rondo::start(&yaml).await;
    let tls = Rondo::start_listening(&yaml, Some(identity.files.clone())).await;
    let mut client = Connection::h2(plain.addr).await;
    assert_eq!(client.call(chat("m")).await.status, 200);
    let none = |rondo: &Rondo| rondo.app.gateway.occupancy.connections.taken() == 0;
    plain.until(none).await;
    let mut client = Connection::h2_tls(tls.addr, &identity).await;
    assert_eq!(client.call(chat("m")).await.status, 200);
    tls.until(none).await;
}

/// C129: an upload below the least rate is refused long before the time of the whole is over.
#[tokio::test]
async fn an_upload_below_the_rate_is_408() {
    // R-B7 R-D3
    // The whole may take ten such pauses, which is longer than a test waits.
    let server = "client_read_timeout_ms: 4000, min_upload_bytes_per_second: 1000";
    let rondo = Rondo::start(&config(server, MOCK)).await;
    let body = chat_body("m", false);
    let clients = [Way::H1Close, Way::H2Close].map(|way| {
        let (addr, body) = (rondo.addr, body.clone());
        tokio::spawn(async move {
            let began = Instant::now();
            let status = dripped(way, addr, &body).await;
            (status, began.elapsed())
        })
    });
    for client in clients {
        let (status, took) = soon(client).await.unwrap();
        assert_eq!(status, 408);
        assert!(took >= Duration::from_secs(4), "{took:?}");
        assert!(took < Duration::from_secs(20), "{took:?}");
    }
    assert_eq!(slow(&rondo, "upload"), 2.0);
    assert_eq!(rondo.mock("one").sends(), 0);
    rondo.assert_quiet().await;
}

/// Sends the head of a body that never ends, drips it, and gives the status of the answer.
async fn dripped(way: Way, addr: SocketAddr, body: &str) -> u16 {
    let (sender, receiver) = futures::channel::mpsc::unbounded::<Bytes>();
    sender
        .unbounded_send(Bytes::copy_from_slice(body.as_bytes()))
        .unwrap();
    let frames = futures::StreamExt::map(receiver, |part| Ok(hyper::body::Frame::data(part)));
    let body = http_body_util::BodyExt::boxed(http_body_util::StreamBody::new(frames));
    let dripping = tokio::spawn(async move {
        while sender.unbounded_send(Bytes::from_static(b" ")).is_ok() {
            pause(Duration::from_millis(20)).await;
        }
    });
    let mut client = match way {
        Way::H1Close | Way::H1Reset => Connection::h1(addr).await,
        Way::H2Reset | Way::H2Close => Connection::h2(addr).await,
    };
    let request = crate::support::client::request(CHAT, &[], body);
    let answer = client.call(request).await;
    dripping.abort();
    answer.status.as_u16()
}

/// An upstream that streams small events for ever, as fast as they are taken. It tells when its connection has ended.
async fn endless() -> (String, Arc<Notify>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    let ended = Arc::new(Notify::new());
    let tell = Arc::clone(&ended);
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let tell = Arc::clone(&tell);
            tokio::spawn(async move {
                let _ = stream.read(&mut [0; 4096]).await.unwrap();
                let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n";
                stream.write_all(head.as_bytes()).await.unwrap();
                let text = "x".repeat(400);
                let event =
                    format!("data: {{\"choices\":[{{\"delta\":{{\"content\":\"{text}\"}}}}]}}\n\n");
                while stream.write_all(event.as_bytes()).await.is_ok() {}
                tell.notify_one();
            });
        }
    });
    let provider = format!("{{ adapter: openai, base_url: \"http://{addr}\" }}");
    (provider, ended)
}

/// A client that reads some megabytes a second, never pausing for long, as long as there is something to read.
async fn read_slowly(way: Way, addr: SocketAddr) {
    let body = chat_body("m", true);
    if matches!(way, Way::H2Close | Way::H2Reset) {
        let mut client = Caller::ask(way, addr, CHAT, &body).await;
        while client.read().await.is_some() {
            pause(Duration::from_millis(5)).await;
        }
        return;
    }
    let mut stream = TcpStream::connect(addr).await.unwrap();
    let request = post_text(CHAT, "", &body);
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut buffer = vec![0; 64 << 10];
    while matches!(stream.read(&mut buffer).await, Ok(1..)) {
        pause(Duration::from_millis(5)).await;
    }
}

/// C126: a client that reads, but less than the least rate, is ended as one that left: its own fault, not its target's.
#[tokio::test]
async fn a_reader_below_the_rate_has_left() {
    // R-D4 R-L5
    for way in [Way::H1Close, Way::H2Close] {
        let (provider, ended) = endless().await;
        let server = "client_write_timeout_ms: 1000, min_download_bytes_per_second: 100000000";
        let rondo = Rondo::start(&config(server, &provider)).await;
        let began = Instant::now();
        // What the system holds for the client is read long after the upstream was closed.
        let reading = tokio::spawn(read_slowly(way, rondo.addr));
        soon(ended.notified()).await;
        let served = began.elapsed();
        assert!(served >= Duration::from_millis(900), "{way:?} {served:?}");
        rondo.assert_quiet().await;
        reading.abort();
        assert_eq!(slow(&rondo, "download"), 1.0, "{way:?}");
        let labels = ["outcome=\"cancelled\"", "status=\"499\""];
        assert_eq!(rondo.metric("rondo_requests_total", &labels), 1.0);
        let records = rondo.records();
        assert_eq!(records[0].operation.reason, "slow_reader");
        let target = &rondo.app.snapshot().routes[0].targets[0];
        let now = rondo.app.gateway.around.clock.mono();
        assert_eq!(target.keys[0].cooldown.remaining_after(now), None);
    }
}

/// The same client is served on where no rate is asked for: it never pauses for as long as it may.
#[tokio::test]
async fn a_slow_reader_is_served_where_no_rate_is_asked_for() {
    // R-X4
    for way in [Way::H1Close, Way::H2Close] {
        let (provider, ended) = endless().await;
        let server = "client_write_timeout_ms: 1000, min_download_bytes_per_second: 0";
        let rondo = Rondo::start(&config(server, &provider)).await;
        let reading = tokio::spawn(read_slowly(way, rondo.addr));
        let three_times = Duration::from_secs(3);
        let cut = tokio::time::timeout(three_times, ended.notified()).await;
        assert!(cut.is_err(), "{way:?}");
        reading.abort();
        soon(ended.notified()).await;
        rondo.assert_quiet().await;
        assert_eq!(slow(&rondo, "download"), 0.0);
    }
}

/// What comes slowly is read slowly by nobody: a stream with long pauses and a client that reads all at once.
#[tokio::test]
async fn a_slow_stream_makes_no_slow_reader() {
    // R-X4 R-L5
    let paused = "{ adapter: openai, mock: { answers: [{ text: 'one two three four', chunks: 4, gap_ms: 300 }] } }";
    let server = "client_write_timeout_ms: 200, min_download_bytes_per_second: 100000000";
    let rondo = Rondo::start(&config(server, paused)).await;
    for way in [Way::H1Close, Way::H2Close] {
        let mut client = Caller::ask(way, rondo.addr, CHAT, &chat_body("m", true)).await;
        client.read_to("[DONE]").await;
        client.leave();
    }
    rondo.assert_quiet().await;
    assert_eq!(slow(&rondo, "download"), 0.0);
    let succeeded = rondo.metric("rondo_requests_total", &["outcome=\"succeeded\""]);
    assert_eq!(succeeded, 2.0);
}

/// A connection whose client has asked and reads nothing, with room for so many bytes of an answer.
async fn asked() -> (Http1, DuplexStream) {
    let (mut client, server) = tokio::io::duplex(64);
    let mut connection = Http1::new(Box::new(server));
    let head = b"GET / HTTP/1.1\r\nhost: g\r\n\r\n";
    let time = Duration::from_secs(60);
    let (wrote, read) = tokio::join!(client.write_all(head), connection.next_request(time));
    wrote.unwrap();
    read.unwrap();
    (connection, client)
}

/// The head of an answer that its client has no room for, having not read the answers before, ends its connection, and so its operation.
#[tokio::test]
async fn a_head_that_cannot_be_written_ends_its_connection() {
    // R-D4
    let pause_max = Duration::from_millis(200);
    let (mut connection, _client) = asked().await;
    let piece = Piece {
        header: Some(Box::new(ResponseHeader::build(200, None).unwrap())),
        ..Piece::default()
    };
    let wrote = soon(connection.write(piece, pause_max)).await;
    assert_eq!(wrote.unwrap_err().etype(), &ErrorType::WriteTimedout);
}

/// A whole answer of which a part could not be written is the last of its connection: the next would be taken for the rest of it.
#[tokio::test]
async fn nothing_follows_half_an_answer() {
    // R-D4 R-X3
    let (mut connection, _client) = asked().await;
    let piece = Piece {
        header: Some(Box::new(ResponseHeader::build(200, None).unwrap())),
        parts: vec![Bytes::from_static(b"an answer of a few bytes")],
        ends: true,
        ..Piece::default()
    };
    let wrote = soon(connection.write(piece, Duration::from_millis(200))).await;
    assert_eq!(wrote.unwrap_err().etype(), &ErrorType::WriteTimedout);
    assert_eq!(connection.finish(), Finished::Closes);
}

/// The same on HTTP/2 in cleartext, whose frames leave for all streams of a connection at once.
#[tokio::test]
async fn a_frame_that_cannot_be_written_ends_its_connection() {
    // R-D4
    let (mut client, server) = tokio::io::duplex(64);
    let pause_max = Duration::from_millis(200);
    let mut line = Line::new(Box::new(server), Bytes::from_static(b"PRI"), pause_max);
    let wrote = soon(line.write_all(&[0; 65])).await;
    assert_eq!(wrote.unwrap_err().kind(), std::io::ErrorKind::TimedOut);
    // What was read before comes first.
    client.write_all(b" *").await.unwrap();
    let mut read = [0; 5];
    soon(line.read_exact(&mut read)).await.unwrap();
    assert_eq!(&read, b"PRI *");
}

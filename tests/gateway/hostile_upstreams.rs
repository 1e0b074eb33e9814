//! Providers whose answers two readers may see differently, or that never end. The client gets one well-formed answer, the next request
//! its own, nothing is sent twice, and every attempt ends. Bytes that come between two answers are in `pooling`.

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::support::auditor::asking;
use crate::support::frames::{
    CONTINUATION, DATA, END_HEADERS, END_STREAM, HEADERS, PING, PUSH_PROMISE, SETTINGS, bytes,
};
use crate::support::raw::{GOOD, Link, RawClient, Upstream, json, post_text};
use crate::support::wire::block;
use crate::support::{Rondo, soon};

const PATH: &str = "/v1/chat/completions";
/// What the next request gets.
const OWN: &str = r#"{"id":"x","object":"chat.completion","choices":[{"index":0,"message":{"role":"assistant","content":"own answer"},"finish_reason":"stop"}]}"#;

/// What the client must be told.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Told {
    /// The provider's good answer.
    Good,
    /// That it may have run.
    Broken,
    /// This status of the provider's.
    Status(u16),
}

/// A gateway before it that gives an answer no more than half a second.
async fn before(upstream: &Upstream, more: &str) -> Rondo {
    let timeouts = ", timeouts: { first_byte_ms: 500, idle_ms: 500, total_ms: 2000 }";
    let provider = upstream.provider(&format!("{timeouts}{more}"));
    Rondo::start(&format!(
        "server: {{ route_headers: false }}\nproviders:\n  one: {provider}\nroutes:\n  - {{ name: chat, models: [m], targets: [{{ name: first, provider: one }}], routing: {{ sticky_key_attempts: 1, cooldown: {{ max_ms: 0 }} }} }}\n"
    ))
    .await
}

/// Asks, and checks the one answer; the rest of the connection is read too.
async fn ask(rondo: &Rondo, case: &str, told: Told) -> Option<String> {
    let mut client = RawClient::connect(rondo.addr).await;
    let text = post_text(PATH, "connection: close\r\n", &asking("hostile"));
    client.bytes(text.as_bytes()).await;
    let (answer, _) = client.rest().await;
    let status = answer.split(' ').nth(1).unwrap_or("").to_owned();
    let head = answer.split("\r\n\r\n").next().unwrap_or("").to_lowercase();
    let is_told = match told {
        Told::Good => status == "200" && answer.contains("raw"),
        Told::Broken => status.starts_with("50") && answer.contains("upstream_"),
        Told::Status(wanted) => status == wanted.to_string(),
    };
    let is_one = answer.matches("HTTP/1.1 ").count() == 1 && !answer.contains("evil");
    let is_framed = head.matches("\ncontent-length:").count()
        + head.matches("\ntransfer-encoding:").count()
        <= 1
        && !head
            .lines()
            .any(|line| line.starts_with("content-length:") && line.contains(','));
    (!is_told || !is_one || !is_framed).then(|| format!("{case}: {told:?}, but {:.400}", answer))
}

/// One hostile answer of a provider over HTTP/1.1, then good ones, on whatever connection they are asked.
async fn check_h1(case: &str, answer: Vec<u8>, told: Told) -> Option<String> {
    let is_first = Arc::new(AtomicBool::new(true));
    let upstream = Upstream::start(move |mut link| {
        let (answer, is_first) = (answer.clone(), Arc::clone(&is_first));
        async move {
            while link.request().await.is_some() {
                if is_first.swap(false, Ordering::SeqCst) {
                    link.bytes(&answer).await;
                } else {
                    link.write(&json(200, OWN)).await;
                }
            }
        }
    })
    .await;
    let rondo = before(&upstream, "").await;
    let wrong = ask(&rondo, case, told).await;
    let wrong = wrong.or(own(&rondo, case).await);
    assert_eq!(upstream.requests(), 2, "{case}: sent twice or not at all");
    rondo.assert_quiet().await;
    wrong
}

/// The next request gets its own answer.
async fn own(rondo: &Rondo, case: &str) -> Option<String> {
    let mut client = RawClient::connect(rondo.addr).await;
    let text = post_text(PATH, "connection: close\r\n", &asking("next"));
    client.write(&text).await;
    let (answer, _) = client.rest().await;
    (!answer.contains("own answer")).then(|| format!("{case}: next is {answer}"))
}

fn none(wrong: Vec<Option<String>>) {
    let wrong: Vec<_> = wrong.into_iter().flatten().collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// A good answer with these header lines in place of its length.
fn with(headers: &str) -> Vec<u8> {
    format!("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n{headers}\r\n{GOOD}").into_bytes()
}

fn good() -> String {
    json(200, GOOD)
}

// R-D2 R-L1 R-X2: an answer ends where its framing says, and what follows it answers nobody.
#[tokio::test]
async fn answers_are_framed_in_one_way() {
    let n = GOOD.len();
    let chunks = format!("{n:x}\r\n{GOOD}\r\n0\r\n\r\n");
    let chunked = |size: &str| {
        format!("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n{size}\r\n{GOOD}\r\n0\r\n\r\n").into_bytes()
    };
    let encoded = |headers: &str| {
        format!("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n{headers}\r\n{chunks}")
            .into_bytes()
    };
    let evil = "HTTP/1.1 200 OK\r\nset-cookie: evil\r\ncontent-length: 4\r\n\r\nevil";
    none(vec![
        check_h1("a second answer", format!("{}{evil}", good()).into_bytes(), Told::Good).await,
        check_h1("bytes behind the answer", format!("{}evil", good()).into_bytes(), Told::Good).await,
        check_h1("a second answer behind chunks", [encoded("transfer-encoding: chunked\r\n"), evil.into()].concat(), Told::Good).await,
        check_h1("equal lengths", with(&format!("content-length: {n}\r\ncontent-length: {n}\r\n")), Told::Good).await,
        check_h1("a list of equal lengths", with(&format!("content-length: {n}, {n}\r\n")), Told::Broken).await,
        check_h1("two lengths", with(&format!("content-length: {n}\r\ncontent-length: 1\r\n")), Told::Broken).await,
        check_h1("a list of lengths", with(&format!("content-length: {n}, 1\r\n")), Told::Broken).await,
        check_h1("a length beside chunks", encoded("content-length: 3\r\ntransfer-encoding: chunked\r\n"), Told::Good).await,
        check_h1("a negative chunk", chunked(&format!("-{n:x}")), Told::Broken).await,
        check_h1("a signed chunk", chunked(&format!("+{n:x}")), Told::Broken).await,
        check_h1("0x", chunked(&format!("0x{n:x}")), Told::Broken).await,
        check_h1("an overflowing chunk", chunked(&format!("1{n:016x}")), Told::Broken).await,
        check_h1("an endless extension", chunked(&format!("{n:x};{}", "x".repeat(300_000))), Told::Broken).await,
        check_h1("no content", format!("HTTP/1.1 204 No Content\r\ncontent-length: 4\r\n\r\nevil{evil}").into_bytes(), Told::Status(204)).await,
        check_h1("not modified", format!("HTTP/1.1 304 Not Modified\r\ncontent-length: 4\r\n\r\nevil{evil}").into_bytes(), Told::Broken).await,
        check_h1("a switch that nobody asked for", format!("HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: upgrade\r\n\r\n{evil}").into_bytes(), Told::Broken).await,
    ]);
}

// R-D2 R-X2: a head is read in one way, and nothing in it becomes a line of the client's.
#[tokio::test]
async fn answers_do_not_split() {
    let n = GOOD.len();
    let line = |line: &str| with(&format!("{line}content-length: {n}\r\n"));
    let first = |line: &str| {
        format!("{line}\r\ncontent-type: application/json\r\ncontent-length: {n}\r\n\r\n{GOOD}")
            .into_bytes()
    };
    none(vec![
        check_h1(
            "a carriage return in a value",
            line("x-request-id: a\rset-cookie: evil\r\n"),
            Told::Broken,
        )
        .await,
        check_h1(
            "NUL in a value",
            line("x-request-id: a\0evil\r\n"),
            Told::Broken,
        )
        .await,
        check_h1("a space in a name", line("x evil: 1\r\n"), Told::Broken).await,
        check_h1("no colon", line("evil\r\n"), Told::Broken).await,
        check_h1(
            "a line end in the reason",
            first("HTTP/1.1 200 OK\rset-cookie: evil"),
            Told::Broken,
        )
        .await,
        check_h1("HTTP/2.0", first("HTTP/2.0 200 OK"), Told::Broken).await,
        check_h1("HTTP/0.9", GOOD.as_bytes().to_vec(), Told::Broken).await,
        check_h1(
            "a status below 100",
            first("HTTP/1.1 099 Odd"),
            Told::Broken,
        )
        .await,
        check_h1(
            "a status of four digits",
            first("HTTP/1.1 2000 Odd"),
            Told::Broken,
        )
        .await,
        check_h1(
            "a status that is no number",
            first("HTTP/1.1 2x0 Odd"),
            Told::Broken,
        )
        .await,
        check_h1(
            "a status above 599",
            first("HTTP/1.1 999 Odd"),
            Told::Status(999),
        )
        .await,
        check_h1("a word", b"evil\r\n\r\n".to_vec(), Told::Broken).await,
    ]);
}

// R-B4 R-L1: what never ends is ended.
#[tokio::test]
async fn heads_without_end_are_ended() {
    let interim = "HTTP/1.1 103 Early Hints\r\nlink: evil\r\n\r\n";
    let start = "HTTP/1.1 200 OK\r\n";
    none(vec![
        check_h1(
            "some interim answers",
            format!("{}{}", interim.repeat(10), good()).into_bytes(),
            Told::Good,
        )
        .await,
        check_h1(
            "interim answers without end",
            interim.repeat(50_000).into_bytes(),
            Told::Broken,
        )
        .await,
        check_h1(
            "header lines without end",
            format!("{start}{}", "x: evil\r\n".repeat(200_000)).into_bytes(),
            Told::Broken,
        )
        .await,
        check_h1(
            "a header without end",
            format!("{start}x: {}", "y".repeat(2 << 20)).into_bytes(),
            Told::Broken,
        )
        .await,
        check_h1(
            "many headers",
            format!("{start}{}content-length: 0\r\n\r\n", "x: y\r\n".repeat(300)).into_bytes(),
            Told::Broken,
        )
        .await,
        check_h1("silence in a head", start.into(), Told::Broken).await,
    ]);
}

fn zipped(length: usize) -> Vec<u8> {
    let mut zip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    zip.write_all(&vec![b' '; length]).unwrap();
    zip.finish().unwrap()
}

// R-A2: a body that unpacks to far more than is read is no proof of anything.
#[tokio::test]
async fn an_error_that_unpacks_is_bounded() {
    let bomb = zipped(32 << 20);
    let mut answer = format!(
        "HTTP/1.1 429 Slow\r\ncontent-type: application/json\r\ncontent-encoding: gzip\r\ncontent-length: {}\r\n\r\n",
        bomb.len()
    )
    .into_bytes();
    answer.extend(bomb);
    none(vec![check_h1("a bomb", answer, Told::Status(429)).await]);
}

/// One hostile connection of a provider over HTTP/2, then good ones. `hostile` has the stream of the request.
async fn check_h2(
    case: &str,
    frames: impl Fn(u32) -> Vec<u8> + Send + Sync + 'static,
    told: Told,
) -> Option<String> {
    let is_first = Arc::new(AtomicBool::new(true));
    let frames = Arc::new(frames);
    let upstream = Upstream::start(move |mut link: Link| {
        let (frames, is_first) = (Arc::clone(&frames), Arc::clone(&is_first));
        async move {
            if link.greet(&[]).await.is_none() {
                return;
            }
            while let Some(stream) = link.stream().await {
                if is_first.swap(false, Ordering::SeqCst) {
                    link.bytes(&frames(stream)).await;
                } else {
                    link.answer_h2(stream, "200", OWN).await;
                }
            }
        }
    })
    .await;
    let rondo = before(&upstream, ", http2: true").await;
    let wrong = ask(&rondo, case, told).await;
    let wrong = wrong.or(own(&rondo, case).await);
    assert_eq!(upstream.requests(), 2, "{case}: sent twice or not at all");
    rondo.assert_quiet().await;
    wrong
}

/// A good answer on this stream, with these fields besides.
fn answer(stream: u32, fields: &[(&str, &str)]) -> Vec<u8> {
    let fields = [
        &[(":status", "200"), ("content-type", "application/json")],
        fields,
    ]
    .concat();
    let mut frames = bytes(HEADERS, END_HEADERS, stream, &block(&fields));
    frames.extend(bytes(DATA, END_STREAM, stream, GOOD.as_bytes()));
    frames
}

fn goaway(last: u32) -> Vec<u8> {
    bytes(7, 0, 0, &[&last.to_be_bytes()[..], &[0; 4]].concat())
}

// R-D2 R-L1 R-X2
#[tokio::test]
async fn answers_over_http2_are_read_in_one_way() {
    none(vec![
        check_h2("nothing", |s| answer(s, &[]), Told::Good).await,
        check_h2(
            "a promise",
            |s| {
                [
                    bytes(
                        PUSH_PROMISE,
                        END_HEADERS,
                        s,
                        &[&[0, 0, 0, 2], &block(&[(":method", "GET")])[..]].concat(),
                    ),
                    answer(s, &[]),
                ]
                .concat()
            },
            Told::Broken,
        )
        .await,
        check_h2(
            "a shorter length",
            |s| answer(s, &[("content-length", "3")]),
            Told::Broken,
        )
        .await,
        check_h2(
            "a longer length",
            |s| answer(s, &[("content-length", "9999")]),
            Told::Broken,
        )
        .await,
        check_h2(
            "two lengths",
            |s| answer(s, &[("content-length", "3"), ("content-length", "4")]),
            Told::Broken,
        )
        .await,
        check_h2(
            "a line end in a value",
            |s| answer(s, &[("x-request-id", "a\r\nset-cookie: evil")]),
            Told::Broken,
        )
        .await,
        check_h2(
            "an upper case name",
            |s| answer(s, &[("X-Evil", "1")]),
            Told::Broken,
        )
        .await,
        check_h2(
            "a transfer encoding",
            |s| answer(s, &[("transfer-encoding", "chunked")]),
            Told::Broken,
        )
        .await,
        check_h2(
            "two statuses",
            |s| answer(s, &[(":status", "500")]),
            Told::Broken,
        )
        .await,
        check_h2(
            "no status",
            |s| bytes(HEADERS, END_HEADERS | END_STREAM, s, &block(&[("x", "y")])),
            Told::Broken,
        )
        .await,
        check_h2(
            "an odd status",
            |s| {
                bytes(
                    HEADERS,
                    END_HEADERS | END_STREAM,
                    s,
                    &block(&[(":status", "2x0")]),
                )
            },
            Told::Broken,
        )
        .await,
        check_h2(
            "a large head",
            |s| {
                let large = "y".repeat(16_000);
                let mut frames = bytes(HEADERS, 0, s, &block(&[(":status", "200")]));
                (0..2_000).for_each(|_| {
                    frames.extend(bytes(CONTINUATION, 0, s, &block(&[("x", &*large)])))
                });
                frames
            },
            Told::Broken,
        )
        .await,
    ]);
}

// R-B4 R-L1: floods end with the connection, with the answer or with the time for its first byte.
#[tokio::test]
async fn floods_over_http2_are_ended() {
    let interim = |s| {
        bytes(
            HEADERS,
            END_HEADERS,
            s,
            &block(&[(":status", "103"), ("link", "evil")]),
        )
    };
    none(vec![
        check_h2(
            "goodbyes",
            |s| [goaway(s).repeat(5_000), answer(s, &[])].concat(),
            Told::Good,
        )
        .await,
        check_h2(
            "settings",
            |s| [bytes(SETTINGS, 0, 0, &[]).repeat(5_000), answer(s, &[])].concat(),
            Told::Good,
        )
        .await,
        check_h2(
            "settings alone",
            |_| bytes(SETTINGS, 0, 0, &[]).repeat(5_000),
            Told::Status(504),
        )
        .await,
        check_h2(
            "pings",
            |s| [bytes(PING, 0, 0, b"pingpong").repeat(5_000), answer(s, &[])].concat(),
            Told::Good,
        )
        .await,
        check_h2(
            "some interim answers",
            move |s| [interim(s).repeat(10), answer(s, &[])].concat(),
            Told::Good,
        )
        .await,
        check_h2(
            "interim answers",
            move |s| interim(s).repeat(50_000),
            Told::Broken,
        )
        .await,
        check_h2(
            "a head without an end",
            |s| {
                [
                    bytes(HEADERS, 0, s, &block(&[(":status", "200")])),
                    bytes(CONTINUATION, 0, s, &[]).repeat(5_000),
                ]
                .concat()
            },
            Told::Broken,
        )
        .await,
        check_h2(
            "empty frames",
            |s| {
                let head = bytes(
                    HEADERS,
                    END_HEADERS,
                    s,
                    &block(&[(":status", "200"), ("content-type", "application/json")]),
                );
                [head, bytes(DATA, 0, s, &[]).repeat(5_000)].concat()
            },
            Told::Broken,
        )
        .await,
    ]);
}

// R-B4: a provider that lets nothing in is given up.
#[tokio::test]
async fn a_provider_without_a_window_is_given_up() {
    for settings in [&[(4, 0)][..], &[(3, 0)]] {
        let upstream = Upstream::start(move |mut link: Link| async move {
            link.greet(settings).await;
            link.closed().await;
        })
        .await;
        let rondo = before(&upstream, ", http2: true").await;
        let mut client = RawClient::connect(rondo.addr).await;
        client.write(&post_text(PATH, "", &asking("stalled"))).await;
        let (head, body) = soon(client.answer()).await;
        assert!(
            head.starts_with("http/1.1 50"),
            "{settings:?}: {head}{body}"
        );
        rondo.assert_quiet().await;
    }
}

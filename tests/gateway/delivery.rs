//! What a broken exchange proves: whether the request may be sent to another target, and how it is booked.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::io::AsyncReadExt;
use tokio::net::{TcpSocket, TcpStream};

use crate::support::client::{Connection, call, chat, chat_body, post, request, whole};
use crate::support::frames::{
    CANCEL, DATA, END_STREAM, ENHANCE_YOUR_CALM, HEADERS, NO_ERROR, REFUSED_STREAM,
};
use crate::support::raw::{GOOD, Link, Upstream, pause, two, two_with};
use crate::support::tls::Identity;
use crate::support::{Rondo, soon};

const MOCK_OK: &str = "{ adapter: openai, mock: { answers: [ok] } }";
const NOT_DELIVERED: &str = "not_delivered";
const AMBIGUOUS: &str = "ambiguous";

/// One request to two targets, of which the first breaks so. What was not delivered moves on; what is ambiguous ends in 502.
async fn check(first: &str, delivery: &str, case: &str) {
    let rondo = Rondo::start(&two(first, MOCK_OK)).await;
    let mut client = Connection::h1(rondo.addr).await;
    let answer = client.call(chat("m")).await;
    let label = format!("outcome=\"{delivery}\"");
    let booked = rondo.metric("rondo_attempts_total", &["target=\"first\"", &label]);
    assert_eq!(
        booked,
        1.0,
        "{case}: {answer:?}\n{}",
        rondo.app.telemetry.render()
    );
    if delivery == NOT_DELIVERED {
        assert_eq!(answer.status, 200, "{case}: {answer:?}");
        assert_eq!(answer.header("x-rondo-target"), Some("second"), "{case}");
        assert_eq!(rondo.mock("two").sends(), 1, "{case}");
    } else {
        assert_eq!(answer.status, 502, "{case}: {answer:?}");
        assert_eq!(
            answer.json()["error"]["code"],
            "upstream_ambiguous",
            "{case}"
        );
        assert_eq!(rondo.mock("two").sends(), 0, "{case}");
        assert_eq!(answer.header("x-rondo-attempts"), Some("1"), "{case}");
        // The client's connection is as good as before.
        assert_eq!(
            client
                .call(request("/v1/nowhere", &[], whole("")))
                .await
                .status,
            404,
            "{case}"
        );
    }
    rondo.assert_quiet().await;
}

/// A provider over HTTP/1.1 that does this with each connection.
async fn check_h1<F, Served>(delivery: &str, case: &str, serve: F)
where
    F: Fn(Link) -> Served + Send + Sync + 'static,
    Served: Future<Output = ()> + Send + 'static,
{
    let one = Upstream::start(serve).await;
    check(&one.provider(""), delivery, case).await;
    assert!(one.requests() <= 1, "{case}: sent twice");
}

// R-D1 R-F1 R-F2, C05 C96 C97 C104 C38
#[tokio::test]
async fn what_breaks_after_the_first_byte_is_ambiguous() {
    check_h1(AMBIGUOUS, "closed after the head", |mut link| async move {
        link.head().await;
    })
    .await;
    check_h1(AMBIGUOUS, "reset after the head", |mut link| async move {
        link.head().await;
        link.reset();
    })
    .await;
    check_h1(
        AMBIGUOUS,
        "closed after the request",
        |mut link| async move {
            link.request().await;
        },
    )
    .await;
    check_h1(
        AMBIGUOUS,
        "reset after the request",
        |mut link| async move {
            link.request().await;
            link.reset();
        },
    )
    .await;
    for text in [
        "HTTP/1.1 abc\r\n\r\n",
        "HTTP/1.1 200 OK\r\ncontent-le",
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n",
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n",
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\nxyz\r\n",
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n8\r\n: ping\n\n\r\n",
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n: ping\n\n",
        "HTTP/1.1 429 Slow\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n{\"error\":{\"code\":\"rate_limit",
        "HTTP/1.1 429 Slow\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n5\r\n{\"err",
        "HTTP/1.1 429 Slow\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n",
        "HTTP/1.1 500 Broken\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n{",
        "HTTP/1.1 100 Continue\r\n\r\n",
    ] {
        check_h1(AMBIGUOUS, text, move |mut link| async move {
            link.request().await;
            link.write(text).await;
        })
        .await;
    }
}

// R-F1
#[tokio::test]
async fn what_cannot_connect_is_not_delivered() {
    let refused = {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.local_addr().unwrap()
    };
    let provider = |scheme: &str, addr, more: &str| {
        format!("{{ adapter: openai, base_url: \"{scheme}://{addr}\"{more} }}")
    };
    check(&provider("http", refused, ""), NOT_DELIVERED, "refused").await;
    check(
        &provider("https", refused, ""),
        NOT_DELIVERED,
        "refused with TLS",
    )
    .await;

    let (identity, other) = (Identity::new(), Identity::new());
    let behind =
        Upstream::start(|mut link| async move { drop(link.answer(200, GOOD).await) }).await;
    let front = identity.front(behind.addr, &["h2", "http/1.1"]).await;
    check(
        &provider("https", front, ""),
        NOT_DELIVERED,
        "unknown authority",
    )
    .await;
    let ca = format!(", ca: \"{}\"", other.files.cert);
    check(
        &provider("https", front, &ca),
        NOT_DELIVERED,
        "another authority",
    )
    .await;
    assert_eq!(behind.requests(), 0);

    let plain = Upstream::start(|mut link| async move {
        let _ = link.stream.read_u8().await;
        link.write("HTTP/1.1 400 Bad Request\r\n\r\n").await;
    })
    .await;
    check(&provider("https", plain.addr, ""), NOT_DELIVERED, "no TLS").await;
    let closing = Upstream::start(|_| async {}).await;
    check(
        &provider("https", closing.addr, ""),
        NOT_DELIVERED,
        "closes before TLS",
    )
    .await;
}

// R-B4: a connection that nobody accepts is given up, and the next target asked.
#[tokio::test]
async fn a_connect_timeout_moves_on() {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let addr = socket.local_addr().unwrap();
    let _listener = socket.listen(1).unwrap();
    // The backlog is full: further handshakes get no answer.
    let mut waiting = Vec::new();
    for _ in 0..8 {
        let connect = TcpStream::connect(addr);
        match tokio::time::timeout(Duration::from_millis(50), connect).await {
            Ok(stream) => waiting.push(stream.unwrap()),
            Err(_) => break,
        }
    }
    let first = format!(
        "{{ adapter: openai, base_url: \"http://{addr}\", timeouts: {{ connect_ms: 100 }} }}"
    );
    check(&first, NOT_DELIVERED, "connect timeout").await;
}

/// A provider over HTTP/2 with prior knowledge that does this with each connection.
async fn check_h2<F, Served>(delivery: &str, case: &str, serve: F)
where
    F: Fn(Link) -> Served + Send + Sync + 'static,
    Served: Future<Output = ()> + Send + 'static,
{
    let one = Upstream::start(serve).await;
    check(&one.provider(", http2: true"), delivery, case).await;
    assert_eq!(one.requests(), 1, "{case}");
}

// R-F1, C16 C147 C148: RFC 9113 section 8.7.
#[tokio::test]
async fn a_stream_that_http2_proves_unprocessed_moves_on() {
    check_h2(NOT_DELIVERED, "refused stream", |mut link| async move {
        link.greet(&[]).await;
        let Some(stream) = link.stream().await else {
            return;
        };
        link.rst(stream, REFUSED_STREAM).await;
        link.closed().await;
    })
    .await;
    for (case, code) in [("goaway", NO_ERROR), ("goaway, calm", ENHANCE_YOUR_CALM)] {
        check_h2(NOT_DELIVERED, case, move |mut link| async move {
            link.greet(&[]).await;
            link.stream().await;
            link.goaway(0, code).await;
            link.closed().await;
        })
        .await;
    }
}

// C16: every connection begins with a goodbye. One try, then the next target; no loop of connections.
#[tokio::test]
async fn a_goaway_before_the_request_moves_on_without_a_loop() {
    let one = Upstream::start(|mut link| async move {
        link.greet(&[]).await;
        link.goaway(0, ENHANCE_YOUR_CALM).await;
        link.closed().await;
    })
    .await;
    check(
        &one.provider(", http2: true"),
        NOT_DELIVERED,
        "calm at once",
    )
    .await;
    assert!(one.connections() <= 2, "{} connections", one.connections());
}

// C95 C99: the request was read whole before anything broke.
#[tokio::test]
async fn an_illegal_frame_is_ambiguous() {
    check_h2(AMBIGUOUS, "data on stream 0", |mut link| async move {
        link.greet(&[]).await;
        link.stream().await;
        link.frame(DATA, 0, 0, b"x").await;
        link.closed().await;
    })
    .await;
    check_h2(AMBIGUOUS, "broken header block", |mut link| async move {
        link.greet(&[]).await;
        let Some(stream) = link.stream().await else {
            return;
        };
        link.frame(HEADERS, 4, stream, &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff])
            .await;
        link.closed().await;
    })
    .await;
    check_h2(AMBIGUOUS, "data before the head", |mut link| async move {
        link.greet(&[]).await;
        let Some(stream) = link.stream().await else {
            return;
        };
        link.frame(DATA, END_STREAM, stream, b"{}").await;
        link.closed().await;
    })
    .await;
}

// C99 C148
#[tokio::test]
async fn a_stream_that_may_have_run_is_ambiguous() {
    for code in [CANCEL, 2, 1, NO_ERROR, ENHANCE_YOUR_CALM] {
        check_h2(
            AMBIGUOUS,
            &format!("reset {code}"),
            move |mut link| async move {
                link.greet(&[]).await;
                let Some(stream) = link.stream().await else {
                    return;
                };
                link.rst(stream, code).await;
                link.closed().await;
            },
        )
        .await;
    }
    check_h2(AMBIGUOUS, "closed", |mut link| async move {
        link.greet(&[]).await;
        link.stream().await;
    })
    .await;
    check_h2(
        AMBIGUOUS,
        "goaway that takes it, then closed",
        |mut link| async move {
            link.greet(&[]).await;
            let Some(stream) = link.stream().await else {
                return;
            };
            link.goaway(stream, NO_ERROR).await;
        },
    )
    .await;
    check_h2(
        AMBIGUOUS,
        "head of a 200, then refused",
        |mut link| async move {
            link.greet(&[]).await;
            let Some(stream) = link.stream().await else {
                return;
            };
            link.head_h2(stream, "200", "application/json").await;
            link.rst(stream, CANCEL).await;
            link.closed().await;
        },
    )
    .await;
}

// C148: the streams above the last id go elsewhere, the one below is waited for.
#[tokio::test]
async fn a_goaway_divides_the_streams() {
    let one = Upstream::start(|mut link| async move {
        link.greet(&[]).await;
        let mut streams = Vec::new();
        while streams.len() < 3 {
            let Some(stream) = link.stream().await else {
                return;
            };
            streams.push(stream);
        }
        streams.sort_unstable();
        link.goaway(streams[0], NO_ERROR).await;
        link.answer_h2(streams[0], "200", GOOD).await;
        link.closed().await;
    })
    .await;
    let rondo = Rondo::start(&two(&one.provider(", http2: true"), MOCK_OK)).await;
    // One connection first, so that three streams meet on it.
    let mut calls = Vec::new();
    for number in 1..=3 {
        let addr = rondo.addr;
        calls.push(tokio::spawn(async move { call(addr, chat("m")).await }));
        soon(async {
            while one.requests() < number {
                tokio::task::yield_now().await;
            }
        })
        .await;
    }
    let mut targets = Vec::new();
    for call in calls {
        let answer = soon(call).await.unwrap();
        assert_eq!(answer.status, 200, "{answer:?}");
        targets.push(answer.header("x-rondo-target").unwrap().to_owned());
    }
    assert_eq!(targets, ["first", "second", "second"]);
    assert_eq!((one.connections(), one.requests()), (1, 3));
    rondo.assert_quiet().await;
}

// C156: more requests at once than the peer allows streams. None fails.
#[tokio::test]
async fn a_stream_limit_of_one_fails_nobody() {
    let refused = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&refused);
    let one = Upstream::start(move |mut link| {
        let refused = Arc::clone(&counted);
        async move {
            link.greet(&[(3, 1)]).await;
            let mut open = None;
            while let Some(frame) = link.next_frame().await {
                if frame.kind == HEADERS {
                    if open.is_some() {
                        refused.fetch_add(1, Ordering::SeqCst);
                        link.rst(frame.stream, REFUSED_STREAM).await;
                        continue;
                    }
                    open = Some(frame.stream);
                }
                let ends = frame.flags & END_STREAM != 0 && open == Some(frame.stream);
                if ends && matches!(frame.kind, HEADERS | DATA) {
                    link.count();
                    pause(Duration::from_millis(5)).await;
                    link.answer_h2(frame.stream, "200", GOOD).await;
                    open = None;
                }
            }
        }
    })
    .await;
    let rondo = Rondo::start(&two(&one.provider(", http2: true"), MOCK_OK)).await;
    let calls = (0..10).map(|_| {
        let addr = rondo.addr;
        tokio::spawn(async move { call(addr, chat("m")).await })
    });
    for call in calls.collect::<Vec<_>>() {
        let answer = soon(call).await.unwrap();
        assert_eq!(answer.status, 200, "{answer:?}");
    }
    let elsewhere = usize::try_from(rondo.mock("two").sends()).unwrap();
    assert_eq!(
        one.requests() + elsewhere,
        10,
        "{} refused",
        refused.load(Ordering::SeqCst)
    );
    rondo.assert_quiet().await;
}

// R-D4, C08 C153: the request arrived and nothing came back.
#[tokio::test]
async fn a_silent_provider_is_ambiguous_and_answered_with_504() {
    for http2 in [false, true] {
        for answer in [
            "hang",
            "{ status: 200, sse: [{ silence: true }], delay_ms: 60000 }",
        ] {
            let first = format!(
                "{{ adapter: openai, http2: {http2}, timeouts: {{ first_byte_ms: 100 }}, mock: {{ answers: [{answer}] }} }}"
            );
            let rondo = Rondo::start(&two(&first, MOCK_OK)).await;
            let answer = call(rondo.addr, chat("m")).await;
            assert_eq!(answer.status, 504, "{answer:?}");
            assert_eq!(answer.json()["error"]["code"], "upstream_timeout");
            assert_eq!(rondo.mock("one").sends(), 1);
            assert_eq!(rondo.mock("two").sends(), 0);
            assert_eq!(
                rondo.metric("rondo_attempts_total", &["outcome=\"ambiguous\""]),
                1.0
            );
            rondo.assert_quiet().await;
        }
    }
    let interim = Upstream::start(|mut link| async move {
        link.request().await;
        link.write("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\n\r\n")
            .await;
        link.closed().await;
    })
    .await;
    let first = interim.provider(", timeouts: { first_byte_ms: 100 }");
    let rondo = Rondo::start(&two(&first, MOCK_OK)).await;
    assert_eq!(call(rondo.addr, chat("m")).await.status, 504);
    assert_eq!((interim.requests(), rondo.mock("two").sends()), (1, 0));
    rondo.assert_quiet().await;
}

// R-F2: only a route that says so sends again what may have run.
#[tokio::test]
async fn an_opted_in_route_sends_an_ambiguous_request_again() {
    let first = "{ adapter: openai, timeouts: { first_byte_ms: 100 }, mock: { answers: [hang] } }";
    let yaml = two_with(
        first,
        MOCK_OK,
        ", fallback_strategy: [http_429, transport_error]",
    );
    let rondo = Rondo::start(&yaml).await;
    let answer = call(rondo.addr, chat("m")).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    assert_eq!(rondo.sends(&["one", "two"]), ["one", "two"]);
    rondo.assert_quiet().await;
}

// C146: an upload that takes longer than `first_byte_ms` is no timeout.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_first_byte_is_waited_for_from_the_end_of_the_upload() {
    let content = "y".repeat(20 << 20);
    let sent = format!(
        "{{\"model\":\"m\",\"messages\":[{{\"role\":\"user\",\"content\":\"{content}\"}}]}}"
    );
    let one = Upstream::start(|mut link| async move {
        // Far longer than `first_byte_ms`, while buffers between us hold a small part of the upload.
        pause(Duration::from_millis(400)).await;
        link.answer(200, GOOD).await;
    })
    .await;
    let first = one.provider(", timeouts: { first_byte_ms: 200, idle_ms: 5000 }");
    let rondo = Rondo::start(&two(&first, MOCK_OK)).await;
    let answer = call(rondo.addr, post("/v1/chat/completions", sent)).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    assert_eq!((one.requests(), rondo.mock("two").sends()), (1, 0));
    rondo.assert_quiet().await;
}

// R-B4: the client's own timeout shortens the deadline, and never lengthens it.
#[tokio::test]
async fn a_client_timeout_shortens_the_deadline() {
    let first = "{ adapter: openai, mock: { answers: [hang] } }";
    let rondo = Rondo::start(&two(first, MOCK_OK)).await;
    for header in [
        ("x-request-timeout-ms", "100"),
        ("x-stainless-timeout", "0.1"),
        ("x-stainless-read-timeout", "0.1"),
    ] {
        let body = whole(chat_body("m", false));
        let answer = call(rondo.addr, request("/v1/chat/completions", &[header], body)).await;
        assert_eq!(answer.status, 504, "{header:?}: {answer:?}");
    }
    assert_eq!(
        (rondo.mock("one").sends(), rondo.mock("two").sends()),
        (3, 0)
    );
    let yaml = two(first, MOCK_OK).replace("models: [m]", "models: [m]\n    deadline_ms: 100");
    let short = Rondo::start(&yaml).await;
    let long = [("x-request-timeout-ms", "600000")];
    let body = whole(chat_body("m", false));
    let answer = call(short.addr, request("/v1/chat/completions", &long, body)).await;
    assert_eq!(answer.status, 504, "{answer:?}");
    rondo.assert_quiet().await;
    short.assert_quiet().await;
}

// R-D1: what could not be delivered anywhere is 502, and says that nothing was sent.
#[tokio::test]
async fn nothing_delivered_anywhere_is_unreachable() {
    let (one, other) = (
        Upstream::start(|_| async {}).await,
        Upstream::start(|_| async {}).await,
    );
    let provider = |upstream: &Upstream| {
        let addr = upstream.addr;
        format!("{{ adapter: openai, base_url: \"https://{addr}\" }}")
    };
    let rondo = Rondo::start(&two(&provider(&one), &provider(&other))).await;
    let answer = call(rondo.addr, chat("m")).await;
    assert_eq!(answer.status, 502, "{answer:?}");
    assert_eq!(answer.json()["error"]["code"], "upstream_unreachable");
    assert_eq!(
        rondo.metric("rondo_attempts_total", &["outcome=\"not_delivered\""]),
        2.0
    );
    rondo.assert_quiet().await;
}

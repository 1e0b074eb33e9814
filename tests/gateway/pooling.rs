//! Upstream connections: used again after a rejection, never used again with anything unread or unwritten on them.

use std::sync::Arc;
use std::time::Duration;

use tokio::io::AsyncReadExt;
use tokio::sync::Notify;

use crate::support::client::{Connection, chat, post, whole};
use crate::support::frames::{HEADERS, NO_ERROR};
use crate::support::raw::{GOOD, THROTTLE, Upstream, json, pause, two};
use crate::support::tls::Identity;
use crate::support::{Rondo, soon};

const MOCK_OK: &str = "{ adapter: openai, mock: { answers: [ok] } }";

/// A provider whose every answer is this one.
fn always(answer: &str, http2: bool) -> String {
    format!("{{ adapter: openai, http2: {http2}, mock: {{ answers: [{answer}] }} }}")
}

/// Twenty rejections in a row; returns how many connections each target has seen.
async fn storm(answer: &str, http2: bool) -> [u64; 2] {
    let rondo = Rondo::start(&two(&always(answer, http2), &always("ok", http2))).await;
    let mut client = Connection::h1(rondo.addr).await;
    for _ in 0..20 {
        let answer = client.call(chat("m")).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        assert_eq!(answer.header("x-rondo-attempts"), Some("2"));
    }
    rondo.assert_quiet().await;
    ["one", "two"].map(|name| {
        let mock = rondo.mock(name);
        assert_eq!(mock.sends(), 20);
        mock.connections_opened()
    })
}

// R-F1, C154
#[tokio::test]
async fn rejections_open_no_new_connection() {
    for http2 in [false, true] {
        assert_eq!(
            storm("openai.throttle", http2).await,
            [1, 1],
            "http2: {http2}"
        );
    }
}

fn filler(bytes: usize) -> String {
    let text = "x".repeat(bytes);
    format!(
        "{{ status: 429, body: {{ error: {{ message: \"{text}\", type: requests, param: null, code: rate_limit_exceeded }} }} }}"
    )
}

// C154
#[tokio::test]
async fn rejections_of_40_kilobytes_open_no_new_connection() {
    for http2 in [false, true] {
        assert_eq!(
            storm(&filler(40_000), http2).await,
            [1, 1],
            "http2: {http2}"
        );
    }
}

// C154 C155: what is over the bound is not read to the end; on HTTP/2 the stream alone is given up.
#[tokio::test]
async fn rejections_of_a_megabyte_cost_an_http1_connection_each() {
    assert_eq!(storm(&filler(1 << 20), false).await, [20, 1]);
    assert_eq!(storm(&filler(1 << 20), true).await, [1, 1]);
}

// C155: a body that comes late never reaches the next request.
#[tokio::test]
async fn an_unread_body_is_never_pooled() {
    let late = Arc::new(Notify::new());
    let told = Arc::clone(&late);
    let one = Upstream::start(move |mut link| {
        let late = Arc::clone(&told);
        async move {
            if link.request().await.is_none() {
                return;
            }
            let half = "x".repeat(50_000);
            let head =
                "HTTP/1.1 429 Slow\r\ncontent-type: text/plain\r\ncontent-length: 300000\r\n\r\n";
            link.write(head).await;
            link.write(&half).await;
            late.notified().await;
            // More than is drained.
            for _ in 0..5 {
                link.write(&half).await;
            }
            assert!(
                link.request().await.is_none(),
                "used again with an unread body"
            );
        }
    })
    .await;
    let rondo = Rondo::start(&two(&one.provider(""), MOCK_OK)).await;
    let mut client = Connection::h1(rondo.addr).await;
    for number in 1..=3 {
        assert_eq!(client.call(chat("m")).await.status, 200);
        assert_eq!(one.requests(), number);
        assert_eq!(one.connections(), number);
        late.notify_one();
    }
    rondo.assert_quiet().await;
}

fn large() -> String {
    format!(
        "{{\"model\":\"m\",\"messages\":[{{\"role\":\"user\",\"content\":\"{}\"}}]}}",
        "y".repeat(20 << 20)
    )
}

// C135: an answer before the end of the upload. The upload stops, and the connection with half a request on it is not used again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_early_rejection_ends_the_upload() {
    for http2 in [false, true] {
        let early = "{ preset: openai.throttle, answer_early: true }";
        let rondo = Rondo::start(&two(&always(early, http2), &always("ok", http2))).await;
        let mut client = Connection::h1(rondo.addr).await;
        let sent = large();
        for number in 1..=3 {
            let answer = client
                .call(post("/v1/chat/completions", sent.clone()))
                .await;
            assert_eq!(answer.status, 200, "{answer:?}");
            let seen = soon(rondo.mock("two").wait_for_bodies(number)).await;
            assert_eq!(seen[number - 1].body_len, sent.len() as u64);
            assert_eq!(
                seen[number - 1].body_hash,
                rondo::mock::body_hash(sent.as_bytes())
            );
            assert_eq!(rondo.mock("one").sends(), number as u64, "http2: {http2}");
        }
        rondo.assert_quiet().await;
    }
}

// C135: the provider answers, and then reads the rest as if nothing had happened.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_with_half_a_request_is_never_pooled() {
    for (status, wanted) in [(429, 200), (400, 400)] {
        let one = Upstream::start(move |mut link| async move {
            let Some(head) = link.head().await else {
                return;
            };
            assert!(
                head.starts_with("POST "),
                "not the beginning of a request: {head}"
            );
            link.count();
            link.write(&json(status, THROTTLE)).await;
            let mut rest = vec![0; 1 << 16];
            while matches!(link.stream.read(&mut rest).await, Ok(read) if read > 0) {}
        })
        .await;
        let rondo = Rondo::start(&two(&one.provider(""), MOCK_OK)).await;
        let mut client = Connection::h1(rondo.addr).await;
        let sent = large();
        for number in 1..=3 {
            let answer = client
                .call(post("/v1/chat/completions", sent.clone()))
                .await;
            assert_eq!(answer.status, wanted, "{answer:?}");
            assert_eq!(one.requests(), number);
            assert_eq!(one.connections(), number, "a connection was used again");
        }
        rondo.assert_quiet().await;
    }
}

// C135: the provider answers and stops reading: it is heard while the write stands still.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_early_rejection_without_reading_ends_the_upload() {
    let one = Upstream::start(|mut link| async move {
        if link.head().await.is_some() {
            link.write(&json(429, THROTTLE)).await;
            std::future::pending::<()>().await;
        }
    })
    .await;
    // Over TLS it is the flush that stands still.
    let identity = Identity::new();
    let front = identity.front(one.addr, &["http/1.1"]).await;
    let secure = format!(
        "{{ adapter: openai, base_url: \"https://localhost:{}\", ca: \"{}\" }}",
        front.port(),
        identity.files.cert
    );
    for provider in [one.provider(""), secure] {
        let rondo = Rondo::start(&two(&provider, MOCK_OK)).await;
        let asked = post("/v1/chat/completions", large());
        let answer = crate::support::client::call(rondo.addr, asked).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        assert_eq!(answer.header("x-rondo-target"), Some("second"));
        rondo.assert_quiet().await;
    }
}

// C135: over HTTP/2 a complete answer may be followed by a reset without an error, which only says that the rest of the request is not
// wanted (RFC 9113 section 8.1). The provider opens no window for it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_early_rejection_over_http2_survives_the_reset_after_it() {
    for (status, wanted) in [("429", 200), ("400", 400)] {
        let one = Upstream::start(move |mut link| async move {
            link.greet(&[]).await;
            while let Some(frame) = link.next_frame().await {
                if frame.kind == HEADERS {
                    link.count();
                    link.answer_h2(frame.stream, status, THROTTLE).await;
                    link.rst(frame.stream, NO_ERROR).await;
                }
            }
        })
        .await;
        let rondo = Rondo::start(&two(&one.provider(", http2: true"), MOCK_OK)).await;
        let mut client = Connection::h1(rondo.addr).await;
        for number in 1..=3 {
            let answer = client.call(post("/v1/chat/completions", large())).await;
            assert_eq!(answer.status, wanted, "{answer:?}");
            assert!(wanted == 200 || answer.text() == THROTTLE, "{answer:?}");
            assert_eq!((one.connections(), one.requests()), (1, number));
        }
        rondo.assert_quiet().await;
    }
}

// A good answer that begins before the upload has ended does not end the upload.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_early_good_answer_waits_for_the_upload() {
    let sent = large();
    let wanted = sent.len();
    let one = Upstream::start(move |mut link| async move {
        let Some(_) = link.head().await else { return };
        link.write("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: ")
            .await;
        link.write(&format!("{}\r\n\r\n", GOOD.len())).await;
        if link.body(wanted).await.is_none() {
            return;
        }
        link.count();
        link.write(GOOD).await;
    })
    .await;
    let rondo = Rondo::start(&two(
        &one.provider(", timeouts: { idle_ms: 2000 }"),
        MOCK_OK,
    ))
    .await;
    let answer = crate::support::client::call(rondo.addr, post("/v1/chat/completions", sent)).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    assert_eq!(answer.text(), GOOD);
    assert_eq!(one.requests(), 1);
    rondo.assert_quiet().await;
}

// C96: the second request on a connection was read whole, and the connection closed.
#[tokio::test]
async fn a_request_that_a_reused_connection_took_is_not_sent_again() {
    // R-D1 R-F2
    let one = Upstream::start(|mut link| async move {
        link.answer(200, GOOD).await;
        link.request().await;
    })
    .await;
    let rondo = Rondo::start(&two(&one.provider(""), MOCK_OK)).await;
    let mut client = Connection::h1(rondo.addr).await;
    assert_eq!(client.call(chat("m")).await.status, 200);
    let answer = client.call(chat("m")).await;
    assert_eq!(answer.status, 502, "{answer:?}");
    assert_eq!(answer.json()["error"]["code"], "upstream_ambiguous");
    assert_eq!((one.connections(), one.requests()), (1, 2));
    assert_eq!(rondo.mock("two").sends(), 0);
    assert_eq!(
        rondo.metric("rondo_attempts_total", &["outcome=\"ambiguous\""]),
        1.0
    );
    rondo.assert_quiet().await;
}

// C107: bytes that nobody asked for stand on an idle connection.
#[tokio::test]
async fn stray_bytes_never_answer_the_next_request() {
    for stray in [
        "HTTP/1.1 408 Request Timeout\r\nconnection: close\r\ncontent-length: 0\r\n\r\n".to_owned(),
        json(200, "{\"stray\":true}"),
    ] {
        for together in [false, true] {
            let (done, told) = (Arc::new(Notify::new()), stray.clone());
            let notify = Arc::clone(&done);
            let one = Upstream::start(move |mut link| {
                let (stray, done) = (told.clone(), Arc::clone(&notify));
                async move {
                    if link.number > 1 {
                        link.answer(200, GOOD).await;
                        return;
                    }
                    link.request().await;
                    let good = json(200, GOOD);
                    if together {
                        link.write(&format!("{good}{stray}")).await;
                    } else {
                        link.write(&good).await;
                        done.notified().await;
                        link.write(&stray).await;
                    }
                    done.notify_one();
                    assert!(link.request().await.is_none(), "used again");
                }
            })
            .await;
            let rondo = Rondo::start(&two(&one.provider(""), MOCK_OK)).await;
            let mut client = Connection::h1(rondo.addr).await;
            assert_eq!(client.call(chat("m")).await.text(), GOOD);
            if !together {
                done.notify_one();
                tokio::task::yield_now().await;
            }
            soon(done.notified()).await;
            let answer = client.call(chat("m")).await;
            assert_eq!(answer.status, 200, "{answer:?}");
            assert_eq!(answer.text(), GOOD);
            assert_eq!((one.connections(), one.requests()), (2, 2));
            rondo.assert_quiet().await;
        }
    }
}

// C101 C103: closed or reset while idle. The next request goes on a new connection, once.
#[tokio::test]
async fn a_connection_that_closed_while_idle_is_not_used() {
    for reset in [false, true] {
        let closed = Arc::new(Notify::new());
        let notify = Arc::clone(&closed);
        let one = Upstream::start(move |mut link| {
            let closed = Arc::clone(&notify);
            async move {
                link.answer(200, GOOD).await;
                if reset {
                    link.reset();
                }
                closed.notify_one();
            }
        })
        .await;
        let rondo = Rondo::start(&two(&one.provider(""), MOCK_OK)).await;
        let mut client = Connection::h1(rondo.addr).await;
        for number in 1..=10 {
            let answer = client.call(chat("m")).await;
            assert_eq!(answer.status, 200, "{answer:?}");
            assert_eq!(answer.text(), GOOD);
            soon(closed.notified()).await;
            // What was closed is seen by the pool when its task runs.
            pause(Duration::from_millis(5)).await;
            assert_eq!((one.connections(), one.requests()), (number, number));
        }
        rondo.assert_quiet().await;
    }
}

// A target's connection is not another target's, even at one address: they may differ in credentials and trust.
#[tokio::test]
async fn providers_do_not_share_connections() {
    let one = Upstream::start(|mut link| async move {
        let first = link.answer(429, THROTTLE).await;
        let Some(first) = first else { return };
        let key = |request: &crate::support::raw::Request| {
            request
                .head
                .lines()
                .find(|line| line.starts_with("authorization"))
                .map(str::to_owned)
        };
        while let Some(next) = link.answer(429, THROTTLE).await {
            assert_eq!((key(&first), &first.body), (key(&next), &next.body));
        }
    })
    .await;
    let provider = |key: &str| {
        one.provider(&format!(
            ", keys: [{{ name: k, secret: {{ literal: {key} }} }}]"
        ))
    };
    let rondo = Rondo::start(&two(&provider("key-a"), &provider("key-b"))).await;
    let mut client = Connection::h1(rondo.addr).await;
    for _ in 0..5 {
        let body = whole(crate::support::client::chat_body("m", false));
        let request = crate::support::client::request("/v1/chat/completions", &[], body);
        assert_eq!(client.call(request).await.status, 429);
    }
    assert_eq!((one.connections(), one.requests()), (2, 10));
    rondo.assert_quiet().await;
}

// C102: a provider that says how long it keeps a connection is believed, with a margin.
#[tokio::test]
async fn a_keep_alive_hint_is_honoured() {
    for (hint, connections) in [
        ("timeout=60", 1),
        ("timeout=1", 3),
        ("max=5, TIMEOUT=0", 3),
        ("x", 1),
    ] {
        let one = Upstream::start(move |mut link| async move {
            while link.request().await.is_some() {
                let length = GOOD.len();
                link.write(&format!("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nkeep-alive: {hint}\r\ncontent-length: {length}\r\n\r\n{GOOD}")).await;
            }
        })
        .await;
        let rondo = Rondo::start(&two(&one.provider(""), MOCK_OK)).await;
        let mut client = Connection::h1(rondo.addr).await;
        for _ in 0..3 {
            assert_eq!(client.call(chat("m")).await.text(), GOOD);
        }
        assert_eq!(
            (one.connections(), one.requests()),
            (connections, 3),
            "{hint}"
        );
        rondo.assert_quiet().await;
    }
}

// A broken stream costs an HTTP/2 connection nothing, and its place among the streams is free again.
#[tokio::test]
async fn broken_streams_leave_an_http2_connection_as_it_was() {
    let one = Upstream::start(|mut link| async move {
        link.greet(&[(3, 1)]).await;
        while let Some(stream) = link.stream().await {
            link.rst(stream, crate::support::frames::CANCEL).await;
        }
    })
    .await;
    let rondo = Rondo::start(&two(&one.provider(", http2: true"), MOCK_OK)).await;
    let mut client = Connection::h1(rondo.addr).await;
    for _ in 0..30 {
        assert_eq!(client.call(chat("m")).await.status, 502);
    }
    assert_eq!((one.connections(), one.requests()), (1, 30));
    rondo.assert_quiet().await;
}

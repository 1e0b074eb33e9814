//! `on_client_disconnect: drain`: the records settle at once, the answer is read on for its usage, and every bound of that holds.

use std::sync::Arc;
use std::time::Instant;

use rondo::core::limits::{READ_ON_BYTES_MAX, READ_ON_MAX};
use rondo::core::settlement::State;
use tokio::sync::Notify;

use crate::support::caller::{Caller, Way};
use crate::support::client::{call, chat, chat_body};
use crate::support::frames::{DATA, END_STREAM};
use crate::support::raw::{Upstream, json, two_with};
use crate::support::stage::{EVENTS, Stage};
use crate::support::{Rondo, soon};
use crate::usage::columns;

const CHAT: &str = "/v1/chat/completions";
const MOCK_OK: &str = "{ adapter: openai, mock: { answers: [ok] } }";
const DRAIN: &str = ", on_client_disconnect: drain";
const HELLO: &str = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"Hello\"}}]}\n\n";
const USAGE: &str =
    "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":19,\"completion_tokens\":10}}\n\n";
const COUNTS: [Option<u64>; 4] = [Some(19), Some(10), None, None];

fn everywhere() -> impl Iterator<Item = (Way, bool)> {
    Way::ALL
        .into_iter()
        .flat_map(|way| [(way, false), (way, true)])
}

fn ends(rondo: &Rondo, end: &str) -> f64 {
    rondo.metric("rondo_drains_total", &[&format!("end=\"{end}\"")])
}

async fn stage(http2: bool) -> (Stage, Rondo) {
    let stage = if http2 {
        Stage::h2().await
    } else {
        Stage::h1(EVENTS).await
    };
    let provider = stage.upstream.provider(&format!(", http2: {http2}"));
    let rondo = Rondo::start(&two_with(&provider, MOCK_OK, DRAIN)).await;
    (stage, rondo)
}

/// Waits until the one operation is settled as cancelled while its answer is read on.
async fn settled(rondo: &Rondo) {
    rondo
        .until(|rondo| rondo.records()[0].operation.state == State::Cancelled)
        .await;
    assert_eq!(rondo.metric("rondo_drains", &[]), 1.0);
    // The end of the process waits for it.
    assert_eq!(rondo.app.gateway.around.inflight.count(), 1);
    assert_eq!(rondo.app.gateway.buffered.held(), 0, "the request is held");
}

/// In the middle of a stream: the record settles at once, its usage comes later, and the connection serves again.
#[tokio::test]
async fn the_final_usage_comes_although_the_client_left() {
    // R-L8 R-D4
    for (way, http2) in everywhere() {
        let (stage, rondo) = stage(http2).await;
        let mut caller = Caller::ask(way, rondo.addr, CHAT, &chat_body("m", true)).await;
        stage.say(HELLO);
        caller.read_to("Hello").await;
        caller.leave();
        settled(&rondo).await;
        let before = rondo.records()[0].clone();
        assert_eq!(before.operation.http_status, Some(499), "{way:?} {http2}");
        assert_eq!(before.attempts[0].state, State::Cancelled);
        assert_eq!(columns(&before), ([None; 4], None));
        stage.say(USAGE);
        stage.end();
        rondo.assert_quiet().await;
        assert_eq!(ends(&rondo, "usage"), 1.0, "{way:?} {http2}");
        assert_eq!(rondo.metric("rondo_drains_total", &[]), 1.0);
        assert_eq!(rondo.metric("rondo_drains", &[]), 0.0);
        let after = rondo.records()[0].clone();
        assert_eq!(columns(&after), (COUNTS, Some(false)), "{way:?} {http2}");
        // Nothing but the usage has changed.
        let mut expected = (*before).clone();
        expected.operation.prompt_tokens = Some(19);
        expected.operation.completion_tokens = Some(10);
        expected.operation.usage_partial = Some(false);
        assert_eq!(*after, expected);
        // The connection went back to the pool.
        stage.say(HELLO);
        stage.end();
        call(rondo.addr, chat("m")).await;
        assert_eq!(stage.upstream.connections(), 1, "{way:?} {http2}");
    }
}

/// A provider that answers when it is told to.
async fn gated(http2: bool, gate: Arc<Notify>) -> Upstream {
    let body = r#"{"choices":[],"usage":{"prompt_tokens":19,"completion_tokens":10}}"#;
    Upstream::start(move |mut link| {
        let gate = Arc::clone(&gate);
        async move {
            if !http2 {
                while link.request().await.is_some() {
                    gate.notified().await;
                    link.write("HTTP/1.1 103 Early Hints\r\n\r\n").await;
                    link.write(&json(200, body)).await;
                }
                return;
            }
            link.greet(&[]).await;
            while let Some(stream) = link.stream().await {
                gate.notified().await;
                link.head_h2(stream, "200", "application/json").await;
                link.frame(DATA, END_STREAM, stream, body.as_bytes()).await;
            }
        }
    })
    .await
}

/// Before the header: the provider may be computing, so its answer is waited for as well.
#[tokio::test]
async fn an_answer_is_waited_for_before_its_header() {
    // R-L8 R-D4
    for (way, http2) in everywhere() {
        let gate = Arc::new(Notify::new());
        let upstream = gated(http2, Arc::clone(&gate)).await;
        let provider = upstream.provider(&format!(", http2: {http2}"));
        let rondo = Rondo::start(&two_with(&provider, MOCK_OK, DRAIN)).await;
        let caller = Caller::ask(way, rondo.addr, CHAT, &chat_body("m", false)).await;
        crate::support::until(|| upstream.requests() == 1).await;
        caller.leave();
        settled(&rondo).await;
        gate.notify_one();
        rondo.assert_quiet().await;
        assert_eq!(ends(&rondo, "usage"), 1.0, "{way:?} {http2}");
        let record = rondo.records()[0].clone();
        assert_eq!(columns(&record), (COUNTS, Some(false)), "{way:?} {http2}");
        assert_eq!(record.operation.http_status, Some(499));
        gate.notify_one();
        assert_eq!(call(rondo.addr, chat("m")).await.status, 200);
        assert_eq!(upstream.connections(), 1, "{way:?} {http2}");
    }
}

/// How reading on ends when it does not find what it is for.
#[tokio::test]
async fn reading_on_may_find_nothing() {
    // R-L8
    for (end, counts) in [("complete", None), ("failed", Some(true))] {
        let (stage, rondo) = stage(false).await;
        let body = chat_body("m", true);
        let mut caller = Caller::ask(Way::H1Close, rondo.addr, CHAT, &body).await;
        stage.say(HELLO);
        caller.read_to("Hello").await;
        caller.leave();
        settled(&rondo).await;
        if end == "complete" {
            stage.end();
        } else {
            // What was seen before the break is still worth telling.
            stage.say(USAGE);
            stage.cut();
        }
        rondo.assert_quiet().await;
        assert_eq!(ends(&rondo, end), 1.0);
        assert_eq!(columns(&rondo.records()[0]).1, counts, "{end}");
    }
}

/// The bound of bytes: the upstream is closed there.
#[tokio::test]
async fn the_bytes_read_on_are_bounded() {
    // R-L8
    let (stage, rondo) = stage(false).await;
    let body = chat_body("m", true);
    let mut caller = Caller::ask(Way::H1Close, rondo.addr, CHAT, &body).await;
    stage.say(HELLO);
    caller.read_to("Hello").await;
    caller.leave();
    settled(&rondo).await;
    for _ in 0..=READ_ON_BYTES_MAX / HELLO.len() {
        stage.say(HELLO);
    }
    rondo.assert_quiet().await;
    assert_eq!(ends(&rondo, "limit"), 1.0);
    stage.cut();
    // Its connection was not kept.
    stage.say(HELLO);
    stage.end();
    assert_eq!(call(rondo.addr, chat("m")).await.status, 200);
    assert_eq!(stage.upstream.connections(), 2);
}

/// The bounds of number and time: one more than may be read on is closed at once, as with `abort`, and the others in time.
#[tokio::test]
async fn the_number_and_the_time_are_bounded() {
    // R-L8
    let silent = "{ adapter: openai, mock: { answers: [{ sse: [{ data: { choices: [{ index: 0, delta: { content: Hello } }] } }, { silence: true }] }] } }";
    let rondo = Rondo::start(&two_with(silent, MOCK_OK, DRAIN)).await;
    let body = chat_body("m", true);
    let mut callers = Vec::new();
    for _ in 0..READ_ON_MAX {
        let mut caller = Caller::ask(Way::H1Close, rondo.addr, CHAT, &body).await;
        caller.read_to("Hello").await;
        callers.push(caller);
    }
    let mut last = Caller::ask(Way::H1Close, rondo.addr, CHAT, &body).await;
    last.read_to("Hello").await;
    let left = Instant::now();
    callers.into_iter().for_each(Caller::leave);
    let all = READ_ON_MAX as f64;
    rondo
        .until(|rondo| rondo.metric("rondo_drains", &[]) == all)
        .await;
    last.leave();
    soon(rondo.mock("one").wait_for_closed(1)).await;
    assert_eq!(ends(&rondo, "refused"), 1.0);
    assert_eq!(rondo.metric("rondo_drains", &[]), all);
    soon(rondo.mock("one").wait_for_closed(READ_ON_MAX + 1)).await;
    rondo.assert_quiet().await;
    assert_eq!(ends(&rondo, "limit"), all);
    assert!(left.elapsed() >= rondo::core::limits::READ_ON_TIME_MAX);
}

/// With `abort` the upstream is closed at once, and so it is with `drain` when the answer cannot tell its usage.
#[tokio::test]
async fn what_cannot_tell_is_closed_at_once() {
    // R-D4
    let sound = "HTTP/1.1 200 OK\r\ncontent-type: audio/mpeg\r\ntransfer-encoding: chunked\r\n\r\n5\r\nHello\r\n";
    for (routing, head) in [("", EVENTS), (DRAIN, sound)] {
        let closed = Arc::new(Notify::new());
        let told = Arc::clone(&closed);
        let upstream = Upstream::start(move |mut link| {
            let told = Arc::clone(&told);
            async move {
                if link.request().await.is_some() {
                    link.write(head).await;
                    let chunk = format!("{:x}\r\n{HELLO}\r\n", HELLO.len());
                    link.write(&chunk).await;
                    link.closed().await;
                    told.notify_one();
                }
            }
        })
        .await;
        let yaml = two_with(&upstream.provider(""), MOCK_OK, routing);
        let rondo = Rondo::start(&yaml).await;
        let body = chat_body("m", head == EVENTS);
        let mut caller = Caller::ask(Way::H1Close, rondo.addr, CHAT, &body).await;
        caller.read_to("Hello").await;
        caller.leave();
        soon(closed.notified()).await;
        rondo.assert_quiet().await;
        assert_eq!(rondo.metric("rondo_drains_total", &[]), 0.0, "{routing}");
    }
}

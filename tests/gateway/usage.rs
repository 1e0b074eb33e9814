//! Token counts of answers on real sockets: recorded, and not a byte of the answer changed or held for them.

use http::Request;
use http_body_util::BodyExt;

use rondo::core::settlement::State;
use rondo::ledger::Record;

use crate::support::caller::{Caller, Way};
use crate::support::client::{Body, Connection, call, chat, chat_body, post};
use crate::support::raw::{GOOD, Upstream, json, two, two_with};
use crate::support::stage::{EVENTS, Stage};
use crate::support::{Rondo, soon};

const CHAT: &str = "/v1/chat/completions";
const MOCK_OK: &str = "{ adapter: openai, mock: { answers: [ok] } }";

/// Prompt, completion, cached and reasoning tokens, and whether they are partial.
type Columns = ([Option<u64>; 4], Option<bool>);

pub fn columns(record: &Record) -> Columns {
    let row = &record.operation;
    let counts = [
        row.prompt_tokens,
        row.completion_tokens,
        row.cached_tokens,
        row.reasoning_tokens,
    ];
    (counts, row.usage_partial)
}

fn ask() -> Request<Body> {
    post(CHAT, chat_body("m", true))
}

/// A stream passes byte for byte and event by event, and its record knows what it cost.
#[tokio::test]
async fn a_stream_passes_unchanged_and_is_counted() {
    // R-L8 R-X4
    let pieces = [
        "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"€ \\\"usage\\\"\"}}],\"usage\":null}\n\n",
        "data: {\"choices\":[],\"usa",
        "ge\":{\"prompt_tokens\":19,\"completion_tokens\":10,\"total_tokens\":29,\"prompt_tokens_details\":{\"cached_tokens\":16},\"completion_tokens_details\":{\"reasoning_tokens\":4}}}\r\n\r",
        "\ndata: [DONE]\n\n",
    ];
    for http2 in [false, true] {
        let stage = if http2 {
            Stage::h2().await
        } else {
            Stage::h1(EVENTS).await
        };
        let provider = stage.upstream.provider(&format!(", http2: {http2}"));
        let rondo = Rondo::start(&two(&provider, MOCK_OK)).await;
        let mut client = Connection::h1(rondo.addr).await;
        stage.say(pieces[0]);
        let mut body = soon(client.send(ask())).await.unwrap().into_body();
        for (position, piece) in pieces.iter().enumerate() {
            let mut read = Vec::new();
            while read.len() < piece.len() {
                let frame = soon(body.frame()).await.unwrap().unwrap();
                read.extend_from_slice(&frame.into_data().unwrap());
            }
            assert_eq!(read, piece.as_bytes(), "{position}");
            // The next piece exists only now: nothing was held for it.
            if let Some(next) = pieces.get(position + 1) {
                stage.say(next);
            }
        }
        stage.end();
        assert!(soon(body.frame()).await.is_none());
        rondo.assert_quiet().await;
        let counts = [Some(19), Some(10), Some(16), Some(4)];
        assert_eq!(columns(&rondo.records()[0]), (counts, Some(false)));
    }
}

/// What the client asked for with `stream_options` reaches the provider as it is.
#[tokio::test]
async fn whole_answers_are_counted() {
    // R-L8
    let answer = r#"{"choices":[{"message":{"content":"x"}}],"usage":{"prompt_tokens":3,"completion_tokens":4,"total_tokens":7}}"#;
    let provider = Upstream::start(move |mut link| async move {
        while let Some(request) = link.request().await {
            let body = String::from_utf8(request.body).unwrap();
            assert!(
                body.contains(r#""stream_options":{"include_usage":false}"#),
                "{body}"
            );
            link.write(&json(200, answer)).await;
        }
    })
    .await;
    let rondo = Rondo::start(&two(&provider.provider(""), MOCK_OK)).await;
    let asked = r#"{"model":"m","stream_options":{"include_usage":false},"messages":[]}"#;
    let got = call(rondo.addr, post(CHAT, asked)).await;
    assert_eq!(got.text(), answer);
    rondo.assert_quiet().await;
    let counts = [Some(3), Some(4), None, None];
    assert_eq!(columns(&rondo.records()[0]), (counts, Some(false)));
}

/// An answer without usage leaves every column empty.
#[tokio::test]
async fn no_usage_is_no_usage() {
    // R-L8
    let provider =
        Upstream::start(|mut link| async move { while link.answer(200, GOOD).await.is_some() {} })
            .await;
    let rondo = Rondo::start(&two(&provider.provider(""), MOCK_OK)).await;
    assert_eq!(call(rondo.addr, chat("m")).await.text(), GOOD);
    rondo.assert_quiet().await;
    assert_eq!(columns(&rondo.records()[0]), ([None; 4], None));
}

/// When the client leaves or the stream breaks, what was seen so far is recorded, and said to be partial.
#[tokio::test]
async fn what_was_seen_of_a_cut_stream_is_partial() {
    // R-L8 R-D4
    let seen = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"Hello\"}}],\"usage\":{\"prompt_tokens\":19,\"completion_tokens\":1}}\n\ndata: {\"choices\":[],\"usage\":{\"prompt_tokens\":19,\"completion_tokens\":2";
    for leaves in [true, false] {
        for http2 in [false, true] {
            let stage = if http2 {
                Stage::h2().await
            } else {
                Stage::h1(EVENTS).await
            };
            let provider = stage.upstream.provider(&format!(", http2: {http2}"));
            let rondo = Rondo::start(&two(&provider, MOCK_OK)).await;
            let body = chat_body("m", true);
            let mut caller = Caller::ask(Way::H1Close, rondo.addr, CHAT, &body).await;
            stage.say(seen);
            caller.read_to("\"completion_tokens\":2").await;
            if leaves {
                caller.leave();
            } else {
                stage.cut();
            }
            rondo.assert_quiet().await;
            let record = &rondo.records()[0];
            let state = match leaves {
                true => State::Cancelled,
                false => State::Failed,
            };
            assert_eq!(record.operation.state, state, "{http2}");
            let counts = [Some(19), Some(1), None, None];
            assert_eq!(columns(record), (counts, Some(true)), "{http2}");
        }
    }
}

/// What a failed attempt's answer told is not the usage of the operation that another target answered.
#[tokio::test]
async fn a_failed_attempts_usage_is_not_the_operations() {
    // R-L8 R-A4
    let events = "data: {\"type\":\"message_start\",\"message\":{\"id\":\"m\",\"usage\":{\"input_tokens\":25,\"output_tokens\":1}}}\n\nevent: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"Overloaded\"}}\n\n";
    let good = "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"id\":\"m\"}}\n\nevent: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"x\"}}\n\nevent: message_stop\ndata: {\"type\":\"message_stop\"}\n\n";
    let serve = |text: &'static str| {
        Upstream::start(move |mut link| async move {
            while link.request().await.is_some() {
                link.write(EVENTS).await;
                let chunk = format!("{:x}\r\n{text}\r\n0\r\n\r\n", text.len());
                link.write(&chunk).await;
            }
        })
    };
    let (bad, good) = (serve(events).await, serve(good).await);
    let anthropic = |upstream: &Upstream| {
        format!(
            "{{ adapter: anthropic, base_url: \"http://{}\" }}",
            upstream.addr
        )
    };
    let asked = r#"{"model":"m","stream":true,"max_tokens":5,"messages":[]}"#;
    for (second, told) in [(&good, "message_stop"), (&bad, "overloaded_error")] {
        let yaml = two_with(
            &anthropic(&bad),
            &anthropic(second),
            ", fallback_strategy: [http_429, http_5xx]",
        );
        let rondo = Rondo::start(&yaml).await;
        let got = call(rondo.addr, post("/v1/messages", asked)).await;
        assert!(got.text().contains(told), "{}", got.text());
        rondo.assert_quiet().await;
        let record = &rondo.records()[0];
        assert_eq!(record.attempts.len(), 2);
        assert_eq!(columns(record), ([None; 4], None), "{told}");
    }
}

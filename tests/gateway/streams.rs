//! Streams: held until they say something, passed on chunk by chunk, and never ended as if they were whole when they are not.

use std::sync::Arc;

use bytes::Bytes;
use http::Request;
use http_body_util::BodyExt;

use crate::support::client::{Body, Connection, call, chat_body, post};
use crate::support::frames::{DATA, END_HEADERS, END_STREAM, HEADERS};
use crate::support::raw::{RawClient, Upstream, post_text, two, two_with};
use crate::support::stage::{EVENTS, Stage, Step};
use crate::support::{Rondo, soon};

const CHAT: &str = "/v1/chat/completions";
const MOCK_OK: &str = "{ adapter: openai, mock: { answers: [ok] } }";
fn delta(text: &str) -> String {
    format!(
        "data: {{\"object\":\"chat.completion.chunk\",\"choices\":[{{\"index\":0,\"delta\":{{\"content\":\"{text}\"}},\"finish_reason\":null}}]}}\n\n"
    )
}

fn ask() -> Request<Body> {
    post(CHAT, chat_body("m", true))
}

/// The next bytes of a streamed answer.
async fn next(body: &mut hyper::body::Incoming) -> Option<hyper::Result<Bytes>> {
    soon(async {
        loop {
            match body.frame().await? {
                Ok(frame) => match frame.into_data() {
                    Ok(data) if data.is_empty() => {}
                    Ok(data) => return Some(Ok(data)),
                    Err(_) => return None,
                },
                Err(error) => return Some(Err(error)),
            }
        }
    })
    .await
}

/// All that is left, and whether it ended properly.
async fn rest(mut body: hyper::body::Incoming) -> (String, bool) {
    let mut text = Vec::new();
    loop {
        match next(&mut body).await {
            Some(Ok(part)) => text.extend_from_slice(&part),
            Some(Err(_)) => return (String::from_utf8(text).unwrap(), false),
            None => return (String::from_utf8(text).unwrap(), true),
        }
    }
}

// R-X4: each chunk reaches the client before the next one exists.
#[tokio::test]
async fn chunks_pass_one_by_one() {
    for up_h2 in [false, true] {
        for down_h2 in [false, true] {
            let stage = if up_h2 {
                Stage::h2().await
            } else {
                Stage::h1(EVENTS).await
            };
            let provider = stage.upstream.provider(&format!(", http2: {up_h2}"));
            let rondo = Rondo::start(&two(&provider, MOCK_OK)).await;
            let mut client = match down_h2 {
                true => Connection::h2(rondo.addr).await,
                false => Connection::h1(rondo.addr).await,
            };
            for _ in 0..2 {
                stage.say(&delta("0"));
                let answer = soon(client.send(ask())).await.unwrap();
                assert_eq!(answer.status(), 200);
                let mut body = answer.into_body();
                assert_eq!(next(&mut body).await.unwrap().unwrap(), delta("0"));
                for number in 1..20 {
                    let text = delta(&format!("{number} € 🦀"));
                    stage.say(&text);
                    let mut read = Vec::new();
                    while read.len() < text.len() {
                        read.extend_from_slice(&next(&mut body).await.unwrap().unwrap());
                    }
                    assert_eq!(read, text.as_bytes());
                }
                stage.end();
                assert_eq!(rest(body).await, (String::new(), true));
            }
            assert_eq!(
                stage.upstream.connections(),
                1,
                "the connection is used again"
            );
            rondo.assert_quiet().await;
        }
    }
}

/// A provider that answers its nth request with the text cut in two at n.
async fn cut_everywhere(text: String) -> Upstream {
    let number = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    Upstream::start(move |mut link| {
        let (number, text) = (Arc::clone(&number), text.clone());
        async move {
            while link.request().await.is_some() {
                let at = number.fetch_add(1, std::sync::atomic::Ordering::SeqCst) + 1;
                link.write(EVENTS).await;
                for part in [&text.as_bytes()[..at], &text.as_bytes()[at..]] {
                    let mut chunk = format!("{:x}\r\n", part.len()).into_bytes();
                    chunk.extend_from_slice(part);
                    chunk.extend_from_slice(b"\r\n");
                    let _ = tokio::io::AsyncWriteExt::write_all(&mut link.stream, &chunk).await;
                    tokio::task::yield_now().await;
                }
                link.write("0\r\n\r\n").await;
            }
        }
    })
    .await
}

const FRAME: &str = r#"{"error":{"message":"Overloaded €","type":"service_unavailable_error","param":null,"code":"server_is_overloaded"}}"#;

// R-A4, C43 C46 C142: an error is found wherever it is cut and however its lines end.
#[tokio::test]
async fn an_error_is_found_wherever_it_is_cut() {
    for end in ["\n", "\r\n", "\r"] {
        let text = [
            ": ping",
            "",
            "event: ping",
            "data: {\"type\":\"ping\"}",
            "",
            "event: error",
            &format!("data: {FRAME}"),
            "",
            "",
        ]
        .join(end);
        let one = cut_everywhere(text.clone()).await;
        let rondo = Rondo::start(&two(&one.provider(""), MOCK_OK))
            .await
            .with_traffic();
        let mut client = Connection::h1(rondo.addr).await;
        for at in 1..text.len() {
            let answer = client.call(ask()).await;
            assert_eq!(
                answer.header("x-rondo-target"),
                Some("second"),
                "{end:?} {at} {answer:?}"
            );
            assert!(answer.text().ends_with("data: [DONE]\n\n"));
        }
        rondo.assert_quiet().await;
    }
}

// R-X1 R-X4, C142: a good stream is the same bytes, wherever it is cut.
#[tokio::test]
async fn a_stream_passes_unchanged_wherever_it_is_cut() {
    let text = format!(
        ": hi\r\n\r\n{}data:{{\"choices\":[]}}\r\n\r\nid: 7\rdata: not json\r\rdata: [DONE]\n\n",
        delta("€🦀")
    );
    let one = cut_everywhere(text.clone()).await;
    let rondo = Rondo::start(&two(&one.provider(""), MOCK_OK)).await;
    let mut client = Connection::h1(rondo.addr).await;
    for at in 1..text.len() {
        let answer = client.call(ask()).await;
        assert_eq!(answer.body, text.as_bytes(), "{at}");
        assert_eq!(answer.header("content-type"), Some("text/event-stream"));
    }
    rondo.assert_quiet().await;
}

// R-A4 R-F2 R-D1, C43 C45 C46 C47 C48: an error as the first event moves on; with no target left it has its real status.
#[tokio::test]
async fn a_first_event_that_is_an_error_is_a_status() {
    for (adapter, path, preset, status) in [
        ("openai", CHAT, "openai.stream_error", 500),
        ("openai", "/v1/responses", "responses.stream_failed", 503),
        (
            "anthropic",
            "/v1/messages",
            "anthropic.stream_overloaded",
            529,
        ),
        (
            "anthropic",
            "/v1/messages",
            "anthropic.ping_then_error",
            500,
        ),
    ] {
        let mock =
            |answer: &str| format!("{{ adapter: {adapter}, mock: {{ answers: [{answer}] }} }}");
        let wide = ", fallback_strategy: [http_429, http_5xx]";
        let rondo = Rondo::start(&two_with(&mock(preset), &mock("ok"), wide)).await;
        let answer = call(rondo.addr, post(path, chat_body("m", true))).await;
        assert_eq!(answer.status, 200, "{preset}: {answer:?}");
        assert_eq!(answer.header("x-rondo-target"), Some("second"), "{preset}");
        let starts = answer.text().matches("message_start\"").count();
        assert!(
            starts <= 1,
            "{preset}: the preamble of the first target was passed on"
        );
        rondo.assert_quiet().await;

        let rondo = Rondo::start(&two_with(&mock(preset), &mock(preset), wide)).await;
        let mut client = Connection::h1(rondo.addr).await;
        for _ in 0..2 {
            let answer = client.call(post(path, chat_body("m", true))).await;
            assert_eq!(answer.status, status, "{preset}: {answer:?}");
            assert_eq!(
                answer.header("content-type"),
                Some("application/json"),
                "{preset}"
            );
            assert!(
                answer.json().get("error").is_some(),
                "{preset}: {}",
                answer.text()
            );
            assert_eq!(answer.header("x-rondo-attempts"), Some("2"), "{preset}");
        }
        rondo.assert_quiet().await;
    }
}

// R-A4: at a bound a stream is committed as it is, and what follows is the client's.
#[tokio::test]
async fn a_stream_that_says_nothing_is_held_no_longer_than_the_bounds() {
    for filler in [
        format!(": {}\n\n", "x".repeat(70_000)),
        ": ping\n\n".to_owned(),
    ] {
        let stage = Stage::h1(EVENTS).await;
        let rondo = Rondo::start(&two(&stage.upstream.provider(""), MOCK_OK)).await;
        let mut client = Connection::h1(rondo.addr).await;
        stage.say(&filler);
        let answer = soon(client.send(ask())).await.unwrap();
        assert_eq!(answer.headers()["x-rondo-target"], "first");
        stage.say(&format!("data: {FRAME}\n\n"));
        stage.end();
        let (text, ended) = rest(answer.into_body()).await;
        assert_eq!(text, format!("{filler}data: {FRAME}\n\n"));
        assert!(ended);
        assert_eq!(rondo.mock("two").sends(), 0);
        rondo.assert_quiet().await;
    }
}

// R-X4, C143: what is compressed is neither read nor changed.
#[tokio::test]
async fn a_compressed_stream_passes_unchanged() {
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-encoding: gzip\r\ntransfer-encoding: chunked\r\n\r\n";
    let stage = Stage::h1(head).await;
    let rondo = Rondo::start(&two(&stage.upstream.provider(""), MOCK_OK)).await;
    let mut client = Connection::h1(rondo.addr).await;
    let bytes: Vec<u8> = (0..=255).cycle().skip(31).take(5000).collect();
    stage.steps.send(Step::Bytes(bytes[..7].to_vec())).unwrap();
    let answer = soon(client.send(ask())).await.unwrap();
    assert_eq!(answer.headers()["content-encoding"], "gzip");
    stage.steps.send(Step::Bytes(bytes[7..].to_vec())).unwrap();
    stage.end();
    let body = soon(answer.into_body().collect()).await.unwrap().to_bytes();
    assert_eq!(body, bytes);
    rondo.assert_quiet().await;
}

// R-X4: trailers pass from HTTP/2 to HTTP/2.
#[tokio::test]
async fn trailers_pass_over_http2() {
    let one = Upstream::start(|mut link| async move {
        link.greet(&[]).await;
        while let Some(stream) = link.stream().await {
            link.head_h2(stream, "200", "text/event-stream").await;
            link.frame(DATA, 0, stream, delta("x").as_bytes()).await;
            let block = [&[0x00, 4][..], b"x-tr", &[3], b"end"].concat();
            link.frame(HEADERS, END_HEADERS | END_STREAM, stream, &block)
                .await;
        }
    })
    .await;
    let rondo = Rondo::start(&two(&one.provider(", http2: true"), MOCK_OK)).await;
    let mut client = Connection::h2(rondo.addr).await;
    for _ in 0..2 {
        let answer = soon(client.send(ask())).await.unwrap();
        let body = soon(answer.into_body().collect()).await.unwrap();
        assert_eq!(body.trailers().unwrap()["x-tr"], "end");
        assert_eq!(body.to_bytes(), delta("x"));
    }
    // An HTTP/1.1 client gets the body.
    assert_eq!(call(rondo.addr, ask()).await.text(), delta("x"));
    assert_eq!(one.connections(), 1);
    rondo.assert_quiet().await;
}

/// A stream in the dialect of a path, begun and then broken: the last event the client sees, and that it sees no proper end.
async fn check_broken(adapter: &str, path: &str, begun: &str, wanted: &str, idle: bool) {
    for down_h2 in [false, true] {
        let stage = Stage::h1(EVENTS).await;
        let provider = format!(
            "{{ adapter: {adapter}, base_url: \"http://{}\", timeouts: {{ idle_ms: {} }} }}",
            stage.upstream.addr,
            if idle { 100 } else { 60_000 }
        );
        let rondo = Rondo::start(&two(&provider, &provider)).await;
        let mut client = match down_h2 {
            true => Connection::h2(rondo.addr).await,
            false => Connection::h1(rondo.addr).await,
        };
        stage.say(begun);
        let asked = post(path, chat_body("m", true));
        let answer = soon(client.send(asked)).await.unwrap();
        assert_eq!(answer.status(), 200);
        if !idle {
            stage.cut();
        }
        let (text, ended) = rest(answer.into_body()).await;
        let case = format!("{path} h2: {down_h2} idle: {idle}: {text}");
        assert!(!ended, "{case}");
        assert!(text.starts_with(begun), "{case}");
        assert!(!text.contains("[DONE]"), "{case}");
        assert!(
            text.trim_start_matches(begun)
                .trim_start()
                .starts_with(wanted),
            "{case}"
        );
        assert!(
            text.contains("stream_interrupted") || text.contains("STREAM_INTERRUPTED"),
            "{case}"
        );
        assert!(text.ends_with("\n\n"), "{case}");
        assert_eq!(stage.upstream.requests(), 1, "{case}");
        rondo.idle().await;
        let failed = rondo.metric("rondo_requests_total", &["status=\"200\""]);
        let succeeded = rondo.metric("rondo_requests_total", &["outcome=\"succeeded\""]);
        assert_eq!((failed, succeeded), (1.0, 0.0), "{case}");
        rondo.assert_quiet().await;
    }
}

// R-N, C33 C35 C42 C168
#[tokio::test]
async fn a_broken_stream_ends_with_an_error_and_never_as_if_whole() {
    let message = "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"id\":\"m\",\"usage\":{}}}\n\nevent: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"x\"}}\n\n";
    let responses = "event: response.output_text.delta\ndata: {\"type\":\"response.output_text.delta\",\"delta\":\"x\"}\n\n";
    let gemini = "data: {\"candidates\":[{\"content\":{\"parts\":[{\"text\":\"x\"}]}}]}\r\n\r\n";
    for idle in [false, true] {
        check_broken("openai", CHAT, &delta("x"), "data: {\"error\":", idle).await;
        check_broken(
            "anthropic",
            "/v1/messages",
            message,
            "event: error\ndata: {\"type\":\"error\"",
            idle,
        )
        .await;
        check_broken(
            "openai",
            "/v1/responses",
            responses,
            "event: error\ndata: {\"type\":\"error\"",
            idle,
        )
        .await;
        let path = "/v1beta/models/m:streamGenerateContent?alt=sse";
        check_broken("gemini", path, gemini, "data: {\"error\":", idle).await;
    }
}

// C33: a plain body that breaks is cut, so that the client notices.
#[tokio::test]
async fn a_broken_body_is_cut() {
    let head =
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n";
    for down_h2 in [false, true] {
        let stage = Stage::h1(head).await;
        let rondo = Rondo::start(&two(&stage.upstream.provider(""), MOCK_OK)).await;
        let mut client = match down_h2 {
            true => Connection::h2(rondo.addr).await,
            false => Connection::h1(rondo.addr).await,
        };
        stage.say("{\"id\":");
        let answer = soon(client.send(post(CHAT, chat_body("m", false))))
            .await
            .unwrap();
        stage.cut();
        assert_eq!(
            rest(answer.into_body()).await,
            ("{\"id\":".to_owned(), false)
        );
        assert_eq!(rondo.mock("two").sends(), 0);
        rondo.assert_quiet().await;
    }
}

// A stream of Gemini without `alt=sse` is one JSON array.
#[tokio::test]
async fn a_gemini_array_is_followed_element_by_element() {
    let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json; charset=UTF-8\r\ntransfer-encoding: chunked\r\n\r\n";
    let path = "/v1beta/models/m:streamGenerateContent";
    let gemini = |stage: &Stage| {
        format!(
            "{{ adapter: gemini, base_url: \"http://{}\" }}",
            stage.upstream.addr
        )
    };
    let ok = "{ adapter: gemini, mock: { answers: [ok] } }";
    let stage = Stage::h1(head).await;
    let rondo = Rondo::start(&two(&gemini(&stage), ok)).await;
    let mut client = Connection::h1(rondo.addr).await;
    let element = r#"{"candidates":[{"content":{"parts":[{"text":"x"}]}}]}"#;
    stage.say("[");
    stage.say(element);
    let answer = soon(client.send(post(path, "{\"contents\":[]}")))
        .await
        .unwrap();
    let mut body = answer.into_body();
    let mut read = String::new();
    while read.len() < element.len() + 1 {
        read.push_str(std::str::from_utf8(&next(&mut body).await.unwrap().unwrap()).unwrap());
    }
    stage.say(",\r\n");
    stage.say(element);
    stage.say("]");
    stage.end();
    let (text, ended) = rest(body).await;
    assert_eq!(
        format!("{read}{text}"),
        format!("[{element},\r\n{element}]")
    );
    assert!(ended);

    stage.say(r#"[{"error":{"code":429,"message":"x","status":"RESOURCE_EXHAUSTED"}}"#);
    stage.say("]");
    stage.end();
    let answer = client.call(post(path, "{\"contents\":[]}")).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    assert_eq!(
        answer.header("x-rondo-target"),
        Some("second"),
        "{answer:?}"
    );
    rondo.assert_quiet().await;
}

// An answer without a body.
#[tokio::test]
async fn an_answer_without_a_body_is_whole() {
    let one = Upstream::start(|mut link| async move {
        while link.request().await.is_some() {
            link.write("HTTP/1.1 204 No Content\r\n\r\n").await;
        }
    })
    .await;
    let rondo = Rondo::start(&two(&one.provider(""), MOCK_OK)).await;
    for down_h2 in [false, true] {
        let mut client = match down_h2 {
            true => Connection::h2(rondo.addr).await,
            false => Connection::h1(rondo.addr).await,
        };
        for _ in 0..2 {
            let answer = client.call(ask()).await;
            assert_eq!((answer.status.as_u16(), answer.body.len()), (204, 0));
        }
    }
    assert_eq!(one.connections(), 1);
    rondo.assert_quiet().await;
}

// R-D2: an error answer keeps its status, type and body, and the connections on both sides go on.
#[tokio::test]
async fn an_error_answer_passes_as_it_came() {
    for http2 in [false, true] {
        let answers = "[openai.context, { status: 400, body: plain, headers: { content-type: text/plain } }, { status: 404, body: { error: { message: no } }, content_length: chunked }, { status: 500, body: '' }, nginx.503]";
        let first =
            format!("{{ adapter: openai, http2: {http2}, mock: {{ answers: {answers} }} }}");
        let rondo = Rondo::start(&two(&first, MOCK_OK)).await;
        let mut client = Connection::h1(rondo.addr).await;
        for (status, begins) in [
            (400, "{\"error\""),
            (400, "plain"),
            (404, "{\"error\""),
            (500, ""),
            (503, "<html>"),
        ] {
            let answer = client.call(ask()).await;
            assert_eq!(answer.status, status, "{answer:?}");
            assert!(answer.text().starts_with(begins), "{answer:?}");
            assert_eq!(answer.header("x-rondo-target"), Some("first"));
        }
        assert_eq!(rondo.mock("one").connections_opened(), 1);
        rondo.assert_quiet().await;
    }
}

// C42 (3): a line that is no JSON is the client's to judge.
#[tokio::test]
async fn a_broken_line_passes() {
    let stage = Stage::h1(EVENTS).await;
    let rondo = Rondo::start(&two(&stage.upstream.provider(""), MOCK_OK)).await;
    let mut client = RawClient::connect(rondo.addr).await;
    client
        .write(&post_text(CHAT, "", &chat_body("m", true)))
        .await;
    stage.say("data: {\"choi\n\n");
    client.read_to("data: {\"choi\n\n").await;
    stage.say(&delta("x"));
    client.read_to(&delta("x")).await;
    stage.say("data: [DONE]\n\n");
    stage.end();
    client.read_to("data: [DONE]\n\n\r\n0\r\n\r\n").await;
    rondo.assert_quiet().await;
}

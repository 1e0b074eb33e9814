//! The scripted provider on real sockets, driven by a raw HTTP/1.1 client and by h2.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use rondo::mock::{
    Clock, MockServer, Place, Plan, Preset, Question, Recorder, Script, Setup, body_hash,
};
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Nothing here takes long; a hang is a failure.
const PATIENCE: Duration = Duration::from_secs(20);

const CHAT: &str = "/v1/chat/completions";
const HELLO: &str = r#"{"model":"gpt-4o","messages":[{"role":"user","content":"Hi"}]}"#;
const HELLO_STREAM: &str =
    r#"{"model":"gpt-4o","stream":true,"messages":[{"role":"user","content":"Hi"}]}"#;

fn script(text: &str) -> Script {
    Script::parse(text).unwrap_or_else(|error| panic!("{text}\n{error}"))
}

fn listener() -> TcpListener {
    TcpListener::bind("127.0.0.1:0").unwrap()
}

fn start(text: &str) -> MockServer {
    MockServer::start("primary", script(text), listener()).unwrap()
}

async fn soon<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future)
        .await
        .expect("nothing happened in time")
}

/// What a client read until the connection ended.
#[derive(Debug)]
struct Answer {
    status: u16,
    head: String,
    body: Vec<u8>,
    /// Whether the body ended as its framing says.
    is_whole: bool,
}

impl Answer {
    fn read(bytes: &[u8]) -> Answer {
        let at = bytes
            .windows(4)
            .position(|four| four == b"\r\n\r\n")
            .expect("a header");
        let head = String::from_utf8(bytes[..at].to_vec())
            .unwrap()
            .to_lowercase();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        let rest = &bytes[at + 4..];
        let mut answer = Answer {
            status,
            head,
            body: rest.to_vec(),
            is_whole: true,
        };
        if answer.header("transfer-encoding") == Some("chunked") {
            (answer.body, answer.is_whole) = dechunked(rest);
        } else if let Some(length) = answer.header("content-length") {
            answer.is_whole = rest.len() == length.parse::<usize>().unwrap();
        }
        answer
    }

    fn header(&self, name: &str) -> Option<&str> {
        let lines = self.head.lines().skip(1);
        let mut fields = lines.filter_map(|line| line.split_once(": "));
        fields
            .find(|(known, _)| *known == name)
            .map(|(_, value)| value)
    }

    fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }

    fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{self:?}: {error}"))
    }

    /// The JSON of every event, `[DONE]` aside.
    fn events(&self) -> Vec<Value> {
        let data = self
            .text()
            .lines()
            .filter_map(|line| line.strip_prefix("data: "));
        let json = data.filter(|data| *data != "[DONE]");
        json.map(|data| serde_json::from_str(data).unwrap_or_else(|e| panic!("{data}: {e}")))
            .collect()
    }
}

fn dechunked(mut rest: &[u8]) -> (Vec<u8>, bool) {
    let mut body = Vec::new();
    loop {
        let Some(at) = rest.windows(2).position(|two| two == b"\r\n") else {
            return (body, false);
        };
        let size = std::str::from_utf8(&rest[..at]).unwrap();
        let size = usize::from_str_radix(size, 16).unwrap();
        let from = at + 2;
        if size == 0 {
            return (body, true);
        }
        if rest.len() < from + size {
            body.extend_from_slice(&rest[from..]);
            return (body, false);
        }
        body.extend_from_slice(&rest[from..from + size]);
        rest = &rest[from + size + 2..];
    }
}

fn request(path: &str, extra: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    format!(
        "POST {path} HTTP/1.1\r\nhost: mock\r\nconnection: close\r\n{extra}content-length: {length}\r\n\r\n{body}"
    )
    .into_bytes()
}

/// Everything that comes back on a connection of its own, and how it ended.
async fn raw(addr: SocketAddr, bytes: &[u8]) -> (Vec<u8>, io::Result<usize>) {
    let mut tcp = TcpStream::connect(addr).await.unwrap();
    tcp.write_all(bytes).await.unwrap();
    let mut read = Vec::new();
    let end = soon(tcp.read_to_end(&mut read)).await;
    (read, end)
}

async fn post(addr: SocketAddr, path: &str, body: &str) -> Answer {
    post_with(addr, path, "", body).await
}

async fn post_with(addr: SocketAddr, path: &str, extra: &str, body: &str) -> Answer {
    let (read, end) = raw(addr, &request(path, extra, body)).await;
    end.unwrap();
    Answer::read(&read)
}

// --- Presets ---------------------------------------------------------------------------------------------------------------------------------------

#[tokio::test]
async fn every_preset_that_answers_is_well_formed() {
    for (name, preset) in Preset::ALL {
        assert_eq!(Preset::from_name(name), Some(preset));
        if matches!(preset, Preset::Hang | Preset::Reset) {
            continue;
        }
        let server = start(&format!("answers: [{name}]"));
        let answer = post(server.addr(), CHAT, HELLO).await;
        assert!(answer.is_whole, "{name}");
        match answer.header("content-type") {
            Some(media) if media.starts_with("text/event-stream") => {
                assert!(answer.text().ends_with("\n\n"), "{name}");
                assert!(!answer.events().is_empty(), "{name}");
            }
            Some(media) if media.starts_with("application/json") => {
                assert!(answer.json().is_object(), "{name}");
            }
            Some(media) => assert_eq!((name, media), ("nginx.503", "text/html")),
            None => assert_eq!((name, answer.text()), ("openai.throttle_uncertified", "")),
        }
        let seen = soon(server.recorder().wait_for_bodies(1)).await;
        assert_eq!(seen[0].answer.as_deref(), Some(name));
        assert!(seen[0].closed_by_client.is_none(), "{name}");
        server.stop().await;
    }
}

/// Status, and the place in the JSON that tells the kind of error.
#[tokio::test]
async fn errors_have_the_codes_of_their_providers() {
    let table = [
        ("openai.throttle", 429, "/error/code", "rate_limit_exceeded"),
        ("openai.quota", 429, "/error/code", "insufficient_quota"),
        (
            "openai.overloaded",
            503,
            "/error/code",
            "server_is_overloaded",
        ),
        ("openai.server_error", 500, "/error/code", "server_error"),
        ("openai.auth", 401, "/error/code", "invalid_api_key"),
        (
            "openai.context",
            400,
            "/error/code",
            "context_length_exceeded",
        ),
        (
            "openai.content_policy",
            400,
            "/error/code",
            "content_policy_violation",
        ),
        ("openai.not_found", 404, "/error/code", "model_not_found"),
        ("anthropic.throttle", 429, "/error/type", "rate_limit_error"),
        (
            "anthropic.overloaded",
            529,
            "/error/type",
            "overloaded_error",
        ),
        (
            "anthropic.spend_limit",
            429,
            "/error/details/error_code",
            "enforced_spend_limit_reached",
        ),
        ("anthropic.auth", 401, "/error/type", "authentication_error"),
        ("anthropic.server_error", 500, "/error/type", "api_error"),
        ("gemini.throttle", 429, "/error/details/1/retryDelay", "1s"),
        ("gemini.quota", 429, "/error/status", "RESOURCE_EXHAUSTED"),
        ("gemini.unavailable", 503, "/error/status", "UNAVAILABLE"),
    ];
    for (name, status, place, value) in table {
        let server = start(&format!("answers: [{name}]"));
        let answer = post(server.addr(), CHAT, HELLO).await;
        assert_eq!(answer.status, status, "{name}");
        assert_eq!(
            answer.json().pointer(place).and_then(Value::as_str),
            Some(value),
            "{name}"
        );
    }
}

#[tokio::test]
async fn a_generic_throttle_speaks_the_dialect_of_the_path() {
    let server = start("answers: [throttle]");
    let openai = post(server.addr(), "/v1/responses", HELLO).await;
    assert_eq!(openai.json()["error"]["code"], "rate_limit_exceeded");
    assert_eq!(openai.header("retry-after"), Some("1"));
    let anthropic = post(server.addr(), "/v1/messages", HELLO).await;
    assert_eq!(anthropic.json()["error"]["type"], "rate_limit_error");
    assert!(anthropic.header("request-id").is_some());
    let gemini = post(server.addr(), "/v1beta/models/g:generateContent", "{}").await;
    assert_eq!(gemini.json()["error"]["status"], "RESOURCE_EXHAUSTED");
    server.set_script(script("answers: [overloaded]"));
    let statuses = [CHAT, "/v1/messages", "/v1beta/models/g:generateContent"];
    for (path, status) in statuses.into_iter().zip([503, 529, 503]) {
        assert_eq!(post(server.addr(), path, HELLO).await.status, status);
    }
}

#[tokio::test]
async fn ok_answers_in_the_format_of_the_path() {
    let server = start("");
    let table = [
        (CHAT, "/choices/0/message/content", "Hello from primary"),
        ("/v1/completions", "/choices/0/text", "Hello from primary"),
        (
            "/openai/v1/responses",
            "/output/0/content/0/text",
            "Hello from primary",
        ),
        ("/v1/embeddings", "/data/0/object", "embedding"),
        ("/v1/messages", "/content/0/text", "Hello from primary"),
        (
            "/v1beta/models/g:generateContent",
            "/candidates/0/content/parts/0/text",
            "Hello from primary",
        ),
    ];
    for (path, place, value) in table {
        let answer = post(server.addr(), path, HELLO).await;
        let json = answer.json();
        assert_eq!(
            (answer.status, answer.header("content-type")),
            (200, Some("application/json"))
        );
        assert_eq!(
            json.pointer(place).and_then(Value::as_str),
            Some(value),
            "{path}"
        );
        let model = json.get("model").or(json.get("modelVersion"));
        assert_eq!(model, Some(&Value::from("gpt-4o")), "{path}");
    }
    let usage = post(server.addr(), CHAT, HELLO).await.json()["usage"].clone();
    assert_eq!(usage["completion_tokens"], 3);
    let counted = post(server.addr(), "/v1/messages/count_tokens", HELLO)
        .await
        .json();
    assert_eq!(counted["input_tokens"], HELLO.len() / 4);
    let counted = post(server.addr(), "/v1beta/models/g:countTokens", "{}")
        .await
        .json();
    assert_eq!(counted["totalTokens"], 1);
    let embedded = post(server.addr(), "/v1beta/models/g:embedContent", "{}")
        .await
        .json();
    assert!(embedded["embedding"]["values"].is_array());
}

/// The text of a stream, joined from the places where its deltas stand.
fn streamed(answer: &Answer, place: &str) -> String {
    let events = answer.events();
    events
        .iter()
        .filter_map(|event| event.pointer(place)?.as_str())
        .collect()
}

#[tokio::test]
async fn ok_streams_when_the_request_asks_for_it() {
    let server = start("answers: [{preset: ok, text: 'Grüße \"a\" b'}]");
    let gemini = "/v1beta/models/g:streamGenerateContent?alt=sse";
    let table = [
        (CHAT, "/choices/0/delta/content"),
        ("/v1/completions", "/choices/0/text"),
        ("/v1/responses", "/delta"),
        ("/v1/messages", "/delta/text"),
        (gemini, "/candidates/0/content/parts/0/text"),
    ];
    for (path, place) in table {
        let answer = post(server.addr(), path, HELLO_STREAM).await;
        assert_eq!(
            answer.header("content-type"),
            Some("text/event-stream; charset=utf-8")
        );
        assert_eq!(streamed(&answer, place), "Grüße \"a\" b", "{path}");
    }
    let chat = post(server.addr(), CHAT, HELLO_STREAM).await;
    assert!(chat.text().ends_with("data: [DONE]\n\n"));
    assert_eq!(
        chat.events().last().unwrap()["usage"]["completion_tokens"],
        3
    );
    let responses = post(server.addr(), "/v1/responses", HELLO_STREAM).await;
    let numbers: Vec<u64> = responses
        .events()
        .iter()
        .map(|e| e["sequence_number"].as_u64().unwrap())
        .collect();
    assert_eq!(numbers, (0..numbers.len() as u64).collect::<Vec<_>>());
    let last = responses.events().pop().unwrap();
    assert_eq!(last["response"]["usage"]["output_tokens"], 3);
    let messages = post(server.addr(), "/v1/messages", HELLO_STREAM).await;
    assert_eq!(messages.events().last().unwrap()["type"], "message_stop");
    let array = post(
        server.addr(),
        "/v1beta/models/g:streamGenerateContent",
        "{}",
    )
    .await;
    assert_eq!(array.json().as_array().unwrap().len(), 3);
}

#[tokio::test]
async fn tools_calls_the_first_tool_in_pieces() {
    let server = start("answers: [tools]");
    let chat = r#"{"stream":true,"tools":[{"type":"function","function":{"name":"weather"}}]}"#;
    let answer = post(server.addr(), CHAT, chat).await;
    let place = "/choices/0/delta/tool_calls/0/function/arguments";
    assert_eq!(streamed(&answer, place), r#"{"city":"Paris"}"#);
    assert_eq!(
        streamed(&answer, "/choices/0/delta/tool_calls/0/function/name"),
        "weather"
    );
    assert_eq!(streamed(&answer, "/choices/0/finish_reason"), "tool_calls");
    let flat = r#"{"stream":true,"tools":[{"name":"weather"}]}"#;
    let answer = post(server.addr(), "/v1/messages", flat).await;
    assert_eq!(
        streamed(&answer, "/delta/partial_json"),
        r#"{"city":"Paris"}"#
    );
    let answer = post(server.addr(), "/v1/responses", flat).await;
    assert_eq!(streamed(&answer, "/delta"), r#"{"city":"Paris"}"#);
    let gemini = r#"{"tools":[{"functionDeclarations":[{"name":"weather"}]}]}"#;
    let answer = post(server.addr(), "/v1beta/models/g:generateContent", gemini).await;
    let call = "/candidates/0/content/parts/0/functionCall/args/city";
    assert_eq!(answer.json().pointer(call), Some(&Value::from("Paris")));
    // Without tools in the request it talks.
    let answer = post(server.addr(), CHAT, HELLO).await;
    assert_eq!(
        answer.json()["choices"][0]["message"]["content"],
        "Hello from primary"
    );
}

// --- Overrides and bodies ----------------------------------------------------------------------------------------------------------------------------

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

// --- Leaving clients ---------------------------------------------------------------------------------------------------------------------------------

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_leaves_is_noticed() {
    for answer in [
        "{silence: true}",
        "hang",
        "{status: 200, body: hello, silence_after: 2}",
        "{sse: [{data: a}, {silence: true}]}",
        "{sse: [{data: a}, {data: b, gap_ms: 80000000}]}",
        "{preset: ok, delay_ms: 80000000}",
    ] {
        let server = start(&format!("answers: [{answer}]"));
        let mut tcp = TcpStream::connect(server.addr()).await.unwrap();
        tcp.write_all(&request(CHAT, "", HELLO)).await.unwrap();
        soon(
            server
                .recorder()
                .wait_until(|seen| seen.iter().any(|s| s.place.is_some())),
        )
        .await;
        assert!(
            server.recorder().requests()[0].closed_by_client.is_none(),
            "{answer}"
        );
        drop(tcp);
        let seen = soon(server.recorder().wait_for_closed(1)).await;
        assert!(
            seen[0].body_complete && seen[0].answered.is_none(),
            "{answer}"
        );
        soon(server.recorder().wait_for_connections_closed(1)).await;
    }
}

#[tokio::test]
async fn a_client_that_leaves_inside_its_body_is_noticed() {
    let server = start("");
    let mut tcp = TcpStream::connect(server.addr()).await.unwrap();
    let bytes = request(CHAT, "", HELLO);
    tcp.write_all(&bytes[..bytes.len() - 10]).await.unwrap();
    soon(server.recorder().wait_for(1)).await;
    drop(tcp);
    let seen = soon(server.recorder().wait_for_closed(1)).await;
    assert!(!seen[0].body_complete && seen[0].answer.is_none());
    assert_eq!(
        (server.recorder().sends(), server.recorder().bodies()),
        (1, 0)
    );
}

#[tokio::test]
async fn silence_after_sends_what_comes_before() {
    let server = start("answers: [{status: 200, body: hello, silence_after: 2}]");
    let mut tcp = TcpStream::connect(server.addr()).await.unwrap();
    tcp.write_all(&request(CHAT, "", HELLO)).await.unwrap();
    let mut read = Vec::new();
    while !read.ends_with(b"\r\n\r\nhe") {
        assert_ne!(soon(tcp.read_buf(&mut read)).await.unwrap(), 0);
    }
}

#[tokio::test]
async fn an_early_answer_does_not_wait_for_the_body() {
    let server = start("answers: [{preset: openai.auth, answer_early: true}]");
    let mut tcp = TcpStream::connect(server.addr()).await.unwrap();
    let bytes = request(CHAT, "", HELLO);
    let (first, rest) = bytes.split_at(bytes.len() - 10);
    tcp.write_all(first).await.unwrap();
    let mut read = Vec::new();
    while !read.windows(4).any(|four| four == b"\r\n\r\n") {
        assert_ne!(soon(tcp.read_buf(&mut read)).await.unwrap(), 0);
    }
    assert!(read.starts_with(b"HTTP/1.1 401"));
    assert!(!server.recorder().requests()[0].body_complete);
    tcp.write_all(rest).await.unwrap();
    let seen = soon(server.recorder().wait_for_bodies(1)).await;
    assert_eq!(seen[0].body, HELLO);
}

// --- Recorder --------------------------------------------------------------------------------------------------------------------------------------

#[tokio::test]
async fn requests_are_recorded() {
    let recorder = Recorder::default();
    let runtime = tokio::runtime::Handle::current();
    let setup = Setup {
        recorder: recorder.clone(),
        clock: Clock::running(),
    };
    let [one, two] = ["one", "two"].map(|name| {
        MockServer::start_in(&runtime, name, script(""), listener(), setup.clone()).unwrap()
    });
    let id = "x-request-id: r1\r\n";
    post_with(one.addr(), "/v1/messages?beta=true", id, HELLO).await;
    post_with(two.addr(), CHAT, id, HELLO).await;
    let large = format!(r#"{{"model":"m","pad":"{}"}}"#, "y".repeat(300_000));
    let answer = post(two.addr(), CHAT, &large).await;
    assert_eq!(answer.json()["model"], "m");
    let seen = soon(recorder.wait_for_bodies(3)).await;
    assert_eq!(
        (&*seen[0].server, &*seen[1].server, &*seen[2].server),
        ("one", "two", "two")
    );
    assert_eq!(
        (seen[0].path.as_str(), seen[0].query.as_deref()),
        ("/v1/messages", Some("beta=true"))
    );
    assert_eq!((seen[0].method.as_str(), seen[0].is_http2), ("POST", false));
    assert_eq!(
        (seen[0].request_id(), seen[0].header("host")),
        (Some("r1"), Some("mock"))
    );
    assert_eq!(
        (seen[1].body_hash, seen[1].body_len),
        (body_hash(HELLO.as_bytes()), 62)
    );
    assert_eq!(
        (seen[2].body_hash, seen[2].body.len()),
        (body_hash(large.as_bytes()), 65_536)
    );
    assert_eq!(seen[2].body_len, large.len() as u64);
    assert_eq!(
        recorder.duplicates().into_iter().collect::<Vec<_>>(),
        [("r1".to_owned(), 2)]
    );
    assert_eq!(
        (
            recorder.sends(),
            recorder.bodies(),
            recorder.connections_opened()
        ),
        (3, 3, 3)
    );
    assert_eq!(recorder.requests_of("two").len(), 2);
    assert!(
        seen.iter()
            .all(|seen| seen.answered.is_some() && seen.closed_by_client.is_none())
    );
}

#[tokio::test]
async fn a_connection_is_kept_for_the_next_request() {
    let server = start("answers: [openai.throttle, ok]");
    let mut tcp = TcpStream::connect(server.addr()).await.unwrap();
    let bytes = String::from_utf8(request(CHAT, "", HELLO)).unwrap();
    tcp.write_all(bytes.replace("connection: close\r\n", "").as_bytes())
        .await
        .unwrap();
    let mut read = Vec::new();
    while !read.ends_with(b"\"rate_limit_exceeded\"}}") {
        assert_ne!(soon(tcp.read_buf(&mut read)).await.unwrap(), 0);
    }
    tcp.write_all(bytes.as_bytes()).await.unwrap();
    let mut read = Vec::new();
    soon(tcp.read_to_end(&mut read)).await.unwrap();
    assert_eq!(Answer::read(&read).status, 200);
    let seen = server.recorder().requests();
    assert_eq!((seen[0].connection_id, seen[1].connection_id), (1, 1));
    assert_eq!(
        (seen[0].answer_index(), seen[1].answer_index()),
        (Some(0), Some(1))
    );
}

#[tokio::test]
async fn stop_ends_connections_and_frees_the_port() {
    let server = start("answers: [hang]");
    let (addr, recorder) = (server.addr(), server.recorder().clone());
    let mut tcp = TcpStream::connect(addr).await.unwrap();
    tcp.write_all(&request(CHAT, "", HELLO)).await.unwrap();
    soon(recorder.wait_for_bodies(1)).await;
    soon(server.stop()).await;
    assert_eq!(recorder.connections_closed(), 1);
    assert!(recorder.requests()[0].closed_by_client.is_none());
    let _ = soon(tcp.read(&mut [0; 1])).await;
    assert!(TcpStream::connect(addr).await.is_err());
}

// --- HTTP/2 ----------------------------------------------------------------------------------------------------------------------------------------

type Sender = h2::client::SendRequest<Bytes>;

async fn connect_h2(addr: SocketAddr) -> Sender {
    let tcp = TcpStream::connect(addr).await.unwrap();
    let (sender, connection) = h2::client::handshake(tcp).await.unwrap();
    tokio::spawn(connection);
    soon(sender.ready()).await.unwrap()
}

fn send_h2(sender: &mut Sender, path: &str) -> (h2::client::ResponseFuture, h2::SendStream<Bytes>) {
    let uri = format!("http://mock{path}");
    let request = http::Request::post(uri).body(()).unwrap();
    let (response, mut stream) = sender.send_request(request, false).unwrap();
    stream
        .send_data(Bytes::from_static(HELLO.as_bytes()), true)
        .unwrap();
    (response, stream)
}

async fn body_h2(response: h2::client::ResponseFuture) -> (u16, Vec<u8>, Option<h2::Error>) {
    let response = soon(response).await.unwrap();
    let (status, mut body) = (response.status().as_u16(), response.into_body());
    let mut read = Vec::new();
    while let Some(data) = soon(body.data()).await {
        match data {
            Ok(data) => {
                let _ = body.flow_control().release_capacity(data.len());
                read.extend_from_slice(&data);
            }
            Err(error) => return (status, read, Some(error)),
        }
    }
    (status, read, None)
}

#[tokio::test]
async fn http2_with_prior_knowledge_shares_the_port() {
    let server = start("answers: [ok, openai.throttle, {preset: ok, gap_ms: 1}]");
    let mut sender = connect_h2(server.addr()).await;
    let (response, _stream) = send_h2(&mut sender, CHAT);
    let (status, body, error) = body_h2(response).await;
    assert_eq!((status, error.is_none()), (200, true));
    let json: Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(
        json["choices"][0]["message"]["content"],
        "Hello from primary"
    );
    let (response, _stream) = send_h2(&mut sender, CHAT);
    assert_eq!(body_h2(response).await.0, 429);
    let (response, _stream) = send_h2(
        &mut sender,
        "/v1beta/models/gem:streamGenerateContent?alt=sse",
    );
    let (_, body, _) = body_h2(response).await;
    assert_eq!(
        String::from_utf8(body).unwrap().matches("data: ").count(),
        3
    );
    assert_eq!(post(server.addr(), CHAT, HELLO).await.status, 200);
    let seen = server.recorder().requests();
    let ids: Vec<_> = seen
        .iter()
        .map(|seen| (seen.connection_id, seen.is_http2))
        .collect();
    assert_eq!(ids, [(1, true), (1, true), (1, true), (2, false)]);
    assert!(
        seen.iter()
            .all(|seen| seen.body_complete && seen.answered.is_some())
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_that_is_reset_is_noticed_and_the_connection_stays() {
    let server = start("answers: [hang, {sse: [{data: a}, {silence: true}]}, ok]");
    let mut sender = connect_h2(server.addr()).await;
    let (response, mut stream) = send_h2(&mut sender, CHAT);
    soon(
        server
            .recorder()
            .wait_until(|seen| seen.iter().any(|s| s.place.is_some())),
    )
    .await;
    stream.send_reset(h2::Reason::CANCEL);
    drop(response);
    soon(server.recorder().wait_for_closed(1)).await;
    let (response, mut stream) = send_h2(&mut sender, CHAT);
    let mut body = soon(response).await.unwrap().into_body();
    assert_eq!(soon(body.data()).await.unwrap().unwrap(), "data: a\n\n");
    stream.send_reset(h2::Reason::CANCEL);
    soon(server.recorder().wait_for_closed(2)).await;
    let (response, _stream) = send_h2(&mut sender, CHAT);
    assert_eq!(body_h2(response).await.0, 200);
    assert_eq!(server.recorder().connections_opened(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_http2_body_breaks_off_after_its_bytes() {
    let body = "x".repeat(3_000_000);
    for cut in [0, 1, 4, 100_000, 2_000_000] {
        let server = start(&format!("answers: [{{body: {body}, abort_after: {cut}}}]"));
        let mut sender = connect_h2(server.addr()).await;
        let (response, _stream) = send_h2(&mut sender, CHAT);
        let (status, read, error) = body_h2(response).await;
        assert_eq!((status, read.len()), (200, cut));
        assert!(error.is_some(), "the stream ended well");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_http2_connection_can_end_without_a_header() {
    for abort in ["{abort: before_head}", "reset"] {
        let server = start(&format!("answers: [{abort}]"));
        let mut sender = connect_h2(server.addr()).await;
        let (response, _stream) = send_h2(&mut sender, CHAT);
        assert!(soon(response).await.is_err());
        let seen = soon(server.recorder().wait_for_bodies(1)).await;
        assert!(seen[0].closed_by_client.is_none());
    }
}

// --- Plan ----------------------------------------------------------------------------------------------------------------------------------------

/// The indexes that a plan gives to so many questions.
fn indexes(plan: &mut Plan, count: usize) -> Vec<usize> {
    (0..count)
        .map(|_| plan.next(Question::default()).place.index())
        .collect()
}

fn labels(text: &str, count: usize) -> Vec<String> {
    let mut plan = Plan::new(Arc::new(script(text)));
    (0..count)
        .map(|_| plan.next(Question::default()).answer.label.to_string())
        .collect()
}

#[test]
fn lists_loop_or_stay_at_their_last_answer() {
    let entries = "answers: [{preset: ok, times: 2}, hang]";
    let mut plan = Plan::new(Arc::new(script(entries)));
    assert_eq!(indexes(&mut plan, 7), [0, 0, 1, 0, 0, 1, 0]);
    let mut plan = Plan::new(Arc::new(script(&format!("loop: false\n{entries}"))));
    assert_eq!(indexes(&mut plan, 5), [0, 0, 1, 1, 1]);
}

#[test]
fn probabilities_are_seeded_and_repeatable() {
    let text = "answers: [{choose: [{p: 0.3, answer: throttle}, {p: 0.7, answer: ok}]}]";
    let seven = labels(&format!("seed: 7\n{text}"), 1000);
    assert_eq!(seven, labels(&format!("seed: 7\n{text}"), 1000));
    assert_ne!(seven, labels(&format!("seed: 8\n{text}"), 1000));
    let throttles = seven.iter().filter(|label| *label == "throttle").count();
    assert!((250..350).contains(&throttles), "{throttles}");
    let never = "answers: [{choose: [{p: 1, answer: ok}, {p: 0, answer: hang}]}]";
    assert!(labels(never, 1000).iter().all(|label| label == "ok"));
    let thirds = "answers: [{choose: [{p: 0.333333333, answer: ok}, {p: 0.333333333, answer: hang}, {p: 0.333333334, answer: reset}]}]";
    assert_eq!(labels(thirds, 100).len(), 100);
}

#[test]
fn drawn_delays_stay_inside_their_bounds() {
    let mut plan = Plan::new(Arc::new(script(
        "delay_ms: [10, 50]\nanswers: [ok, {preset: ok, delay_ms: 3}]",
    )));
    for _ in 0..200 {
        let drawn = plan.next(Question::default()).delay.as_millis();
        assert!((10..=50).contains(&drawn), "{drawn}");
        assert_eq!(plan.next(Question::default()).delay.as_millis(), 3);
    }
}

#[test]
fn models_have_lists_of_their_own() {
    let text = "
answers: [ok]
models:
  'gpt-4o': {answers: [throttle, hang], loop: false}
  'gpt-*': {answers: [reset]}";
    let mut plan = Plan::new(Arc::new(script(text)));
    let mut ask = |model| {
        let chosen = plan.next(Question {
            model,
            ..Question::default()
        });
        (chosen.answer.label.to_string(), chosen.place)
    };
    let exact = |index| Place::Model(Arc::from("gpt-4o"), index);
    assert_eq!(ask("gpt-4o"), ("throttle".to_owned(), exact(0)));
    assert_eq!(ask("claude"), ("ok".to_owned(), Place::Answers(0)));
    assert_eq!(ask("gpt-4o"), ("hang".to_owned(), exact(1)));
    assert_eq!(ask("gpt-4o"), ("hang".to_owned(), exact(1)));
    assert_eq!(
        ask("gpt-5"),
        ("reset".to_owned(), Place::Model(Arc::from("gpt-*"), 0))
    );
}

#[test]
fn every_operation_can_begin_the_list_anew() {
    let mut plan = Plan::new(Arc::new(script(
        "order: request_id\nloop: false\nanswers: [throttle, ok]",
    )));
    let mut ask = |request_id| {
        plan.next(Question {
            request_id,
            ..Question::default()
        })
        .place
        .index()
    };
    assert_eq!(
        [ask("a"), ask("b"), ask("a"), ask("b"), ask("a"), ask("c")],
        [0, 0, 1, 1, 1, 0]
    );
}

#[test]
fn windows_open_and_close_by_the_given_time() {
    let text = "
answers: [ok]
windows:
  - {every_ms: 10000, from_ms: 0, to_ms: 3000, answer: throttle}
  - {from_ms: 4000, to_ms: 5000, answer: hang}";
    let mut plan = Plan::new(Arc::new(script(text)));
    let table = [
        (0, "throttle"),
        (2_999, "throttle"),
        (3_000, "ok"),
        (4_000, "hang"),
        (5_000, "ok"),
        (10_000, "throttle"),
        (14_500, "ok"),
    ];
    for (millis, label) in table {
        let elapsed = Duration::from_millis(millis);
        let chosen = plan.next(Question {
            elapsed,
            ..Question::default()
        });
        assert_eq!(&*chosen.answer.label, label, "{millis}");
    }
}

#[tokio::test]
async fn a_server_follows_the_clock_it_is_given() {
    let now = Arc::new(AtomicU64::new(0));
    let setup = Setup {
        recorder: Recorder::default(),
        clock: Clock::Manual(Arc::clone(&now)),
    };
    let text = "windows: [{from_ms: 1000, to_ms: 2000, answer: throttle}]";
    let runtime = tokio::runtime::Handle::current();
    let server = MockServer::start_in(&runtime, "m", script(text), listener(), setup).unwrap();
    for (millis, status) in [(999, 200), (1000, 429), (2000, 200)] {
        now.store(millis, Ordering::SeqCst);
        assert_eq!(post(server.addr(), CHAT, HELLO).await.status, status);
    }
}

// --- Scripts ----------------------------------------------------------------------------------------------------------------------------------------

/// The script must be refused at this line, with these words.
fn refused(text: &str, line: Option<usize>, words: &str) {
    let error = Script::parse(text).expect_err(text);
    assert!(error.message.contains(words), "{text}\n{error}");
    assert_eq!(
        error.position.map(|(line, _)| line),
        line,
        "{text}\n{error}"
    );
}

#[test]
fn mistakes_are_refused_with_their_place() {
    refused("seed: 1\nanswer: [ok]", Some(2), "unknown field `answer`");
    // A duplicate key is reported at the beginning of its mapping.
    refused("seed: 1\nseed: 2", Some(1), "duplicate field `seed`");
    refused(
        "answers:\n  - ok\n  - nope",
        Some(3),
        "unknown preset `nope`",
    );
    refused(
        "answers:\n  - {preset: nope}",
        Some(2),
        "unknown preset `nope`",
    );
    refused(
        "answers:\n  - {preset: ok, statsu: 5}",
        Some(2),
        "unknown field `statsu`",
    );
    refused("answers:\n  - 5", Some(2), "the name of a preset");
    refused("answers:\n  - {delay_ms: 5}", Some(2), "an answer needs");
    refused(
        "answers:\n  - {preset: hang, status: 5}",
        Some(2),
        "nothing is sent here",
    );
    refused(
        "answers:\n  - {preset: ok, silence: true}",
        Some(2),
        "only one of",
    );
    refused("answers:\n  - {status: 99}", Some(2), "200 to 999");
    refused(
        "answers:\n  - {body: a, sse: []}",
        Some(2),
        "only one of `body` and `sse`",
    );
    refused(
        "answers:\n  - {body: x, text: a}",
        Some(2),
        "belong to `ok`",
    );
    refused(
        "answers:\n  - {status: 200, headers: {'a b': c}}",
        Some(2),
        "not the name of a header",
    );
    refused(
        "answers:\n  - {status: 200, headers: {a: b, a: c}}",
        Some(2),
        "duplicate key `a`",
    );
    refused(
        "answers:\n  - {choose: [{p: 0.5, answer: ok}]}",
        Some(2),
        "add up to 0.5",
    );
    refused(
        "answers:\n  - {choose: [{p: 1, answer: {preset: ok, times: 2}}]}",
        Some(2),
        "`times`",
    );
    refused(
        "windows:\n  - {from_ms: 5, to_ms: 5, answer: ok}",
        Some(2),
        "above `from_ms`",
    );
    refused(
        "answers:\n  - {sse: [{gap_ms: 5}]}",
        Some(2),
        "an event needs",
    );
    refused("servers: {a: {}}", None, "only in a file");
}

#[test]
fn a_file_names_its_servers() {
    let servers =
        Script::parse_file("servers: {a: {answers: [hang]}, b: {listen: 'x:1'}}").unwrap();
    let names: Vec<_> = servers.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["a", "b"]);
    assert_eq!(servers[1].1.listen.as_deref(), Some("x:1"));
    let single = Script::parse_file("answers: [hang]").unwrap();
    assert_eq!(single[0].0, "mock");
    let error = Script::parse_file("seed: 1\nservers: {a: {}}").unwrap_err();
    assert!(error.message.contains("no other key"));
}

#[tokio::test]
async fn the_example_file_serves() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/conf/mock.yaml");
    let text = std::fs::read_to_string(path).unwrap();
    let ports = (1..=5).map(|number| format!("127.0.0.1:1908{number}"));
    let any_port = ports.fold(text.clone(), |text, port| {
        text.replace(&port, "127.0.0.1:0")
    });
    let servers = rondo::mock::start_all(&any_port).await.unwrap();
    assert_eq!(servers.len(), Script::parse_file(&text).unwrap().len());
    for server in servers {
        assert_ne!(server.addr().port(), 0);
        server.stop().await;
    }
}

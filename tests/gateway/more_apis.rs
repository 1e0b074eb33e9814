//! Moderation, images, audio and ranking through the gateway: JSON and forms, with a failover to a model of another name.

use bytes::Bytes;
use http::Request;
use rondo::mock::{SeenRequest, body_hash};
use serde_json::{Value, json};

use crate::support::Rondo;
use crate::support::client::{Answer, Body, Connection, call, parts, whole};

/// The first target is throttled, the second has another model. Both take every format.
const TWO_TARGETS: &str = r#"
providers:
  one: { adapter: openai_compatible, mock: { answers: [openai.throttle] } }
  two: { adapter: openai_compatible, mock: { answers: [ok] } }
routes:
  - name: media
    models: [m]
    targets:
      - { name: first, provider: one, model: "a-name-that-is-longer-than-the-public-one" }
      - { name: second, provider: two, model: "x/y" }
    routing: { cooldown: { max_ms: 0 } }
"#;

const BOUNDARY: &str = "------------------------d74496d66958873e";
const MIB: usize = 1 << 20;

fn post(path: &str, content_type: &str, body: Body) -> Request<Body> {
    Request::post(format!("http://gateway.test{path}"))
        .header("host", "gateway.test")
        .header("content-type", content_type)
        .body(body)
        .unwrap()
}

fn form_type() -> String {
    format!("multipart/form-data; boundary={BOUNDARY}")
}

/// A form whose file comes first. The file is of all bytes, and of lines that almost are the boundary.
fn form(model: &str, file_bytes: usize, fields: &[(&str, &str)]) -> Vec<u8> {
    let mut body = format!(
        "--{BOUNDARY}\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a \u{e9}.mp3\"\r\nContent-Type: audio/mpeg\r\n\r\n"
    )
    .into_bytes();
    let almost = format!("\r\n--{}\r\nname=\"model\"\r\n\r\n", &BOUNDARY[1..]);
    let noise = (0..=u8::MAX).chain(almost.bytes());
    body.extend(noise.cycle().take(file_bytes));
    for (name, value) in fields.iter().copied().chain([("model", model)]) {
        let field = format!(
            "\r\n--{BOUNDARY}\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n{value}"
        );
        body.extend(field.into_bytes());
    }
    body.extend(format!("\r\n--{BOUNDARY}--\r\n").into_bytes());
    body
}

/// What arrived at both targets, after one answer by the second.
fn seen(rondo: &Rondo, answer: &Answer) -> [SeenRequest; 2] {
    assert_eq!(answer.status, 200, "{answer:?}");
    assert_eq!(answer.header("x-rondo-target"), Some("second"));
    assert_eq!(rondo.sends(&["one", "two"]), ["one", "two"]);
    ["one", "two"].map(|name| rondo.mock(name).requests().remove(0))
}

#[track_caller]
fn assert_arrived(seen: &SeenRequest, path: &str, content_type: &str, body: &[u8]) {
    assert_eq!(seen.path, path);
    assert_eq!(seen.header("content-type"), Some(content_type));
    let length = body.len().to_string();
    assert_eq!(seen.header("content-length"), Some(length.as_str()));
    assert_eq!(seen.body_len, body.len() as u64);
    assert_eq!(seen.body_hash, body_hash(body), "{path}");
}

// R-X1
#[tokio::test]
async fn each_json_path_moves_on_with_the_other_model() {
    let cases = [
        (
            "/v1/moderations",
            r#""input":["a",{"type":"text","text":"b"}]"#,
            "/results/0/flagged",
        ),
        (
            "/v1/images/generations",
            r#""prompt":"a cat","background":"transparent","n":1"#,
            "/data/0/b64_json",
        ),
        (
            "/v1/rerank",
            r#""query":"q","documents":["a",{"doc_id":"7"}],"top_n":1"#,
            "/results/0/index",
        ),
        ("/v1/audio/speech", r#""input":"hello","voice":"alloy""#, ""),
    ];
    for (path, members, pointer) in cases {
        let rondo = Rondo::start(TWO_TARGETS).await;
        let body = |model: &str| {
            format!("{{ {members}, \"model\" :\"{model}\", \"seed\":9223372036854775808}}")
        };
        let sent = whole(body("m"));
        let answer = call(rondo.addr, post(path, "application/json", sent)).await;
        let [first, second] = seen(&rondo, &answer);
        let long = body("a-name-that-is-longer-than-the-public-one");
        assert_arrived(&first, path, "application/json", long.as_bytes());
        assert_arrived(&second, path, "application/json", body("x/y").as_bytes());
        if pointer.is_empty() {
            // Sound passes as it came.
            assert_eq!(answer.header("content-type"), Some("audio/mpeg"));
            assert!(answer.body.starts_with(b"\xff\xfb"));
            assert_eq!(answer.body.len() % 104, 0);
        } else {
            assert!(answer.json().pointer(pointer).is_some(), "{answer:?}");
        }
        rondo.assert_quiet().await;
    }
}

// R-X1
#[tokio::test]
async fn each_form_arrives_byte_for_byte_but_the_model() {
    let cases = [
        ("/v1/audio/transcriptions", "/text"),
        ("/v1/audio/translations", "/text"),
        ("/v1/images/edits", "/data/0/b64_json"),
        ("/v1/images/variations", "/data/0/b64_json"),
    ];
    let fields = [("language", "de"), ("prompt", "name=\"model\"\r\n\r\nm")];
    for (path, pointer) in cases {
        let rondo = Rondo::start(TWO_TARGETS).await;
        let sent = form("m", MIB, &fields);
        let answer = call(rondo.addr, post(path, &form_type(), whole(sent))).await;
        let [first, second] = seen(&rondo, &answer);
        let long = form("a-name-that-is-longer-than-the-public-one", MIB, &fields);
        assert_arrived(&first, path, &form_type(), &long);
        assert_arrived(&second, path, &form_type(), &form("x/y", MIB, &fields));
        assert!(answer.json().pointer(pointer).is_some(), "{answer:?}");
        let labels = ["api=\"openai_", "outcome=\"succeeded\""];
        assert_eq!(rondo.metric("rondo_requests_total", &labels), 1.0);
        rondo.assert_quiet().await;
    }
}

// R-X1
#[tokio::test]
async fn a_form_may_come_in_parts() {
    let rondo = Rondo::start(TWO_TARGETS).await;
    let path = "/v1/audio/transcriptions";
    let sent = Bytes::from(form("m", 300_000, &[]));
    let pieces = sent.chunks(40_001).map(Bytes::copy_from_slice).collect();
    let mut client = Connection::h2(rondo.addr).await;
    let answer = client.call(post(path, &form_type(), parts(pieces))).await;
    let [_, second] = seen(&rondo, &answer);
    assert_arrived(&second, path, &form_type(), &form("x/y", 300_000, &[]));
    rondo.assert_quiet().await;
}

// R-A4
#[tokio::test]
async fn a_transcript_may_be_text_or_a_stream_or_silent() {
    let path = "/v1/audio/transcriptions";
    let rondo = Rondo::start(TWO_TARGETS).await;
    let ask = |fields: &[(&str, &str)]| post(path, &form_type(), whole(form("m", 100, fields)));
    let text = call(rondo.addr, ask(&[("response_format", "text")])).await;
    assert_eq!(text.text(), "Hello from two\n");
    assert_eq!(
        text.header("content-type"),
        Some("text/plain; charset=utf-8")
    );
    let stream = call(rondo.addr, ask(&[("stream", "true")])).await;
    assert!(stream.text().contains("transcript.text.done"), "{stream:?}");
    let record = rondo.records().pop().unwrap();
    assert!(record.operation.stream);
    rondo.assert_quiet().await;

    for body in ["\"\"", "\"\\n\""] {
        let silent =
            format!("[{{ status: 200, headers: {{ content-type: text/plain }}, body: {body} }}]");
        let rondo = Rondo::start(&TWO_TARGETS.replace("[ok]", &silent)).await;
        let answer = call(rondo.addr, ask(&[("response_format", "text")])).await;
        assert_eq!((answer.status.as_u16(), answer.text().trim()), (200, ""));
        rondo.assert_quiet().await;
    }
}

// R-S7
#[tokio::test]
async fn a_form_with_an_uploaded_file_stays() {
    let rondo = Rondo::start(TWO_TARGETS).await;
    let body = form("m", 100, &[("file_id", "file-1")]);
    let answer = call(
        rondo.addr,
        post("/v1/audio/transcriptions", &form_type(), whole(body)),
    )
    .await;
    assert_eq!(answer.status, 429);
    assert_eq!(rondo.sends(&["one", "two"]), ["one"]);
    rondo.assert_quiet().await;
}

// R-D3
#[tokio::test]
async fn what_is_no_form_is_refused_before_anything_is_sent() {
    let rondo = Rondo::start(TWO_TARGETS).await;
    let good = form("m", 100, &[]);
    let json: &[u8] = br#"{"model":"m"}"#;
    let form_type = form_type();
    let cases: [(&str, &[u8], u16, &str); 6] = [
        ("application/json", json, 400, "invalid_request"),
        ("multipart/form-data", &good, 400, "invalid_request"),
        (&form_type, json, 400, "invalid_request"),
        (&form_type, &good[..good.len() - 5], 400, "invalid_request"),
        (&form_type, &form("", 100, &[]), 400, "model_missing"),
        (
            &form_type,
            &form("unknown", 100, &[]),
            404,
            "model_not_found",
        ),
    ];
    for (content_type, body, status, code) in cases {
        let body = whole(body.to_vec());
        let answer = call(rondo.addr, post("/v1/images/edits", content_type, body)).await;
        assert_eq!(answer.status, status, "{answer:?}");
        assert_eq!(answer.json()["error"]["code"], code);
    }
    let get = Request::get("http://gateway.test/v1/images/edits").header("host", "gateway.test");
    let answer = call(rondo.addr, get.body(whole("")).unwrap()).await;
    assert_eq!(
        (answer.status.as_u16(), answer.header("allow")),
        (405, Some("POST"))
    );
    let answer = call(rondo.addr, post("/v1/files", &form_type, whole(good))).await;
    assert_eq!(answer.status, 404);
    assert!(rondo.sends(&["one", "two"]).is_empty());
    rondo.assert_quiet().await;
}

/// A provider that lacks a format is no candidate for it.
#[tokio::test]
async fn a_format_goes_to_those_that_speak_it() {
    let yaml = TWO_TARGETS.replace(
        "one: { adapter: openai_compatible",
        "one: { adapter: mistral",
    );
    let rondo = Rondo::start(&yaml).await;
    let body: Value = json!({ "model": "m", "query": "q", "documents": ["d"] });
    let request = post("/v1/rerank", "application/json", whole(body.to_string()));
    let answer = call(rondo.addr, request).await;
    assert_eq!(answer.json()["model"], "x/y");
    assert_eq!(rondo.sends(&["one", "two"]), ["two"]);
    rondo.assert_quiet().await;
}

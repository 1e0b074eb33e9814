//! The entry points of the fuzzers, with inputs that look like what they read: pieces of it, fixtures, and fixtures with damage.

use std::path::Path;
use std::sync::LazyLock;

use proptest::prelude::*;
use rondo::core::api::Api;
use rondo::fuzzing::{self, ENTRIES};
use rondo::providers::corpus;

/// The bodies of every fixture.
static BODIES: LazyLock<Vec<Vec<u8>>> = LazyLock::new(|| {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
    let text = ["responses.jsonl", "rules.jsonl", "answers.jsonl"]
        .map(|name| std::fs::read_to_string(folder.join(name)).unwrap())
        .concat();
    let rows = text
        .lines()
        .map(|line| corpus::read(line.as_bytes()).unwrap());
    rows.map(|row| row.body).collect()
});

const PIECES: &[&str] = &[
    "data: ",
    "event: error",
    "\n",
    "\n\n",
    "\r\n",
    ": c",
    "[DONE]",
    "{",
    "}",
    "[",
    "]",
    ",",
    ":",
    "\"",
    "\\",
    "\\u0061",
    "{\"error\":{\"message\":\"m\",\"type\":\"requests\",\"code\":\"rate_limit_exceeded\"}}",
    "{\"choices\":[]}",
    "\"model\":\"gpt\"",
    "{\"model\":\"m\",\"messages\":[]}",
    "\"model\":",
    "\"stream\":true",
    "\"tools\":[{\"type\":\"web_search\"}]",
    "{\"contents\":[],\"model\":\"models/m\"}",
    "null",
    "true",
    "1e9",
    "-0",
    "12",
    "1.5",
    " 7 ",
    "99999999999999999999999",
    "inf",
    "0x1",
    "Thu, 01 Oct 2026 00:00:00 GMT",
    "Thursday, 01-Oct-26 00:00:00 GMT",
    "\u{feff}",
    "é",
    "{\"error\":{\"details\":[{\"@type\":\"google.rpc.RetryInfo\",\"retryDelay\":\"3.5s\"}]}}",
    "throttlingException",
    "\"usage\":{\"prompt_tokens\":",
    "{\"usage\":{\"input_tokens\":5,\"output_tokens\":7}}",
    "\"usageMetadata\":{\"promptTokenCount\":",
    "{\"response\":{\"usage\":{\"total_tokens\":3",
    "--b\r\n",
    "--b--\r\n",
    "\r\n--b\r\n",
    "content-disposition: form-data; name=\"model\"\r\n\r\ngpt\r\n",
    "content-disposition: form-data; name=\"file\"; filename=\"a\"\r\n",
    "multipart/form-data; boundary=b",
    "--b\r\ncontent-disposition: form-data; name=model\r\n\r\nm\r\n--b--",
    "/v1beta/models/",
    "/model/",
    "%2e%2e",
    ":generateContent",
    "?key=k&model=m",
    "authorization: Bearer k",
    "sec-websocket-protocol: realtime, openai-insecure-api-key.k",
    "HTTP/1.1 200 OK\r\n",
    "POST /v1/chat/completions HTTP/1.1\r\nhost: h\r\n",
    "GET http://h/ HTTP/1.0\n",
    "host: other\r\n",
    "connection: close, x\r\n",
    "content-length: 5\r\n",
    "transfer-encoding: chunked\r\n",
    "\r\n\r\n",
    "5\r\nhello\r\n",
    "0\r\n\r\n",
    "limit=5&since=1h&before=",
    "model=m&header=a:b&stream=true",
    "providers:\n  a: { adapter: openai, keys: [{ name: k, secret: { literal: hush-literal } }] }\n",
    "routes:\n  - { name: r, models: [m], targets: [{ name: t, provider: a, model: x }] }\n",
    "answers: [ok, { status: 429, times: 2 }]\n",
    "{\"AccessKeyId\":\"a\",\"SecretAccessKey\":\"b\",\"Token\":\"c\",\"Expiration\":\"2026-12-31T00:00:00Z\"}",
    "<Credentials><AccessKeyId>a</AccessKeyId>",
];

fn written() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop::sample::select(PIECES);
    prop::collection::vec(piece, 0..12).prop_map(|pieces| pieces.concat().into_bytes())
}

fn damaged() -> impl Strategy<Value = Vec<u8>> {
    let change = (any::<prop::sample::Index>(), any::<u8>());
    (
        any::<prop::sample::Index>(),
        prop::collection::vec(change, 0..4),
        any::<prop::sample::Index>(),
    )
        .prop_map(|(which, changes, cut)| {
            let mut body = which.get(&BODIES).clone();
            for (place, byte) in changes {
                if !body.is_empty() {
                    let place = place.index(body.len());
                    body[place] = byte;
                }
            }
            body.truncate(cut.index(2 * body.len() + 1));
            body
        })
}

fn any_input() -> impl Strategy<Value = Vec<u8>> {
    let bytes = prop::collection::vec(any::<u8>(), 0..80);
    (any::<u8>(), prop_oneof![written(), damaged(), bytes]).prop_map(|(first, mut rest)| {
        rest.insert(0, first);
        rest
    })
}

/// Every configuration and script of this tree, with a few bytes changed.
static TEXTS: LazyLock<Vec<Vec<u8>>> = LazyLock::new(|| {
    let mut texts = Vec::new();
    for folder in ["conf", "conf/examples"] {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
        let files = std::fs::read_dir(folder).unwrap();
        let mut paths: Vec<_> = files.map(|file| file.unwrap().path()).collect();
        paths.sort();
        let yaml = |path: &Path| path.extension().is_some_and(|ext| ext == "yaml");
        texts.extend(
            paths
                .iter()
                .filter(|path| yaml(path))
                .map(|path| std::fs::read(path).unwrap()),
        );
    }
    texts
});

fn damaged_text() -> impl Strategy<Value = Vec<u8>> {
    let change = (
        any::<prop::sample::Index>(),
        prop::sample::select(&b"\n :-[]{}#'\"&*!|>x0,\t\r"[..]),
    );
    let changes = prop::collection::vec(change, 0..4);
    (any::<prop::sample::Index>(), changes).prop_map(|(which, changes)| {
        let mut text = which.get(&TEXTS).clone();
        for (place, byte) in changes {
            let place = place.index(text.len());
            text[place] = byte;
        }
        text
    })
}

proptest! {
    #[test]
    fn no_configuration_breaks_its_reader(text in damaged_text()) {
        // R-C1
        fuzzing::operator::config(&text);
        fuzzing::operator::mock_script(&[b"\x03", text.as_slice()].concat());
    }

    #[test]
    fn no_input_breaks_an_entry_point(input in any_input()) {
        // R-A2 R-A3 R-A4
        for (_, entry) in ENTRIES {
            entry(&input);
        }
    }
}

#[test]
fn every_fixture_passes_every_entry_point() {
    // R-A2 R-A3 R-A4
    for body in BODIES.iter() {
        let input = [b"\x11", body.as_slice()].concat();
        for (_, entry) in ENTRIES {
            entry(&input);
        }
        for format in 0..u8::try_from(Api::ALL.len()).unwrap() {
            fuzzing::usage(&[&[format], body.as_slice()].concat());
        }
    }
    fuzzing::sse(&[]);
    fuzzing::request_scan(&[]);
    fuzzing::form_scan(&[]);
    fuzzing::usage(&[]);
}

#[test]
fn lines_of_no_field_keep_to_the_bound_of_an_event() {
    // R-A3: the bound of the entry point is 256 bytes, line feeds between lines included.
    for lines in [
        vec![256],
        vec![257],
        vec![128, 127],
        vec![128, 128],
        vec![1; 128],
        vec![1; 129],
    ] {
        let body: Vec<String> = lines.iter().map(|length| "x".repeat(*length)).collect();
        fuzzing::sse(format!("\x07{}\n", body.join("\n")).as_bytes());
    }
}

#[test]
fn a_line_of_the_bound_is_given_out_with_and_without_its_line_feed() {
    // R-A3: the bound of the entry point is 32 bytes.
    for length in [31, 32, 33] {
        for end in ["", "\n", "\r\n", "\n\n"] {
            let line = format!("\x05{}{end}{{}}", "x".repeat(length));
            fuzzing::kept::splitters(line.as_bytes());
        }
    }
}

#[test]
fn queries_are_explained() {
    // Explanations are answered, whatever is asked for.
    for query in [
        "model=m&header=a:b",
        "model=gpt-x&client_key=team",
        "model=none",
        "model=g&api=gemini&stream=true",
    ] {
        fuzzing::operator::admin_query(query.as_bytes());
    }
    for kind in 0..=255 {
        fuzzing::operator::explain_body(
            &[&[kind], &br#"{"model":"m","messages":[]}"#[..]].concat(),
        );
    }
}

#[test]
fn every_entry_point_has_a_target() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz");
    let manifest = std::fs::read_to_string(folder.join("Cargo.toml")).unwrap();
    for (name, _) in ENTRIES {
        let target = format!("fuzz_targets/{name}.rs");
        assert!(manifest.contains(&format!("path = \"{target}\"")), "{name}");
        let text = std::fs::read_to_string(folder.join(target)).unwrap();
        assert!(text.contains("rondo::fuzzing::"), "{name}");
    }
    assert_eq!(manifest.matches("[[bin]]").count(), ENTRIES.len());
}

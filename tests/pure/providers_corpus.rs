//! Every answer of the corpus gets exactly the class, the proof and the delay written beside it; and how such lines are read.

use std::path::Path;

use rondo::core::api::Api;
use rondo::core::class::Class;
use rondo::providers::corpus::{self, BadLine, Judged, Known, Row};
use rondo::providers::registry;
use serde_json::{Value, json};

const ROWS: usize = 192;

const NOTHING: Known = Known {
    adapter: None,
    api: None,
};

#[test]
fn every_row_of_the_corpus_gets_its_class_proof_and_delay() {
    // R-A1 R-A2 R-A3 R-A4
    let mut failures = Vec::new();
    let lines = lines();
    for line in &lines {
        let row = corpus::read(line.as_bytes()).unwrap();
        let found = corpus::to_json(&corpus::judge(&row, &NOTHING).unwrap(), 0);
        let wanted: Value = serde_json::from_str(line).unwrap();
        for member in ["id", "class", "certified_pre_execution", "retry_after_ms"] {
            if wanted[member] != found[member] {
                failures.push(format!("{wanted}\n  found {found}"));
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    assert_eq!(lines.len(), ROWS);
}

fn lines() -> Vec<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(root.join("../shared/corpus/responses.jsonl"))
        .or_else(|_| std::fs::read_to_string(root.join("tests/fixtures/responses.jsonl")))
        .unwrap();
    text.lines().map(str::to_owned).collect()
}

fn judged(line: &Value, known: &Known) -> Result<Judged, BadLine> {
    corpus::judge(&corpus::read(line.to_string().as_bytes())?, known)
}

#[test]
fn answers_beside_the_corpus_are_judged_like_their_neighbours() {
    // R-A1 R-A2 R-A3 R-A4
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/answers.jsonl");
    let text = std::fs::read_to_string(file).unwrap();
    assert!(text.lines().count() > 70);
    for line in text.lines() {
        let row = corpus::read(line.as_bytes()).unwrap();
        let found = corpus::to_json(&corpus::judge(&row, &NOTHING).unwrap(), 0);
        let wanted: Value = serde_json::from_str(line).unwrap();
        for member in ["class", "certified_pre_execution", "retry_after_ms"] {
            assert_eq!(wanted[member], found[member], "{line}\n{found}");
        }
    }
}

#[test]
fn providers_go_by_the_names_that_people_write() {
    let names = [
        ("openai", "openai"),
        ("OpenAI", "openai"),
        ("azure-openai", "azure_openai"),
        ("azure_openai", "azure_openai"),
        ("github-copilot", "copilot"),
        ("copilot", "copilot"),
        ("llama.cpp", "llama_cpp"),
        ("nvidia-nim", "nvidia_nim"),
        ("openai-compatible", "openai_compatible"),
        ("nginx", "openai_compatible"),
        ("cloudflare", "openai_compatible"),
        ("aws-alb", "openai_compatible"),
        ("aws-apigateway", "openai_compatible"),
        ("azure-apim", "openai_compatible"),
        ("envoy", "openai_compatible"),
        ("kong", "openai_compatible"),
        ("google-frontend", "openai_compatible"),
    ];
    for (written, name) in names {
        let found = corpus::adapter_of(written).map(|adapter| adapter.name);
        assert_eq!(found, Some(name), "{written}");
    }
    for adapter in registry::all() {
        assert!(std::ptr::eq(
            corpus::adapter_of(adapter.name).unwrap(),
            *adapter
        ));
    }
    assert!(corpus::adapter_of("acme").is_none());
}

#[test]
fn what_the_caller_says_goes_before_what_the_line_says() {
    let body = r#"{"error":{"message":"m","type":"rate_limited","code":"1300"}}"#;
    let line = json!({
        "provider": "openai", "status": 429, "body": body,
        "headers": { "Content-Type": "application/json" },
    });
    let as_written = judged(&line, &NOTHING).unwrap();
    assert!(!as_written.certified);
    let known = Known {
        adapter: registry::find("mistral"),
        ..NOTHING
    };
    let as_known = judged(&line, &known).unwrap();
    assert_eq!(as_known.rule, "mistral.429.rate_limited");
    assert!(as_known.certified);
    let stream = json!({
        "provider": "openai", "api": "chat.completions.stream", "status": 200,
        "headers": { "content-type": "text/event-stream" },
        "body": "data: {\"type\":\"response.created\"}\n\n",
    });
    let chat = judged(&stream, &NOTHING).unwrap();
    let known = Known {
        api: Some(Api::OpenaiResponses),
        ..NOTHING
    };
    assert_eq!(judged(&stream, &known).unwrap().class, Class::Ambiguous);
    assert_eq!(chat.rule, "stream.ended_early");
}

#[test]
fn a_line_may_leave_out_all_but_its_status() {
    let known = Known {
        adapter: registry::find("openai"),
        ..NOTHING
    };
    let found = judged(&json!({ "status": 503 }), &known).unwrap();
    assert_eq!((found.class, found.rule), (Class::Ambiguous, "status"));
    assert_eq!(corpus::to_json(&found, 7)["id"], "line 7");
    let numbered = judged(&json!({ "id": 12, "status": 503 }), &known).unwrap();
    assert_eq!(corpus::to_json(&numbered, 7)["id"], "12");
    assert!(corpus::to_text(&numbered, 7).starts_with("12 "));
}

#[test]
fn repeated_and_numeric_headers_are_read() {
    let line = json!({
        "status": 429,
        "headers": { "Retry-After": 5, "X-Should-Retry": ["true", "false"] },
        "body": null,
    });
    let row = corpus::read(line.to_string().as_bytes()).unwrap();
    let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    let wanted = Row {
        id: None,
        provider: None,
        api: None,
        status: 429,
        headers: vec![
            pair("retry-after", "5"),
            pair("x-should-retry", "true"),
            pair("x-should-retry", "false"),
        ],
        body: vec![],
    };
    assert_eq!(row, wanted);
}

#[test]
fn a_line_that_cannot_be_read_says_why() {
    let cases = [
        ("", "not a JSON object"),
        ("{", "not a JSON object"),
        ("[]", "found a list"),
        (
            "{}",
            "status: found null; needed is a whole number from 100 to 599",
        ),
        (r#"{"status":"429"}"#, "status: found text"),
        (r#"{"status":42}"#, "status: found 42"),
        (r#"{"status":4290000}"#, "status: found 4290000"),
        (r#"{"status":429,"headers":[]}"#, "headers: found a list"),
        (
            r#"{"status":429,"headers":{"a":{}}}"#,
            "headers: found an object",
        ),
        (r#"{"status":429,"body":{}}"#, "body: found an object"),
        (r#"{"status":429,"body":"base64:%"}"#, "body: not base64"),
        (r#"{"status":429,"provider":7}"#, "provider: found a number"),
        (r#"{"status":429}"#, "no provider"),
        (
            r#"{"status":429,"provider":"acme"}"#,
            "provider \"acme\" has no adapter",
        ),
    ];
    for (line, wanted) in cases {
        let found = corpus::read(line.as_bytes()).and_then(|row| corpus::judge(&row, &NOTHING));
        let message = found.unwrap_err().to_string();
        assert!(message.contains(wanted), "{line}: {message}");
    }
    let long = vec![b' '; corpus::LINE_BYTES_MAX + 1];
    assert_eq!(corpus::read(&long), Err(BadLine::TooLong));
}

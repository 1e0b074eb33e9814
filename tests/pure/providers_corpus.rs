//! Every answer of the corpus whose provider has an adapter gets exactly the class, the proof and the delay written beside it.

use std::path::Path;

use rondo::core::api::Api;
use rondo::core::class::Class;
use rondo::core::outcome::Outcome;
use rondo::providers::adapter::Adapter;
use rondo::providers::answer::{BodyEnd, RequestTraits, ResponseHead};
use rondo::providers::classify::classify;
use rondo::providers::peek::{Peek, Rest, is_stream, peek};
use rondo::providers::registry;
use rondo::providers::stream::StreamWatch;
use serde_json::Value;

/// Rows of the corpus that are run. A new adapter raises it.
const ROWS_RUN: usize = 192;

#[test]
fn every_row_of_the_corpus_gets_its_class_proof_and_delay() {
    // R-A1 R-A2 R-A3 R-A4
    let mut failures = Vec::new();
    let mut run = 0;
    for row in rows() {
        let Some(adapter) = adapter_for(&row) else {
            continue;
        };
        run += 1;
        let (wanted, found) = (expectation(&row), reading(adapter, &row));
        if wanted != found {
            failures.push(format!("{}: wanted {wanted:?}, found {found:?}", row["id"]));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    assert_eq!(run, ROWS_RUN);
}

/// Class, whether certified, delay in milliseconds.
type Reading = (String, bool, Option<u64>);

fn rows() -> Vec<Value> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(root.join("../shared/corpus/responses.jsonl"))
        .or_else(|_| std::fs::read_to_string(root.join("tests/fixtures/responses.jsonl")))
        .unwrap();
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

fn adapter_for(row: &Value) -> Option<&'static Adapter> {
    let name = match row["provider"].as_str().unwrap() {
        "openai-compatible" | "nginx" | "cloudflare" | "envoy" | "kong" | "aws-alb"
        | "azure-apim" | "aws-apigateway" | "google-frontend" => "openai_compatible",
        "azure-openai" => "azure_openai",
        "llama.cpp" => "llama_cpp",
        "github-copilot" => "copilot",
        "nvidia-nim" => "nvidia_nim",
        other => other,
    };
    registry::find(name)
}

fn expectation(row: &Value) -> Reading {
    (
        row["class"].as_str().unwrap().to_owned(),
        row["certified_pre_execution"].as_bool().unwrap(),
        row["retry_after_ms"].as_u64(),
    )
}

fn reading(adapter: &'static Adapter, row: &Value) -> Reading {
    let headers: Vec<(String, String)> = row["headers"]
        .as_object()
        .unwrap()
        .iter()
        .map(|(name, value)| (name.clone(), value.as_str().unwrap().to_owned()))
        .collect();
    let head = ResponseHead {
        status: u16::try_from(row["status"].as_u64().unwrap()).unwrap(),
        headers: &headers,
    };
    let api = row["api"].as_str().unwrap();
    let traits = RequestTraits {
        api: api_of(adapter, api),
        stream: api.to_ascii_lowercase().contains("stream"),
        side_effects: false,
    };
    let body = body(row);
    if head.status >= 300 {
        let verdict = classify(adapter, &traits, &[], &head, &body, BodyEnd::Complete);
        assert_eq!(verdict.status, head.status);
        return (
            verdict.class.label().to_owned(),
            matches!(verdict.outcome, Outcome::Rejected(_)),
            verdict.pushback.map(|delay| delay.as_millis() as u64),
        );
    }
    let first = peek(adapter, &traits, &head, &body, Rest::Ended);
    if !is_stream(&traits, &head) {
        return match first {
            Peek::Error(verdict) => (verdict.class.label().to_owned(), false, None),
            Peek::Commit => (Class::OkStream.label().to_owned(), false, None),
            Peek::NeedMore => panic!("an ended answer cannot need more"),
        };
    }
    let mut watch = StreamWatch::new(adapter, traits, &head);
    watch.feed(&body);
    watch.finish();
    if let Peek::Error(verdict) = first {
        assert_eq!(verdict.class, watch.ended_as(), "peek and watch disagree");
    }
    let error = watch.error();
    (
        watch.ended_as().label().to_owned(),
        error.is_some_and(|verdict| matches!(verdict.outcome, Outcome::Rejected(_))),
        error
            .and_then(|verdict| verdict.pushback)
            .map(|delay| delay.as_millis() as u64),
    )
}

fn api_of(adapter: &Adapter, api: &str) -> Api {
    if api.starts_with("responses") {
        Api::OpenaiResponses
    } else {
        let spoken: Vec<Api> = adapter.speaks.iter().collect();
        match api.starts_with("messages") && spoken.contains(&Api::AnthropicMessages) {
            true => Api::AnthropicMessages,
            false => spoken[0],
        }
    }
}

fn body(row: &Value) -> Vec<u8> {
    let text = row["body"].as_str().unwrap();
    match text.strip_prefix("base64:") {
        Some(encoded) => base64(encoded),
        None => text.as_bytes().to_vec(),
    }
}

fn base64(text: &str) -> Vec<u8> {
    const ALPHABET: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let (mut out, mut bits, mut held) = (Vec::new(), 0_u32, 0);
    for byte in text.bytes().filter(|byte| *byte != b'=') {
        let digit = ALPHABET.iter().position(|known| *known == byte).unwrap();
        bits = (bits << 6) | u32::try_from(digit).unwrap();
        held += 6;
        if held >= 8 {
            held -= 8;
            out.push((bits >> held) as u8);
            bits &= (1 << held) - 1;
        }
    }
    out
}

//! Token counts against a reader that parses the whole document, and against every way to cut it.

use proptest::prelude::*;
use rondo::core::api::Api;
use rondo::core::usage::{TOKENS_MAX, Usage};
use rondo::providers::answer::ResponseHead;
use rondo::providers::usage::UsageReader;
use serde_json::{Map, Value};

const KEYS: &[&str] = &[
    "usage",
    "response",
    "x_groq",
    "prompt_tokens",
    "completion_tokens",
    "prompt_tokens_details",
    "cached_tokens",
    "reasoning_tokens",
    "other",
    "\"",
    "\\",
    "",
];

fn key() -> impl Strategy<Value = String> {
    prop::sample::select(KEYS).prop_map(str::to_owned)
}

fn leaf() -> impl Strategy<Value = Value> {
    prop_oneof![
        (0..=TOKENS_MAX).prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        any::<bool>().prop_map(Value::from),
        key().prop_map(Value::from),
        ".{0,40}".prop_map(Value::from),
        Just(Value::Null),
    ]
}

fn object() -> impl Strategy<Value = Value> {
    let value = leaf().prop_recursive(5, 64, 8, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            prop::collection::vec((key(), inner), 0..8)
                .prop_map(|pairs| Value::Object(pairs.into_iter().collect::<Map<_, _>>())),
        ]
    });
    prop::collection::vec((key(), value), 0..8)
        .prop_map(|pairs| Value::Object(pairs.into_iter().collect::<Map<_, _>>()))
}

/// The three places of a usage object in the order in which they stand, since a later one replaces.
fn expected(document: &Value) -> Option<Usage> {
    let mut told = Usage::default();
    let mut take = |usage: &Value| {
        let number = |value: &Value| value.as_u64().filter(|tokens| *tokens <= TOKENS_MAX);
        let Some(members) = usage.as_object() else {
            return;
        };
        for (name, value) in members {
            let count = number(value);
            match name.as_str() {
                "prompt_tokens" => told.prompt_tokens = count.or(told.prompt_tokens),
                "completion_tokens" => told.completion_tokens = count.or(told.completion_tokens),
                "cached_tokens" => told.cached_tokens = count.or(told.cached_tokens),
                "reasoning_tokens" => told.reasoning_tokens = count.or(told.reasoning_tokens),
                "prompt_tokens_details" => {
                    for (name, value) in value.as_object().into_iter().flatten() {
                        let count = number(value);
                        match name.as_str() {
                            "cached_tokens" => told.cached_tokens = count.or(told.cached_tokens),
                            "reasoning_tokens" => {
                                told.reasoning_tokens = count.or(told.reasoning_tokens);
                            }
                            _ => {}
                        }
                    }
                }
                _ => {}
            }
        }
    };
    for (name, value) in document.as_object().unwrap() {
        match name.as_str() {
            "usage" => take(value),
            "response" | "x_groq" => {
                if let Some(usage) = value.get("usage") {
                    take(usage);
                }
            }
            _ => {}
        }
    }
    // Reasoning alone is output, too.
    told.completion_tokens = told.completion_tokens.or(told.reasoning_tokens);
    (!told.is_empty()).then_some(told)
}

fn read(media: &str, body: &[u8], cuts: &[prop::sample::Index]) -> Option<Usage> {
    let headers = [("content-type", media)];
    let head = ResponseHead {
        status: 200,
        headers: &headers,
    };
    let mut reader = UsageReader::new(Api::OpenaiChat, true, &head).unwrap();
    let mut places: Vec<usize> = cuts.iter().map(|cut| cut.index(body.len() + 1)).collect();
    places.push(body.len());
    places.sort_unstable();
    let mut from = 0;
    for to in places {
        reader.feed(&body[from..to]);
        from = to;
    }
    reader.finish();
    reader.usage()
}

proptest! {
    #[test]
    fn the_walk_reads_what_a_parser_reads(
        document in object(),
        pretty in any::<bool>(),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..6),
    ) {
        // R-L8
        let text = match pretty {
            true => serde_json::to_string_pretty(&document),
            false => serde_json::to_string(&document),
        };
        let text = text.unwrap();
        let wanted = expected(&document);
        prop_assert_eq!(read("application/json", text.as_bytes(), &cuts), wanted, "{}", text);
        if !pretty {
            let lines = format!(": comment usage\nevent: usage\r\ndata: {text}\n\nid: usage\n");
            prop_assert_eq!(read("text/event-stream", lines.as_bytes(), &cuts), wanted, "{}", lines);
            let lines = format!("{{}}\n{text}\n");
            prop_assert_eq!(read("application/x-ndjson", lines.as_bytes(), &cuts), wanted, "{}", lines);
        }
    }
}

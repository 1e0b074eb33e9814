//! What presets answer, in the format of each path.

use rondo::mock::Preset;
use serde_json::Value;

use super::{Answer, CHAT, HELLO, HELLO_STREAM, post, script, soon, start};

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

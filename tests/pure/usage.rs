//! Token counts of answers in the form that providers give them: format by format, whole and in every two pieces.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rondo::core::api::Api;
use rondo::core::usage::Usage;
use rondo::providers::answer::ResponseHead;
use rondo::providers::event_stream::encode;
use rondo::providers::usage::{FRAME_MAX, UsageReader};

const JSON: &str = "application/json";
const EVENTS: &str = "text/event-stream";
const AWS: &str = "application/vnd.amazon.eventstream";

/// Prompt, completion, cached and reasoning tokens.
type Counts = [Option<u64>; 4];

fn reader(api: Api, media: &str) -> UsageReader {
    let headers = [("content-type", media)];
    let head = ResponseHead {
        status: 200,
        headers: &headers,
    };
    UsageReader::new(api, media != JSON, &head).expect("something to read")
}

fn usage(counts: Counts, partial: bool) -> Option<Usage> {
    let [
        prompt_tokens,
        completion_tokens,
        cached_tokens,
        reasoning_tokens,
    ] = counts;
    let usage = Usage {
        prompt_tokens,
        completion_tokens,
        cached_tokens,
        reasoning_tokens,
        partial,
    };
    (!usage.is_empty()).then_some(usage)
}

/// The whole answer tells these counts, whatever its chunks; before its end they are partial.
fn check(api: Api, media: &str, body: impl AsRef<[u8]>, counts: Counts) {
    let body = body.as_ref();
    for at in 0..=body.len() {
        let mut reader = reader(api, media);
        reader.feed(&body[..at]);
        reader.feed(&body[at..]);
        let text = String::from_utf8_lossy(body);
        assert_eq!(
            reader.usage(),
            usage(counts, true),
            "{api} cut at {at}: {text}"
        );
        reader.finish();
        assert_eq!(
            reader.usage(),
            usage(counts, false),
            "{api} cut at {at}: {text}"
        );
    }
    let mut reader = reader(api, media);
    for byte in body.chunks(1) {
        reader.feed(byte);
    }
    reader.finish();
    assert_eq!(reader.usage(), usage(counts, false), "{api} byte by byte");
}

fn events(lines: &[&str]) -> String {
    lines
        .iter()
        .map(|line| format!("data: {line}\n\n"))
        .collect()
}

#[test]
fn openai_answers() {
    // R-L8
    check(
        Api::OpenaiChat,
        JSON,
        r#"{"id":"chatcmpl-1","object":"chat.completion","created":1,"model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"say \"usage\": {\"prompt_tokens\": 1}","tool_calls":[{"id":"c","type":"function","function":{"name":"usage","arguments":"{\"usage\":{\"prompt_tokens\":9}}"}}]},"finish_reason":"stop"}],"usage":{"prompt_tokens":2006,"completion_tokens":300,"total_tokens":2306,"prompt_tokens_details":{"cached_tokens":1920,"audio_tokens":0},"completion_tokens_details":{"reasoning_tokens":256,"audio_tokens":0,"accepted_prediction_tokens":0}},"service_tier":"default"}"#,
        [Some(2006), Some(300), Some(1920), Some(256)],
    );
    check(
        Api::OpenaiCompletions,
        JSON,
        "{\n  \"choices\": [ { \"text\": \"x\" } ],\n  \"usage\" : { \"prompt_tokens\" : 5 , \"completion_tokens\" : 7, \"total_tokens\": 12 }\n}\n",
        [Some(5), Some(7), None, None],
    );
    check(
        Api::OpenaiResponses,
        JSON,
        r#"{"id":"resp_1","status":"completed","output":[{"type":"message","content":[{"type":"output_text","text":"x"}]}],"usage":{"input_tokens":75,"input_tokens_details":{"cached_tokens":64},"output_tokens":1186,"output_tokens_details":{"reasoning_tokens":1024},"total_tokens":1261},"metadata":{"usage":"mine"}}"#,
        [Some(75), Some(1186), Some(64), Some(1024)],
    );
    check(
        Api::OpenaiEmbeddings,
        JSON,
        r#"{"object":"list","data":[{"object":"embedding","index":0,"embedding":[-0.006,1e-9,0.25]}],"model":"e","usage":{"prompt_tokens":8,"total_tokens":8}}"#,
        [Some(8), None, None, None],
    );
    check(
        Api::OpenaiTranscriptions,
        JSON,
        r#"{"text":"hi","usage":{"type":"tokens","input_tokens":14,"input_token_details":{"text_tokens":10,"audio_tokens":4},"output_tokens":45,"total_tokens":59}}"#,
        [Some(14), Some(45), None, None],
    );
    check(
        Api::OpenaiTranscriptions,
        JSON,
        r#"{"text":"hi","usage":{"type":"duration","seconds":3}}"#,
        [None; 4],
    );
    check(
        Api::OpenaiImages,
        JSON,
        r#"{"created":1,"data":[{"b64_json":"aGk="}],"usage":{"total_tokens":100,"input_tokens":50,"output_tokens":50,"input_tokens_details":{"text_tokens":10,"image_tokens":40}}}"#,
        [Some(50), Some(50), None, None],
    );
    check(Api::OpenaiModerations, JSON, r#"{"results":[]}"#, [None; 4]);
}

#[test]
fn openai_streams() {
    // R-L8
    let chat = events(&[
        r#"{"choices":[{"index":0,"delta":{"role":"assistant","content":""}}],"usage":null}"#,
        r#"{"choices":[{"index":0,"delta":{"content":"Hi \"usage\""}}],"usage":null}"#,
        r#"{"choices":[],"usage":{"prompt_tokens":19,"completion_tokens":10,"total_tokens":29,"prompt_tokens_details":{"cached_tokens":0}}}"#,
        "[DONE]",
    ]);
    let counts = [Some(19), Some(10), Some(0), None];
    check(Api::OpenaiChat, EVENTS, &chat, counts);
    check(Api::OpenaiChat, EVENTS, chat.replace('\n', "\r\n"), counts);
    check(Api::OpenaiChat, EVENTS, chat.replace('\n', "\r"), counts);
    check(
        Api::OpenaiChat,
        EVENTS,
        chat.replace("data: ", "data:"),
        counts,
    );
    check(
        Api::OpenaiChat,
        EVENTS,
        events(&[
            r#"{"x_groq":{"id":"r","usage":{"queue_time":0.06,"prompt_tokens":12,"completion_tokens":3}},"choices":[]}"#,
        ]),
        [Some(12), Some(3), None, None],
    );
    check(
        Api::OpenaiResponses,
        EVENTS,
        concat!(
            "event: response.created\ndata: {\"type\":\"response.created\",\"response\":{\"id\":\"r\",\"usage\":null}}\n\n",
            "event: response.completed\ndata: {\"type\":\"response.completed\",\"response\":{\"output\":[],\"usage\":{\"input_tokens\":37,\"input_tokens_details\":{\"cached_tokens\":5},\"output_tokens\":11,\"output_tokens_details\":{\"reasoning_tokens\":2}}}}\n\n",
        ),
        [Some(37), Some(11), Some(5), Some(2)],
    );
    check(
        Api::OpenaiTranscriptions,
        EVENTS,
        events(&[
            r#"{"type":"transcript.text.done","text":"x","usage":{"type":"tokens","input_tokens":14,"output_tokens":45}}"#,
        ]),
        [Some(14), Some(45), None, None],
    );
}

#[test]
fn openai_dialects() {
    // R-L8
    check(
        Api::OpenaiChat,
        JSON,
        r#"{"usage":{"prompt_tokens":20,"completion_tokens":5,"total_tokens":25,"prompt_cache_hit_tokens":12,"prompt_cache_miss_tokens":8}}"#,
        [Some(20), Some(5), Some(12), None],
    );
    // Reasoning counted apart: the total tells.
    check(
        Api::OpenaiChat,
        JSON,
        r#"{"usage":{"prompt_tokens":10,"completion_tokens":5,"total_tokens":115,"completion_tokens_details":{"reasoning_tokens":100}}}"#,
        [Some(10), Some(105), None, Some(100)],
    );
    check(
        Api::Rerank,
        JSON,
        r#"{"results":[{"index":0,"relevance_score":0.9}],"meta":{"api_version":{"version":"2"},"billed_units":{"input_tokens":90,"search_units":1},"tokens":{"input_tokens":99,"output_tokens":0}}}"#,
        [Some(99), Some(0), None, None],
    );
    check(
        Api::Rerank,
        JSON,
        r#"{"results":[],"meta":{"billed_units":{"input_tokens":90,"output_tokens":4}}}"#,
        [Some(90), Some(4), None, None],
    );
    check(
        Api::Rerank,
        JSON,
        r#"{"results":[],"usage":{"total_tokens":38}}"#,
        [Some(38), None, None, None],
    );
    check(
        Api::OpenaiChat,
        JSON,
        r#"{"usage":{"total_tokens":38}}"#,
        [None; 4],
    );
}

#[test]
fn anthropic_answers() {
    // R-L8
    check(
        Api::AnthropicMessages,
        JSON,
        r#"{"id":"msg_1","type":"message","content":[{"type":"tool_use","id":"t","name":"n","input":{"usage":{"input_tokens":9,"output_tokens":9},"message":{"usage":{"input_tokens":9}}}}],"stop_reason":"tool_use","usage":{"input_tokens":2095,"cache_creation_input_tokens":100,"cache_read_input_tokens":1000,"cache_creation":{"ephemeral_5m_input_tokens":100},"output_tokens":503,"output_tokens_details":{"thinking_tokens":300},"service_tier":"standard"}}"#,
        [Some(3195), Some(503), Some(1000), Some(300)],
    );
    // Counts are cumulative: what comes later replaces what came before, and what is left out stays.
    let stream = [
        r#"{"type":"message_start","message":{"id":"m","usage":{"input_tokens":25,"cache_creation_input_tokens":0,"cache_read_input_tokens":7,"output_tokens":1}}}"#,
        r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"\"usage\""}}"#,
        r#"{"type":"message_delta","delta":{"stop_reason":null},"usage":{"output_tokens":15}}"#,
        r#"{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"input_tokens":30,"output_tokens":42}}"#,
    ];
    let upto = |count: usize| events(&stream[..count]);
    check(
        Api::AnthropicMessages,
        EVENTS,
        upto(1),
        [Some(32), Some(1), Some(7), None],
    );
    check(
        Api::AnthropicMessages,
        EVENTS,
        upto(3),
        [Some(32), Some(15), Some(7), None],
    );
    check(
        Api::AnthropicMessages,
        EVENTS,
        upto(4),
        [Some(37), Some(42), Some(7), None],
    );
    // Counting tokens costs none.
    let headers = [("content-type", JSON)];
    let head = ResponseHead {
        status: 200,
        headers: &headers,
    };
    assert!(UsageReader::new(Api::AnthropicCountTokens, false, &head).is_none());
}

#[test]
fn gemini_answers() {
    // R-L8
    let first = r#"{"candidates":[{"content":{"parts":[{"functionCall":{"name":"f","args":{"usageMetadata":{"promptTokenCount":9}}}}]}}],"usageMetadata":{"promptTokenCount":30,"totalTokenCount":30,"promptTokensDetails":[{"modality":"TEXT","tokenCount":30}]}}"#;
    let last = r#"{"candidates":[],"usageMetadata":{"promptTokenCount":30,"cachedContentTokenCount":20,"candidatesTokenCount":12,"thoughtsTokenCount":100,"toolUsePromptTokenCount":4,"totalTokenCount":146},"modelVersion":"g"}"#;
    let counts = [Some(34), Some(112), Some(20), Some(100)];
    check(Api::Gemini, JSON, first, [Some(30), None, None, None]);
    check(Api::Gemini, JSON, last, counts);
    check(Api::Gemini, EVENTS, events(&[first, last]), counts);
    check(Api::Gemini, JSON, format!("[{first}\n,\r\n{last}]"), counts);
    check(Api::Gemini, JSON, r#"{"totalTokens":31}"#, [None; 4]);
    check(
        Api::Gemini,
        JSON,
        r#"{"usageMetadata":{"promptTokenCount":3,"thoughtsTokenCount":5}}"#,
        [Some(3), Some(5), None, Some(5)],
    );
}

fn frame(kind: &str, payload: &str) -> Vec<u8> {
    let headers = [
        (":event-type", kind),
        (":content-type", JSON),
        (":message-type", "event"),
    ];
    encode(&headers, payload.as_bytes()).unwrap()
}

fn chunk(event: &str) -> Vec<u8> {
    let bytes = STANDARD.encode(event);
    frame("chunk", &format!("{{\"bytes\":\"{bytes}\",\"p\":\"abc\"}}"))
}

#[test]
fn bedrock_answers() {
    // R-L8
    let counts = r#"{"usage":{"inputTokens":11,"outputTokens":22,"totalTokens":40,"cacheReadInputTokens":5,"cacheWriteInputTokens":2},"metrics":{"latencyMs":5}}"#;
    let wanted = [Some(18), Some(22), Some(5), None];
    check(Api::BedrockConverse, JSON, counts, wanted);
    let stream = [
        frame("messageStart", r#"{"role":"assistant"}"#),
        frame("contentBlockDelta", r#"{"delta":{"text":"usage"}}"#),
        frame("messageStop", r#"{"stopReason":"end_turn"}"#),
        frame("metadata", counts),
    ];
    check(Api::BedrockConverse, AWS, stream.concat(), wanted);
    let stream = [
        chunk(
            r#"{"type":"message_start","message":{"usage":{"input_tokens":25,"cache_read_input_tokens":3,"output_tokens":1}}}"#,
        ),
        chunk(r#"{"type":"message_delta","delta":{},"usage":{"output_tokens":9}}"#),
        chunk(
            r#"{"type":"message_stop","amazon-bedrock-invocationMetrics":{"inputTokenCount":25,"outputTokenCount":10,"invocationLatency":7,"cacheReadInputTokenCount":3,"cacheWriteInputTokenCount":1}}"#,
        ),
    ];
    check(
        Api::BedrockInvoke,
        AWS,
        stream.concat(),
        [Some(29), Some(10), Some(3), None],
    );
}

#[test]
fn bedrock_headers_tell_what_a_body_does_not() {
    // R-L8
    let headers = [
        ("content-type", JSON),
        ("x-amzn-bedrock-input-token-count", "13"),
        ("x-amzn-bedrock-output-token-count", "21"),
    ];
    let head = ResponseHead {
        status: 200,
        headers: &headers,
    };
    for (body, counts) in [
        (r#"{"generation":"x"}"#, [Some(13), Some(21), None, None]),
        (
            r#"{"usage":{"input_tokens":14,"cache_read_input_tokens":2,"output_tokens":20}}"#,
            [Some(16), Some(20), Some(2), None],
        ),
    ] {
        let mut reader = UsageReader::new(Api::BedrockInvoke, false, &head).unwrap();
        reader.feed(body.as_bytes());
        reader.finish();
        assert_eq!(reader.usage(), usage(counts, false), "{body}");
    }
    for value in ["-1", "1.5", "", "1e3", "99999999999999999999", "x"] {
        let headers = [
            ("content-type", "text/plain"),
            ("x-amzn-bedrock-input-token-count", value),
        ];
        let head = ResponseHead {
            status: 200,
            headers: &headers,
        };
        assert!(
            UsageReader::new(Api::BedrockInvoke, false, &head).is_none(),
            "{value}"
        );
    }
}

#[test]
fn what_is_no_plain_count_is_ignored() {
    // R-L8
    for value in [
        "-5",
        "5.0",
        "5e0",
        "1000000000001",
        "99999999999999999999999999",
        "\"5\"",
        "null",
        "true",
        "[5]",
        "{\"n\":5}",
        "0x5",
        "-",
        "+5",
    ] {
        for body in [
            format!("{{\"usage\":{{\"prompt_tokens\":{value}}}}}"),
            format!("{{\"usage\":{{\"prompt_tokens\":{value}}},\"x\":[1,{{}}]}}"),
        ] {
            check(Api::OpenaiChat, JSON, body, [None; 4]);
        }
    }
    check(
        Api::OpenaiChat,
        JSON,
        r#"{"usage":{"prompt_tokens":1000000000000,"completion_tokens":0}}"#,
        [Some(1_000_000_000_000), Some(0), None, None],
    );
}

#[test]
fn what_is_malformed_tells_nothing() {
    // R-L8
    for body in [
        r#"{"usage" {"prompt_tokens":5}}"#,
        r#"{"usage":{"prompt_tokens":5,}}"#,
        r#"{"usage":{"prompt_tokens":5]}"#,
        r#"{"usage":{prompt_tokens:5}}"#,
        r#"{,"usage":{"prompt_tokens":5}}"#,
        r#"[{"usage":{"prompt_tokens":5}}]"#,
        r#"x{"usage":{"prompt_tokens":5}}"#,
        r#""usage":{"prompt_tokens":5}"#,
        r#"{"\u0075sage":{"prompt_tokens":5}}"#,
        r#"{"usage":[{"prompt_tokens":5}]}"#,
        r#"{"other":{"usage":{"prompt_tokens":5}}}"#,
        "",
    ] {
        check(Api::OpenaiChat, JSON, body, [None; 4]);
    }
    // What breaks in one line, or does not end there, ends with it.
    for broken in [
        r#"{"usage" "#,
        r#"{"usage":{"prompt_tokens":9,"#,
        "usage",
        "[DONE]",
    ] {
        let good = r#"{"usage":{"prompt_tokens":5}}"#;
        let counts = [Some(5), None, None, None];
        check(Api::OpenaiChat, EVENTS, events(&[good, broken]), counts);
        check(Api::OpenaiChat, EVENTS, events(&[broken, good]), counts);
    }
    // A document that never ends is believed while it goes on, not when it is over.
    let mut cut = reader(Api::OpenaiChat, JSON);
    cut.feed(br#"{"usage":{"prompt_tokens":5,"completion_tokens":1"#);
    assert_eq!(cut.usage(), usage([Some(5), None, None, None], true));
    cut.finish();
    assert_eq!(cut.usage(), None);
    // Any depth takes no memory and no stack.
    let deep = format!("{{\"x\":{}{}", "[".repeat(1 << 20), "]".repeat(1 << 20));
    let mut walked = reader(Api::OpenaiChat, JSON);
    walked.feed(deep.as_bytes());
    walked.feed(br#","usage":{"prompt_tokens":5}}"#);
    walked.finish();
    assert_eq!(walked.usage(), usage([Some(5), None, None, None], false));
}

#[test]
fn a_frame_over_the_bound_ends_the_reading() {
    // R-L8
    let counts = r#"{"usage":{"inputTokens":11,"outputTokens":22}}"#;
    let long = frame("contentBlockDelta", &"x".repeat(FRAME_MAX));
    let mut lost = reader(Api::BedrockConverse, AWS);
    lost.feed(&[frame("metadata", counts), long].concat());
    lost.feed(&frame("metadata", counts));
    lost.finish();
    assert_eq!(lost.usage(), usage([Some(11), Some(22), None, None], true));
}

#[test]
fn what_cannot_tell_anything_is_not_read() {
    // R-L8
    for (status, name, value) in [
        (200, "content-type", "audio/mpeg"),
        (200, "content-type", "text/plain"),
        (429, "content-type", JSON),
        (101, "content-type", JSON),
        (200, "content-encoding", "gzip"),
    ] {
        let headers = [(name, value)];
        let head = ResponseHead {
            status,
            headers: &headers,
        };
        assert!(
            UsageReader::new(Api::OpenaiChat, false, &head).is_none(),
            "{status} {value}"
        );
    }
}

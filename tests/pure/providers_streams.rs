//! Good answers: when they may be committed, and the errors that hide in them.

use rondo::core::api::Api;
use rondo::core::class::Class;
use rondo::core::outcome::{Carrier, Outcome};
use rondo::providers::answer::{RequestTraits, ResponseHead};
use rondo::providers::peek::{Peek, Rest, peek};
use rondo::providers::sse::{SseEvent, SseParser};
use rondo::providers::stream::{Progress, StreamWatch};

use super::providers_support::{JSON, SSE, adapter, certified, peek_stream, stream_error};

const ROLE: &str = "data: {\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\"},\"finish_reason\":null}]}\n\n";
const CREATED: &str = "event: response.created\ndata: {\"type\":\"response.created\",\"response\":{\"error\":null}}\n\nevent: response.in_progress\ndata: {\"type\":\"response.in_progress\",\"response\":{}}\n\n";
const START: &str =
    "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"content\":[]}}\n\n";

/// An error first: refused, never proven, with a class and a status of its own.
fn check(name: &str, api: Api, text: &str, class: Class, status: u16) {
    let verdict = stream_error(name, api, text);
    assert_eq!((verdict.class, verdict.status), (class, status), "{text}");
    assert_eq!(
        (verdict.outcome, verdict.carrier),
        (Outcome::Refused, Carrier::Stream)
    );
}

#[test]
fn c43_comments_and_pings_before_an_error_prove_nothing() {
    // R-A4 C43
    let text = ": ping\n\nevent: ping\n\ndata: {\"error\":{\"code\":502,\"message\":\"Provider returned error\"}}\n\n";
    check(
        "openai_compatible",
        Api::OpenaiChat,
        text,
        Class::ServerError,
        502,
    );
}

#[test]
fn c44_an_error_with_a_vendor_number_and_done_is_a_throttle() {
    // R-A4 C44
    let text = "event: error\ndata: {\"error\":{\"code\":\"1302\",\"message\":\"High concurrency\"}}\n\ndata: [DONE]\n\n";
    check(
        "openai_compatible",
        Api::OpenaiChat,
        text,
        Class::Throttle,
        429,
    );
    check(
        "anthropic_compatible",
        Api::AnthropicMessages,
        text,
        Class::Throttle,
        429,
    );
}

#[test]
fn c45_an_overload_in_a_stream_reads_like_its_status() {
    // R-A4 C45
    let text = "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"service_unavailable_error\",\"code\":\"server_is_overloaded\",\"message\":\"m\"}}\n\n";
    for api in [Api::OpenaiChat, Api::OpenaiResponses] {
        check("openai", api, text, Class::Overload, 503);
    }
}

#[test]
fn c46_an_error_frame_needs_no_event_name() {
    // R-A4 C46
    let ping = "data: {\"type\":\"ping\"}\n\n";
    let error = "data: {\"type\":\"error\",\"error\":{\"type\":\"rate_limit_error\",\"message\":\"Concurrency limit\"}}\n\n";
    let text = [ping, ping, error].concat();
    check(
        "anthropic",
        Api::AnthropicMessages,
        &text,
        Class::Throttle,
        429,
    );
    check(
        "openai_compatible",
        Api::OpenaiChat,
        &text,
        Class::Throttle,
        429,
    );
}

#[test]
fn c47_an_overload_after_the_start_of_a_message_is_not_output() {
    // R-A4 C47
    let error = "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"Overloaded\"}}\n\n";
    check(
        "anthropic",
        Api::AnthropicMessages,
        &[START, error].concat(),
        Class::Overload,
        529,
    );
}

#[test]
fn c48_a_failed_response_is_held_and_classified() {
    // R-A4 C48
    for (code, class, status) in [
        ("rate_limit_exceeded", Class::Throttle, 429),
        ("server_is_overloaded", Class::Overload, 503),
        ("server_error", Class::ServerError, 500),
        ("insufficient_quota", Class::QuotaHard, 429),
    ] {
        let failed = format!(
            "event: response.failed\ndata: {{\"type\":\"response.failed\",\"response\":{{\"error\":{{\"code\":\"{code}\",\"message\":\"m\"}}}}}}\n\n"
        );
        check(
            "openai",
            Api::OpenaiResponses,
            &[CREATED, &failed].concat(),
            class,
            status,
        );
    }
}

#[test]
fn a_deterministic_error_in_a_stream_keeps_its_status() {
    // R-A4
    let text = "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"invalid_request_error\",\"message\":\"m\"}}\n\n";
    check(
        "anthropic",
        Api::AnthropicMessages,
        text,
        Class::Config,
        400,
    );
    check("openai", Api::OpenaiChat, text, Class::Config, 400);
    let text =
        "data: {\"error\":{\"code\":429,\"message\":\"m\",\"status\":\"RESOURCE_EXHAUSTED\"}}\n\n";
    check("gemini", Api::Gemini, text, Class::Throttle, 429);
    let text = "data: {\"error\":\"boom\"}\n\n";
    check(
        "openai_compatible",
        Api::OpenaiChat,
        text,
        Class::ServerError,
        502,
    );
}

#[test]
fn preamble_is_held_and_output_commits() {
    // R-A4
    let usage = "data: {\"usageMetadata\":{},\"modelVersion\":\"m\"}\n\n";
    let filters = "data: {\"choices\":[],\"prompt_filter_results\":[{}]}\n\n";
    let block = "data: {\"type\":\"content_block_start\",\"content_block\":{\"type\":\"text\",\"text\":\"\"}}\n\n";
    let started = [START, block].concat();
    let cases: [(&str, Api, &str, &[&str]); 6] = [
        (
            "openai",
            Api::OpenaiChat,
            ROLE,
            &[
                r#"{"choices":[{"delta":{"content":"Hi"}}]}"#,
                r#"{"choices":[{"delta":{"reasoning_content":"Hm"}}]}"#,
                r#"{"choices":[{"delta":{"refusal":"No"}}]}"#,
                r#"{"choices":[{"delta":{"tool_calls":[{"index":0,"function":{"name":"f"}}]}}]}"#,
                r#"{"choices":[{"delta":{"something_new":1}}]}"#,
                r#"{"choices":[{"delta":{},"finish_reason":"stop"}]}"#,
                "not json",
            ],
        ),
        (
            "openai",
            Api::OpenaiChat,
            filters,
            &[r#"{"choices":[{"delta":{"content":"Hi"}}]}"#],
        ),
        (
            "openai",
            Api::OpenaiCompletions,
            "data: {\"choices\":[{\"text\":\"\"}]}\n\n",
            &[r#"{"choices":[{"text":"Hi"}]}"#],
        ),
        (
            "openai",
            Api::OpenaiResponses,
            CREATED,
            &[
                r#"{"type":"response.output_item.added"}"#,
                r#"{"type":"response.web_search_call.in_progress"}"#,
                r#"{"type":"response.incomplete","response":{"incomplete_details":{"reason":"content_filter"}}}"#,
            ],
        ),
        (
            "anthropic",
            Api::AnthropicMessages,
            &started,
            &[
                r#"{"type":"content_block_delta","delta":{"type":"text_delta","text":"Hi"}}"#,
                r#"{"type":"content_block_start","content_block":{"type":"tool_use"}}"#,
                r#"{"type":"content_block_start","content_block":{"type":"thinking","thinking":""}}"#,
                r#"{"type":"message_delta","delta":{"stop_reason":"refusal"}}"#,
                r#"{"type":"event_of_tomorrow"}"#,
            ],
        ),
        (
            "gemini",
            Api::Gemini,
            usage,
            &[
                r#"{"candidates":[{"content":{"parts":[{"text":"Hi"}]}}]}"#,
                r#"{"candidates":[{"content":{"parts":[{"functionCall":{"name":"f"}}]}}]}"#,
                r#"{"candidates":[{"finishReason":"SAFETY"}]}"#,
                r#"{"promptFeedback":{"blockReason":"SAFETY"}}"#,
            ],
        ),
    ];
    for (name, api, preamble, outputs) in cases {
        assert_eq!(
            peek_stream(name, api, preamble, Rest::Open),
            Peek::NeedMore,
            "{preamble}"
        );
        assert_eq!(
            peek_stream(name, api, preamble, Rest::Bound),
            Peek::Commit,
            "fails open"
        );
        for output in outputs {
            let text = format!("{preamble}data: {output}\n\n");
            assert_eq!(
                peek_stream(name, api, &text, Rest::Open),
                Peek::Commit,
                "{output}"
            );
        }
    }
}

#[test]
fn a_stream_that_ends_before_it_says_anything_is_ambiguous() {
    // R-A4
    for text in ["", "\n\n", ": keep-alive\n\n", ROLE] {
        let Peek::Error(verdict) = peek_stream("openai", Api::OpenaiChat, text, Rest::Ended) else {
            panic!("{text}");
        };
        assert_eq!(
            (verdict.outcome, verdict.class),
            (Outcome::Ambiguous, Class::Ambiguous)
        );
        assert_eq!((verdict.carrier, verdict.status), (Carrier::Stream, 502));
    }
}

#[test]
fn the_last_event_counts_without_its_blank_line() {
    // R-A4
    let text = "data: {\"type\":\"error\",\ndata: \"error\":{\"type\":\"overloaded_error\",\"message\":\"m\"}}";
    assert_eq!(
        peek_stream("anthropic", Api::AnthropicMessages, text, Rest::Open),
        Peek::NeedMore
    );
    let Peek::Error(verdict) = peek_stream("anthropic", Api::AnthropicMessages, text, Rest::Ended)
    else {
        panic!("not an error");
    };
    assert_eq!(verdict.class, Class::Overload);
}

#[test]
fn bare_json_in_an_event_stream_is_read() {
    // R-A4
    let text = "{\n  \"error\": {\n    \"code\": 503,\n    \"message\": \"m\",\n    \"status\": \"UNAVAILABLE\"\n  }\n}\n";
    let Peek::Error(verdict) = peek_stream("gemini", Api::Gemini, text, Rest::Ended) else {
        panic!("not an error");
    };
    assert_eq!((verdict.class, verdict.status), (Class::Overload, 503));
}

#[test]
fn gemini_streams_may_be_one_array() {
    // R-A4
    let headers = vec![JSON];
    let head = ResponseHead {
        status: 200,
        headers: &headers,
    };
    let traits = RequestTraits {
        api: Api::Gemini,
        stream: true,
        side_effects: false,
    };
    let look = |text: &str| {
        peek(
            adapter("gemini"),
            &traits,
            &head,
            text.as_bytes(),
            Rest::Open,
        )
    };
    assert_eq!(look("[{\"usageMetadata\":{}}\n,\r\n"), Peek::NeedMore);
    assert_eq!(
        look("[{\"candidates\":[{\"content\":{\"parts\":[{\"text\":\"]\"}]}}]}"),
        Peek::Commit
    );
    assert!(matches!(
        look("[{\"error\":{\"code\":503,\"message\":\"m\",\"status\":\"UNAVAILABLE\"}}]"),
        Peek::Error(_)
    ));
    assert_eq!(look("{\"candidates\":["), Peek::Commit);
}

#[test]
fn a_body_commits_with_its_first_byte_that_is_not_blank() {
    // R-A4
    let headers = vec![JSON];
    let head = ResponseHead {
        status: 200,
        headers: &headers,
    };
    let traits = RequestTraits {
        api: Api::OpenaiChat,
        stream: false,
        side_effects: false,
    };
    let look =
        |name: &str, text: &str, rest| peek(adapter(name), &traits, &head, text.as_bytes(), rest);
    assert_eq!(look("openai", "\n\n\n", Rest::Open), Peek::NeedMore);
    assert_eq!(look("openai", "\n\n{", Rest::Open), Peek::Commit);
    assert!(matches!(
        look("openai", "\n\n", Rest::Ended),
        Peek::Error(_)
    ));
    let error = r#"{"error":{"message":"m","type":"requests","code":"rate_limit_exceeded"}}"#;
    assert_eq!(look("openai", error, Rest::Open), Peek::Commit);
    let Peek::Error(verdict) = look("openai_compatible", error, Rest::Open) else {
        panic!("not an error");
    };
    assert_eq!(
        (verdict.outcome, verdict.class),
        (Outcome::Ambiguous, Class::Ambiguous)
    );
    assert_eq!(
        look("openai_compatible", &error[..20], Rest::Open),
        Peek::NeedMore
    );
    assert_eq!(
        look("openai_compatible", &error[..20], Rest::Bound),
        Peek::Commit
    );
    assert_eq!(
        look("openai_compatible", "{\"id\"", Rest::Open),
        Peek::Commit
    );
    assert_eq!(
        look(
            "openai_compatible",
            "{\"error\":null,\"id\":1}",
            Rest::Ended
        ),
        Peek::Commit
    );
}

#[test]
fn encoded_and_unknown_streams_are_not_held() {
    // R-A4
    let traits = RequestTraits {
        api: Api::OpenaiChat,
        stream: true,
        side_effects: false,
    };
    for headers in [
        vec![SSE, ("content-encoding", "gzip")],
        vec![("content-type", "text/plain")],
    ] {
        let head = ResponseHead {
            status: 200,
            headers: &headers,
        };
        let look = |text: &[u8]| peek(adapter("openai"), &traits, &head, text, Rest::Open);
        assert_eq!(look(b""), Peek::NeedMore);
        assert_eq!(look(b"x"), Peek::Commit);
    }
}

#[test]
fn an_error_after_output_is_partial() {
    // R-A4
    let headers = vec![SSE];
    let head = ResponseHead {
        status: 200,
        headers: &headers,
    };
    let traits = RequestTraits {
        api: Api::OpenaiChat,
        stream: true,
        side_effects: false,
    };
    let mut watch = StreamWatch::new(adapter("openai"), traits, &head);
    assert_eq!(watch.feed(ROLE.as_bytes()), Progress::Preamble);
    assert_eq!(
        watch.feed(b"data: {\"choices\":[{\"delta\":{\"content\":\"Hi\"}}]}\n\n"),
        Progress::Output
    );
    assert_eq!(watch.ended_as(), Class::Ambiguous, "no proper end yet");
    assert_eq!(
        watch.feed(b"data: {\"error\":{\"code\":\"server_error\",\"message\":\"m\"}}\n\n"),
        Progress::Output
    );
    assert_eq!(
        watch.error().map(|verdict| verdict.outcome),
        Some(Outcome::Partial)
    );
    assert_eq!(watch.ended_as(), Class::ServerError);
}

#[test]
fn only_open_servers_prove_a_rejection_inside_a_stream_and_only_first() {
    // R-A1 R-A4 R-A5
    let full = "data: {\"error\":{\"object\":\"error\",\"message\":\"The request queue is full.\",\"type\":\"SERVICE_UNAVAILABLE\",\"param\":null,\"code\":503}}\n\ndata: [DONE]\n\n";
    let overloaded = "data: {\"error\":\"Model is overloaded\",\"error_type\":\"overloaded\"}\n\n";
    for (name, text) in [("sglang", full), ("tgi", overloaded)] {
        let verdict = stream_error(name, Api::OpenaiChat, text);
        assert!(certified(&verdict), "{name}");
        assert_eq!(
            (verdict.class, verdict.carrier),
            (Class::Overload, Carrier::Stream)
        );
        let late = stream_error(name, Api::OpenaiChat, &[ROLE, text].concat());
        assert_eq!(
            (late.outcome, late.class),
            (Outcome::Refused, Class::Overload)
        );
    }
    for name in [
        "vllm",
        "openai",
        "openai_compatible",
        "groq",
        "azure_openai",
    ] {
        assert!(
            !certified(&stream_error(name, Api::OpenaiChat, full)),
            "{name}"
        );
    }
    let limited = "data: {\"error\":{\"message\":\"m\",\"type\":\"requests\",\"code\":\"rate_limit_exceeded\"}}\n\n";
    check("openai", Api::OpenaiChat, limited, Class::Throttle, 429);
}

#[test]
fn event_streams_are_split_by_the_rules() {
    // R-A4
    let cases: [(&str, &[(&str, &str)]); 12] = [
        ("data: a\n\n", &[("", "a")]),
        ("data: a\r\ndata: b\r\n\r\n", &[("", "a\nb")]),
        ("data: a\rdata: b\r\r", &[("", "a\nb")]),
        ("data:a\n\ndata:  b\n\n", &[("", "a"), ("", " b")]),
        ("event: x\ndata: a\n\ndata: b\n\n", &[("x", "a"), ("", "b")]),
        ("event: x\n\ndata: a\n\n", &[("", "a")]),
        ("data\n\n", &[("", "")]),
        (": comment\nid: 1\nretry: 2\n\n", &[]),
        ("data: a", &[("", "a")]),
        ("\u{feff}data: a\n\n", &[("", "a")]),
        ("\u{feff}: c\n\ndata: a\n\n", &[("", "a")]),
        ("\n\u{feff}data: a\n\n", &[("", "\u{feff}data: a")]),
    ];
    for (text, wanted) in cases {
        let mut found = Vec::new();
        let mut parser = SseParser::new(100);
        let mut keep = |event: SseEvent| {
            let text = |bytes| String::from_utf8(bytes).unwrap();
            found.push((text(event.name), text(event.data)));
        };
        parser.feed(text.as_bytes(), &mut keep);
        parser.finish(&mut keep);
        let found: Vec<_> = found
            .iter()
            .map(|(name, data)| (name.as_str(), data.as_str()))
            .collect();
        assert_eq!(found, wanted, "{text:?}");
    }
}

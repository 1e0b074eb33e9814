//! AWS event streams: frames wherever the chunks end, and what they mean for the commitment.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use proptest::prelude::*;
use rondo::core::api::Api;
use rondo::core::class::Class;
use rondo::core::outcome::Outcome;
use rondo::providers::answer::{RequestTraits, ResponseHead};
use rondo::providers::event_stream::{EventStreamParser, Frame, Lost, encode};
use rondo::providers::peek::{Peek, Rest, peek};
use rondo::providers::stream::{Progress, StreamWatch};

use super::providers_support::adapter;

const MEDIA: &str = "application/vnd.amazon.eventstream";

fn event(kind: &str, payload: &str) -> Vec<u8> {
    let headers = [
        (":event-type", kind),
        (":content-type", "application/json"),
        (":message-type", "event"),
    ];
    encode(&headers, payload.as_bytes()).unwrap()
}

fn exception(kind: &str, message: &str) -> Vec<u8> {
    let headers = [(":exception-type", kind), (":message-type", "exception")];
    encode(
        &headers,
        format!("{{\"message\":\"{message}\"}}").as_bytes(),
    )
    .unwrap()
}

fn chunk(event_text: &str) -> Vec<u8> {
    let bytes = STANDARD.encode(event_text);
    event("chunk", &format!("{{\"bytes\":\"{bytes}\",\"p\":\"abc\"}}"))
}

fn frames(chunks: &[&[u8]], frame_max: usize) -> (Vec<Frame>, Option<Lost>) {
    let (mut parser, mut found) = (EventStreamParser::new(frame_max), Vec::new());
    for chunk in chunks {
        parser.feed(chunk, &mut |frame| found.push(frame));
    }
    (found, parser.lost())
}

fn watch(bytes: &[u8], step: usize) -> StreamWatch {
    let headers = [("content-type", MEDIA)];
    let head = ResponseHead {
        status: 200,
        headers: &headers,
    };
    let traits = RequestTraits {
        api: Api::OpenaiChat,
        stream: true,
        side_effects: false,
    };
    let mut watch = StreamWatch::new(adapter("bedrock"), traits, &head);
    for part in bytes.chunks(step) {
        watch.feed(part);
    }
    watch.finish();
    watch
}

#[test]
fn a_frame_is_read_with_its_headers_and_payload() {
    // R-A4
    let bytes = event("messageStart", "{}");
    let (found, lost) = frames(&[&bytes], 1000);
    assert_eq!(lost, None);
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].header(":event-type"), Some("messageStart"));
    assert_eq!(found[0].header(":missing"), None);
    assert_eq!(found[0].payload, b"{}");
}

#[test]
fn headers_of_every_type_are_stepped_over() {
    // R-A4
    let mut lines: Vec<u8> = Vec::new();
    let values: [(u8, &[u8]); 9] = [
        (0, &[]),
        (1, &[]),
        (2, &[1]),
        (3, &[1, 2]),
        (4, &[1, 2, 3, 4]),
        (5, &[0; 8]),
        (6, &[0, 2, 9, 9]),
        (8, &[0; 8]),
        (9, &[0; 16]),
    ];
    for (kind, value) in values {
        lines.extend([1, b'x', kind]);
        lines.extend(value);
    }
    lines.extend([1, b'y', 7, 0, 2, b'o', b'k']);
    let (found, lost) = frames(&[&framed(&lines)], 1000);
    assert_eq!(lost, None);
    assert_eq!(found[0].header("y"), Some("ok"));
    assert_eq!(found[0].header("x"), None);
    let broken: [&[u8]; 5] = [
        &[1, b'x', 10],
        &[1, b'x'],
        &[5, b'x'],
        &[1, b'x', 7, 0, 9, b'o'],
        &[1, b'x', 7, 0, 1, 0xff],
    ];
    for lines in broken {
        assert_eq!(
            frames(&[&framed(lines)], 1000),
            (vec![], Some(Lost::Broken))
        );
    }
    let many = [1, b'x', 0].repeat(40);
    assert_eq!(frames(&[&framed(&many)], 1000).1, Some(Lost::Broken));
}

/// A frame around these header bytes, with right lengths and checksums.
fn framed(lines: &[u8]) -> Vec<u8> {
    let total = u32::try_from(16 + lines.len()).unwrap();
    let mut frame = total.to_be_bytes().to_vec();
    frame.extend(u32::try_from(lines.len()).unwrap().to_be_bytes());
    frame.extend(crc32fast::hash(&frame).to_be_bytes());
    frame.extend(lines);
    frame.extend(crc32fast::hash(&frame).to_be_bytes());
    frame
}

#[test]
fn any_changed_byte_breaks_a_frame() {
    // R-A4
    let good = event("messageStart", "{\"role\":\"assistant\"}");
    for place in 0..good.len() {
        let mut bad = good.clone();
        bad[place] ^= 0x10;
        let (found, lost) = frames(&[&bad, &good], 1 << 20);
        assert!(found.is_empty(), "byte {place}");
        assert_eq!(lost, Some(Lost::Broken), "byte {place}");
    }
}

#[test]
fn a_frame_over_the_bound_is_not_gathered() {
    // R-A4
    let bytes = event("contentBlockDelta", &"x".repeat(500));
    assert_eq!(frames(&[&bytes], bytes.len()).1, None);
    assert_eq!(frames(&[&bytes], bytes.len() - 1).1, Some(Lost::OverBound));
    let huge = [0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0];
    let mut prelude = huge.to_vec();
    prelude.extend(crc32fast::hash(&huge).to_be_bytes());
    assert_eq!(frames(&[&prelude], 1000), (vec![], Some(Lost::OverBound)));
    let lengths = [0, 0, 0, 15, 0, 0, 0, 0];
    let mut short = lengths.to_vec();
    short.extend(crc32fast::hash(&lengths).to_be_bytes());
    assert_eq!(frames(&[&short], 1000).1, Some(Lost::Broken));
}

#[test]
fn an_exception_before_output_is_an_error_and_never_a_proof() {
    // C53
    // R-A4 R-A1
    let start = event("messageStart", "{\"role\":\"assistant\"}");
    let cases = [
        ("throttlingException", "m", Class::Throttle, 429),
        (
            "throttlingException",
            "tokens per day",
            Class::QuotaHard,
            429,
        ),
        ("serviceUnavailableException", "m", Class::Overload, 503),
        ("internalServerException", "m", Class::ServerError, 500),
        ("modelStreamErrorException", "m", Class::ServerError, 424),
        ("modelTimeoutException", "m", Class::Timeout, 408),
        ("validationException", "m", Class::Config, 400),
        (
            "validationException",
            "Input is too long",
            Class::ContextOverflow,
            400,
        ),
        ("newException", "m", Class::ServerError, 502),
    ];
    for (kind, message, class, status) in cases {
        let error = exception(kind, message);
        for bytes in [error.clone(), [start.clone(), error].concat()] {
            for step in [1, 7, bytes.len()] {
                let watch = watch(&bytes, step);
                let Progress::Failed(verdict) = watch.progress() else {
                    panic!("{kind}: {:?}", watch.progress());
                };
                assert_eq!((verdict.class, verdict.status), (class, status), "{kind}");
                assert_eq!(verdict.outcome, Outcome::Refused, "{kind}");
                let body = format!("{{\"message\":\"{message}\"}}");
                assert_eq!(watch.error_body(), Some(body.as_bytes()), "{kind}");
            }
        }
    }
}

#[test]
fn an_error_frame_has_its_code_and_message_in_headers() {
    // R-A4
    let headers = [
        (":message-type", "error"),
        (":error-code", "InternalFailure"),
        (":error-message", "m"),
    ];
    let watch = watch(&encode(&headers, b"").unwrap(), 3);
    let error = watch.error().unwrap();
    assert_eq!(
        (error.class, error.rule),
        (Class::ServerError, "bedrock.internal")
    );
    let body = br#"{"error":{"code":"InternalFailure","message":"m"}}"#;
    assert_eq!(watch.error_body(), Some(&body[..]));
}

#[test]
fn a_conversation_commits_with_its_first_content() {
    // R-A4
    let start = event("messageStart", "{\"role\":\"assistant\"}");
    let preamble = [event("initial-response", ""), start.clone()].concat();
    assert_eq!(watch(&preamble, 5).progress(), Progress::Preamble);
    let outputs = [
        event("contentBlockStart", "{\"start\":{\"toolUse\":{}}}"),
        event("contentBlockDelta", "{\"delta\":{\"text\":\"Hi\"}}"),
        event("messageStop", "{\"stopReason\":\"end_turn\"}"),
        event("somethingNew", "{}"),
        encode(&[("x", "y")], b"").unwrap(),
    ];
    for output in outputs {
        let bytes = [start.clone(), output].concat();
        assert_eq!(watch(&bytes, 5).progress(), Progress::Output);
    }
    let ends = [
        ("end_turn", Class::OkStream),
        ("guardrail_intervened", Class::ContentPolicy),
        ("content_filtered", Class::ContentPolicy),
    ];
    for (reason, class) in ends {
        let stop = event("messageStop", &format!("{{\"stopReason\":\"{reason}\"}}"));
        assert_eq!(watch(&[start.clone(), stop].concat(), 9).ended_as(), class);
    }
    assert_eq!(watch(&start, 9).ended_as(), Class::Ambiguous);
}

#[test]
fn an_exception_after_output_is_partial() {
    // R-A4
    let text = event("contentBlockDelta", "{\"delta\":{\"text\":\"Hi\"}}");
    let error = exception("throttlingException", "m");
    let watch = watch(&[text, error].concat(), 11);
    assert_eq!(watch.progress(), Progress::Output);
    assert_eq!(watch.error().unwrap().outcome, Outcome::Partial);
}

#[test]
fn invoked_models_stream_their_own_events_in_chunks() {
    // R-A4
    let start = chunk(r#"{"type":"message_start","message":{"content":[]}}"#);
    assert_eq!(watch(&start, 4).progress(), Progress::Preamble);
    let says = chunk(r#"{"type":"content_block_delta","delta":{"text":"Hi"}}"#);
    assert_eq!(
        watch(&[start.clone(), says].concat(), 4).progress(),
        Progress::Output
    );
    let error = chunk(r#"{"type":"error","error":{"type":"overloaded_error","message":"m"}}"#);
    let failed = watch(&[start.clone(), error].concat(), 4);
    assert!(
        matches!(failed.progress(), Progress::Failed(verdict) if verdict.class == Class::Overload)
    );
    let stop = chunk(r#"{"type":"message_stop"}"#);
    assert_eq!(
        watch(&[start, stop].concat(), 4).ended_as(),
        Class::OkStream
    );
    let others = [
        chunk(r#"{"generation":"Hi"}"#),
        chunk("not json"),
        event("chunk", r#"{"bytes":"%%"}"#),
        event("chunk", "{}"),
    ];
    for other in others {
        assert_eq!(watch(&other, 4).progress(), Progress::Output);
    }
}

#[test]
fn a_broken_frame_is_passed_on_and_remembered() {
    // R-A4: what cannot be followed is not held.
    let mut bytes = event("messageStart", "{}");
    bytes[20] ^= 1;
    let broken = watch(&bytes, 5);
    assert_eq!(broken.progress(), Progress::Output);
    assert_eq!(broken.ended_as(), Class::Malformed);
}

#[test]
fn a_frame_that_never_ends_is_ambiguous() {
    // R-A4
    let headers = [("content-type", MEDIA)];
    let head = ResponseHead {
        status: 200,
        headers: &headers,
    };
    let traits = RequestTraits {
        api: Api::OpenaiChat,
        stream: false,
        side_effects: false,
    };
    let bytes = exception("throttlingException", "m");
    let cut = &bytes[..bytes.len() - 1];
    let look = |rest| peek(adapter("bedrock"), &traits, &head, cut, rest);
    assert_eq!(look(Rest::Open), Peek::NeedMore);
    assert!(
        matches!(look(Rest::Ended), Peek::Error(verdict) if verdict.outcome == Outcome::Ambiguous)
    );
    assert_eq!(look(Rest::Bound), Peek::Commit);
}

proptest! {
    #[test]
    fn frames_do_not_depend_on_chunks(
        payloads in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 0..6),
        noise in prop::collection::vec(any::<u8>(), 0..20),
        sizes in prop::collection::vec(0_usize..30, 0..20),
        frame_max in 20_usize..120,
    ) {
        // R-A4
        let mut bytes = Vec::new();
        for payload in &payloads {
            bytes.extend(encode(&[(":event-type", "x")], payload).unwrap());
        }
        bytes.extend(noise);
        let whole = frames(&[&bytes], frame_max);
        let (mut rest, mut parts) = (bytes.as_slice(), Vec::new());
        for size in sizes {
            let (part, tail) = rest.split_at(size.min(rest.len()));
            parts.push(part);
            rest = tail;
        }
        parts.push(rest);
        prop_assert_eq!(&whole, &frames(&parts, frame_max));
        let single: Vec<&[u8]> = bytes.chunks(1).collect();
        prop_assert_eq!(&whole, &frames(&single, frame_max));
    }
}

#[test]
fn json_lines_are_followed_wherever_the_chunks_end() {
    // R-A4
    let headers = [("content-type", "application/x-ndjson")];
    let head = ResponseHead {
        status: 200,
        headers: &headers,
    };
    let traits = RequestTraits {
        api: Api::OpenaiChat,
        stream: false,
        side_effects: false,
    };
    let says = "{\"message\":{\"content\":\"Hi\"},\"done\":false}\n";
    let cases = [
        ("{\"error\":\"x\"}\n".to_owned(), Class::ServerError),
        ("\r\n\n {\"error\":\"x\"}".to_owned(), Class::ServerError),
        (format!("{says}{{\"error\":\"x\"}}"), Class::ServerError),
        (format!("{says}{{\"done\":true}}\n"), Class::OkStream),
        (says.to_owned(), Class::Ambiguous),
        (String::new(), Class::Ambiguous),
    ];
    for (text, class) in cases {
        for step in [1, 5, text.len().max(1)] {
            let mut watch = StreamWatch::new(adapter("ollama"), traits, &head);
            for part in text.as_bytes().chunks(step) {
                watch.feed(part);
            }
            watch.finish();
            assert_eq!(watch.ended_as(), class, "{text}");
        }
    }
    let first = peek(
        adapter("ollama"),
        &traits,
        &head,
        b"{\"error\":\"x\"}\n",
        Rest::Open,
    );
    assert!(matches!(first, Peek::Error(verdict) if verdict.outcome == Outcome::Refused));
    let long = [b'x'; 70_000];
    let over = peek(adapter("ollama"), &traits, &head, &long, Rest::Open);
    assert_eq!(over, Peek::Commit, "a line over the bound is not held");
}

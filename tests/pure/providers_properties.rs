//! Parsers, for any input.

use proptest::prelude::*;
use rondo::core::api::Api;
use rondo::core::limits::PUSHBACK_MAX;
use rondo::providers::answer::{BodyEnd, RequestTraits, ResponseHead, Single};
use rondo::providers::classify::classify;
use rondo::providers::encoding::decode;
use rondo::providers::json_array::ArraySplitter;
use rondo::providers::json_envelope;
use rondo::providers::peek::{Peek, Rest, peek};
use rondo::providers::registry;
use rondo::providers::sse::{SseEvent, SseParser};

use super::providers_support::certified;

/// Everything a parser gives out for chunks, and whether it overflowed.
fn parse(chunks: &[&[u8]], event_max: usize) -> (Vec<SseEvent>, bool) {
    let mut parser = SseParser::new(event_max);
    let mut events = Vec::new();
    for chunk in chunks {
        parser.feed(chunk, &mut |event| events.push(event));
    }
    parser.finish(&mut |event| events.push(event));
    (events, parser.overflowed())
}

fn split<'a>(bytes: &'a [u8], sizes: &[usize]) -> Vec<&'a [u8]> {
    let (mut rest, mut chunks) = (bytes, Vec::new());
    for size in sizes {
        let (chunk, tail) = rest.split_at((*size).min(rest.len()));
        chunks.push(chunk);
        rest = tail;
    }
    chunks.push(rest);
    chunks
}

/// Bytes that look like an event stream.
fn event_stream() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop::sample::select(vec![
        "data: ",
        "data:",
        "event: error",
        "event: ping",
        "id: 1",
        "retry: 5",
        ": c",
        "\n",
        "\n\n",
        "\r",
        "\r\n",
        "{\"error\":{\"code\":503}}",
        "[DONE]",
        "{}",
        "x",
        ":",
        "\u{feff}",
        "{\"choices\":[]}",
        "{\"type\":\"ping\"}",
        "é",
    ]);
    prop::collection::vec(piece, 0..40).prop_map(|pieces| pieces.concat().into_bytes())
}

proptest! {
    #[test]
    fn events_do_not_depend_on_chunks(
        bytes in event_stream(),
        sizes in prop::collection::vec(0_usize..9, 0..30),
        event_max in 1_usize..200,
    ) {
        // R-A4
        let whole = parse(&[&bytes], event_max);
        prop_assert_eq!(&whole, &parse(&split(&bytes, &sizes), event_max));
        let single: Vec<&[u8]> = bytes.chunks(1).collect();
        prop_assert_eq!(&whole, &parse(&single, event_max));
    }

    #[test]
    fn array_elements_do_not_depend_on_chunks(
        bytes in "[\\[\\]{}\",:a\\\\ ]{0,60}",
        sizes in prop::collection::vec(0_usize..9, 0..20),
    ) {
        // R-A4
        let elements = |chunks: &[&[u8]]| {
            let (mut splitter, mut found) = (ArraySplitter::new(40), Vec::new());
            for chunk in chunks {
                splitter.feed(chunk, &mut |element| found.push(element));
            }
            (found, splitter.overflowed(), splitter.closed())
        };
        let chunks = split(bytes.as_bytes(), &sizes);
        prop_assert_eq!(elements(&[bytes.as_bytes()]), elements(&chunks));
    }

    #[test]
    fn a_decided_peek_stays_decided(bytes in event_stream(), cut in 0_usize..400) {
        // R-A4
        let headers = [("content-type", "text/event-stream")];
        let head = ResponseHead { status: 200, headers: &headers };
        let prefix = &bytes[..cut.min(bytes.len())];
        for adapter in registry::all() {
            let api = adapter.speaks.iter().next().unwrap();
            let traits = RequestTraits { api, stream: true, side_effects: false };
            let early = peek(adapter, &traits, &head, prefix, Rest::Open);
            let late = peek(adapter, &traits, &head, &bytes, Rest::Open);
            prop_assert!(early == Peek::NeedMore || early == late, "{early:?} then {late:?}");
            prop_assert_ne!(peek(adapter, &traits, &head, prefix, Rest::Ended), Peek::NeedMore);
            prop_assert_ne!(peek(adapter, &traits, &head, prefix, Rest::Bound), Peek::NeedMore);
        }
    }

    #[test]
    fn any_answer_is_judged(
        status in 300_u16..600,
        body in prop::collection::vec(any::<u8>(), 0..200),
        encoding in prop::sample::select(vec!["", "gzip", "deflate", "br", "zstd", "identity"]),
        delay in ".{0,30}",
    ) {
        // R-A2 R-A3
        let headers = [
            ("content-type", "application/json"), ("content-encoding", encoding),
            ("retry-after", delay.as_str()), ("retry-after-ms", delay.as_str()), ("date", delay.as_str()),
        ];
        let head = ResponseHead { status, headers: &headers };
        for adapter in registry::all() {
            let api = adapter.speaks.iter().next().unwrap();
            let traits = RequestTraits { api, stream: false, side_effects: false };
            let verdict = classify(adapter, &traits, &[], &head, &body, BodyEnd::Complete);
            prop_assert!(!certified(&verdict));
            prop_assert!(verdict.pushback.is_none_or(|delay| delay <= PUSHBACK_MAX));
        }
    }

    #[test]
    fn damaged_compression_is_an_outcome(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        text in "[a-c]{0,300}",
    ) {
        // R-A2
        let level = ruzstd::encoding::CompressionLevel::Fastest;
        let mut frame = ruzstd::encoding::compress_to_vec(text.as_bytes(), level);
        for (place, byte) in changes {
            let place = place.index(frame.len());
            frame[place] = byte;
        }
        for name in ["zstd", "br", "gzip", "deflate"] {
            let _ = decode(Single::One(name.as_bytes()), &frame, 1000);
        }
    }

    #[test]
    fn numbers_of_any_length_are_delays(whole in "[0-9]{1,40}", fraction in "[0-9]{1,20}") {
        // R-A3
        let text = format!("{whole}.{fraction}");
        let headers = [("retry-after", text.as_str())];
        let head = ResponseHead { status: 429, headers: &headers };
        let delay = rondo::providers::pushback::read(&head, None, &[]).unwrap();
        let seconds: f64 = text.parse().unwrap();
        let wanted = (seconds * 1000.0).min(PUSHBACK_MAX.as_millis() as f64);
        let found = delay.as_millis() as f64;
        prop_assert!((found - wanted).abs() <= 2.0 + wanted * 1e-12, "{text}: {found}");
    }

    #[test]
    fn the_strict_reader_agrees_with_the_usual_one(text in "[\\[\\]{}\",:a1e\\\\ntruefals.-]{0,40}") {
        // R-A2
        let usual = serde_json::from_str::<serde_json::Value>(&text).ok();
        if let Ok(strict) = json_envelope::read(text.as_bytes()) {
            prop_assert_eq!(Some(strict), usual);
        }
    }

    #[test]
    fn the_strict_reader_takes_any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        // R-A2
        let _ = json_envelope::read(&bytes);
    }
}

#[test]
fn nothing_is_open_to_every_api_by_accident() {
    // R-A1
    for adapter in registry::all() {
        assert!(adapter.speaks.iter().count() > 0, "{}", adapter.name);
        assert!(
            Api::ALL.iter().any(|api| !adapter.speaks.contains(*api)),
            "{}",
            adapter.name
        );
        assert_eq!(
            registry::find(adapter.name).map(|found| found.name),
            Some(adapter.name)
        );
    }
    assert!(registry::find("OpenAI").is_none());
}

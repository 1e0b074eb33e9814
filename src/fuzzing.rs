//! One function for each parser that reads bytes from outside: any input is taken, and what must hold is asserted.
//!
//! Not here: how inputs are made. `fuzz/` calls these under a fuzzer, and `tests/pure` under proptest, so that both check the same. A
//! failed assertion is a finding; nothing in the product calls this. Here are the answers and bodies of the network; what operators
//! write is in [`operator`], what clients ask beside their body in [`request`], what comes from disk and from clocks in
//! [`kept`], HTTP/1.1 itself in [`mod@wire`].

pub mod kept;
pub mod operator;
pub mod request;
pub mod wire;

use bytes::Bytes;

use crate::core::api::Api;
use crate::core::limits::{PEEK_BYTES_MAX, PUSHBACK_MAX, REPLY_BODY_MAX};
use crate::core::outcome::Outcome;
use crate::core::usage::{TOKENS_MAX, Usage};
use crate::providers::answer::{BodyEnd, RequestTraits, ResponseHead};
use crate::providers::classify::classify;
use crate::providers::event_stream::{EventStreamParser, Frame, encode};
use crate::providers::hosted::{self, Hosted};
use crate::providers::json_envelope;
use crate::providers::multipart;
use crate::providers::outbound::splice;
use crate::providers::peek::{Peek, Rest, peek};
use crate::providers::pushback::{self, DelaySource};
use crate::providers::registry;
use crate::providers::scan::{self, Scan, ScanError};
use crate::providers::sse::{SseEvent, SseParser};
use crate::providers::usage::UsageReader;

/// What a fuzzer does with an entry point.
pub type Entry = fn(&[u8]);

/// Every entry point under the name of its fuzz target.
pub const ENTRIES: [(&str, Entry); 19] = [
    ("sse", sse),
    ("event_stream", event_stream),
    ("delay_headers", delay_headers),
    ("json_envelope", envelope),
    ("scan", request_scan),
    ("multipart", form_scan),
    ("usage", usage),
    ("config", operator::config),
    ("mock_script", operator::mock_script),
    ("admin_query", operator::admin_query),
    ("explain_body", operator::explain_body),
    ("request", request::request),
    ("spool", kept::spool),
    ("dates", kept::dates),
    ("credentials", kept::credentials),
    ("compressed", kept::compressed),
    ("splitters", kept::splitters),
    ("wire", wire::wire),
    ("request_head", wire::request_head),
];

/// The first byte, for a choice that the rest does not depend on, and the rest.
fn choice(input: &[u8]) -> (usize, &[u8]) {
    match input.split_first() {
        Some((first, rest)) => (usize::from(*first), rest),
        None => (0, input),
    }
}

/// Server-sent events: the same whatever the chunks; a peek that decided stays decided, and never certifies a hosted provider.
pub fn sse(input: &[u8]) {
    const EVENT_MAX: usize = 256;
    let (size, bytes) = choice(input);
    let parse = |size: usize| -> (Vec<SseEvent>, bool) {
        let (mut parser, mut events) = (SseParser::new(EVENT_MAX), Vec::new());
        for chunk in bytes.chunks(size.max(1)) {
            parser.feed(chunk, &mut |event| events.push(event));
        }
        parser.finish(&mut |event| events.push(event));
        (events, parser.overflowed())
    };
    let whole = parse(bytes.len());
    assert_eq!(whole, parse(size), "chunks of {size}");
    assert_eq!(whole, parse(1), "single bytes");
    for event in &whole.0 {
        assert!(event.data.len() <= EVENT_MAX, "an event over the bound");
    }
    peek_stays("text/event-stream", bytes, size);
}

/// AWS frames: the same whatever the chunks, and never larger than the bound. What was read can be written and read again.
pub fn event_stream(input: &[u8]) {
    const FRAME_MAX: usize = 256;
    let (size, bytes) = choice(input);
    let parse = |bytes: &[u8], size: usize| {
        let (mut parser, mut frames) = (EventStreamParser::new(FRAME_MAX), Vec::new());
        for chunk in bytes.chunks(size.max(1)) {
            parser.feed(chunk, &mut |frame: Frame| frames.push(frame));
        }
        (frames, parser.lost())
    };
    let whole = parse(bytes, bytes.len());
    assert_eq!(whole, parse(bytes, size), "chunks of {size}");
    assert_eq!(whole, parse(bytes, 1), "single bytes");
    peek_stays("application/vnd.amazon.eventstream", bytes, size);
    // Checksums are beyond the reach of a random input, so the same bytes are also put into a frame.
    let middle = size.min(bytes.len());
    let (name, payload) = bytes.split_at_checked(middle).unwrap_or((bytes, &[]));
    let name = String::from_utf8_lossy(name.get(..64).unwrap_or(name));
    let payload = payload.get(..64).unwrap_or(payload);
    let headers = [(":message-type", "event"), (":event-type", name.as_ref())];
    let Some(frame) = encode(&headers, payload) else {
        return;
    };
    let (frames, lost) = parse(&frame, size);
    if frame.len() <= FRAME_MAX {
        assert_eq!(lost, None, "a frame that was encoded here");
        let read = frames
            .first()
            .map(|frame| (frame.header(":event-type"), frame.payload.as_slice()));
        assert_eq!(read, Some((Some(name.as_ref()), payload)));
    }
    peek_stays("application/vnd.amazon.eventstream", &frame, size);
}

/// Delay headers: any text is a delay within the bound or none, the same for every way to split nothing; digits are never missing.
pub fn delay_headers(input: &[u8]) {
    let (kind, bytes) = choice(input);
    const NAMES: [&str; 4] = ["retry-after", "retry-after-ms", "x-amz-retry-after", "date"];
    let sources = [
        DelaySource::MillisHeader("x-amz-retry-after"),
        DelaySource::RetryInfo,
    ];
    let mut parts = bytes.split(|byte| *byte == b'\n');
    let headers: Vec<(&str, &[u8])> = NAMES
        .iter()
        .cycle()
        .skip(kind)
        .take(NAMES.len())
        .filter_map(|name| Some((*name, parts.next()?)))
        .collect();
    let head = ResponseHead {
        status: 429,
        headers: &headers,
    };
    let body = json_envelope::read(bytes).ok();
    let delay = pushback::read(&head, body.as_ref(), &sources);
    assert!(delay.is_none_or(|delay| delay <= PUSHBACK_MAX), "{delay:?}");
    if let Some(body) = &body {
        let delay = pushback::read_event(body, &sources);
        assert!(delay.is_none_or(|delay| delay <= PUSHBACK_MAX), "{delay:?}");
    }
    let digits = |value: &[u8]| !value.is_empty() && value.iter().all(u8::is_ascii_digit);
    let millis = headers.iter().find(|(name, _)| *name == "retry-after-ms");
    if millis.is_some_and(|(_, value)| digits(value)) {
        assert!(delay.is_some(), "whole milliseconds were not read");
    }
}

/// Error bodies: whatever the strict reader takes, the usual one takes alike; every adapter judges any body, and a body that is not
/// strict JSON certifies nothing.
pub fn envelope(input: &[u8]) {
    const STATUSES: [u16; 8] = [400, 401, 402, 429, 498, 500, 503, 529];
    let (kind, bytes) = choice(input);
    let strict = json_envelope::read(bytes);
    if let Ok(value) = &strict {
        let usual = serde_json::from_slice::<serde_json::Value>(bytes).ok();
        assert_eq!(Some(value), usual.as_ref(), "two readings of one body");
        assert!(bytes.len() <= REPLY_BODY_MAX, "a body over the bound");
    }
    let status = STATUSES.get(kind % STATUSES.len()).copied().unwrap_or(429);
    let headers = [("content-type", "application/json"), ("retry-after", "1")];
    let head = ResponseHead {
        status,
        headers: &headers,
    };
    for adapter in registry::all() {
        let traits = RequestTraits {
            api: adapter.speaks.iter().next().unwrap_or(Api::OpenaiChat),
            stream: false,
            side_effects: false,
        };
        let verdict = classify(adapter, &traits, &[], &head, bytes, BodyEnd::Complete);
        if let Outcome::Rejected(certificate) = verdict.outcome {
            assert!(
                strict.is_ok(),
                "{} certified a broken body",
                certificate.rule()
            );
            assert!(verdict.class.is_pushback(), "{}", certificate.rule());
        }
        let careful = RequestTraits {
            side_effects: true,
            ..traits
        };
        let verdict = classify(adapter, &careful, &[], &head, bytes, BodyEnd::Complete);
        assert!(
            !matches!(verdict.outcome, Outcome::Rejected(_)),
            "{} certified for a request with side effects",
            verdict.rule
        );
    }
}

/// Request bodies: what the scanner accepts is an object, and the model it found can be replaced without touching anything else.
pub fn request_scan(input: &[u8]) {
    let (kind, bytes) = choice(input);
    let apis: Vec<Api> = Api::ALL.into_iter().filter(|api| !api.is_form()).collect();
    let api = apis
        .get(kind % apis.len())
        .copied()
        .unwrap_or(Api::OpenaiChat);
    let read = |body: &[u8]| scan::scan(api, body);
    if read(bytes).is_ok()
        && let Ok(value) = serde_json::from_slice::<serde_json::Value>(bytes)
    {
        assert!(value.is_object(), "a request that is no object");
    }
    model_can_be_replaced(bytes, &read);
    model_can_leave(bytes);
}

/// Forms: the same for fields of a form. Its boundary is `b`.
pub fn form_scan(input: &[u8]) {
    const CONTENT_TYPE: &[u8] = b"multipart/form-data; boundary=b";
    let (kind, bytes) = choice(input);
    let apis: Vec<Api> = Api::ALL.into_iter().filter(|api| api.is_form()).collect();
    let api = apis
        .get(kind % apis.len())
        .copied()
        .unwrap_or(Api::OpenaiTranscriptions);
    model_can_be_replaced(bytes, &|body| {
        multipart::scan(api, Some(CONTENT_TYPE), body)
    });
    // Any content type at all names a boundary or none.
    let _ = multipart::scan(api, Some(bytes), bytes);
}

/// A body for a host of Anthropic's models names no model and is still understood.
fn model_can_leave(bytes: &[u8]) {
    if scan::scan(Api::AnthropicMessages, bytes).is_err() {
        return;
    }
    let body = Bytes::copy_from_slice(bytes);
    for host in [Hosted::Vertex, Hosted::Bedrock] {
        let sent: Vec<u8> = hosted::splice(&body, host, &[])
            .into_iter()
            .flatten()
            .collect();
        let reread = scan::scan(Api::AnthropicMessages, &sent);
        assert_eq!(reread, Err(ScanError::NoModel), "a model stayed");
        let reread = scan::scan(Api::BedrockInvoke, &sent);
        assert!(reread.is_ok(), "a model that left broke the body");
    }
}

/// Token counts: the same whatever the chunks, at the end and at every moment before it; never beyond what is believed; and what the
/// end leaves is no more than what was seen. The first byte picks one format: all of them at once cost a fuzzer nineteen of twenty tries.
pub fn usage(input: &[u8]) {
    const MEDIA: [&str; 4] = [
        "application/json",
        "text/event-stream",
        "application/vnd.amazon.eventstream",
        "application/x-ndjson",
    ];
    let (size, bytes) = choice(input);
    let Some(api) = Api::ALL.get(size % Api::ALL.len()).copied() else {
        return;
    };
    for media in MEDIA {
        usage_of(api, media, bytes, size);
    }
}

fn usage_of(api: Api, media: &str, bytes: &[u8], size: usize) {
    let headers = [("content-type", media)];
    let head = ResponseHead {
        status: 200,
        headers: &headers,
    };
    let read = |size: usize| -> Option<(Option<Usage>, Option<Usage>)> {
        let mut reader = UsageReader::new(api, true, &head)?;
        for chunk in bytes.chunks(size.max(1)) {
            reader.feed(chunk);
        }
        let before = reader.usage();
        reader.finish();
        Some((before, reader.usage()))
    };
    let whole = read(bytes.len());
    assert_eq!(whole, read(size), "chunks of {size} of {api} {media}");
    assert_eq!(whole, read(1), "single bytes of {api} {media}");
    let Some((before, after)) = whole else {
        return;
    };
    assert!(before.is_none_or(|usage| usage.partial), "before the end");
    assert!(before.is_some() || after.is_none(), "the end added usage");
    for usage in before.into_iter().chain(after) {
        // Three counts are added at most.
        let largest = usage.prompt_tokens.max(usage.completion_tokens);
        assert!(largest.is_none_or(|tokens| tokens <= 3 * TOKENS_MAX));
        assert!(!usage.is_empty(), "usage without a count");
    }
}

/// A body that was understood is still understood with another model in it, and says the same but for that.
fn model_can_be_replaced(bytes: &[u8], read: &dyn Fn(&[u8]) -> Result<Scan, ScanError>) {
    let Ok(found) = read(bytes) else {
        return;
    };
    let body = Bytes::copy_from_slice(bytes);
    let replaced =
        |model: &str| -> Vec<u8> { splice(&body, &found, model).into_iter().flatten().collect() };
    let Some(model) = found.model.as_deref() else {
        assert_eq!(
            replaced("other-model"),
            bytes,
            "a body without a model changed"
        );
        return;
    };
    let reread = read(&replaced("other-model"));
    assert!(reread.is_ok(), "a replaced model broke the body");
    let Ok(reread) = reread else {
        return;
    };
    let wanted = ["other-model", "models/other-model"];
    let other = reread.model.as_deref();
    assert!(
        other.is_some_and(|model| wanted.contains(&model)),
        "{other:?}"
    );
    assert_eq!(reread.stream, found.stream, "another member changed");
    assert_eq!(
        reread.side_effects, found.side_effects,
        "another member changed"
    );
    assert_eq!(
        reread.model_spans.len(),
        found.model_spans.len(),
        "a place was lost"
    );
    assert!(
        read(&replaced(model)).is_ok(),
        "the same model broke the body"
    );
}

/// A decided peek stays decided, and an ended answer needs no more.
fn peek_stays(media: &str, bytes: &[u8], cut: usize) {
    let headers = [("content-type", media)];
    let head = ResponseHead {
        status: 200,
        headers: &headers,
    };
    let prefix = bytes.get(..cut).unwrap_or(bytes);
    for adapter in registry::all() {
        for api in adapter.speaks.iter() {
            let traits = RequestTraits {
                api,
                stream: true,
                side_effects: false,
            };
            let look = |bytes: &[u8], rest| peek(adapter, &traits, &head, bytes, rest);
            let early = look(prefix, Rest::Open);
            let late = look(bytes, Rest::Open);
            assert!(
                early == Peek::NeedMore || early == late,
                "{early:?} then {late:?}"
            );
            assert!(look(prefix, Rest::Ended) != Peek::NeedMore, "ended");
            assert!(look(prefix, Rest::Bound) != Peek::NeedMore, "at a bound");
            if prefix.len() > PEEK_BYTES_MAX {
                assert!(early != Peek::NeedMore, "held over the bound");
            }
        }
    }
}

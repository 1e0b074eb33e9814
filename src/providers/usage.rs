//! Reads the token counts out of a good answer while it passes (R-L8): chunks in, cut anywhere, and at any time the usage so far.
//!
//! Not here: holding, delaying or changing a byte. Invariants: the same for every way to cut; memory is bounded by the framing, which
//! for JSON and events is nothing and for AWS frames [`FRAME_MAX`]; each byte is looked at once or twice; what is malformed gives no
//! usage and no error. An event is one line: JSON that a server spreads over several `data` lines is not read. An answer with a
//! content encoding is not read either: the gateway asks for none, so that only a provider that ignores this sends one.

use std::sync::LazyLock;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use memchr::memchr2;
use memchr::memmem::{self, Finder};

use super::answer::{HeaderLookup, ResponseHead, Single};
use super::event_stream::{EventStreamParser, Frame};
use super::stream::{EVENT_STREAM, JSON_LINES};
use super::usage_counts::{Counts, Slot};
use super::usage_walk::Walker;
use crate::core::api::Api;
use crate::core::usage::{TOKENS_MAX, Usage};

/// Largest AWS frame that is held. Frames with counts have some 300 bytes, those with a piece of output a few KiB, and after one over
/// the bound the following cannot be found.
pub const FRAME_MAX: usize = 256 << 10;

/// What every line with counts contains, so that all others are passed over by vector search.
const MARK: &[u8] = b"usage";
/// The same for the metrics that AWS adds to the last chunk.
const METRICS: &[u8] = b"invocationMetrics";
const DATA: &[u8] = b"data:";

static FIND_MARK: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(MARK));

/// Headers of `InvokeModel`, whatever the model.
const BEDROCK_HEADERS: [(&str, Slot); 4] = [
    ("x-amzn-bedrock-input-token-count", Slot::Uncached),
    ("x-amzn-bedrock-output-token-count", Slot::Completion),
    (
        "x-amzn-bedrock-cache-read-input-token-count",
        Slot::CacheRead,
    ),
    (
        "x-amzn-bedrock-cache-write-input-token-count",
        Slot::CacheWrite,
    ),
];

/// A reader of one good answer.
#[derive(Debug)]
pub struct UsageReader {
    api: Api,
    frames: Frames,
    walker: Walker,
    finished: bool,
}

#[derive(Debug)]
enum Frames {
    /// One JSON document, or an array of them.
    Document,
    /// Events, each a line that begins with `data:`.
    Events(Line),
    /// One JSON document a line.
    Lines(Line),
    Aws(EventStreamParser),
    /// Only the headers are read.
    Opaque,
}

/// Where in a line the last chunk ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Line {
    /// After so many bytes of the prefix.
    Prefix(usize),
    Inside,
    /// In a line of another kind.
    Other,
}

impl UsageReader {
    /// A reader for the answer with this head; `None` for an answer that can tell nothing.
    pub fn new(api: Api, stream: bool, head: &ResponseHead<'_>) -> Option<UsageReader> {
        let is_good = (200..300).contains(&head.status);
        if !is_good || api.is_socket() || api == Api::AnthropicCountTokens {
            return None;
        }
        let told = match api {
            Api::BedrockInvoke => of_headers(head.headers),
            _ => Counts::default(),
        };
        let frames = frames(stream, head);
        if matches!(frames, Frames::Opaque) && told == Counts::default() {
            return None;
        }
        Some(UsageReader {
            api,
            frames,
            walker: Walker::new(api, told),
            finished: false,
        })
    }

    /// Takes the next bytes.
    pub fn feed(&mut self, bytes: &[u8]) {
        let walker = &mut self.walker;
        match &mut self.frames {
            Frames::Document => walker.feed(bytes),
            Frames::Events(line) => feed_lines(walker, line, DATA, bytes),
            Frames::Lines(line) => feed_lines(walker, line, b"", bytes),
            Frames::Aws(parser) => {
                parser.feed(bytes, &mut |frame| feed_frame(walker, &frame));
            }
            Frames::Opaque => {}
        }
    }

    /// The answer was read to its proper end.
    pub fn finish(&mut self) {
        self.finished = true;
        // What a document told that never ended is not believed.
        self.walker.reset();
    }

    /// What was seen so far; partial unless the answer has ended.
    pub fn usage(&self) -> Option<Usage> {
        let is_lost = matches!(&self.frames, Frames::Aws(parser) if parser.lost().is_some());
        let partial = !self.finished || is_lost;
        self.walker.counts().usage(self.api, partial)
    }
}

fn frames(stream: bool, head: &ResponseHead<'_>) -> Frames {
    let is_plain = match head.single("content-encoding") {
        Single::Absent => true,
        Single::One(name) => name.is_empty() || name.eq_ignore_ascii_case(b"identity"),
        Single::Repeated => false,
    };
    let lines = Line::Prefix(0);
    match head.media_type().as_deref() {
        _ if !is_plain => Frames::Opaque,
        Some("text/event-stream") => Frames::Events(lines),
        Some(EVENT_STREAM) => Frames::Aws(EventStreamParser::new(FRAME_MAX)),
        Some(JSON_LINES) => Frames::Lines(lines),
        Some(name) if name == "application/json" || name.ends_with("+json") => Frames::Document,
        Some(_) => Frames::Opaque,
        None if stream => Frames::Events(lines),
        None => Frames::Document,
    }
}

fn of_headers(headers: &(dyn HeaderLookup + Sync)) -> Counts {
    let mut counts = Counts::default();
    for (name, slot) in BEDROCK_HEADERS {
        let text = headers.value(name).map(str::from_utf8);
        if let Some(Ok(text)) = text
            && let Ok(tokens) = text.trim().parse::<u64>()
            && tokens <= TOKENS_MAX
        {
            counts.set(slot, tokens);
        }
    }
    counts
}

/// Lines that are whole in this chunk and do not contain the mark are never looked at again.
fn feed_lines(walker: &mut Walker, line: &mut Line, prefix: &[u8], bytes: &[u8]) {
    let begins = *line == Line::Prefix(0);
    if begins && bytes.ends_with(b"\n") && FIND_MARK.find(bytes).is_none() {
        return;
    }
    let mut rest = bytes;
    while !rest.is_empty() {
        let end = memchr2(b'\n', b'\r', rest).unwrap_or(rest.len());
        let (part, tail) = rest.split_at_checked(end).unwrap_or((rest, &[]));
        let is_whole = *line == Line::Prefix(0) && !tail.is_empty();
        if !is_whole || FIND_MARK.find(part).is_some() {
            feed_part(walker, line, prefix, part);
        }
        let Some((_, tail)) = tail.split_first() else {
            return;
        };
        *line = Line::Prefix(0);
        walker.reset();
        rest = tail;
    }
}

/// Takes a part of one line.
fn feed_part(walker: &mut Walker, line: &mut Line, prefix: &[u8], part: &[u8]) {
    let mut rest = part;
    while let Line::Prefix(seen) = *line {
        match (prefix.get(seen), rest.split_first()) {
            (None, _) => *line = Line::Inside,
            (Some(_), None) => return,
            (Some(wanted), Some((byte, tail))) if wanted == byte => {
                *line = Line::Prefix(seen + 1);
                rest = tail;
            }
            (Some(_), Some(_)) => *line = Line::Other,
        }
    }
    if *line == Line::Inside {
        walker.feed(rest);
    }
}

fn feed_frame(walker: &mut Walker, frame: &Frame) {
    match frame.header(":event-type") {
        Some("chunk") => {
            // The model's own event. It is decoded on its own: base64 hides the mark.
            let event = chunk_text(&frame.payload).and_then(|text| STANDARD.decode(text).ok());
            let Some(event) = event else { return };
            let metrics = memmem::find(&event, METRICS);
            if metrics.is_some() || FIND_MARK.find(&event).is_some() {
                walker.feed(&event);
                walker.reset();
            }
        }
        Some(_) if FIND_MARK.find(&frame.payload).is_some() => {
            walker.feed(&frame.payload);
            walker.reset();
        }
        Some(_) | None => {}
    }
}

/// The text after `"bytes":`, as it stands: base64 needs no escapes.
fn chunk_text(payload: &[u8]) -> Option<&[u8]> {
    const NAME: &[u8] = b"\"bytes\"";
    let at = memmem::find(payload, NAME)?.checked_add(NAME.len())?;
    let value = payload.get(at..)?.trim_ascii_start();
    let value = value.strip_prefix(b":")?.trim_ascii_start();
    let value = value.strip_prefix(b"\"")?;
    value.get(..memchr::memchr(b'"', value)?)
}

//! Follows a good stream event by event: what was seen, whether it broke, whether it ended properly.
//!
//! Not here: holding bytes or writing them; time. Invariants: errors before output are refusals, errors after it leave the answer
//! partial; what cannot be followed counts as output, so that nothing is held for it.

use super::adapter::{Adapter, Framing};
use super::answer::{RequestTraits, ResponseHead, Single, Verdict};
use super::bedrock;
use super::classify::{self, Fault};
use super::dialect::{self, Event, Meaning};
use super::event_stream::{EventStreamParser, Frame, Lost};
use super::json_array::ArraySplitter;
use super::json_envelope;
use super::json_lines::LineSplitter;
use super::sse::{SseEvent, SseParser};
use crate::core::api::Api;
use crate::core::class::Class;
use crate::core::limits::PEEK_BYTES_MAX;
use crate::core::outcome::Outcome;

/// The media type of JSON objects, one a line.
pub(super) const JSON_LINES: &str = "application/x-ndjson";

/// The media type of AWS frames.
pub(super) const EVENT_STREAM: &str = "application/vnd.amazon.eventstream";

/// An incremental reader of one good stream.
#[derive(Debug)]
pub struct StreamWatch {
    adapter: &'static Adapter,
    traits: RequestTraits,
    frames: Frames,
    facts: Facts,
}

#[derive(Debug)]
enum Frames {
    Events(SseParser),
    Array(ArraySplitter),
    Aws(EventStreamParser),
    Lines(LineSplitter),
    Opaque,
}

/// What was seen so far.
#[derive(Debug, Default)]
struct Facts {
    events: u32,
    output: bool,
    finished: bool,
    refused: bool,
    /// The framing is broken.
    malformed: bool,
    error: Option<Verdict>,
    /// The event that carried the error, as it came.
    error_event: Option<Vec<u8>>,
}

/// How far a stream has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// Nothing that tells how it will end.
    Preamble,
    /// Output, or a proper end: it belongs to the client.
    Output,
    /// An error came first.
    Failed(Verdict),
}

impl StreamWatch {
    /// A reader for the answer to a streaming request. An encoded or unknown framing is not followed.
    pub fn new(
        adapter: &'static Adapter,
        traits: RequestTraits,
        head: &ResponseHead<'_>,
    ) -> StreamWatch {
        let plain = match head.single("content-encoding") {
            Single::Absent => true,
            Single::One(name) => name.is_empty() || name.eq_ignore_ascii_case(b"identity"),
            Single::Repeated => false,
        };
        let frames = match (adapter.framing, head.media_type().as_deref()) {
            (Framing::Opaque, _) => Frames::Opaque,
            _ if !plain => Frames::Opaque,
            (Framing::EventStreamOrAws, Some(EVENT_STREAM)) => {
                Frames::Aws(EventStreamParser::new(PEEK_BYTES_MAX))
            }
            (_, Some("application/json")) if traits.api == Api::Gemini => {
                Frames::Array(ArraySplitter::new(PEEK_BYTES_MAX))
            }
            (_, Some(JSON_LINES)) => Frames::Lines(LineSplitter::new(PEEK_BYTES_MAX)),
            (_, None | Some("text/event-stream")) => Frames::Events(SseParser::new(PEEK_BYTES_MAX)),
            (_, Some(_)) => Frames::Opaque,
        };
        let facts = Facts::default();
        StreamWatch {
            adapter,
            traits,
            frames,
            facts,
        }
    }

    /// Takes the next bytes.
    pub fn feed(&mut self, bytes: &[u8]) -> Progress {
        let (adapter, traits, facts) = (self.adapter, &self.traits, &mut self.facts);
        let lost = match &mut self.frames {
            Frames::Events(parser) => {
                parser.feed(bytes, &mut |event| facts.take(adapter, traits, event));
                parser.overflowed()
            }
            Frames::Array(splitter) => {
                splitter.feed(bytes, &mut |element| {
                    facts.element(adapter, traits, &element)
                });
                splitter.overflowed() || splitter.not_array()
            }
            Frames::Lines(splitter) => {
                splitter.feed(bytes, &mut |line| facts.element(adapter, traits, line));
                splitter.overflowed()
            }
            Frames::Aws(parser) => {
                parser.feed(bytes, &mut |frame| facts.frame(adapter, traits, &frame));
                facts.malformed |= parser.lost() == Some(Lost::Broken);
                parser.lost().is_some()
            }
            Frames::Opaque => !bytes.is_empty(),
        };
        if lost {
            facts.output |= facts.error.is_none();
            self.frames = Frames::Opaque;
        }
        self.progress()
    }

    /// The stream has ended: takes the event that was cut off.
    pub fn finish(&mut self) -> Progress {
        let (adapter, traits, facts) = (self.adapter, &self.traits, &mut self.facts);
        match &mut self.frames {
            Frames::Events(parser) => {
                parser.finish(&mut |event| facts.take(adapter, traits, event));
            }
            Frames::Lines(splitter) => {
                splitter.finish(&mut |line| facts.element(adapter, traits, line));
            }
            Frames::Array(_) | Frames::Aws(_) | Frames::Opaque => {}
        }
        self.progress()
    }

    /// How far it has come.
    pub fn progress(&self) -> Progress {
        match self.facts.error {
            Some(verdict) if !self.facts.output => Progress::Failed(verdict),
            Some(_) => Progress::Output,
            None if self.facts.output => Progress::Output,
            None => Progress::Preamble,
        }
    }

    /// The error that it carried, if any. After output the outcome is partial.
    pub fn error(&self) -> Option<Verdict> {
        self.facts.error
    }

    /// The data of the event that carried the error, without its framing: the body that an error status would have had.
    pub fn error_body(&self) -> Option<&[u8]> {
        self.facts.error_event.as_deref()
    }

    /// What an ended stream was, for records: its error, a policy's refusal, a proper end, or an end that came early.
    pub fn ended_as(&self) -> Class {
        match (self.facts.error, &self.frames) {
            (Some(verdict), _) => verdict.class,
            (None, _) if self.facts.malformed => Class::Malformed,
            (None, _) if self.facts.refused => Class::ContentPolicy,
            (None, _) if self.facts.finished => Class::OkStream,
            (None, Frames::Array(splitter)) if splitter.closed() => Class::OkStream,
            (None, Frames::Opaque) if self.facts.output => Class::OkStream,
            (
                None,
                Frames::Events(_)
                | Frames::Array(_)
                | Frames::Aws(_)
                | Frames::Lines(_)
                | Frames::Opaque,
            ) => Class::Ambiguous,
        }
    }
}

impl Facts {
    fn take(&mut self, adapter: &Adapter, traits: &RequestTraits, event: SseEvent) {
        let data = event.data.trim_ascii();
        if data.is_empty() {
            return;
        }
        if data == b"[DONE]" {
            self.finished = true;
            self.output |= self.error.is_none();
            return;
        }
        match json_envelope::read(data) {
            Ok(value) => {
                let value = classify::normalised(adapter, None, value);
                let (name, data) = (event.name.as_slice(), &value);
                self.note(
                    adapter,
                    traits,
                    dialect::meaning(traits.api, Event { name, data }),
                );
                self.keep_error_event(event.data.trim_ascii());
            }
            Err(json_envelope::NotStrictJson) if event.stray => {}
            Err(json_envelope::NotStrictJson) => self.unreadable(),
        }
    }

    fn element(&mut self, adapter: &Adapter, traits: &RequestTraits, element: &[u8]) {
        match json_envelope::read(element) {
            Ok(data) => {
                let event = Event {
                    name: b"",
                    data: &data,
                };
                self.note(adapter, traits, dialect::meaning(traits.api, event));
                self.keep_error_event(element);
            }
            Err(json_envelope::NotStrictJson) => self.unreadable(),
        }
    }

    fn frame(&mut self, adapter: &Adapter, traits: &RequestTraits, frame: &Frame) {
        let meaning = bedrock::meaning(frame);
        let error = match &meaning {
            Meaning::Error(error) if frame.payload.is_empty() => Some(error.to_string()),
            _ => None,
        };
        self.note(adapter, traits, meaning);
        self.keep_error_event(
            error
                .as_ref()
                .map_or(&frame.payload, |text| text.as_bytes()),
        );
    }

    fn keep_error_event(&mut self, data: &[u8]) {
        if self.error.is_some() && self.error_event.is_none() {
            self.error_event = Some(data.to_vec());
        }
    }

    fn unreadable(&mut self) {
        self.events = self.events.saturating_add(1);
        self.output |= self.error.is_none();
    }

    fn note(&mut self, adapter: &Adapter, traits: &RequestTraits, meaning: Meaning) {
        let first = self.events == 0;
        if meaning != Meaning::Nothing {
            self.events = self.events.saturating_add(1);
        }
        if self.error.is_some() {
            return;
        }
        match meaning {
            Meaning::Nothing | Meaning::Preamble => {}
            Meaning::Output => self.output = true,
            Meaning::Finished => (self.output, self.finished) = (true, true),
            Meaning::Refused => (self.output, self.refused) = (true, true),
            Meaning::Error(body) => {
                let fault = Fault {
                    body,
                    only_event: first,
                };
                let verdict = classify::classify_event(adapter, traits, &fault);
                self.error = Some(match self.output {
                    true => Verdict {
                        outcome: Outcome::Partial,
                        ..verdict
                    },
                    false => verdict,
                });
            }
        }
    }
}

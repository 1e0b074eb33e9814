//! One answer, written shortly, and the verdict on it.

use rondo::core::api::Api;
use rondo::core::outcome::Outcome;
use rondo::providers::adapter::Adapter;
use rondo::providers::answer::{BodyEnd, RequestTraits, ResponseHead, Verdict};
use rondo::providers::classify::classify;
use rondo::providers::peek::{Peek, Rest, peek};
use rondo::providers::registry;

pub const JSON: (&str, &str) = ("content-type", "application/json");
pub const SSE: (&str, &str) = ("content-type", "text/event-stream");

/// An answer with an error status. The usual one: JSON, complete, nobody's word for the status, no side effects.
#[derive(Clone)]
pub struct Answer<'a> {
    pub adapter: &'a str,
    pub status: u16,
    pub headers: Vec<(&'a str, &'a str)>,
    pub body: &'a [u8],
    pub end: BodyEnd,
    pub trust: &'a [u16],
    pub side_effects: bool,
}

pub fn answer<'a>(adapter: &'a str, status: u16, body: &'a str) -> Answer<'a> {
    Answer {
        adapter,
        status,
        headers: vec![JSON],
        body: body.as_bytes(),
        end: BodyEnd::Complete,
        trust: &[],
        side_effects: false,
    }
}

impl<'a> Answer<'a> {
    pub fn with(mut self, name: &'a str, value: &'a str) -> Answer<'a> {
        self.headers.retain(|(known, _)| *known != name);
        self.headers.push((name, value));
        self
    }

    pub fn verdict(&self) -> Verdict {
        let adapter = adapter(self.adapter);
        let traits = RequestTraits {
            api: adapter.speaks.iter().next().unwrap(),
            stream: false,
            side_effects: self.side_effects,
        };
        let head = ResponseHead {
            status: self.status,
            headers: &self.headers,
        };
        classify(adapter, &traits, self.trust, &head, self.body, self.end)
    }

    pub fn certified(&self) -> bool {
        certified(&self.verdict())
    }
}

pub fn certified(verdict: &Verdict) -> bool {
    matches!(verdict.outcome, Outcome::Rejected(_))
}

pub fn adapter(name: &str) -> &'static Adapter {
    registry::find(name).unwrap_or_else(|| panic!("no adapter {name}"))
}

/// The look at the beginning of a good stream.
pub fn peek_stream(name: &str, api: Api, text: &str, rest: Rest) -> Peek {
    let headers = vec![SSE];
    let head = ResponseHead {
        status: 200,
        headers: &headers,
    };
    let traits = RequestTraits {
        api,
        stream: true,
        side_effects: false,
    };
    peek(adapter(name), &traits, &head, text.as_bytes(), rest)
}

/// The verdict on a stream that must turn out to be an error.
pub fn stream_error(name: &str, api: Api, text: &str) -> Verdict {
    match peek_stream(name, api, text, Rest::Open) {
        Peek::Error(verdict) => verdict,
        other => panic!("{other:?} for {text}"),
    }
}

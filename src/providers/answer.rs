//! The vocabulary of an upstream's answer: its head, the traits of the request it answers, and the verdict on it.
//!
//! Not here: how a verdict is reached ([`super::classify`], [`super::peek`]).

use std::time::Duration;

use crate::core::api::Api;
use crate::core::class::Class;
use crate::core::outcome::{Carrier, Outcome, Scope};

/// Looks up response headers without copying them. Names are given in lower case.
pub trait HeaderLookup {
    /// The value of the header's first line.
    fn value(&self, name: &str) -> Option<&[u8]>;

    /// How many lines carry the header.
    fn lines(&self, name: &str) -> usize;
}

impl<N: AsRef<str>, V: AsRef<[u8]>> HeaderLookup for [(N, V)] {
    fn value(&self, name: &str) -> Option<&[u8]> {
        self.iter()
            .find(|(found, _)| found.as_ref().eq_ignore_ascii_case(name))
            .map(|(_, value)| value.as_ref())
    }

    fn lines(&self, name: &str) -> usize {
        self.iter()
            .filter(|(found, _)| found.as_ref().eq_ignore_ascii_case(name))
            .count()
    }
}

impl<N: AsRef<str>, V: AsRef<[u8]>, const LEN: usize> HeaderLookup for [(N, V); LEN] {
    fn value(&self, name: &str) -> Option<&[u8]> {
        self.as_slice().value(name)
    }

    fn lines(&self, name: &str) -> usize {
        self.as_slice().lines(name)
    }
}

impl<N: AsRef<str>, V: AsRef<[u8]>> HeaderLookup for Vec<(N, V)> {
    fn value(&self, name: &str) -> Option<&[u8]> {
        self.as_slice().value(name)
    }

    fn lines(&self, name: &str) -> usize {
        self.as_slice().lines(name)
    }
}

impl HeaderLookup for http::HeaderMap {
    fn value(&self, name: &str) -> Option<&[u8]> {
        self.get(name).map(http::HeaderValue::as_bytes)
    }

    fn lines(&self, name: &str) -> usize {
        self.get_all(name).iter().count()
    }
}

/// A response's status line and headers.
#[derive(Clone, Copy)]
pub struct ResponseHead<'a> {
    /// HTTP status.
    pub status: u16,
    /// Headers.
    pub headers: &'a (dyn HeaderLookup + Sync),
}

/// How often a header that must be single was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Single<'a> {
    /// Not at all.
    Absent,
    /// Once; surrounding blanks are cut.
    One(&'a [u8]),
    /// More than once: which line counts cannot be told.
    Repeated,
}

impl<'a> ResponseHead<'a> {
    /// The value of a header that must not be repeated.
    pub fn single(&self, name: &str) -> Single<'a> {
        match (self.headers.lines(name), self.headers.value(name)) {
            (0, _) | (_, None) => Single::Absent,
            (1, Some(value)) => Single::One(value.trim_ascii()),
            (_, Some(_)) => Single::Repeated,
        }
    }

    /// The value of a header that is there once and is text.
    pub fn text(&self, name: &str) -> Option<&'a str> {
        match self.single(name) {
            Single::One(value) => std::str::from_utf8(value).ok(),
            Single::Absent | Single::Repeated => None,
        }
    }

    /// The media type of `content-type` without its parameters, in lower case.
    pub fn media_type(&self) -> Option<String> {
        let value = self.text("content-type")?;
        let name = value.split(';').next().unwrap_or(value).trim();
        Some(name.to_ascii_lowercase())
    }
}

/// What the request was, as far as it matters for reading its answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequestTraits {
    /// Format of the request.
    pub api: Api,
    /// Whether the client asked for a stream.
    pub stream: bool,
    /// Server-side tools, background work, stored conversations: something may have happened before any rejection (R-A5).
    pub side_effects: bool,
}

/// How the body of an error answer ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BodyEnd {
    /// All of it was read.
    Complete,
    /// End of file or a reset came early.
    Truncated,
    /// It is larger, or took longer, than a body may to be classified.
    OverBound,
}

/// What an answer says and proves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Verdict {
    /// Delivery.
    pub outcome: Outcome,
    /// What went wrong.
    pub class: Class,
    /// How far it reaches.
    pub scope: Scope,
    /// Where it was found.
    pub carrier: Carrier,
    /// HTTP status that stands for it: the response's own, or what an in-stream error maps to.
    pub status: u16,
    /// The provider's delay directive, if it gave a usable one.
    pub pushback: Option<Duration>,
    /// Stable name of the table row that decided.
    pub rule: &'static str,
}

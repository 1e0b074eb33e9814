//! One answer of a script: what is done, what is sent, how it ends. Pure.
//!
//! Not here: lists of answers (`script`) and the bytes of presets (`presets`, `voice`). Invariant: header names and values are valid.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::HeaderMap;
use http::header::{HeaderName, HeaderValue};

use super::presets::{Canned, Preset, Shape};
use super::voice::{Piece, Voice};
use crate::core::api::Family;
use crate::core::chance::Chance;

/// One answer.
#[derive(Debug, Clone)]
pub struct Answer {
    /// The preset's name, or what it does in a word; for records.
    pub label: Arc<str>,
    /// Its own delay.
    pub delay: Option<Delay>,
    /// Answer before the request's body is read.
    pub is_early: bool,
    /// What is done.
    pub act: Act,
}

/// What an answer does.
#[derive(Debug, Clone)]
pub enum Act {
    /// Sends an answer.
    Reply(Box<Reply>),
    /// Sends an answer in the dialect of the path: OpenAI, Anthropic, Gemini, Bedrock.
    ByFamily(Box<[Reply; 4]>),
    /// Sends nothing and keeps the connection.
    Silence,
    /// Ends the connection without a byte of answer.
    Close(Close),
}

/// How a connection is ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Close {
    /// In order.
    Orderly,
    /// With a TCP reset.
    Reset,
}

/// An HTTP answer.
#[derive(Debug, Clone)]
pub struct Reply {
    /// Status.
    pub status: u16,
    /// Header fields, without length.
    pub headers: HeaderMap,
    /// Fields that a script takes away from what the preset would send.
    pub removed: Vec<HeaderName>,
    /// The body.
    pub content: Content,
    /// How its length is told.
    pub length: Length,
    /// How it ends.
    pub ending: Ending,
    /// Its own pace.
    pub trickle: Option<Trickle>,
    /// Whether the server adds a request id as the provider would.
    pub has_request_id: bool,
}

/// The body of an answer.
#[derive(Debug, Clone)]
pub enum Content {
    /// These bytes.
    Bytes(Bytes),
    /// These bytes with pauses.
    Pieces(Arc<[Piece]>),
    /// Composed for the request.
    Good(Voice),
}

/// How the length of a body is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Length {
    /// As it is, for streams not at all.
    Natural,
    /// `content-length` as it is.
    Exact,
    /// Not at all.
    Chunked,
    /// `content-length` as the script says.
    Declared(u64),
}

/// How a body ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// Properly.
    Whole,
    /// The connection is ended after so many bytes.
    AbortAfter(u64, Close),
    /// Nothing more comes after so many bytes.
    SilentAfter(u64),
}

/// A body in slow pieces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Trickle {
    /// Bytes of a piece.
    pub bytes: usize,
    /// Pause before every piece after the first.
    pub gap: Duration,
}

/// A delay, the same every time or drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Delay {
    /// The least.
    pub from: Duration,
    /// The most.
    pub to: Duration,
}

impl Delay {
    /// One delay.
    pub fn draw(self, chance: &mut impl Chance) -> Duration {
        let width = self.to.saturating_sub(self.from).as_micros();
        let Ok(width) = u64::try_from(width) else {
            return self.from;
        };
        if width == 0 {
            return self.from;
        }
        self.from
            .saturating_add(Duration::from_micros(chance.below(width.saturating_add(1))))
    }
}

impl Answer {
    /// The good answer `ok`.
    pub fn good() -> Answer {
        Answer::preset(Preset::Ok)
    }

    /// A preset as it is.
    pub fn preset(preset: Preset) -> Answer {
        Answer {
            label: Arc::from(preset.name()),
            delay: None,
            is_early: false,
            act: Act::of(preset),
        }
    }
}

impl Act {
    /// What a preset does.
    pub fn of(preset: Preset) -> Act {
        match preset.shape() {
            Shape::Fixed(canned) => Act::Reply(Box::new(Reply::canned(canned))),
            Shape::ByFamily(pick) => {
                let families = [
                    Family::Openai,
                    Family::Anthropic,
                    Family::Gemini,
                    Family::Bedrock,
                ];
                Act::ByFamily(Box::new(families.map(|family| Reply::named(pick(family)))))
            }
            Shape::Good { tools } => Act::Reply(Box::new(Reply::good(tools))),
            Shape::Silence => Act::Silence,
            Shape::Reset => Act::Close(Close::Reset),
        }
    }

    /// The replies that overrides of a script apply to.
    pub fn replies_mut(&mut self) -> &mut [Reply] {
        match self {
            Act::Reply(reply) => std::slice::from_mut(reply.as_mut()),
            Act::ByFamily(replies) => replies.as_mut_slice(),
            Act::Silence | Act::Close(_) => &mut [],
        }
    }

    /// The reply for a family, when there is one.
    pub fn reply(&self, family: Family) -> Option<&Reply> {
        match self {
            Act::Reply(reply) => Some(reply),
            Act::ByFamily(replies) => {
                let [openai, anthropic, gemini, bedrock] = replies.as_ref();
                Some(match family {
                    Family::Openai => openai,
                    Family::Anthropic => anthropic,
                    Family::Gemini => gemini,
                    Family::Bedrock => bedrock,
                })
            }
            Act::Silence | Act::Close(_) => None,
        }
    }
}

impl Reply {
    /// An answer without fields or body.
    pub fn bare(status: u16) -> Reply {
        Reply {
            status,
            headers: HeaderMap::new(),
            removed: Vec::new(),
            content: Content::Bytes(Bytes::new()),
            length: Length::Natural,
            ending: Ending::Whole,
            trickle: None,
            has_request_id: false,
        }
    }

    fn canned(canned: Canned) -> Reply {
        let mut reply = Reply::bare(canned.status);
        for (name, value) in canned.headers {
            let name = HeaderName::from_static(name);
            reply.headers.append(name, HeaderValue::from_static(value));
        }
        reply.content = Content::Bytes(Bytes::from_static(canned.body.as_bytes()));
        reply.has_request_id = !canned.body.is_empty();
        reply
    }

    fn named(preset: Preset) -> Reply {
        match preset.shape() {
            Shape::Fixed(canned) => Reply::canned(canned),
            _ => Reply::good(false),
        }
    }

    fn good(tools: bool) -> Reply {
        let content = Content::Good(Voice {
            tools,
            ..Voice::default()
        });
        Reply {
            content,
            has_request_id: true,
            ..Reply::bare(200)
        }
    }
}

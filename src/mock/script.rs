//! A script: what a provider is to answer, compiled and checked. Pure.
//!
//! Not here: the YAML (`yaml`, whose keys are explained in the module's documentation) and the choice of the next answer (`plan`).
//! Invariants: a list has at least one answer; a weighted choice adds up to one; header names and values are valid.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use hyper::HeaderMap;
use hyper::header::HeaderName;

use super::presets::{Canned, Preset, Shape};
use super::voice::{Piece, Voice};
use crate::core::api::Family;
use crate::core::chance::Chance;

/// Probabilities are drawn in parts of this number.
pub const WHOLE: u64 = 1_000_000_000;

/// The script of one server.
#[derive(Debug, Clone)]
pub struct Script {
    /// Where a standalone server listens.
    pub listen: Option<String>,
    /// Seed of every drawn number.
    pub seed: u64,
    /// What the position in a list counts.
    pub order: Order,
    /// The list for every model without its own.
    pub answers: AnswerList,
    /// Lists of single models; the first that takes the model is used.
    pub models: Vec<ModelList>,
    /// Answers by time; the first open window is used.
    pub windows: Vec<Window>,
    /// Connections are reset as soon as they are accepted.
    pub refuse_connections: bool,
    /// Delay of answers without their own.
    pub delay: Delay,
    /// Pace of bodies without their own.
    pub trickle: Option<Trickle>,
    /// Whether any answer does not wait for the request's body.
    pub has_early: bool,
}

impl Script {
    /// Sets [`Script::has_early`] from the answers.
    pub fn note_early(mut self) -> Script {
        let lists = self
            .models
            .iter()
            .map(|model| &model.list)
            .chain([&self.answers]);
        let listed = lists
            .flat_map(|list| list.entries())
            .map(|entry| &entry.choice);
        let timed = self.windows.iter().map(|window| &window.choice);
        self.has_early = listed.chain(timed).any(Choice::has_early);
        self
    }
}

/// What the position in a list counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Order {
    /// Requests in the order in which they arrive.
    #[default]
    Arrival,
    /// Requests with the same `x-request-id`: every operation begins the list anew.
    RequestId,
}

/// Answers in turn.
#[derive(Debug, Clone)]
pub struct AnswerList {
    entries: Vec<Entry>,
    first: Choice,
    total: u64,
    /// Whether the list starts again after its last answer; else the last answer repeats.
    pub is_loop: bool,
}

/// One entry of a list.
#[derive(Debug, Clone)]
pub struct Entry {
    /// The answer, or several with weights.
    pub choice: Choice,
    /// Positions in the list up to and including this entry.
    pub until: u64,
}

impl AnswerList {
    /// A list of choices and how often each repeats; one good answer when it is empty.
    pub fn new(choices: Vec<(Choice, u64)>, is_loop: bool) -> AnswerList {
        let first = match choices.first() {
            Some((choice, _)) => choice.clone(),
            None => Choice::One(Arc::new(Answer::good())),
        };
        let mut total: u64 = 0;
        let mut entries = Vec::with_capacity(choices.len());
        for (choice, times) in choices {
            total = total.saturating_add(times.max(1));
            entries.push(Entry {
                choice,
                until: total,
            });
        }
        AnswerList {
            entries,
            first,
            total: total.max(1),
            is_loop,
        }
    }

    /// The entries as written.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// The first answer.
    pub fn first(&self) -> &Choice {
        &self.first
    }

    /// Positions in one pass, at least 1.
    pub fn total(&self) -> u64 {
        self.total
    }
}

/// The list of one model.
#[derive(Debug, Clone)]
pub struct ModelList {
    /// The model's name, or its beginning and `*`.
    pub name: Arc<str>,
    /// Its answers.
    pub list: AnswerList,
}

impl ModelList {
    /// Whether the list is for this model.
    pub fn takes(&self, model: &str) -> bool {
        match self.name.strip_suffix('*') {
            Some(beginning) => model.starts_with(beginning),
            None => *self.name == *model,
        }
    }
}

/// A span of time with its own answer.
#[derive(Debug, Clone)]
pub struct Window {
    /// The span repeats in this period.
    pub every: Option<Duration>,
    /// Beginning, inclusive.
    pub from: Duration,
    /// End, exclusive.
    pub to: Duration,
    /// The answer inside.
    pub choice: Choice,
}

impl Window {
    /// Whether the window is open so long after the start.
    pub fn is_open(&self, elapsed: Duration) -> bool {
        let within = match self.every {
            Some(every) => elapsed
                .as_micros()
                .checked_rem(every.as_micros())
                .unwrap_or(0),
            None => elapsed.as_micros(),
        };
        self.from.as_micros() <= within && within < self.to.as_micros()
    }
}

/// An answer, or several with weights.
#[derive(Debug, Clone)]
pub enum Choice {
    /// Always this one.
    One(Arc<Answer>),
    /// The first whose bound is above a number drawn below [`WHOLE`].
    Weighted(Vec<(u64, Choice)>),
}

impl Choice {
    fn has_early(&self) -> bool {
        match self {
            Choice::One(answer) => answer.is_early,
            Choice::Weighted(weighted) => weighted.iter().any(|(_, choice)| choice.has_early()),
        }
    }
}

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
    /// Sends an answer in the dialect of the path: OpenAI, Anthropic, Gemini.
    ByFamily(Box<[Reply; 3]>),
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
                let families = [Family::Openai, Family::Anthropic, Family::Gemini];
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
                let [openai, anthropic, gemini] = replies.as_ref();
                Some(match family {
                    Family::Openai => openai,
                    Family::Anthropic => anthropic,
                    Family::Gemini => gemini,
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
            reply
                .headers
                .append(name, hyper::header::HeaderValue::from_static(value));
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

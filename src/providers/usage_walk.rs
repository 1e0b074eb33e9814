//! Walks through JSON as it passes, and picks the token counts out of it. Chunks may end anywhere.
//!
//! Nothing is held but the path, one key and one number: memory does not depend on the input, and each byte is looked at once.
//! Strings, and containers without meaning, are passed over by vector search. What breaks the syntax on the way to a count makes the
//! walker lose its document; it says so by giving nothing. Inside what is passed over only brackets and strings are followed, and
//! keys with escapes are known to no table.

use memchr::memchr2;

use super::usage_counts::Counts;
use super::usage_paths::{self, KEY_MAX, PATH_MAX, Place};
use crate::core::api::{Api, Family};
use crate::core::usage::TOKENS_MAX;

/// Bytes that are asked at once whether any of them is a bracket or a quote; two vector registers of today's machines.
const BLOCK: usize = 32;
/// Bytes that are looked at one by one before a vector search is begun.
const NEAR: usize = 16;

/// A walker for the documents of one answer.
#[derive(Debug)]
pub(super) struct Walker {
    api: Api,
    state: State,
    path: [Place; PATH_MAX],
    depth: usize,
    /// Containers open inside the one that is passed over.
    passed: u32,
    key: Key,
    /// The number so far; `None` once it is no plain count.
    number: Option<u64>,
    /// What the open document told.
    open: Counts,
    /// What whole documents told.
    told: Counts,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Between documents.
    Outside,
    /// After `{`.
    KeyOrEnd,
    /// After a comma.
    Key,
    KeyText,
    KeyEscape,
    Colon,
    Value,
    Text,
    TextEscape,
    Number,
    /// `true`, `false` or `null`.
    Word,
    CommaOrEnd,
    Passing,
    PassingText,
    PassingEscape,
    /// The document broke its syntax.
    Lost,
}

#[derive(Debug, Clone, Copy)]
struct Key {
    bytes: [u8; KEY_MAX],
    length: usize,
    is_unknown: bool,
}

impl Key {
    const EMPTY: Key = Key {
        bytes: [0; KEY_MAX],
        length: 0,
        is_unknown: false,
    };

    fn push(&mut self, part: &[u8]) {
        let end = self.length + part.len();
        match self.bytes.get_mut(self.length..end) {
            Some(room) => {
                room.copy_from_slice(part);
                self.length = end;
            }
            None => self.is_unknown = true,
        }
    }

    /// Empty for what no table can know.
    fn name(&self) -> &[u8] {
        match self.is_unknown {
            true => &[],
            false => self.bytes.get(..self.length).unwrap_or_default(),
        }
    }
}

impl Walker {
    /// A walker that knows these counts from elsewhere.
    pub fn new(api: Api, told: Counts) -> Walker {
        Walker {
            api,
            state: State::Outside,
            path: [Place::Root; PATH_MAX],
            depth: 0,
            passed: 0,
            key: Key::EMPTY,
            number: None,
            open: Counts::default(),
            told,
        }
    }

    /// What was told so far, by an open document also.
    pub fn counts(&self) -> Counts {
        let mut counts = self.told;
        if self.state != State::Lost && self.state != State::Outside {
            counts.replace_by(&self.open);
        }
        counts
    }

    /// The document cannot go on: what an unfinished one told is forgotten.
    pub fn reset(&mut self) {
        self.state = State::Outside;
        self.open = Counts::default();
        self.depth = 0;
    }

    /// Takes the next bytes.
    pub fn feed(&mut self, bytes: &[u8]) {
        let mut rest = bytes;
        while let Some((&first, tail)) = rest.split_first() {
            rest = match self.state {
                State::Text => self.text(rest, State::CommaOrEnd, State::TextEscape),
                State::PassingText => self.text(rest, State::Passing, State::PassingEscape),
                State::Passing => self.pass(rest),
                State::KeyText => self.key_text(rest),
                State::Number => self.digits(rest),
                State::Lost => return,
                State::Word if first.is_ascii_lowercase() => tail,
                State::Word => {
                    self.state = State::CommaOrEnd;
                    rest
                }
                State::TextEscape => self.then(State::Text, tail),
                State::PassingEscape => self.then(State::PassingText, tail),
                State::KeyEscape => self.then(State::KeyText, tail),
                _ if first.is_ascii_whitespace() => tail,
                State::Outside => self.outside(first, tail),
                State::KeyOrEnd | State::Key | State::Colon | State::Value | State::CommaOrEnd => {
                    self.state = self.structure(first);
                    tail
                }
            };
        }
    }

    fn then<'b>(&mut self, state: State, tail: &'b [u8]) -> &'b [u8] {
        self.state = state;
        tail
    }

    fn outside<'b>(&mut self, first: u8, tail: &'b [u8]) -> &'b [u8] {
        match first {
            b'{' => {
                self.open = Counts::default();
                self.depth = 0;
                self.state = self.enter(Place::Root);
            }
            // Gemini's streams are arrays of answers. Else only a byte order mark may stand here.
            b'[' | b',' | b']' if self.api.family() == Family::Gemini => {}
            0xEF | 0xBB | 0xBF => {}
            _ => self.state = State::Lost,
        }
        tail
    }

    /// The state after one byte of structure.
    fn structure(&mut self, byte: u8) -> State {
        match (self.state, byte) {
            (State::KeyOrEnd | State::Key, b'"') => {
                self.key = Key::EMPTY;
                State::KeyText
            }
            (State::KeyOrEnd | State::CommaOrEnd, b'}') => self.leave(),
            (State::CommaOrEnd, b',') => State::Key,
            (State::Colon, b':') => State::Value,
            (State::Value, b'"') => State::Text,
            (State::Value, b'{') => {
                match usage_paths::object(self.api, self.here(), self.key.name()) {
                    Some(place) => self.enter(place),
                    None => self.pass_over(),
                }
            }
            (State::Value, b'[') => self.pass_over(),
            (State::Value, b'0'..=b'9') => {
                self.number = Some(u64::from(byte - b'0'));
                State::Number
            }
            (State::Value, b'-') => {
                self.number = None;
                State::Number
            }
            (State::Value, b't' | b'f' | b'n') => State::Word,
            _ => State::Lost,
        }
    }

    fn here(&self) -> Place {
        let top = self.depth.checked_sub(1);
        top.and_then(|top| self.path.get(top))
            .copied()
            .unwrap_or(Place::Root)
    }

    fn enter(&mut self, place: Place) -> State {
        match self.path.get_mut(self.depth) {
            Some(free) => {
                *free = place;
                self.depth += 1;
                State::KeyOrEnd
            }
            None => self.pass_over(),
        }
    }

    fn leave(&mut self) -> State {
        self.depth = self.depth.saturating_sub(1);
        if self.depth > 0 {
            return State::CommaOrEnd;
        }
        self.told.replace_by(&self.open);
        State::Outside
    }

    fn pass_over(&mut self) -> State {
        self.passed = 1;
        State::Passing
    }

    /// Goes on to the end of a string.
    fn text<'b>(&mut self, rest: &'b [u8], after: State, escape: State) -> &'b [u8] {
        let mut left = rest;
        while let Some(at) = find_text_end(left) {
            let found = left.get(at);
            left = left.get(at + 1..).unwrap_or_default();
            if found != Some(&b'\\') {
                self.state = after;
                return left;
            }
            match left.split_first() {
                Some((_, tail)) => left = tail,
                None => self.state = escape,
            }
        }
        &[]
    }

    fn key_text<'b>(&mut self, rest: &'b [u8]) -> &'b [u8] {
        let end = memchr2(b'"', b'\\', rest).unwrap_or(rest.len());
        let (part, tail) = rest.split_at_checked(end).unwrap_or((rest, &[]));
        self.key.push(part);
        let Some((last, tail)) = tail.split_first() else {
            return tail;
        };
        if *last == b'"' {
            self.state = State::Colon;
        } else {
            self.key.is_unknown = true;
            self.state = State::KeyEscape;
        }
        tail
    }

    fn digits<'b>(&mut self, rest: &'b [u8]) -> &'b [u8] {
        let mut left = rest;
        while let Some((&byte, tail)) = left.split_first() {
            match byte {
                b'0'..=b'9' => {
                    let digit = u64::from(byte - b'0');
                    let longer = self.number.map(|number| number * 10 + digit);
                    self.number = longer.filter(|number| *number <= TOKENS_MAX);
                }
                b'.' | b'e' | b'E' | b'+' | b'-' => self.number = None,
                _ => {
                    self.count();
                    self.state = State::CommaOrEnd;
                    return left;
                }
            }
            left = tail;
        }
        left
    }

    fn count(&mut self) {
        let slot = usage_paths::count(self.api, self.here(), self.key.name());
        if let (Some(slot), Some(tokens)) = (slot, self.number) {
            self.open.set(slot, tokens);
        }
    }

    /// Goes on to the end of a container without meaning.
    fn pass<'b>(&mut self, rest: &'b [u8]) -> &'b [u8] {
        let mut left = rest;
        while let Some(at) = find_bracket(left) {
            let found = left.get(at);
            left = left.get(at + 1..).unwrap_or_default();
            match found {
                Some(b'"') => {
                    self.state = State::PassingText;
                    left = self.text(left, State::Passing, State::PassingEscape);
                }
                Some(b'{' | b'[') => match self.passed.checked_add(1) {
                    Some(passed) => self.passed = passed,
                    None => self.state = State::Lost,
                },
                _ => {
                    self.passed = self.passed.saturating_sub(1);
                    if self.passed == 0 {
                        self.state = State::CommaOrEnd;
                    }
                }
            }
            if self.state != State::Passing {
                return left;
            }
        }
        &[]
    }
}

/// The next quote or backslash. Most strings are short, and a vector search costs as much as some bytes.
fn find_text_end(bytes: &[u8]) -> Option<usize> {
    let near = bytes.iter().take(NEAR);
    for (at, byte) in near.enumerate() {
        if matches!(byte, b'"' | b'\\') {
            return Some(at);
        }
    }
    let far = bytes.get(NEAR..)?;
    memchr2(b'"', b'\\', far).map(|at| at + NEAR)
}

/// The next bracket or quote.
fn find_bracket(bytes: &[u8]) -> Option<usize> {
    let near = bytes.iter().take(NEAR);
    for (at, byte) in near.enumerate() {
        if is_bracket(*byte) {
            return Some(at);
        }
    }
    let (mut left, mut passed) = (bytes.get(NEAR..)?, NEAR);
    while let Some((block, tail)) = left.split_first_chunk::<BLOCK>() {
        if block
            .iter()
            .fold(false, |any, byte| any | is_bracket(*byte))
        {
            break;
        }
        (left, passed) = (tail, passed + BLOCK);
    }
    let at = left.iter().position(|byte| is_bracket(*byte))?;
    Some(passed + at)
}

/// Square and curly brackets differ in one bit, so that three comparisons find all five bytes.
const fn is_bracket(byte: u8) -> bool {
    let curly = byte | 0x20;
    (curly == b'{') | (curly == b'}') | (byte == b'"')
}

//! The tokens of JSON: where each one ends. Strings are skipped by SIMD search and decoded only on request.
//!
//! Not here: what a token means. Not a full validator: control characters and unknown escapes inside strings pass, since
//! the provider reads the same bytes and says so itself.

use std::borrow::Cow;
use std::ops::Range;

use memchr::memchr2;

/// A position in a body.
#[derive(Debug)]
pub(super) struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

/// A string token.
#[derive(Debug, Clone)]
pub(super) struct Text<'a> {
    /// Where it stands, quotes included.
    pub span: Range<usize>,
    raw: &'a [u8],
    escaped: bool,
}

/// A value that is not a container, or the beginning of one.
#[derive(Debug, Clone)]
pub(super) enum Value<'a> {
    Text(Text<'a>),
    Number(Sign, &'a [u8]),
    True,
    False,
    Null,
    Container(Content),
}

/// The sign of a number. Servers use negative numbers for "none".
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sign {
    Positive,
    Negative,
}

/// Whether anything stands in a container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Content {
    Some,
    None,
}

impl<'a> Value<'a> {
    /// The bytes of a text to compare with known names.
    pub fn name(&self) -> Option<Cow<'a, [u8]>> {
        match self {
            Value::Text(text) => Some(text.name()),
            Value::Number(..) | Value::True | Value::False | Value::Null | Value::Container(_) => {
                None
            }
        }
    }

    /// A whole number that is not negative, as large as fits; `None` for everything else.
    pub fn count(&self) -> Option<u64> {
        let Value::Number(_, digits) = self else {
            return None;
        };
        digits.iter().try_fold(0_u64, |count, digit| {
            let digit = char::from(*digit).to_digit(10)?;
            Some(count.saturating_mul(10).saturating_add(u64::from(digit)))
        })
    }

    /// Whether a value can be a reference to something: not null, empty, negative or a truth value.
    pub fn names_something(&self) -> bool {
        match self {
            Value::Text(text) => !text.raw.is_empty(),
            Value::Number(sign, _) => *sign == Sign::Positive,
            Value::Container(content) => *content == Content::Some,
            Value::True | Value::False | Value::Null => false,
        }
    }
}

impl<'a> Text<'a> {
    /// The text with its escapes decoded; `None` if that is no UTF-8 or no Unicode.
    pub fn decode(&self) -> Option<Cow<'a, str>> {
        let raw = std::str::from_utf8(self.raw).ok()?;
        if self.escaped {
            unescape(raw).map(Cow::Owned)
        } else {
            Some(Cow::Borrowed(raw))
        }
    }

    /// The bytes to compare with a known name. Escapes are decoded; what cannot be decoded equals no known name.
    pub fn name(&self) -> Cow<'a, [u8]> {
        if !self.escaped {
            return Cow::Borrowed(self.raw);
        }
        match self.decode() {
            Some(text) => Cow::Owned(text.into_owned().into_bytes()),
            None => Cow::Borrowed(self.raw),
        }
    }
}

impl<'a> Cursor<'a> {
    /// A position before the first token. A byte order mark is passed over.
    pub fn new(bytes: &'a [u8]) -> Cursor<'a> {
        let at = if bytes.starts_with(b"\xEF\xBB\xBF") {
            3
        } else {
            0
        };
        Cursor { bytes, at }
    }

    /// How many bytes were passed.
    pub fn offset(&self) -> usize {
        self.at.min(self.bytes.len())
    }

    /// The next byte that is not white space, without passing it; `None` at the end.
    pub fn peek(&mut self) -> Option<u8> {
        while let Some(&byte) = self.bytes.get(self.at) {
            if !matches!(byte, b' ' | b'\n' | b'\r' | b'\t') {
                return Some(byte);
            }
            self.at += 1;
        }
        None
    }

    /// Passes one byte.
    pub fn skip(&mut self) {
        self.at += 1;
    }

    /// Passes white space and this byte.
    pub fn take(&mut self, wanted: u8) -> Option<()> {
        (self.peek()? == wanted).then(|| self.skip())
    }

    /// Passes a string; the position must be at its opening quote.
    pub fn text(&mut self) -> Option<Text<'a>> {
        let start = self.at;
        let mut at = start + 1;
        let mut escaped = false;
        loop {
            let hit = at + memchr2(b'"', b'\\', self.bytes.get(at..)?)?;
            if self.bytes.get(hit) == Some(&b'"') {
                self.at = hit + 1;
                let raw = self.bytes.get(start + 1..hit)?;
                return Some(Text {
                    span: start..hit + 1,
                    raw,
                    escaped,
                });
            }
            escaped = true;
            at = hit + 2;
        }
    }

    /// Passes `true`, `false`, `null` or a number.
    pub fn scalar(&mut self) -> Option<Value<'a>> {
        match self.peek()? {
            b't' => self.word(b"true").map(|()| Value::True),
            b'f' => self.word(b"false").map(|()| Value::False),
            b'n' => self.word(b"null").map(|()| Value::Null),
            _ => self.number(),
        }
    }

    fn word(&mut self, word: &[u8]) -> Option<()> {
        self.bytes
            .get(self.at..)?
            .starts_with(word)
            .then(|| self.at += word.len())
    }

    fn number(&mut self) -> Option<Value<'a>> {
        let start = self.at;
        let sign = if self.next_if(b"-") {
            Sign::Negative
        } else {
            Sign::Positive
        };
        if !self.next_if(b"0") {
            self.digits()?;
        }
        if self.next_if(b".") {
            self.digits()?;
        }
        if self.next_if(b"eE") {
            self.next_if(b"+-");
            self.digits()?;
        }
        Some(Value::Number(sign, self.bytes.get(start..self.at)?))
    }

    fn next_if(&mut self, accepted: &[u8]) -> bool {
        let hit = self
            .bytes
            .get(self.at)
            .is_some_and(|byte| accepted.contains(byte));
        self.at += usize::from(hit);
        hit
    }

    /// One or more digits.
    fn digits(&mut self) -> Option<()> {
        let rest = self.bytes.get(self.at..)?;
        let count = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        self.at += count;
        (count > 0).then_some(())
    }
}

fn unescape(raw: &str) -> Option<String> {
    let mut text = String::with_capacity(raw.len());
    let mut chars = raw.chars();
    while let Some(char) = chars.next() {
        if char != '\\' {
            text.push(char);
            continue;
        }
        text.push(match chars.next()? {
            known @ ('"' | '\\' | '/') => known,
            'b' => '\u{8}',
            'f' => '\u{c}',
            'n' => '\n',
            'r' => '\r',
            't' => '\t',
            'u' => escaped_char(&mut chars)?,
            _ => return None,
        });
    }
    Some(text)
}

/// One `XXXX`, or `XXXX\uXXXX` for a pair of surrogates.
fn escaped_char(chars: &mut std::str::Chars<'_>) -> Option<char> {
    let first = four_hex(chars)?;
    if !(0xD800..0xDC00).contains(&first) {
        return char::from_u32(first);
    }
    if chars.next()? != '\\' || chars.next()? != 'u' {
        return None;
    }
    let second = four_hex(chars)?;
    let low = second.checked_sub(0xDC00).filter(|low| *low < 0x400)?;
    char::from_u32(0x10000 + ((first - 0xD800) << 10) + low)
}

fn four_hex(chars: &mut std::str::Chars<'_>) -> Option<u32> {
    (0..4).try_fold(0, |value, _| Some(value * 16 + chars.next()?.to_digit(16)?))
}

//! Splits a byte stream into server-sent events, wherever the chunks end.
//!
//! Not here: what an event means ([`super::dialect`]). It differs from a browser's parser on purpose: an event that end of file cuts
//! off before its blank line is still given out, and lines that belong to no field are gathered, since some servers break off a
//! stream with a bare JSON error. Memory is bounded: an event over the bound ends the parsing, and [`SseParser::overflowed`] says so.

use memchr::memchr2;

const BOM: &[u8] = b"\xef\xbb\xbf";

/// One event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SseEvent {
    /// The `event` field; empty when there was none.
    pub name: Vec<u8>,
    /// The `data` lines, or the stray lines; joined by line feeds.
    pub data: Vec<u8>,
    /// Whether `data` is made of lines that belong to no field.
    pub stray: bool,
}

/// An incremental parser.
#[derive(Debug)]
pub struct SseParser {
    line: Vec<u8>,
    data: Option<Vec<u8>>,
    name: Vec<u8>,
    stray: Vec<u8>,
    after_cr: bool,
    first_line: bool,
    event_max: usize,
    overflowed: bool,
}

impl SseParser {
    /// A parser for events of at most `event_max` bytes.
    pub fn new(event_max: usize) -> SseParser {
        SseParser {
            line: Vec::new(),
            data: None,
            name: Vec::new(),
            stray: Vec::new(),
            after_cr: false,
            first_line: true,
            event_max,
            overflowed: false,
        }
    }

    /// Whether an event was larger than the bound. Nothing is parsed from then on.
    pub fn overflowed(&self) -> bool {
        self.overflowed
    }

    /// Takes the next bytes and gives out the events that they complete.
    pub fn feed(&mut self, bytes: &[u8], sink: &mut impl FnMut(SseEvent)) {
        let mut rest = bytes;
        while !rest.is_empty() && !self.overflowed {
            if std::mem::take(&mut self.after_cr)
                && let Some((b'\n', tail)) = rest.split_first()
            {
                rest = tail;
                continue;
            }
            let end = memchr2(b'\n', b'\r', rest).unwrap_or(rest.len());
            let (part, tail) = rest.split_at_checked(end).unwrap_or((rest, &[]));
            self.push_line(part);
            let Some((terminator, tail)) = tail.split_first() else {
                return;
            };
            self.after_cr = *terminator == b'\r';
            self.end_line(sink);
            rest = tail;
        }
    }

    /// The stream has ended: gives out the event that was begun.
    pub fn finish(&mut self, sink: &mut impl FnMut(SseEvent)) {
        if self.overflowed {
            return;
        }
        if !self.line.is_empty() {
            self.end_line(sink);
        }
        self.dispatch(sink);
    }

    fn push_line(&mut self, part: &[u8]) {
        // The line feed between two stray lines counts: it is a byte of the event.
        let held = self.line.len()
            + self.data.as_ref().map_or(0, Vec::len)
            + self.name.len()
            + self.stray.len()
            + usize::from(!self.stray.is_empty());
        if held.saturating_add(part.len()) > self.event_max {
            self.overflowed = true;
            return;
        }
        self.line.extend_from_slice(part);
    }

    fn end_line(&mut self, sink: &mut impl FnMut(SseEvent)) {
        if self.overflowed {
            return;
        }
        let taken = std::mem::take(&mut self.line);
        let line = match taken.strip_prefix(BOM) {
            Some(after) if self.first_line => after,
            Some(_) | None => taken.as_slice(),
        };
        self.first_line = false;
        if line.is_empty() {
            self.dispatch(sink);
        } else {
            self.field(line);
        }
        self.line = taken;
        self.line.clear();
    }

    fn field(&mut self, line: &[u8]) {
        let colon = memchr::memchr(b':', line).unwrap_or(line.len());
        let (name, value) = line.split_at_checked(colon).unwrap_or((line, &[]));
        let value = value.strip_prefix(b":").unwrap_or(value);
        let value = value.strip_prefix(b" ").unwrap_or(value);
        match name {
            b"" => {}
            b"data" => match &mut self.data {
                Some(data) => {
                    data.push(b'\n');
                    data.extend_from_slice(value);
                }
                None => self.data = Some(value.to_vec()),
            },
            b"event" => self.name = value.to_vec(),
            b"id" | b"retry" => {}
            _ => {
                if !self.stray.is_empty() {
                    self.stray.push(b'\n');
                }
                self.stray.extend_from_slice(line);
            }
        }
    }

    fn dispatch(&mut self, sink: &mut impl FnMut(SseEvent)) {
        let name = std::mem::take(&mut self.name);
        let stray = std::mem::take(&mut self.stray);
        if let Some(data) = self.data.take() {
            sink(SseEvent {
                name,
                data,
                stray: false,
            });
        } else if !stray.is_empty() {
            sink(SseEvent {
                name,
                data: stray,
                stray: true,
            });
        }
    }
}

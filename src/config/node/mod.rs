//! A YAML file as a tree with positions. It knows no key of Rondo's.
//!
//! Refused here, with the place: syntax errors, duplicate keys, keys that are not text, anchors, aliases, tags, merge keys, several
//! documents, files that are too large or too deep. A [`Node`] has no `Debug`, since it may hold a literal secret.

mod write;

use std::collections::HashMap;

use saphyr_parser::{Event, Parser, ScalarStyle, ScanError, Span};

use super::problem::{Position, Report, Spot, join};

/// Largest file. A thousand routes take about 400 KiB; the rest is room for embedded mock scripts.
pub(super) const FILE_BYTES_MAX: usize = 4 << 20;
/// Deepest nesting. The deepest key of the configuration is at seven; mock scripts need a few more.
const DEPTH_MAX: usize = 32;

/// One value of the file.
pub(super) struct Node {
    pub at: Position,
    pub value: Value,
}

/// What the value is.
pub(super) enum Value {
    /// Text; `plain` means without quotes, so that `429` is a number and `"429"` is not.
    Scalar { text: String, plain: bool },
    /// A sequence.
    List(Vec<Node>),
    /// A mapping in the order of the file, without duplicates.
    Mapping(Vec<Entry>),
    /// Something that was refused already; nothing more is said about it.
    Broken,
}

/// One key of a mapping.
pub(super) struct Entry {
    pub key: String,
    pub key_at: Position,
    pub value: Node,
}

/// What a scalar without quotes stands for (YAML 1.2 core schema).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Plain {
    Null,
    Flag(bool),
    Integer,
    Float,
    Text,
}

/// Tells what a scalar without quotes stands for.
pub(super) fn plain(text: &str) -> Plain {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Plain::Null,
        "true" | "True" | "TRUE" => return Plain::Flag(true),
        "false" | "False" | "FALSE" => return Plain::Flag(false),
        _ => {}
    }
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    if matches!(unsigned, ".inf" | ".Inf" | ".INF") || matches!(text, ".nan" | ".NaN" | ".NAN") {
        return Plain::Float;
    }
    if !unsigned.is_empty() && unsigned.bytes().all(|b| b.is_ascii_digit()) {
        return Plain::Integer;
    }
    let radix = |prefix, radix| {
        text.strip_prefix(prefix).is_some_and(|digits: &str| {
            !digits.is_empty() && digits.chars().all(|c| c.is_digit(radix))
        })
    };
    if radix("0x", 16) || radix("0o", 8) {
        return Plain::Integer;
    }
    let numeric = |b: u8| b.is_ascii_digit() || matches!(b, b'.' | b'e' | b'E' | b'-' | b'+');
    if unsigned.bytes().all(numeric) && text.parse::<f64>().is_ok() {
        return Plain::Float;
    }
    Plain::Text
}

impl Node {
    /// What kind of value this is, for messages; never the value itself.
    pub fn kind(&self) -> &'static str {
        match &self.value {
            Value::Scalar { plain: false, .. } => "text",
            Value::Scalar { text, .. } => match plain(text) {
                Plain::Null => "no value",
                Plain::Flag(_) => "true or false",
                Plain::Integer => "a whole number",
                Plain::Float => "a fraction",
                Plain::Text => "text",
            },
            Value::List(_) => "a list",
            Value::Mapping(_) => "a mapping",
            Value::Broken => "something that cannot be read",
        }
    }

    /// Whether a key stands there without a value.
    pub fn is_null(&self) -> bool {
        matches!(&self.value, Value::Scalar { text, plain: true } if plain(text) == Plain::Null)
    }
}

/// Reads one YAML document. `None` when nothing can be said about its contents; why is in the report then.
pub(super) fn parse(text: &str, report: &mut Report) -> Option<Node> {
    if text.len() > FILE_BYTES_MAX {
        let message = format!(
            "the file has {} bytes; at most {FILE_BYTES_MAX} are read",
            text.len()
        );
        report.refuse(&whole_file(), message);
        return None;
    }
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut builder = Builder {
        report,
        end: end_of(text),
        open: Vec::new(),
        root: None,
        documents: 0,
    };
    let mut parser = Parser::new_from_str(text);
    while let Some(event) = parser.next_event() {
        match event {
            Ok((event, span)) => builder.take(event, span)?,
            Err(error) => {
                builder.syntax(&error);
                return None;
            }
        }
    }
    let root = builder.root.take();
    match root {
        Some(root) if !root.is_null() => Some(root),
        _ => {
            report.refuse(
                &whole_file(),
                "the file is empty; at least `providers` and `routes` are needed",
            );
            None
        }
    }
}

/// The place behind the last character. YAML ends lines as all three systems did.
fn end_of(text: &str) -> Position {
    let mut end = Position::START;
    let mut after_cr = false;
    for char in text.chars() {
        match char {
            '\n' if after_cr => {}
            '\n' | '\r' => {
                end = Position {
                    line: end.line.saturating_add(1),
                    column: 1,
                };
            }
            _ => end.column = end.column.saturating_add(1),
        }
        after_cr = char == '\r';
    }
    end
}

fn whole_file() -> Spot {
    Spot {
        at: Position::START,
        path: String::new(),
    }
}

/// A collection whose end has not been seen.
struct Open {
    at: Position,
    parts: Parts,
}

enum Parts {
    List(Vec<Node>),
    Mapping {
        entries: Vec<Entry>,
        seen: HashMap<String, Position>,
        key: Key,
    },
}

/// What a mapping expects next.
enum Key {
    /// A key.
    Awaited,
    /// The value of this key.
    Read(String, Position),
    /// A value that is dropped, since its key was refused.
    Refused,
}

/// Builds the tree from events, without recursion.
struct Builder<'r> {
    report: &'r mut Report,
    /// Behind the last character.
    end: Position,
    open: Vec<Open>,
    root: Option<Node>,
    documents: usize,
}

impl Builder<'_> {
    /// `None` ends the reading.
    fn take(&mut self, event: Event<'_>, span: Span) -> Option<()> {
        let at = self.place(span.start.line(), span.start.col());
        match event {
            Event::Nothing | Event::StreamStart | Event::StreamEnd | Event::DocumentEnd => {}
            Event::DocumentStart(_) => return self.document(at),
            Event::Alias(_) => {
                self.refuse(at, "aliases (*name) are not supported; write the value out");
                self.put(broken(at));
            }
            Event::Scalar(text, style, anchor, tag) => {
                let value = Value::Scalar {
                    text: text.into_owned(),
                    plain: style == ScalarStyle::Plain,
                };
                let fine = self.unadorned(at, anchor, tag.is_some());
                self.put(if fine { Node { at, value } } else { broken(at) });
            }
            Event::SequenceStart(anchor, tag) => {
                self.unadorned(at, anchor, tag.is_some());
                return self.push(at, Parts::List(Vec::new()));
            }
            Event::MappingStart(anchor, tag) => {
                self.unadorned(at, anchor, tag.is_some());
                let parts = Parts::Mapping {
                    entries: Vec::new(),
                    seen: HashMap::new(),
                    key: Key::Awaited,
                };
                return self.push(at, parts);
            }
            Event::SequenceEnd | Event::MappingEnd => self.pop(),
        }
        Some(())
    }

    fn document(&mut self, at: Position) -> Option<()> {
        self.documents += 1;
        if self.documents > 1 {
            self.refuse(
                at,
                "a second YAML document begins here; one file holds one document",
            );
            return None;
        }
        Some(())
    }

    /// Whether a node carries neither an anchor nor a tag.
    fn unadorned(&mut self, at: Position, anchor: usize, tagged: bool) -> bool {
        if anchor != 0 {
            self.refuse(
                at,
                "anchors (&name) are not supported; write the value out where it is needed",
            );
        }
        if tagged {
            self.refuse(at, "tags (!name) are not supported; leave the tag out");
        }
        anchor == 0 && !tagged
    }

    fn push(&mut self, at: Position, parts: Parts) -> Option<()> {
        if self.open.len() >= DEPTH_MAX {
            self.refuse(at, format!("nested deeper than {DEPTH_MAX} levels"));
            return None;
        }
        self.open.push(Open { at, parts });
        Some(())
    }

    fn pop(&mut self) {
        let Some(Open { at, parts }) = self.open.pop() else {
            return;
        };
        let value = match parts {
            Parts::List(items) => Value::List(items),
            Parts::Mapping { entries, .. } => Value::Mapping(entries),
        };
        self.put(Node { at, value });
    }

    /// Puts a finished node where it belongs.
    fn put(&mut self, node: Node) {
        let Some(top) = self.open.last_mut() else {
            self.root = Some(node);
            return;
        };
        match &mut top.parts {
            Parts::List(items) => items.push(node),
            Parts::Mapping { entries, key, .. } => match std::mem::replace(key, Key::Awaited) {
                Key::Awaited => self.put_key(node),
                Key::Refused => {}
                Key::Read(key, key_at) => entries.push(Entry {
                    key,
                    key_at,
                    value: node,
                }),
            },
        }
    }

    fn put_key(&mut self, node: Node) {
        let at = node.at;
        let refusal = match node.value {
            Value::Broken => None,
            Value::List(_) | Value::Mapping(_) => {
                Some("a key must be text, not a list or a mapping".to_owned())
            }
            Value::Scalar { text, plain: true } if text == "<<" => {
                Some("merge keys (<<) are not supported; write the keys out".to_owned())
            }
            Value::Scalar { text, .. } => match self.first_use(&text, at) {
                None => return self.expect(Key::Read(text, at)),
                Some(first) => {
                    self.expect(Key::Read(text, at));
                    let line = first.line;
                    Some(format!(
                        "this key stands here twice; it was first given on line {line}"
                    ))
                }
            },
        };
        if let Some(message) = refusal {
            self.refuse(at, message);
        }
        self.expect(Key::Refused);
    }

    /// Where the open mapping has this key already; remembers it otherwise.
    fn first_use(&mut self, text: &str, at: Position) -> Option<Position> {
        let Some(Open {
            parts: Parts::Mapping { seen, .. },
            ..
        }) = self.open.last_mut()
        else {
            return None;
        };
        let first = seen.get(text).copied();
        if first.is_none() {
            seen.insert(text.to_owned(), at);
        }
        first
    }

    fn expect(&mut self, next: Key) {
        if let Some(Open {
            parts: Parts::Mapping { key, .. },
            ..
        }) = self.open.last_mut()
        {
            *key = next;
        }
    }

    /// A place of the parser's. What it misses at the end of a text it expects one line below (saphyr-parser 0.0.6); an operator looks
    /// for it at the end.
    fn place(&self, line: usize, column: usize) -> Position {
        let at = Position {
            line: line.max(1),
            column: column.saturating_add(1),
        };
        at.min(self.end)
    }

    fn syntax(&mut self, error: &ScanError) {
        let at = self.place(error.marker().line(), error.marker().col());
        self.refuse(at, format!("not valid YAML: {}", error.info()));
    }

    fn refuse(&mut self, at: Position, message: impl Into<String>) {
        let path = self.path();
        self.report.refuse(&Spot { at, path }, message);
    }

    /// The path of what is being read.
    fn path(&self) -> String {
        self.open
            .iter()
            .fold(String::new(), |path, open| match &open.parts {
                Parts::List(items) => format!("{path}[{}]", items.len()),
                Parts::Mapping {
                    key: Key::Read(key, _),
                    ..
                } => join(&path, key),
                Parts::Mapping { .. } => path,
            })
    }
}

fn broken(at: Position) -> Node {
    Node {
        at,
        value: Value::Broken,
    }
}

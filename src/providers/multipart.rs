//! One pass over a form (`multipart/form-data`, RFC 7578): the model and where it stands, whether a stream is asked for, what binds
//! the operation to a provider. The body of JSON is [`scan`](super::scan)'s.
//!
//! Not a decoder: parts are neither copied nor kept, and files are passed over by a search for the boundary. Invariant: where
//! parsers of providers could disagree about where a part begins or what it is called, the form is refused: bare line breaks before a
//! boundary, folded or repeated names, text after the last part that looks like one.

use memchr::memmem::Finder;

use super::binding::{self, Binding};
use super::form_header::{self, Part, What};
use super::scan::{MODEL_SPANS_MAX, ModelSpans, Scan, ScanError};
use super::scan_rules::{self, Place, Role};
use crate::core::api::Api;

/// Parts of one form. Real ones have about ten; servers stop at a thousand.
pub const PARTS_MAX: usize = 1024;

/// Scans a form. `content_type` is the header's value; bytes of any kind are an answer or an error, never a panic.
pub fn scan(api: Api, content_type: Option<&[u8]>, body: &[u8]) -> Result<Scan, ScanError> {
    let boundary = content_type
        .and_then(form_header::boundary)
        .ok_or(ScanError::NoBoundary)?;
    let delimiter = [b"--", boundary].concat();
    let mut form = Form {
        body,
        delimiters: Delimiters {
            body,
            finder: Finder::new(&delimiter),
            at: 0,
        },
        found: Found::new(api),
    };
    form.parts()?;
    form.found.finish()
}

struct Form<'a> {
    body: &'a [u8],
    delimiters: Delimiters<'a>,
    found: Found,
}

/// The delimiters at the beginnings of lines.
struct Delimiters<'a> {
    body: &'a [u8],
    finder: Finder<'a>,
    /// Behind the last one.
    at: usize,
}

/// What the fields said so far.
struct Found {
    api: Api,
    model: Option<Box<str>>,
    spans: ModelSpans,
    stream: bool,
    binding: Option<Binding>,
    side_effects: bool,
}

/// What follows a delimiter.
enum After {
    /// A part, from this position on.
    Part(usize),
    /// Nothing: it was the last one.
    End,
}

impl Form<'_> {
    fn parts(&mut self) -> Result<(), ScanError> {
        if self.delimiters.next()?.is_none() {
            return Err(wrong(0, "its boundary is not there"));
        }
        for _ in 0..PARTS_MAX {
            let start = match self.after()? {
                After::Part(start) => start,
                After::End => return self.epilogue(),
            };
            let Some(next) = self.delimiters.next()? else {
                return Err(wrong(self.body.len(), "the last part does not end"));
            };
            self.part(start, next)?;
        }
        Err(wrong(self.delimiters.at, "it has too many parts"))
    }

    /// Reads the rest of a delimiter's line.
    fn after(&self) -> Result<After, ScanError> {
        let at = self.delimiters.at;
        let rest = self.body.get(at..).unwrap_or_default();
        let (rest, is_last) = match rest.strip_prefix(b"--") {
            Some(rest) => (rest, true),
            None => (rest, false),
        };
        let is_blank = |byte: &&u8| matches!(byte, b' ' | b'\t');
        let blanks = rest.iter().take_while(is_blank).count();
        match (is_last, rest.get(blanks..).unwrap_or_default()) {
            (false, [b'\r', b'\n', ..]) => Ok(After::Part(at + blanks + 2)),
            (true, [] | [b'\n', ..] | [b'\r', b'\n', ..]) => Ok(After::End),
            _ => Err(wrong(at, "its boundary does not end its line")),
        }
    }

    fn epilogue(&mut self) -> Result<(), ScanError> {
        match self.delimiters.next()? {
            None => Ok(()),
            Some(at) => Err(wrong(at, "something follows the last part")),
        }
    }

    /// One part; `next` is where the delimiter behind it stands.
    fn part(&mut self, start: usize, next: usize) -> Result<(), ScanError> {
        // A part may be nothing but a header; the line break before the delimiter is then the end of that.
        let part = self.body.get(start..next).unwrap_or_default();
        let header = Part::read(part).map_err(|what| wrong(start, what))?;
        let begins = start + header.header_bytes;
        let ends = next.saturating_sub(2);
        let value = self.body.get(begins..ends).unwrap_or_default();
        match header.name {
            b"model" => {
                if header.is_file || header.is_encoded {
                    return Err(ScanError::ModelNotString);
                }
                let name = std::str::from_utf8(value).map_err(|_| ScanError::ModelInvalid)?;
                let Found { model, spans, .. } = &mut self.found;
                spans.take(model, name, begins..ends, MODEL_SPANS_MAX)
            }
            _ if header.is_file => Ok(()),
            b"stream" => {
                self.found.stream = is_true(value);
                Ok(())
            }
            name => {
                self.found.field(name, value);
                Ok(())
            }
        }
    }
}

impl Delimiters<'_> {
    /// Where the next one stands. It begins the body or follows CR LF.
    fn next(&mut self) -> Result<Option<usize>, ScanError> {
        // Each turn passes a whole delimiter, which has no line break inside, so that none is passed over.
        while let Some(rest) = self.body.get(self.at..) {
            let Some(found) = self.finder.find(rest) else {
                self.at = self.body.len();
                return Ok(None);
            };
            let start = self.at + found;
            self.at = start + self.finder.needle().len();
            let before = self.body.get(..start).unwrap_or_default();
            match before {
                [] | [.., b'\r', b'\n'] => return Ok(Some(start)),
                [.., b'\r' | b'\n'] => {
                    return Err(wrong(start, "a bare line break precedes a boundary"));
                }
                _ => {}
            }
        }
        Ok(None)
    }
}

impl Found {
    fn new(api: Api) -> Found {
        Found {
            api,
            model: None,
            spans: ModelSpans::default(),
            stream: false,
            binding: None,
            side_effects: false,
        }
    }

    /// A field that is no file. Names like `voice[id]` and `file_ids[]` stand for what JSON nests.
    fn field(&mut self, name: &[u8], value: &[u8]) {
        if value.trim_ascii().is_empty() || value == b"null" {
            return;
        }
        let mut place = Place::Root;
        let keys = name.split(|byte| b"[].".contains(byte));
        for key in keys.filter(|key| !key.is_empty()) {
            let role = scan_rules::role(self.api, place, key);
            place = role.place();
            match role {
                Role::Bind(binding) => self.bind(binding),
                Role::Container => self.bind(Binding::Container),
                Role::Conversation => {
                    self.bind(Binding::Conversation);
                    self.side_effects = true;
                }
                Role::Runs | Role::Enables => self.side_effects |= !is_false(value),
                Role::Pass(_)
                | Role::Model
                | Role::Stream
                | Role::LengthMax
                | Role::Store
                | Role::ItemType
                | Role::ItemId
                | Role::ItemAuthor
                | Role::ToolType
                | Role::Type => {}
            }
        }
    }

    /// The first reason stays.
    fn bind(&mut self, binding: Binding) {
        self.binding.get_or_insert(binding);
    }

    fn finish(self) -> Result<Scan, ScanError> {
        let model = self.model.ok_or(ScanError::NoModel)?;
        Ok(Scan {
            api: self.api,
            binding: self.binding.or_else(|| binding::of_model(&model)),
            model: Some(model),
            model_spans: self.spans,
            stream: self.stream,
            side_effects: self.side_effects,
            length_max: 0,
        })
    }
}

/// Forms have no truth values: servers take several words for them.
fn is_true(value: &[u8]) -> bool {
    const WORDS: [&[u8]; 6] = [b"true", b"1", b"yes", b"on", b"t", b"y"];
    WORDS
        .iter()
        .any(|word| value.trim_ascii().eq_ignore_ascii_case(word))
}

fn is_false(value: &[u8]) -> bool {
    const WORDS: [&[u8]; 6] = [b"false", b"0", b"no", b"off", b"f", b"n"];
    WORDS
        .iter()
        .any(|word| value.trim_ascii().eq_ignore_ascii_case(word))
}

fn wrong(offset: usize, what: What) -> ScanError {
    ScanError::NotForm { offset, what }
}

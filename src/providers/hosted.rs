//! Anthropic's messages as the clouds want them that host its models: a version in the body, no model, and at Bedrock no `stream`.
//!
//! Not here: paths ([`super::request_style`]) and every other body, which keeps its bytes but for the model ([`super::outbound`]).
//! Invariant: nothing is serialised anew. Members of the request object are left out or replaced where they stand; every other byte, white
//! space included, is the client's. A body that names a version keeps it.

use std::ops::Range;

use bytes::Bytes;
use http::HeaderMap;

use super::outbound::{Segments, json_string, slice};
use super::request_style::RequestStyle;
use super::scan_token::Cursor;
use crate::core::api::Api;

/// Shared slices of one body. Usual bodies need two; one that repeats a member for ever is copied from here on.
const SLICES_MAX: usize = 16;
/// Beta features that one request names. The documented ones are fewer.
const BETAS_MAX: usize = 32;

/// What a host of Anthropic's models wants of a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hosted {
    /// Vertex: `model` gives way to the version.
    Vertex,
    /// Bedrock: the same, `stream` goes, and beta features stand in the body.
    Bedrock,
}

impl Hosted {
    /// The host that a request of this format meets, if it wants another body than Anthropic does.
    pub const fn of(style: RequestStyle, api: Api) -> Option<Hosted> {
        match (style, api) {
            (RequestStyle::Vertex, Api::AnthropicMessages) => Some(Hosted::Vertex),
            (RequestStyle::Bedrock, Api::AnthropicMessages) => Some(Hosted::Bedrock),
            _ => None,
        }
    }

    const fn version(self) -> &'static str {
        match self {
            Hosted::Vertex => "\"anthropic_version\":\"vertex-2023-10-16\"",
            Hosted::Bedrock => "\"anthropic_version\":\"bedrock-2023-05-31\"",
        }
    }

    fn drops(self, name: &[u8]) -> bool {
        name == b"model" || (self == Hosted::Bedrock && name == b"stream")
    }
}

/// What the client's `anthropic-beta` headers say.
pub fn betas(client: &HeaderMap) -> Vec<&str> {
    let values = client.get_all("anthropic-beta").into_iter();
    values.filter_map(|value| value.to_str().ok()).collect()
}

/// The body for such a host. `betas` are the values of the client's `anthropic-beta` headers. A body that is no JSON object, which the
/// scan has refused before, is sent as it came.
pub fn splice(body: &Bytes, hosted: Hosted, betas: &[&str]) -> Segments {
    spliced(body, hosted, betas).unwrap_or_else(|| Segments::whole(body.clone()))
}

fn spliced(body: &Bytes, hosted: Hosted, betas: &[&str]) -> Option<Segments> {
    let named = named(body)?;
    let mut entering = Vec::new();
    if !named.version {
        entering.push(hosted.version().to_owned());
    }
    if hosted == Hosted::Bedrock && !named.betas {
        entering.extend(beta_member(betas));
    }
    let mut entering = (!entering.is_empty()).then(|| Bytes::from(entering.join(",")));
    let mut reader = Members::new(body)?;
    let mut kept = Kept::new(body, reader.end);
    while let Some(member) = reader.next()? {
        if !hosted.drops(&member.name) {
            kept.keep(&member);
        } else if let Some(text) = entering.take_if(|_| *member.name == *b"model") {
            kept.replace(&member, text);
        }
    }
    Some(kept.finish(reader.end))
}

/// What a body has already.
struct Named {
    version: bool,
    betas: bool,
}

fn named(body: &[u8]) -> Option<Named> {
    let mut reader = Members::new(body)?;
    let mut named = Named {
        version: false,
        betas: false,
    };
    while let Some(member) = reader.next()? {
        named.version |= *member.name == *b"anthropic_version";
        named.betas |= *member.name == *b"anthropic_beta";
    }
    Some(named)
}

/// `"anthropic_beta":["a","b"]`, from headers that hold lists.
fn beta_member(headers: &[&str]) -> Option<String> {
    let names = headers.iter().flat_map(|header| header.split(','));
    let names: Vec<String> = names
        .map(str::trim)
        .filter(|name| !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_graphic()))
        .take(BETAS_MAX)
        .map(|name| String::from_utf8_lossy(&json_string(name)).into_owned())
        .collect();
    (!names.is_empty()).then(|| format!("\"anthropic_beta\":[{}]", names.join(",")))
}

/// A member of the request object.
struct Member<'a> {
    name: std::borrow::Cow<'a, [u8]>,
    /// The comma before it; the first has none.
    comma: Option<usize>,
    /// From the end of what stands before it, its comma included, to the end of its value.
    span: Range<usize>,
    /// Where its key begins.
    key: usize,
}

/// The members of an object one after the other. Its structure was checked by the scan.
struct Members<'a> {
    cursor: Cursor<'a>,
    /// The end of the last member, or of the opening brace.
    end: usize,
    is_first: bool,
}

impl<'a> Members<'a> {
    fn new(body: &'a [u8]) -> Option<Members<'a>> {
        let mut cursor = Cursor::new(body);
        cursor.take(b'{')?;
        let end = cursor.offset();
        Some(Members {
            cursor,
            end,
            is_first: true,
        })
    }

    /// The next member. `None` outside: this is no object; `None` inside: it is over.
    fn next(&mut self) -> Option<Option<Member<'a>>> {
        let start = self.end;
        if self.cursor.peek()? == b'}' {
            return Some(None);
        }
        let mut comma = None;
        if !self.is_first {
            self.cursor.take(b',')?;
            comma = Some(self.cursor.offset() - 1);
            self.cursor.peek()?;
        }
        self.is_first = false;
        let key = self.cursor.text()?;
        self.cursor.take(b':')?;
        self.value()?;
        self.end = self.cursor.offset();
        Some(Some(Member {
            name: key.name(),
            comma,
            span: start..self.end,
            key: key.span.start,
        }))
    }

    /// Passes a value. Each turn passes at least one byte.
    fn value(&mut self) -> Option<()> {
        let mut depth = 0_usize;
        loop {
            match self.cursor.peek()? {
                b'"' => {
                    self.cursor.text()?;
                }
                b'{' | b'[' => {
                    depth += 1;
                    self.cursor.skip();
                }
                b'}' | b']' => {
                    depth = depth.checked_sub(1)?;
                    self.cursor.skip();
                }
                b',' | b':' if depth > 0 => self.cursor.skip(),
                _ => {
                    self.cursor.scalar()?;
                }
            }
            if depth == 0 {
                return Some(());
            }
        }
    }
}

/// What stays of a body, as runs of its bytes.
struct Kept<'b> {
    body: &'b Bytes,
    segments: Segments,
    copied: Vec<u8>,
    /// The run that may still grow.
    run: Range<usize>,
    is_first: bool,
}

impl<'b> Kept<'b> {
    /// Keeps everything up to the first member.
    fn new(body: &'b Bytes, start: usize) -> Kept<'b> {
        Kept {
            body,
            segments: Segments::empty(),
            copied: Vec::new(),
            run: 0..start,
            is_first: true,
        }
    }

    fn keep(&mut self, member: &Member<'_>) {
        let span = self.lead(member).start..member.span.end;
        self.extend(span);
    }

    fn replace(&mut self, member: &Member<'_>, text: Bytes) {
        let lead = self.lead(member);
        self.extend(lead);
        self.flush();
        self.push(text);
        self.run = member.span.end..member.span.end;
    }

    /// What stands before a member's key. The first that stays has no comma before it.
    fn lead(&mut self, member: &Member<'_>) -> Range<usize> {
        let is_first = std::mem::replace(&mut self.is_first, false);
        let start = match member.comma {
            Some(comma) if is_first => comma + 1,
            Some(_) | None => member.span.start,
        };
        start..member.key
    }

    fn extend(&mut self, span: Range<usize>) {
        if self.run.end == span.start {
            self.run.end = span.end;
        } else {
            self.flush();
            self.run = span;
        }
    }

    fn flush(&mut self) {
        let run = std::mem::take(&mut self.run);
        let part = slice(self.body, run);
        self.push(part);
    }

    fn push(&mut self, part: Bytes) {
        if self.segments.iter().len() < SLICES_MAX {
            self.segments.push(part);
        } else {
            self.copied.extend_from_slice(&part);
        }
    }

    /// Keeps what follows the last member.
    fn finish(mut self, end: usize) -> Segments {
        let body = self.body;
        self.extend(end..body.len());
        self.flush();
        self.segments.push(Bytes::from(self.copied));
        self.segments
    }
}

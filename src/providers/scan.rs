//! One pass over a request body: the model and where it stands, whether a stream is asked for, what binds the operation to a
//! provider and whether the provider may act on its own.
//!
//! Not here: forms, which [`multipart`] reads, and JSON values. Nothing is built, nothing is recursive, and strings are skipped
//! unread. Structure is checked (balance, commas, terminated strings, numbers), so that every span is what a provider's parser sees.

use std::borrow::Cow;
use std::ops::Range;

use thiserror::Error;

use super::binding::{self, Binding};
use super::inbound::is_model_name;
use super::multipart;
use super::scan_rules::{self, ItemKind, Place, Role};
use super::scan_token::{Content, Cursor, Text, Value};
use crate::core::api::{Api, Family};

/// How deep containers may nest. Providers stop between 100 and 1000; deeper bodies are attacks on parsers.
pub const DEPTH_MAX: usize = 512;
/// How often the model may be named. Twice is already a mistake of the client; every place is rewritten, so that no parser
/// can read another model than the one that was routed.
pub const MODEL_SPANS_MAX: usize = 4;
/// The same for Gemini, where each request of a batch names it. Their documented limit is 100 requests.
pub const BATCH_MODEL_SPANS_MAX: usize = 128;

/// What a body says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scan {
    /// The API format that it was read as.
    pub api: Api,
    /// The model that the body names, escapes decoded; the last one if there are several. Always there unless the path
    /// names it.
    pub model: Option<Box<str>>,
    /// Where the model stands.
    pub model_spans: ModelSpans,
    /// Whether the body asks for a stream.
    pub stream: bool,
    /// Why the operation must stay with its first target (R-S7, R-F8).
    pub binding: Option<Binding>,
    /// Whether the provider may have acted before it rejects: nothing is certified then (R-A5).
    pub side_effects: bool,
    /// How long the answer may be in tokens, as the client asks; 0 when it does not say.
    pub length_max: u64,
}

/// What names the model, in the order of the body: string tokens with their quotes, or the values of a form.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ModelSpans {
    spans: Vec<Range<usize>>,
    differ: bool,
}

impl ModelSpans {
    /// The spans.
    pub fn iter(&self) -> impl Iterator<Item = Range<usize>> {
        self.spans.iter().cloned()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.spans.len()
    }

    /// Whether the body does not name a model.
    pub fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }

    /// Whether the spans name different models.
    pub fn differ(&self) -> bool {
        self.differ
    }

    /// Takes a place that names a model, one of at most `max`. `model` is what was named before, and is what is named now.
    pub(super) fn take(
        &mut self,
        model: &mut Option<Box<str>>,
        name: &str,
        span: Range<usize>,
        max: usize,
    ) -> Result<(), ScanError> {
        if name.is_empty() {
            return Err(ScanError::NoModel);
        }
        if !is_model_name(name) {
            return Err(ScanError::ModelInvalid);
        }
        if self.spans.len() >= max {
            return Err(ScanError::TooManyModels);
        }
        self.spans.push(span);
        self.differ |= model.as_deref().is_some_and(|before| before != name);
        *model = Some(name.into());
        Ok(())
    }
}

/// Why a body cannot be served. All of them are the client's, and a 400.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum ScanError {
    /// It is not one JSON object.
    #[error("the body is not valid JSON: {what} at byte {offset}")]
    NotJson {
        /// Where reading stopped.
        offset: usize,
        /// What was wanted there.
        what: &'static str,
    },
    /// There is no model, or an empty one.
    #[error("the body does not name a model")]
    NoModel,
    /// The model is something else.
    #[error("the model is not a string")]
    ModelNotString,
    /// The model cannot be a name.
    #[error("the model is too long or not plain text")]
    ModelInvalid,
    /// The model stands there more often than [`MODEL_SPANS_MAX`], in a Gemini body [`BATCH_MODEL_SPANS_MAX`].
    #[error("the body names the model too often")]
    TooManyModels,
    /// It is no form.
    #[error("the body is not valid multipart/form-data: {what} at byte {offset}")]
    NotForm {
        /// Where reading stopped.
        offset: usize,
        /// What is wrong there.
        what: &'static str,
    },
    /// The content type is not that of a form, or does not say where its parts begin.
    #[error("the content type must be multipart/form-data with one boundary")]
    NoBoundary,
    /// Containers nest deeper than [`DEPTH_MAX`].
    #[error("the body nests deeper than {DEPTH_MAX} levels")]
    TooDeep,
}

/// Scans the body of a request: the form of a path that takes forms, the JSON of any other.
pub fn read(api: Api, content_type: Option<&[u8]>, body: &[u8]) -> Result<Scan, ScanError> {
    if api.is_form() {
        multipart::scan(api, content_type, body)
    } else {
        scan(api, body)
    }
}

/// Scans a JSON body.
pub fn scan(api: Api, body: &[u8]) -> Result<Scan, ScanError> {
    let mut scanner = Scanner::new(api, body);
    scanner.document()?;
    scanner.finish()
}

#[derive(Debug, Clone, Copy)]
struct Frame {
    shape: Shape,
    place: Place,
    started: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shape {
    Object,
    Array,
}

/// What is known of the input item that is being read.
#[derive(Debug, Default)]
struct Item {
    kind: Option<ItemKind>,
    has_id: bool,
    has_author: bool,
}

struct Scanner<'a> {
    api: Api,
    cursor: Cursor<'a>,
    frames: [Frame; DEPTH_MAX],
    depth: usize,
    item: Item,
    /// An input item that exists at the provider if the response was stored.
    stored_call: bool,
    store_off: bool,
    model: Option<Box<str>>,
    spans: ModelSpans,
    stream: bool,
    binding: Option<Binding>,
    side_effects: bool,
    length_max: u64,
}

impl<'a> Scanner<'a> {
    fn new(api: Api, body: &'a [u8]) -> Scanner<'a> {
        let unused = Frame {
            shape: Shape::Object,
            place: Place::Free,
            started: false,
        };
        Scanner {
            api,
            cursor: Cursor::new(body),
            frames: [unused; DEPTH_MAX],
            depth: 0,
            item: Item::default(),
            stored_call: false,
            store_off: false,
            model: None,
            spans: ModelSpans::default(),
            stream: false,
            binding: None,
            side_effects: false,
            length_max: 0,
        }
    }

    fn document(&mut self) -> Result<(), ScanError> {
        match self.cursor.peek() {
            Some(b'{') => self.open(Shape::Object, Role::Pass(Place::Root))?,
            Some(_) => return Err(self.wanted("a JSON object was expected")),
            None => return Err(self.wanted("it is empty")),
        }
        // Each turn passes at least one byte or fails.
        while let Some(frame) = self.enter() {
            match frame.shape {
                Shape::Object => self.member(frame)?,
                Shape::Array => self.element(frame)?,
            }
        }
        match self.cursor.peek() {
            None => Ok(()),
            Some(_) => Err(self.wanted("something follows the object")),
        }
    }

    fn finish(mut self) -> Result<Scan, ScanError> {
        if self.model.is_none() && !self.api.has_path_model() {
            return Err(ScanError::NoModel);
        }
        if self.stored_call && !self.store_off {
            self.bind(Binding::Item);
        }
        let named = self.model.as_deref().and_then(binding::of_model);
        Ok(Scan {
            api: self.api,
            binding: self.binding.or(named),
            model: self.model,
            model_spans: self.spans,
            stream: self.stream,
            side_effects: self.side_effects,
            length_max: self.length_max,
        })
    }

    /// The innermost open container as it was; from now on it counts as started.
    fn enter(&mut self) -> Option<Frame> {
        let frame = self.frames.get_mut(self.depth.checked_sub(1)?)?;
        let before = *frame;
        frame.started = true;
        Some(before)
    }

    fn member(&mut self, frame: Frame) -> Result<(), ScanError> {
        if self.cursor.take(b'}').is_some() {
            self.close(frame);
            return Ok(());
        }
        if frame.started && self.cursor.take(b',').is_none() {
            return Err(self.wanted("a comma or } was expected"));
        }
        if self.cursor.peek() != Some(b'"') {
            return Err(self.wanted("a key was expected"));
        }
        let key = self.text()?;
        if self.cursor.take(b':').is_none() {
            return Err(self.wanted("a colon was expected"));
        }
        let role = match frame.place {
            Place::Free => Role::Pass(Place::Free),
            place => scan_rules::role(self.api, place, &key.name()),
        };
        self.value(role)
    }

    fn element(&mut self, frame: Frame) -> Result<(), ScanError> {
        if self.cursor.take(b']').is_some() {
            self.close(frame);
            return Ok(());
        }
        if frame.started && self.cursor.take(b',').is_none() {
            return Err(self.wanted("a comma or ] was expected"));
        }
        self.value(Role::Pass(frame.place))
    }

    fn value(&mut self, role: Role) -> Result<(), ScanError> {
        let value = match self.cursor.peek() {
            Some(b'{') => return self.open(Shape::Object, role),
            Some(b'[') => return self.open(Shape::Array, role),
            Some(b'"') => Value::Text(self.text()?),
            _ => match self.cursor.scalar() {
                Some(value) => value,
                None => return Err(self.wanted("a value was expected")),
            },
        };
        self.apply(role, &value)
    }

    fn open(&mut self, shape: Shape, role: Role) -> Result<(), ScanError> {
        self.cursor.skip();
        let end = if shape == Shape::Object { b'}' } else { b']' };
        let content = if self.cursor.peek() == Some(end) {
            Content::None
        } else {
            Content::Some
        };
        self.apply(role, &Value::Container(content))?;
        let place = match shape {
            Shape::Object => role.place().of_object(),
            Shape::Array => role.place(),
        };
        let free = self.frames.get_mut(self.depth).ok_or(ScanError::TooDeep)?;
        *free = Frame {
            shape,
            place,
            started: false,
        };
        self.depth += 1;
        Ok(())
    }

    fn close(&mut self, frame: Frame) {
        self.depth -= 1;
        if (frame.shape, frame.place) != (Shape::Object, Place::Item) {
            return;
        }
        let Item {
            kind,
            has_id,
            has_author,
        } = std::mem::take(&mut self.item);
        match kind {
            Some(ItemKind::Reference) => self.bind(Binding::Item),
            Some(ItemKind::Reasoning) if has_id => self.bind(Binding::Item),
            Some(ItemKind::Call) => self.stored_call |= has_id,
            // An item that is nothing but an id is a reference, too.
            None if has_id && !has_author => self.bind(Binding::Item),
            Some(ItemKind::Reasoning | ItemKind::Other) | None => {}
        }
    }

    fn apply(&mut self, role: Role, value: &Value<'a>) -> Result<(), ScanError> {
        match role {
            Role::Pass(_) => {}
            Role::Model => self.model(value)?,
            Role::Stream => self.stream = matches!(value, Value::True),
            // Of several the largest: the one that a provider reads is no larger.
            Role::LengthMax => self.length_max = self.length_max.max(value.count().unwrap_or(0)),
            Role::Store => self.store_off = matches!(value, Value::False),
            Role::Bind(binding) => self.bind_if(value.names_something(), binding),
            Role::Container => {
                let named = matches!(value, Value::Text(_)) && value.names_something();
                self.bind_if(named, Binding::Container);
            }
            Role::Conversation => {
                self.bind_if(value.names_something(), Binding::Conversation);
                self.side_effects |= value.names_something();
            }
            Role::Runs => {
                self.side_effects |= matches!(value, Value::True) || value.names_something();
            }
            Role::Enables => self.side_effects |= !matches!(value, Value::Null | Value::False),
            Role::ItemId => self.item.has_id = value.names_something(),
            Role::ItemAuthor => self.item.has_author = value.names_something(),
            Role::ItemType => self.item.kind = value.name().map(|name| ItemKind::of(&name)),
            Role::ToolType => {
                let runs = |name: Cow<'_, [u8]>| scan_rules::tool_runs_at_provider(&name);
                self.side_effects |= value.name().is_some_and(runs);
            }
            Role::Type => {
                let bound = value.name().and_then(|name| scan_rules::bound_type(&name));
                self.binding = self.binding.or(bound);
            }
        }
        Ok(())
    }

    fn model(&mut self, value: &Value<'a>) -> Result<(), ScanError> {
        let Value::Text(text) = value else {
            return Err(ScanError::ModelNotString);
        };
        let name = text.decode().ok_or(ScanError::ModelInvalid)?;
        let max = match self.api.family() {
            Family::Gemini => BATCH_MODEL_SPANS_MAX,
            Family::Openai | Family::Anthropic | Family::Bedrock => MODEL_SPANS_MAX,
        };
        self.spans
            .take(&mut self.model, &name, text.span.clone(), max)
    }

    fn bind_if(&mut self, bound: bool, binding: Binding) {
        if bound {
            self.bind(binding);
        }
    }

    /// The first reason stays.
    fn bind(&mut self, binding: Binding) {
        self.binding.get_or_insert(binding);
    }

    fn text(&mut self) -> Result<Text<'a>, ScanError> {
        match self.cursor.text() {
            Some(text) => Ok(text),
            None => Err(self.wanted("a string does not end")),
        }
    }

    fn wanted(&self, what: &'static str) -> ScanError {
        ScanError::NotJson {
            offset: self.cursor.offset(),
            what,
        }
    }
}

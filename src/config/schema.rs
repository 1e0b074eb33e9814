//! What a shape of the configuration is. The reader, the JSON Schema and the error texts all follow these descriptions, so they cannot
//! disagree. Not here: the keys themselves (`keys.rs`) and what depends on more than one of them (`compile/`).

use super::defaults::DAY_MS;
use super::units::{show_size, show_span};

/// A mapping with fixed keys.
pub(super) struct Shape {
    /// What it describes, for people.
    pub about: &'static str,
    /// Its keys, in the order in which they are documented.
    pub fields: &'static [Field],
    /// How many of them are given.
    pub given: Given,
}

/// How many keys of a shape are given.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Given {
    /// All that are required.
    Required,
    /// Exactly one of all; and the values are secret, so that no message repeats what is found here.
    OneSecret,
    /// Exactly one of all.
    One,
}

/// One key.
pub(super) struct Field {
    pub key: &'static str,
    pub kind: Kind,
    pub need: Need,
    /// What it does, for people.
    pub about: &'static str,
}

/// What happens when the key is absent.
pub(super) enum Need {
    /// The file is refused.
    Required,
    /// This value is taken.
    Default(Preset),
    /// What is done instead, for people.
    Absent(&'static str),
}

/// A default value.
#[derive(Clone, Copy)]
pub(super) enum Preset {
    Number(u64),
    Flag(bool),
    Word(&'static str),
    Words(&'static [&'static str]),
}

/// What a value may be.
pub(super) enum Kind {
    Text(Text),
    Flag,
    /// A whole number; `why` explains the bounds.
    Number {
        min: u64,
        max: u64,
        why: &'static str,
    },
    /// Bytes, such as `32MiB`.
    Size {
        min: u64,
        max: u64,
    },
    /// A duration with its unit, such as `30d`; bounds in milliseconds.
    Span {
        min: u64,
        max: u64,
    },
    /// One of these words.
    Choice(&'static [Choice]),
    List {
        of: &'static Kind,
        min: usize,
        max: usize,
    },
    /// A mapping from names that the operator chooses.
    Named {
        of: &'static Shape,
        max: usize,
    },
    Mapping(&'static Shape),
    /// The same, or `off`.
    MappingOrOff(&'static Shape),
    /// A file name, or a mock script in place.
    Script,
}

/// One word of a choice.
pub(super) struct Choice {
    pub word: &'static str,
    pub about: &'static str,
}

/// Rules for text.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Text {
    /// A metric label: `[A-Za-z0-9._-]{1,64}`.
    Name,
    /// A model name.
    Model,
    /// A public model name, or the beginning of one with `*` at its end.
    Pattern,
    /// `address:port`.
    Listen,
    /// The same, or `off`.
    ListenOrOff,
    /// An http or https URL.
    Url,
    /// A file name.
    File,
    /// The name of an adapter.
    Adapter,
    /// The name of an environment variable.
    Variable,
    /// The name of a request header.
    Header,
    /// `client_key`, or `header:` and the name of a request header.
    HashOn,
    /// A date, or a date and time with its offset (RFC 3339).
    Date,
    /// Anything that is not empty.
    Any,
}

/// Milliseconds from `min` to one day.
pub(super) const fn millis(min: u64) -> Kind {
    Kind::Number {
        min,
        max: DAY_MS,
        why: "",
    }
}

impl Shape {
    /// The description of a key.
    pub fn field(&self, key: &str) -> Option<&'static Field> {
        self.fields.iter().find(|field| field.key == key)
    }

    /// What would be accepted, for messages.
    pub fn expected(&self) -> String {
        match self.given {
            Given::OneSecret => "{ env: VARIABLE }, { file: FILE } or { literal: TEXT }".to_owned(),
            Given::One => {
                let keys: Vec<&str> = self.fields.iter().map(|field| field.key).collect();
                format!("a mapping with one of these keys: {}", keys.join(", "))
            }
            Given::Required => {
                let keys: Vec<&str> = self.fields.iter().map(|field| field.key).collect();
                format!("a mapping of these keys: {}", keys.join(", "))
            }
        }
    }
}

impl Kind {
    /// What would be accepted, for messages.
    pub fn expected(&self) -> String {
        match self {
            Kind::Text(text) => text.expected().to_owned(),
            Kind::Flag => "true or false".to_owned(),
            Kind::Number { min, max, .. } if max - min == 1 => format!("{min} or {max}"),
            Kind::Number { min, max, .. } => format!("a whole number from {min} to {max}"),
            Kind::Size { min, max } => format!(
                "a size from {} to {}, written like 512KiB, 32MiB or 1GiB",
                show_size(*min),
                show_size(*max)
            ),
            Kind::Span { min, max } => format!(
                "a duration from {} to {}, written like 90s, 15m, 12h or 30d",
                show_span(*min),
                show_span(*max)
            ),
            Kind::Choice(choices) => {
                let words: Vec<&str> = choices.iter().map(|choice| choice.word).collect();
                format!("one of {}", words.join(", "))
            }
            Kind::List { min: 0, max, .. } => format!("a list of at most {max}"),
            Kind::List { min, max, .. } => format!("a list of {min} to {max}"),
            Kind::Named { .. } => "a mapping from names to settings".to_owned(),
            Kind::Mapping(shape) => shape.expected(),
            Kind::MappingOrOff(shape) => format!("off, or {}", shape.expected()),
            Kind::Script => "the name of a script file, or the script itself".to_owned(),
        }
    }
}

impl Text {
    /// What would be accepted, for messages.
    pub const fn expected(self) -> &'static str {
        match self {
            Text::Name => "a name of 1 to 64 letters, digits, `.`, `_` and `-`",
            Text::Model => "a model name of 1 to 256 characters without spaces",
            Text::Pattern => "a model name, or its beginning with one `*` at the end",
            Text::Listen => "an address and a port, e.g. 127.0.0.1:8080",
            Text::ListenOrOff => "an address and a port, e.g. 127.0.0.1:9090, or \"off\"",
            Text::Url => "a URL such as https://api.example.com",
            Text::File => "a file name",
            Text::Adapter => "the name of an adapter",
            Text::Variable => "the name of an environment variable",
            Text::Header => "the name of a request header, such as x-tenant",
            Text::HashOn => "client_key, or header: and a name, such as header:x-tenant",
            Text::Date => "a date such as 2027-01-31, or 2027-01-31T12:00:00Z",
            Text::Any => "text",
        }
    }
}

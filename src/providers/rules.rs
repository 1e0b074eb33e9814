//! The data types of the tables: one row says which answers it means, what they say and whether they prove a rejection.
//!
//! Not here: the rows (one file a vendor) and their evaluation order ([`super::classify`]). Rows test structured codes; text is tested
//! only to withhold a certificate or to name a class. The exception is a whole sentence that open server code gives as a constant where
//! it refuses to queue a request.

use serde_json::Value;

use super::answer::{ResponseHead, Single};
use super::json_envelope::{at, text_at};
use crate::core::class::Class;
use crate::core::outcome::Scope;

/// Object keys from the root of the body to a member.
pub type Path = &'static [&'static str];

/// One row of a table.
#[derive(Debug, Clone, Copy)]
pub struct Rule {
    /// Stable name, e.g. `openai.429.rate_limit_exceeded`.
    pub name: &'static str,
    /// Which answers it is for.
    pub on: On,
    /// Statuses it is for; empty means all. For an event in a stream the first one is the status that it maps to.
    pub statuses: &'static [u16],
    /// Tests that must all hold.
    pub when: &'static [Test],
    /// What such an answer says.
    pub class: Class,
    /// How far it reaches.
    pub scope: Scope,
    /// What it proves.
    pub proof: Proof,
}

/// Which answers a row is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum On {
    /// Answers with an error status.
    Status,
    /// Events inside a good stream.
    Stream,
    /// Both; the statuses are not compared for events.
    Both,
}

/// What a row proves about execution.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Proof {
    /// Nothing.
    None,
    /// A complete answer with an error status was rejected before the model ran.
    Status,
    /// The same, and also as the first and only event of a good stream: open server code says so.
    StatusOrFirstEvent,
}

/// A question about an answer.
#[derive(Debug, Clone, Copy)]
pub enum Test {
    /// The member is one of these strings.
    Is(Path, &'static [&'static str]),
    /// The member is a string whose part before the first colon is one of these.
    Stem(Path, &'static [&'static str]),
    /// The member is a string that starts with one of these.
    Starts(Path, &'static [&'static str]),
    /// The member is a string that contains one of these, in any case of its ASCII letters.
    Contains(Path, &'static [&'static str]),
    /// The member is one of these whole numbers.
    Number(Path, &'static [u64]),
    /// The member is absent or null.
    Null(Path),
    /// The member is absent, null or one of these strings.
    NullOr(Path, &'static [&'static str]),
    /// The header is there once and not empty.
    Header(&'static str),
    /// A predicate that the other tests cannot say.
    Holds(fn(&Value) -> bool),
}

/// What the tests look at.
pub struct Facts<'a> {
    /// The head of an answer with an error status; absent for an event.
    pub head: Option<&'a ResponseHead<'a>>,
    /// The body, or the event in the shape of a body.
    pub body: &'a Value,
}

impl Rule {
    /// A row that names a class for both carriers and proves nothing.
    pub const fn names(
        name: &'static str,
        statuses: &'static [u16],
        when: &'static [Test],
        class: Class,
    ) -> Rule {
        let (on, scope, proof) = (On::Both, scope_of(class), Proof::None);
        Rule {
            name,
            on,
            statuses,
            when,
            class,
            scope,
            proof,
        }
    }

    /// A row that certifies: with these statuses and codes the request was not run.
    pub const fn certifies(
        name: &'static str,
        statuses: &'static [u16],
        when: &'static [Test],
        class: Class,
    ) -> Rule {
        let (on, scope, proof) = (On::Both, scope_of(class), Proof::Status);
        Rule {
            name,
            on,
            statuses,
            when,
            class,
            scope,
            proof,
        }
    }

    /// The row, for answers with an error status alone.
    pub const fn on_status(self) -> Rule {
        Rule {
            on: On::Status,
            ..self
        }
    }

    /// The row, for events inside a good stream alone.
    pub const fn on_stream(self) -> Rule {
        Rule {
            on: On::Stream,
            ..self
        }
    }

    /// The row, certifying also the first and only event of a good stream.
    pub const fn or_first_event(self) -> Rule {
        Rule {
            proof: Proof::StatusOrFirstEvent,
            ..self
        }
    }

    /// The row with another scope than its class usually has.
    pub const fn scope(self, scope: Scope) -> Rule {
        Rule { scope, ..self }
    }

    /// Whether the row is for this answer.
    pub fn matches(&self, facts: &Facts<'_>) -> bool {
        let here = match (self.on, facts.head) {
            (On::Status, None) | (On::Stream, Some(_)) => false,
            (On::Stream | On::Both, None) => true,
            (On::Status | On::Both, Some(head)) => {
                self.statuses.is_empty() || self.statuses.contains(&head.status)
            }
        };
        here && self.when.iter().all(|test| test.holds(facts))
    }
}

impl Test {
    fn holds(&self, facts: &Facts<'_>) -> bool {
        let text = |path: Path| text_at(facts.body, path);
        match *self {
            Test::Is(path, wanted) => text(path).is_some_and(|found| wanted.contains(&found)),
            Test::Stem(path, wanted) => text(path)
                .and_then(|found| found.split(':').next())
                .is_some_and(|stem| wanted.contains(&stem)),
            Test::Starts(path, wanted) => text(path)
                .is_some_and(|found| wanted.iter().any(|prefix| found.starts_with(prefix))),
            Test::Contains(path, wanted) => text(path).is_some_and(|found| {
                let found = found.to_ascii_lowercase();
                wanted
                    .iter()
                    .any(|part| found.contains(&part.to_ascii_lowercase()))
            }),
            Test::Number(path, wanted) => at(facts.body, path)
                .and_then(Value::as_u64)
                .is_some_and(|found| wanted.contains(&found)),
            Test::Null(path) => at(facts.body, path).is_none_or(Value::is_null),
            Test::NullOr(path, wanted) => match at(facts.body, path) {
                None | Some(Value::Null) => true,
                Some(value) => value.as_str().is_some_and(|found| wanted.contains(&found)),
            },
            Test::Header(name) => facts.head.is_some_and(|head| match head.single(name) {
                Single::One(value) => !value.is_empty(),
                Single::Absent | Single::Repeated => false,
            }),
            Test::Holds(predicate) => predicate(facts.body),
        }
    }
}

/// How far a class usually reaches.
pub const fn scope_of(class: Class) -> Scope {
    match class {
        Class::Throttle | Class::QuotaHard | Class::Auth => Scope::Credential,
        Class::Overload => Scope::Endpoint,
        Class::ServerError
        | Class::Config
        | Class::ContextOverflow
        | Class::ContentPolicy
        | Class::Timeout
        | Class::Malformed
        | Class::Ambiguous
        | Class::Transport
        | Class::OkStream
        | Class::Ok => Scope::Candidate,
    }
}

/// The documented JSON type of a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Must be there.
    Object,
    /// Must be there.
    Text,
    /// A string, null or absent.
    OptionalText,
    /// A string, a whole number, null or absent.
    OptionalCode,
    /// An object, null or absent.
    OptionalObject,
    /// An array, null or absent.
    OptionalArray,
    /// An array, an object, null or absent.
    OptionalDetails,
}

impl Kind {
    fn fits(self, value: Option<&Value>) -> bool {
        match (self, value) {
            (Kind::Object, Some(Value::Object(_))) | (Kind::Text, Some(Value::String(_))) => true,
            (Kind::Object | Kind::Text, _) => false,
            (_, None | Some(Value::Null)) => true,
            (Kind::OptionalText, Some(value)) => value.is_string(),
            (Kind::OptionalCode, Some(value)) => value.is_string() || value.is_u64(),
            (Kind::OptionalObject, Some(value)) => value.is_object(),
            (Kind::OptionalArray, Some(value)) => value.is_array(),
            (Kind::OptionalDetails, Some(value)) => value.is_array() || value.is_object(),
        }
    }
}

/// Whether the documented members of an envelope have their documented types.
pub fn shaped(body: &Value, shape: &[(Path, Kind)]) -> bool {
    shape.iter().all(|(path, kind)| kind.fits(at(body, path)))
}

//! The YAML of scripts: strict shapes, and their translation into a [`Script`]. Pure.
//!
//! Not here: what the keys mean; the documentation of the module says so. Unknown and duplicate keys are refused, with line and column.

mod answer;
mod events;
mod fields;
mod values;

use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use serde::de::{self, Deserializer};

use self::answer::Spec;
use self::values::{DelayShape, Millis, Pairs, TrickleShape};
use super::script::{AnswerList, ModelList, Order, Script, Window};

/// Why a script was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ScriptError {
    /// What is wrong and where, for a reader.
    pub message: String,
    /// Line and column, counted from 1, when known.
    pub position: Option<(usize, usize)>,
}

impl ScriptError {
    fn new(message: impl Into<String>) -> ScriptError {
        ScriptError {
            message: message.into(),
            position: None,
        }
    }
}

impl From<serde_yaml::Error> for ScriptError {
    fn from(error: serde_yaml::Error) -> ScriptError {
        let position = error.location().map(|at| (at.line(), at.column()));
        ScriptError {
            message: error.to_string(),
            position,
        }
    }
}

impl Script {
    /// Reads the script of one server. An empty text is a server whose answers are all good.
    pub fn parse(text: &str) -> Result<Script, ScriptError> {
        let shape = FileShape::read(text)?;
        if shape.servers.is_some() {
            return Err(ScriptError::new(
                "`servers` is allowed only in a file of `rondo mock`",
            ));
        }
        Ok(shape.script())
    }

    /// Reads a file of `rondo mock`: named servers, or one without a name, which is called `mock`.
    pub fn parse_file(text: &str) -> Result<Vec<(String, Script)>, ScriptError> {
        let mut shape = FileShape::read(text)?;
        let Some(servers) = shape.servers.take() else {
            return Ok(vec![("mock".to_owned(), shape.script())]);
        };
        if shape.has_own_keys() {
            return Err(ScriptError::new("beside `servers` no other key is allowed"));
        }
        if servers.0.is_empty() {
            return Err(ScriptError::new("`servers` is empty"));
        }
        if servers.0.iter().any(|(_, server)| server.servers.is_some()) {
            return Err(ScriptError::new("a server cannot hold `servers`"));
        }
        Ok(servers
            .0
            .into_iter()
            .map(|(name, server)| (name, server.script()))
            .collect())
    }
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct FileShape {
    servers: Option<Pairs<FileShape>>,
    listen: Option<String>,
    seed: Option<u64>,
    #[serde(rename = "loop")]
    is_loop: Option<bool>,
    order: Option<OrderShape>,
    answers: Option<Vec<Spec>>,
    models: Option<Pairs<ListShape>>,
    windows: Option<Vec<Window>>,
    refuse_connections: Option<bool>,
    delay_ms: Option<DelayShape>,
    trickle: Option<TrickleShape>,
}

impl FileShape {
    fn read(text: &str) -> Result<FileShape, ScriptError> {
        let shape: Option<FileShape> = serde_yaml::from_str(text)?;
        Ok(shape.unwrap_or_default())
    }

    fn has_own_keys(&self) -> bool {
        self.listen.is_some()
            || self.seed.is_some()
            || self.is_loop.is_some()
            || self.order.is_some()
            || self.answers.is_some()
            || self.models.is_some()
            || self.windows.is_some()
            || self.refuse_connections.is_some()
            || self.delay_ms.is_some()
            || self.trickle.is_some()
    }

    fn script(self) -> Script {
        let is_loop = self.is_loop.unwrap_or(true);
        let models = self.models.map(|models| models.0).unwrap_or_default();
        let models = models.into_iter().map(|(name, shape)| ModelList {
            name: Arc::from(name),
            list: list(shape.answers, shape.is_loop.unwrap_or(is_loop)),
        });
        Script {
            listen: self.listen,
            seed: self.seed.unwrap_or(0),
            order: match self.order {
                None | Some(OrderShape::Arrival) => Order::Arrival,
                Some(OrderShape::RequestId) => Order::RequestId,
            },
            answers: list(self.answers.unwrap_or_default(), is_loop),
            models: models.collect(),
            windows: self.windows.unwrap_or_default(),
            refuse_connections: self.refuse_connections.unwrap_or(false),
            delay: self.delay_ms.map(|shape| shape.0).unwrap_or_default(),
            trickle: self.trickle.map(|shape| shape.0),
            has_early: false,
        }
        .note_early()
    }
}

fn list(specs: Vec<Spec>, is_loop: bool) -> AnswerList {
    let choices = specs.into_iter().map(|spec| (spec.choice, spec.times));
    AnswerList::new(choices.collect(), is_loop)
}

#[derive(Deserialize, Clone, Copy)]
#[serde(rename_all = "snake_case")]
enum OrderShape {
    Arrival,
    RequestId,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ListShape {
    answers: Vec<Spec>,
    #[serde(rename = "loop")]
    is_loop: Option<bool>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WindowShape {
    every_ms: Option<Millis>,
    from_ms: Option<Millis>,
    to_ms: Millis,
    answer: Spec,
}

impl<'de> Deserialize<'de> for Window {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Window, D::Error> {
        let shape = WindowShape::deserialize(from)?;
        let start = shape.from_ms.map_or(Duration::ZERO, |at| at.0);
        let every = shape.every_ms.map(|period| period.0);
        if shape.to_ms.0 <= start {
            return Err(de::Error::custom("`to_ms` must be above `from_ms`"));
        }
        if every.is_some_and(|every| every < shape.to_ms.0) {
            return Err(de::Error::custom("`to_ms` must not be above `every_ms`"));
        }
        let choice = shape.answer.once().map_err(de::Error::custom)?;
        Ok(Window {
            every,
            from: start,
            to: shape.to_ms.0,
            choice,
        })
    }
}

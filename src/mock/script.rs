//! A script: what a provider is to answer, compiled and checked. Pure.
//!
//! Not here: the YAML (`yaml`, whose keys are explained in the module's documentation) single answers (`answer`) and the choice of the next one (`plan`).
//! Invariants: a list has at least one answer; a weighted choice adds up to one.

use std::sync::Arc;
use std::time::Duration;

use super::answer::{Answer, Delay, Trickle};

/// Probabilities are drawn in parts of this number.
pub const WHOLE: u64 = 1_000_000_000;

/// The script of one server.
#[derive(Debug, Clone)]
pub struct Script {
    /// Where a standalone server listens.
    pub listen: Option<String>,
    /// Seed of every drawn number.
    pub seed: u64,
    /// What the position in a list counts.
    pub order: Order,
    /// The list for every model without its own.
    pub answers: AnswerList,
    /// Lists of single models; the first that takes the model is used.
    pub models: Vec<ModelList>,
    /// Answers by time; the first open window is used.
    pub windows: Vec<Window>,
    /// Connections are reset as soon as they are accepted.
    pub refuse_connections: bool,
    /// Delay of answers without their own.
    pub delay: Delay,
    /// Pace of bodies without their own.
    pub trickle: Option<Trickle>,
    /// Whether any answer does not wait for the request's body.
    pub has_early: bool,
}

impl Script {
    /// Sets [`Script::has_early`] from the answers.
    pub fn note_early(mut self) -> Script {
        let lists = self
            .models
            .iter()
            .map(|model| &model.list)
            .chain([&self.answers]);
        let listed = lists
            .flat_map(|list| list.entries())
            .map(|entry| &entry.choice);
        let timed = self.windows.iter().map(|window| &window.choice);
        self.has_early = listed.chain(timed).any(Choice::has_early);
        self
    }
}

/// What the position in a list counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Order {
    /// Requests in the order in which they arrive.
    #[default]
    Arrival,
    /// Requests with the same `x-request-id`: every operation begins the list anew.
    RequestId,
}

/// Answers in turn.
#[derive(Debug, Clone)]
pub struct AnswerList {
    entries: Vec<Entry>,
    first: Choice,
    total: u64,
    /// Whether the list starts again after its last answer; else the last answer repeats.
    pub is_loop: bool,
}

/// One entry of a list.
#[derive(Debug, Clone)]
pub struct Entry {
    /// The answer, or several with weights.
    pub choice: Choice,
    /// Positions in the list up to and including this entry.
    pub until: u64,
}

impl AnswerList {
    /// A list of choices and how often each repeats; one good answer when it is empty.
    pub fn new(choices: Vec<(Choice, u64)>, is_loop: bool) -> AnswerList {
        let first = match choices.first() {
            Some((choice, _)) => choice.clone(),
            None => Choice::One(Arc::new(Answer::good())),
        };
        let mut total: u64 = 0;
        let mut entries = Vec::with_capacity(choices.len());
        for (choice, times) in choices {
            total = total.saturating_add(times.max(1));
            entries.push(Entry {
                choice,
                until: total,
            });
        }
        AnswerList {
            entries,
            first,
            total: total.max(1),
            is_loop,
        }
    }

    /// The entries as written.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// The first answer.
    pub fn first(&self) -> &Choice {
        &self.first
    }

    /// Positions in one pass, at least 1.
    pub fn total(&self) -> u64 {
        self.total
    }
}

/// The list of one model.
#[derive(Debug, Clone)]
pub struct ModelList {
    /// The model's name, or its beginning and `*`.
    pub name: Arc<str>,
    /// Its answers.
    pub list: AnswerList,
}

impl ModelList {
    /// Whether the list is for this model.
    pub fn takes(&self, model: &str) -> bool {
        match self.name.strip_suffix('*') {
            Some(beginning) => model.starts_with(beginning),
            None => *self.name == *model,
        }
    }
}

/// A span of time with its own answer.
#[derive(Debug, Clone)]
pub struct Window {
    /// The span repeats in this period.
    pub every: Option<Duration>,
    /// Beginning, inclusive.
    pub from: Duration,
    /// End, exclusive.
    pub to: Duration,
    /// The answer inside.
    pub choice: Choice,
}

impl Window {
    /// Whether the window is open so long after the start.
    pub fn is_open(&self, elapsed: Duration) -> bool {
        let within = match self.every {
            Some(every) => elapsed
                .as_micros()
                .checked_rem(every.as_micros())
                .unwrap_or(0),
            None => elapsed.as_micros(),
        };
        self.from.as_micros() <= within && within < self.to.as_micros()
    }
}

/// An answer, or several with weights.
#[derive(Debug, Clone)]
pub enum Choice {
    /// Always this one.
    One(Arc<Answer>),
    /// The first whose bound is above a number drawn below [`WHOLE`].
    Weighted(Vec<(u64, Choice)>),
}

impl Choice {
    fn has_early(&self) -> bool {
        match self {
            Choice::One(answer) => answer.is_early,
            Choice::Weighted(weighted) => weighted.iter().any(|(_, choice)| choice.has_early()),
        }
    }
}

//! Which answer comes next. Pure: the time is told, chance is seeded.
//!
//! Not a server: it knows neither connections nor bytes. Invariant: two plans of one script that are asked the same questions at the same times give the same answers.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use rand::SeedableRng;
use rand::rngs::SmallRng;

use super::answer::{Answer, Trickle};
use super::script::{AnswerList, Choice, Order, Script, WHOLE};
use crate::core::chance::Chance;

/// Request ids whose position is remembered under `order: request_id`; the oldest are forgotten, and begin again.
const REMEMBERED_MAX: usize = 65_536;

/// The progress of one script.
#[derive(Debug)]
pub struct Plan {
    script: Arc<Script>,
    rng: SmallRng,
    positions: Positions,
}

/// What the choice of an answer may depend on.
#[derive(Debug, Clone, Copy, Default)]
pub struct Question<'a> {
    /// The requested model; empty when there is none.
    pub model: &'a str,
    /// The value of `x-request-id`; empty when there is none.
    pub request_id: &'a str,
    /// Time since the server started.
    pub elapsed: Duration,
}

/// An answer and where it stands.
#[derive(Debug, Clone)]
pub struct Chosen {
    /// The answer.
    pub answer: Arc<Answer>,
    /// Where it stands in the script.
    pub place: Place,
    /// The drawn delay before the answer begins.
    pub delay: Duration,
    /// The script's pace of bodies without their own.
    pub trickle: Option<Trickle>,
}

/// Where an answer stands in the script; indexes count entries as written, from 0.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// An entry of `answers`.
    Answers(usize),
    /// An entry of the list of a model, by its key in `models`.
    Model(Arc<str>, usize),
    /// An entry of `windows`.
    Window(usize),
}

impl Place {
    /// The index of the entry in its list.
    pub const fn index(&self) -> usize {
        match self {
            Place::Answers(index) | Place::Model(_, index) | Place::Window(index) => *index,
        }
    }
}

impl Plan {
    /// A plan at its beginning.
    pub fn new(script: Arc<Script>) -> Plan {
        let rng = SmallRng::seed_from_u64(script.seed);
        Plan {
            script,
            rng,
            positions: Positions::default(),
        }
    }

    /// The script being played.
    pub fn script(&self) -> &Arc<Script> {
        &self.script
    }

    /// The next answer. Windows come first, then the list of the model, then `answers`.
    pub fn next(&mut self, question: Question<'_>) -> Chosen {
        let script = Arc::clone(&self.script);
        let window = script
            .windows
            .iter()
            .position(|window| window.is_open(question.elapsed));
        let (choice, place) = match window.and_then(|at| Some((at, script.windows.get(at)?))) {
            Some((at, window)) => (&window.choice, Place::Window(at)),
            None => self.listed(&script, question),
        };
        let answer = pick(choice, &mut self.rng);
        let delay = answer.delay.unwrap_or(script.delay).draw(&mut self.rng);
        Chosen {
            answer,
            place,
            delay,
            trickle: script.trickle,
        }
    }

    fn listed<'s>(&mut self, script: &'s Script, question: Question<'_>) -> (&'s Choice, Place) {
        let model = script
            .models
            .iter()
            .position(|list| list.takes(question.model));
        let (number, list) = match model.and_then(|at| Some((at, script.models.get(at)?))) {
            Some((at, found)) => (at + 1, &found.list),
            None => (0, &script.answers),
        };
        let position = match script.order {
            Order::Arrival => self.positions.of_list(number),
            Order::RequestId => self.positions.of_request(number, question.request_id),
        };
        let (choice, index) = at_position(list, position);
        let place = match script.models.get(number.wrapping_sub(1)) {
            Some(found) => Place::Model(Arc::clone(&found.name), index),
            None => Place::Answers(index),
        };
        (choice, place)
    }
}

/// The entry that stands at a position, its repetitions counted.
fn at_position(list: &AnswerList, position: u64) -> (&Choice, usize) {
    let total = list.total();
    let within = if list.is_loop {
        position % total
    } else {
        position.min(total - 1)
    };
    let index = list
        .entries()
        .partition_point(|entry| entry.until <= within);
    match list.entries().get(index) {
        Some(entry) => (&entry.choice, index),
        None => (list.first(), 0),
    }
}

/// Walks weighted choices down to an answer. Ends, since choices nest only as deep as the text that wrote them.
fn pick(mut choice: &Choice, rng: &mut SmallRng) -> Arc<Answer> {
    loop {
        match choice {
            Choice::One(answer) => return Arc::clone(answer),
            Choice::Weighted(weighted) => {
                let drawn = rng.below(WHOLE);
                let at = weighted.partition_point(|(until, _)| *until <= drawn);
                let found = weighted.get(at).or(weighted.last());
                match found {
                    Some((_, next)) => choice = next,
                    None => return Arc::new(Answer::good()),
                }
            }
        }
    }
}

/// How far each list has come.
#[derive(Debug, Default)]
struct Positions {
    lists: Vec<u64>,
    requests: HashMap<(usize, Box<str>), u64>,
    oldest: VecDeque<(usize, Box<str>)>,
}

impl Positions {
    fn of_list(&mut self, number: usize) -> u64 {
        if self.lists.len() <= number {
            self.lists.resize(number + 1, 0);
        }
        self.lists.get_mut(number).map_or(0, advance)
    }

    fn of_request(&mut self, number: usize, request_id: &str) -> u64 {
        let key = (number, Box::from(request_id));
        if let Some(position) = self.requests.get_mut(&key) {
            return advance(position);
        }
        if self.oldest.len() >= REMEMBERED_MAX
            && let Some(oldest) = self.oldest.pop_front()
        {
            self.requests.remove(&oldest);
        }
        self.oldest.push_back(key.clone());
        self.requests.insert(key, 1);
        0
    }
}

fn advance(position: &mut u64) -> u64 {
    let now = *position;
    *position = position.wrapping_add(1);
    now
}

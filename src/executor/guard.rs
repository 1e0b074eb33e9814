//! Whether an operation's record is owed a settlement, and the one that was taken (R-L2).
//!
//! Not here: the record itself. The guard holds no request, no response and no part of one (R-L3). Invariants: it is armed once, by who
//! has made the record; it gives the settlement out once, to who tells the end; disarmed, it owes nothing.

use super::effect::{Note, OperationSettled};
use super::event::Event;
use super::machine::Executor;
use crate::core::settlement::{OperationOutcome, State};

/// The guard of one operation's record.
#[derive(Debug)]
pub struct Guard {
    stands: Stands,
    settled: Option<OperationSettled>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stands {
    /// There is no record yet.
    Disarmed,
    /// There is one, and it is pending.
    Armed,
    /// The end was told.
    Down,
}

impl Guard {
    /// A guard of nothing: a drop writes nothing.
    pub const fn disarmed() -> Guard {
        Guard {
            stands: Stands::Disarmed,
            settled: None,
        }
    }

    /// The record is being made. From here on it is settled, whatever happens.
    pub fn arm(&mut self) {
        if self.stands == Stands::Disarmed {
            self.stands = Stands::Armed;
        }
    }

    /// Looks at a note: the operation's settlement is kept for the end.
    pub fn see(&mut self, note: &Note) {
        if let Note::OperationSettled(settled) = note {
            self.settled = Some(*settled);
        }
    }

    /// Whether an end is still to be told.
    pub fn is_armed(&self) -> bool {
        self.stands == Stands::Armed
    }

    /// What is still to be fed before the end can be told: an operation that nobody has settled was dropped.
    pub fn owes(&self, executor: &Executor) -> Option<Event> {
        (self.stands == Stands::Armed && !executor.has_ended()).then_some(Event::Dropped)
    }

    /// Stands down and gives the settlement to tell; `None` when nothing is owed, or no more.
    pub fn stand_down(&mut self, executor: &Executor) -> Option<OperationSettled> {
        if self.stands != Stands::Armed {
            return None;
        }
        self.stands = Stands::Down;
        // Without a note of its own it ended inside a step that did not come to its end: a panic.
        Some(self.settled.unwrap_or_else(|| {
            let (outcome, state) = (OperationOutcome::Cancelled, State::Cancelled);
            executor.settled(outcome, state, "dropped", None)
        }))
    }
}

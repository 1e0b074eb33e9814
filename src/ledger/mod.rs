//! Settlement: the record of every operation and attempt, from `pending` to its one terminal state.
//!
//! Not here: clocks, stores, queues. Notes of the executor go in with the moment they happened; entries come out.
//! Invariants: a terminal state is written once ([`entry::may_overwrite`]); an operation's entry carries one entry per attempt
//! (R-S23); what was sent is settled or open, and what was admitted is asleep, in its second round, or ended ([`totals`]).

pub mod book;
pub mod columns;
pub mod entry;
mod open;
pub mod ring;
pub mod store;
pub mod totals;

pub use book::{Book, Recorder};
pub use entry::{AttemptEntry, Moment, OperationEntry, Record};
pub use open::{AttemptFacts, Ending, OpenOperation, Opening};
pub use ring::Ring;

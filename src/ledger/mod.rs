//! Settlement: the record of every operation and attempt, from `pending` to its one terminal state.
//!
//! Not here: clocks, stores, queues. Notes of the executor go in with the moment they happened; entries come out.
//! Invariants: a terminal state is written once ([`entry::may_overwrite`]); an operation's entry carries one entry per attempt
//! (R-S23); what was sent is settled or open, and what was admitted is asleep, in its second round, or ended ([`totals`]).

pub mod book;
pub mod coalesce;
pub mod columns;
pub mod entry;
mod open;
pub mod outbox;
pub mod ring;
pub mod spool;
pub mod store;
pub mod totals;

pub use book::Book;
pub use entry::{AttemptEntry, Moment, OperationEntry, Record};
pub use open::{AttemptFacts, Ending, OpenOperation, Opening};
pub use outbox::Outbox;
pub use ring::Ring;
pub use store::LateUsage;

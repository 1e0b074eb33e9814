//! Records as they are looked at: what may be asked, the JSON of an answer, text for people. The admin API and `rondo ledger` share it.
//!
//! Not here: stores, clocks, sockets, printing. Invariants: one shape for a record, whether it was read from a store or is still in
//! memory; a page holds a record once, and the next page begins where it ended.

pub mod ask;
pub mod cursor;
pub mod json;
pub mod page;
pub mod query;
mod row;
mod story;
mod text;
pub mod utc;

pub use row::Row;
pub use story::story;
pub use text::{list, sums};

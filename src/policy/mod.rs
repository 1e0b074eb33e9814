//! Compiled, immutable rules and the shared counters that they consult. No clock, no I/O; atomics, and one short lock around sums, are the only
//! state.
//!
//! A [`snapshot::Snapshot`] is what one reload produced. An operation keeps the snapshot it began with.

pub mod admission;
pub mod aws;
pub mod buffered;
pub mod cooldown;
pub mod health;
pub mod identity;
pub mod limits;
pub mod provider;
pub mod retry_budget;
pub mod route;
pub mod routing;
pub mod secret;
pub mod snapshot;
mod sync;

//! Compiled, immutable rules and the shared counters that they consult. No clock, no I/O; atomics, the table of affinities,
//! and one short lock around sums, are the only state.
//!
//! A [`snapshot::Snapshot`] is what one reload produced. An operation keeps the snapshot it began with.

pub mod admission;
pub mod affinity;
pub mod aws;
pub mod buffered;
pub mod clients;
pub mod cooldown;
pub mod hash;
pub mod health;
pub mod identity;
pub mod limits;
pub mod load;
pub mod ordering;
pub mod overload;
pub mod pace;
pub mod provider;
pub mod retry_budget;
pub mod route;
pub mod routing;
pub mod rules;
pub mod scheduling;
pub mod seats;
pub mod secret;
pub mod snapshot;
mod sync;

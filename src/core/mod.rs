//! The vocabulary and the decisions of one operation. Standard library only: no clock, I/O, async or randomness.
//!
//! Not here: anything that knows a provider, a socket or YAML. Invariants: every bound is named in [`limits`];
//! a [`certificate::RejectionCertificate`] is minted in one place; [`decision::decide`] is the only place that permits another send.

pub mod api;
pub mod backoff;
pub mod certificate;
pub mod chance;
pub mod class;
pub mod commitment;
pub mod decision;
pub mod fallback;
pub mod limits;
pub mod outcome;
pub mod precedence;
pub mod settlement;
pub mod suppression;
pub mod time;
pub mod usage;

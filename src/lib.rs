//! Rondo: a gateway with bounded, replay-safe failover between applications and model providers.

pub mod core;
#[cfg(feature = "proxy")]
pub mod mock;
pub mod policy;

//! Rondo: a gateway with bounded, replay-safe failover between applications and model providers.

pub mod core;
pub mod executor;
pub mod ledger;
pub mod policy;
#[cfg(feature = "proxy")]
pub mod proxy;
#[cfg(feature = "proxy")]
pub mod telemetry;

//! Rondo: a gateway with bounded, replay-safe failover between applications and model providers.

pub mod config;
pub mod core;
pub mod policy;

//! Rondo: a gateway with bounded, replay-safe failover between applications and model providers.

pub mod config;
pub mod core;

pub mod policy;

pub mod executor;

pub mod providers;

#[cfg(feature = "proxy")]
pub mod proxy;

#[cfg(feature = "proxy")]
pub mod mock;

//! Rondo: a gateway with bounded, replay-safe failover between applications and model providers.
//!
//! A pure core decides, a thin shell performs. The modules stand in reading order; each imports only from those before it:
//! [`core`] (vocabulary and decisions), [`wire`] (HTTP/1.1 messages) and [`policy`] (compiled rules and shared counters), [`executor`] (the state machine of one
//! operation), [`ledger`] (what is recorded), [`providers`] (what answers prove), [`config`] (YAML to a snapshot), [`explain`] (the plan
//! for a request that is not sent), [`records`] (how what is recorded is looked at). Up to here nothing knows a clock, a socket or
//! Pingora. Then `store` (records on disk), `proxy` (the data plane), `telemetry` and `admin` (what is seen of it), `mock` (scripted
//! providers, of which scripts and the bytes of answers are pure), and `app` (the process).

pub mod core;

pub mod wire;

pub mod policy;

pub mod executor;

pub mod ledger;

pub mod providers;

pub mod config;

pub mod explain;

pub mod records;

#[cfg(feature = "proxy")]
pub mod store;

#[cfg(feature = "proxy")]
pub mod proxy;

#[cfg(feature = "proxy")]
pub mod telemetry;

#[cfg(feature = "proxy")]
pub mod admin;

pub mod mock;

#[doc(hidden)]
pub mod fuzzing;

#[cfg(feature = "proxy")]
pub mod app;

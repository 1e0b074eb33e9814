//! What only sockets and Pingora can show, in one binary. Loopback only, ports chosen by the system, no sleeps.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::string_slice
)]

<<<<<<< HEAD
mod admin;
#[path = "../support/compiled.rs"]
mod compiled;
=======
mod health;
>>>>>>> f47f28e (Add rondo health and the demo)
mod mock;
mod rounds;
mod support;
mod telemetry;
mod world;

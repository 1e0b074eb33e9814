#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]
#![allow(clippy::string_slice)]
//! Tests that need no Pingora and no socket.

mod requests_bytes;
mod requests_errors;
mod requests_headers;
mod requests_paths;
mod requests_properties;
mod requests_scan;
mod requests_state;

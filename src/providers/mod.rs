//! What clients ask and what providers answer: recognising, scanning, preparing, classifying. Bytes in, facts out.
//!
//! Not here: sockets, Pingora, clocks, decisions. Nothing in a request or a response is trusted: every length has a bound,
//! and what does not parse is an outcome.

pub mod binding;
pub mod client_headers;
pub mod envelope;
pub mod inbound;
pub mod models_list;
pub mod outbound;
pub mod outbound_headers;
pub mod scan;
mod scan_rules;
mod scan_token;
mod timestamp;

//! What clients ask and what providers answer: recognising, scanning, preparing, classifying. Bytes in, facts out.
//!
//! Not here: sockets, Pingora, clocks, decisions. Nothing in a request or a response is trusted: every length has a bound,
//! and what does not parse is an outcome. [`certify`] is the only place that mints a
//! [`RejectionCertificate`](crate::core::certificate::RejectionCertificate), and unknown means ambiguous.
//!
//! A new provider is one file with an [`adapter::Adapter`] and its rows, and one line in [`registry`].

// Requests.
pub mod aws_session;
pub mod binding;
pub mod client_headers;
pub mod envelope;
mod form_header;
pub mod handshake;
pub mod hosted;
pub mod inbound;
pub mod jwt;
pub mod models_list;
pub mod multipart;
pub mod outbound;
pub mod outbound_headers;
pub mod planning;
pub mod request_style;
pub mod scan;
mod scan_rules;
mod scan_token;
pub mod signing;
pub mod sigv4;
pub(crate) mod timestamp;
pub mod token;

// Answers.
pub mod adapter;
pub mod answer;
mod aws;
pub mod certify;
pub mod classify;
pub mod corpus;
pub mod dialect;
pub mod encoding;
pub mod event_stream;
mod found;
pub mod headers;
pub mod json_array;
pub mod json_envelope;
pub mod json_lines;
pub mod peek;
pub mod pushback;
pub mod registry;
pub mod rules;
pub mod sse;
pub mod stream;
pub mod usage;
mod usage_counts;
mod usage_paths;
mod usage_walk;

// Vendors.
pub mod anthropic;
pub mod azure;
pub mod bedrock;
pub mod cohere;
pub mod compatible;
pub mod copilot;
pub mod deepseek;
pub mod fireworks;
pub mod gemini;
pub mod groq;
pub mod mistral;
pub mod nvidia;
pub mod openai;
pub mod openrouter;
pub mod self_hosted;
pub mod together;
pub mod vertex;
pub mod xai;

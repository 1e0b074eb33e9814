//! What is proved with neither Pingora nor sockets.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::string_slice
)]

#[path = "../support/compiled.rs"]
mod compiled;
mod config;
mod counters;
mod executor_bounds;
mod executor_budget;
mod executor_exhaustion;
mod executor_failover_time;
mod executor_fallback;
mod executor_health;
mod executor_keys;
mod executor_late_cancel;
mod executor_limits;
mod executor_precedence;
mod executor_probes;
mod executor_retries;
mod executor_retries_among;
mod executor_scopes;
mod executor_stops;
mod executor_suppression;
mod executor_watchdog;
mod explain;
mod explain_costs;
mod explain_moment;
mod explain_order;
mod field_cases;
mod fuzz_entries;
mod late_usage;
mod ledger;
mod ledger_collect;
mod ledger_spool;
mod local_limits;
mod model;
mod overload;
mod policy_clients;
mod policy_draws;
mod policy_ordering;
mod policy_precedence;
mod providers_answers;
mod providers_cases;
mod providers_clouds;
mod providers_corpus;
mod providers_frames;
mod providers_media;
mod providers_mutants;
mod providers_near_misses;
mod providers_properties;
mod providers_streams;
mod providers_support;
#[path = "../support/reader.rs"]
mod reader;
mod records;
mod records_properties;
mod requests_bedrock;
mod requests_bytes;
mod requests_errors;
mod requests_form_properties;
mod requests_forms;
mod requests_handshakes;
mod requests_headers;
mod requests_hosted;
mod requests_paths;
mod requests_properties;
mod requests_scan;
mod requests_sessions;
mod requests_signed;
mod requests_state;
mod requests_styles;
mod requests_tokens;
mod scenarios;
mod simulation;
mod support;
mod tidy;
mod usage;
mod usage_properties;
mod wire;
mod wire_requests;

//! What only sockets and Pingora can show, in one binary. Loopback only, ports chosen by the system, no sleeps.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::string_slice
)]

mod admin;
mod admin_records;
mod bodies;
mod cli;
mod clouds;
mod command;
#[path = "../support/compiled.rs"]
mod compiled;
mod corpus;
mod delivery;
mod downstream;
mod downstream_early;
mod explain_live;
mod flow_admin;
mod flow_cancel;
mod flow_drain;
mod flow_guard;
mod flow_ledger;
mod flow_limits;
mod flow_overload;
mod flow_overload_connections;
mod flow_overload_slow;
mod flow_reload;
mod flow_slow;
mod flow_watchdog;
mod health;
mod hosted;
mod hostile_framing;
mod hostile_h2_floods;
mod hostile_h2_requests;
mod hostile_heads;
mod hostile_requests;
mod hostile_slow;
mod hostile_upstreams;
mod hygiene;
mod late_ends;
mod ledger_cli;
mod local_limits;
mod memory;
mod mock;
mod more_apis;
mod policies;
mod policy_reloads;
mod pooling;
mod postgres;
mod postgres_outage;
mod postgres_reach;
mod protocols;
mod read_on;
#[path = "../support/reader.rs"]
mod reader;
mod retries;
mod rounds;
mod scenarios;
mod sessions;
mod sessions_google;
mod store_outages;
mod store_process;
mod store_sqlite;
mod store_suite;
mod store_writer;
mod streams;
mod support;
mod telemetry;
mod tokens;
mod upgrades;
mod upgrades_refused;
mod usage;
mod world;

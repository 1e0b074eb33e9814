//! The bounds of the process that turn requests and connections away, and what is counted of slow clients.
//!
//! Not here: the counts (`seats`, `buffered`), and what the client reads.

use std::sync::Arc;

use super::seats::Seats;

/// What is under way in the process, as far as it is counted in seats.
#[derive(Debug, Default)]
pub struct Occupancy {
    /// Operations, from before their body is read until they are over (`server.max_in_flight`).
    pub operations: Arc<Seats>,
    /// Client connections, over TLS from before the handshake (`server.max_connections`).
    pub connections: Arc<Seats>,
}

/// The bound at which something was turned away; the `limit` label.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Overload {
    /// `server.max_in_flight`.
    InFlight,
    /// `client_keys.max_in_flight`.
    ClientInFlight,
    /// `server.max_buffered_bytes`.
    BufferedBytes,
    /// `server.max_connections`.
    Connections,
}

impl Overload {
    /// Every bound.
    pub const ALL: [Overload; 4] = [
        Overload::InFlight,
        Overload::ClientInFlight,
        Overload::BufferedBytes,
        Overload::Connections,
    ];

    /// The label.
    pub const fn label(self) -> &'static str {
        match self {
            Overload::InFlight => "in_flight",
            Overload::ClientInFlight => "client_in_flight",
            Overload::BufferedBytes => "buffered_bytes",
            Overload::Connections => "connections",
        }
    }
}

/// What a client was too slow with; the `phase` label.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SlowPhase {
    /// The head of a request.
    Head,
    /// Its body.
    Upload,
    /// Reading its answer.
    Download,
}

impl SlowPhase {
    /// Every phase.
    pub const ALL: [SlowPhase; 3] = [SlowPhase::Head, SlowPhase::Upload, SlowPhase::Download];

    /// The label.
    pub const fn label(self) -> &'static str {
        match self {
            SlowPhase::Head => "head",
            SlowPhase::Upload => "upload",
            SlowPhase::Download => "download",
        }
    }
}

//! The only place that sends. A custom upstream session for Pingora: it connects, writes, reads the head, looks into the body before
//! anything is committed, tells the executor, and obeys.
//!
//! Why not Pingora's own upstream sessions: its hooks see headers only, it replays at most 64 KiB, and it closes an HTTP/1.1 connection with every
//! discarded answer. These traits are `doc(hidden)` in Pingora; the version is pinned, and `tests/gateway` guards each trap.

mod connection;
mod connector;
mod drain;
mod exchange;
mod failure;
mod http1;
mod limit;
mod pool;
mod read_on;
mod session;
mod socket;
mod spec;
mod tunnel;
mod write;

pub use connector::AttemptConnector;
pub use session::{AGAIN, AttemptSession};
pub use spec::AttemptSpec;
pub use tunnel::TUNNEL_CLOSED;

//! The only place that sends. An attempt connects, writes, reads the head, looks into the body before anything is committed, tells the
//! executor, and obeys.
//!
//! Why not Pingora's own proxy: its hooks see headers only, it replays at most 64 KiB, and it closes an HTTP/1.1 connection with every
//! discarded answer (ADR 18, 22). Its connectors are used for TLS and HTTP/2; `tests/gateway` guards each trap of them.

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
pub use exchange::Exchanged;
pub use session::AttemptSession;
pub use spec::AttemptSpec;
pub use tunnel::Tunnel;

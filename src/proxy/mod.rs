//! The data plane on Pingora: translates between HTTP and the executor, and decides nothing.

pub mod host;

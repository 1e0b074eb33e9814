//! The rig: scripted upstreams and load in this process on one core, the gateway under test alone on another.
//!
//! Not here: what the samples say (`report`). Invariants: nothing listens on a fixed port; whatever was started is ended by its own id, on
//! errors too; every load is bounded in time.

pub mod http;
pub mod load;
pub mod pool;
pub mod process;
pub mod rounds;
pub mod run;
pub mod scenario;
pub mod sys;
pub mod system;
pub mod upstream;

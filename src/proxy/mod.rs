//! The data plane on Pingora: translates between HTTP and the executor, and decides nothing.
//!
//! | module | does |
//! |---|---|
//! | [`front`] | takes connections from Pingora's listeners, waits for heads |
//! | `downstream` | the client's side of a connection: HTTP/1.1 over [`crate::wire`], HTTP/2 by Pingora |
//! | [`service`] | recognises the request, refuses or answers it, reports its end |
//! | [`gateway`] | admits it: reads its body or its handshake (`upgrade`), finds the route, begins the operation, prepares attempts |
//! | `relay` | makes attempts until one is delivered; waits raced with client, drain and deadline; writes the answer |
//! | [`upstream`] | connects, writes, reads the head, looks into the body, asks the executor, obeys |
//! | `ctx` | what a request holds; dropping it reports what is dropped |

mod body;
pub mod credentials;
mod ctx;
pub mod downstream;
pub mod front;
pub mod gateway;
pub mod health_checks;
pub mod host;
pub mod inflight;
mod io;
pub mod lifecycle;
pub mod line;
pub mod operation;
pub mod peer;
pub mod prepared;
mod refuse;
mod relay;
pub mod resolver;
mod respond;
pub mod service;
mod translate;
mod upgrade;
pub mod upstream;

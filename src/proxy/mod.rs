//! The data plane on Pingora: translates between HTTP and the executor, and decides nothing.
//!
//! | hook | does |
//! |---|---|
//! | `request_filter` | recognises the request, reads its body or its handshake (`upgrade`), finds the route, begins the operation |
//! | (the same hook, `relay`) | makes attempts until one is delivered, and writes its answer; the hooks below serve what may become a tunnel |
//! | `upstream_peer` | the next candidate, or the wait raced with client, drain and deadline |
//! | `upstream_request_filter` | hands the prepared attempt to its session |
//! | [`upstream`] | connects, writes, reads the head, looks into the body, asks the executor, obeys |
//! | `upstream_response_filter` | the header is about to be written: commitment |
//! | `response_body_filter` | counts bytes |
//! | `error_while_proxy`, `fail_to_connect` | set the retry flag from the decision |
//! | `fail_to_proxy` | the answer of what ended outside a session |
//! | `logging` | reports the end; dropping the context reports what Pingora drops |

mod body;
pub mod credentials;
mod ctx;
pub mod front;
pub mod gateway;
mod head;
pub mod health_checks;
pub mod host;
pub mod inflight;
pub mod lifecycle;
pub mod line;
pub mod operation;
pub mod prepared;
mod refuse;
mod relay;
pub mod resolver;
mod respond;
pub mod service;
mod translate;
mod upgrade;
pub mod upstream;

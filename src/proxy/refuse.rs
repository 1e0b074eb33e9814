//! A request that does not become an operation.

use std::sync::Arc;

use pingora_core::Error;

use crate::policy::overload::Overload;
use crate::providers::envelope::{GatewayCode, GatewayError};

/// Why a request is refused, and what that means for its connection.
#[derive(Debug)]
pub struct Refused {
    /// The error to answer with; `None` when nobody is there to read it.
    pub error: Option<GatewayError>,
    /// What the client's connection broke with, if it did.
    pub broke: Option<Box<Error>>,
    /// The route, when one was found.
    pub route: Option<Arc<str>>,
    /// Whether the body was not read: the connection cannot serve another request.
    pub unread: bool,
    /// The bound at which it was turned away, if it was that.
    pub overload: Option<Overload>,
}

impl Refused {
    /// Refused after its body was read.
    pub fn with(error: GatewayError) -> Refused {
        Refused {
            error: Some(error),
            broke: None,
            route: None,
            unread: false,
            overload: None,
        }
    }

    /// The same, with the sentence of the code.
    pub fn plain(code: GatewayCode) -> Refused {
        Refused::with(GatewayError::plain(code))
    }

    /// Refused on a route that was found.
    pub fn on_route(error: GatewayError, route: Arc<str>) -> Refused {
        Refused {
            route: Some(route),
            ..Refused::with(error)
        }
    }

    /// Refused before its body was read.
    pub fn unread(code: GatewayCode) -> Refused {
        Refused {
            unread: true,
            ..Refused::plain(code)
        }
    }

    /// Turned away at a bound, before its body was read.
    pub fn full(code: GatewayCode, overload: Overload) -> Refused {
        Refused {
            overload: Some(overload),
            ..Refused::unread(code)
        }
    }

    /// The client left during the upload, or broke its framing.
    pub fn gone(error: Box<Error>) -> Refused {
        Refused {
            error: None,
            broke: Some(error),
            route: None,
            unread: true,
            overload: None,
        }
    }
}

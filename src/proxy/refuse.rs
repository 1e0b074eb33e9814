//! A request that does not become an operation.

use std::sync::Arc;

use pingora_core::Error;

use crate::core::api::Api;
use crate::core::limits::HEAD_BYTES_MAX;
use crate::policy::ordering::Exclusion;
use crate::policy::overload::Overload;
use crate::policy::route::Route;
use crate::providers::envelope::{GatewayCode, GatewayError};
use crate::wire::Malformed;
use crate::wire::request::{HEADERS_MAX, NoHead};

/// Why a request is refused, and what that means for its connection.
#[derive(Debug)]
pub struct Refused {
    /// The error to answer with; `None` when nobody is there to read it.
    pub error: Option<GatewayError>,
    /// What the client's connection broke with, if it did.
    pub broke: Option<Box<Error>>,
    /// The route, when one was found.
    pub route: Option<Arc<str>>,
    /// The bound at which it was turned away, if it was that.
    pub overload: Option<Overload>,
    /// Its status, where HTTP has a better one than its code.
    pub status: Option<u16>,
    /// Whether nothing can follow on its connection: where the next request begins is not known.
    pub is_last: bool,
}

impl Refused {
    /// Refused after its body was read.
    pub fn with(error: GatewayError) -> Refused {
        Refused {
            error: Some(error),
            broke: None,
            route: None,
            overload: None,
            status: None,
            is_last: false,
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

    /// Turned away at a bound, before its body was read.
    pub fn full(code: GatewayCode, overload: Overload) -> Refused {
        Refused {
            overload: Some(overload),
            ..Refused::plain(code)
        }
    }

    /// Its head cannot be taken.
    pub fn head(refused: NoHead) -> Refused {
        let (sentence, status) = match refused {
            NoHead::TooLarge => (
                format!("the head has more than {HEAD_BYTES_MAX} bytes or {HEADERS_MAX} headers"),
                Some(431),
            ),
            NoHead::Malformed(Malformed(what)) => (
                format!("the head of the request is malformed: {what}"),
                None,
            ),
        };
        let error = GatewayError::new(GatewayCode::InvalidRequest, &sentence);
        Refused {
            status,
            is_last: true,
            ..Refused::with(error)
        }
    }

    /// The client left during the upload, or broke its framing.
    pub fn gone(error: Box<Error>) -> Refused {
        Refused {
            error: None,
            broke: Some(error),
            route: None,
            overload: None,
            status: None,
            is_last: false,
        }
    }
}

/// The refusal of a request that nobody can serve.
pub fn nobody(route: &Route, api: Api, excluded: &[(usize, Exclusion)]) -> Refused {
    let restricted = excluded
        .iter()
        .any(|(_, why)| *why == Exclusion::Restricted);
    let error = if restricted {
        GatewayError::plain(GatewayCode::RoutingRestricted)
    } else if api.is_socket() {
        let sentence = format!("no target of route {} speaks {api}", route.name);
        GatewayError::new(GatewayCode::UpgradeRequired, &sentence)
    } else {
        let keys = |why: &Exclusion| matches!(why, Exclusion::NoUsableKey(_));
        let sentence = match excluded.iter().any(|(_, why)| keys(why)) {
            true => format!("no key may be used for this model on route {}", route.name),
            false
                if excluded
                    .iter()
                    .any(|(_, why)| *why == Exclusion::StreamFormat) =>
            {
                format!("no target of route {} speaks {api} in streams", route.name)
            }
            false => format!("no target of route {} speaks {api}", route.name),
        };
        GatewayError::new(GatewayCode::NoCandidate, &sentence)
    };
    Refused::on_route(error, Arc::clone(&route.name))
}

//! WebSocket handshakes: admitted here, then attempts like any other.
//!
//! Not here: sending one (`upstream`), the tunnel that an accepted one becomes (`upstream::tunnel`), what a handshake must be
//! (`providers::handshake`). Invariant: the client's frames wait in its connection until a target has switched protocols, so no handshake
//! carries work and any may be tried elsewhere until then.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use bytes::Bytes;
use pingora_core::protocols::ALPN;
use pingora_core::protocols::http::ServerSession;
use pingora_core::upstreams::peer::HttpPeer;

use super::body::{HeldBody, reserve_nothing};
use super::gateway::{Gateway, Read};
use super::refuse::Refused;
use crate::providers::envelope::{GatewayCode, GatewayError};
use crate::providers::handshake::{self, MODEL_HEADER, NoHandshake, NoModel};
use crate::providers::inbound::Operation as Asked;

/// What a client reads that names no model.
const MODEL_MISSING: &str = "name the model in the query (?model=) or in the header x-rondo-model: the frames of a WebSocket are not read";

/// A handshake, read as a request with an empty body.
pub(super) fn read<'a>(
    gateway: &Gateway,
    session: &mut ServerSession,
    asked: &'a Asked<'a>,
) -> Result<Read<'a>, Refused> {
    check(session)?;
    if !session.is_body_empty() {
        return Err(Refused::unread(GatewayCode::InvalidRequest));
    }
    let header = session.req_header();
    let query = header.uri.query();
    let named = header.headers.get(MODEL_HEADER);
    let model = handshake::model(query, named.map(|value| value.as_bytes())).map_err(|why| {
        Refused::with(match why {
            NoModel::Missing => GatewayError::new(GatewayCode::ModelMissing, MODEL_MISSING),
            NoModel::Invalid => GatewayError::plain(GatewayCode::InvalidRequest),
        })
    })?;
    let read = Read {
        asked,
        scan: handshake::scan(asked.api, query),
        model,
        held: HeldBody {
            bytes: Bytes::new(),
            reservation: reserve_nothing(&gateway.buffered),
        },
        upload: Duration::ZERO,
        client: None,
    };
    // A client that does not wait for the switch has its first frame kept for the target that switches, and only for that. Pingora 0.9.1
    // keeps what comes early as if it were the next request; so there must be none.
    session.set_pipelining_enabled(true);
    session.set_keepalive(None);
    Ok(read)
}

fn check(session: &ServerSession) -> Result<(), Refused> {
    // HTTP/2 has no upgrade, and HTTP/1.0 none that anyone uses.
    if session.is_http2() || !session.is_upgrade_req() {
        return Err(Refused::plain(GatewayCode::UpgradeRequired));
    }
    handshake::check(&session.req_header().headers).map_err(|why| match why {
        NoHandshake::NotAsked | NoHandshake::Version => {
            Refused::plain(GatewayCode::UpgradeRequired)
        }
        NoHandshake::Key => Refused::with(GatewayError::new(
            GatewayCode::InvalidRequest,
            "the handshake has no valid sec-websocket-key",
        )),
    })
}

/// What the client sent early belongs to the tunnel now; from here on its end has to be seen again.
pub(super) fn switched(session: &mut ServerSession) {
    session.set_pipelining_enabled(false);
}

/// The peer of a handshake: HTTP/1.1 alone, and on a connection that no other kind of request shares.
pub(super) fn peer(mut peer: HttpPeer) -> HttpPeer {
    peer.options.alpn = ALPN::H1;
    let mut hasher = DefaultHasher::new();
    (peer.group_key, "handshake").hash(&mut hasher);
    peer.group_key = hasher.finish();
    peer
}

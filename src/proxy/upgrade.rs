//! WebSocket handshakes: admitted here, then attempts like any other.
//!
//! Not here: sending one (`upstream`), the tunnel that an accepted one becomes (`upstream::tunnel`), what a handshake must be
//! (`providers::handshake`). Invariant: the client's frames wait in its connection until a target has switched protocols, so no handshake
//! carries work and any may be tried elsewhere until then.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Version, header};
use pingora_core::protocols::ALPN;
use pingora_core::upstreams::peer::HttpPeer;

use super::body::{HeldBody, reserve_nothing};
use super::downstream::Downstream;
use super::gateway::{Gateway, Read};
use super::peer::KnownPeer;
use super::refuse::Refused;
use crate::providers::envelope::{GatewayCode, GatewayError};
use crate::providers::handshake::{self, MODEL_HEADER, NoHandshake, NoModel};
use crate::providers::inbound::Operation as Asked;

/// What a client reads that names no model.
const MODEL_MISSING: &str = "name the model in the query (?model=) or in the header x-rondo-model: the frames of a WebSocket are not read";

/// A handshake, read as a request with an empty body.
pub(super) fn read<'a>(
    gateway: &Gateway,
    client: &mut Downstream,
    asked: &'a Asked<'a>,
) -> Result<Read<'a>, Refused> {
    check(client)?;
    if !client.is_body_read() {
        return Err(Refused::plain(GatewayCode::InvalidRequest));
    }
    // What the client sends early belongs to the tunnel, and to nothing else.
    client.close_after();
    let header = client.head();
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
    Ok(read)
}

fn check(client: &Downstream) -> Result<(), Refused> {
    // HTTP/2 has no upgrade, and HTTP/1.0 none that anyone uses.
    let head = client.head();
    if head.version != Version::HTTP_11 || !head.headers.contains_key(header::UPGRADE) {
        return Err(Refused::plain(GatewayCode::UpgradeRequired));
    }
    handshake::check(&head.headers).map_err(|why| match why {
        NoHandshake::NotAsked | NoHandshake::Version => {
            Refused::plain(GatewayCode::UpgradeRequired)
        }
        NoHandshake::Key => Refused::with(GatewayError::new(
            GatewayCode::InvalidRequest,
            "the handshake has no valid sec-websocket-key",
        )),
    })
}

/// The peer of a handshake: HTTP/1.1 alone, and on a connection that no other kind of request shares.
pub(super) fn peer(peer: &HttpPeer) -> Arc<KnownPeer> {
    let mut peer = peer.clone();
    peer.options.alpn = ALPN::H1;
    let mut hasher = DefaultHasher::new();
    (peer.group_key, "handshake").hash(&mut hasher);
    peer.group_key = hasher.finish();
    Arc::new(KnownPeer::new(peer))
}

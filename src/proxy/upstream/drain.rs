//! What becomes of a connection when its attempt is over: back to the pool, drained first, or closed.

use std::sync::Arc;
use std::time::Duration;

use pingora_core::upstreams::peer::Peer;
use tokio::time::timeout;

use super::connection::Connection;
use super::connector::AttemptConnector;
use super::read_on::ReadOn;
use super::session::{AttemptSession, Leftover};
use crate::core::limits::{DRAIN_BYTES_MAX, DRAIN_TIME_MAX};
use crate::proxy::peer::KnownPeer;

/// How much earlier than its provider a connection is closed: a second covers the way and two clocks.
const HINT_MARGIN: Duration = Duration::from_secs(1);

/// Gives the connection of a finished session back.
pub(super) async fn release(connector: &AttemptConnector, mut session: Box<AttemptSession>) {
    if ReadOn::begin(connector, &mut session) {
        return;
    }
    let Some((inner, spec, leftover)) = session.into_leftover() else {
        return;
    };
    let peer = &spec.peer;
    match leftover {
        Leftover::Finished => pool(connector, inner, peer).await,
        Leftover::Discarded => drain_behind(connector.clone(), inner, Arc::clone(peer)),
        Leftover::Broken => close(connector, inner, peer).await,
    }
}

/// Nothing of it may be used again; closing stops a provider that is still generating. On HTTP/2 that is the stream alone, and
/// Pingora's pool has to learn of its end.
pub(super) async fn close(connector: &AttemptConnector, inner: Connection, peer: &KnownPeer) {
    match &inner {
        Connection::Http2(_) => pool(connector, inner, peer).await,
        Connection::Http1(_) => close_behind(inner),
    }
}

/// Closes without being waited for: over TLS there is a last message, which a peer that reads nothing does not let out. A plain one closes
/// when it is dropped.
fn close_behind(connection: Connection) {
    if let Connection::Http1(mut connection) = connection
        && connection.says_goodbye()
    {
        tokio::spawn(async move { connection.shutdown().await });
    }
}

/// Drains without being waited for by the next attempt. A function of its own, since its future would be a part of every caller's.
fn drain_behind(connector: AttemptConnector, inner: Connection, peer: Arc<KnownPeer>) {
    tokio::spawn(drain(connector, inner, peer));
}

/// Reads what is left of a rejected answer, within bounds, so that its connection can serve the next request.
async fn drain(connector: AttemptConnector, mut inner: Connection, peer: Arc<KnownPeer>) {
    let read = async {
        let mut bytes = 0;
        while let Ok(Some(part)) = inner.read_body().await {
            bytes += part.len();
            if bytes > DRAIN_BYTES_MAX {
                break;
            }
        }
    };
    // At a bound the pool sees an unfinished body: it closes HTTP/1.1 and resets the HTTP/2 stream.
    let _ = timeout(DRAIN_TIME_MAX, read).await;
    pool(&connector, inner, &peer).await;
}

pub(super) async fn pool(connector: &AttemptConnector, inner: Connection, peer: &KnownPeer) {
    let idle = idle_time(&inner, peer);
    match &inner {
        Connection::Http1(_) if idle == Some(Duration::ZERO) => close_behind(inner),
        Connection::Http1(_) | Connection::Http2(_) => connector.release(inner, peer, idle).await,
    }
}

/// How long the connection is kept: as configured, or as its provider says it keeps it, less a margin, so that no request meets a
/// connection that is just being closed.
fn idle_time(inner: &Connection, peer: &KnownPeer) -> Option<Duration> {
    let configured = peer.idle_timeout();
    let Connection::Http1(inner) = inner else {
        return configured;
    };
    let hint = inner.keep_alive();
    let hint = hint.map(|hint| hint.saturating_sub(HINT_MARGIN));
    match (configured, hint) {
        (Some(configured), Some(hint)) => Some(configured.min(hint)),
        (configured, hint) => configured.or(hint),
    }
}

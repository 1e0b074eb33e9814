//! What becomes of a connection when its attempt is over: back to the pool, drained first, or closed.

use std::time::Duration;

use pingora_core::protocols::http::client::HttpSession;
use pingora_core::upstreams::peer::{HttpPeer, Peer};
use tokio::time::timeout;

use super::connector::AttemptConnector;
use super::read_on::ReadOn;
use super::session::{AttemptSession, Leftover};
use crate::core::limits::{DRAIN_BYTES_MAX, DRAIN_TIME_MAX};

/// How much earlier than its provider a connection is closed: a second covers the way and two clocks.
const HINT_MARGIN: Duration = Duration::from_secs(1);

/// Gives the connection of a finished session back.
pub(super) async fn release(connector: &AttemptConnector, mut session: AttemptSession) {
    if ReadOn::begin(connector, &mut session) {
        return;
    }
    let Some((inner, peer, leftover)) = session.into_leftover() else {
        return;
    };
    match leftover {
        Leftover::Finished => pool(connector, inner, &peer).await,
        Leftover::Discarded => {
            // The next attempt does not wait for this.
            let connector = connector.clone();
            tokio::spawn(async move { drain(connector, inner, peer).await });
        }
        Leftover::Broken => close(connector, inner, &peer).await,
    }
}

/// Nothing of it may be used again; closing stops a provider that is still generating. On HTTP/2 that is the stream alone, and
/// Pingora's pool has to learn of its end.
pub(super) async fn close(connector: &AttemptConnector, mut inner: HttpSession, peer: &HttpPeer) {
    match &mut inner {
        HttpSession::H2(_) => pool(connector, inner, peer).await,
        HttpSession::H1(_) | HttpSession::Custom(()) => inner.shutdown().await,
    }
}

/// Reads what is left of a rejected answer, within bounds, so that its connection can serve the next request.
async fn drain(connector: AttemptConnector, mut inner: HttpSession, peer: HttpPeer) {
    let read = async {
        let mut bytes = 0;
        while let Ok(Some(part)) = inner.read_response_body().await {
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

pub(super) async fn pool(connector: &AttemptConnector, mut inner: HttpSession, peer: &HttpPeer) {
    match idle_time(&inner, peer) {
        Some(Duration::ZERO) => inner.shutdown().await,
        idle => {
            connector
                .inner
                .release_http_session(inner, peer, idle)
                .await
        }
    }
}

/// How long the connection is kept: as configured, or as its provider says it keeps it, less a margin, so that no request meets a
/// connection that is just being closed.
fn idle_time(inner: &HttpSession, peer: &HttpPeer) -> Option<Duration> {
    let configured = peer.idle_timeout();
    let HttpSession::H1(inner) = inner else {
        return configured;
    };
    let hint = inner.get_header("keep-alive").and_then(|value| {
        let parameters = value.to_str().ok()?.split(',');
        let mut pairs = parameters.filter_map(|parameter| parameter.split_once('='));
        let (_, seconds) = pairs.find(|(name, _)| name.trim().eq_ignore_ascii_case("timeout"))?;
        Some(Duration::from_secs(seconds.trim().parse().ok()?).saturating_sub(HINT_MARGIN))
    });
    match (configured, hint) {
        (Some(configured), Some(hint)) => Some(configured.min(hint)),
        (configured, hint) => configured.or(hint),
    }
}

//! What becomes of a connection when its attempt is over: back to the pool, drained first, or closed.

use pingora_core::protocols::http::client::HttpSession;
use pingora_core::upstreams::peer::{HttpPeer, Peer};
use tokio::time::timeout;

use super::connector::AttemptConnector;
use super::session::{AttemptSession, Leftover};
use crate::core::limits::{DRAIN_BYTES_MAX, DRAIN_TIME_MAX};

/// Gives the connection of a finished session back.
pub(super) async fn release(connector: &AttemptConnector, session: AttemptSession) {
    let Some((mut inner, peer, leftover)) = session.into_leftover() else {
        return;
    };
    match leftover {
        Leftover::Finished => pool(connector, inner, &peer).await,
        Leftover::Discarded => {
            // The next attempt does not wait for this.
            let connector = connector.clone();
            tokio::spawn(async move { drain(connector, inner, peer).await });
        }
        // Nothing of it may be used again; closing stops a provider that is still generating. On HTTP/2 that is the stream alone,
        // and Pingora's pool has to learn of its end.
        Leftover::Broken => match &mut inner {
            HttpSession::H2(_) => pool(connector, inner, &peer).await,
            HttpSession::H1(_) | HttpSession::Custom(()) => inner.shutdown().await,
        },
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

async fn pool(connector: &AttemptConnector, inner: HttpSession, peer: &HttpPeer) {
    connector
        .inner
        .release_http_session(inner, peer, peer.idle_timeout())
        .await;
}

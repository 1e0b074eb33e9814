//! The connector that Pingora's proxy asks for upstream sessions. It opens nothing by itself: the session connects when its header is read.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use pingora_core::Result;
use pingora_core::connectors::ConnectorOptions;
use pingora_core::connectors::http::{Connector, custom};
use pingora_core::protocols::ALPN;
use pingora_core::protocols::tls::CustomALPN;
use pingora_core::upstreams::peer::{HttpPeer, Peer};

use super::drain;
use super::session::AttemptSession;

/// Gives Pingora sessions of our own, on one pool of real connections.
#[derive(Clone)]
pub struct AttemptConnector {
    pub(super) inner: Arc<Connector<()>>,
}

impl AttemptConnector {
    /// A connector that keeps up to `pool_size` idle connections.
    pub fn new(pool_size: usize) -> AttemptConnector {
        let options = ConnectorOptions::new(pool_size);
        AttemptConnector {
            inner: Arc::new(Connector::new(Some(options))),
        }
    }

    /// The peer that sends Pingora here. Its address is never connected to; the attempt's own peer is.
    pub fn signpost() -> HttpPeer {
        let nowhere = std::net::SocketAddr::from(([127, 0, 0, 1], 0));
        let mut peer = HttpPeer::new(nowhere, false, String::new());
        peer.options.alpn = ALPN::Custom(CustomALPN::new(b"rondo".to_vec()));
        peer
    }
}

#[async_trait]
impl custom::Connector for AttemptConnector {
    type Session = AttemptSession;

    async fn get_http_session<P: Peer + Send + Sync + 'static>(
        &self,
        _peer: &P,
    ) -> Result<(custom::Connection<AttemptSession>, bool)> {
        Ok((
            custom::Connection::Session(AttemptSession::new(self.clone())),
            false,
        ))
    }

    /// Always a session: without one Pingora would look for a pooled native connection to the same address next.
    async fn reused_http_session<P: Peer + Send + Sync + 'static>(
        &self,
        _peer: &P,
    ) -> Option<AttemptSession> {
        Some(AttemptSession::new(self.clone()))
    }

    async fn release_http_session<P: Peer + Send + Sync + 'static>(
        &self,
        session: AttemptSession,
        _peer: &P,
        _idle: Option<Duration>,
    ) {
        drain::release(self, session).await;
    }
}

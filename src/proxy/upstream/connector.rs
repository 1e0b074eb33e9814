//! Where connections to upstreams come from and go back to; and the connector that Pingora's proxy asks for upstream sessions. That one opens
//! nothing by itself: the session connects when its header is read.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use pingora_core::Result;
use pingora_core::connectors::http::{Connector, custom};
use pingora_core::connectors::{ConnectorOptions, TransportConnector};
use pingora_core::protocols::ALPN;
use pingora_core::protocols::http::client::HttpSession;
use pingora_core::protocols::tls::CustomALPN;
use pingora_core::upstreams::peer::{HttpPeer, Peer};

use super::connection::Connection;
use super::drain;
use super::http1::Http1;
use super::session::AttemptSession;
use super::spec::missing;

/// Connects attempts, and keeps what they leave usable. As a connector of Pingora's it gives sessions that connect later.
#[derive(Clone)]
pub struct AttemptConnector {
    /// HTTP/1.1: streams, and the pool of those that are idle.
    http1: Arc<TransportConnector>,
    /// HTTP/2, and whatever has to be found out by ALPN.
    http2: Arc<Connector<()>>,
}

impl AttemptConnector {
    /// A connector that keeps up to `pool_size` idle connections.
    pub fn new(pool_size: usize) -> AttemptConnector {
        let options = ConnectorOptions::new(pool_size);
        AttemptConnector {
            http1: Arc::new(TransportConnector::new(Some(options.clone()))),
            http2: Arc::new(Connector::new(Some(options))),
        }
    }

    /// A connection to the peer: an idle one, or a new one.
    pub(super) async fn connect(&self, peer: &HttpPeer) -> Result<Connection> {
        let alpn = &peer.options.alpn;
        if alpn.get_max_http_version() == 1 {
            let (stream, _) = self.http1.get_stream(peer).await?;
            return Ok(Connection::Http1(Box::new(Http1::new(stream))));
        }
        if alpn.get_min_http_version() == 1
            && let Some(stream) = self.http1.reused_stream(peer).await
        {
            return Ok(Connection::Http1(Box::new(Http1::new(stream))));
        }
        match self.http2.get_http_session(peer).await?.0 {
            HttpSession::H1(session) => {
                let stream = session.into_inner();
                Ok(Connection::Http1(Box::new(Http1::new(stream))))
            }
            HttpSession::H2(stream) => Ok(Connection::Http2(Box::new(stream))),
            HttpSession::Custom(()) => Err(missing()),
        }
    }

    /// Takes a connection back whose exchange is over: for the next one if it can carry one, to be closed if not.
    pub(super) async fn release(
        &self,
        connection: Connection,
        peer: &HttpPeer,
        idle: Option<Duration>,
    ) {
        match connection {
            Connection::Http1(connection) => {
                if let Some(stream) = connection.into_reusable() {
                    self.http1.release_stream(stream, peer.reuse_hash(), idle);
                }
            }
            Connection::Http2(stream) => {
                let stream = HttpSession::H2(*stream);
                self.http2.release_http_session(stream, peer, idle).await;
            }
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

//! Where connections to upstreams come from and go back to.

use std::sync::Arc;
use std::time::Duration;

use pingora_core::connectors::http::Connector;
use pingora_core::connectors::{ConnectorOptions, TransportConnector};
use pingora_core::protocols::http::client::HttpSession;
use pingora_core::protocols::l4::socket::SocketAddr;
use pingora_core::upstreams::peer::{HttpPeer, Peer};
use pingora_core::{Error, ErrorType, Result};

use super::connection::Connection;
use super::http1::Http1;
use super::pool::Pool;
use super::socket::Socket;
use super::spec::missing;
use crate::proxy::peer::KnownPeer;

/// Connects attempts, and keeps what they leave usable.
#[derive(Clone)]
pub struct AttemptConnector {
    /// Idle HTTP/1.1 connections.
    idle: Pool,
    /// New connections with TLS.
    secure: Arc<TransportConnector>,
    /// HTTP/2, and whatever has to be found out by ALPN.
    http2: Arc<Connector<()>>,
}

impl AttemptConnector {
    /// A connector that keeps up to `pool_size` idle connections.
    pub fn new(pool_size: usize) -> AttemptConnector {
        let options = ConnectorOptions::new(pool_size);
        AttemptConnector {
            idle: Pool::new(pool_size),
            secure: Arc::new(TransportConnector::new(Some(options.clone()))),
            http2: Arc::new(Connector::new(Some(options))),
        }
    }

    /// An idle HTTP/1.1 connection to the peer.
    pub(super) fn idle(&self, peer: &KnownPeer) -> Option<Connection> {
        if peer.options.alpn.get_min_http_version() > 1 {
            return None;
        }
        let socket = self.idle.take(peer.reuse())?;
        Some(Connection::Http1(Box::new(Http1::new(socket))))
    }

    /// A connection to the peer that is none of [`AttemptConnector::idle`].
    pub(super) async fn connect(&self, peer: &HttpPeer) -> Result<Connection> {
        let alpn = &peer.options.alpn;
        let http1 = |socket| Ok(Connection::Http1(Box::new(Http1::new(socket))));
        if alpn.get_max_http_version() == 1 {
            return http1(match (peer.is_tls(), peer.address()) {
                (false, SocketAddr::Inet(address)) => connect(*address).await?,
                _ => Socket::Other(self.secure.new_stream(peer).await?),
            });
        }
        match self.http2.get_http_session(peer).await?.0 {
            HttpSession::H1(session) => http1(Socket::Other(session.into_inner())),
            HttpSession::H2(stream) => Ok(Connection::Http2(Box::new(stream))),
            HttpSession::Custom(()) => Err(missing()),
        }
    }

    /// Takes a connection back whose exchange is over: for the next one if it can carry one, to be closed if not.
    pub(super) async fn release(
        &self,
        connection: Connection,
        peer: &KnownPeer,
        idle: Option<Duration>,
    ) {
        match connection {
            Connection::Http1(connection) => {
                if let Some(socket) = connection.into_reusable() {
                    self.idle.put(peer.reuse(), socket, idle);
                }
            }
            Connection::Http2(stream) => {
                let stream = HttpSession::H2(*stream);
                // Boxed, or it would make every attempt's future larger.
                Box::pin(self.http2.release_http_session(stream, &**peer, idle)).await;
            }
        }
    }
}

async fn connect(address: std::net::SocketAddr) -> Result<Socket> {
    let connected = Socket::connect(address).await;
    connected.map_err(|cause| {
        Error::because(ErrorType::ConnectError, "connecting to a target", cause).into_up()
    })
}

//! Client connections: how many, which protocol, and how long a request's head may take.
//!
//! Pingora's listeners hand each connection over after its handshake, if it has one; before that it is counted in [`Gatekeeper`]. The frames
//! of HTTP/2 are Pingora's, from the preface on, which is waited for here: Pingora 0.9.1 would wait for it without an end.
//!
//! Not here: requests (`service`) and the bytes of a connection (`downstream`). Invariants: a connection has a seat from before its first
//! byte (over TLS: before its handshake) until it is closed and nobody works on a request of it; without a seat nothing of it is read but
//! what tells how to refuse it.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use pingora_core::apps::{HttpServerApp, HttpServerOptions, ReusedHttpStream, ServerApp};
use pingora_core::listeners::PreTlsProcess;
use pingora_core::protocols::http::ServerSession;
use pingora_core::protocols::http::v2::server::H2Options;
use pingora_core::protocols::l4::stream::Stream as L4Stream;
use pingora_core::protocols::raw_connect::ProxyDigest;
use pingora_core::protocols::{ALPN, GetProxyDigest, Stream};
use pingora_core::server::ShutdownWatch;
use pingora_core::{Error, ErrorType, Result};
use pingora_http::ResponseHeader;

use super::body;
use super::downstream::Downstream;
use super::downstream::http1::{Finished, Http1, NoRequest};
use super::gateway::Gateway;
use super::line::Line;
use super::refuse::Refused;
use super::respond;
use super::service::{DataPlane, family, made_id, piece};
use crate::core::limits::{
    H2_HEAD_BYTES_MAX, H2_RECEIVE_WINDOW, H2_REFUSALS_MAX, H2_RESETS_PENDING_MAX,
    H2_RESETS_REMEMBERED_MAX, H2_SEND_BUFFER_MAX, H2_SMALL_FRAMES_MAX, H2_STREAMS_MAX,
};
use crate::policy::overload::{Overload, SlowPhase};
use crate::policy::seats::Seat;
use crate::providers::envelope::GatewayError;

/// Connections that are told at once that there are too many. What comes beyond is closed without a word: telling must stay cheap.
const TURNED_AWAY_MAX: u64 = 64;
/// Time for the head of a request that is to be told so, since only the head says in which format.
const TURN_AWAY_TIME: Duration = Duration::from_millis(500);

/// The data plane as Pingora's application for connections.
pub struct Front {
    plane: DataPlane,
    streams: Arc<Streams>,
}

#[async_trait]
impl ServerApp for Front {
    async fn process_new(
        self: &Arc<Self>,
        stream: Stream,
        shutdown: &ShutdownWatch,
    ) -> Option<Stream> {
        let (front, shutdown) = (Arc::clone(self), shutdown.clone());
        // A task of its own: the one that Pingora accepted it in carries the state of handshakes, which is larger than all of a request's.
        tokio::spawn(async move { front.serve(stream, &shutdown).await });
        None
    }
}

/// The same for the streams of HTTP/2 connections, whose frames are Pingora's.
struct Streams {
    plane: DataPlane,
    options: HttpServerOptions,
}

#[async_trait]
impl HttpServerApp for Streams {
    async fn process_new_http(
        self: &Arc<Self>,
        session: ServerSession,
        _shutdown: &ShutdownWatch,
    ) -> Option<ReusedHttpStream> {
        if let ServerSession::H2(stream) = session {
            let mut client = Downstream::Http2(Box::new(stream));
            self.plane.serve(&mut client).await;
        }
        None
    }

    fn h2_options(&self) -> Option<H2Options> {
        Some(h2_options())
    }

    fn server_options(&self) -> Option<&HttpServerOptions> {
        Some(&self.options)
    }
}

impl Front {
    /// The application. An idle HTTP/2 connection is closed after so long.
    pub fn new(plane: DataPlane, h2_idle: Duration) -> Front {
        let mut options = HttpServerOptions::default();
        options.h2_idle_timeout = Some(h2_idle);
        let streams = Streams {
            plane: plane.clone(),
            options,
        };
        Front {
            plane,
            streams: Arc::new(streams),
        }
    }

    async fn serve(&self, stream: Stream, shutdown: &ShutdownWatch) {
        if stream.get_ssl_digest().is_some() {
            // It was counted before its handshake, which has said what is spoken.
            let connection = match stream.selected_alpn_proto() {
                Some(ALPN::H2) => Http1::expecting_http2(stream),
                _ => Http1::new(stream),
            };
            return self.serve_http1(connection, shutdown).await;
        }
        match self.gateway().connection() {
            Some(seat) => {
                let connection = Http1::open_to_http2(stream);
                self.serve_http1(connection, shutdown).await;
                drop(seat);
            }
            None => self.turn_away(stream).await,
        }
    }

    /// One request after the other, or HTTP/2 if that is what is spoken.
    async fn serve_http1(&self, connection: Http1, shutdown: &ShutdownWatch) {
        let mut client = Downstream::Http1(Box::new(connection.until(shutdown.clone())));
        let mut is_new = true;
        loop {
            let Downstream::Http1(connection) = &mut client else {
                return;
            };
            let (whole, idle) = self.settings();
            if !is_new {
                let awake = tokio::select! {
                    biased;
                    awake = connection.awaken(idle) => awake,
                    // A connection on which nothing was asked is not waited for.
                    () = stopped(shutdown) => false,
                };
                if !awake {
                    return connection.shutdown().await;
                }
            }
            is_new = false;
            match connection.next_request(whole).await {
                Ok(()) => {}
                Err(NoRequest::Closed) => return connection.shutdown().await,
                Err(NoRequest::TooSlow) => {
                    let observer = &self.gateway().around.observer;
                    return observer.slow_client(SlowPhase::Head);
                }
                Err(NoRequest::Http2) => return self.serve_http2(client, shutdown).await,
                Err(NoRequest::Refused(why)) => {
                    let refused = Refused::head(why);
                    self.plane.refuse_head(&mut client, refused).await;
                    if let Downstream::Http1(connection) = &mut client {
                        body::linger(connection).await;
                    }
                    return;
                }
            }
            self.plane.serve(&mut client).await;
            let Downstream::Http1(connection) = &mut client else {
                return;
            };
            match connection.finish() {
                Finished::GoesOn => {}
                Finished::Closes => return connection.shutdown().await,
                // What was not read would reset it, and the reset overtakes the answer.
                Finished::Lingers => return body::linger(connection).await,
                // Over TLS a proper end would make a whole answer of it.
                Finished::Broken => return,
            }
        }
    }

    async fn serve_http2(&self, client: Downstream, shutdown: &ShutdownWatch) {
        let Downstream::Http1(connection) = client else {
            return;
        };
        let (stream, early) = connection.into_parts();
        let pause_max = self.gateway().client_write_timeout();
        let line = Line::new(stream, early, pause_max);
        let _ = Box::pin(self.streams.process_new(Box::new(line), shutdown)).await;
    }

    fn gateway(&self) -> &Arc<Gateway> {
        &self.plane.gateway
    }

    /// Time for a head, and how long a connection may be idle before it.
    fn settings(&self) -> (Duration, Duration) {
        let config = self.gateway().config.load();
        let server = &config.snapshot.server;
        (server.client_header_timeout, server.keepalive_timeout)
    }

    /// Tells a client that there are too many connections, in its own format where it says soon which, and closes.
    async fn turn_away(&self, stream: Stream) {
        let gateway = self.gateway();
        gateway.around.observer.overloaded(Overload::Connections);
        let Some(_seat) = gateway.turned_away.take(TURNED_AWAY_MAX) else {
            return;
        };
        let mut connection = Http1::new(stream);
        if connection.next_request(TURN_AWAY_TIME).await.is_err() {
            return;
        }
        connection.close_after();
        let error = GatewayError::plain(gateway.overloaded());
        let id = made_id(gateway.around.clock.wall());
        let answer = respond::gateway_error(family(connection.head()), &error, &id);
        let Ok(answer) = answer else { return };
        let mut client = Downstream::Http1(Box::new(connection));
        let piece = piece(&client, answer);
        let told = client.write(piece, TURN_AWAY_TIME).await;
        if let Downstream::Http1(connection) = &mut client
            && told.is_ok()
        {
            body::linger(connection).await;
        }
    }
}

/// Resolves when the server stops.
async fn stopped(shutdown: &ShutdownWatch) {
    let mut shutdown = shutdown.clone();
    if shutdown.wait_for(|stopped| *stopped).await.is_err() {
        std::future::pending().await
    }
}

/// The bounds of a client's HTTP/2 connection. What else the h2 crate bounds by itself: frames that continue a head, and empty frames.
pub fn h2_options() -> H2Options {
    let mut options = H2Options::default();
    options
        .max_concurrent_streams(H2_STREAMS_MAX)
        .max_header_list_size(H2_HEAD_BYTES_MAX)
        .initial_window_size(H2_RECEIVE_WINDOW)
        .initial_connection_window_size(H2_RECEIVE_WINDOW)
        .data_frame_budget(H2_SMALL_FRAMES_MAX)
        .max_send_buffer_size(H2_SEND_BUFFER_MAX)
        .max_pending_accept_reset_streams(H2_RESETS_PENDING_MAX)
        .max_concurrent_reset_streams(H2_RESETS_REMEMBERED_MAX)
        .max_local_error_reset_streams(Some(H2_REFUSALS_MAX));
    options
}

/// Stands before the handshakes of TLS listeners: what they cost is what a crowd of connections costs most.
pub struct Gatekeeper(pub Arc<Gateway>);

#[async_trait]
impl PreTlsProcess for Gatekeeper {
    async fn process(&self, stream: &mut L4Stream) -> Result<()> {
        match self.0.connection() {
            Some(seat) => hold(stream, seat),
            None => {
                let observer = &self.0.around.observer;
                observer.overloaded(Overload::Connections);
                let full = Error::explain(ErrorType::ConnectError, "too many connections");
                Err(full.into_down())
            }
        }
    }
}

/// Ties a seat to a connection. What Pingora 0.9.1 keeps of a way through a proxy is the one thing of a connection that can hold a value,
/// and that each session of it shares.
fn hold(stream: &mut L4Stream, seat: Seat) -> Result<()> {
    let nothing = Box::new(ResponseHeader::build(200, Some(0))?);
    stream.set_proxy_digest(ProxyDigest::new(nothing, Some(Box::new(seat))));
    Ok(())
}

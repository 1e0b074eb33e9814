//! Client connections: how many, which protocol, and how long a request's head may take.
//!
//! Pingora 0.9.1 counts no connections, waits without an end for the first 24 bytes of one, and gives every single read of a head a time
//! of its own. Its way to hand connections to a program is the "custom session": it comes here with every connection in cleartext and with
//! HTTP/1.1 over TLS. HTTP/2 over TLS it serves itself; such a connection is counted before its handshake, in [`Gatekeeper`].
//!
//! Not here: requests. Invariants: a connection has a seat from before its first byte (over TLS: before its handshake) until it is
//! closed and nobody works on a request of it; without a seat nothing of it reaches a hook.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use pingora_core::apps::{HttpServerApp, ServerApp};
use pingora_core::listeners::PreTlsProcess;
use pingora_core::protocols::http::ServerSession;
use pingora_core::protocols::http::v2::server::H2Options;
use pingora_core::protocols::l4::stream::Stream as L4Stream;
use pingora_core::protocols::raw_connect::ProxyDigest;
use pingora_core::protocols::{GetProxyDigest, Stream};
use pingora_core::server::ShutdownWatch;
use pingora_core::{Error, ErrorType, Result};
use pingora_http::ResponseHeader;
use pingora_proxy::{HttpProxy, ProcessCustomSession};
use tokio::time::{Instant, timeout, timeout_at};

use super::body;
use super::gateway::Gateway;
use super::head::{Head, Watched};
use super::line::{Line, Spoken};
use super::respond;
use super::service::{DataPlane, family, made_id};
use super::upstream::AttemptConnector;
use crate::core::limits::{
    H2_HEAD_BYTES_MAX, H2_RECEIVE_WINDOW, H2_REFUSALS_MAX, H2_RESETS_PENDING_MAX,
    H2_RESETS_REMEMBERED_MAX, H2_SEND_BUFFER_MAX, H2_SMALL_FRAMES_MAX, H2_STREAMS_MAX,
};
use crate::policy::overload::{Overload, SlowPhase};
use crate::policy::seats::Seat;
use crate::providers::envelope::GatewayError;

/// What a client with prior knowledge of HTTP/2 begins with (RFC 9113, 3.4).
const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// Connections that are told at once that there are too many. What comes beyond is closed without a word: telling must stay cheap.
const TURNED_AWAY_MAX: u64 = 64;
/// Time for the head of a request that is to be told so, since only the head says in which format.
const TURN_AWAY_TIME: Duration = Duration::from_millis(500);

type Proxy = HttpProxy<DataPlane, AttemptConnector>;

tokio::task_local! {
    /// The head that is waited for. An HTTP/1.1 request is served by the task that reads it.
    static HEAD: Arc<Head>;
}

/// Serves each connection that Pingora hands over.
pub fn serve_connections(
    gateway: &Arc<Gateway>,
) -> ProcessCustomSession<DataPlane, AttemptConnector> {
    let gateway = Arc::clone(gateway);
    Arc::new(move |proxy, stream, shutdown| {
        let (gateway, shutdown) = (Arc::clone(&gateway), shutdown.clone());
        Box::pin(async move {
            let front = Front {
                gateway,
                proxy,
                shutdown,
            };
            front.serve(stream).await;
            None
        })
    })
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

/// The head that was waited for has come: from now on other times count.
pub(super) fn head_arrived() {
    // Requests over HTTP/2 are read elsewhere, and nobody waits for them here.
    let _ = HEAD.try_with(|head| head.end());
}

struct Front {
    gateway: Arc<Gateway>,
    proxy: Arc<Proxy>,
    shutdown: ShutdownWatch,
}

impl Front {
    async fn serve(&self, stream: Stream) {
        if stream.get_ssl_digest().is_some() {
            // It was counted before its handshake.
            return self
                .serve_http1(stream, self.head_due(Duration::ZERO))
                .await;
        }
        match self.gateway.connection() {
            Some(seat) => {
                self.serve_cleartext(stream).await;
                drop(seat);
            }
            None => self.turn_away(stream).await,
        }
    }

    async fn serve_cleartext(&self, mut stream: Stream) {
        let due = self.head_due(Duration::ZERO);
        match timeout_at(due, speaks_http2(&mut stream)).await {
            Ok(Ok(true)) => {}
            Ok(Ok(false)) => return self.serve_http1(stream, due).await,
            Ok(Err(_)) => return,
            Err(_) => return self.too_slow(),
        }
        let line = self.line(stream, Spoken::Http2);
        let _ = self.proxy.process_new(Box::new(line), &self.shutdown).await;
    }

    /// One request after the other. What Pingora does for a connection of its own, with a time for each head.
    async fn serve_http1(&self, stream: Stream, due: Instant) {
        let line = self.line(stream, Spoken::AsNegotiated);
        let head = Arc::new(Head::new());
        let line = Watched::new(Box::new(line), Arc::clone(&head));
        let mut session = ServerSession::new_http1(Box::new(line));
        let keepalive = self.settings().0.as_secs().max(1);
        let is_stopping = *self.shutdown.borrow();
        session.set_keepalive((!is_stopping).then_some(keepalive));
        let mut due = due;
        loop {
            let serving = self.proxy.process_new_http(session, &self.shutdown);
            let served = tokio::select! {
                biased;
                served = with_head_by(due, &head, serving) => served,
                // Dropping what serves it closes the connection.
                () = head.refused() => return,
            };
            let Ok(reusable) = served else {
                return self.too_slow();
            };
            let Some((stream, settings)) = reusable.map(|reusable| reusable.consume()) else {
                return;
            };
            session = ServerSession::new_http1(stream);
            if let Some(settings) = settings {
                settings.apply_to_session(&mut session);
            }
            due = self.head_due(self.settings().1);
        }
    }

    /// Time for a head, and how long a connection may be idle before it.
    fn settings(&self) -> (Duration, Duration) {
        let config = self.gateway.config.load();
        let server = &config.snapshot.server;
        (server.client_header_timeout, server.keepalive_timeout)
    }

    fn line(&self, stream: Stream, spoken: Spoken) -> Line {
        let config = self.gateway.config.load();
        Line::new(stream, spoken, config.snapshot.server.client_write_timeout)
    }

    fn head_due(&self, idle: Duration) -> Instant {
        Instant::now() + self.settings().0 + idle
    }

    fn too_slow(&self) {
        self.gateway.around.observer.slow_client(SlowPhase::Head);
    }

    /// Tells a client that there are too many connections, in its own format where it says soon which, and closes.
    async fn turn_away(&self, stream: Stream) {
        let gateway = &self.gateway;
        gateway.around.observer.overloaded(Overload::Connections);
        let Some(_seat) = gateway.turned_away.take(TURNED_AWAY_MAX) else {
            return;
        };
        let line = self.line(stream, Spoken::AsNegotiated);
        let mut session = ServerSession::new_http1(Box::new(line));
        if !matches!(
            timeout(TURN_AWAY_TIME, session.read_request()).await,
            Ok(Ok(true))
        ) {
            return;
        }
        let error = GatewayError::plain(gateway.overloaded());
        let id = made_id(gateway.around.clock.wall());
        let answer = respond::gateway_error(family(&session), &error, &id);
        let Ok(answer) = answer else { return };
        session.set_keepalive(None);
        let told = async {
            session
                .write_response_header(Box::new(answer.header))
                .await?;
            session.write_response_body(answer.body, true).await
        };
        if matches!(timeout(TURN_AWAY_TIME, told).await, Ok(Ok(()))) {
            body::linger(&mut session).await;
        }
    }
}

/// The head did not come in time.
struct TooSlow;

/// Whether a connection begins with HTTP/2's preface. Looks no further than tells it: the shortest requests have less than 24 bytes.
async fn speaks_http2(stream: &mut Stream) -> io::Result<bool> {
    let mut seen = [0; PREFACE.len()];
    for length in 1..=PREFACE.len() {
        let (Some(seen), Some(wanted)) = (seen.get_mut(..length), PREFACE.get(..length)) else {
            break;
        };
        if !stream.try_peek(seen).await? || seen != wanted {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Serves a request whose head has to come until then.
async fn with_head_by<T>(
    due: Instant,
    head: &Arc<Head>,
    serving: impl Future<Output = T>,
) -> Result<T, TooSlow> {
    head.begin();
    let serving = HEAD.scope(Arc::clone(head), serving);
    tokio::pin!(serving);
    // Asked first: who has a head in the last moment is served.
    match timeout_at(due, &mut serving).await {
        Ok(served) => Ok(served),
        Err(_) if head.is_read() => Ok(serving.await),
        Err(_) => Err(TooSlow),
    }
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

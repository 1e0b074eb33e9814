//! Tokens in force: asked for in the background, renewed ahead of their end, handed out without waiting.
//!
//! Not here: what a request for a token says and how its answer is read ([`token`]). Invariants: no request waits for a token; one whose
//! end has passed is never shown; nothing of a token, a key or an answer is logged. A source lives as long as a configuration uses it, over
//! reloads that leave it as it was.

use std::net::SocketAddr;
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

use arc_swap::ArcSwapOption;
use bytes::BytesMut;
use http::Method;
use http::header::{ACCEPT, CONTENT_LENGTH, HOST, HeaderName, HeaderValue, USER_AGENT};
use parking_lot::Mutex;
use pingora_core::connectors::http::v1::Connector;
use pingora_core::protocols::l4::socket::SocketAddr as PeerAddress;
use pingora_core::upstreams::peer::HttpPeer;
use pingora_http::RequestHeader;
use rand::Rng;
use tokio::runtime::Handle;
use tokio::sync::watch;

use super::host::Clock;
use super::resolver::{Addresses, Resolver};
use crate::policy::identity::Exchange;
use crate::policy::secret::Secret;
use crate::providers::token::{self, ANSWER_BYTES_MAX, Token, TokenError};

/// Time for one exchange, the connection included. Endpoints answer within a second.
const EXCHANGE_TIME_MAX: Duration = Duration::from_secs(10);
/// Longest that a start or a reload waits for first tokens. Without one a target is passed over, not broken.
const FIRST_TIME_MAX: Duration = Duration::from_secs(5);
/// Pause after a failed exchange; doubles up to the other. An endpoint that is down comes back within minutes.
const PAUSE_BASE: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(60);
/// Doublings until the longest pause.
const DOUBLINGS_MAX: u32 = 6;

/// All sources of tokens, and what asks for them.
pub struct Credentials {
    background: Handle,
    clock: Clock,
    sources: Mutex<Vec<Weak<TokenSource>>>,
    connector: Arc<OnceLock<Connector>>,
}

/// Where one provider's tokens come from.
pub struct TokenSource {
    provider: Arc<str>,
    exchange: Exchange,
    ca: Option<Arc<[u8]>>,
    addresses: Arc<Addresses>,
    template: HttpPeer,
    clock: Clock,
    connector: Arc<OnceLock<Connector>>,
    current: ArcSwapOption<InForce>,
    /// Exchanges that have ended, either way.
    tried: watch::Sender<u64>,
}

struct InForce {
    secret: Secret,
    ends: Instant,
}

/// Why there is no token.
#[derive(Debug, thiserror::Error)]
enum ExchangeError {
    #[error(transparent)]
    Token(#[from] TokenError),
    /// Of Pingora's errors the kind alone is told.
    #[error("the endpoint cannot be asked: {0}")]
    Transport(String),
    #[error("the endpoint did not answer in time")]
    Late,
}

/// What a source needs to be found again after a reload.
pub struct Wanted<'a> {
    /// The provider's name.
    pub provider: &'a Arc<str>,
    /// How its tokens are had.
    pub exchange: &'a Exchange,
    /// The provider's own certificates.
    pub ca: &'a Option<Arc<[u8]>>,
}

impl Credentials {
    /// No sources yet. Tokens will be asked for on `background`.
    pub fn new(background: Handle, clock: Clock) -> Credentials {
        Credentials {
            background,
            clock,
            sources: Mutex::default(),
            connector: Arc::default(),
        }
    }

    /// The source that is wanted: the one that is there, or a new one, which begins at once. `template` is a peer without its address.
    pub fn source(
        &self,
        wanted: &Wanted<'_>,
        resolver: &Resolver,
        template: HttpPeer,
    ) -> Arc<TokenSource> {
        let mut sources = self.sources.lock();
        sources.retain(|source| source.strong_count() > 0);
        let known = sources.iter().filter_map(Weak::upgrade);
        if let Some(known) = known.into_iter().find(|source| source.is(wanted)) {
            return known;
        }
        let endpoint = &wanted.exchange.endpoint;
        let source = Arc::new(TokenSource {
            provider: Arc::clone(wanted.provider),
            exchange: wanted.exchange.clone(),
            ca: wanted.ca.clone(),
            addresses: resolver.entry(&endpoint.host, endpoint.port),
            template,
            clock: self.clock,
            connector: Arc::clone(&self.connector),
            current: ArcSwapOption::empty(),
            tried: watch::Sender::new(0),
        });
        sources.push(Arc::downgrade(&source));
        self.background.spawn(renew(Arc::downgrade(&source)));
        source
    }
}

impl TokenSource {
    fn is(&self, wanted: &Wanted<'_>) -> bool {
        self.provider == *wanted.provider
            && self.exchange == *wanted.exchange
            && self.ca == *wanted.ca
    }

    /// The token in force.
    pub fn token(&self) -> Option<Secret> {
        let current = self.current.load();
        let current = current
            .as_ref()
            .filter(|token| Instant::now() < token.ends)?;
        Some(current.secret.clone())
    }

    /// Waits for the end of the first exchange, whatever it is, but not long.
    pub async fn begun(&self) {
        let mut tried = self.tried.subscribe();
        let first = tried.wait_for(|tried| *tried > 0);
        let _ = tokio::time::timeout(FIRST_TIME_MAX, first).await;
    }

    /// One exchange. How long to wait for the next.
    async fn turn(&self, failures: &mut u32) -> Duration {
        let begun = Instant::now();
        let exchanged = tokio::time::timeout(EXCHANGE_TIME_MAX, self.exchange()).await;
        let pause = match exchanged.unwrap_or(Err(ExchangeError::Late)) {
            Ok(Token { secret, lifetime }) => {
                *failures = 0;
                let ends = begun + lifetime;
                self.current.store(Some(Arc::new(InForce { secret, ends })));
                let seconds = lifetime.as_secs();
                log::debug!("provider {}: a token for {seconds} s", self.provider);
                token::renewed_after(lifetime)
            }
            Err(error) => {
                log::error!("provider {}: no token: {error}", self.provider);
                let longest = PAUSE_MAX.min(PAUSE_BASE * 2_u32.pow((*failures).min(DOUBLINGS_MAX)));
                *failures = failures.saturating_add(1);
                // Many gateways that lost one endpoint do not come back to it at once.
                longest.mul_f64(rand::rng().random_range(0.5..1.0))
            }
        };
        self.tried
            .send_modify(|tried| *tried = tried.wrapping_add(1));
        pause
    }

    async fn exchange(&self) -> Result<Token, ExchangeError> {
        let grant = &self.exchange.grant;
        let ask = token::ask(grant, self.clock.wall())?;
        let (status, body) = self.send(&ask).await?;
        Ok(token::read(grant, status, &body, self.clock.wall())?)
    }

    /// Sends the request on a connection of its own: the next is needed much later.
    async fn send(&self, ask: &token::Ask) -> Result<(u16, BytesMut), ExchangeError> {
        let failed = |error: Box<pingora_core::Error>| {
            ExchangeError::Transport(error.etype().as_str().to_owned())
        };
        let address = self.address().await?;
        let mut peer = self.template.clone();
        peer._address = PeerAddress::Inet(address);
        let connector = self.connector.get_or_init(|| Connector::new(None));
        let (mut session, _) = connector.get_http_session(&peer).await.map_err(failed)?;
        let header = self.header(ask).map_err(failed)?;
        session
            .write_request_header(Box::new(header))
            .await
            .map_err(failed)?;
        if !ask.body.expose().is_empty() {
            let body = ask.body.expose().as_bytes();
            session.write_body(body).await.map_err(failed)?;
        }
        session.finish_body().await.map_err(failed)?;
        session.read_response().await.map_err(failed)?;
        let status = session.get_status().map_or(0, |status| status.as_u16());
        let mut body = BytesMut::new();
        while let Some(part) = session.read_body_bytes().await.map_err(failed)? {
            body.extend_from_slice(&part);
            if body.len() > ANSWER_BYTES_MAX {
                return Err(TokenError::Answer("length").into());
            }
        }
        session.shutdown().await;
        Ok((status, body))
    }

    async fn address(&self) -> Result<SocketAddr, ExchangeError> {
        if self.addresses.pick().is_none() {
            let asked = self.addresses.resolve().await;
            asked.map_err(|error| ExchangeError::Transport(error.kind().to_string()))?;
        }
        let unknown = || ExchangeError::Transport("the name has no address".to_owned());
        self.addresses.pick().ok_or_else(unknown)
    }

    fn header(&self, ask: &token::Ask) -> pingora_core::Result<RequestHeader> {
        let endpoint = &self.exchange.endpoint;
        let path = if endpoint.path.is_empty() {
            "/"
        } else {
            &*endpoint.path
        };
        let mut header = RequestHeader::build(ask.method, path.as_bytes(), Some(8))?;
        header.append_header(HOST, &*endpoint.authority)?;
        header.append_header(ACCEPT, "application/json")?;
        let own = concat!("rondo/", env!("CARGO_PKG_VERSION"));
        header.append_header(USER_AGENT, own)?;
        for (name, value) in &ask.headers {
            let mut value = HeaderValue::from_str(value.expose()).map_err(|_| {
                pingora_core::Error::new_in(pingora_core::ErrorType::InvalidHTTPHeader)
            })?;
            value.set_sensitive(true);
            header.append_header(HeaderName::from_static(name), value)?;
        }
        if header.method == Method::POST {
            header.append_header(CONTENT_LENGTH, ask.body.expose().len())?;
        }
        Ok(header)
    }
}

/// Keeps a token in force for as long as anybody wants it.
async fn renew(source: Weak<TokenSource>) {
    let mut failures = 0;
    loop {
        let Some(wanted) = source.upgrade() else {
            return;
        };
        let pause = wanted.turn(&mut failures).await;
        drop(wanted);
        tokio::time::sleep(pause).await;
    }
}

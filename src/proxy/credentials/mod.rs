//! Credentials in force: asked for in the background, renewed ahead of their end, handed out without waiting.
//!
//! `line` sends one request to one endpoint, `aws` takes the steps that lead to a session, `process` runs a program. Not here: what a
//! request says and how its answer is read ([`token`], [`crate::providers::aws_session`]). Invariants: no request waits for a credential;
//! one whose end has passed is never shown; nothing of a credential or an answer is logged. A source lives as long as a configuration uses
//! it, over reloads that leave it as it was.

mod aws;
mod line;
mod process;

use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

use arc_swap::ArcSwapOption;
use parking_lot::Mutex;
use pingora_core::connectors::http::v1::Connector;
use pingora_core::upstreams::peer::HttpPeer;
use rand::Rng;
use tokio::runtime::Handle;
use tokio::sync::watch;

use self::line::{ExchangeError, Line};
use super::host::{Clock, Exchanged, Observer};
use super::resolver::Resolver;
use crate::policy::aws::AwsIdentity;
use crate::policy::identity::{Exchange, Identity};
use crate::policy::provider::BaseUrl;
use crate::policy::secret::Secret;
use crate::providers::token;

/// Time for all steps of one exchange: a program may take seconds to start, and a role begins with another exchange.
const EXCHANGE_TIME_MAX: Duration = Duration::from_secs(30);
/// Longest that a start or a reload waits for first credentials. Without one a target is passed over, not broken.
const FIRST_TIME_MAX: Duration = Duration::from_secs(5);
/// Pause after a failed exchange; doubles up to the other. An endpoint that is down comes back within minutes.
const PAUSE_BASE: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(60);
/// Doublings until the longest pause.
const DOUBLINGS_MAX: u32 = 6;

/// All sources of credentials, and what asks for them.
pub struct Credentials {
    background: Handle,
    clock: Clock,
    observer: Arc<dyn Observer>,
    sources: Mutex<Vec<Weak<TokenSource>>>,
    connector: Arc<OnceLock<Connector>>,
}

/// Where one provider's credentials come from.
pub struct TokenSource {
    provider: Arc<str>,
    identity: Identity,
    ca: Option<Arc<[u8]>>,
    /// Whom it takes to ask.
    lines: Vec<Line>,
    clock: Clock,
    observer: Arc<dyn Observer>,
    current: ArcSwapOption<InForce>,
    /// Exchanges that have ended, either way.
    tried: watch::Sender<u64>,
}

struct InForce {
    credential: Credential,
    ends: Instant,
}

/// What a provider is shown.
#[derive(Debug, Clone)]
pub enum Credential {
    /// A token, in place of a key.
    Token(Secret),
    /// What signs.
    Aws(Arc<AwsIdentity>),
}

/// What a source needs to be found again after a reload.
pub struct Wanted<'a> {
    /// The provider's name.
    pub provider: &'a Arc<str>,
    /// How its credentials are had.
    pub identity: &'a Identity,
    /// The provider's own certificates.
    pub ca: &'a Option<Arc<[u8]>>,
}

impl Credentials {
    /// No sources yet. Credentials will be asked for on `background`.
    pub fn new(background: Handle, clock: Clock, observer: Arc<dyn Observer>) -> Credentials {
        Credentials {
            background,
            clock,
            observer,
            sources: Mutex::default(),
            connector: Arc::default(),
        }
    }

    /// The source that is wanted: the one that is there, or a new one, which begins at once. `peers` are the endpoints of the identity, each
    /// with a peer without its address.
    pub fn source(
        &self,
        wanted: &Wanted<'_>,
        resolver: &Resolver,
        peers: Vec<(BaseUrl, HttpPeer)>,
    ) -> Arc<TokenSource> {
        let mut sources = self.sources.lock();
        sources.retain(|source| source.strong_count() > 0);
        let known = sources.iter().filter_map(Weak::upgrade);
        if let Some(known) = known.into_iter().find(|source| source.is(wanted)) {
            return known;
        }
        let lines = peers.into_iter().map(|(endpoint, template)| Line {
            addresses: resolver.entry(&endpoint.host, endpoint.port),
            connector: Arc::clone(&self.connector),
            endpoint,
            template,
        });
        let source = Arc::new(TokenSource {
            provider: Arc::clone(wanted.provider),
            identity: wanted.identity.clone(),
            ca: wanted.ca.clone(),
            lines: lines.collect(),
            clock: self.clock,
            observer: Arc::clone(&self.observer),
            current: ArcSwapOption::empty(),
            tried: watch::Sender::new(0),
        });
        sources.push(Arc::downgrade(&source));
        self.background.spawn(renew(Arc::downgrade(&source)));
        source
    }
}

/// A new credential, and how long it counts.
struct Had {
    credential: Credential,
    lifetime: Duration,
}

impl TokenSource {
    fn is(&self, wanted: &Wanted<'_>) -> bool {
        self.provider == *wanted.provider
            && self.identity == *wanted.identity
            && self.ca == *wanted.ca
    }

    /// The credential in force.
    pub fn credential(&self) -> Option<Credential> {
        let current = self.current.load();
        let current = current
            .as_ref()
            .filter(|token| Instant::now() < token.ends)?;
        Some(current.credential.clone())
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
        let exchanged = tokio::time::timeout(EXCHANGE_TIME_MAX, self.exchanged()).await;
        let exchanged = exchanged.unwrap_or(Err(ExchangeError::Late));
        let result = match &exchanged {
            Ok(_) => Exchanged::Renewed,
            Err(error) => error.label(),
        };
        self.observer.token_exchanged(&self.provider, result);
        let pause = match exchanged {
            Ok(Had {
                credential,
                lifetime,
            }) => {
                *failures = 0;
                let ends = begun + lifetime;
                let in_force = InForce { credential, ends };
                self.current.store(Some(Arc::new(in_force)));
                let seconds = lifetime.as_secs();
                log::debug!("provider {}: a credential for {seconds} s", self.provider);
                token::renewed_after(lifetime)
            }
            Err(error) => {
                let what = self.identity.phrase().unwrap_or_default();
                log::error!("provider {}: no {what}: {error}", self.provider);
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

    async fn exchanged(&self) -> Result<Had, ExchangeError> {
        match &self.identity {
            Identity::Exchanged(exchange) => self.token(exchange).await,
            Identity::AwsSession(session) => self.session(session).await,
            // Nothing of these is exchanged, and no source is made for them.
            Identity::Keys | Identity::Aws(_) => Err(ExchangeError::Unknown),
        }
    }

    async fn token(&self, exchange: &Exchange) -> Result<Had, ExchangeError> {
        let ask = token::ask(exchange, self.clock.wall())?;
        let (status, body) = self.line(&exchange.endpoint)?.send(&ask).await?;
        let token = token::read(&exchange.grant, status, &body, self.clock.wall())?;
        Ok(Had {
            credential: Credential::Token(token.secret),
            lifetime: token.lifetime,
        })
    }

    fn line(&self, endpoint: &BaseUrl) -> Result<&Line, ExchangeError> {
        let mut lines = self.lines.iter();
        lines
            .find(|line| line.endpoint == *endpoint)
            .ok_or(ExchangeError::Unknown)
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

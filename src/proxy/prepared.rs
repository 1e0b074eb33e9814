//! What the hot path needs of each provider, made once per snapshot: the adapter, addresses, and the peer without its address.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use pingora_core::protocols::ALPN;
use pingora_core::upstreams::peer::HttpPeer;
use pingora_core::utils::tls::{WrappedX509, parse_x509};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;
use x509_parser::prelude::{FromDer, X509Certificate};

use super::credentials::{Credential, Credentials, TokenSource, Wanted};
use super::health_checks::{HealthCheck, HealthChecks};
use super::peer::{KnownPeer, Peers};
use super::resolver::{Addresses, Resolver};
use crate::policy::identity::Identity;
use crate::policy::provider::Provider;
use crate::policy::snapshot::Snapshot;
use crate::providers::adapter::Adapter;
use crate::providers::outbound_headers::AuthScheme;
use crate::providers::registry;
use crate::providers::request_style::auth_scheme;

/// How long an idle upstream connection is kept. Below the 60 s after which many load balancers drop one silently.
const UPSTREAM_IDLE_MAX: Duration = Duration::from_secs(50);
/// Streams on one HTTP/2 connection. Pingora's default of 1 would open a connection for each request.
const H2_STREAMS_MAX: usize = 100;
/// Window of one stream. A connection's window must hold all of its streams' windows, or one slow reader starves the others.
const H2_STREAM_WINDOW: u32 = 256 << 10;
/// Window of a connection.
const H2_CONNECTION_WINDOW: u32 = 64 << 20;
/// How often an HTTP/2 connection is pinged, so that a dead one is found before a request waits for it.
const H2_PING_INTERVAL: Duration = Duration::from_secs(20);

const _: () = assert!(H2_CONNECTION_WINDOW as usize >= H2_STREAMS_MAX * H2_STREAM_WINDOW as usize);

/// A snapshot with what was made from it.
pub struct Prepared {
    /// The snapshot.
    pub snapshot: Arc<Snapshot>,
    /// In the order of the snapshot's providers.
    pub providers: Vec<Arc<PreparedProvider>>,
}

/// A provider ready to be sent to.
pub struct PreparedProvider {
    /// As configured.
    pub provider: Arc<Provider>,
    /// Its adapter.
    pub adapter: &'static Adapter,
    addresses: Arc<Addresses>,
    peers: Peers,
    tokens: Option<Arc<TokenSource>>,
    /// Runs as long as a configuration uses it.
    _health: Option<Arc<HealthCheck>>,
}

/// What outlives snapshots.
#[derive(Clone, Copy)]
pub struct Shared<'a> {
    /// Addresses of names.
    pub resolver: &'a Resolver,
    /// Tokens.
    pub credentials: &'a Credentials,
    /// Health checks.
    pub health: &'a HealthChecks,
}

/// There is no token now.
#[derive(Debug, Clone, Copy)]
pub struct NoToken;

/// Why a snapshot cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum PrepareError {
    /// The compiler accepted an adapter that this build lacks.
    #[error("providers.{0}: the adapter {1} is not built in")]
    Adapter(String, &'static str),
    /// An embedded provider was not started.
    #[error("providers.{0}: the scripted provider was not started")]
    Mock(String),
    /// The certificates of `ca` cannot be read.
    #[error("providers.{0}.ca: {1}")]
    Certificates(String, String),
}

impl Prepared {
    /// Makes what the snapshot's providers need. `mock` gives the address of a provider's embedded script.
    pub fn new(
        snapshot: Arc<Snapshot>,
        shared: &Shared<'_>,
        mock: impl Fn(&Provider) -> Option<SocketAddr>,
    ) -> Result<Prepared, PrepareError> {
        let providers = snapshot
            .providers
            .iter()
            .map(|provider| prepare(provider, shared, &mock).map(Arc::new))
            .collect::<Result<_, _>>()?;
        Ok(Prepared {
            snapshot,
            providers,
        })
    }

    /// Waits until first tokens have been asked for.
    pub async fn tokens(&self) {
        let sources = self
            .providers
            .iter()
            .filter_map(|provider| provider.tokens.as_ref());
        futures::future::join_all(sources.map(|source| source.begun())).await;
    }

    /// Asks DNS for every name that is not known yet, so that the first request need not.
    pub async fn resolve(&self) {
        for provider in &self.providers {
            if provider.addresses.pick().is_none()
                && let Err(error) = provider.addresses.resolve().await
            {
                let host = &provider.provider.base.host;
                log::warn!(
                    "provider {}: cannot resolve {host}: {error}",
                    provider.provider.name
                );
            }
        }
    }
}

impl PreparedProvider {
    /// Where a credential goes. A signature is made later, over the request.
    pub fn auth(&self) -> AuthScheme {
        match self.provider.identity {
            Identity::Keys | Identity::Exchanged(_) => {
                auth_scheme(self.adapter, &self.provider.azure)
            }
            Identity::Aws(_) | Identity::AwsSession(_) => AuthScheme::None,
        }
    }

    /// The credential in force. `Err` when one is renewed for the provider and there is none.
    pub fn credential(&self) -> Result<Option<Credential>, NoToken> {
        match &self.tokens {
            Some(tokens) => tokens.credential().map(Some).ok_or(NoToken),
            None => Ok(None),
        }
    }

    /// A peer with the next address of the provider; asks DNS only when the name has never been resolved.
    pub async fn peer(&self) -> Option<Arc<KnownPeer>> {
        let address = match self.addresses.pick() {
            Some(address) => address,
            None => {
                let asked = self.addresses.resolve();
                tokio::time::timeout(self.provider.timeouts.connect, asked)
                    .await
                    .ok()?
                    .ok()?;
                self.addresses.pick()?
            }
        };
        Some(self.peers.at(address))
    }
}

fn prepare(
    provider: &Arc<Provider>,
    shared: &Shared<'_>,
    mock: &impl Fn(&Provider) -> Option<SocketAddr>,
) -> Result<PreparedProvider, PrepareError> {
    let adapter = registry::find(provider.adapter)
        .ok_or_else(|| PrepareError::Adapter(provider.name.to_string(), provider.adapter))?;
    let resolver = shared.resolver;
    let (addresses, tls) = match &provider.mock {
        Some(_) => {
            let address =
                mock(provider).ok_or_else(|| PrepareError::Mock(provider.name.to_string()))?;
            (
                resolver.entry(&address.ip().to_string().into(), address.port()),
                false,
            )
        }
        None => (
            resolver.entry(&provider.base.host, provider.base.port),
            provider.base.tls,
        ),
    };
    let template = template(provider, &provider.base.host, tls)?;
    let tokens = tokens(provider, shared)?;
    let auth = auth_scheme(adapter, &provider.azure);
    let health = shared.health.of(provider, auth, &addresses, &template);
    Ok(PreparedProvider {
        provider: Arc::clone(provider),
        adapter,
        addresses,
        peers: Peers::new(template),
        tokens,
        _health: health,
    })
}

/// Where the provider's credentials come from, if they are renewed. A script needs none.
fn tokens(
    provider: &Provider,
    shared: &Shared<'_>,
) -> Result<Option<Arc<TokenSource>>, PrepareError> {
    if provider.mock.is_some() || !provider.identity.is_renewed() {
        return Ok(None);
    }
    let mut peers = Vec::new();
    for endpoint in provider.identity.endpoints() {
        let mut peer = template(provider, &endpoint.host, endpoint.tls)?;
        peer.options.alpn = ALPN::H1;
        peers.push((endpoint.clone(), peer));
    }
    let wanted = Wanted {
        provider: &provider.name,
        identity: &provider.identity,
        ca: &provider.ca,
    };
    let credentials = shared.credentials;
    Ok(Some(credentials.source(&wanted, shared.resolver, peers)))
}

fn template(provider: &Provider, host: &str, tls: bool) -> Result<HttpPeer, PrepareError> {
    // An empty SNI would turn certificate verification off in Pingora 0.9.1; the compiler refuses an empty host, and this refuses it again.
    let sni = if tls { host.to_owned() } else { String::new() };
    if tls && sni.is_empty() {
        return Err(PrepareError::Certificates(
            provider.name.to_string(),
            "a TLS provider needs a host name".to_owned(),
        ));
    }
    let unset = SocketAddr::from(([127, 0, 0, 1], 0));
    let mut peer = HttpPeer::new(unset, tls, sni);
    // Two providers may share an address, never a connection: Pingora's reuse key does not hold ALPN, CA or credential.
    let mut hasher = DefaultHasher::new();
    (&provider.name, provider.http2, &provider.ca).hash(&mut hasher);
    peer.group_key = hasher.finish();
    let options = &mut peer.options;
    options.alpn = match (provider.http2, tls) {
        (false, _) => ALPN::H1,
        (true, true) => ALPN::H2H1,
        (true, false) => ALPN::H2,
    };
    options.connection_timeout = Some(provider.timeouts.connect);
    options.total_connection_timeout = Some(provider.timeouts.connect);
    options.idle_timeout = Some(UPSTREAM_IDLE_MAX);
    options.max_h2_streams = H2_STREAMS_MAX;
    options.h2_stream_window_size = Some(H2_STREAM_WINDOW);
    options.h2_connection_window_size = Some(H2_CONNECTION_WINDOW);
    options.h2_ping_interval = Some(H2_PING_INTERVAL);
    if let Some(pem) = &provider.ca {
        options.ca = Some(certificates(provider, pem)?);
    }
    Ok(peer)
}

/// The certificates of a PEM file. Pingora 0.9.1 panics on DER that it cannot parse, so each is parsed here first.
fn certificates(provider: &Provider, pem: &[u8]) -> Result<Arc<[WrappedX509]>, PrepareError> {
    let wrong = |what: String| PrepareError::Certificates(provider.name.to_string(), what);
    let mut ders = Vec::new();
    for der in CertificateDer::pem_slice_iter(pem) {
        let der = der
            .map_err(|error| wrong(format!("not PEM: {error}")))?
            .to_vec();
        if let Err(error) = X509Certificate::from_der(&der) {
            return Err(wrong(format!("not a certificate: {error}")));
        }
        ders.push(der);
    }
    if ders.is_empty() {
        return Err(wrong("no certificate in the file".to_owned()));
    }
    Ok(ders
        .into_iter()
        .map(|der| WrappedX509::new(der, parse_x509))
        .collect())
}

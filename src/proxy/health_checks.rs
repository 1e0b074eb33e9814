//! Active health checks: one task for each provider that has `health`, for as long as a configuration uses it.
//!
//! Not here: what a state means for an operation. Invariants: a check sends nothing of a client, and of the provider's credentials its first
//! key alone, and only when that is asked for; no redirect is followed; nothing of an answer but its status is read.

use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use http::Method;
use http::header::{ACCEPT, HOST, USER_AGENT};
use parking_lot::Mutex;
use pingora_core::connectors::http::v1::Connector;
use pingora_core::protocols::ALPN;
use pingora_core::protocols::l4::socket::SocketAddr as PeerAddress;
use pingora_core::upstreams::peer::HttpPeer;
use pingora_http::RequestHeader;
use rand::Rng;
use tokio::runtime::Handle;

use super::resolver::Addresses;
use crate::policy::health::Health;
use crate::policy::provider::Provider;
use crate::providers::outbound_headers::{AuthScheme, credential};

/// All checks, and what runs them.
pub struct HealthChecks {
    background: Handle,
    checks: Mutex<Vec<Weak<HealthCheck>>>,
    connector: Arc<OnceLock<Connector>>,
}

/// The checks of one provider.
pub struct HealthCheck {
    health: Arc<Health>,
    provider: Arc<Provider>,
    auth: AuthScheme,
    addresses: Arc<Addresses>,
    template: HttpPeer,
    connector: Arc<OnceLock<Connector>>,
}

impl HealthChecks {
    /// No checks yet. They will run on `background`.
    pub fn new(background: Handle) -> HealthChecks {
        HealthChecks {
            background,
            checks: Mutex::default(),
            connector: Arc::default(),
        }
    }

    /// Checks that some configuration in use wants.
    pub fn count(&self) -> usize {
        let checks = self.checks.lock();
        let wanted = checks.iter().filter(|check| check.strong_count() > 0);
        wanted.count()
    }

    /// The checks of a provider: those that run, or new ones. `template` is a peer without its address.
    pub fn of(
        &self,
        provider: &Arc<Provider>,
        auth: AuthScheme,
        addresses: &Arc<Addresses>,
        template: &HttpPeer,
    ) -> Option<Arc<HealthCheck>> {
        let health = provider.health.as_ref()?;
        let mut checks = self.checks.lock();
        checks.retain(|check| check.strong_count() > 0);
        let mut known = checks.iter().filter_map(Weak::upgrade);
        if let Some(known) = known.find(|check| check.is(health, provider, auth)) {
            return Some(known);
        }
        let mut template = template.clone();
        template.options.alpn = ALPN::H1;
        let check = Arc::new(HealthCheck {
            health: Arc::clone(health),
            provider: Arc::clone(provider),
            auth,
            addresses: Arc::clone(addresses),
            template,
            connector: Arc::clone(&self.connector),
        });
        checks.push(Arc::downgrade(&check));
        let interval = health.rules.interval;
        // Many gateways that start together do not ask together.
        let first = interval.mul_f64(rand::rng().random_range(0.0..1.0));
        self.background
            .spawn(run(Arc::downgrade(&check), first, interval));
        Some(check)
    }
}

impl HealthCheck {
    /// Whether these checks are what the provider wants: its state is kept while address and rules are the same.
    fn is(&self, health: &Arc<Health>, provider: &Provider, auth: AuthScheme) -> bool {
        let secret = |provider: &Provider| provider.keys.first().map(|key| key.secret.clone());
        Arc::ptr_eq(&self.health, health)
            && self.provider.ca == provider.ca
            && self.auth == auth
            && secret(&self.provider) == secret(provider)
    }

    async fn turn(&self) {
        let asked = tokio::time::timeout(self.health.rules.timeout, self.ask()).await;
        let status = asked.ok().flatten();
        let good = status.is_some_and(|status| (200..=299).contains(&status));
        if self.health.record(good) {
            let name = &self.provider.name;
            match (good, status) {
                (true, _) => log::info!("provider {name}: healthy again"),
                (false, Some(status)) => {
                    log::warn!("provider {name}: unhealthy, it answers {status}")
                }
                (false, None) => log::warn!("provider {name}: unhealthy, it does not answer"),
            }
        }
    }

    /// The status of one answer, on a connection of its own. `None` when there is none.
    async fn ask(&self) -> Option<u16> {
        if self.addresses.pick().is_none() {
            self.addresses.resolve().await.ok()?;
        }
        let mut peer = self.template.clone();
        peer._address = PeerAddress::Inet(self.addresses.pick()?);
        let connector = self.connector.get_or_init(|| Connector::new(None));
        let (mut session, _) = connector.get_http_session(&peer).await.ok()?;
        let header = self.header()?;
        session.write_request_header(Box::new(header)).await.ok()?;
        session.finish_body().await.ok()?;
        session.read_response().await.ok()?;
        let status = session.get_status().map(|status| status.as_u16());
        session.shutdown().await;
        status
    }

    fn header(&self) -> Option<RequestHeader> {
        let path = self.health.rules.path.as_bytes();
        let mut header = RequestHeader::build(Method::GET, path, Some(4)).ok()?;
        header
            .append_header(HOST, &*self.provider.base.authority)
            .ok()?;
        header.append_header(ACCEPT, "*/*").ok()?;
        let own = concat!("rondo/", env!("CARGO_PKG_VERSION"));
        header.append_header(USER_AGENT, own).ok()?;
        if self.health.rules.authenticated {
            let secret = self.provider.keys.first().map(|key| &key.secret);
            if let Some((name, value)) = credential(self.auth, secret).ok()? {
                header.append_header(name, value).ok()?;
            }
        }
        Some(header)
    }
}

/// Asks for as long as anybody wants to know.
async fn run(check: Weak<HealthCheck>, first: Duration, interval: Duration) {
    tokio::time::sleep(first).await;
    loop {
        let Some(wanted) = check.upgrade() else {
            return;
        };
        wanted.turn().await;
        drop(wanted);
        tokio::time::sleep(interval).await;
    }
}

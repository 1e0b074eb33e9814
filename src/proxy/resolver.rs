//! Addresses of providers: resolved in the background, refreshed, handed out in turn. The hot path never asks DNS once a name is known.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use parking_lot::Mutex;

/// How often known names are asked for again. Providers move rarely, and their records live for minutes.
pub const REFRESH_EVERY: Duration = Duration::from_secs(30);

/// The addresses of one host and port.
#[derive(Debug)]
pub struct Addresses {
    host: Arc<str>,
    port: u16,
    known: ArcSwapOption<Vec<SocketAddr>>,
    turn: AtomicUsize,
}

impl Addresses {
    fn new(host: &Arc<str>, port: u16) -> Addresses {
        let literal = host
            .parse::<IpAddr>()
            .ok()
            .map(|ip| vec![SocketAddr::new(ip, port)]);
        Addresses {
            host: Arc::clone(host),
            port,
            known: ArcSwapOption::from_pointee(literal),
            turn: AtomicUsize::new(0),
        }
    }

    /// An address, in turn; `None` when the name has never been resolved.
    pub fn pick(&self) -> Option<SocketAddr> {
        let known = self.known.load();
        let known = known.as_ref()?;
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        known.get(turn.checked_rem(known.len())?).copied()
    }

    /// Asks DNS. A failure keeps what was known.
    pub async fn resolve(&self) -> io::Result<()> {
        if self.host.parse::<IpAddr>().is_ok() {
            return Ok(());
        }
        let mut found: Vec<_> = tokio::net::lookup_host((&*self.host, self.port))
            .await?
            .collect();
        found.sort_unstable();
        found.dedup();
        if found.is_empty() {
            return Err(io::Error::new(io::ErrorKind::NotFound, "no address"));
        }
        self.known.store(Some(Arc::new(found)));
        Ok(())
    }
}

type HostPort = (Arc<str>, u16);

/// All hosts of the configurations seen so far.
#[derive(Debug, Default)]
pub struct Resolver {
    hosts: Mutex<HashMap<HostPort, Arc<Addresses>>>,
}

impl Resolver {
    /// The entry of a host, made when it is new.
    pub fn entry(&self, host: &Arc<str>, port: u16) -> Arc<Addresses> {
        let mut hosts = self.hosts.lock();
        let entry = hosts.entry((Arc::clone(host), port));
        Arc::clone(entry.or_insert_with(|| Arc::new(Addresses::new(host, port))))
    }

    /// Asks for every name once; failures are logged and keep what was known.
    pub async fn refresh(&self) {
        let hosts: Vec<_> = self.hosts.lock().values().cloned().collect();
        for addresses in hosts {
            if Arc::strong_count(&addresses) <= 2 {
                // Only the table and this loop know it: no configuration uses it any more.
                self.hosts
                    .lock()
                    .remove(&(Arc::clone(&addresses.host), addresses.port));
                continue;
            }
            if let Err(error) = addresses.resolve().await {
                log::warn!("cannot resolve {}: {error}", addresses.host);
            }
        }
    }

    /// Refreshes for ever.
    pub async fn run(&self) {
        loop {
            self.refresh().await;
            tokio::time::sleep(REFRESH_EVERY).await;
        }
    }
}

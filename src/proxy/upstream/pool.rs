//! Idle HTTP/1.1 connections, by the peer that they lead to.
//!
//! Pingora's pool spawns a task for each connection that it takes, and asks the system for the peer's address before it gives one out; both
//! cost more than a small answer does. Invariants: what is given out was quiet at that moment; an idle connection is closed soon after its
//! time or its server's end of it; no more than a bound are kept.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::socket::Socket;

/// How often connections are looked through: those that are over must not pile up, and a second is soon enough for that.
const SWEEP_INTERVAL: Duration = Duration::from_secs(1);

/// A pool.
#[derive(Clone)]
pub struct Pool {
    shared: Arc<Shared>,
}

struct Shared {
    idle_max: usize,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    peers: HashMap<u64, Vec<Idle>>,
    idle: usize,
    /// Whether a task looks through the connections.
    is_swept: bool,
}

struct Idle {
    socket: Socket,
    until: Option<Instant>,
}

impl Idle {
    fn is_usable(&mut self, now: Instant) -> bool {
        self.until.is_none_or(|until| now < until) && self.socket.is_quiet()
    }
}

impl Pool {
    /// A pool of at most `idle_max` connections.
    pub fn new(idle_max: usize) -> Pool {
        Pool {
            shared: Arc::new(Shared {
                idle_max,
                inner: Mutex::default(),
            }),
        }
    }

    /// The connection to a peer that became idle last.
    pub fn take(&self, peer: u64) -> Option<Socket> {
        let now = Instant::now();
        loop {
            let mut idle = {
                let mut inner = self.shared.inner.lock();
                let idle = inner.peers.get_mut(&peer)?.pop()?;
                inner.idle = inner.idle.saturating_sub(1);
                idle
            };
            if idle.is_usable(now) {
                return Some(idle.socket);
            }
        }
    }

    /// Keeps a connection, for at most `time`. What is not quiet or finds no room is closed.
    pub fn put(&self, peer: u64, mut socket: Socket, time: Option<Duration>) {
        if !socket.is_quiet() {
            return;
        }
        let until = time.map(|time| Instant::now() + time);
        let is_swept = {
            let mut inner = self.shared.inner.lock();
            if inner.idle >= self.shared.idle_max {
                return;
            }
            inner.idle += 1;
            let peers = inner.peers.entry(peer).or_default();
            peers.push(Idle { socket, until });
            std::mem::replace(&mut inner.is_swept, true)
        };
        if !is_swept {
            tokio::spawn(sweep(Arc::downgrade(&self.shared)));
        }
    }
}

/// Closes what is over, until nothing is idle.
async fn sweep(shared: Weak<Shared>) {
    loop {
        tokio::time::sleep(SWEEP_INTERVAL).await;
        let Some(shared) = shared.upgrade() else {
            return;
        };
        let now = Instant::now();
        let mut inner = shared.inner.lock();
        inner.peers.retain(|_, idle| {
            idle.retain_mut(|idle| idle.is_usable(now));
            !idle.is_empty()
        });
        inner.idle = inner.peers.values().map(Vec::len).sum();
        if inner.idle == 0 {
            inner.is_swept = false;
            return;
        }
    }
}

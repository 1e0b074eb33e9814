//! Where a provider is reached: made once for each of its addresses, and shared by all attempts there.

use std::net::SocketAddr;
use std::ops::Deref;
use std::sync::Arc;

use arc_swap::ArcSwap;
use pingora_core::protocols::l4::socket::SocketAddr as PeerAddress;
use pingora_core::upstreams::peer::{HttpPeer, Peer};

/// Addresses of one provider that are remembered. Names have a few; one that changes its addresses forever must not fill the memory.
const ADDRESSES_MAX: usize = 64;

/// A peer with an address.
#[derive(Debug)]
pub struct KnownPeer {
    peer: HttpPeer,
    reuse: u64,
}

impl KnownPeer {
    /// The peer with its reuse key, which takes long to compute.
    pub fn new(peer: HttpPeer) -> KnownPeer {
        let reuse = peer.reuse_hash();
        KnownPeer { peer, reuse }
    }

    /// What two attempts have in common that may use one connection.
    pub fn reuse(&self) -> u64 {
        self.reuse
    }
}

impl Deref for KnownPeer {
    type Target = HttpPeer;

    fn deref(&self) -> &HttpPeer {
        &self.peer
    }
}

/// The peers of a provider.
pub struct Peers {
    template: HttpPeer,
    known: ArcSwap<Vec<(SocketAddr, Arc<KnownPeer>)>>,
}

impl Peers {
    /// The peers that differ from this one in their address alone.
    pub fn new(template: HttpPeer) -> Peers {
        Peers {
            template,
            known: ArcSwap::default(),
        }
    }

    /// The peer at an address.
    pub fn at(&self, address: SocketAddr) -> Arc<KnownPeer> {
        let known = self.known.load();
        if let Some((_, peer)) = known.iter().find(|(at, _)| *at == address) {
            return Arc::clone(peer);
        }
        let mut peer = self.template.clone();
        peer._address = PeerAddress::Inet(address);
        let peer = Arc::new(KnownPeer::new(peer));
        // Two attempts may add the same one, or one forget the other's: either only makes it again.
        let mut more = Vec::clone(&known);
        if more.len() >= ADDRESSES_MAX {
            more.clear();
        }
        more.push((address, Arc::clone(&peer)));
        self.known.store(Arc::new(more));
        peer
    }
}

//! Clients that are known by a key of their own.
//!
//! Not here: where a request carries it. Invariants: a key is kept as its hash alone, and compared without telling by its time how
//! much of it was right; nothing of one is printed.

use std::fmt;
use std::sync::Arc;

use sha2::{Digest, Sha256};

use super::ordering::Client;

/// The keys of known clients.
#[derive(Clone, Default)]
pub struct ClientKeys {
    /// Whether whoever has none of them is refused.
    pub required: bool,
    /// Drawn once a process: a hash tells nothing without it.
    salt: [u8; 32],
    known: Vec<(Arc<str>, [u8; 32])>,
}

impl ClientKeys {
    /// The keys under their names.
    pub fn new<'k>(
        required: bool,
        salt: [u8; 32],
        keys: impl Iterator<Item = (Arc<str>, &'k [u8])>,
    ) -> ClientKeys {
        let mut clients = ClientKeys {
            required,
            salt,
            known: Vec::new(),
        };
        let known = keys.map(|(name, key)| (name, clients.hash(key))).collect();
        clients.known = known;
        clients
    }

    /// Whether any client has a key.
    pub fn has_keys(&self) -> bool {
        !self.known.is_empty()
    }

    /// Names in configured order.
    pub fn names(&self) -> impl Iterator<Item = &Arc<str>> {
        self.known.iter().map(|(name, _)| name)
    }

    /// What the hashes are keyed with; the next snapshot keeps it.
    pub const fn salt(&self) -> [u8; 32] {
        self.salt
    }

    /// Whether two configurations have the same keys.
    pub fn is_same(&self, other: &ClientKeys) -> bool {
        let none = self.known.is_empty() && other.known.is_empty();
        none || (self.salt == other.salt && self.known == other.known)
    }

    /// Who shows these credentials: the first that is known, else the first.
    pub fn identify<'c>(&self, credentials: impl Iterator<Item = &'c [u8]>) -> Client {
        let mut unknown = Client::Absent;
        for credential in credentials {
            let hash = self.hash(credential);
            let mut found = None;
            for (name, known) in &self.known {
                if is_equal(known, &hash) {
                    found = Some(name);
                }
            }
            if let Some(name) = found {
                return Client::Known(Arc::clone(name));
            }
            if unknown == Client::Absent {
                let [a, b, c, d, e, f, g, h, ..] = hash;
                unknown = Client::Unknown(u64::from_le_bytes([a, b, c, d, e, f, g, h]));
            }
        }
        unknown
    }

    fn hash(&self, credential: &[u8]) -> [u8; 32] {
        let salted = Sha256::new().chain_update(self.salt);
        salted.chain_update(credential).finalize().into()
    }
}

/// Looks at every byte, whatever the first ones are.
fn is_equal(a: &[u8; 32], b: &[u8; 32]) -> bool {
    let differences = a.iter().zip(b).fold(0, |all, (a, b)| all | (a ^ b));
    std::hint::black_box(differences) == 0
}

impl fmt::Debug for ClientKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&Arc<str>> = self.names().collect();
        f.debug_struct("ClientKeys")
            .field("required", &self.required)
            .field("names", &names)
            .finish()
    }
}

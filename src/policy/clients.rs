//! Clients that are known by a key of their own.
//!
//! Not here: where a request carries it. Invariants: a key is kept as its hash alone, and compared without telling by its time how
//! much of it was right; nothing of one is printed.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use sha2::{Digest, Sha256};

use super::ordering::Client;
use super::seats::{Seat, Seats};

/// The keys of known clients.
#[derive(Clone, Default)]
pub struct ClientKeys {
    /// Whether whoever has none of them is refused.
    pub required: bool,
    /// Drawn once a process: a hash tells nothing without it.
    salt: [u8; 32],
    known: Vec<Known>,
}

/// A client with a key.
#[derive(Clone)]
struct Known {
    name: Arc<str>,
    hash: [u8; 32],
    in_flight_max: Option<u64>,
    in_flight: Arc<Seats>,
}

/// A client has as many operations under way as it may.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClientFull;

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
        let known = keys.map(|(name, key)| Known {
            name,
            hash: clients.hash(key),
            in_flight_max: None,
            in_flight: Arc::default(),
        });
        clients.known = known.collect();
        clients
    }

    /// The same with limits of operations at once, in configured order. What a client of the same name had under way before still counts.
    pub fn limited(
        mut self,
        limits: impl Iterator<Item = Option<u64>>,
        previous: Option<&ClientKeys>,
    ) -> ClientKeys {
        let before = previous.map(|previous| {
            let seats = previous.known.iter();
            seats.map(|known| (&*known.name, &known.in_flight))
        });
        let before: HashMap<_, _> = before.into_iter().flatten().collect();
        for (known, limit) in self.known.iter_mut().zip(limits) {
            known.in_flight_max = limit;
            if let Some(seats) = before.get(&*known.name) {
                known.in_flight = Arc::clone(seats);
            }
        }
        self
    }

    /// Names with their limits, in configured order.
    pub fn limits(&self) -> impl Iterator<Item = (&Arc<str>, Option<u64>)> {
        let known = self.known.iter();
        known.map(|known| (&known.name, known.in_flight_max))
    }

    /// A seat for an operation of this client; `None` when it is counted by nobody.
    pub fn seat(&self, client: &Client) -> Result<Option<Seat>, ClientFull> {
        let Client::Known(name) = client else {
            return Ok(None);
        };
        let known = self.known.iter().find(|known| known.name == *name);
        let limited = known.and_then(|known| Some((&known.in_flight, known.in_flight_max?)));
        limited
            .map(|(seats, max)| seats.take(max).ok_or(ClientFull))
            .transpose()
    }

    /// Operations of a client under way, as far as they are counted.
    pub fn in_flight(&self, name: &str) -> u64 {
        let known = self.known.iter().find(|known| &*known.name == name);
        known.map_or(0, |known| known.in_flight.taken())
    }

    /// Whether any client has a key.
    pub fn has_keys(&self) -> bool {
        !self.known.is_empty()
    }

    /// Names in configured order.
    pub fn names(&self) -> impl Iterator<Item = &Arc<str>> {
        self.known.iter().map(|known| &known.name)
    }

    /// What the hashes are keyed with; the next snapshot keeps it.
    pub const fn salt(&self) -> [u8; 32] {
        self.salt
    }

    /// Whether two configurations have the same keys.
    pub fn is_same(&self, other: &ClientKeys) -> bool {
        let none = self.known.is_empty() && other.known.is_empty();
        let secrets = |keys: &ClientKeys| -> Vec<_> {
            let known = keys.known.iter();
            known
                .map(|known| (Arc::clone(&known.name), known.hash))
                .collect()
        };
        none || (self.salt == other.salt && secrets(self) == secrets(other))
    }

    /// Who shows these credentials: the first that is known, else the first.
    pub fn identify<'c>(&self, credentials: impl Iterator<Item = &'c [u8]>) -> Client {
        let mut unknown = Client::Absent;
        for credential in credentials {
            let hash = self.hash(credential);
            let mut found = None;
            for known in &self.known {
                if is_equal(&known.hash, &hash) {
                    found = Some(&known.name);
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

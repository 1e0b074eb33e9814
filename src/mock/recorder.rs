//! What a server saw: requests, connections, when clients left; for assertions.
//!
//! Not a log: nothing is written anywhere. A recorder may be shared by several servers, so that their requests stand in one order.
//! Invariants: a request is entered when its header is complete, before anything is answered; entries are only added, never moved.

use std::collections::BTreeMap;
use std::hash::Hasher;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use bytes::Bytes;
use hyper::HeaderMap;
use parking_lot::Mutex;
use tokio::sync::watch;

use super::plan::Place;

/// Bytes of a body that are kept for reading.
pub const BODY_KEPT_MAX: usize = 64 * 1024;
/// Requests that are kept; later ones are only counted. A test that sends more looks at counts.
pub const REQUESTS_MAX: usize = 100_000;

/// One request as it arrived.
#[derive(Debug, Clone)]
pub struct SeenRequest {
    /// When its header was complete.
    pub at: Instant,
    /// Name of the server.
    pub server: Arc<str>,
    /// Number of the connection, from 1, unique in the recorder.
    pub connection_id: u64,
    /// Whether it came over HTTP/2.
    pub is_http2: bool,
    /// Method.
    pub method: String,
    /// Path.
    pub path: String,
    /// Query, without the question mark.
    pub query: Option<String>,
    /// Header fields.
    pub headers: HeaderMap,
    /// Bytes of the body that arrived.
    pub body_len: u64,
    /// [`body_hash`] of the bytes that arrived.
    pub body_hash: u64,
    /// The first [`BODY_KEPT_MAX`] bytes of the body, once it is read.
    pub body: Bytes,
    /// Whether the whole body arrived.
    pub body_complete: bool,
    /// The label of the answer: the preset's name, or what it does in a word.
    pub answer: Option<Arc<str>>,
    /// Where the answer stands in the script.
    pub place: Option<Place>,
    /// When the last byte of the answer was handed to the connection.
    pub answered: Option<Instant>,
    /// When the client left before the answer was complete.
    pub closed_by_client: Option<Instant>,
}

impl SeenRequest {
    /// The value of a header field, when it is text.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    /// The index of the answer in its list.
    pub fn answer_index(&self) -> Option<usize> {
        self.place.as_ref().map(Place::index)
    }

    /// The `x-request-id` field.
    pub fn request_id(&self) -> Option<&str> {
        self.header("x-request-id")
    }
}

/// The hash that [`SeenRequest::body_hash`] holds, for comparison within one process.
pub fn body_hash(body: &[u8]) -> u64 {
    let mut hasher = BodyHasher::default();
    hasher.write(body);
    hasher.finish()
}

/// Hashes a body that arrives in parts; where it is cut makes no difference.
pub(super) type BodyHasher = std::hash::DefaultHasher;

/// How much is recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Depth {
    /// Every request, up to [`REQUESTS_MAX`].
    Requests,
    /// Counts alone; for load tests.
    Counts,
}

/// The records of one or more servers. Clones share them.
#[derive(Debug, Clone)]
pub struct Recorder(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    depth: Depth,
    requests: Mutex<Vec<SeenRequest>>,
    sends: AtomicU64,
    bodies: AtomicU64,
    connections_opened: AtomicU64,
    connections_closed: AtomicU64,
    changed: watch::Sender<u64>,
}

/// The number of a kept request.
pub(super) type Entry = Option<usize>;

impl Default for Recorder {
    fn default() -> Recorder {
        Recorder::new(Depth::Requests)
    }
}

impl Recorder {
    /// An empty recorder.
    pub fn new(depth: Depth) -> Recorder {
        Recorder(Arc::new(Inner {
            depth,
            requests: Mutex::default(),
            sends: AtomicU64::new(0),
            bodies: AtomicU64::new(0),
            connections_opened: AtomicU64::new(0),
            connections_closed: AtomicU64::new(0),
            changed: watch::Sender::new(0),
        }))
    }

    /// How much is recorded.
    pub fn depth(&self) -> Depth {
        self.0.depth
    }

    /// The requests so far, in order of arrival.
    pub fn requests(&self) -> Vec<SeenRequest> {
        self.0.requests.lock().clone()
    }

    /// The requests so far of one server.
    pub fn requests_of(&self, server: &str) -> Vec<SeenRequest> {
        let requests = self.0.requests.lock();
        requests
            .iter()
            .filter(|seen| &*seen.server == server)
            .cloned()
            .collect()
    }

    /// Requests whose header arrived.
    pub fn sends(&self) -> u64 {
        self.0.sends.load(Ordering::SeqCst)
    }

    /// Requests whose body arrived whole.
    pub fn bodies(&self) -> u64 {
        self.0.bodies.load(Ordering::SeqCst)
    }

    /// Connections that were accepted.
    pub fn connections_opened(&self) -> u64 {
        self.0.connections_opened.load(Ordering::SeqCst)
    }

    /// Connections that have ended.
    pub fn connections_closed(&self) -> u64 {
        self.0.connections_closed.load(Ordering::SeqCst)
    }

    /// The request ids that arrived in full more than once, and how often.
    pub fn duplicates(&self) -> BTreeMap<String, usize> {
        let mut counts = BTreeMap::new();
        for seen in self
            .0
            .requests
            .lock()
            .iter()
            .filter(|seen| seen.body_complete)
        {
            if let Some(id) = seen.request_id() {
                *counts.entry(id.to_owned()).or_insert(0) += 1;
            }
        }
        counts.retain(|_, count| *count > 1);
        counts
    }

    /// Waits until so many request headers have arrived.
    pub async fn wait_for(&self, count: usize) -> Vec<SeenRequest> {
        self.wait_until(|requests| requests.len() >= count).await
    }

    /// Waits until so many requests have arrived whole.
    pub async fn wait_for_bodies(&self, count: usize) -> Vec<SeenRequest> {
        self.wait_until(|requests| {
            requests.iter().filter(|seen| seen.body_complete).count() >= count
        })
        .await
    }

    /// Waits until the client has left so many requests unfinished.
    pub async fn wait_for_closed(&self, count: usize) -> Vec<SeenRequest> {
        self.wait_until(|requests| {
            requests
                .iter()
                .filter(|seen| seen.closed_by_client.is_some())
                .count()
                >= count
        })
        .await
    }

    /// Waits until the requests so far satisfy a condition, and returns them. Needs [`Depth::Requests`]. Never ends if the condition is never met: give it a timeout.
    pub async fn wait_until(&self, met: impl Fn(&[SeenRequest]) -> bool) -> Vec<SeenRequest> {
        let mut changes = self.0.changed.subscribe();
        loop {
            changes.mark_unchanged();
            {
                let requests = self.0.requests.lock();
                if met(&requests) {
                    return requests.clone();
                }
            }
            // The sender lives as long as this recorder.
            let _ = changes.changed().await;
        }
    }

    /// Waits until so many connections have ended.
    pub async fn wait_for_connections_closed(&self, count: u64) {
        let mut changes = self.0.changed.subscribe();
        loop {
            changes.mark_unchanged();
            if self.connections_closed() >= count {
                return;
            }
            let _ = changes.changed().await;
        }
    }

    pub(super) fn connection_opened(&self) -> u64 {
        let id = self.0.connections_opened.fetch_add(1, Ordering::SeqCst) + 1;
        self.notify();
        id
    }

    pub(super) fn connection_closed(&self) {
        self.0.connections_closed.fetch_add(1, Ordering::SeqCst);
        self.notify();
    }

    /// Enters a request; `seen` is called only when requests are kept.
    pub(super) fn enter(&self, seen: impl FnOnce() -> SeenRequest) -> Entry {
        self.0.sends.fetch_add(1, Ordering::SeqCst);
        if self.0.depth == Depth::Counts {
            return None;
        }
        let entry = {
            let mut requests = self.0.requests.lock();
            let number = requests.len();
            if number < REQUESTS_MAX {
                requests.push(seen());
            }
            (number < REQUESTS_MAX).then_some(number)
        };
        self.notify();
        entry
    }

    pub(super) fn body_completed(&self) {
        self.0.bodies.fetch_add(1, Ordering::SeqCst);
    }

    pub(super) fn update(&self, entry: Entry, change: impl FnOnce(&mut SeenRequest)) {
        let Some(number) = entry else { return };
        if let Some(seen) = self.0.requests.lock().get_mut(number) {
            change(seen);
        }
        self.notify();
    }

    fn notify(&self) {
        if self.0.depth == Depth::Requests {
            self.0
                .changed
                .send_modify(|version| *version = version.wrapping_add(1));
        }
    }
}

//! Reading a request: its header into a record, its body to the end, what it asks for.

use std::hash::Hasher;
use std::sync::Arc;
use std::time::Instant;

use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::http::request::Parts;

use super::ask::Ask;
use super::connection::Protocol;
use super::recorder::{BODY_KEPT_MAX, BodyHasher, Depth, Entry, Recorder, SeenRequest};

/// Bytes of a body that are held to find the model in; above, they are only counted and hashed.
const BODY_READ_MAX: usize = 64 << 20;

/// The record of a request whose header is complete.
pub(super) fn seen(server: &Arc<str>, id: u64, protocol: Protocol, head: &Parts) -> SeenRequest {
    SeenRequest {
        at: Instant::now(),
        server: Arc::clone(server),
        connection_id: id,
        is_http2: protocol == Protocol::Http2,
        method: head.method.as_str().to_owned(),
        path: head.uri.path().to_owned(),
        query: head.uri.query().map(str::to_owned),
        headers: head.headers.clone(),
        body_len: 0,
        body_hash: 0,
        body: Bytes::new(),
        body_complete: false,
        answer: None,
        place: None,
        answered: None,
        closed_by_client: None,
    }
}

/// What the request asks for.
pub(super) fn ask<'a>(head: &'a Parts, body: &[u8]) -> Ask<'a> {
    Ask::read(head.uri.path(), head.uri.query(), body)
}

/// Reads a body whole; `None` when it broke off.
pub(super) async fn read(body: Incoming, recorder: &Recorder, entry: Entry) -> Option<Bytes> {
    let mut intake = Intake::new(recorder.depth());
    let is_complete = intake.run(body).await;
    let read = intake.note(recorder, entry, is_complete);
    is_complete.then_some(read)
}

/// Reads what is left of a request that was answered early, for the record.
pub(super) async fn drain(body: Incoming, recorder: Recorder, entry: Entry) {
    let mut intake = Intake::new(recorder.depth());
    let is_complete = intake.run(body).await;
    intake.note(&recorder, entry, is_complete);
}

struct Intake {
    hasher: Option<BodyHasher>,
    len: u64,
    /// The first frame is kept as it came: most bodies are one frame.
    first: Bytes,
    rest: BytesMut,
}

impl Intake {
    fn new(depth: Depth) -> Intake {
        let hasher = (depth == Depth::Requests).then(BodyHasher::default);
        Intake {
            hasher,
            len: 0,
            first: Bytes::new(),
            rest: BytesMut::new(),
        }
    }

    /// Reads to the end; false when the body broke off.
    async fn run(&mut self, mut body: Incoming) -> bool {
        while let Some(frame) = body.frame().await {
            let Ok(frame) = frame else { return false };
            if let Ok(data) = frame.into_data() {
                self.add(data);
            }
        }
        true
    }

    fn add(&mut self, data: Bytes) {
        if let Some(hasher) = &mut self.hasher {
            hasher.write(&data);
        }
        if self.len == 0 {
            self.first = data.clone();
        } else if self.rest.len() < BODY_READ_MAX {
            if self.rest.is_empty() {
                self.rest.extend_from_slice(&self.first);
            }
            self.rest.extend_from_slice(&data);
        }
        self.len += data.len() as u64;
    }

    /// Records what was read and returns it.
    fn note(self, recorder: &Recorder, entry: Entry, is_complete: bool) -> Bytes {
        let Intake {
            hasher,
            len,
            first,
            rest,
        } = self;
        let read = if rest.is_empty() {
            first
        } else {
            rest.freeze()
        };
        if is_complete {
            recorder.body_completed();
        }
        recorder.update(entry, |seen| {
            seen.body_len = len;
            seen.body_hash = hasher.map_or(0, |hasher| hasher.finish());
            // A copy, so that a record of a large body does not hold all of it.
            seen.body = Bytes::copy_from_slice(read.get(..BODY_KEPT_MAX).unwrap_or(&read));
            seen.body_complete = is_complete;
        });
        read
    }
}

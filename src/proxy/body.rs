//! The client's request body: read once, within bounds of size, time and the process's memory.
//!
//! Not here: what the bytes mean. Invariant: what is held is reserved, and the reservation lives as long as the bytes.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use pingora_core::{Error, Result};
use tokio::time::{Instant, timeout, timeout_at};

use super::downstream::Downstream;
use super::downstream::http1::Http1;
use crate::policy::buffered::{BufferedBytes, Reservation};
use crate::policy::pace::Pace;

/// Reserved for a body of unknown length before it is read, and added each time that much more has come.
const RESERVE_STEP: u64 = 256 << 10;

/// Bytes that are gathered in one piece while the length of a body is not known.
const BLOCK_BYTES: usize = 1 << 20;
/// How many of the longest pauses a whole upload may take: ten minutes by default, for a client that drips bytes just in time.
const UPLOAD_PAUSES_MAX: u32 = 10;
/// Largest body that is read for the sake of its connection: about what a new one would cost.
const SKIP_BYTES_MAX: u64 = 64 << 10;
/// Bytes that a refused client may still send before its connection is cut: a usual body, as large as one may be by default.
const LINGER_BYTES_MAX: usize = 32 << 20;
/// Time for that. Who has not noticed the answer by then has to live with the reset.
const LINGER_TIME_MAX: Duration = Duration::from_secs(2);

/// Bounds of one body.
pub struct BodyBounds<'a> {
    /// Largest body.
    pub size_max: usize,
    /// Bytes held over the whole process.
    pub held_max: u64,
    /// Longest pause between two reads, and the least rate. Pingora 0.9.1 has neither of its own for HTTP/2.
    pub pace: Pace,
    /// The process's account.
    pub account: &'a Arc<BufferedBytes>,
}

/// A held body.
#[derive(Debug)]
pub struct HeldBody {
    /// The bytes, in one piece.
    pub bytes: Bytes,
    /// What they take of the process's account.
    pub reservation: Reservation,
}

/// Why there is no body.
#[derive(Debug)]
pub enum BodyError {
    /// It is, or says it is, larger than the bound.
    TooLarge,
    /// The process holds as much as it may.
    NoCapacity,
    /// The client paused too long.
    TooSlow,
    /// Fields came behind it. Pingora 0.9.1 never takes them, and asks for more of the body without end while the answer is awaited
    /// (`hostile_h2_requests::trailers_are_not_taken`).
    Trailers,
    /// The client left, or broke the framing.
    Gone(Box<Error>),
}

/// Takes what the body will need of the process's account, before any of it is read. `content_length` is what the header says.
pub fn reserve(
    content_length: Option<u64>,
    bounds: &BodyBounds<'_>,
) -> Result<Reservation, BodyError> {
    let size_max = u64::try_from(bounds.size_max).unwrap_or(u64::MAX);
    if content_length.is_some_and(|length| length > size_max) {
        return Err(BodyError::TooLarge);
    }
    let first = content_length.unwrap_or(RESERVE_STEP.min(size_max));
    bounds
        .account
        .reserve(first, bounds.held_max)
        .ok_or(BodyError::NoCapacity)
}

/// The share of a request without a body.
pub fn reserve_nothing(account: &Arc<BufferedBytes>) -> Reservation {
    account.nothing()
}

/// Reads the whole body.
pub async fn read(
    client: &mut Downstream,
    content_length: Option<u64>,
    reservation: Reservation,
    bounds: &BodyBounds<'_>,
) -> Result<HeldBody, BodyError> {
    let length = content_length.and_then(|length| usize::try_from(length).ok());
    match (client, length) {
        (Downstream::Http1(client), Some(length)) => {
            let upload = Upload::begin(bounds);
            while client.gathered(length) < length {
                let moved = client.gathered(length);
                let read = upload.wait(moved, client.gather_body(length)).await?;
                read.map_err(BodyError::Gone)?;
            }
            let bytes = client.read_body().await.map_err(BodyError::Gone)?;
            let bytes = bytes.unwrap_or_default();
            Ok(HeldBody { bytes, reservation })
        }
        (client, _) => read_parts(client, content_length, reservation, bounds).await,
    }
}

/// Reads a body whose length is not known, or only promised.
async fn read_parts(
    client: &mut Downstream,
    content_length: Option<u64>,
    mut reservation: Reservation,
    bounds: &BodyBounds<'_>,
) -> Result<HeldBody, BodyError> {
    let mut parts = Parts::new(content_length);
    let upload = Upload::begin(bounds);
    loop {
        let read = upload.wait(parts.len, client.read_body()).await?;
        let Some(part) = read.map_err(BodyError::Gone)? else {
            break;
        };
        parts.push(part);
        if parts.len > bounds.size_max {
            return Err(BodyError::TooLarge);
        }
        let held = u64::try_from(parts.len).unwrap_or(u64::MAX);
        while reservation.bytes() < held {
            if !reservation.grow(RESERVE_STEP, bounds.held_max) {
                return Err(BodyError::NoCapacity);
            }
        }
    }
    if !client.is_body_read() {
        return Err(BodyError::Trailers);
    }
    let bytes = parts.join();
    reservation.shrink_to(u64::try_from(bytes.len()).unwrap_or(u64::MAX));
    Ok(HeldBody { bytes, reservation })
}

/// The times of an upload.
struct Upload<'a> {
    begun: Instant,
    pace: &'a Pace,
}

impl<'a> Upload<'a> {
    fn begin(bounds: &'a BodyBounds<'_>) -> Upload<'a> {
        Upload {
            begun: Instant::now(),
            pace: &bounds.pace,
        }
    }

    /// Waits for a read, when so much has come.
    async fn wait<T>(&self, moved: usize, read: impl Future<Output = T>) -> Result<T, BodyError> {
        let moved = u64::try_from(moved).unwrap_or(u64::MAX);
        let pause_max = self.pace.pause_max;
        let whole_max = pause_max.saturating_mul(UPLOAD_PAUSES_MAX);
        let due = self.begun + whole_max.min(self.pace.due(moved));
        let due = due.min(Instant::now() + pause_max);
        timeout_at(due, read).await.map_err(|_| BodyError::TooSlow)
    }
}

/// Reads and forgets a small body that nobody wants, so that its connection can go on.
pub async fn skip(client: &mut Downstream) {
    if !is_small(client) {
        return;
    }
    let read = async { while let Ok(Some(_)) = client.read_body().await {} };
    let _ = timeout(LINGER_TIME_MAX, read).await;
}

/// Whether a body is coming that is small enough to be read for nothing.
pub fn is_small(client: &Downstream) -> bool {
    let length = client.length().and_then(Result::ok);
    !client.expects() && length.is_some_and(|length| length <= SKIP_BYTES_MAX)
}

/// Reads and forgets what a refused client still sends, within bounds, so that it gets to read its answer: closing a connection with
/// unread bytes resets it, and a reset overtakes the answer.
pub async fn linger(client: &mut Http1) {
    client.shutdown().await;
    let read = async {
        let mut bytes = 0;
        loop {
            let part = client.discard().await;
            bytes += part;
            if part == 0 || bytes > LINGER_BYTES_MAX {
                break;
            }
        }
    };
    let _ = timeout(LINGER_TIME_MAX, read).await;
}

/// The parts of a body as they come, gathered in one piece. With a known length its place is reserved at once; memory that is not reached
/// is never touched, so a length that lies costs nothing. Without one they are gathered in blocks until the last has come: one piece that
/// grows would be copied again and again, with both copies held.
struct Parts {
    first: Option<Bytes>,
    blocks: Vec<Vec<u8>>,
    /// Room of each block.
    room: usize,
    len: usize,
}

impl Parts {
    fn new(content_length: Option<u64>) -> Parts {
        let expected = content_length.and_then(|length| usize::try_from(length).ok());
        Parts {
            first: None,
            blocks: Vec::new(),
            room: expected.unwrap_or(BLOCK_BYTES),
            len: 0,
        }
    }

    fn push(&mut self, part: Bytes) {
        self.len += part.len();
        // Most bodies come in one part: no copy.
        if self.first.is_none() && self.blocks.is_empty() {
            self.first = Some(part);
            return;
        }
        if let Some(first) = self.first.take() {
            self.copy(&first);
        }
        self.copy(&part);
    }

    fn copy(&mut self, mut part: &[u8]) {
        while !part.is_empty() {
            let room = self.room.max(1);
            if self.blocks.last().is_none_or(|block| block.len() >= room) {
                self.blocks.push(Vec::with_capacity(room));
            }
            let Some(block) = self.blocks.last_mut() else {
                return;
            };
            let taken = part.len().min(room.saturating_sub(block.len()));
            let (now, later) = part.split_at_checked(taken).unwrap_or((part, &[]));
            block.extend_from_slice(now);
            part = later;
        }
    }

    fn join(mut self) -> Bytes {
        if let Some(first) = self.first {
            return first;
        }
        if self.blocks.len() <= 1 {
            return Bytes::from(self.blocks.pop().unwrap_or_default());
        }
        let mut whole = Vec::with_capacity(self.len);
        for block in self.blocks.drain(..) {
            whole.extend_from_slice(&block);
        }
        Bytes::from(whole)
    }
}

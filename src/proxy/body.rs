//! The client's request body: read once, within bounds of size, time and the process's memory.
//!
//! Not here: what the bytes mean. Invariant: what is held is reserved, and the reservation lives as long as the bytes.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use pingora_core::protocols::http::ServerSession;
use tokio::time::{Instant, timeout, timeout_at};

use crate::policy::buffered::{BufferedBytes, Reservation};
use crate::policy::pace::Pace;

/// Reserved for a body of unknown length before it is read, and added each time that much more has come.
const RESERVE_STEP: u64 = 256 << 10;

/// Bytes that are gathered in one piece while the length of a body is not known.
const BLOCK_BYTES: usize = 1 << 20;
/// How many of the longest pauses a whole upload may take: ten minutes by default, for a client that drips bytes just in time.
const UPLOAD_PAUSES_MAX: u32 = 10;
/// Largest body that is read for the sake of its connection: about what a new one would cost.
const SKIP_BYTES_MAX: usize = 64 << 10;
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
    Gone(Box<pingora_core::Error>),
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
    session: &mut ServerSession,
    content_length: Option<u64>,
    mut reservation: Reservation,
    bounds: &BodyBounds<'_>,
) -> Result<HeldBody, BodyError> {
    let mut parts = Parts::new(content_length);
    let (begun, pause_max) = (Instant::now(), bounds.pace.pause_max);
    let whole_max = pause_max.saturating_mul(UPLOAD_PAUSES_MAX);
    loop {
        let moved = u64::try_from(parts.len).unwrap_or(u64::MAX);
        let due = begun + whole_max.min(bounds.pace.due(moved));
        let due = due.min(Instant::now() + pause_max);
        let read = timeout_at(due, session.read_request_body()).await;
        let Some(part) = read
            .map_err(|_| BodyError::TooSlow)?
            .map_err(BodyError::Gone)?
        else {
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
    if session.is_http2() && !session.is_body_done() {
        return Err(BodyError::Trailers);
    }
    let bytes = parts.join();
    reservation.shrink_to(u64::try_from(bytes.len()).unwrap_or(u64::MAX));
    Ok(HeldBody { bytes, reservation })
}

/// Reads and forgets a small body that nobody wants, so that its connection can go on.
pub async fn skip(session: &mut ServerSession) {
    if !is_small(session) {
        return;
    }
    let read = async { while let Ok(Some(_)) = session.read_request_body().await {} };
    let _ = timeout(LINGER_TIME_MAX, read).await;
}

/// Lets a small body pass after its answer, so that its connection can go on: for who is told at once, and not only when he has sent all.
pub fn pass_over(session: &mut ServerSession) -> bool {
    let passes = is_small(session);
    if passes {
        session.set_close_on_response_before_downstream_finish(false);
        session.set_total_drain_timeout(Some(LINGER_TIME_MAX));
    }
    passes
}

/// Whether a body is coming that is small enough to be read for nothing.
fn is_small(session: &ServerSession) -> bool {
    let length = session.get_header(http::header::CONTENT_LENGTH);
    let length = length.and_then(|value| value.to_str().ok()?.parse().ok());
    let expects = session.get_header(http::header::EXPECT).is_some();
    !expects && length.is_some_and(|length: usize| length <= SKIP_BYTES_MAX)
}

/// Reads and forgets what a refused client still sends, within bounds, so that it gets to read its answer: closing a connection with
/// unread bytes resets it, and a reset overtakes the answer.
pub async fn linger(session: &mut ServerSession) {
    session.shutdown().await;
    let read = async {
        let mut bytes = 0;
        while let Ok(Some(part)) = session.read_request_body().await {
            bytes += part.len();
            if bytes > LINGER_BYTES_MAX {
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

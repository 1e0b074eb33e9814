//! The client's request body: read once, within bounds of size, time and the process's memory.
//!
//! Not here: what the bytes mean. Invariant: what is held is reserved, and the reservation lives as long as the bytes.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use pingora_core::protocols::http::ServerSession;
use tokio::time::timeout;

use crate::policy::buffered::{BufferedBytes, Reservation};

/// Reserved for a body of unknown length before it is read, and added each time that much more has come.
const RESERVE_STEP: u64 = 256 << 10;

/// Bounds of one body.
pub struct BodyBounds<'a> {
    /// Largest body.
    pub size_max: usize,
    /// Bytes held over the whole process.
    pub held_max: u64,
    /// Longest pause between two reads. Pingora 0.9.1 has none of its own for HTTP/2.
    pub pause_max: Duration,
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
    /// The client left, or broke the framing.
    Gone(Box<pingora_core::Error>),
}

/// Reads the whole body. `content_length` is what the header says.
pub async fn read(
    session: &mut ServerSession,
    content_length: Option<u64>,
    bounds: &BodyBounds<'_>,
) -> Result<HeldBody, BodyError> {
    let size_max = u64::try_from(bounds.size_max).unwrap_or(u64::MAX);
    if content_length.is_some_and(|length| length > size_max) {
        return Err(BodyError::TooLarge);
    }
    let first = content_length.unwrap_or(RESERVE_STEP.min(size_max));
    let mut reservation = bounds
        .account
        .reserve(first, bounds.held_max)
        .ok_or(BodyError::NoCapacity)?;
    let mut parts = Parts::new(content_length);
    loop {
        let read = timeout(bounds.pause_max, session.read_request_body()).await;
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
    let bytes = parts.join();
    reservation.shrink_to(u64::try_from(bytes.len()).unwrap_or(u64::MAX));
    Ok(HeldBody { bytes, reservation })
}

/// The parts of a body as they come. With a known length they are copied into their place at once; memory that is not reached is
/// never touched, so a length that lies costs nothing. Without one they are kept and joined at the end.
struct Parts {
    first: Option<Bytes>,
    rest: Vec<Bytes>,
    whole: Vec<u8>,
    expected: Option<usize>,
    len: usize,
}

impl Parts {
    fn new(content_length: Option<u64>) -> Parts {
        let expected = content_length.and_then(|length| usize::try_from(length).ok());
        Parts {
            first: None,
            rest: Vec::new(),
            whole: Vec::new(),
            expected,
            len: 0,
        }
    }

    fn push(&mut self, part: Bytes) {
        self.len += part.len();
        match (self.expected, self.first.take()) {
            // Most bodies come in one part: no copy.
            (_, None) if self.whole.is_empty() && self.rest.is_empty() => self.first = Some(part),
            (Some(expected), first) => {
                if let Some(first) = first {
                    self.whole.reserve_exact(expected);
                    self.whole.extend_from_slice(&first);
                }
                self.whole.extend_from_slice(&part);
            }
            (None, first) => {
                self.rest.extend(first);
                self.rest.push(part);
            }
        }
    }

    fn join(self) -> Bytes {
        if let Some(only) = self.first {
            return only;
        }
        if self.rest.is_empty() {
            return Bytes::from(self.whole);
        }
        let mut whole = Vec::with_capacity(self.len);
        for part in self.rest {
            whole.extend_from_slice(&part);
        }
        Bytes::from(whole)
    }
}

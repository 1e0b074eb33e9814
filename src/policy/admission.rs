//! Who may sleep between rounds: a bound on sleepers and on the bytes they hold, per route (R-B6).

use std::sync::Arc;

use super::sync::{AtomicU64, Ordering};
use crate::core::limits::{WAITERS_PER_ROUTE_MAX, WAITING_BYTES_PER_ROUTE_MAX};

const BYTES_BITS: u32 = 48;
const BYTES_MASK: u64 = (1 << BYTES_BITS) - 1;

/// Counts the sleepers of one route and the bytes they hold in one word, so that both bounds are checked and taken in one step.
#[derive(Debug)]
pub struct Waiters {
    /// Sleepers in the high 16 bits, bytes in the low 48.
    word: AtomicU64,
    slots_max: u16,
    bytes_max: u64,
}

impl Default for Waiters {
    fn default() -> Self {
        Waiters::new(WAITERS_PER_ROUTE_MAX, WAITING_BYTES_PER_ROUTE_MAX)
    }
}

impl Waiters {
    /// An empty waiting room with these bounds; `bytes_max` is cut to 2^48 - 1.
    pub fn new(slots_max: u16, bytes_max: u64) -> Waiters {
        Waiters {
            word: AtomicU64::new(0),
            slots_max,
            bytes_max: bytes_max.min(BYTES_MASK),
        }
    }

    /// Takes a slot for a sleeper that holds `bytes`, or `None` when either bound would be passed.
    pub fn enter(self: &Arc<Self>, bytes: u64) -> Option<WaitPermit> {
        let mut word = self.word.load(Ordering::Relaxed);
        loop {
            let (slots, held) = (word >> BYTES_BITS, word & BYTES_MASK);
            let total = held
                .checked_add(bytes)
                .filter(|total| *total <= self.bytes_max)?;
            if slots >= u64::from(self.slots_max) {
                return None;
            }
            let next = ((slots + 1) << BYTES_BITS) | total;
            match self
                .word
                .compare_exchange_weak(word, next, Ordering::AcqRel, Ordering::Relaxed)
            {
                Ok(_) => {
                    return Some(WaitPermit {
                        room: Arc::clone(self),
                        bytes,
                    });
                }
                Err(seen) => word = seen,
            }
        }
    }

    /// Sleepers at this moment.
    pub fn waiting(&self) -> u64 {
        self.word.load(Ordering::Relaxed) >> BYTES_BITS
    }

    /// Bytes they hold.
    pub fn waiting_bytes(&self) -> u64 {
        self.word.load(Ordering::Relaxed) & BYTES_MASK
    }
}

/// A slot in the waiting room; dropping it gives the slot and its bytes back.
#[derive(Debug)]
#[must_use]
pub struct WaitPermit {
    room: Arc<Waiters>,
    bytes: u64,
}

impl Drop for WaitPermit {
    fn drop(&mut self) {
        self.room
            .word
            .fetch_sub((1 << BYTES_BITS) | self.bytes, Ordering::AcqRel);
    }
}

//! Bytes of request bodies held over the whole process (R-B7).

use std::sync::Arc;

use super::sync::{AtomicU64, Ordering};

/// The process's account of held body bytes.
#[derive(Debug, Default)]
pub struct BufferedBytes {
    held: AtomicU64,
}

impl BufferedBytes {
    /// Takes `bytes` unless the total would pass `max`.
    pub fn reserve(self: &Arc<Self>, bytes: u64, max: u64) -> Option<Reservation> {
        self.take(bytes, max).then(|| Reservation {
            account: Arc::clone(self),
            bytes,
        })
    }

    /// A share of no bytes, which there is always room for.
    pub fn nothing(self: &Arc<Self>) -> Reservation {
        Reservation {
            account: Arc::clone(self),
            bytes: 0,
        }
    }

    fn take(&self, bytes: u64, max: u64) -> bool {
        let mut held = self.held.load(Ordering::Relaxed);
        loop {
            let Some(total) = held.checked_add(bytes).filter(|total| *total <= max) else {
                return false;
            };
            match self
                .held
                .compare_exchange_weak(held, total, Ordering::AcqRel, Ordering::Relaxed)
            {
                Ok(_) => return true,
                Err(seen) => held = seen,
            }
        }
    }

    /// Bytes held at this moment.
    pub fn held(&self) -> u64 {
        self.held.load(Ordering::Relaxed)
    }
}

/// A share of the account; dropping it gives the bytes back.
#[derive(Debug)]
#[must_use]
pub struct Reservation {
    account: Arc<BufferedBytes>,
    bytes: u64,
}

impl Reservation {
    /// Adds `more` to this share unless the total would pass `max`; says whether it did.
    pub fn grow(&mut self, more: u64, max: u64) -> bool {
        let taken = self.account.take(more, max);
        if taken {
            self.bytes += more;
        }
        taken
    }

    /// Gives back all but `bytes`.
    pub fn shrink_to(&mut self, bytes: u64) {
        let surplus = self.bytes.saturating_sub(bytes);
        self.account.held.fetch_sub(surplus, Ordering::AcqRel);
        self.bytes -= surplus;
    }

    /// Bytes of this share.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.account.held.fetch_sub(self.bytes, Ordering::AcqRel);
    }
}

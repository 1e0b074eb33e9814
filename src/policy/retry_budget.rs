//! How many extra sends a route may make: a share of its operations over a sliding window, plus a floor for every second.
//!
//! Charged when an extra send is scheduled, not when it leaves: what still sleeps counts (C22). Deposits come from operations, never from
//! retries, so that the budget does not starve itself (C23). Not here: which sends are extra; that is the executor's.
//! Invariant: at no moment does a window hold more charges than its operations and its floor allow. A charge is counted first and looked
//! at afterwards, so two that race for the last place may both be refused, and never both be given it.

use super::sync::{AtomicU64, Ordering};
use crate::core::limits::{
    RETRY_BUDGET_FLOOR_PER_SECOND, RETRY_BUDGET_PERCENT, RETRY_BUDGET_SECONDS,
};
use crate::core::time::MonoTime;

const MICROS: u64 = 1_000_000;
/// The current second and the whole window before it, so that any ten seconds are covered.
const BUCKETS: usize = RETRY_BUDGET_SECONDS as usize + 1;
const COUNT_BITS: u32 = 32;
const COUNT_MASK: u64 = (1 << COUNT_BITS) - 1;

/// The retry budget of one route.
#[derive(Debug)]
pub struct RetryBudget {
    operations: Window,
    charges: Window,
    percent: u64,
    floor_per_second: u64,
}

impl Default for RetryBudget {
    fn default() -> Self {
        RetryBudget::new(RETRY_BUDGET_PERCENT, RETRY_BUDGET_FLOOR_PER_SECOND)
    }
}

impl RetryBudget {
    /// A budget of so many charges for a hundred operations, and so many a second besides.
    pub fn new(percent: u64, floor_per_second: u64) -> RetryBudget {
        RetryBudget {
            operations: Window::default(),
            charges: Window::default(),
            percent,
            floor_per_second,
        }
    }

    /// An operation begins: its share is deposited.
    pub fn deposit(&self, now: MonoTime) {
        self.operations.add(second(now));
    }

    /// Takes one extra send, or says that there is none.
    pub fn charge(&self, now: MonoTime) -> bool {
        let second = second(now);
        let counted_in = self.charges.add(second);
        let fits = self.charges.sum(second) <= self.allowed(second);
        if !fits {
            self.charges.take_back(counted_in);
        }
        fits
    }

    /// Whether a charge would be given at this moment.
    pub fn has_room(&self, now: MonoTime) -> bool {
        let second = second(now);
        self.charges.sum(second) < self.allowed(second)
    }

    /// Charges for a hundred operations, and for a second besides.
    pub fn terms(&self) -> (u64, u64) {
        (self.percent, self.floor_per_second)
    }

    /// Charges that would still be given at this moment.
    pub fn left(&self, now: MonoTime) -> u64 {
        let second = second(now);
        let allowed = self.allowed(second);
        allowed.saturating_sub(self.charges.sum(second))
    }

    /// Charges of the window that ends now.
    pub fn charged(&self, now: MonoTime) -> u64 {
        self.charges.sum(second(now))
    }

    fn allowed(&self, second: u64) -> u64 {
        let share = self.operations.sum(second).saturating_mul(self.percent) / 100;
        share.saturating_add(self.floor_per_second * RETRY_BUDGET_SECONDS)
    }
}

/// Counts by second. A bucket holds its second in the high half and the count in the low one, so both change in one step.
#[derive(Debug)]
struct Window([AtomicU64; BUCKETS]);

impl Default for Window {
    fn default() -> Self {
        Window(std::array::from_fn(|_| AtomicU64::new(0)))
    }
}

impl Window {
    /// Counts one, and says in which second. One whose clock is behind counts in the bucket's own second.
    fn add(&self, second: u64) -> u64 {
        let Some(bucket) = self.bucket(second) else {
            return second;
        };
        let mut word = bucket.load(Ordering::SeqCst);
        loop {
            let (own, count) = (word >> COUNT_BITS, word & COUNT_MASK);
            let (own, count) = match own < second {
                true => (second, 1),
                false => (own, (count + 1).min(COUNT_MASK)),
            };
            let next = (own << COUNT_BITS) | count;
            match bucket.compare_exchange_weak(word, next, Ordering::SeqCst, Ordering::SeqCst) {
                Ok(_) => return own,
                Err(seen) => word = seen,
            }
        }
    }

    /// Undoes one [`Window::add`], unless its second has made way for another.
    fn take_back(&self, second: u64) {
        let Some(bucket) = self.bucket(second) else {
            return;
        };
        let mut word = bucket.load(Ordering::SeqCst);
        while word >> COUNT_BITS == second && word & COUNT_MASK > 0 {
            let result =
                bucket.compare_exchange_weak(word, word - 1, Ordering::SeqCst, Ordering::SeqCst);
            match result {
                Ok(_) => return,
                Err(seen) => word = seen,
            }
        }
    }

    /// What was counted in the window that ends with this second.
    fn sum(&self, second: u64) -> u64 {
        let oldest = second.saturating_sub(RETRY_BUDGET_SECONDS);
        let words = self.0.iter().map(|bucket| bucket.load(Ordering::SeqCst));
        let recent = words.filter(|word| word >> COUNT_BITS >= oldest);
        recent.map(|word| word & COUNT_MASK).sum()
    }

    fn bucket(&self, second: u64) -> Option<&AtomicU64> {
        let index = second % u64::try_from(BUCKETS).unwrap_or(1);
        self.0.get(usize::try_from(index).unwrap_or_default())
    }
}

/// The second of an instant. A process that lives 136 years counts on in the last one.
fn second(now: MonoTime) -> u64 {
    (now.as_micros() / MICROS).min(COUNT_MASK)
}

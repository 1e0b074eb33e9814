//! What routes count with: numbers that lie side by side, so that a request touches a few cache lines, however many routes there are.
//!
//! Not here: names, labels, the text of a scrape ([`super::scrape`]). Invariants: numbers only go up; what was counted is counted once,
//! by whichever thread.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{OnceLock, PoisonError, RwLock};
use std::time::Duration;

use foldhash::fast::RandomState;

/// Kinds that are found without a lock: more than the ways in which most routes' requests ever end.
const NEAR: usize = 8;

/// A counter.
#[derive(Debug, Default)]
pub(super) struct Count(AtomicU64);

impl Count {
    /// One more.
    pub(super) fn inc(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// How many there were.
    pub(super) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A histogram of durations with `N` upper bounds, in seconds, ascending. Its count is that of its buckets; its sum is read apart, and may
/// lack what is being observed at that moment.
#[derive(Debug)]
pub(super) struct Histogram<const N: usize> {
    /// The bits of an `f64`, in seconds.
    sum: AtomicU64,
    within: [Count; N],
    over: Count,
    bounds: &'static [f64; N],
}

impl<const N: usize> Histogram<N> {
    /// A histogram with these bounds, which belong to their bucket (`le`).
    pub(super) fn new(bounds: &'static [f64; N]) -> Histogram<N> {
        Histogram {
            sum: AtomicU64::new(0.0_f64.to_bits()),
            within: std::array::from_fn(|_| Count::default()),
            over: Count::default(),
            bounds,
        }
    }

    /// One more that took so long.
    pub(super) fn observe(&self, took: Duration) {
        let seconds = took.as_secs_f64();
        let at = self.bounds.iter().position(|bound| seconds <= *bound);
        at.and_then(|at| self.within.get(at))
            .unwrap_or(&self.over)
            .inc();
        let add = |sum| Some((f64::from_bits(sum) + seconds).to_bits());
        let _ = (self.sum).fetch_update(Ordering::Relaxed, Ordering::Relaxed, add);
    }

    /// The upper bounds, each with how many were within it; then how many there were; then their sum in seconds.
    pub(super) fn read(&self) -> (Vec<(f64, u64)>, u64, f64) {
        let mut count = 0_u64;
        let within = self.within.iter().map(|within| {
            count = count.saturating_add(within.get());
            count
        });
        let within = self.bounds.iter().copied().zip(within).collect();
        let sum = f64::from_bits(self.sum.load(Ordering::Relaxed));
        (within, count.saturating_add(self.over.get()), sum)
    }
}

/// Counters by a small key out of a closed set, or a bounded number. What never happened is not there.
#[derive(Debug)]
pub(super) struct Kinds<K> {
    /// Those that happened first.
    near: [(OnceLock<K>, Count); NEAR],
    others: RwLock<HashMap<K, Count, RandomState>>,
}

impl<K> Default for Kinds<K> {
    fn default() -> Kinds<K> {
        Kinds {
            near: std::array::from_fn(|_| (OnceLock::new(), Count::default())),
            others: RwLock::default(),
        }
    }
}

impl<K: Copy + Eq + Hash> Kinds<K> {
    /// One more of this kind.
    pub(super) fn count(&self, kind: K) {
        // A place is taken once and for all, and places are taken in order: a kind has one place, whoever came first.
        for (known, count) in &self.near {
            if *known.get_or_init(|| kind) == kind {
                return count.inc();
            }
        }
        let others = self.others.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = others.get(&kind) {
            return count.inc();
        }
        drop(others);
        let mut others = self.others.write().unwrap_or_else(PoisonError::into_inner);
        others.entry(kind).or_default().inc();
    }

    /// How many there were of each.
    pub(super) fn read(&self) -> Vec<(K, u64)> {
        let near = self.near.iter();
        let near = near.filter_map(|(kind, count)| Some((*kind.get()?, count.get())));
        let mut all: Vec<(K, u64)> = near.filter(|(_, count)| *count > 0).collect();
        let others = self.others.read().unwrap_or_else(PoisonError::into_inner);
        all.extend(others.iter().map(|(kind, count)| (*kind, count.get())));
        all
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use super::*;

    // R-S22: a bound belongs to its bucket, buckets are cumulative, and what lies above all of them is counted.
    #[test]
    fn a_histogram_counts_each_once_and_its_bound_within() {
        static BOUNDS: [f64; 3] = [0.1, 0.2, 1.0];
        let histogram = Histogram::new(&BOUNDS);
        for millis in [100, 101, 200, 999, 1001, 5000] {
            histogram.observe(Duration::from_millis(millis));
        }
        let (within, count, sum) = histogram.read();
        assert_eq!(within, [(0.1, 1), (0.2, 3), (1.0, 4)]);
        assert_eq!(count, 6);
        assert!((sum - 7.401).abs() < 1e-9, "{sum}");
    }

    // R-S22: nothing is lost or counted under another kind when threads meet new kinds at the same moment.
    #[test]
    fn kinds_that_threads_meet_together_are_counted_once_each() {
        const KINDS: u16 = 11;
        const THREADS: u16 = 4;
        let wanted: Vec<(u16, u64)> = (0..KINDS).map(|kind| (kind, THREADS.into())).collect();
        for _ in 0..500 {
            let (kinds, start) = (Kinds::default(), Barrier::new(THREADS.into()));
            std::thread::scope(|scope| {
                for thread in 0..THREADS {
                    let (kinds, start) = (&kinds, &start);
                    scope.spawn(move || {
                        start.wait();
                        // Two begin with the same one, two with others.
                        (0..KINDS).for_each(|kind| kinds.count((kind + thread / 2) % KINDS));
                    });
                }
            });
            let mut found = kinds.read();
            found.sort_unstable();
            assert_eq!(found, wanted);
        }
    }
}

//! Whole operations under virtual time: many at once on shared routes, upstreams that throttle, break, stall and recover, clients that
//! leave, drains and reloads. By seed, so that a failure is replayed by one command.
//!
//! `RONDO_SIM_SEED` picks the seed, `RONDO_SIM_OPS` the number of operations, `RONDO_SIM_SECONDS` a time instead of it and
//! `RONDO_SIM_THREADS` on how many threads. Seeds that found something stay in `tests/regressions.txt`.

pub mod auditor;
pub mod lanes;
pub mod orders;
pub mod records;
pub mod tally;
pub mod upstream;
pub mod world;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use tally::Tally;
use world::Epoch;

/// Operations of an ordinary test run.
const OPERATIONS: u64 = 200_000;
/// Operations of one world; after each, everything shared has to be back at zero.
const PER_EPOCH: u64 = 2_000;

/// Prints the command that replays when the test fails.
struct Replay {
    seed: u64,
    operations: u64,
}

impl Drop for Replay {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!(
                "replay: RONDO_SIM_SEED={} RONDO_SIM_OPS={} cargo test --no-default-features --test pure simulation::by_seed",
                self.seed, self.operations
            );
        }
    }
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name)
        .ok()
        .map(|text| text.parse().expect("a number"))
}

/// Simulates from a seed. Epochs take the seeds `seed`, `seed + 1`, ..., so that a failing one is replayed alone.
fn simulate(seed: u64, operations: u64) -> Tally {
    let run = Run {
        seed,
        operations,
        time: Duration::MAX,
        threads: 1,
    };
    run.all()
}

/// How much is simulated: so many operations, or so long.
struct Run {
    seed: u64,
    operations: u64,
    time: Duration,
    threads: u64,
}

impl Run {
    fn all(&self) -> Tally {
        let (next, total) = (AtomicU64::new(0), Mutex::new(Tally::default()));
        let began = Instant::now();
        let work = || {
            while began.elapsed() < self.time {
                let epoch = next.fetch_add(1, Ordering::Relaxed);
                let Some(left) = self.operations.checked_sub(epoch * PER_EPOCH) else {
                    return;
                };
                let tally = self.epoch(epoch, left.min(PER_EPOCH));
                let mut total = total.lock().unwrap_or_else(PoisonError::into_inner);
                total.add(&tally);
            }
        };
        std::thread::scope(|scope| {
            for _ in 1..self.threads {
                scope.spawn(work);
            }
            work();
        });
        total.into_inner().unwrap_or_else(PoisonError::into_inner)
    }

    fn epoch(&self, epoch: u64, operations: u64) -> Tally {
        let seed = self.seed.wrapping_add(epoch);
        let _replay = Replay { seed, operations };
        Epoch::new(seed).run(operations)
    }
}

// R-B1 to R-B8, R-S5 to R-S23, R-D1, R-D4, R-F1 to R-F8, R-K1 to R-K4, R-L1, R-L2, R-L4, R-L5
#[test]
fn by_seed() {
    let seed = number("RONDO_SIM_SEED").unwrap_or(20_260_101);
    let seconds = number("RONDO_SIM_SECONDS");
    let most = seconds.map_or(OPERATIONS, |_| u64::MAX);
    let run = Run {
        seed,
        operations: number("RONDO_SIM_OPS").unwrap_or(most),
        time: seconds.map_or(Duration::MAX, Duration::from_secs),
        threads: number("RONDO_SIM_THREADS").unwrap_or(1).max(1),
    };
    println!(
        "simulation: seed {seed}, operations {}, seconds {seconds:?}, threads {}",
        run.operations, run.threads
    );
    let began = Instant::now();
    let tally = run.all();
    let took = began.elapsed();
    println!("{tally:#?}");
    println!(
        "simulation: {} operations, {} sends in {took:?}: {:.0} operations a second",
        tally.operations,
        tally.sends,
        tally.operations as f64 / took.as_secs_f64()
    );
    if tally.operations >= OPERATIONS {
        tally.assert_that_everything_happened();
    }
}

// The same seed gives the same run.
#[test]
fn a_run_is_repeatable() {
    assert_eq!(simulate(7, 500), simulate(7, 500));
}

// Seeds that found a fault once.
#[test]
fn regressions() {
    for line in include_str!("../regressions.txt").lines() {
        let Some(seed) = line
            .split_whitespace()
            .next()
            .filter(|word| !word.starts_with('#'))
        else {
            continue;
        };
        let _ = simulate(seed.parse().expect("a seed"), PER_EPOCH);
    }
}

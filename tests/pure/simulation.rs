//! Whole operations under virtual time: many at once on shared routes, upstreams that throttle, break, stall and recover, clients that
//! leave, drains and reloads. By seed, so that a failure is replayed by one command.
//!
//! `RONDO_SIM_SEED` picks the seed, `RONDO_SIM_OPS` the number of operations. Seeds that found something stay in `tests/regressions.txt`.

pub mod auditor;
pub mod lanes;
pub mod orders;
pub mod tally;
pub mod upstream;
pub mod world;

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
    let mut total = Tally::default();
    let mut done = 0;
    while done < operations {
        let now = (operations - done).min(PER_EPOCH);
        let epoch_seed = seed.wrapping_add(done / PER_EPOCH);
        let replay = Replay {
            seed: epoch_seed,
            operations: now,
        };
        total.add(&Epoch::new(epoch_seed).run(now));
        drop(replay);
        done += now;
    }
    total
}

// R-B1 to R-B8, R-S5 to R-S23, R-D1, R-D4, R-F1 to R-F8, R-K1 to R-K4, R-L1, R-L5
#[test]
fn by_seed() {
    let seed = number("RONDO_SIM_SEED").unwrap_or(20_260_101);
    let operations = number("RONDO_SIM_OPS").unwrap_or(OPERATIONS);
    println!("simulation: seed {seed}, operations {operations}");
    let started = std::time::Instant::now();
    let tally = simulate(seed, operations);
    println!("{tally:#?}\nin {:?}", started.elapsed());
    if operations >= PER_EPOCH {
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

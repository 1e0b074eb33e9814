//! The writer, the line and the spool when store or disk fail: who counts as dead after it, what stays, what is counted.

use std::time::Duration;

use rondo::ledger::store::LEASE;

use crate::store_writer::{Bench, Double, MIB, other};

const STRANGER: &str = "00000000000000aa";

fn abandons(double: &Double) -> usize {
    let calls = &double.0.lock().calls;
    calls.iter().filter(|call| **call == "abandon").count()
}

// R-L6: while the store was away nobody could beat, so silence proves nothing when it is back.
#[test]
fn an_outage_of_all_makes_nobody_dead() {
    let double = Double::default();
    let mut bench = Bench::new(double.clone(), false, MIB);
    bench.settle();
    bench.wait(LEASE * 2);
    double.0.lock().away = true;
    bench.now += Duration::from_secs(10);
    let _ = bench.step();
    bench.now += LEASE * 4;
    {
        let mut seen = double.0.lock();
        seen.away = false;
        seen.others = vec![other(STRANGER, "elsewhere", LEASE * 4)];
        seen.pending.insert(STRANGER.into(), 3);
    }
    bench.settle();
    bench.wait(LEASE - Duration::from_secs(1));
    assert_eq!(abandons(&double), 0);
    // Who still says nothing after that is dead.
    bench.wait(Duration::from_secs(11));
    assert_eq!(bench.counts().abandoned(), 3);
}

// R-L6: nor does it at the start, when all may be starting after the same outage.
#[test]
fn a_start_gives_everybody_a_lease() {
    let double = Double::default();
    double.0.lock().others = vec![other(STRANGER, "elsewhere", LEASE * 4)];
    let mut bench = Bench::new(double.clone(), false, MIB);
    bench.settle();
    bench.wait(LEASE - Duration::from_secs(1));
    assert_eq!(abandons(&double), 0);
    bench.wait(Duration::from_secs(11));
    assert_eq!(abandons(&double), 1);
}

// R-L6: who was being settled when the store went away is judged anew.
#[test]
fn an_outage_takes_a_verdict_of_silence_back() {
    let double = Double::default();
    let mut bench = Bench::new(double.clone(), false, MIB);
    bench.settle();
    {
        let mut seen = double.0.lock();
        seen.others = vec![other(STRANGER, "elsewhere", LEASE * 2)];
        seen.pending.insert(STRANGER.into(), 12_000);
    }
    bench.now += LEASE;
    while bench.counts().abandoned() == 0 {
        let _ = bench.step();
    }
    double.0.lock().away = true;
    let _ = bench.step();
    {
        let mut seen = double.0.lock();
        seen.away = false;
        seen.others = vec![other(STRANGER, "elsewhere", Duration::ZERO)];
    }
    bench.wait(LEASE);
    bench.wait(LEASE);
    assert_eq!(bench.counts().abandoned(), 5_000);
}

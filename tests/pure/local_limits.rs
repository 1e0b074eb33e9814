//! The account of a target's local limits: no minute holds more than its limit, and what did not run is given back.

use std::sync::Arc;

use rondo::core::time::MonoTime;
use rondo::policy::limits::{Exhausted, LimitRules, Reservation, TargetLimits, Usage};

const fn at(millis: u64) -> MonoTime {
    MonoTime::from_micros(millis * 1000)
}

fn account(
    requests: Option<u64>,
    tokens: Option<u64>,
    concurrent: Option<u64>,
) -> Arc<TargetLimits> {
    Arc::new(TargetLimits::new(LimitRules {
        requests_per_minute: requests,
        tokens_per_minute: tokens,
        concurrent,
    }))
}

/// A request that has run.
fn ran(account: &Arc<TargetLimits>, tokens: u64, now: MonoTime) -> Result<(), Exhausted> {
    account.reserve(tokens, now).map(|mut share| share.keep())
}

// R-S13: it is known when the minute has room again.
#[test]
fn a_minute_holds_so_many_requests_and_says_when_there_is_room() {
    let account = account(Some(3), None, None);
    for second in 1..=3 {
        ran(&account, 1, at(second * 1000)).unwrap();
    }
    let until = Exhausted::Until(at(61_250));
    assert_eq!(ran(&account, 1, at(3_001)), Err(until));
    assert_eq!(ran(&account, 1, at(61_249)), Err(until));
    ran(&account, 1, at(61_250)).unwrap();
    assert_eq!(
        ran(&account, 1, at(61_251)),
        Err(Exhausted::Until(at(62_250)))
    );
}

#[test]
fn a_minute_holds_so_many_tokens() {
    let account = account(None, Some(1000), None);
    ran(&account, 300, at(1_000)).unwrap();
    ran(&account, 300, at(2_000)).unwrap();
    ran(&account, 400, at(3_000)).unwrap();
    // One token needs the first to leave, four hundred the second as well.
    assert_eq!(
        account.exhausted(1, at(4_000)),
        Some(Exhausted::Until(at(61_250)))
    );
    assert_eq!(
        account.exhausted(400, at(4_000)),
        Some(Exhausted::Until(at(62_250)))
    );
    assert_eq!(account.exhausted(300, at(61_250)), None);
}

// What alone is above the limit is the one operation that may pass it; it would wait for ever otherwise.
#[test]
fn a_request_larger_than_the_minute_needs_the_whole_minute() {
    let account = account(None, Some(1000), None);
    ran(&account, 1, at(1_000)).unwrap();
    assert_eq!(
        account.exhausted(5000, at(2_000)),
        Some(Exhausted::Until(at(61_250)))
    );
    ran(&account, 5000, at(61_250)).unwrap();
    assert_eq!(account.usage(at(61_250)).tokens, 1000);
}

#[test]
fn slots_come_free_at_the_end_of_each_attempt() {
    let account = account(None, None, Some(2));
    let (first, mut second) = (
        account.reserve(1, at(1)).unwrap(),
        account.reserve(1, at(1)).unwrap(),
    );
    assert_eq!(account.exhausted(1, at(1)), Some(Exhausted::Full));
    drop(first);
    assert_eq!(account.exhausted(1, at(1)), None);
    second.keep();
    drop(second);
    let usage = account.usage(at(1));
    assert_eq!((usage.concurrent, usage.requests), (0, 1));
}

// A full minute is known to end; that a slot comes free is not.
#[test]
fn a_full_minute_is_said_before_full_slots() {
    let account = account(Some(1), None, Some(1));
    let _share = account.reserve(1, at(1_000)).unwrap();
    assert_eq!(
        account.exhausted(1, at(1_000)),
        Some(Exhausted::Until(at(61_250)))
    );
}

#[test]
fn what_did_not_run_is_given_back_whole() {
    let account = account(Some(1), Some(10), Some(1));
    let share = account.reserve(10, at(1_000)).unwrap();
    drop(share);
    assert_eq!(account.usage(at(1_000)), Usage::default());
    // Also when its minute is over.
    let share = account.reserve(10, at(1_000)).unwrap();
    assert_eq!(account.usage(at(90_000)).requests, 0);
    drop(share);
    assert_eq!(account.usage(at(90_000)), Usage::default());
}

#[test]
fn an_estimate_is_corrected_by_what_was_used() {
    let account = account(None, Some(1000), None);
    let mut reservation = account.reserve(100, at(1_000)).unwrap();
    let share = reservation.share();
    share.correct(700);
    assert_eq!(account.usage(at(1_000)).tokens, 700);
    assert!(account.exhausted(301, at(1_000)).is_some());
    share.correct(40);
    // What is not the whole is not less than what is counted.
    share.raise(50);
    share.raise(45);
    reservation.keep();
    drop(reservation);
    assert_eq!(account.usage(at(1_000)).tokens, 50);
    assert_eq!(account.exhausted(950, at(1_000)), None);
}

// The client has left and all is settled, and then the end of the answer tells what it used.
#[test]
fn what_is_known_late_is_counted_in_its_minute() {
    let account = account(None, Some(1000), None);
    let mut kept = account.reserve(100, at(1_000)).unwrap();
    let of_kept = kept.share();
    kept.keep();
    drop(kept);
    of_kept.correct(30);
    assert_eq!(account.usage(at(1_000)).tokens, 30);
    // What was given back had run after all.
    let given_back = account.reserve(100, at(2_000)).unwrap();
    let of_given_back = given_back.share();
    drop(given_back);
    of_given_back.correct(7);
    assert_eq!(account.usage(at(2_000)).tokens, 37);
    assert_eq!(account.usage(at(90_000)), Usage::default());
    of_kept.correct(500);
    assert_eq!(account.usage(at(90_000)), Usage::default());
}

// A clock that is behind counts in the newest step.
#[test]
fn a_clock_that_is_behind_is_no_way_around() {
    let account = account(Some(2), None, None);
    ran(&account, 1, at(70_000)).unwrap();
    ran(&account, 1, at(5_000)).unwrap();
    assert_eq!(
        ran(&account, 1, at(5_000)),
        Err(Exhausted::Until(at(130_250)))
    );
}

// In any sixty seconds there are at most as many as the limit.
#[test]
fn no_minute_holds_more_than_the_limit() {
    let account = account(Some(30), None, None);
    let mut sent = Vec::new();
    for step in 0..20_000 {
        let now = step * 13;
        if ran(&account, 1, at(now)).is_ok() {
            sent.push(now);
        }
    }
    for first in &sent {
        let inside = sent
            .iter()
            .filter(|t| (*first..first + 60_000).contains(*t));
        assert!(inside.count() <= 30);
    }
    assert!(sent.len() >= 4 * 30, "{}", sent.len());
}

// Two hundred clients at once: no more than the limit, and no less.
#[test]
fn a_crowd_gets_the_limit_exactly() {
    let account = account(Some(500), None, Some(150));
    let got: u64 = std::thread::scope(|scope| {
        let client = || {
            let tries = (0..20).filter_map(|_| account.reserve(1, at(1_000)).ok());
            tries.map(|mut share: Reservation| share.keep()).count() as u64
        };
        let clients: Vec<_> = (0..200).map(|_| scope.spawn(client)).collect();
        clients
            .into_iter()
            .map(|client| client.join().unwrap())
            .sum()
    });
    let usage = account.usage(at(1_000));
    assert_eq!((got, usage.requests, usage.concurrent), (500, 500, 0));
}

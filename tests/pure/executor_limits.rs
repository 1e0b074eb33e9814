//! Local limits in the executor: who is skipped, who is told, and what is given back.

use std::sync::Arc;

use rondo::core::decision::Stop;
use rondo::core::settlement::{OperationOutcome, State};
use rondo::policy::limits::Usage;

use crate::simulation::auditor::Cooling;
use crate::support::check::{Run, START, Script, check, play_plan};
use crate::support::ms;
use crate::support::spec::{Spec, route, two_rounds};

/// T1 alone has the limits.
fn first_limited(base: Spec) -> Spec {
    Spec { limited: 1, ..base }
}

// R-F2 R-S16, C181: rate_limiting skips an exhausted target without a send.
#[test]
fn an_exhausted_target_is_skipped() {
    let spec = first_limited(route(2).limits(Some(3), None, None));
    check(&spec, "T2: ok; used T1 3", "skip:T1 1:T2 ok");
    check(&spec, "T1: ok; used T1 2", "1:T1 ok");
    let full = first_limited(route(2).limits(None, None, Some(2)));
    check(&full, "T2: ok; busy T1 2", "skip:T1 1:T2 ok");
    check(&full, "T1: ok; busy T1 1", "1:T1 ok");
    let tokens = first_limited(route(2).limits(None, Some(25), None));
    check(&tokens, "T2: ok; used T1 2", "skip:T1 1:T2 ok");
    check(&tokens, "T1: ok; used T1 1", "1:T1 ok");
}

// Without the strategy it ends the operation, with the exact delay.
#[test]
fn stop_local_limit() {
    let mut spec = first_limited(route(2).limits(Some(3), None, None));
    spec.fallback.rate_limiting = false;
    let run = check(&spec, "T2: ok; used T1 3", "local_limit(local_limit)");
    assert_eq!(run.settled.stop, Some(Stop::LocalLimit));
    assert_eq!(run.settled.outcome, OperationOutcome::Rejected);
    assert_eq!((run.settled.state, run.status), (State::Refused, Some(429)));
    assert_eq!(run.throttle.unwrap().retry_after, ms(60_250));
    assert_eq!(run.throttle.unwrap().seconds(), 61);
    // The next target as well as the first.
    let second = Spec {
        limited: 2,
        ..spec.clone()
    };
    check(
        &second,
        "T1: 429/9000; T2: ok; used T2 3",
        "1:T1 throttled(local_limit)",
    );
    check(
        &second,
        "T1: nd; T2: ok; used T2 3",
        "1:T1 local_limit(local_limit)",
    );
    check(&second, "T1: ok; used T2 3", "1:T1 ok");
    // And there is no second round.
    let twice = Spec {
        rounds_max: 2,
        ..spec
    };
    check(
        &twice,
        "T2: ok; used T1 3",
        "-local_limit local_limit(local_limit)",
    );
}

// R-S20: all are exhausted: the first that has room again is told.
#[test]
fn when_all_are_exhausted_the_earliest_is_told() {
    let spec = route(2).limits(Some(3), None, None);
    let run = check(
        &spec,
        "used T1 3; used T2 3",
        "skip:T1 skip:T2 local_limit(local_limit)",
    );
    assert_eq!(run.throttle.unwrap().retry_after, ms(60_250));
    let full = route(2).limits(None, None, Some(1));
    let run = check(
        &full,
        "busy T1 1; busy T2 1",
        "skip:T1 skip:T2 local_limit(local_limit)",
    );
    assert_eq!(run.throttle.unwrap().retry_after, ms(1_000));
    assert!(run.throttle.unwrap().should_retry);
}

// R-S5: it counts as a rejection, as a cooldown does; R-S13: its instant is waited for.
#[test]
fn an_exhausted_target_does_not_fail_the_certificate() {
    let spec = first_limited(two_rounds(2).limits(None, None, Some(1)));
    check(
        &spec,
        "T2: 429/100 ok; busy T1 1",
        "skip:T1 1:T2 wait skip:T1 2:T2 ok",
    );
    let minute = first_limited(two_rounds(2).limits(Some(1), None, None));
    check(
        &minute,
        "T2: 429/30000; used T1 1",
        "skip:T1 1:T2 -wait_too_long throttled(wait_too_long)",
    );
    let long = Spec {
        wait_max: 60_300,
        ..first_limited(two_rounds(1).limits(Some(1), None, None))
    };
    let run = check(&long, "T1: ok; used T1 1", "skip:T1 wait 2:T1 ok");
    assert!(run.wait.unwrap() >= ms(60_250));
    check(
        &two_rounds(2).limits(None, None, Some(1)),
        "busy T1 1; busy T2 1",
        "skip:T1 skip:T2 wait skip:T1 skip:T2 local_limit(local_limit)",
    );
}

// R-D1: what cools was said by a provider, and is told as such.
#[test]
fn a_cooldown_is_told_before_a_local_limit() {
    let spec = first_limited(route(2).limits(Some(1), None, None));
    let run = check(
        &spec,
        "used T1 1; cool T2 9000",
        "skip:T1 skip:T2 throttled(exhausted)",
    );
    assert_eq!(run.throttle.unwrap().retry_after, ms(9_000));
}

// R-K2 R-P2: each try needs its own place.
#[test]
fn every_try_is_counted() {
    let sticky = first_limited(Spec {
        sticky_tries: 2,
        ..route(2).http_5xx().limits(Some(3), None, None)
    });
    check(&sticky, "T1: 500 ok; T2: ok; used T1 1", "1:T1 1:T1+1 ok");
    check(&sticky, "T1: 500 ok; T2: ok; used T1 2", "1:T1 1:T2 ok");
    let own = first_limited(route(2).http_5xx().internal(4, 60_000, 100, 100).limits(
        Some(3),
        None,
        None,
    ));
    check(
        &own,
        "T1: 503 ok; T2: ok; used T1 2",
        "1:T1 pause spent 1:T2 ok",
    );
}

/// Plays one operation and reads what is used of T1.
fn used_after(spec: &Spec, script: &str) -> (Run, Usage) {
    let route = spec.build();
    let plan = spec.plan(&route, START);
    let run = play_plan(
        plan,
        START,
        &mut Script::parse(script),
        &mut Cooling::default(),
        1,
    );
    let account = route.targets[0].limits.as_ref().unwrap();
    assert_eq!(
        Arc::strong_count(account),
        1,
        "a reservation outlived its operation"
    );
    (run, account.usage(START))
}

// C183: what certainly did not run is given back, and so is what was cancelled before an answer; the rest is kept.
#[test]
fn what_did_not_run_gives_its_reservation_back() {
    let spec = route(1).limits(Some(9), Some(900), Some(9));
    let cases = [
        ("T1: nd", 0),
        ("T1: 429/100", 0),
        ("T1: ok@500; gone@100", 0),
        ("T1: ok@500; drop@100", 0),
        ("T1: ok; gone@5; prepare 20", 0),
        ("T1: 500", 1),
        ("T1: reset", 1),
        ("T1: timeout", 1),
        ("T1: partial", 1),
        ("T1: ok", 1),
        ("T1: ok; streams broke", 1),
        ("T1: ok; streams gone", 1),
    ];
    for (script, kept) in cases {
        let (run, usage) = used_after(&spec, script);
        let expected = Usage {
            requests: kept,
            tokens: kept * 10,
            concurrent: 0,
        };
        assert_eq!(usage, expected, "{script}: {}", run.trace);
    }
}

// The pool of keys shares the target's limits: the place of the first key is free when the second is tried.
#[test]
fn one_place_is_enough_for_a_pool() {
    let spec = route(1).keys(3).limits(None, None, Some(1));
    check(&spec, "T1: 429/900 auth ok", "1:T1 1:T1k2 1:T1k3 ok");
}

//! `max_failover_elapsed_ms`: once it has passed, no try but the first begins; one in flight goes on.

use rondo::core::decision::Stop;

use crate::support::check::check;
use crate::support::ms;
use crate::support::spec::{Spec, route, two_rounds};

fn within(millis: u64, base: Spec) -> Spec {
    Spec {
        failover_within: Some(millis),
        ..base
    }
}

// R-F1 R-D1: what moved on until then is told as ever.
#[test]
fn stop_failover_elapsed() {
    let spec = within(100, route(3));
    let run = check(
        &spec,
        "T1: nd@60; T2: 429/800@60; T3: ok",
        "1:T1 1:T2 throttled(failover_elapsed)",
    );
    assert_eq!(run.settled.stop, Some(Stop::FailoverElapsed));
    assert_eq!(run.decisions, ["next_target", "stop"]);
    // At the instant itself it may.
    check(&spec, "T1: nd@100; T2: ok", "1:T1 1:T2 ok");
    check(&spec, "T1: nd@101; T2: ok", "1:T1 unreachable");
}

// It says nothing of the first try, nor of one in flight.
#[test]
fn an_attempt_in_flight_keeps_its_own_limits() {
    check(&within(100, route(2)), "T1: ok@5000", "1:T1 ok");
    check(
        &within(100, route(2)),
        "T1: nd@90; T2: ok@5000",
        "1:T1 1:T2 ok",
    );
}

// The dispatch point asks again: what was begun in time and prepared too long is not sent (R-B8).
#[test]
fn a_try_that_was_prepared_too_long_is_not_sent() {
    let run = check(
        &within(100, route(2)),
        "T1: nd; T2: ok; prepare 60",
        "1:T1 unreachable",
    );
    assert_eq!(run.settled.stop, Some(Stop::FailoverElapsed));
    assert_eq!(run.states, ["failed", "failed"]);
    check(&within(10, route(2)), "T1: ok; prepare 60", "1:T1 ok");
}

// R-K2
#[test]
fn a_sticky_try_is_a_try() {
    let sticky = Spec {
        sticky_tries: 2,
        ..route(1).http_5xx()
    };
    check(
        &within(100, sticky.clone()),
        "T1: 500@100 ok",
        "1:T1 1:T1+1 ok",
    );
    check(&within(100, sticky), "T1: 500@101 ok", "1:T1 500");
}

// C13
#[test]
fn another_key_is_a_try() {
    let pool = route(1).keys(2);
    check(
        &within(100, pool.clone()),
        "T1: 429/900@100 ok",
        "1:T1 1:T1k2 ok",
    );
    let run = check(
        &within(100, pool),
        "T1: 429/900@101 ok",
        "1:T1 throttled(failover_elapsed)",
    );
    assert_eq!(run.settled.stop, Some(Stop::FailoverElapsed));
}

// R-P2: a pause that would end too late is not begun.
#[test]
fn an_own_retry_is_a_try() {
    let own = route(1).internal(4, 60_000, 200, 200);
    let fits = within(1_000, own.clone());
    check(&fits, "T1: 503 ok", "1:T1 pause 1:T1+1 ok");
    check(&within(100, own), "T1: 503 ok", "1:T1 spent 503");
}

// R-S10 R-S11: a wait that would end too late is not begun.
#[test]
fn a_second_round_is_a_try() {
    let script = "T1: 429/500 ok";
    let run = check(&within(2_000, two_rounds(1)), script, "1:T1 wait 2:T1 ok");
    assert!(run.wait.unwrap() >= ms(500));
    check(
        &within(400, two_rounds(1)),
        script,
        "1:T1 -failover_elapsed throttled(failover_elapsed)",
    );
}

// Unset is as without: a very long one changes nothing either.
#[test]
fn unset_is_as_without() {
    for script in [
        "T1: 429/500 ok; T2: 429/900",
        "T1: nd@9000; T2: ok",
        "T1: 500; T2: ok",
    ] {
        let plain = crate::support::check::play(&two_rounds(2), script, 1);
        let long = crate::support::check::play(&within(86_400_000, two_rounds(2)), script, 1);
        assert_eq!(plain.trace, long.trace);
        assert_eq!(plain.wait, long.wait);
    }
}

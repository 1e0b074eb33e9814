//! Which failure the client is told (R-D1), and the marks of timeouts and leaving clients (R-D4).

use rondo::core::decision::{Decision, Round};
use rondo::core::precedence::Standing;
use rondo::core::settlement::{OperationOutcome, State};
use rondo::executor::effect::Begin;

use crate::support::check::{check, play};
use crate::support::ms;
use crate::support::spec::{Spec, route};

// R-D1: ambiguous > terminal > refused > rejected > not_delivered, in both orders.
#[test]
fn the_graver_failure_is_told() {
    let ranked = [
        ("reset", "ambiguous"),
        ("auth", "401"),
        ("500", "500"),
        ("429", "throttled(exhausted)"),
        ("nd", "unreachable"),
    ];
    for (index, (graver, end)) in ranked.iter().enumerate() {
        for (lesser, _) in &ranked[index..] {
            for script in [
                format!("T1: {graver}; T2: {lesser}"),
                format!("T1: {lesser}; T2: {graver}"),
            ] {
                let spec = route(2).http_5xx().transport_error().statuses(&[401]);
                check(&spec, &script, &format!("1:T1 1:T2 {end}"));
            }
        }
    }
}

// R-D1
#[test]
fn within_a_class_the_last_one_is_told() {
    let spec = route(3).http_5xx().statuses(&[401, 404]);
    check(&spec, "T1: 500; T2: 502; T3: 429", "1:T1 1:T2 1:T3 502");
    check(&spec, "T1: 401; T2: 404; T3: nd", "1:T1 1:T2 1:T3 404");
    check(&spec, "T1: 500; T2: s502; T3: nd", "1:T1 1:T2 1:T3 502");
}

// R-D1 R-S18: the precedence outlives the change of rounds.
#[test]
fn a_failure_of_round_one_is_still_told_after_round_two() {
    let spec = crate::support::spec::two_rounds(1);
    check(
        &spec,
        "T1: 429/100 nd",
        "1:T1 wait 2:T1 throttled(second_round_failed)",
    );
}

// R-D1
#[test]
fn no_candidate_is_a_503() {
    let spec = route(0);
    let run = check(&spec, "", "no_candidate");
    assert_eq!(
        (run.status, run.settled.outcome),
        (Some(503), OperationOutcome::Rejected)
    );
}

// R-D4
#[test]
fn a_first_byte_timeout_is_504_and_timed_out() {
    let run = check(&route(2), "T1: timeout@60000; T2: ok", "1:T1 timed_out");
    assert_eq!(run.status, Some(504));
    assert_eq!(run.states, ["timed_out"]);
    assert_eq!(
        (run.settled.outcome, run.settled.state),
        (OperationOutcome::TimedOut, State::TimedOut)
    );
}

// R-D4
#[test]
fn a_client_that_left_is_answered_by_nobody() {
    for script in [
        "T1: ok@500; gone@100",
        "T1: ok; gone@10",
        "T1: ok; streams gone",
    ] {
        let run = play(&route(1), script, 1);
        assert_eq!(run.settled.outcome, OperationOutcome::Cancelled, "{script}");
        assert_eq!(run.settled.state, State::Cancelled);
        assert_eq!(run.states, ["cancelled"]);
    }
}

// R-L1
#[test]
fn how_a_delivery_ends_is_how_it_settles() {
    for (end, outcome, state) in [
        ("broke", OperationOutcome::Failed, State::Failed),
        ("timeout", OperationOutcome::TimedOut, State::TimedOut),
        ("gone", OperationOutcome::Cancelled, State::Cancelled),
    ] {
        let run = play(&route(1), &format!("T1: ok; streams {end}"), 1);
        assert_eq!((run.settled.outcome, run.settled.state), (outcome, state));
    }
}

// R-D1 R-S5
#[test]
fn only_cooling_targets_are_answered_with_the_delay() {
    let run = check(
        &Spec { ..route(2) },
        "cool T1 900; cool T2 500",
        "skip:T1 skip:T2 throttled(exhausted)",
    );
    assert_eq!(
        (run.status, run.throttle.unwrap().milliseconds()),
        (Some(429), 500)
    );
}

// R-D1 R-P5: with `global_key` a target stands in several places. A retry at one of them that never came to be is not made at the other,
// whose failure does not stand for the first one's.
#[test]
fn another_place_of_a_target_is_no_retry_of_the_first() {
    let begin = |attempt_no, candidate, round| Begin {
        attempt_no,
        candidate,
        target: 2,
        round,
        retry_index: 0,
        key: 0,
    };
    let first = begin(1, 0, Round::First);
    let decisions = [
        (Decision::Retry(ms(800)), Standing::Retry),
        (Decision::NextKey, Standing::NextKey),
        (Decision::SameTarget, Standing::SameKey),
    ];
    for (decision, standing) in decisions {
        let last = Some((first, decision));
        assert_eq!(begin(2, 0, Round::First).standing(last), standing);
        let elsewhere = begin(2, 2, Round::First).standing(last);
        assert_eq!(elsewhere, Standing::Fresh, "{decision:?}");
        let later = begin(2, 0, Round::Second).standing(last);
        assert_eq!(later, Standing::Fresh, "{decision:?}");
    }
}

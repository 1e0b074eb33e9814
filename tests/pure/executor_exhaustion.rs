//! The exhaustion round: who gets one, how long the wait is, how it ends (R-S).

use std::time::Duration;

use rondo::core::settlement::OperationOutcome;
use rondo::executor::effect::SecondRoundEnd;

use crate::support::check::{check, play};
use crate::support::ms;
use crate::support::spec::{Spec, route, two_rounds};

// R-S5 R-S16
#[test]
fn all_throttled_waits_once_and_tries_again() {
    let run = check(
        &two_rounds(3),
        "T1: 429/1000 ok; T2: 429/1000; T3: 429/1000",
        "1:T1 1:T2 1:T3 wait 2:T1 ok",
    );
    assert_eq!(run.second_round_end, Some(SecondRoundEnd::Success));
    assert_eq!((run.settled.sends, run.settled.rounds), (4, 2));
}

// R-S1
#[test]
fn absent_means_no_round_and_no_reason() {
    let run = check(
        &route(2),
        "T1: 429/100; T2: 429/100",
        "1:T1 1:T2 throttled(exhausted)",
    );
    assert_eq!(run.settled.rounds, 1);
}

// R-S1 R-S2
#[test]
fn one_round_in_all_is_off() {
    let spec = Spec {
        rounds_max: 1,
        ..route(2)
    };
    check(
        &spec,
        "T1: 429/100; T2: 429/100",
        "1:T1 1:T2 throttled(exhausted)",
    );
}

// R-B3 R-S18 R-S19
#[test]
fn there_is_no_third_round() {
    let spec = Spec {
        sends_max: 100,
        ..two_rounds(2)
    };
    let run = check(
        &spec,
        "T1: 429/100; T2: 429/100",
        "1:T1 1:T2 wait 2:T1 2:T2 throttled(exhausted)",
    );
    assert_eq!(run.second_round_end, Some(SecondRoundEnd::Exhausted));
    assert_eq!(run.settled.outcome, OperationOutcome::Exhausted);
}

// R-S5
#[test]
fn a_certified_overload_counts_as_a_throttle() {
    check(
        &two_rounds(2),
        "T1: 529/100 ok; T2: s429/100",
        "1:T1 1:T2 wait 2:T1 ok",
    );
}

// R-S5
#[test]
fn a_remembered_cooldown_counts_without_a_send() {
    check(
        &two_rounds(2),
        "T1: ok; T2: 429/900; cool T1 300",
        "skip:T1 1:T2 wait 2:T1 ok",
    );
    check(
        &two_rounds(1),
        "T1: ok; cool T1 300",
        "skip:T1 wait 2:T1 ok",
    );
}

// R-S13
#[test]
fn the_delay_is_the_earliest_of_the_targets() {
    for seed in 0..50 {
        let run = play(
            &two_rounds(3),
            "T1: 429/30000; T2: 429/800 ok; T3: 429/1500",
            seed,
        );
        assert_eq!(run.trace, "1:T1 1:T2 1:T3 wait skip:T1 2:T2 ok");
        // T2's instant is 820 ms after the begin, the wait begins at 30 ms.
        let wait = run.wait.unwrap();
        assert!(wait >= ms(790) && wait < ms(790 + 198), "{wait:?}");
    }
}

// R-S12 R-S13: an instant that passed while other targets were asked leaves the jitter alone.
#[test]
fn not_before_is_absolute() {
    let run = check(
        &two_rounds(2),
        "T1: 429/100 ok; T2: 429/1900@1000",
        "1:T1 1:T2 wait 2:T1 ok",
    );
    assert!(run.wait.unwrap() < ms(50));
}

// R-S13
#[test]
fn a_missing_delay_is_a_quarter_second() {
    let run = check(&two_rounds(1), "T1: 429 ok", "1:T1 wait 2:T1 ok");
    let wait = run.wait.unwrap();
    assert!(wait >= ms(250) && wait < ms(313), "{wait:?}");
}

// R-S13: a delay of zero is usable; only the jitter is waited.
#[test]
fn a_zero_delay_waits_for_the_jitter_alone() {
    let run = check(&two_rounds(1), "T1: 429/0 ok", "1:T1 wait 2:T1 ok");
    assert!(run.wait.unwrap() < ms(50));
}

// R-S14, C11: uniform over max(50 ms, delay / 4), at most 500 ms, never below the delay.
#[test]
fn waiters_with_one_delay_spread_over_the_width() {
    for (delay, width) in [(0, 50), (100, 50), (400, 100), (1000, 250), (2000, 500)] {
        let waits: Vec<Duration> = (0..400)
            .map(|seed| {
                play(&two_rounds(1), &format!("T1: 429/{delay} ok"), seed)
                    .wait
                    .unwrap()
            })
            .collect();
        let (low, high) = (*waits.iter().min().unwrap(), *waits.iter().max().unwrap());
        assert!(low >= ms(delay), "delay {delay}: {low:?}");
        assert!(high < ms(delay + width), "delay {delay}: {high:?}");
        assert!(
            low < ms(delay) + ms(width) / 20,
            "delay {delay}: starts at {low:?}"
        );
        assert!(
            high > ms(delay + width) - ms(width) / 20,
            "delay {delay}: stops at {high:?}"
        );
        for quarter in 0..4 {
            let from = ms(delay) + ms(width) * quarter / 4;
            let within = waits
                .iter()
                .filter(|w| **w >= from && **w < from + ms(width) / 4)
                .count();
            assert!(
                (60..=140).contains(&within),
                "delay {delay}: {within} of 400 in quarter {quarter}"
            );
        }
    }
}

// R-S14: the cap of the width, for a delay whose quarter is wider.
#[test]
fn the_spread_is_capped_at_half_a_second() {
    let spec = Spec {
        wait_max: 60_000,
        ..two_rounds(1)
    };
    for seed in 0..200 {
        let wait = play(&spec, "T1: 429/20000 ok", seed).wait.unwrap();
        assert!(wait >= ms(20_000) && wait < ms(20_500), "{wait:?}");
    }
}

// R-S15
#[test]
fn the_wait_ends_promptly() {
    let gone = check(
        &two_rounds(1),
        "T1: 429/1000; gone@500",
        "1:T1 wait cancelled",
    );
    assert_eq!(gone.settled.waited, ms(490));
    assert_eq!(gone.settled.sends, 1);
    check(
        &two_rounds(1),
        "T1: 429/1000; drop@500",
        "1:T1 wait cancelled",
    );
    let down = check(
        &two_rounds(1),
        "T1: 429/1000; shutdown@500",
        "1:T1 wait throttled(shutdown)",
    );
    assert_eq!(down.answered_at, Some(ms(500)));
    assert_eq!(down.throttle.unwrap().milliseconds(), 510);
}

// R-S15 R-C3: also when no attempt was made and the wait was for a remembered cooldown.
#[test]
fn a_wait_without_attempts_ends_with_its_429_too() {
    let script = "T1: ok; cool T1 1000; shutdown@500";
    check(&two_rounds(1), script, "skip:T1 wait throttled(shutdown)");
}

// R-S16
#[test]
fn round_two_skips_what_still_cools() {
    check(
        &two_rounds(3),
        "T1: 429/1900; T2: 429/300 429/100; T3: 429/300 ok",
        "1:T1 1:T2 1:T3 wait skip:T1 2:T2 2:T3 ok",
    );
}

// R-S16: also what somebody else learned during the wait.
#[test]
fn round_two_skips_what_was_set_aside_meanwhile() {
    check(
        &two_rounds(2),
        "T1: 429/300; T2: 429/300 ok; cool T1 5000@200",
        "1:T1 1:T2 wait skip:T1 2:T2 ok",
    );
    let run = check(
        &two_rounds(1),
        "T1: 429/300; cool T1 5000@200",
        "1:T1 wait skip:T1 throttled(exhausted)",
    );
    assert_eq!(run.second_round_end, Some(SecondRoundEnd::Exhausted));
}

// R-S19
#[test]
fn another_failure_in_round_two_ends_the_operation() {
    for (token, end) in [
        ("reset", "ambiguous"),
        ("timeout", "timed_out"),
        ("500", "500"),
        ("u429", "429"),
        ("auth", "401"),
        ("nd", "throttled(second_round_failed)"),
        ("partial", "ambiguous"),
    ] {
        let spec = two_rounds(2).transport_error().http_5xx();
        let script = format!("T1: 429/100 {token}; T2: 429/100 ok");
        let run = check(&spec, &script, &format!("1:T1 1:T2 wait 2:T1 {end}"));
        assert_eq!(run.second_round_end, Some(SecondRoundEnd::Other), "{token}");
    }
}

// R-S20
#[test]
fn the_final_throttle_tells_the_exact_remaining_delay() {
    let run = check(
        &two_rounds(2),
        "T1: 429/100 429/4000; T2: 429/100 429/2300",
        "1:T1 1:T2 wait 2:T1 2:T2 throttled(exhausted)",
    );
    let headers = run.throttle.unwrap();
    assert_eq!(headers.retry_after, ms(2300));
    assert_eq!((headers.seconds(), headers.milliseconds()), (3, 2300));
    assert!(headers.should_retry);
}

// R-S20
#[test]
fn retry_after_is_at_least_one() {
    let run = check(
        &route(2),
        "T1: 429/0; T2: 429/500",
        "1:T1 1:T2 throttled(exhausted)",
    );
    let headers = run.throttle.unwrap();
    assert_eq!((headers.seconds(), headers.milliseconds()), (1, 1));
}

// R-S20 R-P1
#[test]
fn a_gateway_that_owns_retries_tells_the_caller_not_to() {
    let spec = Spec {
        caller_owns_retries: false,
        ..route(1)
    };
    let run = check(&spec, "T1: 429/500", "1:T1 throttled(exhausted)");
    assert!(!run.throttle.unwrap().should_retry);
}

// R-S20: the last certified answer, in its own status.
#[test]
fn the_last_certified_answer_is_the_final_one() {
    assert_eq!(
        check(
            &route(2),
            "T1: 429; T2: 529",
            "1:T1 1:T2 throttled(exhausted)"
        )
        .status,
        Some(529)
    );
    assert_eq!(
        check(
            &route(2),
            "T1: 529; T2: s429",
            "1:T1 1:T2 throttled(exhausted)"
        )
        .status,
        Some(429)
    );
}

//! The retries that the gateway makes itself at an internal provider (R-P), one requirement after the other.

use std::collections::BTreeSet;
use std::sync::Arc;

use rand::SeedableRng;
use rand::rngs::SmallRng;
use rondo::core::outcome::{AttemptReport, Reply};
use rondo::core::settlement::OperationOutcome;
use rondo::executor::Executor;
use rondo::executor::effect::{FinalAnswer, Next};
use rondo::executor::event::Event;

use crate::support::check::{START, check, play};
use crate::support::ms;
use crate::support::reports::named;
use crate::support::spec::{Spec, route, two_rounds};

/// One target at an internal provider: four tries within ten seconds, 100 ms doubling to 400 ms.
pub fn internal() -> Spec {
    Spec {
        sends_max: 16,
        ..route(1).internal(4, 10_000, 100, 400)
    }
}

// R-P1: whose caller owns retries gets the answer, and nothing says that it must not be retried.
#[test]
fn an_external_provider_is_never_retried() {
    for token in ["429/100", "u429", "500", "503", "529"] {
        let run = play(&route(1), &format!("T1: {token} ok"), 1);
        assert_eq!(run.settled.sends, 1, "{token}");
        assert!(!run.forbids_retry, "{token}");
    }
}

// R-P1
#[test]
fn an_internal_provider_is_retried_and_its_success_is_plain() {
    let run = check(&internal(), "T1: 503 ok", "1:T1 pause 1:T1+1 ok");
    assert!(!run.forbids_retry);
    assert_eq!(run.decisions, ["same_target", "accepted"]);
    assert_eq!(run.settled.waited, run.pauses[0], "the pause is time slept");
}

// R-P1: without rules there is nothing to retry by, and the answer is marked all the same.
#[test]
fn an_internal_provider_without_rules_only_marks() {
    let spec = Spec {
        retry: None,
        ..internal()
    };
    assert!(check(&spec, "T1: 503", "1:T1 503").forbids_retry);
}

// R-P2: one counter over any mix; a change of status resets nothing, and the first status counts as much as the last.
#[test]
fn any_mix_of_statuses_shares_one_counter() {
    // C93
    for mix in [
        "429 500 503 529",
        "u429 502 504 520",
        "529 429 500 502",
        "s500 u529 s429 503",
    ] {
        let run = play(&internal(), &format!("T1: {mix} ok"), 1);
        assert_eq!(run.settled.sends, 4, "{mix}");
        assert_eq!(run.pauses.len(), 3, "{mix}");
        assert!(run.forbids_retry, "{mix}");
    }
}

// R-P2: every listed status, and no other.
#[test]
fn the_listed_statuses_are_retried_and_no_other() {
    for status in [429, 500, 502, 503, 504, 520, 529] {
        check(
            &internal(),
            &format!("T1: u{status} ok"),
            "1:T1 pause 1:T1+1 ok",
        );
    }
    for status in [501, 505, 507, 521, 522, 524, 408, 409, 425] {
        let run = play(&internal(), &format!("T1: u{status} ok"), 1);
        assert_eq!(run.settled.sends, 1, "{status}");
    }
    for token in ["nd", "reset", "timeout", "malformed", "partial"] {
        assert_eq!(
            play(&internal(), &format!("T1: {token} ok"), 1)
                .settled
                .sends,
            1
        );
    }
}

// R-P2: max_attempts counts the first try.
#[test]
fn attempts_are_finite_and_include_the_first() {
    for attempts in 1..=5 {
        let spec = Spec {
            sends_max: 16,
            ..route(1).internal(attempts, 60_000, 10, 20)
        };
        let run = play(&spec, "T1: 503", 1);
        assert_eq!(run.settled.sends, attempts);
        assert!(run.trace.ends_with("spent 503"), "{}", run.trace);
    }
}

// R-P2: counted from the first failure, not from the start: a slow first answer takes nothing away.
#[test]
fn the_elapsed_time_counts_from_the_first_failure() {
    let spec = Spec {
        sends_max: 16,
        ..route(1).internal(10, 1_000, 400, 400)
    };
    for seed in 0..50 {
        // 200 to 400 ms of pause and 10 ms of answer: the third or fourth retry would come too late.
        let run = play(&spec, "T1: 503@5000 503", seed);
        assert!((3..=5).contains(&run.settled.sends), "{}", run.trace);
        let answered = run.answered_at.unwrap();
        assert!(answered <= ms(5_000 + 1_000 + 10), "{answered:?}");
        assert!(run.trace.ends_with("spent 503"), "{}", run.trace);
    }
    let spec = Spec {
        sends_max: 16,
        ..route(1).internal(10, 50, 200, 200)
    };
    check(&spec, "T1: 503 ok", "1:T1 spent 503");
}

// R-P3: half fixed, half random, doubling, capped. The auditor holds each pause between its halves; here both ends are met.
#[test]
fn pauses_grow_by_equal_jitter_to_the_cap() {
    let bounds = [(50, 100), (100, 200), (200, 400)];
    let mut seen = [(u128::MAX, 0); 3];
    for seed in 0..400 {
        let run = play(&internal(), "T1: 503", seed);
        for ((pause, bound), seen) in run.pauses.iter().zip(bounds).zip(&mut seen) {
            let micros = pause.as_micros();
            assert!(*pause >= ms(bound.0) && *pause <= ms(bound.1), "{pause:?}");
            *seen = (seen.0.min(micros), seen.1.max(micros));
        }
    }
    for (bound, seen) in bounds.iter().zip(seen) {
        let width = u128::from(bound.1 - bound.0) * 1000;
        assert!(
            seen.1 - seen.0 > width * 9 / 10,
            "only {seen:?} of {bound:?}"
        );
    }
    let long = Spec {
        sends_max: 16,
        ..route(1).internal(8, 60_000, 100, 250)
    };
    let last = play(&long, "T1: 503", 3).pauses[6];
    assert!(last >= ms(125) && last <= ms(250), "the cap: {last:?}");
}

// R-P3, C10: jitter has a floor, and a later pause is never shorter than an earlier one while they grow; all together keep the bound.
#[test]
fn a_later_pause_is_not_shorter() {
    let spec = Spec {
        sends_max: 16,
        ..route(1).internal(5, 20_000, 250, 4_000)
    };
    for seed in 0..200 {
        let run = play(&spec, "T1: u429 u429 u429 u429 ok", seed);
        assert_eq!(run.status, Some(200), "{}", run.trace);
        assert_eq!(run.settled.sends, 5);
        assert!(run.pauses[0] >= ms(125), "{:?}", run.pauses);
        assert!(run.pauses.is_sorted(), "{:?}", run.pauses);
        let slept: std::time::Duration = run.pauses.iter().sum();
        assert!(slept >= ms(1_875) && slept <= ms(3_750), "{slept:?}");
    }
}

// R-P3: a certified throttle without a delay is retried by the backoff alone, however short: the delay that a second round
// assumes is no directive.
#[test]
fn the_assumed_delay_of_a_round_is_no_directive() {
    let spec = Spec {
        sends_max: 16,
        ..route(1).internal(3, 10_000, 20, 40)
    };
    let run = check(&spec, "T1: 429 ok", "1:T1 pause 1:T1+1 ok");
    assert!(run.pauses[0] <= ms(20));
    check(&spec, "T1: 529 429 ok", "1:T1 pause 1:T1+1 pause 1:T1+2 ok");
}

// R-P3: certified or not, a delay is a floor, and the spread lies on top of it.
#[test]
fn a_delay_within_the_bound_is_a_floor() {
    for token in ["429/1500", "u429/1500", "503/1500", "s429/1500"] {
        for seed in 0..20 {
            let run = play(&internal(), &format!("T1: {token} ok"), seed);
            assert_eq!(run.trace, "1:T1 pause 1:T1+1 ok", "{token}");
            assert!(run.pauses[0] >= ms(1500) && run.pauses[0] <= ms(2000));
        }
    }
    let run = check(&internal(), "T1: 503/0 ok", "1:T1 pause 1:T1+1 ok");
    assert!(
        run.pauses[0] >= ms(50),
        "a delay of nothing is no licence to hurry"
    );
}

// R-P3: as long as the delay itself fits, chance does not decide whether there is a retry.
#[test]
fn a_delay_at_the_bound_is_still_waited_for() {
    for seed in 0..50 {
        let run = play(&internal(), "T1: 503/9990 ok", seed);
        assert_eq!(run.trace, "1:T1 pause 1:T1+1 ok");
        assert!(run.pauses[0] >= ms(9_990) && run.pauses[0] <= ms(10_000));
    }
    check(&internal(), "T1: 503/10001 ok", "1:T1 spent 503");
}

// R-P3: one beyond the bound ends the sequence at once, for good.
#[test]
fn a_delay_beyond_the_bound_ends_the_sequence() {
    let run = check(&internal(), "T1: 503/60000 ok", "1:T1 spent 503");
    assert_eq!(run.answered_at, Some(ms(10)));
    assert!(run.forbids_retry);
    let run = check(
        &internal(),
        "T1: 503 429/60000 ok",
        "1:T1 pause 1:T1+1 spent throttled(exhausted)",
    );
    assert!(!run.throttle.unwrap().should_retry, "R-P1");
}

// R-P4: what no retry mends is final, whatever status carries it.
#[test]
fn terminal_classes_are_never_retried() {
    for (token, end) in [
        ("auth", "401"),
        ("auth429", "429"),
        ("config", "404"),
        ("config503", "503"),
        ("context", "400"),
        ("context500", "500"),
        ("policy", "400"),
        ("quota", "429"),
        ("quota402", "402"),
    ] {
        check(
            &internal(),
            &format!("T1: {token} ok"),
            &format!("1:T1 {end}"),
        );
        // In the middle of a sequence, too. It ends, but its retries are not used up.
        let trace = format!("1:T1 pause 1:T1+1 {end}");
        check(&internal(), &format!("T1: 503 {token} ok"), &trace);
    }
}

// R-P5 R-P2: mixed statuses for ever end by attempts or by elapsed time, with the last status, also where an earlier one would outrank it.
#[test]
fn a_storm_ends_with_the_last_status() {
    for (attempts, last) in [(4, 529), (3, 503), (2, 500), (1, 429)] {
        let spec = Spec {
            sends_max: 64,
            ..route(1).internal(attempts, 60_000, 10, 20)
        };
        let run = play(&spec, "T1: 429 500 503 529", 1);
        assert_eq!(run.status, Some(last), "{}", run.trace);
        assert!(run.forbids_retry);
    }
    let spec = Spec {
        sends_max: 64,
        ..route(1).internal(32, 900, 100, 100)
    };
    let storm = "T1: 429 500 503 529 429 500 503 529 429 500 503 529 429 500 503 529 429";
    for seed in 0..50 {
        let run = play(&spec, storm, seed);
        let last = [429, 500, 503, 529][(run.settled.sends as usize - 1) % 4];
        assert_eq!(run.status, Some(last), "{}", run.trace);
        assert!(run.answered_at.unwrap() <= ms(920));
    }
}

// R-P5 R-D1: the sequence stands for its target as one failure; other targets keep theirs.
#[test]
fn the_last_failure_of_a_sequence_takes_part_in_precedence() {
    let spec = Spec {
        internal: 0b10,
        sends_max: 16,
        ..route(2).internal(2, 10_000, 10, 20)
    }
    .http_5xx();
    check(
        &spec,
        "T1: 502; T2: 500 429",
        "1:T1 1:T2 pause 1:T2+1 spent 502",
    );
    check(
        &spec,
        "T1: nd; T2: 500 429",
        "1:T1 1:T2 pause 1:T2+1 spent throttled(exhausted)",
    );
}

fn told(bytes: &[u8]) -> AttemptReport {
    let report = named("503");
    let reply = Reply {
        body: bytes.to_vec(),
        ..Reply::clone(report.reply.as_ref().unwrap())
    };
    AttemptReport {
        reply: Some(Arc::new(reply)),
        ..report
    }
}

/// Plays a sequence of reports by hand, on one target.
fn answers(spec: &Spec, reports: Vec<AttemptReport>) -> (Executor, Next) {
    let route = spec.build();
    let mut executor = Executor::new(spec.plan(&route, START));
    let mut rng = SmallRng::seed_from_u64(5);
    let mut now = START;
    let mut next = executor.handle(now, Event::Admitted, &mut rng).next;
    let mut reports = reports.into_iter();
    loop {
        let event = match next {
            Next::Begin(_) => Event::SendBegun,
            Next::Send => Event::Outcome(reports.next().expect("one more answer")),
            Next::Wait(until) => {
                now = until;
                Event::WaitElapsed
            }
            next => return (executor, next),
        };
        next = executor.handle(now, event, &mut rng).next;
    }
}

// R-P5: bytes are bytes.
#[test]
fn the_final_body_is_kept_byte_for_byte() {
    let spec = Spec {
        sends_max: 16,
        ..route(1).internal(2, 10_000, 10, 20)
    };
    let bytes = [0xff, 0xfe, 0x00, b'{', 0xc3];
    let mut last = told(&bytes);
    // Inside a stream nothing is held that could be delivered as it is.
    last.carrier = rondo::core::outcome::Carrier::Stream;
    let (executor, next) = answers(&spec, vec![told(b"first"), last]);
    match next {
        Next::Answer(FinalAnswer::Upstream(reply)) => assert_eq!(reply.body, bytes),
        other => panic!("{other:?}"),
    }
    assert!(executor.forbids_retry());
    assert_eq!(executor.told_attempt(), Some(2));
}

// R-P6: the pause holds a waiting slot, its bytes, and nothing else; the slot is given back before the next try.
#[test]
fn a_pause_holds_a_slot_and_gives_it_back() {
    let spec = internal();
    let route = spec.build();
    let mut executor = Executor::new(spec.plan(&route, START));
    let mut rng = SmallRng::seed_from_u64(1);
    let _ = executor.handle(START, Event::Admitted, &mut rng);
    let _ = executor.handle(START, Event::SendBegun, &mut rng);
    let paused = executor.handle(START, Event::Outcome(named("503")), &mut rng);
    let Next::Wait(until) = paused.next else {
        panic!("{paused:?}")
    };
    assert_eq!(
        (route.waiters.waiting(), route.waiters.waiting_bytes()),
        (1, 1000)
    );
    let early = executor.handle(START, Event::WaitElapsed, &mut rng);
    assert!(matches!(early.next, Next::Wait(again) if again == until) && early.notes.is_empty());
    assert_eq!(route.waiters.waiting(), 1);
    let next = executor.handle(until, Event::WaitElapsed, &mut rng).next;
    assert!(matches!(next, Next::Begin(begin) if begin.retry_index == 1));
    assert_eq!(
        (route.waiters.waiting(), route.waiters.waiting_bytes()),
        (0, 0)
    );
}

// R-P6 R-L5: whatever ends the operation ends the pause in the same moment.
#[test]
fn a_pause_ends_at_once() {
    let spec = Spec {
        deadline: 4_000,
        ..internal()
    };
    let script = "T1: 503/2000 ok";
    let gone = check(
        &spec,
        &format!("{script}; gone@500"),
        "1:T1 pause cancelled",
    );
    assert_eq!(gone.settled.outcome, OperationOutcome::Cancelled);
    assert_eq!(gone.settled.waited, ms(490));
    assert_eq!(
        check(
            &spec,
            &format!("{script}; drop@500"),
            "1:T1 pause cancelled"
        )
        .settled
        .waited,
        ms(490)
    );
    let drained = check(&spec, &format!("{script}; shutdown@500"), "1:T1 pause 503");
    assert_eq!(drained.answered_at, Some(ms(500)));
    assert_eq!(drained.settled.reason, "shutdown");
    assert!(drained.forbids_retry);
}

// R-P6 R-B4: a pause that would not fit the deadline is not begun, so only a timer that fires early can end one; that one is believed.
#[test]
fn a_pause_fits_the_deadline() {
    let spec = Spec {
        deadline: 1_000,
        ..internal()
    };
    check(&spec, "T1: 503/700 ok", "1:T1 pause 1:T1+1 ok");
    check(&spec, "T1: 503/760 ok", "1:T1 spent 503");
    for seed in 0..50 {
        let run = play(&spec, "T1: 503/700 ok", seed);
        assert!(
            run.pauses[0] <= ms(740),
            "no room for a try: {:?}",
            run.pauses
        );
    }
}

// R-P6 R-S11: with a second round configured, an end in the pause gives its one reason, too.
#[test]
fn a_pause_that_is_cut_explains_the_missing_round() {
    let spec = Spec {
        sends_max: 16,
        ..two_rounds(1).internal(4, 10_000, 100, 400)
    };
    check(
        &spec,
        "T1: 429/2000 ok; shutdown@500",
        "1:T1 pause -shutdown throttled(shutdown)",
    );
    check(
        &spec,
        "T1: 503/2000 ok; gone@500",
        "1:T1 pause -client_gone cancelled",
    );
}

// R-P6 R-P3: fifty callers that fail in the same moment share no instant of waking, with a delay of the provider and without.
#[test]
fn callers_that_fail_together_wake_apart() {
    for token in ["503", "503/2000", "503/9500"] {
        let runs = (0..50).map(|seed| play(&internal(), &format!("T1: {token} ok"), seed));
        let instants: BTreeSet<_> = runs.map(|run| run.pauses[0]).collect();
        assert_eq!(instants.len(), 50, "{token}");
    }
}

// R-P7: the end of a sequence is told once, whatever follows.
#[test]
fn the_end_of_retries_is_told_once() {
    let spec = Spec {
        sends_max: 16,
        ..two_rounds(1).internal(2, 10_000, 10, 20)
    };
    let run = play(&spec, "T1: 429/100", 1);
    assert_eq!(run.trace.matches("spent").count(), 1, "{}", run.trace);
}

//! Bounds and the dispatch point (R-B).

use rand::SeedableRng;
use rand::rngs::SmallRng;
use rondo::core::settlement::{OperationOutcome, State};
use rondo::core::time::MonoTime;
use rondo::executor::Executor;
use rondo::executor::effect::{FinalAnswer, Next, Note};
use rondo::executor::event::Event;

use crate::support::check::{START, check};
use crate::support::ms;
use crate::support::reports::named;
use crate::support::spec::{Spec, route, two_rounds};

// R-B1
#[test]
fn sends_never_pass_their_bound() {
    for max in 1..=7 {
        let spec = Spec {
            sends_max: max,
            sticky_tries: 2,
            ..two_rounds(3).http_5xx()
        };
        let run = crate::support::check::play(&spec, "T1: 429/0; T2: 429/0; T3: 429/0", 1);
        assert_eq!(run.settled.sends, max.min(6));
    }
}

// R-B2
#[test]
fn attempts_of_a_round_never_pass_their_bound() {
    let spec = Spec {
        attempts_max: 2,
        ..two_rounds(3)
    };
    check(
        &spec,
        "T1: 429/100; T2: 429/100; T3: ok",
        "1:T1 1:T2 wait 2:T1 2:T2 throttled(exhausted)",
    );
}

// R-B2: what is passed over costs no attempt, but a place in the round.
#[test]
fn a_skipped_target_is_not_tried_again_in_its_round() {
    let spec = Spec {
        attempts_max: 2,
        ..route(3)
    };
    check(
        &spec,
        "T1: ok; T2: 429@900; T3: 429; cool T1 500",
        "skip:T1 1:T2 1:T3 throttled(exhausted)",
    );
}

// R-B4
#[test]
fn one_deadline_covers_sends_and_waits() {
    let spec = Spec {
        deadline: 1000,
        ..route(2)
    };
    check(&spec, "T1: 429@400; T2: 429@700", "1:T1 1:T2 timed_out");
    let opted = Spec {
        deadline: 1000,
        ..route(2).transport_error()
    };
    check(&opted, "T1: 429@400; T2: ok@700", "1:T1 1:T2 deadline");
    check(&opted, "T1: ok@1100; T2: ok", "1:T1 deadline");
}

// R-B4: a stream that has committed is not cut.
#[test]
fn the_deadline_does_not_cut_a_delivery() {
    let spec = Spec {
        deadline: 12,
        ..route(1)
    };
    let run = check(&spec, "T1: ok@10", "1:T1 ok");
    assert_eq!(run.settled.outcome, OperationOutcome::Succeeded);
}

// R-B4: the deadline that passes while a request is prepared forbids its send.
#[test]
fn no_send_starts_at_or_after_the_deadline() {
    let spec = Spec {
        deadline: 100,
        ..route(2)
    };
    check(&spec, "T1: 429@10; T2: ok; prepare 80", "1:T1 deadline");
    assert!(matches!(
        late_dispatch(START.after(ms(100))),
        Next::Answer(FinalAnswer::Deadline)
    ));
    assert!(matches!(late_dispatch(START.after(ms(99))), Next::Send));
}

/// The shell reaches the dispatch point at `now`, before its own timer told of the deadline.
fn late_dispatch(now: MonoTime) -> Next {
    let spec = Spec {
        deadline: 100,
        ..route(1)
    };
    let mut executor = Executor::new(spec.plan(&spec.build(), START));
    let mut chance = SmallRng::seed_from_u64(1);
    let _ = executor.handle(START, Event::Admitted, &mut chance);
    executor.handle(now, Event::SendBegun, &mut chance).next
}

// R-B4: an event of the deadline that comes a moment early is believed.
#[test]
fn a_deadline_told_early_ends_the_operation_all_the_same() {
    let spec = Spec {
        deadline: 100,
        ..route(2).transport_error()
    };
    let mut executor = Executor::new(spec.plan(&spec.build(), START));
    let mut chance = SmallRng::seed_from_u64(1);
    let _ = executor.handle(START, Event::Admitted, &mut chance);
    let _ = executor.handle(START, Event::SendBegun, &mut chance);
    let effects = executor.handle(START.after(ms(99)), Event::DeadlinePassed, &mut chance);
    assert!(
        matches!(effects.next, Next::Answer(FinalAnswer::Deadline)),
        "{effects:?}"
    );
}

// R-B8: planted fault (b). A cancel before the dispatch point wins; after it the send is recorded.
#[test]
fn a_cancel_before_the_dispatch_point_wins() {
    let before = check(&route(2), "T1: ok; prepare 20; gone@20", "cancelled");
    assert_eq!(
        (before.settled.sends, before.states),
        (0, vec!["cancelled"])
    );
    let after = check(&route(2), "T1: ok; prepare 20; gone@21", "1:T1 cancelled");
    assert_eq!((after.settled.sends, after.states), (1, vec!["cancelled"]));
}

// R-B8: drain forbids every send but the first.
#[test]
fn a_drain_before_the_dispatch_point_wins() {
    check(&route(2), "T1: ok; prepare 20; shutdown@5", "1:T1 ok");
    check(
        &route(2),
        "T1: 429; T2: ok; prepare 20; shutdown@40",
        "1:T1 throttled(shutdown)",
    );
    check(
        &route(2).transport_error(),
        "T1: reset; T2: ok; prepare 20; shutdown@40",
        "1:T1 ambiguous",
    );
}

// R-L1: terminal is terminal.
#[test]
fn the_executor_ignores_events_after_its_end() {
    let mut executor = Executor::new(route(1).plan(&route(1).build(), START));
    let mut chance = SmallRng::seed_from_u64(1);
    let _ = executor.handle(START, Event::ClientGone, &mut chance);
    for event in [
        Event::Admitted,
        Event::SendBegun,
        Event::Outcome(named("ok")),
        Event::WaitElapsed,
        Event::ClientGone,
        Event::ShutdownBegun,
        Event::DeadlinePassed,
        Event::Committed,
        Event::Dropped,
    ] {
        let effects = executor.handle(START, event, &mut chance);
        assert!(matches!(effects.next, Next::End) && effects.notes.is_empty());
    }
}

// R-S14: a timer that fires early is sent back to sleep.
#[test]
fn an_early_timer_does_not_wake() {
    let spec = two_rounds(1);
    let mut executor = Executor::new(spec.plan(&spec.build(), START));
    let mut chance = SmallRng::seed_from_u64(1);
    let _ = executor.handle(START, Event::Admitted, &mut chance);
    let _ = executor.handle(START, Event::SendBegun, &mut chance);
    let effects = executor.handle(START, Event::Outcome(named("429/100")), &mut chance);
    let Next::Wait(until) = effects.next else {
        panic!("{effects:?}")
    };
    let early = MonoTime::from_micros(until.as_micros() - 1);
    let effects = executor.handle(early, Event::WaitElapsed, &mut chance);
    assert!(
        matches!(effects.next, Next::Wait(again) if again == until) && effects.notes.is_empty()
    );
    let effects = executor.handle(until, Event::WaitElapsed, &mut chance);
    assert!(matches!(effects.next, Next::Begin(_)));
}

// R-B6 R-S15: the slot is free as soon as the wait has ended.
#[test]
fn a_slot_is_held_exactly_as_long_as_the_wait() {
    let spec = Spec {
        held_bytes: 700,
        ..two_rounds(1)
    };
    let route = spec.build();
    let mut executor = Executor::new(spec.plan(&route, START));
    let mut chance = SmallRng::seed_from_u64(1);
    let _ = executor.handle(START, Event::Admitted, &mut chance);
    let _ = executor.handle(START, Event::SendBegun, &mut chance);
    assert_eq!(route.waiters.waiting(), 0);
    let _ = executor.handle(START, Event::Outcome(named("429/100")), &mut chance);
    assert_eq!(
        (route.waiters.waiting(), route.waiters.waiting_bytes()),
        (1, 700)
    );
    let _ = executor.handle(START.after(ms(200)), Event::WaitElapsed, &mut chance);
    assert_eq!(
        (route.waiters.waiting(), route.waiters.waiting_bytes()),
        (0, 0)
    );
}

// R-L1 R-L2: a drop settles what is open, there and then.
#[test]
fn a_drop_settles_the_open_attempt_as_cancelled() {
    let mut executor = Executor::new(route(1).plan(&route(1).build(), START));
    let mut chance = SmallRng::seed_from_u64(1);
    let _ = executor.handle(START, Event::Admitted, &mut chance);
    let _ = executor.handle(START, Event::SendBegun, &mut chance);
    let effects = executor.handle(START, Event::Dropped, &mut chance);
    let states: Vec<State> = effects
        .notes
        .iter()
        .filter_map(|note| match note {
            Note::AttemptSettled(settled) => Some(settled.state),
            Note::OperationSettled(settled) => Some(settled.state),
            _ => None,
        })
        .collect();
    assert_eq!(states, [State::Cancelled, State::Cancelled]);
}

//! Every way to stop although candidates are left: one test a variant of `Stop`, and their order.

use rondo::core::commitment::Commitment;
use rondo::core::decision::{Decision, Facts, Round, Stop, decide};
use rondo::core::outcome::AttemptReport;
use rondo::policy::routing::Fallback;

use crate::support::check::{Run, check};
use crate::support::reports::named;
use crate::support::spec::{Spec, route, two_rounds};

fn stops(run: &Run, stop: Stop) {
    assert_eq!(run.settled.stop, Some(stop));
}

// R-F7
#[test]
fn stop_terminal() {
    stops(
        &check(&route(2), "T1: 400; T2: ok", "1:T1 400"),
        Stop::Terminal,
    );
}

// R-F2
#[test]
fn stop_ambiguous() {
    stops(
        &check(&route(2), "T1: reset; T2: ok", "1:T1 ambiguous"),
        Stop::Ambiguous,
    );
}

// R-S6
#[test]
fn stop_output_seen() {
    let spec = route(2).transport_error().http_5xx();
    stops(
        &check(&spec, "T1: partial; T2: ok", "1:T1 ambiguous"),
        Stop::OutputSeen,
    );
}

// R-S9
#[test]
fn stop_shutdown() {
    let run = check(
        &route(2),
        "T1: 429@500; T2: ok; shutdown@100",
        "1:T1 throttled(shutdown)",
    );
    stops(&run, Stop::Shutdown);
}

// R-B4
#[test]
fn stop_deadline() {
    let spec = Spec {
        deadline: 300,
        ..route(2).transport_error()
    };
    stops(
        &check(&spec, "T1: ok@500; T2: ok", "1:T1 deadline"),
        Stop::Deadline,
    );
}

// R-F4
#[test]
fn stop_slow_failure() {
    let spec = Spec {
        fail_within: Some(100),
        ..route(2).http_5xx()
    };
    stops(
        &check(&spec, "T1: 500@200; T2: ok", "1:T1 500"),
        Stop::SlowFailure,
    );
}

// R-S19
#[test]
fn stop_second_round() {
    let spec = two_rounds(2).http_5xx();
    let run = check(
        &spec,
        "T1: 429/100 500; T2: 429/100",
        "1:T1 1:T2 wait 2:T1 500",
    );
    stops(&run, Stop::SecondRound);
}

// R-D4
#[test]
fn stop_client_gone() {
    stops(
        &check(&route(2), "T1: ok@500; gone@100", "1:T1 cancelled"),
        Stop::ClientGone,
    );
}

// R-B8: a committed operation has no open attempt to fail; the question is asked all the same.
#[test]
fn stop_committed() {
    let report = named("429");
    let fallback = Fallback::default();
    let facts = Facts {
        commitment: Commitment::Headers,
        ..plain(&report, &fallback)
    };
    assert_eq!(decide(&facts), Decision::Stop(Stop::Committed));
}

// R-B8: an impossible event panics in tests.
#[cfg(debug_assertions)]
#[test]
#[should_panic(expected = "unexpected wait_elapsed while new")]
fn stop_unexpected() {
    use rand::SeedableRng;
    let spec = route(1);
    let plan = spec.plan(&spec.build(), crate::support::check::START);
    let mut executor = rondo::executor::Executor::new(plan);
    let mut chance = rand::rngs::SmallRng::seed_from_u64(1);
    let _ = executor.handle(
        crate::support::check::START,
        rondo::executor::event::Event::WaitElapsed,
        &mut chance,
    );
}

// R-B1 R-F3: the order of the questions is the order of the reasons.
#[test]
fn the_first_question_that_holds_decides() {
    let fallback = Fallback {
        transport_error: true,
        ..Fallback::default()
    };
    let (moving, staying) = (named("reset"), named("400"));
    let worst = Facts {
        commitment: Commitment::Headers,
        deadline_passed: true,
        draining: true,
        slow: true,
        failover_over: true,
        round: Round::Second,
        sends_left: 0,
        ..plain(&moving, &fallback)
    };
    let decided = |facts: Facts<'_>| decide(&facts);
    assert_eq!(decided(worst), Decision::Stop(Stop::Committed));
    let open = Facts {
        commitment: Commitment::Open,
        ..worst
    };
    assert_eq!(
        decided(Facts {
            report: &staying,
            ..open
        }),
        Decision::Stop(Stop::Terminal)
    );
    assert_eq!(decided(open), Decision::Stop(Stop::Deadline));
    let early = Facts {
        deadline_passed: false,
        ..open
    };
    assert_eq!(decided(early), Decision::Stop(Stop::Shutdown));
    let serving = Facts {
        draining: false,
        ..early
    };
    assert_eq!(decided(serving), Decision::Stop(Stop::SlowFailure));
    let quick = Facts {
        slow: false,
        ..serving
    };
    assert_eq!(decided(quick), Decision::Stop(Stop::FailoverElapsed));
    let timely = Facts {
        failover_over: false,
        ..quick
    };
    assert_eq!(decided(timely), Decision::Stop(Stop::SecondRound));
    let first = Facts {
        round: Round::First,
        ..timely
    };
    assert_eq!(decided(first), Decision::RoundOver);
    let funded = Facts {
        sends_left: 1,
        ..first
    };
    assert_eq!(decided(funded), Decision::SameTarget);
    let poor = Facts {
        budget_left: false,
        ..funded
    };
    assert_eq!(decided(poor), Decision::Stop(Stop::RetryBudget));
    assert_eq!(
        decided(Facts {
            sticky_left: 0,
            ..funded
        }),
        Decision::NextTarget
    );
    assert_eq!(
        decided(Facts {
            sticky_left: 0,
            has_next: false,
            next_limited: true,
            ..funded
        }),
        Decision::Stop(Stop::LocalLimit)
    );
    let last = Facts {
        sticky_left: 0,
        has_next: false,
        ..funded
    };
    assert_eq!(decided(last), Decision::RoundOver);
}

fn plain<'a>(report: &'a AttemptReport, fallback: &'a Fallback) -> Facts<'a> {
    Facts {
        report,
        round: Round::First,
        commitment: Commitment::Open,
        draining: false,
        deadline_passed: false,
        slow: false,
        failover_over: false,
        sends_left: 5,
        budget_left: true,
        attempts_left: 5,
        sticky_left: 1,
        has_next: true,
        next_limited: false,
        has_next_key: false,
        pool_moves_on: false,
        retry_pause: None,
        fallback,
    }
}

// R-S22 R-L1: in production an impossible event settles what is open, once, and writes no second answer. Debug builds panic instead:
// `CARGO_PROFILE_TEST_DEBUG_ASSERTIONS=false cargo test --no-default-features --test pure stops`.
#[cfg(not(debug_assertions))]
#[test]
fn an_impossible_event_settles_everything_once() {
    use crate::support::check::START;
    use rand::SeedableRng;
    use rondo::executor::effect::{Next, Note};
    use rondo::executor::event::{Event, StreamEnd};

    let begun = [Event::Admitted, Event::SendBegun];
    let to = |token: &str| {
        begun
            .iter()
            .cloned()
            .chain([Event::Outcome(named(token))])
            .collect::<Vec<_>>()
    };
    let histories = [
        vec![],
        vec![Event::Admitted],
        begun.to_vec(),
        to("ok"),
        to("ok").into_iter().chain([Event::Committed]).collect(),
        to("429/500"),
        to("400"),
        to("400").into_iter().chain([Event::Committed]).collect(),
    ];
    for history in histories {
        let spec = two_rounds(1);
        let route = spec.build();
        let mut executor = rondo::executor::Executor::new(spec.plan(&route, START));
        let mut chance = rand::rngs::SmallRng::seed_from_u64(1);
        let mut notes = Vec::new();
        let answered =
            history.len() > 2 && !matches!(&history[2], Event::Outcome(r) if r.pushback.is_some());
        for event in history.iter().cloned() {
            notes.extend(executor.handle(START, event, &mut chance).notes);
        }
        // No phase knows an outcome without an attempt, or a begin after the begin.
        let impossible = if history.is_empty() {
            Event::WaitElapsed
        } else {
            Event::Admitted
        };
        let effects = executor.handle(START, impossible, &mut chance);
        assert_eq!(
            matches!(effects.next, Next::End),
            answered,
            "{history:?}: {effects:?}"
        );
        notes.extend(effects.notes);
        notes.extend(executor.handle(START, Event::Committed, &mut chance).notes);
        notes.extend(
            executor
                .handle(START, Event::StreamEnded(StreamEnd::Complete), &mut chance)
                .notes,
        );
        let count = |test: fn(&Note) -> bool| notes.iter().filter(|note| test(note)).count();
        assert_eq!(
            count(|n| matches!(n, Note::OperationSettled(_))),
            1,
            "{history:?}: {notes:?}"
        );
        assert_eq!(
            count(|n| matches!(n, Note::AttemptOpened(_))),
            count(|n| matches!(n, Note::AttemptSettled(_)))
        );
        assert_eq!(
            count(|n| matches!(n, Note::WaitBegun)),
            count(|n| matches!(n, Note::WaitEnded { .. }))
        );
        assert_eq!(route.waiters.waiting(), 0);
    }
}

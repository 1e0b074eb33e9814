//! The retry budget of a route: what is charged to it, what is free, and what happens when it is used up.

use std::sync::Arc;

use rondo::core::decision::Stop;
use rondo::core::time::MonoTime;
use rondo::policy::retry_budget::RetryBudget;
use rondo::policy::route::Route;

use crate::simulation::auditor::Cooling;
use crate::support::check::{Run, START, Script, check, play_plan};
use crate::support::ms;
use crate::support::spec::{Spec, route, two_rounds};

const fn at(millis: u64) -> MonoTime {
    MonoTime::from_micros(millis * 1000)
}

/// A budget that has nothing to give.
fn poor(base: Spec) -> Spec {
    Spec {
        budget: (0, 0),
        ..base
    }
}

// C23: the floor serves a route with little traffic, the share one with much.
#[test]
fn a_budget_is_a_floor_and_a_share() {
    let floor = RetryBudget::default();
    let given = (0..1000).filter(|_| floor.charge(at(1000))).count();
    assert_eq!(given, 100, "ten a second over ten seconds");
    assert!(!floor.has_room(at(1000)));

    let share = RetryBudget::default();
    (0..10_000).for_each(|_| share.deposit(at(1000)));
    let given = (0..5000).filter(|_| share.charge(at(1000))).count();
    assert_eq!(given, 2100, "a fifth of the operations besides");
}

// C22 C23: the window slides; charges leave it as operations do.
#[test]
fn a_budget_comes_back_when_its_window_has_moved_on() {
    let budget = RetryBudget::new(0, 1);
    assert_eq!((0..100).filter(|_| budget.charge(at(500))).count(), 10);
    assert!(!budget.charge(at(10_999)));
    assert_eq!((0..100).filter(|_| budget.charge(at(11_000))).count(), 10);
    // A clock that is a little behind counts as well.
    assert!(!budget.charge(at(10_900)));
}

// In any ten seconds there are at most as many charges as the floor and the share allow.
#[test]
fn no_ten_seconds_hold_more_than_the_budget() {
    let budget = RetryBudget::new(0, 2);
    let mut given = Vec::new();
    for step in 0..4000 {
        let now = step * 17;
        if budget.charge(at(now)) {
            given.push(now);
        }
    }
    for first in &given {
        let inside = given
            .iter()
            .filter(|t| (*first..first + 10_000).contains(*t));
        assert!(inside.count() <= 20);
    }
    assert!(given.len() > 60, "and it is used: {}", given.len());
}

// Two hundred threads never get more than there is.
#[test]
fn a_crowd_gets_no_more_than_the_budget() {
    let budget = RetryBudget::new(0, 3);
    let given = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..200)
            .map(|_| scope.spawn(|| (0..10).filter(|_| budget.charge(at(1000))).count()))
            .collect();
        threads
            .into_iter()
            .map(|t| t.join().unwrap())
            .sum::<usize>()
    });
    assert!(given <= 30);
    assert_eq!(
        budget.charged(at(1000)),
        given as u64,
        "what was refused is not counted"
    );
}

#[test]
fn stop_retry_budget() {
    let run = check(
        &poor(route(2).http_5xx()),
        "T1: 500; T2: ok",
        "1:T1 no_budget 500",
    );
    assert_eq!(run.settled.stop, Some(Stop::RetryBudget));
    assert_eq!(run.settled.reason, "retry_budget");
    assert_eq!(run.decisions, ["stop"]);
    let spec = poor(route(2).transport_error());
    check(&spec, "T1: reset; T2: ok", "1:T1 no_budget ambiguous");
    check(&poor(route(2)), "T1: u429; T2: ok", "1:T1 no_budget 429");
}

// R-F1: what nobody has run moves on always, within max_target_attempts.
#[test]
fn replay_safe_failures_move_on_without_a_budget() {
    check(
        &poor(route(3)),
        "T1: nd; T2: 429/900; T3: ok",
        "1:T1 1:T2 1:T3 ok",
    );
}

// C13: another key is bounded by the pool.
#[test]
fn another_key_is_free() {
    let spec = poor(route(1).keys(3));
    check(&spec, "T1: auth quota ok", "1:T1 1:T1k2 1:T1k3 ok");
}

// R-K2: a sticky try is charged, and what is free is still done.
#[test]
fn a_sticky_try_is_charged() {
    let spec = poor(Spec {
        sticky_tries: 2,
        ..route(2)
    });
    check(&spec, "T1: nd ok; T2: ok", "1:T1 no_budget 1:T2 ok");
    let alone = poor(Spec {
        sticky_tries: 2,
        ..route(1).http_5xx()
    });
    let run = check(&alone, "T1: 500 ok", "1:T1 no_budget 500");
    assert_eq!(run.settled.stop, Some(Stop::RetryBudget));
}

// R-P2: own retries are charged when their pause begins.
#[test]
fn an_own_retry_is_charged() {
    let spec = poor(route(2).internal(4, 60_000, 100, 100));
    check(
        &spec,
        "T1: 429/50 ok; T2: ok",
        "1:T1 no_budget spent 1:T2 ok",
    );
    check(&spec, "T1: 503 ok; T2: ok", "1:T1 no_budget spent 503");
}

// R-S11
#[test]
fn a_second_round_is_charged() {
    let run = check(
        &poor(two_rounds(2)),
        "T1: 429/100; T2: 429/100",
        "1:T1 1:T2 no_budget -retry_budget throttled(retry_budget)",
    );
    assert_eq!(run.throttle.unwrap().retry_after, ms(90));
}

/// Plays operations on one route, one after the other.
struct Played {
    spec: Spec,
    route: Arc<Route>,
    cooling: Cooling,
}

impl Played {
    fn new(spec: Spec) -> Played {
        let route = spec.build();
        Played {
            spec,
            route,
            cooling: Cooling::default(),
        }
    }

    fn one(&mut self, start: MonoTime, script: &str) -> Run {
        let plan = self.spec.plan(&self.route, start);
        let mut script = Script::parse(script);
        play_plan(plan, start, &mut script, &mut self.cooling, 1)
    }
}

// C22: an outage costs a fifth of the traffic, not as much again.
#[test]
fn an_outage_is_met_with_a_fifth_of_the_traffic() {
    let mut played = Played::new(Spec {
        budget: (20, 0),
        ..route(2).http_5xx()
    });
    let mut sends = 0;
    for operation in 0..1000 {
        let start = START.after(ms(operation * 5));
        sends += played.one(start, "T1: 500; T2: 500").settled.sends;
    }
    assert!((1190..=1200).contains(&sends), "{sends} sends");
}

// R-C2: the budget is the route's, whatever snapshot an operation began with.
#[test]
fn operations_of_one_route_share_it() {
    let mut played = Played::new(Spec {
        budget: (0, 1),
        ..route(2).http_5xx()
    });
    for _ in 0..10 {
        assert_eq!(played.one(START, "T1: 500; T2: ok").trace, "1:T1 1:T2 ok");
    }
    assert_eq!(
        played.one(START, "T1: 500; T2: ok").trace,
        "1:T1 no_budget 500"
    );
    let later = START.after(ms(11_000));
    assert_eq!(played.one(later, "T1: 500; T2: ok").trace, "1:T1 1:T2 ok");
}

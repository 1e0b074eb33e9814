//! Own retries among the other rules: budgets, sticky tries, modes, state, slots, the second round, what other operations learn.

use rondo::policy::routing::Mode;

use crate::executor_retries::internal;
use crate::support::check::check;
use crate::support::ms;
use crate::support::spec::{Spec, route, two_rounds};

// R-B1 R-F3: own retries are sends.
#[test]
fn own_retries_stay_inside_the_send_budget() {
    let spec = Spec {
        sends_max: 2,
        ..internal()
    };
    check(&spec, "T1: 503", "1:T1 pause 1:T1+1 spent 503");
    let spec = Spec {
        tries_max: Some(1),
        ..internal()
    };
    check(&spec, "T1: 503 ok", "1:T1 spent 503");
}

// R-F4: a slow failure is returned directly.
#[test]
fn a_slow_failure_is_not_retried() {
    let spec = Spec {
        fail_within: Some(100),
        ..internal()
    };
    check(&spec, "T1: 503@101 ok", "1:T1 503");
    check(&spec, "T1: 503@100 503@101 ok", "1:T1 pause 1:T1+1 503");
}

// R-K2: own retries take the place of sticky tries for what they are for; a try at once would undo the pause.
#[test]
fn own_retries_take_the_place_of_sticky_tries() {
    let spec = Spec {
        sticky_tries: 3,
        sends_max: 16,
        ..route(1).internal(2, 10_000, 10, 20)
    }
    .http_5xx();
    check(&spec, "T1: 500", "1:T1 pause 1:T1+1 spent 500");
    check(&spec, "T1: 502/60000", "1:T1 spent 502");
    check(&spec, "T1: nd ok", "1:T1 1:T1+1 ok");
}

// R-F6
#[test]
fn primary_only_retries_its_one_target() {
    let spec = Spec {
        targets: 2,
        mode: Mode::PrimaryOnly,
        ..internal()
    };
    check(&spec, "T1: 503 ok; T2: ok", "1:T1 pause 1:T1+1 ok");
}

// R-F8: the same target and key are no change.
#[test]
fn a_bound_operation_may_be_retried_where_it_is() {
    let spec = Spec {
        bound: true,
        ..internal()
    };
    check(&spec, "T1: 503 ok", "1:T1 pause 1:T1+1 ok");
}

// R-B6: where no slot is left there is no pause, and the failure is treated as any other.
#[test]
fn without_a_slot_the_next_target_is_tried() {
    let spec = Spec {
        slots_max: 1,
        sends_max: 16,
        ..route(2).internal(4, 10_000, 100, 400)
    };
    check(&spec, "T1: 429; T2: ok; sleepers 1", "1:T1 spent 1:T2 ok");
    check(&spec, "T1: 503; T2: ok; sleepers 1", "1:T1 spent 503");
}

// R-F1 R-F2: after its own retries a target is left as any other is: for what moves on.
#[test]
fn used_up_retries_move_on_as_the_route_says() {
    let spec = Spec {
        sends_max: 16,
        ..route(2).internal(2, 10_000, 10, 20)
    };
    check(&spec, "T1: 503; T2: ok", "1:T1 pause 1:T1+1 spent 503");
    check(
        &spec.http_5xx(),
        "T1: 503; T2: ok",
        "1:T1 pause 1:T1+1 spent 1:T2 ok",
    );
}

// R-S5 R-P2: retries first, then the second round, where nothing but certified throttles was seen; the counter outlives the round.
#[test]
fn used_up_retries_may_be_followed_by_the_second_round() {
    let spec = Spec {
        sends_max: 16,
        ..two_rounds(1).internal(2, 10_000, 10, 20)
    };
    check(
        &spec,
        "T1: 429/100 429/100 ok",
        "1:T1 pause 1:T1+1 spent wait 2:T1 ok",
    );
    check(
        &spec,
        "T1: 503 429/100 ok",
        "1:T1 pause 1:T1+1 spent -not_throttled throttled(not_throttled)",
    );
    check(
        &spec,
        "T1: 429/100 429/100 503 ok",
        "1:T1 pause 1:T1+1 spent wait 2:T1 503",
    );
}

// R-S12: what another operation learned during the pause counts: no send before it. What may move on does, the rest is told.
#[test]
fn a_cooldown_that_others_extend_ends_the_retries() {
    let spec = Spec {
        sends_max: 16,
        ..route(2).internal(4, 10_000, 400, 400)
    };
    check(
        &spec,
        "T1: 429; T2: ok; cool T1 5000@100",
        "1:T1 pause spent 1:T2 ok",
    );
    check(
        &spec,
        "T1: 503; T2: ok; cool T1 5000@100",
        "1:T1 pause spent 503",
    );
    // Known before the pause, it is part of it.
    let run = check(
        &spec,
        "T1: 503@50 ok; cool T1 2000@20",
        "1:T1 pause 1:T1+1 ok",
    );
    assert!(run.pauses[0] >= ms(1970), "{:?}", run.pauses);
}

// R-F1: moving on after a pause is a failover as any other.
#[test]
fn other_targets_come_after_the_retries_of_the_first() {
    let spec = Spec {
        internal: 0b01,
        sends_max: 16,
        ..route(2).internal(2, 10_000, 10, 20)
    }
    .http_5xx();
    let run = check(
        &spec,
        "T1: 503 502; T2: 500",
        "1:T1 pause 1:T1+1 spent 1:T2 500",
    );
    assert!(
        !run.forbids_retry,
        "R-P1: the caller owns the retries of T2"
    );
}

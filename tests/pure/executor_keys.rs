//! Pools of keys: who is next, what sets a key aside, what a client is told when none is left.

use std::sync::Arc;

use rondo::core::limits::KEY_REFUSED_ASIDE;
use rondo::executor::plan::Plan;
use rondo::policy::route::Route;

use crate::simulation::auditor::Cooling;
use crate::support::check::{Run, START, Script, check, play_plan};
use crate::support::ms;
use crate::support::spec::{Spec, route, two_rounds};

fn pool(keys: usize) -> Spec {
    Spec {
        sends_max: 16,
        ..route(1).keys(keys)
    }
}

// C13: a throttle is the key's; the next key is tried at once, and both are one target attempt (R-B2).
#[test]
fn a_throttled_key_gives_way_to_the_next_at_once() {
    let spec = Spec {
        targets: 2,
        attempts_max: 1,
        ..pool(2)
    };
    for token in ["429/5000", "429", "u429", "s429/800"] {
        let script = format!("T1k1: {token}; T1k2: ok; T2: ok");
        let run = check(&spec, &script, "1:T1 1:T1k2 ok");
        assert_eq!(run.decisions, ["next_key", "accepted"]);
        assert_eq!(run.settled.sends, 2, "R-B1: each is a send");
    }
}

// R-K2: an overload is the endpoint's, which every key meets alike.
#[test]
fn an_overload_is_the_same_with_every_key() {
    check(&pool(2), "T1: 529/800", "1:T1 throttled(exhausted)");
    check(&pool(2), "T1: u529", "1:T1 529");
    // And it cools them all: round two waits for it.
    let spec = Spec {
        sends_max: 16,
        ..two_rounds(2).keys(2)
    };
    let run = check(
        &spec,
        "T1: 529/900 ok; T2: 529/300 529/300",
        "1:T1 1:T2 wait skip:T1 2:T2 throttled(exhausted)",
    );
    assert!(run.wait.unwrap() < crate::support::ms(900));
}

// Credential-scoped refusals go to the next key without an opt-in: nothing ran, and the client is not to blame.
#[test]
fn a_refused_key_gives_way_to_the_next() {
    for token in ["auth", "auth403", "quota", "quota402"] {
        check(&pool(3), &format!("T1: {token} ok"), "1:T1 1:T1k2 ok");
    }
    for token in ["400", "config", "context", "policy", "500", "reset"] {
        let run = crate::support::check::play(&pool(2), &format!("T1: {token} ok"), 1);
        assert_eq!(run.settled.sends, 1, "{token}");
    }
}

// R-F7: the client is never shown a 401 of a key that is not its own.
#[test]
fn when_no_key_is_accepted_the_client_is_told_so() {
    // C69
    for keys in 1..=3 {
        for token in ["auth", "auth403"] {
            let run = crate::support::check::play(&pool(keys), &format!("T1: {token}"), 1);
            assert!(
                run.trace.ends_with(" credentials_exhausted"),
                "{}",
                run.trace
            );
            assert_eq!((run.status, run.settled.sends as usize), (Some(502), keys));
            assert_eq!(run.settled.reason, "credentials_exhausted");
        }
    }
}

// R-F7: a provider without keys of ours speaks to whoever asks.
#[test]
fn without_a_key_the_refusal_passes_unchanged() {
    check(&pool(0), "T1: auth", "1:T1 401");
    check(&pool(0), "T1: auth403", "1:T1 403");
}

// A refused key is nothing beside another key's failure: all keys have to fail so.
#[test]
fn one_refused_key_does_not_stand_for_the_pool() {
    check(
        &pool(2),
        "T1k1: auth; T1k2: 429/800",
        "1:T1 1:T1k2 throttled(exhausted)",
    );
    check(
        &pool(2),
        "T1k1: 429/800; T1k2: auth",
        "1:T1 1:T1k2 throttled(exhausted)",
    );
    check(&pool(2), "T1k1: auth; T1k2: 500", "1:T1 1:T1k2 500");
    check(&pool(2), "T1k1: auth; T1k2: 400", "1:T1 1:T1k2 400");
    check(&pool(2), "T1k1: quota; T1k2: u429", "1:T1 1:T1k2 429");
    check(&pool(2), "T1k1: auth; T1k2: reset", "1:T1 1:T1k2 ambiguous");
    check(&pool(2), "T1k1: auth; T1k2: nd", "1:T1 1:T1k2 unreachable");
}

// R-F1: what the pool said as a whole decides whether the next target is tried, whichever key was asked last.
#[test]
fn the_order_of_keys_does_not_decide_whether_a_target_is_left() {
    let spec = Spec {
        targets: 2,
        attempts_max: 2,
        ..pool(2)
    };
    check(
        &spec,
        "T1k1: auth; T1k2: 429; T2: ok",
        "1:T1 1:T1k2 1:T2 ok",
    );
    check(
        &spec,
        "T1k1: 429; T1k2: auth; T2: ok",
        "1:T1 1:T1k2 1:T2 ok",
    );
    check(
        &spec,
        "T1: auth; T2: ok",
        "1:T1 1:T1k2 credentials_exhausted",
    );
}

// R-D1: between targets precedence holds as ever.
#[test]
fn the_pool_takes_part_in_precedence_as_one() {
    let spec = Spec {
        sends_max: 16,
        ..route(2).keys(2).http_5xx()
    };
    check(
        &spec,
        "T1: 500; T2k1: auth; T2k2: 429",
        "1:T1 1:T2 1:T2k2 500",
    );
    check(
        &spec.clone().statuses(&[401]),
        "T1: auth; T2: 429",
        "1:T1 1:T1k2 1:T2 1:T2k2 credentials_exhausted",
    );
}

// R-B1
#[test]
fn keys_stay_inside_the_send_budget() {
    // C68
    let spec = Spec {
        sends_max: 2,
        ..pool(3)
    };
    check(&spec, "T1: 429/700", "1:T1 1:T1k2 throttled(exhausted)");
    let spec = Spec {
        tries_max: Some(1),
        ..pool(3)
    };
    check(&spec, "T1: 429/700", "1:T1 throttled(exhausted)");
    check(&spec, "T1: auth", "1:T1 credentials_exhausted");
}

// R-F4
#[test]
fn a_slow_refusal_is_not_followed_by_another_key() {
    let spec = Spec {
        fail_within: Some(100),
        ..pool(2)
    };
    check(&spec, "T1: 429/700@101", "1:T1 throttled(slow_failure)");
}

// R-K1: sticky tries are for the first-ranked candidate on its key, not for another key of the pool.
#[test]
fn sticky_tries_are_for_the_first_key_alone() {
    let spec = Spec {
        sticky_tries: 2,
        ..pool(2)
    }
    .http_5xx();
    check(
        &spec,
        "T1k1: 500 429/700; T1k2: 500",
        "1:T1 1:T1+1 1:T1k2 500",
    );
    // When the first key cools from the start, the second one is ranked first.
    check(&spec, "T1: 500; cool T1k1 9000", "1:T1k2 1:T1k2+1 500");
}

// R-F8: state belongs to an account; a bound operation has the first key or none.
#[test]
fn a_bound_operation_never_changes_its_key() {
    let spec = Spec {
        bound: true,
        ..pool(3)
    };
    check(&spec, "T1: 429/700 ok", "1:T1 throttled(exhausted)");
    check(&spec, "T1: auth ok", "1:T1 credentials_exhausted");
    check(
        &spec,
        "T1: ok; cool T1k1 9000",
        "skip:T1 throttled(exhausted)",
    );
    check(
        &spec,
        "T1: ok; aside T1k1 refused 9000",
        "skip:T1 credentials_exhausted",
    );
    let internal = spec.internal(3, 10_000, 10, 20);
    check(&internal, "T1k1: 429 ok", "1:T1 pause 1:T1+1 ok");
}

// C13: keys before own retries; own retries when no key is left, on the last one.
#[test]
fn another_key_comes_before_a_pause() {
    let spec = pool(2).internal(4, 10_000, 20, 40);
    check(&spec, "T1: 429 429 ok", "1:T1 1:T1k2 pause 1:T1k2+1 ok");
    check(&spec, "T1: 503 429 ok", "1:T1 pause 1:T1+1 1:T1k2 ok");
    check(&spec, "T1: auth 503 ok", "1:T1 1:T1k2 pause 1:T1k2+1 ok");
    // One counter over all of them (R-P2).
    let run = crate::support::check::play(&spec, "T1: 503 429", 1);
    assert_eq!(run.settled.sends, 4, "{}", run.trace);
    assert_eq!(run.trace.matches("spent").count(), 1, "R-P7: {}", run.trace);
}

// R-S12: a key that others find cooling during the pause is left for one that is free.
#[test]
fn a_key_that_cools_in_the_pause_gives_way() {
    let spec = pool(2).internal(4, 10_000, 400, 400);
    check(
        &spec,
        "T1: 503 ok; cool T1k1 5000@100",
        "1:T1 pause 1:T1k2 ok",
    );
}

// R-S13 R-S16: the earliest instant over all keys is waited for, and its key is used.
#[test]
fn round_two_uses_the_key_that_is_free_first() {
    let spec = Spec {
        sends_max: 16,
        ..two_rounds(1).keys(2)
    };
    let run = check(
        &spec,
        "T1k1: 429/900; T1k2: 429/200 ok",
        "1:T1 1:T1k2 wait 2:T1k2 ok",
    );
    assert!(run.wait.unwrap() < crate::support::ms(300));
    check(
        &spec,
        "T1k1: 429/200 ok; T1k2: 429/900",
        "1:T1 1:T1k2 wait 2:T1 ok",
    );
    let run = check(
        &spec,
        "T1k1: 429/9000; T1k2: 429/5000",
        "1:T1 1:T1k2 -wait_too_long throttled(wait_too_long)",
    );
    let left = run.throttle.unwrap().retry_after;
    assert!(
        left > crate::support::ms(4900) && left <= crate::support::ms(5000),
        "{left:?}"
    );
}

/// Plays one operation after another on the same counters.
fn later(spec: &Spec, route: &Arc<Route>, cooling: &mut Cooling, after: u64, script: &str) -> Run {
    let start = START.after(crate::support::ms(after));
    let plan: Plan = spec.plan(route, start);
    play_plan(plan, start, &mut Script::parse(script), cooling, 1)
}

// A key that was refused or used up is set aside for later operations, for its time and no longer.
#[test]
fn a_key_is_set_aside_for_later_operations() {
    for (token, aside) in [
        ("auth", KEY_REFUSED_ASIDE),
        ("auth403", KEY_REFUSED_ASIDE),
        ("quota", ms(600_000)),
        ("quota402", ms(600_000)),
    ] {
        let (spec, mut cooling) = (pool(2), Cooling::default());
        let route = spec.build();
        let first = later(&spec, &route, &mut cooling, 0, &format!("T1: {token} ok"));
        assert_eq!(first.trace, "1:T1 1:T1k2 ok");
        let until = u64::try_from(aside.as_millis()).unwrap();
        let second = later(&spec, &route, &mut cooling, until - 100, "T1: ok");
        assert_eq!(second.trace, "1:T1k2 ok", "{token}");
        let third = later(&spec, &route, &mut cooling, until + 100, "T1: ok");
        assert_eq!(third.trace, "1:T1 ok", "{token}");
    }
}

// R-F2, C32: a used-up balance with a status of its own moves on only where that is listed, but is paid for once: the next operation does
// not ask there, and is served by another target without an opt-in.
#[test]
fn a_used_up_balance_is_paid_for_once() {
    let plain = Spec {
        sends_max: 16,
        ..route(2).keys(1)
    };
    for (spec, first) in [
        (plain.clone(), "1:T1 402"),
        (plain.statuses(&[402]), "1:T1 1:T2 ok"),
    ] {
        let (route, mut cooling) = (spec.build(), Cooling::default());
        let script = "T1: quota402; T2: ok";
        assert_eq!(later(&spec, &route, &mut cooling, 0, script).trace, first);
        for after in [100, 60_000, 500_000] {
            let run = later(&spec, &route, &mut cooling, after, script);
            assert_eq!(run.trace, "skip:T1 1:T2 ok", "{after}");
        }
    }
}

// What is nobody's fault but the request's, or what no key of ours carries, sets nothing aside.
#[test]
fn nothing_else_sets_a_key_aside() {
    for (keys, token) in [
        (2, "400"),
        (2, "config"),
        (2, "500"),
        (2, "reset"),
        (0, "auth"),
        (0, "quota"),
    ] {
        let (spec, mut cooling) = (pool(keys), Cooling::default());
        let route = spec.build();
        let _ = later(&spec, &route, &mut cooling, 0, &format!("T1: {token}"));
        let second = later(&spec, &route, &mut cooling, 200, "T1: ok");
        assert_eq!(second.trace, "1:T1 ok", "{token}");
    }
}

// R-S12: a success ends the cooldown of its key and of no other.
#[test]
fn a_success_ends_the_cooldown_of_its_key() {
    let (spec, mut cooling) = (two_rounds(1).keys(2), Cooling::default());
    let route = spec.build();
    let script = "T1k1: 429/9000; T1k2: 429/300 ok";
    let first = later(&spec, &route, &mut cooling, 0, script);
    assert_eq!(first.trace, "1:T1 1:T1k2 wait 2:T1k2 ok");
    let second = later(&spec, &route, &mut cooling, 1_000, "T1: ok");
    assert_eq!(second.trace, "1:T1k2 ok");
}

// A target whose keys are all set aside is passed over without a send.
#[test]
fn a_target_without_a_usable_key_is_passed_over() {
    let spec = Spec {
        sends_max: 16,
        ..route(2).keys(2)
    };
    let refused = "aside T1k1 refused 9000; aside T1k2 refused 9000";
    check(&spec, &format!("T2: ok; {refused}"), "skip:T1 1:T2 ok");
    let both = format!("{refused}; aside T2k1 refused 9000; aside T2k2 refused 9000");
    let run = check(&spec, &both, "skip:T1 skip:T2 credentials_exhausted");
    assert_eq!(run.settled.sends, 0);
    // One key that only cools is enough to wait for.
    check(
        &pool(2),
        "aside T1k1 refused 9000; cool T1k2 700",
        "skip:T1 throttled(exhausted)",
    );
}

// Nothing but quotas in the way: waiting does not help, and the answer says so, with a second round or without.
#[test]
fn used_up_quotas_are_not_worth_a_retry() {
    let all = "aside T1k1 quota 600000; aside T1k2 quota 600000";
    let run = check(&pool(2), all, "skip:T1 throttled(hard_quota)");
    assert_eq!(run.status, Some(429));
    assert!(!run.throttle.unwrap().should_retry);
    assert!(run.forbids_retry);
    let run = check(
        &two_rounds(1).keys(2),
        all,
        "skip:T1 -hard_quota throttled(hard_quota)",
    );
    assert!(!run.throttle.unwrap().should_retry);
    // Another target that only cools will be back.
    let run = check(
        &Spec {
            sends_max: 16,
            ..route(2).keys(2)
        },
        &format!("{all}; cool T2k1 700; cool T2k2 900"),
        "skip:T1 skip:T2 throttled(exhausted)",
    );
    assert!(run.throttle.unwrap().should_retry);
    assert_eq!(run.throttle.unwrap().retry_after, crate::support::ms(700));
}

// The answer of the last key stands when all quotas are used up, and is marked.
#[test]
fn a_quota_that_every_key_meets_is_told_as_it_is() {
    let run = check(&pool(2), "T1: quota", "1:T1 1:T1k2 429");
    assert!(run.forbids_retry);
    check(&pool(2), "T1: quota402", "1:T1 1:T1k2 402");
}

// R-S5: neither a quota nor a refused key is what a second round waits for.
#[test]
fn a_credential_failure_suppresses_the_round() {
    let spec = Spec {
        sends_max: 16,
        ..two_rounds(1).keys(2)
    };
    check(
        &spec,
        "T1k1: auth; T1k2: 429/300",
        "1:T1 1:T1k2 -auth_config throttled(auth_config)",
    );
    check(
        &spec,
        "T1k1: quota; T1k2: 429/300",
        "1:T1 1:T1k2 -hard_quota throttled(hard_quota)",
    );
}

// R-S19 R-S5: in round two a refused key ends the operation.
#[test]
fn round_two_goes_to_another_key_for_throttles_alone() {
    let spec = Spec {
        sends_max: 16,
        ..two_rounds(1).keys(2)
    };
    check(
        &spec,
        "T1k1: 429/200 429/200; T1k2: 429/200 ok",
        "1:T1 1:T1k2 wait 2:T1 2:T1k2 ok",
    );
    check(
        &spec,
        "T1k1: 429/200 auth; T1k2: 429/200 ok",
        "1:T1 1:T1k2 wait 2:T1 credentials_exhausted",
    );
}

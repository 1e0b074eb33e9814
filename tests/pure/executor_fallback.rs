//! Fallback inside a round, the caps on tries and time, and the sticky tries (R-F, R-K).

use rondo::policy::routing::Mode;

use crate::support::check::check;
use crate::support::ms;
use crate::support::spec::{Spec, route, two_rounds};

// R-F1
#[test]
fn replay_safe_failures_move_on_without_opt_in() {
    let spec = Spec {
        fallback: rondo::policy::routing::Fallback::default(),
        ..route(2)
    };
    for token in ["nd", "429", "529", "s429", "s529"] {
        check(&spec, &format!("T1: {token}; T2: ok"), "1:T1 1:T2 ok");
    }
}

// R-F1: the planted fault (d): only a certificate makes a 429 replay-safe.
#[test]
fn an_uncertified_429_moves_on_only_by_opt_in() {
    let without = Spec {
        fallback: rondo::policy::routing::Fallback::default(),
        ..route(2)
    };
    check(&without, "T1: u429; T2: ok", "1:T1 429");
    check(&without, "T1: u529; T2: ok", "1:T1 529");
    check(&without, "T1: su529; T2: ok", "1:T1 529");
    check(&without, "T1: quota; T2: ok", "1:T1 429");
    check(&route(2), "T1: u429; T2: ok", "1:T1 1:T2 ok");
    check(&route(2), "T1: u529; T2: ok", "1:T1 1:T2 ok");
    check(&route(2), "T1: su529; T2: ok", "1:T1 1:T2 ok");
    check(&route(2), "T1: quota; T2: ok", "1:T1 1:T2 ok");
}

// R-F2
#[test]
fn a_5xx_moves_on_only_by_opt_in() {
    for (token, status) in [
        ("500", "500"),
        ("502", "502"),
        ("503", "503"),
        ("s500", "500"),
    ] {
        check(
            &route(2),
            &format!("T1: {token}; T2: ok"),
            &format!("1:T1 {status}"),
        );
        check(
            &route(2).http_5xx(),
            &format!("T1: {token}; T2: ok"),
            "1:T1 1:T2 ok",
        );
    }
}

// R-F2: an in-stream overload is a throttle, whatever status stands for it.
#[test]
fn an_overload_inside_a_stream_belongs_to_http_429() {
    check(&route(2), "T1: su503; T2: ok", "1:T1 1:T2 ok");
    check(&route(2), "T1: u503; T2: ok", "1:T1 503");
}

// R-F2
#[test]
fn an_ambiguous_failure_moves_on_only_by_opt_in() {
    for (token, end) in [
        ("reset", "ambiguous"),
        ("timeout", "timed_out"),
        ("malformed", "ambiguous"),
    ] {
        let script = format!("T1: {token}; T2: ok");
        check(&route(2).http_5xx(), &script, &format!("1:T1 {end}"));
        check(&route(2).transport_error(), &script, "1:T1 1:T2 ok");
    }
}

// R-F2
#[test]
fn single_statuses_can_be_added() {
    for (token, status) in [
        ("401", 401),
        ("402", 402),
        ("404", 404),
        ("auth", 401),
        ("500", 500),
    ] {
        let script = format!("T1: {token}; T2: ok");
        check(&route(2).statuses(&[status]), &script, "1:T1 1:T2 ok");
        check(
            &route(2).statuses(&[418]),
            &script,
            &format!("1:T1 {status}"),
        );
    }
}

// R-F7
#[test]
fn terminal_answers_return_unchanged() {
    for (token, status) in [
        ("400", 400),
        ("401", 401),
        ("403", 403),
        ("404", 404),
        ("413", 413),
        ("422", 422),
        ("context", 400),
        ("policy", 400),
    ] {
        let spec = route(2).http_5xx().transport_error();
        let run = check(
            &spec,
            &format!("T1: {token}; T2: ok"),
            &format!("1:T1 {status}"),
        );
        assert_eq!(run.settled.reason, "terminal");
    }
}

// R-F3 R-B1
#[test]
fn at_the_cap_of_tries_the_upstreams_own_answer_returns() {
    for (retries, trace) in [
        (0, "1:T1 500"),
        (1, "1:T1 1:T2 500"),
        (2, "1:T1 1:T2 1:T3 500"),
        (9, "1:T1 1:T2 1:T3 500"),
    ] {
        let spec = Spec {
            tries_max: Some(1 + retries),
            ..route(3).http_5xx()
        };
        check(&spec, "T1: 500; T2: 500; T3: 500", trace);
    }
}

// R-F3: over all rounds.
#[test]
fn the_cap_of_tries_spans_both_rounds() {
    let spec = Spec {
        tries_max: Some(3),
        ..two_rounds(2)
    };
    check(
        &spec,
        "T1: 429/100; T2: 429/100 ok",
        "1:T1 1:T2 wait 2:T1 throttled(exhausted)",
    );
}

// R-F4: strictly greater, from the attempt's own start.
#[test]
fn a_late_failure_is_returned_itself() {
    let spec = Spec {
        fail_within: Some(500),
        ..route(2).http_5xx()
    };
    check(&spec, "T1: 500@500; T2: ok", "1:T1 1:T2 ok");
    let run = check(&spec, "T1: 500@501; T2: ok", "1:T1 500");
    assert_eq!(run.settled.reason, "slow_failure");
    check(&spec, "T1: 500@400; T2: 502@400", "1:T1 1:T2 502");
    check(
        &spec,
        "T1: 500@400; T2: 429@501",
        "1:T1 1:T2 throttled(slow_failure)",
    );
}

// R-F4: its own answer, also when it could not have moved on.
#[test]
fn a_late_terminal_answer_is_returned_itself() {
    let spec = Spec {
        fail_within: Some(500),
        ..route(2).transport_error()
    };
    check(&spec, "T1: reset; T2: 400@501", "1:T1 1:T2 400");
    check(&spec, "T1: reset; T2: 400@500", "1:T1 1:T2 ambiguous");
}

// R-F5
#[test]
fn without_caps_every_target_may_be_tried() {
    check(
        &route(3).http_5xx(),
        "T1: 500; T2: nd; T3: ok",
        "1:T1 1:T2 1:T3 ok",
    );
}

// R-F6
#[test]
fn primary_only_never_leaves_the_first_target() {
    let spec = Spec {
        mode: Mode::PrimaryOnly,
        ..route(2)
    };
    check(&spec, "T1: 429/100", "1:T1 throttled(exhausted)");
    check(&spec, "T1: nd", "1:T1 unreachable");
}

// R-F6
#[test]
fn a_delay_of_one_target_does_not_delay_the_failover() {
    let run = check(&two_rounds(2), "T1: 429/30000; T2: ok", "1:T1 1:T2 ok");
    assert_eq!(run.answered_at, Some(ms(20)));
}

// R-F8 R-S7
#[test]
fn a_bound_operation_never_changes_target() {
    let spec = Spec {
        bound: true,
        sticky_tries: 2,
        ..two_rounds(2).http_5xx().transport_error()
    };
    check(
        &spec,
        "T1: 429/100",
        "1:T1 -state_bound throttled(state_bound)",
    );
    check(&spec, "T1: nd", "1:T1 1:T1+1 -not_throttled unreachable");
    check(
        &spec,
        "T1: ok; cool T1 9000",
        "skip:T1 -state_bound throttled(state_bound)",
    );
}

// R-S5: set aside by somebody else's certified answer: passed over without a send; planted fault (c).
#[test]
fn a_cooling_target_is_passed_over() {
    check(
        &route(2),
        "T1: ok; T2: ok; cool T1 30000",
        "skip:T1 1:T2 ok",
    );
    let run = check(
        &route(1),
        "T1: ok; cool T1 30000",
        "skip:T1 throttled(exhausted)",
    );
    assert_eq!(run.throttle.unwrap().retry_after, ms(30_000));
}

// R-S21: nothing is left to move to, so the decision is not to move.
#[test]
fn a_decision_to_move_on_is_followed_by_an_attempt() {
    let run = check(
        &route(3),
        "T1: 429; T2: ok; T3: ok; cool T2 5000; cool T3 5000",
        "1:T1 skip:T2 skip:T3 throttled(exhausted)",
    );
    assert_eq!(run.decisions, ["stop"]);
    check(
        &two_rounds(2),
        "T1: 429/100 ok; T2: ok; cool T2 5000",
        "1:T1 skip:T2 wait 2:T1 ok",
    );
}

// R-D1 R-S5: what cools counts as rejected, so it outranks a target that was not reached.
#[test]
fn a_remembered_cooldown_outranks_an_unreachable_target() {
    let run = check(
        &route(2),
        "T1: ok; T2: nd; cool T1 5000",
        "skip:T1 1:T2 throttled(exhausted)",
    );
    assert_eq!(run.throttle.unwrap().retry_after, ms(4990));
}

// R-K1
#[test]
fn sticky_tries_count_the_first_one() {
    for (tries, trace) in [
        (1, "1:T1 1:T2 ok"),
        (2, "1:T1 1:T1+1 1:T2 ok"),
        (3, "1:T1 1:T1+1 1:T1+2 1:T2 ok"),
    ] {
        let spec = Spec {
            sticky_tries: tries,
            ..route(2).http_5xx()
        };
        check(&spec, "T1: 500; T2: ok", trace);
        check(&spec, "T1: nd; T2: ok", trace);
    }
}

// R-K1
#[test]
fn only_the_first_candidate_is_sticky() {
    let spec = Spec {
        sticky_tries: 3,
        ..route(2).http_5xx()
    };
    check(&spec, "T1: 429; T2: 500", "1:T1 1:T2 500");
}

// R-K2
#[test]
fn no_sticky_try_after_a_throttle_or_a_wider_failure() {
    let spec = Spec {
        sticky_tries: 3,
        ..route(2).http_5xx().statuses(&[401, 404])
    };
    for token in [
        "429", "529", "u429", "u529", "s429", "u503", "quota", "auth", "404",
    ] {
        check(&spec, &format!("T1: {token}; T2: ok"), "1:T1 1:T2 ok");
    }
}

// R-K2
#[test]
fn a_sticky_try_needs_the_opt_in_of_its_failure() {
    let spec = Spec {
        sticky_tries: 2,
        ..route(2)
    };
    check(&spec, "T1: 500; T2: ok", "1:T1 500");
    check(&spec, "T1: reset; T2: ok", "1:T1 ambiguous");
    check(
        &spec.transport_error(),
        "T1: reset ok; T2: ok",
        "1:T1 1:T1+1 ok",
    );
}

// R-K2 R-B1 R-B2: it passes every guard; a cooldown set meanwhile is one.
#[test]
fn a_sticky_try_passes_every_guard() {
    let spec = Spec {
        sticky_tries: 2,
        sends_max: 1,
        ..route(2).http_5xx()
    };
    check(&spec, "T1: 500; T2: ok", "1:T1 500");
    let spec = Spec {
        sticky_tries: 2,
        ..route(2).http_5xx()
    };
    check(&spec, "T1: 500@500; T2: ok; shutdown@200", "1:T1 500");
    check(
        &spec,
        "T1: 500@500; T2: ok; cool T1 9000@200",
        "1:T1 1:T2 ok",
    );
    let spec = Spec {
        fail_within: Some(400),
        ..spec
    };
    check(&spec, "T1: 500@500; T2: ok", "1:T1 500");
}

// R-K3
#[test]
fn decisions_are_recorded_as_they_were_taken() {
    let spec = Spec {
        sticky_tries: 2,
        ..route(3).http_5xx()
    };
    let run = check(&spec, "T1: 500; T2: nd; T3: ok", "1:T1 1:T1+1 1:T2 1:T3 ok");
    assert_eq!(
        run.decisions,
        ["same_target", "next_target", "next_target", "accepted"]
    );
    assert_eq!(run.states, ["refused", "refused", "failed", "succeeded"]);
}

// R-K4
#[test]
fn round_two_has_no_sticky_tries() {
    let spec = Spec {
        sticky_tries: 3,
        ..two_rounds(1).http_5xx()
    };
    check(&spec, "T1: 429/100 500", "1:T1 wait 2:T1 500");
}

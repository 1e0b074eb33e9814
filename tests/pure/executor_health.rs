//! Health checks: what results make of a provider, and what that means for operations.

use rondo::policy::health::Health;

use crate::support::check::check;
use crate::support::spec::{Spec, health_rules, route, two_rounds};

#[test]
fn so_many_results_in_a_row_change_the_state() {
    let health = Health::new("p".into(), health_rules());
    assert!(health.is_healthy(), "unknown is healthy");
    for good in [false, false, true, false, false] {
        assert!(!health.record(good));
        assert!(health.is_healthy());
    }
    assert!(health.record(false));
    assert!(!health.is_healthy());
    for good in [true, false, true] {
        assert!(!health.record(good));
        assert!(!health.is_healthy());
    }
    assert!(health.record(true));
    assert!(health.is_healthy());
}

fn sick(targets: u64, base: Spec) -> Spec {
    Spec {
        unhealthy: targets,
        ..base
    }
}

// R-S5: passed over without a send, and no certificate.
#[test]
fn an_unhealthy_target_is_passed_over() {
    check(&sick(1, route(2)), "T2: ok", "skip:T1 1:T2 ok");
    check(&sick(2, route(2)), "T1: nd", "1:T1 skip:T2 unreachable");
    check(
        &sick(1, two_rounds(2)),
        "T2: 429/100",
        "skip:T1 1:T2 -not_throttled throttled(not_throttled)",
    );
}

#[test]
fn when_all_are_unhealthy_all_are_tried() {
    check(&sick(3, route(2)), "T1: nd; T2: ok", "1:T1 1:T2 ok");
    check(&sick(1, route(1)), "T1: ok", "1:T1 ok");
    // One that cools is not unhealthy: the others still are.
    check(
        &sick(1, route(2)),
        "cool T2 5000",
        "skip:T1 skip:T2 throttled(exhausted)",
    );
}

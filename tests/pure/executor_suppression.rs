//! Why there is no second round: one test a reason, and the order of the reasons (R-S11).

use std::time::Duration;

use rondo::core::commitment::Commitment;
use rondo::core::decision::{RoundFacts, second_round};
use rondo::core::suppression::Suppression;

use crate::support::check::check;
use crate::support::ms;
use crate::support::spec::{Spec, two_rounds};

// R-S11 not_throttled: plus R-S5, an uncertified 429 does not qualify.
#[test]
fn an_uncertified_429_has_no_second_round() {
    check(&two_rounds(1), "T1: u429", "1:T1 -not_throttled 429");
    check(
        &two_rounds(2),
        "T1: 429/100; T2: u429/100",
        "1:T1 1:T2 -not_throttled 429",
    );
    check(
        &two_rounds(2),
        "T1: u529; T2: 429/100",
        "1:T1 1:T2 -not_throttled 529",
    );
}

// R-S11 not_throttled
#[test]
fn a_connect_failure_has_no_second_round() {
    check(
        &two_rounds(2),
        "T1: nd; T2: 429/100",
        "1:T1 1:T2 -not_throttled throttled(not_throttled)",
    );
    check(
        &two_rounds(2),
        "T1: nd; T2: nd",
        "1:T1 1:T2 -not_throttled unreachable",
    );
}

// R-S11 not_throttled
#[test]
fn a_5xx_has_no_second_round() {
    check(
        &two_rounds(2).http_5xx(),
        "T1: 500; T2: 429/100",
        "1:T1 1:T2 -not_throttled 500",
    );
    check(&two_rounds(2), "T1: 500", "1:T1 -not_throttled 500");
}

// R-S11 hard_quota
#[test]
fn a_hard_quota_has_no_second_round() {
    check(
        &two_rounds(2),
        "T1: quota; T2: 429/100",
        "1:T1 1:T2 -hard_quota 429",
    );
}

// R-S11 ambiguous
#[test]
fn an_ambiguous_outcome_has_no_second_round() {
    check(&two_rounds(2), "T1: reset", "1:T1 -ambiguous ambiguous");
    let spec = two_rounds(2).transport_error();
    check(
        &spec,
        "T1: reset; T2: 429/100",
        "1:T1 1:T2 -ambiguous ambiguous",
    );
}

// R-S11 malformed
#[test]
fn a_malformed_answer_has_no_second_round() {
    let spec = two_rounds(2).transport_error();
    check(
        &spec,
        "T1: malformed; T2: 429/100",
        "1:T1 1:T2 -malformed ambiguous",
    );
}

// R-S11 auth_config
#[test]
fn a_credential_failure_has_no_second_round() {
    check(
        &two_rounds(2).statuses(&[401]),
        "T1: auth; T2: 429/100",
        "1:T1 1:T2 -auth_config 401",
    );
    check(&two_rounds(2), "T1: config", "1:T1 -auth_config 404");
}

// R-S11 output_seen, R-S6
#[test]
fn seen_output_has_no_second_round() {
    check(
        &two_rounds(2),
        "T1: 429/100; T2: partial",
        "1:T1 1:T2 -output_seen ambiguous",
    );
}

// R-S11 committed, R-S6: a committed operation never reaches the end of a round; the question is asked all the same.
#[test]
fn a_committed_answer_has_no_second_round() {
    let facts = RoundFacts {
        commitment: Commitment::Headers,
        ..permitted()
    };
    assert_eq!(second_round(&facts), Err(Suppression::Committed));
}

// R-S11 state_bound, R-S7
#[test]
fn a_bound_operation_has_no_second_round() {
    let spec = Spec {
        bound: true,
        ..two_rounds(2)
    };
    check(
        &spec,
        "T1: 429/100",
        "1:T1 -state_bound throttled(state_bound)",
    );
}

// R-S11 cleanup, R-S8: the executor cannot reach the end of a round with an open attempt; the question is asked all the same.
#[test]
fn an_open_attempt_has_no_second_round() {
    let facts = RoundFacts {
        unfinished: true,
        ..permitted()
    };
    assert_eq!(second_round(&facts), Err(Suppression::Cleanup));
}

// R-S11 slow_failure, R-F4
#[test]
fn a_slow_failure_has_no_second_round() {
    let spec = Spec {
        fail_within: Some(500),
        ..two_rounds(2)
    };
    check(
        &spec,
        "T1: 429/100@501",
        "1:T1 -slow_failure throttled(slow_failure)",
    );
    check(
        &spec,
        "T1: 429/100; T2: 429/100@501",
        "1:T1 1:T2 -slow_failure throttled(slow_failure)",
    );
}

// R-S11 client_gone, R-S9
#[test]
fn a_client_that_left_has_no_second_round() {
    check(
        &two_rounds(2),
        "T1: 429/100; T2: 429/100@500; gone@200",
        "1:T1 1:T2 -client_gone cancelled",
    );
    check(
        &two_rounds(2),
        "T1: 429/100; T2: 429/100@500; drop@200",
        "1:T1 1:T2 -client_gone cancelled",
    );
    check(
        &two_rounds(2),
        "T1: ok@500; gone@200",
        "1:T1 -client_gone cancelled",
    );
}

// R-S11 shutdown, R-S9
#[test]
fn a_draining_gateway_has_no_second_round() {
    check(
        &two_rounds(1),
        "T1: 429/100@500; shutdown@200",
        "1:T1 -shutdown throttled(shutdown)",
    );
}

// R-S11 deadline, R-S10: the wait and 250 ms have to fit.
#[test]
fn a_wait_that_does_not_fit_the_deadline_is_not_begun() {
    let spec = Spec {
        deadline: 1200,
        ..two_rounds(1)
    };
    check(&spec, "T1: 429/1000", "1:T1 -deadline throttled(deadline)");
    let spec = Spec {
        deadline: 1550,
        ..two_rounds(1)
    };
    check(&spec, "T1: 429/1000 ok", "1:T1 wait 2:T1 ok");
}

// R-S11 send_budget, R-B1
#[test]
fn a_round_without_a_send_left_is_not_begun() {
    let spec = Spec {
        sends_max: 2,
        ..two_rounds(2)
    };
    check(
        &spec,
        "T1: 429/100; T2: 429/100",
        "1:T1 1:T2 -send_budget throttled(send_budget)",
    );
    let spec = Spec {
        tries_max: Some(2),
        ..two_rounds(2)
    };
    check(
        &spec,
        "T1: 429/100; T2: 429/100",
        "1:T1 1:T2 -send_budget throttled(send_budget)",
    );
}

// R-S11 wait_too_long, R-S13: never clamped, never sent early.
#[test]
fn a_delay_beyond_max_wait_ends_at_once() {
    let run = check(
        &two_rounds(2),
        "T1: 429/2500; T2: 429/30000",
        "1:T1 1:T2 -wait_too_long throttled(wait_too_long)",
    );
    assert_eq!(run.answered_at, Some(ms(20)));
    assert_eq!(run.throttle.unwrap().retry_after, ms(2490));
    check(&two_rounds(1), "T1: 429/2000 ok", "1:T1 wait 2:T1 ok");
    check(
        &two_rounds(1),
        "T1: 429/2001",
        "1:T1 -wait_too_long throttled(wait_too_long)",
    );
}

// R-S11 admission_full, R-B6
#[test]
fn a_full_waiting_room_admits_nobody() {
    let spec = Spec {
        slots_max: 3,
        ..two_rounds(1)
    };
    let full = "T1: 429/100 ok; sleepers 3";
    check(
        &spec,
        full,
        "1:T1 -admission_full throttled(admission_full)",
    );
    check(&spec, "T1: 429/100 ok; sleepers 2", "1:T1 wait 2:T1 ok");
    let heavy = Spec {
        held_bytes: 1001,
        bytes_max: 1000,
        ..two_rounds(1)
    };
    check(
        &heavy,
        "T1: 429/100",
        "1:T1 -admission_full throttled(admission_full)",
    );
}

// R-S11 caller_retry
#[test]
fn a_callers_own_retry_has_no_second_round() {
    let spec = Spec {
        caller_retry: true,
        ..two_rounds(2)
    };
    check(
        &spec,
        "T1: 429/100; T2: 429/100",
        "1:T1 1:T2 -caller_retry throttled(caller_retry)",
    );
}

// R-S11: the order of evaluation. Each pair holds both reasons; the first one is given.
#[test]
fn the_first_reason_in_the_documented_order_is_given() {
    let all = Suppression::ALL;
    for (first, second) in all.iter().zip(all.iter().skip(1)) {
        assert!(first < second, "ALL is in the order of evaluation");
    }
    for (index, first) in all.iter().enumerate() {
        for second in all.iter().skip(index) {
            let asked_elsewhere = [Suppression::ClientGone, Suppression::AdmissionFull];
            if asked_elsewhere.contains(first) || asked_elsewhere.contains(second) {
                continue;
            }
            let mut facts = permitted();
            make(&mut facts, *second);
            make(&mut facts, *first);
            assert_eq!(second_round(&facts), Err(*first), "with {second:?}");
        }
    }
}

// R-S11: the same, through the executor.
#[test]
fn pairs_of_reasons_are_told_in_order() {
    let both = two_rounds(2).transport_error().statuses(&[401]);
    check(
        &both,
        "T1: auth; T2: reset",
        "1:T1 1:T2 -ambiguous ambiguous",
    );
    check(
        &both,
        "T1: reset; T2: auth",
        "1:T1 1:T2 -ambiguous ambiguous",
    );
    check(&both, "T1: auth; T2: quota", "1:T1 1:T2 -hard_quota 401");
    check(
        &both,
        "T1: malformed; T2: quota",
        "1:T1 1:T2 -malformed ambiguous",
    );
    check(&both, "T1: u429; T2: auth", "1:T1 1:T2 -auth_config 401");
    let bound = Spec {
        bound: true,
        caller_retry: true,
        ..two_rounds(1)
    };
    check(
        &bound,
        "T1: 429/9000",
        "1:T1 -state_bound throttled(state_bound)",
    );
    let spent = Spec {
        sends_max: 1,
        ..two_rounds(1)
    };
    check(
        &spent,
        "T1: 429/9000",
        "1:T1 -send_budget throttled(send_budget)",
    );
    let late = Spec {
        deadline: 500,
        ..two_rounds(1)
    };
    check(
        &late,
        "T1: 429/9000",
        "1:T1 -wait_too_long throttled(wait_too_long)",
    );
    let full = Spec {
        deadline: 500,
        slots_max: 0,
        ..two_rounds(1)
    };
    check(&full, "T1: 429/900", "1:T1 -deadline throttled(deadline)");
}

fn permitted() -> RoundFacts {
    RoundFacts {
        commitment: Commitment::Open,
        draining: false,
        objection: None,
        bound: false,
        slow: false,
        caller_retry: false,
        unfinished: false,
        sends_left: 1,
        budget_left: true,
        limited: false,
        failover_over: false,
        failover_left: None,
        delay: ms(100),
        jitter: ms(10),
        wait_max: ms(2000),
        time_left: ms(60_000),
    }
}

fn make(facts: &mut RoundFacts, reason: Suppression) {
    match reason {
        Suppression::Committed => facts.commitment = Commitment::Headers,
        Suppression::Shutdown => facts.draining = true,
        Suppression::OutputSeen
        | Suppression::Ambiguous
        | Suppression::Malformed
        | Suppression::HardQuota
        | Suppression::AuthConfig
        | Suppression::NotThrottled => facts.objection = Some(reason),
        Suppression::StateBound => facts.bound = true,
        Suppression::SlowFailure => facts.slow = true,
        Suppression::CallerRetry => facts.caller_retry = true,
        Suppression::Cleanup => facts.unfinished = true,
        Suppression::SendBudget => facts.sends_left = 0,
        Suppression::RetryBudget => facts.budget_left = false,
        Suppression::LocalLimit => facts.limited = true,
        Suppression::FailoverElapsed => facts.failover_left = Some(ms(109)),
        Suppression::WaitTooLong => facts.wait_max = ms(99),
        Suppression::Deadline => facts.time_left = ms(359),
        Suppression::ClientGone | Suppression::AdmissionFull => {}
    }
}

// R-S10: exactly fitting is fitting.
#[test]
fn the_allowance_is_counted_to_the_microsecond() {
    let fits = RoundFacts {
        time_left: ms(360),
        ..permitted()
    };
    assert_eq!(second_round(&fits), Ok(ms(110)));
    let short = RoundFacts {
        time_left: ms(360) - Duration::from_micros(1),
        ..permitted()
    };
    assert_eq!(second_round(&short), Err(Suppression::Deadline));
}

// R-F5 R-S11: a wait of nothing would still fit into the nothing that is left.
#[test]
fn no_time_for_failover_is_told_also_where_nothing_would_be_waited_for() {
    let over = RoundFacts {
        failover_over: true,
        failover_left: Some(Duration::ZERO),
        delay: Duration::ZERO,
        jitter: Duration::ZERO,
        ..permitted()
    };
    assert_eq!(second_round(&over), Err(Suppression::FailoverElapsed));
    let last_moment = RoundFacts {
        failover_over: false,
        ..over
    };
    assert_eq!(second_round(&last_moment), Ok(Duration::ZERO));
}

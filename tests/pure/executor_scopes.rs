//! How far a failure reaches (R-K2), places of one target, and keys in their order.

use rondo::policy::route::Route;

use crate::support::check::check;
use crate::support::spec::{Spec, route, two_rounds};

/// Targets of one provider.
fn one_provider(targets: usize) -> Spec {
    Spec {
        one_provider: true,
        sends_max: 16,
        ..route(targets)
    }
}

// R-K2: what cannot be reached for one target cannot be reached for another at the same address.
#[test]
fn an_address_that_is_not_reached_rules_out_the_others_there() {
    check(
        &one_provider(3),
        "T1: unreached; T2: ok",
        "1:T1 skip:T2 skip:T3 unreachable",
    );
    let apart = Spec {
        one_provider: false,
        ..one_provider(2)
    };
    check(&apart, "T1: unreached; T2: ok", "1:T1 1:T2 ok");
    // HTTP/2 may refuse a stream at an address that is well.
    check(&one_provider(2), "T1: nd; T2: ok", "1:T1 1:T2 ok");
}

// R-K2: the sticky try comes first, and takes it back when it gets through.
#[test]
fn a_sticky_try_decides_whether_an_address_is_lost() {
    let sticky = Spec {
        sticky_tries: 2,
        ..one_provider(2).http_5xx()
    };
    check(&sticky, "T1: unreached ok; T2: ok", "1:T1 1:T1+1 ok");
    check(
        &sticky,
        "T1: unreached; T2: ok",
        "1:T1 1:T1+1 skip:T2 unreachable",
    );
    check(&sticky, "T1: unreached 500; T2: ok", "1:T1 1:T1+1 1:T2 ok");
}

// R-K2: a credential is the same at every target of its provider.
#[test]
fn a_refused_credential_is_not_shown_twice() {
    let spec = one_provider(2).statuses(&[401]);
    check(&spec, "T1: auth; T2: ok", "1:T1 skip:T2 401");
    let spec = spec.keys(2);
    check(
        &spec,
        "T1k1: auth; T1k2: 429/500; T2k2: ok",
        "1:T1 1:T1k2 1:T2k2 ok",
    );
}

// R-K2: a region that is not served is not served for any model.
#[test]
fn a_failure_of_the_provider_rules_out_all_its_targets() {
    let spec = one_provider(3).statuses(&[403]);
    check(&spec, "T1: region; T2: ok", "1:T1 skip:T2 skip:T3 403");
    let apart = Spec {
        one_provider: false,
        ..spec
    };
    check(&apart, "T1: region; T2: ok", "1:T1 1:T2 ok");
}

// R-K2: a failure of one candidate says nothing of others.
#[test]
fn what_concerns_one_candidate_rules_out_nobody() {
    for token in ["500", "502", "429/300", "u429"] {
        let script = format!("T1: {token}; T2: ok");
        check(&one_provider(2).http_5xx(), &script, "1:T1 1:T2 ok");
    }
}

/// Two targets with two keys each, by key: T1k1 T2k1 T1k2 T2k2.
fn by_key(base: Spec) -> Spec {
    Spec {
        places: Some(vec![(0, vec![0]), (1, vec![0]), (0, vec![1]), (1, vec![1])]),
        attempts_max: 4,
        sends_max: 16,
        ..base.keys(2)
    }
}

// R-B2: with `global_key` a target stands in several places; each is a candidate and counts.
#[test]
fn each_place_of_a_target_is_a_candidate() {
    let spec = by_key(route(2));
    check(
        &spec,
        "T1: 429/900; T2: 429/900",
        "1:T1 1:T2 1:T1k2 1:T2k2 throttled(exhausted)",
    );
    let two = Spec {
        attempts_max: 2,
        ..spec.clone()
    };
    check(
        &two,
        "T1: 429/900; T2: 429/900",
        "1:T1 1:T2 throttled(exhausted)",
    );
    // R-K2: an overload is the target's, so its other places are passed over.
    check(
        &spec,
        "T1: 529/900; T2k1: 429/900; T2k2: ok",
        "1:T1 1:T2 skip:T1 1:T2k2 ok",
    );
    check(
        &spec,
        "T1: u529; T2k1: u429; T2k2: ok",
        "1:T1 1:T2 skip:T1 1:T2k2 ok",
    );
}

// R-S16: round two goes over the same places, and starts where the provider's instant has passed.
#[test]
fn round_two_goes_over_the_same_places() {
    let spec = by_key(two_rounds(2));
    check(
        &spec,
        "T1k1: 429/900; T2k1: 429/900; T1k2: 429/200 ok; T2k2: 429/900",
        "1:T1 1:T2 1:T1k2 1:T2k2 wait skip:T1 skip:T2 2:T1k2 ok",
    );
}

// R-K1: the first candidate is tried again on its first key, whichever key that is.
#[test]
fn keys_are_tried_in_the_order_of_the_plan() {
    let spec = Spec {
        places: Some(vec![(0, vec![2, 0, 1])]),
        sends_max: 16,
        sticky_tries: 2,
        ..route(1).keys(3).http_5xx()
    };
    check(&spec, "T1k3: 500 ok", "1:T1k3 1:T1k3+1 ok");
    check(
        &spec,
        "T1k3: 429/900; T1k1: auth; T1k2: ok",
        "1:T1k3 1:T1 1:T1k2 ok",
    );
    // R-F8
    let bound = Spec {
        bound: true,
        ..spec
    };
    check(
        &bound,
        "T1k3: 429/900; T1k1: ok",
        "1:T1k3 throttled(exhausted)",
    );
}

// C13 R-B1: a certified throttle of a key goes to the next untried key at once; only when every key that could be tried was
// rejected is the round over.
#[test]
fn a_round_is_exhausted_when_every_key_was_rejected() {
    let spec = Spec {
        sends_max: 16,
        ..two_rounds(1).keys(3)
    };
    check(
        &spec,
        "T1k1: 429/900; T1k2: 429/900; T1k3: ok",
        "1:T1 1:T1k2 1:T1k3 ok",
    );
    check(
        &spec,
        "T1k1: 429/900; T1k2: 429/200 ok; T1k3: 429/900",
        "1:T1 1:T1k2 1:T1k3 wait 2:T1k2 ok",
    );
    // R-S5: one key that was refused for another reason suppresses it.
    check(
        &spec,
        "T1k1: 429/900; T1k2: auth; T1k3: 429/900",
        "1:T1 1:T1k2 1:T1k3 -auth_config throttled(auth_config)",
    );
    // R-B1: the budget ends the walk over keys.
    let two = Spec {
        sends_max: 2,
        ..spec
    };
    check(
        &two,
        "T1: 429/900",
        "1:T1 1:T1k2 -send_budget throttled(send_budget)",
    );
}

// A send is in flight from its dispatch point to its settlement, however it ends.
#[test]
fn sends_in_flight_are_given_back() {
    use std::sync::Arc;

    use rondo::policy::load::Load;

    use crate::simulation::auditor::Cooling;
    use crate::support::check::{START, Script, play_plan};

    let spec = one_provider(2).http_5xx();
    for script in [
        "T1: ok",
        "T1: 500; T2: ok",
        "T1: timeout@9000; gone@500",
        "T1: ok; streams broke",
    ] {
        let loads = [Arc::new(Load::default()), Arc::new(Load::default())];
        let mut route = Route::clone(&spec.build());
        for (target, load) in route.targets.iter_mut().zip(&loads) {
            target.load = Some(Arc::clone(load));
        }
        let plan = spec.plan(&Arc::new(route), START);
        let run = play_plan(
            plan,
            START,
            &mut Script::parse(script),
            &mut Cooling::default(),
            1,
        );
        assert!(run.settled.sends > 0);
        assert!(loads.iter().all(|load| load.sends() == 0), "{script}");
    }
}

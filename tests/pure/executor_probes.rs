//! How a target that was set aside is tried again: by one operation first. And failures that set one aside without a proof.

use std::sync::Arc;
use std::time::Instant;

use rand::SeedableRng;
use rondo::core::time::MonoTime;
use rondo::executor::effect::{Begin, Next};
use rondo::executor::event::Event;
use rondo::policy::cooldown::{Cooldown, FailureRules};
use rondo::policy::route::Route;

use crate::simulation::auditor::Cooling;
use crate::support::check::{Run, START, Script, check, play_plan};
use crate::support::driver::{Driver, Surroundings};
use crate::support::ms;
use crate::support::reports::named;
use crate::support::spec::{Spec, route, two_rounds};

const fn at(millis: u64) -> MonoTime {
    MonoTime::from_micros(millis * 1000)
}

const RULES: FailureRules = FailureRules {
    count: 3,
    within: ms(1_000),
    cooldown: ms(5_000),
};

fn trip(cooldown: &Cooldown, now: MonoTime) {
    (0..3).for_each(|_| cooldown.strike(cooldown.seen(now), &RULES, now));
}

// C21: one tries first; C24, C25: whatever comes of it, the next one can.
#[test]
fn one_probe_at_a_time() {
    let cooldown = Arc::new(Cooldown::default());
    cooldown.extend(at(100));
    assert!(!cooldown.is_half_open(at(99)));
    assert!(cooldown.is_half_open(at(100)));
    let probe = cooldown.take_probe(at(100)).unwrap();
    assert!(cooldown.is_probed(at(101)));
    assert!(cooldown.take_probe(at(101)).is_none());
    drop(probe);
    let again = cooldown.take_probe(at(102)).unwrap();
    // One that is held too long is lost, and its end does not end another's.
    let third = cooldown.take_probe(at(1_102)).unwrap();
    drop(again);
    assert!(cooldown.take_probe(at(1_103)).is_none());
    drop(third);
    cooldown.end(cooldown.seen(at(2_000)));
    assert!(!cooldown.is_half_open(at(2_000)));
}

// C27 C29 C30
#[test]
fn failures_in_a_row_trip_once() {
    let cooldown = Cooldown::default();
    for _ in 0..2 {
        cooldown.strike(cooldown.seen(at(1_000)), &RULES, at(1_000));
    }
    assert_eq!(cooldown.failing_after(at(1_000)), None);
    // Too late for the row.
    cooldown.strike(cooldown.seen(at(2_500)), &RULES, at(2_500));
    assert_eq!(cooldown.failing_after(at(2_500)), None);
    trip(&cooldown, at(3_000));
    let until = Some(at(8_000));
    assert_eq!(cooldown.failing_after(at(3_000)), until);
    trip(&cooldown, at(4_000));
    assert_eq!(
        cooldown.failing_after(at(4_000)),
        until,
        "set aside is set aside"
    );
    assert_eq!(
        cooldown.remaining_after(at(4_000)),
        None,
        "nothing is certified"
    );
    // The first failure after the rest is enough.
    cooldown.strike(cooldown.seen(at(9_000)), &RULES, at(9_000));
    assert_eq!(cooldown.failing_after(at(9_000)), Some(at(14_000)));
}

// C26: what began before the trip changes nothing, for better or worse.
#[test]
fn late_ends_from_before_the_trip_are_ignored() {
    let cooldown = Cooldown::default();
    let early = cooldown.seen(at(500));
    trip(&cooldown, at(1_000));
    cooldown.end(early);
    assert!(cooldown.failing_after(at(1_000)).is_some());
    cooldown.strike(early, &RULES, at(7_000));
    assert_eq!(cooldown.failing_after(at(7_000)), None);
    assert!(cooldown.is_half_open(at(7_000)));
    cooldown.end(cooldown.seen(at(7_000)));
    assert!(!cooldown.is_half_open(at(7_000)));
}

// C26: what was set between the choice of the key and the attempt is not seen to be over, whoever set it.
#[test]
fn a_success_does_not_end_a_rest_that_lies_ahead() {
    let cooldown = Cooldown::default();
    cooldown.extend(at(30_000));
    cooldown.end(cooldown.seen(at(10)));
    assert_eq!(cooldown.remaining_after(at(20)), Some(at(30_000)));
    cooldown.end(cooldown.seen(at(30_000)));
    assert!(!cooldown.is_half_open(at(30_000)));
    trip(&cooldown, at(31_000));
    cooldown.end(cooldown.seen(at(31_000)));
    assert_eq!(cooldown.failing_after(at(31_000)), Some(at(36_000)));
    cooldown.end(cooldown.seen(at(36_000)));
    assert!(!cooldown.is_half_open(at(36_000)));
}

#[test]
fn a_success_clears_the_row() {
    let cooldown = Cooldown::default();
    for _ in 0..5 {
        cooldown.strike(cooldown.seen(at(1_000)), &RULES, at(1_000));
        cooldown.strike(cooldown.seen(at(1_000)), &RULES, at(1_000));
        cooldown.end(cooldown.seen(at(1_000)));
    }
    assert_eq!(cooldown.failing_after(at(1_000)), None);
}

/// One route on which operations follow each other.
struct Played {
    spec: Spec,
    route: Arc<Route>,
    cooling: Cooling,
}

impl Played {
    fn new(spec: Spec) -> Played {
        Played {
            route: spec.build(),
            spec,
            cooling: Cooling::default(),
        }
    }

    fn one(&mut self, after: u64, script: &str) -> Run {
        let start = START.after(ms(after));
        let plan = self.spec.plan(&self.route, start);
        play_plan(
            plan,
            start,
            &mut Script::parse(script),
            &mut self.cooling,
            1,
        )
    }
}

/// Answers after so long, and how.
struct Slow(u64, &'static str);

impl Surroundings for Slow {
    fn preparation(&mut self) -> std::time::Duration {
        ms(0)
    }

    fn send(
        &mut self,
        _now: MonoTime,
        _begin: Begin,
    ) -> (std::time::Duration, rondo::core::outcome::AttemptReport) {
        (ms(self.0), named(self.1))
    }

    fn stream(
        &mut self,
        _now: MonoTime,
        _good: bool,
    ) -> (std::time::Duration, rondo::executor::event::StreamEnd) {
        (ms(1), rondo::executor::event::StreamEnd::Complete)
    }
}

impl Played {
    /// An operation that has just been sent, and where to.
    fn sent(&mut self, after: u64, answer: &mut Slow) -> (Driver, usize) {
        let start = START.after(ms(after));
        let mut driver = Driver::new(self.spec.plan(&self.route, start), start, 1);
        for event in [Event::Admitted, Event::SendBegun] {
            let _ = driver.feed(start, event, &mut self.cooling, answer);
        }
        let target = driver.auditor.open().expect("nothing was sent").target;
        (driver, target)
    }
}

// C21 C27: thirty seconds without a send, and then one that tries first, while the others go elsewhere.
#[test]
fn a_thousand_operations_send_one_probe() {
    let mut played = Played::new(route(2));
    let first = played.one(0, "T1: 429/30000; T2: ok");
    assert_eq!(first.trace, "1:T1 1:T2 ok");
    for operation in 0..1000 {
        let run = played.one(20 + operation * 29, "T2: ok");
        assert_eq!(run.trace, "skip:T1 1:T2 ok", "{operation}");
    }
    // All arrive in the moment of its reopening; the probe is not answered yet.
    let mut slow = Slow(500, "ok");
    let sent: Vec<_> = (0..1000).map(|_| played.sent(30_100, &mut slow)).collect();
    let probes = sent.iter().filter(|(_, target)| *target == 0).count();
    assert_eq!(probes, 1);
    // It succeeds, and T1 is open for everybody.
    for (mut driver, _) in sent {
        while let Some((due, event)) = driver.due.clone() {
            let _ = driver.feed(
                due.max(START.after(ms(30_600))),
                event,
                &mut played.cooling,
                &mut slow,
            );
        }
    }
    let mut quick = Slow(1, "ok");
    assert!((0..10).all(|_| played.sent(30_700, &mut quick).1 == 0));
}

// C24: a probe that is rejected closes the target again; C30.
#[test]
fn a_failed_probe_closes_again() {
    let mut played = Played::new(route(2));
    let _ = played.one(0, "T1: 429/1000; T2: ok");
    assert_eq!(
        played.one(1_100, "T1: 429/5000; T2: ok").trace,
        "1:T1 1:T2 ok"
    );
    assert_eq!(played.one(1_200, "T2: ok").trace, "skip:T1 1:T2 ok");
    assert_eq!(played.one(6_200, "T1: ok").trace, "1:T1 ok");
}

// C25: a probe that says nothing of the target lets the next one.
#[test]
fn a_probe_without_a_verdict_is_released() {
    for script in ["T1: 400", "T1: ok@900; gone@10", "T1: ok@900; drop@10"] {
        let mut played = Played::new(route(2));
        let _ = played.one(0, "T1: 429/1000; T2: ok");
        let _ = played.one(1_100, script);
        let mut slow = Slow(500, "ok");
        let targets: Vec<_> = (0..3).map(|_| played.sent(1_200, &mut slow)).collect();
        let targets: Vec<usize> = targets.iter().map(|(_, target)| *target).collect();
        assert_eq!(targets, [0, 1, 1], "{script}");
    }
}

// Where there is nobody else to go to, nobody waits for another's probe.
#[test]
fn a_probe_keeps_nobody_from_the_only_target() {
    let mut played = Played::new(route(1));
    let _ = played.one(0, "T1: 429/1000");
    let mut slow = Slow(500, "ok");
    let sent: Vec<_> = (0..10).map(|_| played.sent(1_100, &mut slow)).collect();
    assert!(sent.iter().all(|(_, target)| *target == 0));
    // And after the others have failed, its turn comes.
    let mut played = Played::new(route(2));
    let _ = played.one(0, "T1: 429/1000; T2: ok");
    let (_probing, target) = played.sent(1_100, &mut slow);
    assert_eq!(target, 0);
    assert_eq!(played.one(1_200, "T1: ok; T2: nd").trace, "1:T2 1:T1 ok");
}

// Without `rate_limiting` the route ends at a target that is limited, but not before the turn of one that stands ahead of it.
#[test]
fn a_probed_target_comes_before_the_limits_of_a_later_one() {
    let mut spec = Spec {
        limited: 2,
        ..route(2).limits(None, None, Some(1))
    };
    spec.fallback.rate_limiting = false;
    let mut played = Played::new(spec);
    let _ = played.one(0, "T1: 429/1000; T2: ok");
    let mut slow = Slow(500, "ok");
    let (_probing, first) = played.sent(1_100, &mut slow);
    let (_full, second) = played.sent(1_150, &mut slow);
    assert_eq!((first, second), (0, 1));
    assert_eq!(played.one(1_200, "T1: ok").trace, "1:T1 ok");
    let failed = played.one(1_300, "T1: nd");
    assert_eq!(failed.trace, "1:T1 local_limit(local_limit)");
}

// A probe is held for a second at most.
#[test]
fn a_silent_probe_keeps_others_away_for_a_second() {
    let mut played = Played::new(route(2));
    let _ = played.one(0, "T1: 429/1000; T2: ok");
    let mut slow = Slow(30_000, "ok");
    let (_silent, first) = played.sent(1_100, &mut slow);
    let (_second, second) = played.sent(2_099, &mut slow);
    let (_third, third) = played.sent(2_100, &mut slow);
    assert_eq!((first, second, third), (0, 1, 0));
}

fn failing(base: Spec) -> Spec {
    Spec {
        failures: Some((2, 10_000, 5_000)),
        ..base.http_5xx().transport_error()
    }
}

// C27: failures without a certificate set a target aside, when the route says so.
#[test]
fn failures_set_a_target_aside() {
    for token in ["500", "nd", "reset", "timeout", "u529"] {
        let mut played = Played::new(failing(route(2)));
        for after in [0, 100] {
            let script = format!("T1: {token}; T2: ok");
            assert_eq!(played.one(after, &script).trace, "1:T1 1:T2 ok", "{token}");
        }
        assert_eq!(
            played.one(200, "T2: ok").trace,
            "skip:T1 1:T2 ok",
            "{token}"
        );
        // Then one tries it: a failure sets it aside again, a success opens it.
        let late = played.one(5_200, "T1: 500; T2: ok");
        assert_eq!(late.trace, "1:T1 1:T2 ok");
        assert_eq!(played.one(5_300, "T2: ok").trace, "skip:T1 1:T2 ok");
        assert_eq!(played.one(10_400, "T1: ok").trace, "1:T1 ok");
        assert_eq!(played.one(10_500, "T1: 500; T2: ok").trace, "1:T1 1:T2 ok");
        assert_eq!(played.one(10_600, "T1: ok").trace, "1:T1 ok");
    }
}

// R-L5: what is not the target's fault is not counted.
#[test]
fn callers_and_cancels_do_not_count() {
    for script in ["T1: 400", "T1: ok@900; gone@10", "T1: 429/1", "T1: auth"] {
        let mut played = Played::new(failing(route(2)));
        for operation in 0..4 {
            let _ = played.one(operation * 1_000, &format!("{script}; T2: ok"));
        }
        assert_eq!(played.one(4_000, "T1: ok").trace, "1:T1 ok", "{script}");
    }
    // The operation's own deadline, which a client may have shortened.
    let mut played = Played::new(Spec {
        deadline: 50,
        ..failing(route(2))
    });
    for operation in 0..4 {
        let _ = played.one(operation * 1_000, "T1: ok@900; T2: ok");
    }
    assert_eq!(played.one(4_000, "T1: ok").trace, "1:T1 ok");
}

// R-S5: being set aside for failures is no certificate.
#[test]
fn a_failing_target_speaks_against_a_second_round() {
    check(
        &failing(two_rounds(2)),
        "fails T1 9000; T2: 429/100",
        "skip:T1 1:T2 -not_throttled throttled(not_throttled)",
    );
    let run = check(
        &failing(two_rounds(2)),
        "fails T1 9000; fails T2 4000",
        "skip:T1 skip:T2 -not_throttled failing",
    );
    assert_eq!((run.status, run.settled.sends), (Some(503), 0));
}

// R-S20: what is told is when a candidate may be used, whatever keeps it away until then.
#[test]
fn rests_after_failures_count_for_retry_after() {
    for (script, trace, after) in [
        (
            "cool T1 2000; fails T1 9000; cool T2 9500",
            "skip:T1 skip:T2 throttled(exhausted)",
            9_000,
        ),
        (
            "fails T1 1000; cool T2 9000",
            "skip:T1 skip:T2 throttled(exhausted)",
            1_000,
        ),
    ] {
        let run = check(&failing(route(2)), script, trace);
        assert_eq!(run.throttle.unwrap().retry_after, ms(after), "{script}");
    }
}

// R-S20 R-B1: everything cools: no operation sends, and each is told what remains to the microsecond.
#[test]
fn ten_thousand_operations_meet_nothing_but_cooldowns() {
    let mut played = Played::new(route(3));
    let script = "T1: 429/30000; T2: 429/45000; T3: 429/60000";
    assert_eq!(played.one(0, script).settled.sends, 3);
    let until = START.after(ms(30_010));
    let mut chance = rand::rngs::SmallRng::seed_from_u64(1);
    let started = Instant::now();
    for operation in 0..10_000 {
        let now = START.after(ms(50 + operation * 2));
        let plan = played.spec.plan(&played.route, now);
        let mut executor = rondo::executor::Executor::new(plan);
        let effects = executor.handle(now, Event::Admitted, &mut chance);
        let Next::Answer(rondo::executor::effect::FinalAnswer::Throttled(None, headers)) =
            effects.next
        else {
            panic!("{:?}", effects.next);
        };
        assert_eq!(headers.retry_after, until.since(now));
        assert_eq!(executor.sends(), 0);
    }
    println!("{:?} for a refusal", started.elapsed() / 10_000);
}

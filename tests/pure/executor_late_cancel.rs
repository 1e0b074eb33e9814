//! What operations share after a client that leaves at the instant at which time ran out: whatever the timer of that instant would have
//! left (R-L4). A client that leaves before it leaves everything as it was (R-L5).
//!
//! The last test asks the auditor's books, which the simulation meets in this instant too seldom. Not here: the records and answers of that instant (`executor_watchdog`).

use std::sync::Arc;
use std::time::Duration;

use rand::SeedableRng;
use rand::rngs::SmallRng;
use rondo::core::outcome::AttemptReport;
use rondo::core::time::MonoTime;
use rondo::executor::Executor;
use rondo::executor::effect::{Begin, Next};
use rondo::executor::event::{Event, StreamEnd};
use rondo::executor::watchdog::{Reached, Watchdog};
use rondo::policy::limits::Usage;
use rondo::policy::ordering::Pin;
use rondo::policy::route::Route;
use rondo::policy::scheduling::SchedulingMode;

use crate::simulation::auditor::Cooling;
use crate::simulation::orders::{self, Asked};
use crate::support::check::START;
use crate::support::driver::{Driver, Surroundings};
use crate::support::ms;
use crate::support::reports::named;
use crate::support::spec::{Spec, route};

/// When the wait of the attempt runs out.
const DUE: MonoTime = MonoTime::from_micros(START.as_micros() + 100_000);
/// How long one failure sets a target aside.
const ASIDE: u64 = 5_000;

/// Where the attempt was when its time ran out, and what its timer says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Connect,
    Head,
    Stream,
    /// Nothing is watched but the operation's own deadline.
    DeadlineSelected,
    DeadlineSent,
}

const STAGES: [Stage; 5] = [
    Stage::Connect,
    Stage::Head,
    Stage::Stream,
    Stage::DeadlineSelected,
    Stage::DeadlineSent,
];

impl Stage {
    fn timer(self) -> Event {
        match self {
            Stage::Connect => Event::Outcome(Reached::NothingSent.timed_out()),
            Stage::Head => Event::Outcome(Reached::Sent.timed_out()),
            Stage::Stream => Event::StreamEnded(StreamEnd::UpstreamTimedOut),
            Stage::DeadlineSelected | Stage::DeadlineSent => Event::DeadlinePassed,
        }
    }

    fn watched(self) -> Option<Reached> {
        match self {
            Stage::Connect => Some(Reached::NothingSent),
            Stage::Head | Stage::Stream => Some(Reached::Sent),
            Stage::DeadlineSelected | Stage::DeadlineSent => None,
        }
    }
}

/// What operations share, as far as the end of an attempt can change it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Shared {
    set_aside_until: Option<MonoTime>,
    is_remembered: bool,
    minute: Usage,
}

/// One operation at its only target, which gave the client's last good answer.
struct Run {
    executor: Executor,
    chance: SmallRng,
    route: Arc<Route>,
    pin: Pin,
}

impl Run {
    fn to(stage: Stage) -> Run {
        let mut spec = Spec {
            failures: Some((1, 1_000, ASIDE)),
            ..route(1).limits(Some(10), Some(1_000), Some(10))
        };
        spec.scheduling.scheduling_mode = SchedulingMode::CacheAffinity;
        if stage.watched().is_none() {
            spec.deadline = 100;
        }
        let (snapshot, route) = (orders::providers(), spec.build());
        let asked = Asked {
            snapshot: &snapshot,
            route: &route,
            client: "app",
            is_bound: false,
            now: START,
        };
        let mut chance = SmallRng::seed_from_u64(1);
        let plan = asked.plan(spec.plan(&route, START), &mut chance);
        let pin = plan.pin.clone().expect("the mode remembers clients");
        pin.keep(&route.targets[0], &route.targets[0].keys[0], START);
        let mut run = Run {
            executor: Executor::new(plan),
            chance,
            route,
            pin,
        };
        run.go_to(stage);
        run
    }

    fn go_to(&mut self, stage: Stage) {
        self.feed(START, Event::Admitted);
        if stage != Stage::DeadlineSelected && stage != Stage::Connect {
            self.feed(START, Event::SendBegun);
        }
        if stage == Stage::Stream {
            self.feed(START, Event::Outcome(named("ok")));
            self.feed(START, Event::Committed);
        }
        let watchdog = stage
            .watched()
            .map(|reached| Watchdog { due: DUE, reached });
        self.executor.watch(watchdog);
    }

    fn feed(&mut self, now: MonoTime, event: Event) -> Next {
        self.executor.handle(now, event, &mut self.chance).next
    }

    fn shared(&self, now: MonoTime) -> Shared {
        let target = &self.route.targets[0];
        Shared {
            set_aside_until: target.keys[0].cooldown.failing_after(now),
            is_remembered: self.pin.recall(now).is_some(),
            minute: target.limits.as_ref().unwrap().usage(now),
        }
    }
}

fn cancels(stage: Stage) -> Vec<Event> {
    let mut cancels = vec![Event::ClientGone, Event::Dropped];
    if stage == Stage::Stream {
        cancels.push(Event::StreamEnded(StreamEnd::ClientGone));
    }
    cancels
}

// R-L4: one world, and two ways to hear of it. The timer's is the measure.
#[test]
fn a_late_cancel_leaves_what_its_timer_leaves() {
    for stage in STAGES {
        for cancel in cancels(stage) {
            for after in [0, 1, 3_000] {
                let now = DUE.after(ms(after));
                let mut timer = Run::to(stage);
                timer.feed(now, stage.timer());
                let mut cancelled = Run::to(stage);
                let next = cancelled.feed(now, cancel.clone());
                assert!(matches!(next, Next::End), "{stage:?} {cancel:?}");
                assert_eq!(
                    cancelled.shared(now),
                    timer.shared(now),
                    "{stage:?} {cancel:?} {after}"
                );
            }
        }
    }
}

// R-L4: what the timer leaves is a failure of the target, except where it was the operation's own deadline that cut it.
#[test]
fn what_ran_out_of_time_counts_against_its_target() {
    let until = Some(DUE.after(ms(ASIDE)));
    for (stage, set_aside_until, is_remembered) in [
        (Stage::Connect, until, false),
        (Stage::Head, until, false),
        (Stage::Stream, None, false),
        (Stage::DeadlineSelected, None, true),
        (Stage::DeadlineSent, None, false),
    ] {
        for cancel in cancels(stage) {
            let mut run = Run::to(stage);
            run.feed(DUE, cancel.clone());
            let shared = run.shared(DUE);
            let left = (shared.set_aside_until, shared.is_remembered);
            assert_eq!(
                left,
                (set_aside_until, is_remembered),
                "{stage:?} {cancel:?}"
            );
        }
    }
}

// R-L5: a moment before, it is the client's doing, and blamed on nobody. What certainly was not answered costs nothing of the minute.
#[test]
fn a_timely_cancel_counts_against_nobody() {
    for stage in STAGES {
        for cancel in cancels(stage) {
            let now = MonoTime::from_micros(DUE.as_micros() - 1);
            let mut run = Run::to(stage);
            run.feed(now, cancel.clone());
            let shared = run.shared(now);
            let left = (shared.set_aside_until, shared.is_remembered);
            assert_eq!(left, (None, true), "{stage:?} {cancel:?}");
            assert_eq!(shared.minute.concurrent, 0, "{stage:?} {cancel:?}");
        }
    }
}

// R-F8: what is bound has its state there, whoever left and when.
#[test]
fn a_late_cancel_forgets_nothing_of_what_is_bound() {
    for stage in STAGES {
        let mut run = Run::to(stage);
        let mut plan = run.executor.plan().clone();
        plan.binding = Some("previous_response_id");
        run.executor = Executor::new(plan);
        run.go_to(stage);
        run.feed(DUE, Event::ClientGone);
        assert!(run.shared(DUE).is_remembered, "{stage:?}");
    }
}

/// Nobody answers, and the timer that says so is heard late.
struct Silence;

impl Surroundings for Silence {
    fn preparation(&mut self) -> Duration {
        Duration::ZERO
    }

    fn send(&mut self, _now: MonoTime, _begin: Begin) -> (Duration, AttemptReport) {
        (ms(100), named("timeout"))
    }

    fn lateness(&mut self) -> Duration {
        ms(2_000)
    }

    fn stream(&mut self, _now: MonoTime, _good: bool) -> (Duration, StreamEnd) {
        (ms(1), StreamEnd::Complete)
    }
}

/// Where the next operation is sent after clients of the first two left so long after their sends.
fn next_after(left: Duration) -> usize {
    let spec = Spec {
        failures: Some((2, 10_000, ASIDE)),
        ..route(2)
    };
    let (route, mut cooling) = (spec.build(), Cooling::default());
    let mut sent = |now: MonoTime| {
        let mut driver = Driver::new(spec.plan(&route, now), now, 1);
        for event in [Event::Admitted, Event::SendBegun] {
            let _ = driver.feed(now, event, &mut cooling, &mut Silence);
        }
        let target = driver.auditor.open().expect("nothing was sent").target;
        let _ = driver.feed(
            now.after(left),
            Event::ClientGone,
            &mut cooling,
            &mut Silence,
        );
        target
    };
    assert_eq!([sent(START), sent(START.after(ms(3_000)))], [0, 0]);
    sent(START.after(ms(6_000)))
}

// R-L4 R-L5: clients that leave set no target aside, silence does, and the auditor counts the same.
#[test]
fn silence_sets_a_target_aside_whoever_hears_of_it() {
    assert_eq!(next_after(ms(99)), 0);
    assert_eq!(next_after(ms(100)), 1);
    assert_eq!(next_after(ms(2_000)), 1);
}

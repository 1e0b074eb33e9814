//! Time that runs out and a client that leaves, in every order around the same instant (R-L4), what a cancel touches (R-L5), and the guard
//! that owes each record its end (R-L2).

use std::sync::Arc;

use rand::SeedableRng;
use rand::rngs::SmallRng;
use rondo::core::outcome::Outcome;
use rondo::core::settlement::{OperationOutcome, State};
use rondo::core::time::MonoTime;
use rondo::executor::Executor;
use rondo::executor::effect::{AttemptSettled, Next, Note, OperationSettled};
use rondo::executor::event::{Event, StreamEnd};
use rondo::executor::guard::Guard;
use rondo::executor::watchdog::{Reached, Watchdog};
use rondo::ledger::totals::{Open, Totals};
use rondo::policy::route::Route;

use crate::support::check::START;
use crate::support::ms;
use crate::support::reports::named;
use crate::support::spec::{Spec, route, two_rounds};

/// When the watched wait runs out.
const DUE: MonoTime = MonoTime::from_micros(START.as_micros() + 100_000);

/// One operation with its guard, and what it noted.
struct Run {
    executor: Executor,
    guard: Guard,
    chance: SmallRng,
    totals: Totals,
    attempts: Vec<AttemptSettled>,
    operations: Vec<OperationSettled>,
    route: Arc<Route>,
    next: Next,
}

impl Run {
    fn new(spec: &Spec) -> Run {
        let route = spec.build();
        let mut guard = Guard::disarmed();
        guard.arm();
        Run {
            executor: Executor::new(spec.plan(&route, START)),
            guard,
            chance: SmallRng::seed_from_u64(1),
            totals: Totals::default(),
            attempts: Vec::new(),
            operations: Vec::new(),
            route,
            next: Next::Continue,
        }
    }

    fn feed(&mut self, now: MonoTime, event: Event) {
        let effects = self.executor.handle(now, event, &mut self.chance);
        for note in &effects.notes {
            self.guard.see(note);
            self.totals.add(note);
            match note {
                Note::AttemptSettled(settled) => self.attempts.push(settled.clone()),
                Note::OperationSettled(settled) => self.operations.push(*settled),
                _ => {}
            }
        }
        self.next = effects.next;
    }

    fn to(spec: &Spec, stage: Stage) -> Run {
        let mut run = Run::new(spec);
        run.go_to(stage);
        run
    }

    fn go_to(&mut self, stage: Stage) {
        self.feed(START, Event::Admitted);
        self.feed(START, Event::SendBegun);
        let reached = match stage {
            Stage::Connect => Reached::NothingSent,
            Stage::Head | Stage::Stream => Reached::Sent,
        };
        if stage == Stage::Stream {
            self.feed(START, Event::Outcome(named("ok")));
            self.feed(START, Event::Committed);
        }
        self.executor.watch(Some(Watchdog { due: DUE, reached }));
    }

    /// What the shell reports when the wait of this stage has run out.
    fn timer(stage: Stage) -> Event {
        match stage {
            Stage::Connect => Event::Outcome(Reached::NothingSent.timed_out()),
            Stage::Head => Event::Outcome(Reached::Sent.timed_out()),
            Stage::Stream => Event::StreamEnded(StreamEnd::UpstreamTimedOut),
        }
    }

    /// The one settlement of each, after the guard has had its say.
    fn end(mut self, now: MonoTime) -> (Vec<State>, OperationSettled) {
        if let Some(event) = self.guard.owes(&self.executor) {
            self.feed(now, event);
        }
        let told = self.guard.stand_down(&self.executor);
        assert_eq!(self.operations.len(), 1, "R-L1: one terminal record");
        assert_eq!(told, Some(self.operations[0]));
        assert_eq!(self.guard.stand_down(&self.executor), None, "told once");
        self.totals.check(Open::default()).unwrap();
        assert_eq!(self.route.waiters.waiting(), 0);
        let states = self.attempts.iter().map(|settled| settled.state);
        (states.collect(), self.operations[0])
    }
}

/// What the attempt waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Connect,
    Head,
    Stream,
}

const STAGES: [Stage; 3] = [Stage::Connect, Stage::Head, Stage::Stream];

fn cancels() -> [Event; 3] {
    [
        Event::ClientGone,
        Event::Dropped,
        Event::StreamEnded(StreamEnd::ClientGone),
    ]
}

/// The cancels that can come in this stage: the end of a stream needs one.
fn cancels_in(stage: Stage) -> impl Iterator<Item = Event> {
    let count = if stage == Stage::Stream { 3 } else { 2 };
    cancels().into_iter().take(count)
}

fn offset(at: MonoTime, micros: i64) -> MonoTime {
    MonoTime::from_micros(at.as_micros().checked_add_signed(micros).unwrap())
}

// R-L4: processed at the instant or after it, a cancel finds an attempt that has run out of time; a microsecond before, it is a cancel.
#[test]
fn a_cancel_at_the_instant_comes_too_late() {
    for stage in STAGES {
        for cancel in cancels_in(stage) {
            for micros in [-1, 0, 1, 5_000_000] {
                let now = offset(DUE, micros);
                let mut run = Run::to(&route(2), stage);
                run.feed(now, cancel.clone());
                assert!(matches!(run.next, Next::End));
                let (states, settled) = run.end(now);
                let (attempt, outcome, state, reason) = match (stage, micros) {
                    (_, ..0) => (
                        State::Cancelled,
                        OperationOutcome::Cancelled,
                        State::Cancelled,
                        "",
                    ),
                    // A target that is not reached in time ends its attempt alone; there was another.
                    (Stage::Connect, _) => (
                        State::Failed,
                        OperationOutcome::Cancelled,
                        State::Cancelled,
                        "",
                    ),
                    (Stage::Head, _) => {
                        let late = (OperationOutcome::TimedOut, State::TimedOut);
                        (State::TimedOut, late.0, late.1, "upstream_timeout")
                    }
                    (Stage::Stream, _) => {
                        let late = (OperationOutcome::TimedOut, State::TimedOut);
                        (State::TimedOut, late.0, late.1, "stream_timeout")
                    }
                };
                let context = format!("{stage:?} {cancel:?} {micros}");
                assert_eq!(states, [attempt], "{context}");
                assert_eq!(
                    (settled.outcome, settled.state),
                    (outcome, state),
                    "{context}"
                );
                if !reason.is_empty() {
                    assert_eq!(settled.reason, reason, "{context}");
                }
            }
        }
    }
}

// R-L4: an attempt that is settled for a cancel that came too late reads like one that its timer settled.
#[test]
fn the_attempt_reads_as_its_timer_would_have_left_it() {
    for stage in STAGES {
        let mut late = Run::to(&route(1), stage);
        late.feed(DUE, Event::ClientGone);
        let mut timely = Run::to(&route(1), stage);
        timely.feed(DUE, Run::timer(stage));
        let facts = |run: &Run| {
            let settled = &run.attempts[0];
            let report = settled.report.as_ref().unwrap();
            (
                settled.state,
                settled.delivery(),
                report.class,
                report.status,
            )
        };
        assert_eq!(facts(&late), facts(&timely), "{stage:?}");
    }
}

// R-L4 R-B4: the operation's own deadline, while nothing else is watched.
#[test]
fn a_cancel_after_the_deadline_comes_too_late() {
    let spec = Spec {
        deadline: 100,
        ..two_rounds(1)
    };
    type Go = fn(&mut Run);
    let stages: [(Go, Option<State>, &str); 4] = [
        (|_| {}, None, "deadline"),
        (
            |run| run.feed(START, Event::Admitted),
            Some(State::TimedOut),
            "deadline",
        ),
        (
            |run| {
                run.feed(START, Event::Admitted);
                run.feed(START, Event::SendBegun);
            },
            Some(State::TimedOut),
            "upstream_timeout",
        ),
        (
            |run| {
                run.feed(START, Event::Admitted);
                run.feed(START, Event::SendBegun);
                let (due, reached) = (DUE, Reached::NothingSent);
                run.executor.watch(Some(Watchdog { due, reached }));
            },
            Some(State::Failed),
            "deadline",
        ),
    ];
    for (number, (go, attempt, reason)) in stages.into_iter().enumerate() {
        for cancel in cancels().into_iter().take(2) {
            for micros in [-1, 0, 1] {
                let mut run = Run::new(&spec);
                go(&mut run);
                run.feed(offset(DUE, micros), cancel.clone());
                let (states, settled) = run.end(DUE);
                let is_late = micros >= 0;
                let expected = if is_late {
                    attempt
                } else {
                    attempt.map(|_| State::Cancelled)
                };
                assert_eq!(
                    states,
                    expected.into_iter().collect::<Vec<_>>(),
                    "{number} {micros}"
                );
                let outcome = if is_late {
                    OperationOutcome::TimedOut
                } else {
                    OperationOutcome::Cancelled
                };
                assert_eq!(settled.outcome, outcome, "{number} {micros}");
                assert!(
                    !is_late || settled.reason == reason,
                    "{number} {}",
                    settled.reason
                );
            }
        }
    }
}

// R-L4: what sleeps has no attempt that could run out. Its deadline would be answered with the throttle that it slept for.
#[test]
fn a_sleeper_is_cancelled_even_after_its_deadline() {
    let mut run = Run::new(&Spec {
        deadline: 1000,
        ..two_rounds(1)
    });
    run.feed(START, Event::Admitted);
    run.feed(START, Event::SendBegun);
    run.feed(START, Event::Outcome(named("429/100")));
    assert!(matches!(run.next, Next::Wait(_)));
    run.feed(START.after(ms(2000)), Event::ClientGone);
    let (states, settled) = run.end(START);
    assert_eq!(states, [State::Rejected]);
    assert_eq!(settled.outcome, OperationOutcome::Cancelled);
}

/// Every order of these events.
fn orders(events: &[Event]) -> Vec<Vec<Event>> {
    if events.is_empty() {
        return vec![Vec::new()];
    }
    let mut all = Vec::new();
    for at in 0..events.len() {
        let mut rest = events.to_vec();
        let first = rest.remove(at);
        for mut order in orders(&rest) {
            order.insert(0, first.clone());
            all.push(order);
        }
    }
    all
}

// R-L1 R-L4: timer, disconnect, drop and normal completion in one instant, in every order: one record, and 504 whenever a timer or a cancel
// came before the answer. What cannot come any more after the end of an operation is fed all the same: it changes nothing.
#[test]
fn every_order_of_one_instant_leaves_one_record() {
    let mut walked = 0;
    for spec in [route(1), route(2), two_rounds(2)] {
        for stage in STAGES {
            for late in [0, 1, 1_000] {
                let good = match stage {
                    Stage::Stream => Event::StreamEnded(StreamEnd::Complete),
                    Stage::Connect | Stage::Head => Event::Outcome(named("ok")),
                };
                let events = [Run::timer(stage), Event::ClientGone, Event::Dropped, good];
                for order in orders(&events) {
                    walked += 1;
                    check_order(&spec, stage, offset(DUE, late), &order);
                }
            }
        }
    }
    assert_eq!(walked, 3 * 3 * 3 * 24);
}

fn check_order(spec: &Spec, stage: Stage, now: MonoTime, order: &[Event]) {
    let mut run = Run::to(spec, stage);
    let mut first = None;
    for event in order {
        // The session that would report an outcome is gone once there is one, and its timer with it.
        let is_cancel = matches!(event, Event::ClientGone | Event::Dropped);
        if !is_cancel && first.is_some() {
            continue;
        }
        if !is_cancel {
            first = Some(event);
        }
        run.feed(now, event.clone());
        if run.executor.has_ended() {
            break;
        }
    }
    let is_good = match first {
        Some(Event::Outcome(report)) => report.outcome == Outcome::Succeeded,
        Some(Event::StreamEnded(end)) => *end == StreamEnd::Complete,
        _ => false,
    };
    let (states, settled) = run.end(now);
    let context = format!("{stage:?} {order:?}: {states:?} {settled:?}");
    match (stage, is_good) {
        (Stage::Head | Stage::Stream, false) => {
            assert_eq!(settled.outcome, OperationOutcome::TimedOut, "{context}");
            assert_eq!(states, [State::TimedOut], "{context}");
        }
        (Stage::Connect, false) => {
            assert_eq!(states[0], State::Failed, "{context}");
            assert_eq!(settled.outcome, OperationOutcome::Cancelled, "{context}");
        }
        (Stage::Stream, true) => assert_eq!(settled.outcome, OperationOutcome::Succeeded),
        // The answer was there first; then the client left before it had it.
        (Stage::Connect | Stage::Head, true) => {
            assert_eq!(settled.outcome, OperationOutcome::Cancelled, "{context}");
        }
    }
}

// R-L4: the watchdog's 504 stands, however its writing ends; any other answer that nobody got is a cancel (R-D4).
#[test]
fn a_cancel_after_the_watchdog_changes_nothing() {
    for cancel in cancels() {
        for committed in [false, true] {
            for (token, outcome) in [
                ("timeout", OperationOutcome::TimedOut),
                ("reset", OperationOutcome::Cancelled),
                ("500", OperationOutcome::Cancelled),
                ("429", OperationOutcome::Cancelled),
            ] {
                let mut run = Run::new(&route(1));
                run.feed(START, Event::Admitted);
                run.feed(START, Event::SendBegun);
                run.feed(DUE, Event::Outcome(named(token)));
                if committed {
                    run.feed(DUE, Event::Committed);
                }
                run.feed(DUE, cancel.clone());
                let (_, settled) = run.end(DUE);
                assert_eq!(settled.outcome, outcome, "{token} {cancel:?}");
            }
        }
    }
}

// R-L4: a limit is the current wait's. What came in time takes it away, and so does the end of the attempt.
#[test]
fn a_limit_ends_with_its_wait() {
    let late = DUE.after(ms(1000));
    let mut over = Run::to(&route(1), Stage::Head);
    over.executor.watch(None);
    over.feed(late, Event::ClientGone);
    assert_eq!(over.end(late).1.outcome, OperationOutcome::Cancelled);

    let mut accepted = Run::to(&route(1), Stage::Head);
    accepted.feed(START, Event::Outcome(named("ok")));
    accepted.feed(late, Event::ClientGone);
    assert_eq!(accepted.end(late).1.outcome, OperationOutcome::Cancelled);

    let mut next = Run::to(&route(2), Stage::Head);
    next.feed(START, Event::Outcome(named("429")));
    assert!(matches!(next.next, Next::Begin(_)));
    next.feed(late, Event::ClientGone);
    let (states, settled) = next.end(late);
    assert_eq!(states, [State::Rejected, State::Cancelled]);
    assert_eq!(settled.outcome, OperationOutcome::Cancelled);
}

/// Everything that is remembered of the targets' health.
fn health(route: &Route, now: MonoTime) -> Vec<String> {
    let keys = route.targets.iter().flat_map(|target| &target.keys);
    keys.map(|key| {
        let (cooling, aside) = (
            key.cooldown.remaining_after(now),
            key.aside.remaining_after(now),
        );
        format!("{cooling:?} {aside:?}")
    })
    .collect()
}

// R-L5: a cancel, timely or late, cools no key and sets none aside. Silence counts where failures do, which this route does not
// (`executor_late_cancel`).
#[test]
fn a_cancel_touches_nobodys_health() {
    let spec = two_rounds(2).keys(2).http_5xx();
    for stage in STAGES {
        for cancel in cancels_in(stage) {
            for micros in [-1, 0, 1] {
                let now = offset(DUE, micros);
                let mut run = Run::new(&spec);
                // Something is remembered already, and stays.
                run.route.targets[1].keys[0]
                    .cooldown
                    .extend(DUE.after(ms(5000)));
                run.go_to(stage);
                let before = health(&run.route, now);
                run.feed(now, cancel.clone());
                assert_eq!(
                    health(&run.route, now),
                    before,
                    "{stage:?} {cancel:?} {micros}"
                );
                assert!(
                    run.attempts
                        .iter()
                        .all(|settled| settled.decision.label() != "next_key")
                );
                run.end(now);
            }
        }
    }
}

// R-L5: between two attempts a cancel is charged to neither: what failed before stays as it was, and no attempt follows.
#[test]
fn a_cancel_between_two_attempts_belongs_to_neither() {
    let own_retries = route(2).internal(4, 20_000, 250, 4000);
    for (spec, token, state) in [
        (two_rounds(1), "429/300", State::Rejected),
        (own_retries, "503/300", State::Refused),
    ] {
        for cancel in cancels().into_iter().take(2) {
            let mut run = Run::new(&spec);
            run.feed(START, Event::Admitted);
            run.feed(START, Event::SendBegun);
            run.feed(START, Event::Outcome(named(token)));
            assert!(matches!(run.next, Next::Wait(_)), "{token}");
            let (attempts, before) = (run.attempts.len(), health(&run.route, START));
            run.feed(START.after(ms(10)), cancel);
            assert_eq!(
                run.attempts.len(),
                attempts,
                "{token}: charged to an attempt"
            );
            assert_eq!(run.totals.attempts_opened, 1, "{token}: begun for nobody");
            assert_eq!(health(&run.route, START), before, "{token}");
            let (states, settled) = run.end(START);
            assert_eq!(states, [state], "{token}");
            assert_eq!(settled.outcome, OperationOutcome::Cancelled);
        }
    }
}

// R-L2: disarmed, the guard owes nothing; armed, it owes one end; told, it owes nothing again.
#[test]
fn the_guard_owes_one_end_from_the_moment_it_is_armed() {
    let spec = route(1);
    let route = spec.build();
    let mut chance = SmallRng::seed_from_u64(1);
    let mut executor = Executor::new(spec.plan(&route, START));
    let mut guard = Guard::disarmed();
    assert!(guard.owes(&executor).is_none());
    assert!(
        guard.stand_down(&executor).is_none(),
        "a drop before ownership writes nothing"
    );
    guard.arm();
    assert!(matches!(guard.owes(&executor), Some(Event::Dropped)));
    for note in executor.handle(START, Event::Dropped, &mut chance).notes {
        guard.see(&note);
    }
    assert!(guard.owes(&executor).is_none());
    let settled = guard.stand_down(&executor).unwrap();
    assert_eq!(
        (settled.state, settled.reason),
        (State::Cancelled, "dropped")
    );
    guard.arm();
    assert!(guard.owes(&executor).is_none() && guard.stand_down(&executor).is_none());
}

// R-L2: a step that did not come to its end has noted nothing; the record is settled all the same.
#[test]
fn an_end_without_a_note_is_a_drop() {
    let spec = route(1);
    let mut executor = Executor::new(spec.plan(&spec.build(), START));
    let _ = executor.handle(START, Event::Dropped, &mut SmallRng::seed_from_u64(1));
    let mut guard = Guard::disarmed();
    guard.arm();
    let settled = guard.stand_down(&executor).unwrap();
    assert_eq!(settled.outcome, OperationOutcome::Cancelled);
    assert_eq!((settled.sends, settled.rounds), (0, 1));
}

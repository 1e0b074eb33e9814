//! The shared counters under every interleaving of two or three threads. Built only with `--cfg loom`:
//!
//! `RUSTFLAGS="--cfg loom" CARGO_TARGET_DIR=target/loom cargo test --no-default-features --test loom`
//!
//! What is held: no bound is passed at any moment, what is taken is given back, an instant is only extended; an operation that several
//! threads end at once is settled once.
#![cfg(loom)]
#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use std::time::Duration;

use loom::sync::Mutex;
use loom::thread;
use rand::SeedableRng;
use rand::rngs::SmallRng;
use rondo::core::class::Class;
use rondo::core::outcome::{AttemptReport, Carrier, Outcome, Scope};
use rondo::core::settlement::{OperationOutcome, State};
use rondo::core::time::MonoTime;
use rondo::executor::Executor;
use rondo::executor::effect::{FinalAnswer, Next, Note, OperationSettled};
use rondo::executor::event::{Event, StreamEnd};
use rondo::executor::guard::Guard;
use rondo::executor::plan::Plan;
use rondo::executor::watchdog::{Reached, Watchdog};
use rondo::policy::admission::Waiters;
use rondo::policy::buffered::BufferedBytes;
use rondo::policy::cooldown::Cooldown;
use rondo::policy::limits::{Exhausted, LimitRules, TargetLimits};
use rondo::policy::load::Load;
use rondo::policy::ordering::Candidate;
use rondo::policy::provider::Ownership;
use rondo::policy::retry_budget::RetryBudget;
use rondo::policy::route::{Route, Target, TargetKey};
use rondo::policy::routing::{Fallback, Mode, OnDisconnect, Routing};
use rondo::policy::scheduling::RoutePolicy;
use rondo::policy::seats::Seats;

const fn at(micros: u64) -> MonoTime {
    MonoTime::from_micros(micros)
}

// R-B6
#[test]
fn slots_are_never_more_than_the_bound() {
    loom::model(|| {
        let room = Arc::new(Waiters::new(1, 100));
        let inside = Arc::new(loom::sync::atomic::AtomicUsize::new(0));
        let visitor = |room: Arc<Waiters>, inside: Arc<loom::sync::atomic::AtomicUsize>| {
            move || {
                let Some(permit) = room.enter(10) else {
                    return false;
                };
                let before = inside.fetch_add(1, loom::sync::atomic::Ordering::SeqCst);
                assert_eq!(before, 0, "two sleepers in one slot");
                inside.fetch_sub(1, loom::sync::atomic::Ordering::SeqCst);
                drop(permit);
                true
            }
        };
        let other = thread::spawn(visitor(Arc::clone(&room), Arc::clone(&inside)));
        let here = visitor(Arc::clone(&room), inside)();
        let there = other.join().unwrap();
        assert!(here || there, "a free slot was given to nobody");
        assert_eq!((room.waiting(), room.waiting_bytes()), (0, 0));
    });
}

// R-B6
#[test]
fn bytes_asleep_are_never_more_than_the_bound() {
    loom::model(|| {
        let room = Arc::new(Waiters::new(3, 100));
        let sleepers: Vec<_> = (0..2)
            .map(|_| {
                let room = Arc::clone(&room);
                thread::spawn(move || room.enter(60))
            })
            .collect();
        let permits: Vec<_> = sleepers
            .into_iter()
            .filter_map(|s| s.join().unwrap())
            .collect();
        assert_eq!(permits.len(), 1, "both fit, or none did");
        assert_eq!((room.waiting(), room.waiting_bytes()), (1, 60));
        drop(permits);
        assert_eq!((room.waiting(), room.waiting_bytes()), (0, 0));
    });
}

// R-B7
#[test]
fn held_bytes_are_never_more_than_the_bound() {
    loom::model(|| {
        let account = Arc::new(BufferedBytes::default());
        let holder = |account: Arc<BufferedBytes>| {
            move || {
                let Some(mut share) = account.reserve(40, 100) else {
                    return 0;
                };
                let grown = share.grow(30, 100);
                assert_eq!(share.bytes(), if grown { 70 } else { 40 });
                assert!(account.held() <= 100, "more bytes than the bound");
                share.shrink_to(10);
                share.bytes()
            }
        };
        let other = thread::spawn(holder(Arc::clone(&account)));
        let here = holder(Arc::clone(&account))();
        let there = other.join().unwrap();
        assert!(here == 10 || there == 10, "free bytes were given to nobody");
        assert_eq!(account.held(), 0);
    });
}

// R-S12
#[test]
fn two_rejections_leave_the_later_instant() {
    loom::model(|| {
        let cooldown = Arc::new(Cooldown::default());
        let other = {
            let cooldown = Arc::clone(&cooldown);
            thread::spawn(move || cooldown.extend(at(200)))
        };
        cooldown.extend(at(100));
        other.join().unwrap();
        assert_eq!(cooldown.remaining_after(at(0)), Some(at(200)));
    });
}

// R-S12: a success that began before a rejection does not end what the rejection set.
#[test]
fn a_success_never_ends_a_cooldown_it_has_not_seen() {
    loom::model(|| {
        let cooldown = Arc::new(Cooldown::default());
        cooldown.extend(at(100));
        let seen = cooldown.seen(at(100));
        let other = {
            let cooldown = Arc::clone(&cooldown);
            thread::spawn(move || cooldown.extend(at(200)))
        };
        cooldown.end(seen);
        other.join().unwrap();
        assert_eq!(cooldown.remaining_after(at(0)), Some(at(200)));
    });
}

/// The operation cell as the data plane has it: one lock over the executor and the guard of its record, and the rows that were told.
struct Cell {
    inner: Mutex<Inner>,
}

struct Inner {
    executor: Executor,
    guard: Guard,
    chance: SmallRng,
    attempts: Vec<State>,
    told: Vec<OperationSettled>,
}

const DUE: MonoTime = at(1_000);

impl Cell {
    /// An operation whose one attempt waits for its answer until [`DUE`].
    fn waiting() -> Cell {
        let mut inner = Inner {
            executor: Executor::new(plan()),
            guard: Guard::disarmed(),
            chance: SmallRng::seed_from_u64(1),
            attempts: Vec::new(),
            told: Vec::new(),
        };
        inner.guard.arm();
        inner.step(at(1), Event::Admitted);
        inner.step(at(1), Event::SendBegun);
        let (due, reached) = (DUE, Reached::Sent);
        inner.executor.watch(Some(Watchdog { due, reached }));
        Cell {
            inner: Mutex::new(inner),
        }
    }

    fn feed(&self, now: MonoTime, event: Event) {
        self.inner.lock().unwrap().step(now, event);
    }

    /// As `OperationCell::report_end`.
    fn report_end(&self, now: MonoTime) {
        let mut inner = self.inner.lock().unwrap();
        let inner = &mut *inner;
        if let Some(event) = inner.guard.owes(&inner.executor) {
            inner.step(now, event);
        }
        if let Some(settled) = inner.guard.stand_down(&inner.executor) {
            inner.told.push(settled);
        }
    }
}

impl Inner {
    fn step(&mut self, now: MonoTime, event: Event) {
        for note in self.executor.handle(now, event, &mut self.chance).notes {
            self.guard.see(&note);
            if let Note::AttemptSettled(settled) = note {
                self.attempts.push(settled.state);
            }
        }
    }
}

fn plan() -> Plan {
    plan_of(vec![target(None)])
}

fn target(limits: Option<&Arc<TargetLimits>>) -> Target {
    Target {
        name: "t".into(),
        provider: 0,
        model: None,
        keys: vec![TargetKey::fresh(None)],
        ownership: Ownership::External,
        retry: None,
        limits: limits.map(Arc::clone),
        health: None,
        priority: 0,
        weight: 1,
        id: 0,
        endpoint: 0,
        load: None,
    }
}

fn plan_of(targets: Vec<Target>) -> Plan {
    let tries = u32::try_from(targets.len()).unwrap();
    let routing = Routing {
        mode: Mode::PriorityFailover,
        attempts_max: tries,
        sends_max: tries,
        exhaustion: None,
        fallback: Fallback {
            rate_limiting: true,
            ..Fallback::default()
        },
        tries_max: None,
        fail_within: None,
        failover_within: None,
        sticky_tries: 1,
        on_client_disconnect: OnDisconnect::Abort,
        cooldown_max: Duration::ZERO,
        quota_aside: Duration::ZERO,
        failures: None,
    };
    let route = Route {
        name: "r".into(),
        models: Vec::new(),
        targets,
        routing,
        deadline: Duration::from_secs(1),
        waiters: Arc::new(Waiters::new(1, 1)),
        retry_budget: Arc::default(),
        policy: RoutePolicy::default(),
        prepared: Vec::new(),
    };
    Plan {
        candidates: Candidate::each(&route),
        sticky_tries: 1,
        pin: None,
        route: Arc::new(route),
        binding: None,
        caller_retry: false,
        caller_owns_retries: true,
        began: at(0),
        deadline: at(1_000_000),
        tokens: 0,
        held_bytes: 0,
    }
}

fn good() -> AttemptReport {
    AttemptReport {
        outcome: Outcome::Succeeded,
        class: Class::Ok,
        scope: Scope::Candidate,
        carrier: Carrier::Status,
        status: Some(200),
        pushback: None,
        reply: None,
    }
}

/// An account with room for one attempt at a time.
fn one_at_a_time() -> Arc<TargetLimits> {
    Arc::new(TargetLimits::new(LimitRules {
        requests_per_minute: None,
        tokens_per_minute: None,
        concurrent: Some(1),
    }))
}

// An operation that goes nowhere takes no place on the way: another one would be refused for nothing.
#[test]
fn a_success_takes_no_place_at_the_next_target() {
    loom::model(|| {
        let account = one_at_a_time();
        let mut chance = SmallRng::seed_from_u64(1);
        let targets = vec![target(None), target(Some(&account))];
        let mut executor = Executor::new(plan_of(targets));
        for event in [Event::Admitted, Event::SendBegun] {
            executor.handle(at(1), event, &mut chance);
        }
        let other = thread::spawn(move || account.reserve(0, at(5)).map(drop));
        executor.handle(at(5), Event::Outcome(good()), &mut chance);
        assert_eq!(other.join().unwrap(), Ok(()), "refused by an idle target");
    });
}

// R-S5: a target that comes free while another is taken has rejected nothing.
#[test]
fn what_comes_free_meanwhile_counts_as_no_rejection() {
    loom::model(|| {
        let account = one_at_a_time();
        let held = account.reserve(0, at(1)).unwrap();
        let mut chance = SmallRng::seed_from_u64(1);
        let targets = vec![target(Some(&account)), target(None)];
        let mut executor = Executor::new(plan_of(targets));
        let other = thread::spawn(move || drop(held));
        let first = executor.handle(at(1), Event::Admitted, &mut chance).next;
        other.join().unwrap();
        let Next::Begin(first) = first else {
            panic!("{first:?}");
        };
        executor.handle(at(1), Event::SendBegun, &mut chance);
        let unreached = AttemptReport {
            outcome: Outcome::NotDelivered,
            class: Class::Transport,
            status: None,
            ..good()
        };
        let event = Event::Outcome(unreached);
        match executor.handle(at(2), event, &mut chance).next {
            Next::Begin(second) => assert_ne!(first.target, second.target),
            Next::Answer(FinalAnswer::LocalLimit(_)) => assert_eq!(first.target, 1),
            next => panic!("{next:?}"),
        }
    });
}

/// Three threads end one operation at the same moment; whoever is last tells the end, and so does everyone else.
fn race(now: MonoTime, own: Event) -> (Vec<State>, Vec<OperationSettled>) {
    let cell = Arc::new(Cell::waiting());
    // The session: its timer, or its answer with the end of it.
    let session = {
        let cell = Arc::clone(&cell);
        thread::spawn(move || {
            let mut inner = cell.inner.lock().unwrap();
            if inner.attempts.is_empty() && !inner.executor.has_ended() {
                inner.step(now, own);
            }
            drop(inner);
            cell.report_end(now);
        })
    };
    let dropped = {
        let cell = Arc::clone(&cell);
        thread::spawn(move || cell.report_end(now))
    };
    cell.feed(now, Event::ClientGone);
    cell.report_end(now);
    session.join().unwrap();
    dropped.join().unwrap();
    let inner = cell.inner.lock().unwrap();
    assert!(inner.executor.has_ended());
    (inner.attempts.clone(), inner.told.clone())
}

// R-L1 R-L2 R-L4: watchdog, disconnect and drop at the instant: one row of each, timed out, in every order.
#[test]
fn the_watchdog_and_a_disconnect_leave_one_timed_out_record() {
    loom::model(|| {
        let (attempts, told) = race(DUE, Event::Outcome(Reached::Sent.timed_out()));
        assert_eq!(attempts, [State::TimedOut]);
        assert_eq!(told.len(), 1);
        assert_eq!(told[0].outcome, OperationOutcome::TimedOut);
    });
}

// R-L1 R-L2: an answer that comes in that moment is the attempt's outcome or too late, never a second one.
#[test]
fn a_completion_and_a_disconnect_leave_one_record() {
    loom::model(|| {
        let (attempts, told) = race(at(999), Event::Outcome(good()));
        assert_eq!((attempts.len(), told.len()), (1, 1));
        assert_eq!(told[0].outcome, OperationOutcome::Cancelled);
        assert_eq!(attempts, [State::Cancelled]);
    });
}

// R-L1: the end of the process settles while the data plane completes: whoever is first is right, and there is no second.
#[test]
fn the_end_of_the_process_and_a_completion_leave_one_record() {
    loom::model(|| {
        let cell = Arc::new(Cell::waiting());
        cell.feed(at(10), Event::Outcome(good()));
        cell.feed(at(10), Event::Committed);
        let completion = {
            let cell = Arc::clone(&cell);
            thread::spawn(move || {
                cell.feed(at(20), Event::StreamEnded(StreamEnd::Complete));
                cell.report_end(at(20));
            })
        };
        cell.report_end(at(20));
        completion.join().unwrap();
        let inner = cell.inner.lock().unwrap();
        let (attempts, told) = (&inner.attempts, &inner.told);
        assert_eq!((attempts.len(), told.len()), (1, 1));
        let outcome = told[0].outcome;
        let fits = match attempts[0] {
            State::Succeeded => outcome == OperationOutcome::Succeeded,
            State::Cancelled => outcome == OperationOutcome::Cancelled,
            _ => false,
        };
        assert!(fits, "{attempts:?} {told:?}");
    });
}

// C22: two that race for the last extra send are never both given it, and what was refused is not counted.
#[test]
fn the_retry_budget_is_never_passed() {
    loom::model(|| {
        // A tenth of ten operations: one extra send.
        let budget = Arc::new(RetryBudget::new(10, 0));
        (0..10).for_each(|_| budget.deposit(at(5)));
        let other = {
            let budget = Arc::clone(&budget);
            thread::spawn(move || budget.charge(at(5)))
        };
        let here = budget.charge(at(5));
        let there = other.join().unwrap();
        assert!(!(here && there), "one extra send was given twice");
        assert_eq!(budget.charged(at(5)), u64::from(here) + u64::from(there));
    });
}

// What a minute and the slots hold is asked and taken in one step; what did not run is given back whole.
#[test]
fn a_local_limit_is_never_passed() {
    loom::model(|| {
        let account = Arc::new(TargetLimits::new(LimitRules {
            requests_per_minute: Some(2),
            tokens_per_minute: Some(10),
            concurrent: Some(1),
        }));
        let other = {
            let account = Arc::clone(&account);
            thread::spawn(move || account.reserve(6, at(5)).map(drop))
        };
        let here = account.reserve(6, at(5));
        let usage = account.usage(at(5));
        assert!(usage.concurrent <= 1 && usage.tokens <= 10, "{usage:?}");
        if let Ok(mut share) = here {
            share.keep();
        }
        let there = other.join().unwrap();
        assert_ne!(there, Err(Exhausted::Full), "the minute is said first");
        let usage = account.usage(at(5));
        assert_eq!(usage.concurrent, 0);
        assert_eq!(usage.tokens, usage.requests * 6);
    });
}

// What an answer used may be told while its attempt is given back: whichever is later holds, and the account and the share agree.
#[test]
fn a_correction_and_an_end_agree() {
    loom::model(|| {
        let account = Arc::new(TargetLimits::new(LimitRules {
            requests_per_minute: None,
            tokens_per_minute: Some(10),
            concurrent: None,
        }));
        let reservation = account.reserve(6, at(5)).unwrap();
        let (share, last) = (reservation.share(), reservation.share());
        let other = thread::spawn(move || share.correct(3));
        drop(reservation);
        other.join().unwrap();
        assert!([0, 3].contains(&account.usage(at(5)).tokens));
        last.correct(0);
        assert_eq!(account.usage(at(5)).tokens, 0);
    });
}

// C21 C24: two that come when a rest is over: one tries first, and when it has ended the next one can.
#[test]
fn one_probe_is_given_at_a_time() {
    loom::model(|| {
        let cooldown = Arc::new(Cooldown::default());
        cooldown.extend(at(100));
        let other = {
            let cooldown = Arc::clone(&cooldown);
            thread::spawn(move || cooldown.take_probe(at(200)))
        };
        let here = cooldown.take_probe(at(200));
        let there = other.join().unwrap();
        assert!(
            here.is_some() != there.is_some(),
            "both tried first, or none"
        );
        drop((here, there));
        assert!(!cooldown.is_probed(at(200)));
        assert!(
            cooldown.take_probe(at(200)).is_some(),
            "a probe was never released"
        );
    });
}

// What is in flight is given back, once each.
#[test]
fn sends_in_flight_are_counted_and_given_back() {
    loom::model(|| {
        let load = Arc::new(Load::default());
        let other = {
            let load = Arc::clone(&load);
            thread::spawn(move || {
                let held = load.enter();
                assert!((1..=2).contains(&load.sends()));
                drop(held);
            })
        };
        let held = load.enter();
        assert!((1..=2).contains(&load.sends()));
        other.join().unwrap();
        assert_eq!(load.sends(), 1);
        drop(held);
        assert_eq!(load.sends(), 0);
    });
}

// R-B7: two that come at once, a bound of one: never both, never neither, and the count ends at nothing.
#[test]
fn seats_are_never_more_than_the_bound() {
    loom::model(|| {
        let seats = Arc::new(Seats::default());
        let inside = Arc::new(loom::sync::atomic::AtomicUsize::new(0));
        let visitor = |seats: Arc<Seats>, inside: Arc<loom::sync::atomic::AtomicUsize>| {
            move || {
                let Some(seat) = seats.take(1) else {
                    return false;
                };
                let before = inside.fetch_add(1, loom::sync::atomic::Ordering::SeqCst);
                assert_eq!(before, 0, "two on one seat");
                inside.fetch_sub(1, loom::sync::atomic::Ordering::SeqCst);
                drop(seat);
                true
            }
        };
        let other = thread::spawn(visitor(Arc::clone(&seats), Arc::clone(&inside)));
        let here = visitor(Arc::clone(&seats), inside)();
        let there = other.join().unwrap();
        assert!(here || there, "a free seat was given to nobody");
        assert_eq!(seats.taken(), 0);
    });
}

// R-B7 R-C2: a bound that sinks while somebody comes: who comes by the old one was let in before, and nobody by the new one above it.
#[test]
fn a_bound_that_sinks_keeps_its_count() {
    loom::model(|| {
        let seats = Arc::new(Seats::default());
        let held = seats.take(2).unwrap();
        let coming = {
            let seats = Arc::clone(&seats);
            thread::spawn(move || seats.take(2))
        };
        let sunk = seats.take(1);
        assert!(sunk.is_none(), "the held seat fills the new bound");
        drop(held);
        let came = coming.join().unwrap();
        assert!(came.is_some());
        assert_eq!(seats.taken(), 1);
        drop(came);
        assert_eq!(seats.taken(), 0);
    });
}

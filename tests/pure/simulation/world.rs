//! One epoch: routes over shared upstreams, operations that arrive, outside events, and the balances at the end.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::sync::Arc;
use std::time::Duration;

use rand::rngs::SmallRng;
use rand::seq::IndexedRandom;
use rand::{Rng, RngCore, SeedableRng};
use rondo::core::time::MonoTime;
use rondo::executor::effect::{Begin, Next};
use rondo::executor::event::{Event, StreamEnd};
use rondo::policy::admission::Waiters;
use rondo::policy::buffered::{BufferedBytes, Reservation};
use rondo::policy::cooldown::KeyAside;
use rondo::policy::load::Load;
use rondo::policy::provider::KeyRules;
use rondo::policy::route::TargetKey;
use rondo::policy::snapshot::Snapshot;

use super::auditor::Cooling;
use super::lanes::Lane;
use super::orders::{self, Orders};
use super::records::{Records, Seen};
use super::tally::Tally;
use super::upstream::Upstream;
use crate::support::driver::{Driver, Surroundings};
use crate::support::ms;
use crate::support::spec::Spec;

/// The longest that a committed answer may be written.
const STREAM_MAX: Duration = Duration::from_secs(30);
/// How late a timer of the deadline may fire.
const TIMER_LATENESS_MAX: Duration = Duration::from_millis(20);
/// Body bytes that a process of the simulation may hold (R-B7).
const BUFFERED_MAX: u64 = 400_000;

/// What the clock brings.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Due {
    Arrival,
    Own {
        id: usize,
        version: u32,
    },
    Deadline {
        id: usize,
    },
    Leaves {
        id: usize,
    },
    Dropped {
        id: usize,
    },
    /// This operation hears of a drain; for it that is the same as if all did.
    Drains {
        id: usize,
    },
    Shutdown,
    Reload,
    NewSecrets,
}

struct Flight {
    driver: Driver,
    version: u32,
    waiters: Arc<Waiters>,
    loads: Vec<Arc<Load>>,
    client: String,
    /// Names its record.
    record: Arc<str>,
    /// Where something from outside is to meet it, and what.
    aim: Option<(&'static str, Event)>,
    /// Given back when the operation has ended.
    _body: Reservation,
}

/// One world.
pub struct Epoch {
    rng: SmallRng,
    now: MonoTime,
    queue: BinaryHeap<Reverse<(MonoTime, u64, Due)>>,
    ticket: u64,
    upstreams: Vec<Upstream>,
    /// The keys of each upstream.
    pools: Vec<Vec<TargetKey>>,
    /// Providers and what is remembered of clients; its routes are not used.
    snapshot: Arc<Snapshot>,
    orders: Orders,
    forgotten: Vec<Arc<KeyAside>>,
    lanes: Vec<Lane>,
    account: Arc<BufferedBytes>,
    flights: BTreeMap<usize, Flight>,
    lane_of: BTreeMap<usize, Vec<usize>>,
    cooling: Cooling,
    draining: bool,
    records: Records,
    tally: Tally,
}

/// Awaits of microseconds are seldom met by chance, so some operations are met at one of them.
fn aim(rng: &mut SmallRng) -> Option<(&'static str, Event)> {
    if rng.random_range(0..8) > 0 {
        return None;
    }
    let events = [Event::ClientGone, Event::Dropped, Event::ShutdownBegun];
    let stage = *super::tally::STAGES.choose(rng).unwrap();
    Some((stage, events.choose(rng).unwrap().clone()))
}

/// What surrounds one operation, borrowed from the world.
struct Around<'a> {
    rng: &'a mut SmallRng,
    upstreams: &'a mut [Upstream],
    lane: &'a [usize],
    /// Time to the operation's deadline.
    left: Duration,
}

impl Surroundings for Around<'_> {
    fn preparation(&mut self) -> Duration {
        // And sometimes not before the deadline, whose timer may be late as well: who is heard first?
        if self.rng.random_range(0..100) == 0 {
            return self.left + self.lateness().min(TIMER_LATENESS_MAX);
        }
        // Now and then a task is not scheduled for a while.
        let longest = if self.rng.random_range(0..20) == 0 {
            40_000
        } else {
            400
        };
        Duration::from_micros(self.rng.random_range(0..=longest))
    }

    fn send(
        &mut self,
        now: MonoTime,
        begin: Begin,
    ) -> (Duration, rondo::core::outcome::AttemptReport) {
        self.upstreams[self.lane[begin.target]].answer(now, begin.key)
    }

    fn lateness(&mut self) -> Duration {
        // Now and then nobody looks at a timer for long.
        let longest = match self.rng.random_range(0..4) {
            0 => 2_000_000,
            _ => TIMER_LATENESS_MAX.as_micros() as u64,
        };
        Duration::from_micros(self.rng.random_range(0..longest))
    }

    fn stream(&mut self, _now: MonoTime, good: bool) -> (Duration, StreamEnd) {
        if !good {
            return (Duration::from_micros(200), StreamEnd::Complete);
        }
        let end = match self.rng.random_range(0..40) {
            0 => StreamEnd::UpstreamBroke,
            1 => StreamEnd::UpstreamTimedOut,
            2 => StreamEnd::ClientGone,
            _ => StreamEnd::Complete,
        };
        let length = self.rng.random_range(0..=STREAM_MAX.as_micros() as u64 / 8);
        (Duration::from_micros(length), end)
    }
}

impl Epoch {
    pub fn new(seed: u64) -> Epoch {
        let mut rng = SmallRng::seed_from_u64(seed);
        let upstreams: Vec<Upstream> = (0..6).map(|_| Upstream::new(rng.next_u64())).collect();
        // Half of them without authentication, the others with pools of one to three keys.
        let pools = (0..upstreams.len()).map(|index| match index % 2 {
            0 => Spec::pool(0),
            _ => Spec::pool(rng.random_range(1..=3)),
        });
        let mut pools: Vec<Vec<TargetKey>> = pools.collect();
        for key in pools.iter_mut().flatten() {
            key.rules = Arc::new(KeyRules {
                priority: rng.random_range(0..3),
                weight: rng.random_range(1..=3),
                ..KeyRules::default()
            });
        }
        let lanes = (0..5)
            .map(|index| Lane::new(&mut rng, &pools, format!("lane{index}")))
            .collect();
        Epoch {
            now: MonoTime::from_micros(1_000_000),
            queue: BinaryHeap::new(),
            ticket: 0,
            upstreams,
            snapshot: orders::providers(),
            orders: Orders::default(),
            pools,
            forgotten: Vec::new(),
            lanes,
            account: Arc::default(),
            flights: BTreeMap::new(),
            lane_of: BTreeMap::new(),
            cooling: Cooling::default(),
            draining: false,
            records: Records::new(orders::providers()),
            tally: Tally::default(),
            rng,
        }
    }

    /// Lives through `operations` arrivals and whatever they bring.
    pub fn run(mut self, operations: u64) -> Tally {
        let mut at = self.now;
        for _ in 0..operations {
            // Bursts: every now and then many arrive in the same moment.
            let gap = if self.rng.random_range(0..3) == 0 {
                0
            } else {
                self.rng.random_range(0..60_000)
            };
            at = at.after(Duration::from_micros(gap));
            self.plan(at, Due::Arrival);
        }
        for _ in 0..8 {
            let reload = self.some_instant(at);
            self.plan(reload, Due::Reload);
            for _ in 0..4 {
                let renewed = self.some_instant(at);
                self.plan(renewed, Due::NewSecrets);
            }
        }
        if self.rng.random_range(0..2) == 0 {
            // Near the end, so that most operations are not refused for it.
            let span = at.since(self.now) / 20;
            let early = Duration::from_micros(self.rng.random_range(0..=span.as_micros() as u64));
            let shutdown = MonoTime::from_micros(at.as_micros()).since(MonoTime::ZERO) - early;
            self.plan(MonoTime::ZERO.after(shutdown), Due::Shutdown);
        }
        while let Some(Reverse((now, _, due))) = self.queue.pop() {
            assert!(now >= self.now, "time went back");
            self.now = now;
            self.step(due);
            self.audit();
        }
        self.close()
    }

    fn some_instant(&mut self, last: MonoTime) -> MonoTime {
        let span = last.since(self.now).as_micros() as u64 + 1;
        self.now
            .after(Duration::from_micros(self.rng.random_range(0..span)))
    }

    fn plan(&mut self, at: MonoTime, due: Due) {
        self.ticket += 1;
        self.queue.push(Reverse((at, self.ticket, due)));
    }

    fn step(&mut self, due: Due) {
        match due {
            Due::Arrival => self.arrive(),
            Due::Own { id, version } => {
                let Some(flight) = self.flights.get_mut(&id) else {
                    return;
                };
                if flight.version != version {
                    return;
                }
                let (_, event) = flight.driver.due.take().expect("a timer without an event");
                self.feed(id, event);
            }
            Due::Deadline { id } => self.feed(id, Event::DeadlinePassed),
            Due::Leaves { id } => self.feed(id, Event::ClientGone),
            Due::Dropped { id } => self.feed(id, Event::Dropped),
            Due::Drains { id } => self.feed(id, Event::ShutdownBegun),
            Due::Shutdown => {
                self.draining = true;
                let all: Vec<usize> = self.flights.keys().copied().collect();
                for id in all {
                    self.feed(id, Event::ShutdownBegun);
                }
            }
            Due::Reload => {
                let index = self.rng.random_range(0..self.lanes.len());
                self.lanes[index].reload(&mut self.rng, &self.pools);
            }
            Due::NewSecrets => {
                // Every key gets another secret: what was set aside is forgotten, what cools goes on.
                for key in self.pools.iter_mut().flatten() {
                    // Kept, since the books know a counter by its address.
                    self.forgotten.push(std::mem::take(&mut key.aside));
                }
                for lane in &mut self.lanes {
                    lane.rebuild(&mut self.rng, &self.pools);
                }
            }
        }
    }

    fn arrive(&mut self) {
        self.tally.operations += 1;
        let lane = &self.lanes[self.rng.random_range(0..self.lanes.len())];
        let mut spec = lane.spec.clone();
        spec.bound = self.rng.random_range(0..12) == 0;
        spec.caller_retry = self.rng.random_range(0..12) == 0;
        spec.held_bytes = self.rng.random_range(1..=4_000);
        let deadline = *[spec.deadline, spec.deadline, 300, 1500]
            .choose(&mut self.rng)
            .unwrap();
        spec.deadline = deadline.min(spec.deadline);
        let body = self.account.reserve(spec.held_bytes, BUFFERED_MAX);
        // R-B7, R-C3: refused before it is read, or no longer accepted.
        let Some(body) = body.filter(|_| !self.draining) else {
            self.tally.refused_before_reading += 1;
            return;
        };
        let id = usize::try_from(self.tally.operations).unwrap();
        let client = format!("{}-{}", lane.name, self.rng.random_range(0..6));
        let (snapshot, route) = (&self.snapshot, &lane.route);
        let asked = orders::Asked {
            snapshot,
            route,
            client: &client,
            is_bound: spec.bound,
            now: self.now,
        };
        let plan = asked.plan(spec.plan(route, self.now), &mut self.rng);
        self.orders.check(&asked, &plan);
        self.tally.reordered(&plan);
        let record: Arc<str> = format!("op-{id}").into();
        self.records.begin(&record, &plan, self.now);
        let driver = Driver::new(plan, self.now, self.rng.next_u64());
        let flight = Flight {
            driver,
            version: 0,
            waiters: Arc::clone(&lane.waiters),
            loads: lane.loads.clone(),
            client,
            record,
            aim: aim(&mut self.rng),
            _body: body,
        };
        self.lane_of.insert(id, lane.upstreams.clone());
        let end = flight.driver.deadline;
        self.flights.insert(id, flight);
        // Timers fire late, so the dispatch point may be reached first.
        let lateness = Duration::from_micros(
            self.rng
                .random_range(0..TIMER_LATENESS_MAX.as_micros() as u64),
        );
        self.plan(end.after(lateness), Due::Deadline { id });
        let patience = ms(self.rng.random_range(0..4_000));
        match self.rng.random_range(0..20) {
            0..=2 => self.plan(self.now.after(patience), Due::Leaves { id }),
            3 => self.plan(self.now.after(patience), Due::Dropped { id }),
            _ => {}
        }
        self.schedule(id);
    }

    /// Plans the operation's own next event; whatever was planned before is void.
    fn schedule(&mut self, id: usize) {
        let Some(flight) = self.flights.get_mut(&id) else {
            return;
        };
        flight.version += 1;
        let version = flight.version;
        let Some((at, _)) = flight.driver.due else {
            return;
        };
        let stage = flight.driver.auditor.stage();
        let met = flight.aim.take_if(|(aim, _)| *aim == stage);
        self.plan(at, Due::Own { id, version });
        // Anywhere in the await, its end included.
        if let Some((_, event)) = met {
            let length = at.since(self.now).as_micros() as u64;
            let after = Duration::from_micros(self.rng.random_range(0..=length));
            let due = match event {
                Event::Dropped => Due::Dropped { id },
                Event::ShutdownBegun => Due::Drains { id },
                _ => Due::Leaves { id },
            };
            self.plan(self.now.after(after), due);
        }
    }

    fn feed(&mut self, id: usize, event: Event) {
        let Some(flight) = self.flights.get_mut(&id) else {
            return;
        };
        let mut around = Around {
            rng: &mut self.rng,
            upstreams: &mut self.upstreams,
            lane: &self.lane_of[&id],
            left: flight.driver.deadline.since(self.now),
        };
        let told = {
            let auditor = &flight.driver.auditor;
            orders::Told::of(
                &event,
                auditor.is_undecided(),
                auditor.has_run_out(self.now),
            )
        };
        let open = flight.driver.auditor.open();
        self.tally.interrupt(&event, flight.driver.auditor.stage());
        let effects = flight
            .driver
            .feed(self.now, event, &mut self.cooling, &mut around);
        let plan = flight.driver.executor.plan();
        self.orders
            .learn(&flight.client, plan, open, told, self.now);
        self.tally.take(&effects);
        self.records.take(&flight.record, &effects, self.now);
        let ended = flight.driver.has_ended();
        assert_eq!(
            ended,
            matches!(effects.next, Next::End),
            "R-L1: ended and said so"
        );
        if ended {
            self.end(id);
            return;
        }
        let deadline = flight.driver.deadline;
        let last = deadline.after(TIMER_LATENESS_MAX);
        let timely = flight.driver.auditor.committed_at().is_some() || self.now <= last;
        assert!(
            timely || flight.driver.due.is_some(),
            "R-B4: alive after its deadline"
        );
        self.schedule(id);
    }

    fn end(&mut self, id: usize) {
        let flight = self.flights.remove(&id).unwrap();
        self.lane_of.remove(&id);
        let limit = flight
            .driver
            .deadline
            .after(TIMER_LATENESS_MAX)
            .after(STREAM_MAX);
        assert!(
            self.now <= limit,
            "R-B4: an operation outlived its deadline and its stream's limit"
        );
        let settled = flight.driver.auditor.settled.expect("R-S23: no settlement");
        let auditor = &flight.driver.auditor;
        self.tally.ended(auditor);
        let seen = Seen {
            settled,
            attempts: auditor.attempts,
            sends: auditor.sends,
            committed: auditor.committed_at(),
        };
        self.records.end(&flight.record, &seen, self.now);
        let written = auditor.committed_at();
        let last = flight
            .driver
            .deadline
            .after(TIMER_LATENESS_MAX)
            .after(ms(1));
        let answered_late = written.is_some_and(|at| at > last);
        assert!(
            !answered_late,
            "R-B4: first byte after the deadline: {settled:?}"
        );
    }

    /// R-B6, R-B7: what is shared is what the operations hold, and within its bounds.
    fn audit(&mut self) {
        if !self.ticket.is_multiple_of(16) && !self.queue.is_empty() {
            return;
        }
        self.records.collect();
        for lane in &self.lanes {
            let asleep = self.flights.values().filter(|flight| {
                Arc::ptr_eq(&flight.waiters, &lane.waiters) && flight.driver.auditor.is_waiting()
            });
            let (mut count, mut bytes) = (0, 0);
            for flight in asleep {
                count += 1;
                bytes += flight.driver.auditor.held_bytes();
            }
            assert_eq!(lane.waiters.waiting(), count, "R-B6: slots");
            assert_eq!(lane.waiters.waiting_bytes(), bytes, "R-B6: bytes");
            assert!(
                count <= u64::from(lane.spec.slots_max),
                "R-B6: too many sleepers"
            );
            assert!(bytes <= lane.spec.bytes_max, "R-B6: too many bytes asleep");
            self.tally.most_waiting = self.tally.most_waiting.max(count);
        }
        self.audit_limits();
        // A send is in flight from its dispatch point to its settlement, and nowhere else.
        let mut in_flight: BTreeMap<usize, u64> = BTreeMap::new();
        for flight in self.flights.values() {
            if let Some(begin) = flight.driver.auditor.sent() {
                let load = Arc::as_ptr(&flight.loads[begin.target]) as usize;
                *in_flight.entry(load).or_default() += 1;
            }
        }
        for load in self.lanes.iter().flat_map(|lane| &lane.loads) {
            let expected = in_flight.get(&(Arc::as_ptr(load) as usize));
            assert_eq!(
                load.sends(),
                expected.copied().unwrap_or(0),
                "sends in flight"
            );
        }
        let held: u64 = self
            .flights
            .values()
            .map(|f| f.driver.auditor.held_bytes())
            .sum();
        assert_eq!(self.account.held(), held, "R-B7: bytes held");
        assert!(held <= BUFFERED_MAX, "R-B7: too many bytes held");
    }

    /// The books of the local limits and the accounts agree, and no account is over its limit.
    fn audit_limits(&self) {
        for account in self.lanes.iter().flat_map(|lane| &lane.accounts).flatten() {
            let usage = account.usage(self.now);
            let books = self
                .cooling
                .limit_usage(Arc::as_ptr(account) as usize, self.now);
            assert_eq!(
                (usage.requests, usage.tokens, usage.concurrent),
                books,
                "a reservation leaked"
            );
            let rules = account.rules();
            let within = |used: u64, max: Option<u64>| max.is_none_or(|max| used <= max);
            assert!(within(usage.requests, rules.requests_per_minute));
            assert!(within(usage.tokens, rules.tokens_per_minute));
            assert!(within(usage.concurrent, rules.concurrent));
        }
    }

    fn close(self) -> Tally {
        assert!(
            self.flights.is_empty(),
            "liveness: {} operations never ended",
            self.flights.len()
        );
        assert_eq!(self.account.held(), 0, "R-B7: bytes leaked");
        for lane in &self.lanes {
            assert_eq!(
                (lane.waiters.waiting(), lane.waiters.waiting_bytes()),
                (0, 0),
                "R-B6: a slot leaked"
            );
        }
        for account in self.lanes.iter().flat_map(|lane| &lane.accounts).flatten() {
            assert_eq!(
                account.usage(self.now).concurrent,
                0,
                "a slot of a target leaked"
            );
        }
        self.tally.balance();
        self.records.close(self.tally.attempts, self.tally.sends);
        self.tally
    }
}

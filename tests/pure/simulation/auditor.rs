//! Watches one operation from outside and knows the requirements, not the code. It never asks the executor what it thinks:
//! it is told every event with its effects, keeps its own books and fails the test on the first line that is broken.
//!
//! Not here: what spans operations (slots, bytes, balances); see [`super::world`].

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use rondo::core::class::Class;
use rondo::core::decision::Round;
use rondo::core::outcome::{AttemptReport, Carrier, Outcome, Scope};
use rondo::core::settlement::{OperationOutcome, State};
use rondo::core::suppression::Suppression;
use rondo::core::time::MonoTime;
use rondo::executor::effect::{
    AttemptSettled, Begin, Deliver, Effects, FinalAnswer, Next, Note, OperationSettled,
    SecondRoundEnd, ThrottleHeaders, WaitEnd,
};
use rondo::executor::event::{Event, StreamEnd};
use rondo::executor::plan::Plan;
use rondo::policy::routing::Mode;

/// Delay of a target that gave none (R-S13).
const DEFAULT_DELAY: Duration = Duration::from_millis(250);
/// What an attempt needs after a wait (R-S10).
const ALLOWANCE: Duration = Duration::from_millis(250);

/// Not-before instants that certified answers have set for everybody, by the identity of the shared counter.
#[derive(Debug, Default)]
pub struct Cooling(BTreeMap<usize, MonoTime>);

impl Cooling {
    fn until(&self, key: usize) -> MonoTime {
        self.0.get(&key).copied().unwrap_or_default()
    }

    pub fn extend(&mut self, key: usize, until: MonoTime) {
        let entry = self.0.entry(key).or_default();
        *entry = (*entry).max(until);
    }

    fn end(&mut self, key: usize, seen: MonoTime) {
        if self.until(key) == seen {
            self.0.remove(&key);
        }
    }
}

#[derive(Debug, Clone)]
struct Open {
    begin: Begin,
    began: MonoTime,
    sent: bool,
    cooling_seen: MonoTime,
    report: Option<AttemptReport>,
}

#[derive(Debug, Clone)]
struct Past {
    begin: Begin,
    report: Option<AttemptReport>,
    slow: bool,
}

#[derive(Debug, Clone, Copy)]
struct Wait {
    began: MonoTime,
    until: MonoTime,
}

/// The books of one operation.
#[derive(Debug)]
pub struct Auditor {
    plan: Plan,
    keys: Vec<usize>,
    now: MonoTime,
    began: MonoTime,
    history: Vec<(MonoTime, Event, Next, Vec<Note>)>,
    open: Option<Open>,
    past: Vec<Past>,
    skipped: Vec<(Round, usize)>,
    own_not_before: Vec<Option<MonoTime>>,
    pub sends: u32,
    pub attempts: u32,
    pub settled_attempts: u32,
    wait: Option<Wait>,
    pub waits: Vec<(Duration, WaitEnd)>,
    gone: bool,
    draining: bool,
    committed: bool,
    committed_at: Option<MonoTime>,
    answered: bool,
    accepted: bool,
    pub suppressed: Option<Suppression>,
    pub exhausted: bool,
    pub second_round_end: Option<SecondRoundEnd>,
    pub settled: Option<OperationSettled>,
    pub throttle: Option<ThrottleHeaders>,
    has_wait: bool,
}

macro_rules! require {
    ($self:ident, $cond:expr, $($what:tt)+) => {
        if !$cond {
            $self.fail(&format!($($what)+));
        }
    };
}

impl Auditor {
    pub fn new(plan: &Plan, began: MonoTime) -> Auditor {
        let key =
            |candidate: &usize| Arc::as_ptr(&plan.route.targets[*candidate].cooldown) as usize;
        Auditor {
            keys: plan.candidates.iter().map(key).collect(),
            own_not_before: vec![None; plan.candidates.len()],
            plan: plan.clone(),
            now: began,
            began,
            history: Vec::new(),
            open: None,
            past: Vec::new(),
            skipped: Vec::new(),
            sends: 0,
            attempts: 0,
            settled_attempts: 0,
            wait: None,
            waits: Vec::new(),
            gone: false,
            draining: false,
            committed: false,
            committed_at: None,
            answered: false,
            accepted: false,
            suppressed: None,
            exhausted: false,
            second_round_end: None,
            settled: None,
            throttle: None,
            has_wait: false,
        }
    }

    /// The attempt that is open now.
    pub fn open(&self) -> Option<Begin> {
        self.open.as_ref().map(|open| open.begin)
    }

    /// Whether the operation sleeps now.
    pub fn is_waiting(&self) -> bool {
        self.wait.is_some()
    }

    /// When the client was given the first byte.
    pub fn committed_at(&self) -> Option<MonoTime> {
        self.committed_at
    }

    /// Bytes that the operation's body holds.
    pub fn held_bytes(&self) -> u64 {
        self.plan.held_bytes
    }

    fn fail(&self, what: &str) -> ! {
        let mut story = String::new();
        for (at, event, next, notes) in &self.history {
            let _ = writeln!(
                story,
                "  {:>9} us {event:?}\n      {notes:?}\n      {next:?}",
                at.as_micros()
            );
        }
        panic!(
            "{what}\nrouting {:?}\nbound {:?} caller_retry {} deadline {:?} began {:?}\n{story}",
            self.plan.route.routing,
            self.plan.binding,
            self.plan.caller_retry,
            self.plan.deadline,
            self.began
        );
    }

    /// Takes note of one step and checks it.
    pub fn observe(
        &mut self,
        now: MonoTime,
        event: &Event,
        effects: &Effects,
        cooling: &mut Cooling,
    ) {
        self.history.push((
            now,
            event.clone(),
            effects.next.clone(),
            effects.notes.clone(),
        ));
        require!(self, now >= self.now, "time went back");
        self.now = now;
        if self.settled.is_some() {
            let silent = effects.notes.is_empty() && matches!(effects.next, Next::End);
            require!(
                self,
                silent,
                "R-L1: something happened after the settlement"
            );
            return;
        }
        self.take_event(event, cooling);
        for note in &effects.notes {
            self.take_note(event, note, cooling);
        }
        self.take_next(event, &effects.next, cooling);
    }

    fn take_event(&mut self, event: &Event, cooling: &mut Cooling) {
        match event {
            Event::ClientGone | Event::Dropped => self.gone = true,
            Event::StreamEnded(StreamEnd::ClientGone) => self.gone = true,
            Event::ShutdownBegun => self.draining = true,
            Event::Committed => {
                require!(self, self.answered, "committed without an answer");
                self.committed = true;
                self.committed_at.get_or_insert(self.now);
            }
            Event::Outcome(report) => self.take_report(report, cooling),
            Event::Admitted
            | Event::SendBegun
            | Event::WaitElapsed
            | Event::DeadlinePassed
            | Event::StreamEnded(_) => {}
        }
    }

    fn take_report(&mut self, report: &AttemptReport, cooling: &mut Cooling) {
        let Some(open) = &mut self.open else {
            self.fail("an outcome without an attempt");
        };
        open.report = Some(report.clone());
        let (candidate, seen) = (open.begin.candidate, open.cooling_seen);
        let key = self.keys[candidate];
        match report.outcome {
            Outcome::Rejected(_) => {
                let until = self.now.after(report.pushback.unwrap_or(DEFAULT_DELAY));
                let own = &mut self.own_not_before[candidate];
                *own = (*own).max(Some(until));
                let bound = self.plan.route.routing.cooldown_max;
                if let Some(delay) = report.pushback.filter(|_| !bound.is_zero()) {
                    cooling.extend(key, self.now.after(delay.min(bound)));
                }
            }
            Outcome::Succeeded => cooling.end(key, seen),
            Outcome::NotDelivered | Outcome::Refused | Outcome::Ambiguous | Outcome::Partial => {}
        }
    }

    fn take_note(&mut self, event: &Event, note: &Note, cooling: &Cooling) {
        match note {
            Note::AttemptOpened(begin) => self.on_opened(*begin, cooling),
            Note::SendDispatched(begin) => self.on_sent(event, *begin),
            Note::AttemptSettled(settled) => self.on_attempt_settled(event, settled),
            Note::Skipped { target, round } => self.on_skipped(*target, *round, cooling),
            Note::Failover { from, to, .. } => {
                let last = self.past.last().map(|past| past.begin.target);
                require!(
                    self,
                    last == Some(*from) && from != to,
                    "a failover between the wrong targets"
                );
            }
            Note::WaitBegun => {
                require!(self, !self.has_wait, "R-B3: a second wait");
                self.has_wait = true;
            }
            Note::WaitEnded { how, waited } => self.on_wait_ended(event, *how, *waited),
            Note::SecondRoundEnded(end) => self.on_second_round_ended(event, *end),
            Note::Suppressed(reason) => self.on_suppressed(event, *reason, cooling),
            Note::RouteExhausted => {
                require!(self, !self.exhausted, "R-S21: exhausted twice");
                self.exhausted = true;
            }
            Note::OperationSettled(settled) => self.on_settled(settled),
            Note::Unexpected(event) => self.fail(&format!("an unexpected event: {event}")),
        }
    }

    fn round(&self) -> Round {
        if self.waits.iter().any(|(_, how)| *how == WaitEnd::Elapsed) {
            Round::Second
        } else {
            Round::First
        }
    }

    fn reach(&self) -> usize {
        let alone =
            self.plan.binding.is_some() || self.plan.route.routing.mode == Mode::PrimaryOnly;
        if alone {
            self.plan.candidates.len().min(1)
        } else {
            self.plan.candidates.len()
        }
    }

    fn is_cooling(&self, candidate: usize, cooling: &Cooling) -> bool {
        self.own_not_before[candidate].is_some_and(|instant| instant > self.now)
            || cooling.until(self.keys[candidate]) > self.now
    }

    fn tried(&self, round: Round, candidate: usize) -> bool {
        self.past
            .iter()
            .any(|p| p.begin.round == round && p.begin.candidate == candidate)
    }

    fn on_opened(&mut self, begin: Begin, cooling: &Cooling) {
        require!(
            self,
            self.open.is_none(),
            "R-S8: an attempt was begun while another is open"
        );
        require!(
            self,
            self.wait.is_none(),
            "an attempt was begun while waiting"
        );
        require!(
            self,
            !self.gone,
            "R-B8: an attempt was begun after the client left"
        );
        require!(
            self,
            !self.answered,
            "R-B8: an attempt was begun after an answer"
        );
        self.attempts += 1;
        require!(
            self,
            begin.attempt_no == self.attempts,
            "attempts are numbered without gaps"
        );
        let round = self.round();
        require!(
            self,
            begin.round == round,
            "R-K3: round {:?} instead of {round:?}",
            begin.round
        );
        require!(
            self,
            begin.candidate < self.reach(),
            "R-F6, R-F8: a target out of reach"
        );
        let target = self.plan.candidates[begin.candidate];
        require!(self, begin.target == target, "R-K3: the wrong target");
        require!(
            self,
            !self.is_cooling(begin.candidate, cooling),
            "R-S12, R-S16: a cooling target was begun"
        );
        self.check_permission(round);
        if begin.retry_index == 0 {
            self.check_order(begin, round);
        } else {
            self.check_sticky(begin, round);
        }
        self.open = Some(Open {
            begin,
            began: self.now,
            sent: false,
            cooling_seen: cooling.until(self.keys[begin.candidate]),
            report: None,
        });
    }

    /// R-F1, R-F2, R-F4, R-F7, R-S5, R-S19: what the last attempt allows.
    fn check_permission(&self, round: Round) {
        for past in &self.past {
            let Some(report) = &past.report else {
                self.fail("an attempt after one that has no outcome");
            };
            if past.begin.round != round {
                let certified = matches!(report.outcome, Outcome::Rejected(_));
                require!(self, certified, "R-S5: round 2 after something uncertified");
                continue;
            }
            require!(
                self,
                self.moves_on(report),
                "R-F: no send may follow {:?}",
                report.outcome
            );
            require!(self, !past.slow, "R-F4: a send after a slow failure");
            let certified = matches!(report.outcome, Outcome::Rejected(_));
            require!(
                self,
                round == Round::First || certified,
                "R-S19: round 2 went on"
            );
        }
    }

    fn moves_on(&self, report: &AttemptReport) -> bool {
        let fallback = &self.plan.route.routing.fallback;
        let status = report.status.unwrap_or(0);
        match report.outcome {
            Outcome::NotDelivered | Outcome::Rejected(_) => true,
            Outcome::Ambiguous => fallback.transport_error,
            Outcome::Partial | Outcome::Succeeded => false,
            Outcome::Refused => {
                let listed = fallback.statuses.contains(&status);
                let terminal = matches!(
                    report.class,
                    Class::Auth | Class::Config | Class::ContextOverflow | Class::ContentPolicy
                );
                let in_stream = report.carrier == Carrier::Stream;
                let pushback = matches!(report.class, Class::Throttle | Class::Overload);
                let throttle = status == 429 || status == 529 || (in_stream && pushback);
                let server = (500..=599).contains(&status) || in_stream;
                listed
                    || (!terminal && throttle && fallback.http_429)
                    || (!terminal && !throttle && server && fallback.http_5xx)
            }
        }
    }

    fn check_order(&self, begin: Begin, round: Round) {
        require!(
            self,
            !self.tried(round, begin.candidate),
            "R-B2: a target twice in one round"
        );
        let before = self
            .past
            .iter()
            .filter(|p| p.begin.round == round && p.begin.retry_index == 0);
        let count = u32::try_from(before.count()).unwrap();
        let max = self.plan.route.routing.attempts_max;
        require!(
            self,
            count < max,
            "R-B2: {} attempts in a round of {max}",
            count + 1
        );
        for earlier in 0..begin.candidate {
            let passed = self.tried(round, earlier) || self.skipped.contains(&(round, earlier));
            require!(
                self,
                passed,
                "R-S16: a target was passed over without a word"
            );
        }
        let ordered = self
            .past
            .iter()
            .all(|p| p.begin.round != round || p.begin.candidate < begin.candidate);
        require!(self, ordered, "R-S16: out of order");
    }

    fn check_sticky(&self, begin: Begin, round: Round) {
        require!(self, round == Round::First, "R-K4: a sticky try in round 2");
        require!(
            self,
            begin.candidate == 0,
            "R-K1: a sticky try of another candidate"
        );
        require!(
            self,
            begin.retry_index < self.plan.route.routing.sticky_tries,
            "R-K1: too many sticky tries"
        );
        let Some(last) = self.past.last() else {
            self.fail("R-K2: a sticky try that was planned up front");
        };
        let follows = last.begin.candidate == 0 && last.begin.retry_index + 1 == begin.retry_index;
        require!(self, follows, "R-K3: retry_index does not follow");
        let report = last.report.as_ref().unwrap();
        let throttle = matches!(report.class, Class::Throttle | Class::Overload);
        let certified = matches!(report.outcome, Outcome::Rejected(_));
        require!(
            self,
            !throttle && !certified,
            "R-K2: a sticky try after a throttle"
        );
        require!(
            self,
            report.scope == Scope::Candidate,
            "R-K2: a sticky try after a wider failure"
        );
    }

    fn on_sent(&mut self, event: &Event, begin: Begin) {
        require!(
            self,
            matches!(event, Event::SendBegun),
            "R-B8: a send elsewhere than the dispatch point"
        );
        require!(self, !self.gone, "R-B8: a send after the client left");
        require!(self, !self.committed, "R-B8: a send after commitment");
        require!(
            self,
            self.now < self.plan.deadline,
            "R-B4: a send after the deadline"
        );
        require!(
            self,
            !self.draining || self.sends == 0,
            "R-B8: another send while draining"
        );
        let bound = self.plan.binding.is_some();
        require!(
            self,
            !bound || begin.candidate == 0,
            "R-F8: a bound operation changed target"
        );
        let routing = &self.plan.route.routing;
        let max = routing
            .tries_max
            .map_or(routing.sends_max, |tries| tries.min(routing.sends_max));
        self.sends += 1;
        require!(
            self,
            self.sends <= max,
            "R-B1: {} sends of {max}",
            self.sends
        );
        match &mut self.open {
            Some(open) if open.begin == begin && !open.sent => open.sent = true,
            _ => self.fail("a send without its attempt"),
        }
    }

    fn on_skipped(&mut self, target: usize, round: Round, cooling: &Cooling) {
        let Some(candidate) = self.plan.candidates.iter().position(|t| *t == target) else {
            self.fail("an unknown target was skipped");
        };
        require!(self, round == self.round(), "skipped in the wrong round");
        require!(
            self,
            self.is_cooling(candidate, cooling),
            "R-S16: a free target was skipped"
        );
        let seen = self.tried(round, candidate) || self.skipped.contains(&(round, candidate));
        require!(self, !seen, "R-B2: skipped or tried before");
        self.skipped.push((round, candidate));
    }

    fn on_attempt_settled(&mut self, event: &Event, settled: &AttemptSettled) {
        let Some(open) = self.open.take() else {
            self.fail("R-L1: an attempt was settled twice");
        };
        require!(
            self,
            open.begin == settled.begin,
            "another attempt was settled"
        );
        require!(
            self,
            open.sent == settled.sent,
            "R-S23: sent or not is wrong"
        );
        self.settled_attempts += 1;
        let expected = self.expected_state(event, &open);
        require!(
            self,
            settled.state == expected,
            "R-L1: settled {:?} instead of {expected:?}",
            settled.state
        );
        let limit = self.plan.route.routing.fail_within;
        let late = limit.is_some_and(|limit| self.now.since(open.began) > limit);
        let report = if self.gone { None } else { open.report };
        let report = match (report, event) {
            (None, Event::DeadlinePassed) if open.sent => settled.report.clone(),
            (report, _) => report,
        };
        // What ended before it was sent has not failed, late or early.
        let slow = late && report.is_some();
        self.past.push(Past {
            begin: open.begin,
            report,
            slow,
        });
    }

    fn expected_state(&self, event: &Event, open: &Open) -> State {
        if self.gone {
            return State::Cancelled;
        }
        match event {
            Event::DeadlinePassed => State::TimedOut,
            Event::StreamEnded(StreamEnd::Complete) => State::Succeeded,
            Event::StreamEnded(StreamEnd::UpstreamBroke) => State::Failed,
            Event::StreamEnded(StreamEnd::UpstreamTimedOut) => State::TimedOut,
            Event::SendBegun if self.now >= self.plan.deadline => State::TimedOut,
            Event::SendBegun => State::Failed,
            _ => match open.report.as_ref().map(|r| (r.outcome, r.class)) {
                Some((Outcome::Rejected(_), _)) => State::Rejected,
                Some((Outcome::Refused, _)) => State::Refused,
                Some((Outcome::Ambiguous, Class::Timeout)) => State::TimedOut,
                Some((Outcome::Ambiguous, _)) => State::Ambiguous,
                Some((Outcome::NotDelivered | Outcome::Partial, _)) => State::Failed,
                Some((Outcome::Succeeded, _)) | None => State::Pending,
            },
        }
    }

    /// The instant of R-S13, from what the answers said.
    fn earliest(&self, cooling: &Cooling) -> MonoTime {
        let of = |candidate: usize| {
            let own = self.own_not_before[candidate];
            let known = own.max(Some(cooling.until(self.keys[candidate])));
            match known.filter(|instant| *instant > self.now) {
                Some(instant) => instant,
                None if own.is_some() => self.now,
                None => self.now.after(DEFAULT_DELAY),
            }
        };
        (0..self.reach()).map(of).min().unwrap_or(self.now)
    }

    fn on_wait(&mut self, until: MonoTime, cooling: &Cooling) {
        let routing = &self.plan.route.routing;
        let Some(exhaustion) = routing.exhaustion.filter(|e| e.rounds_max == 2) else {
            self.fail("R-S1: a wait although it is off");
        };
        require!(
            self,
            self.round() == Round::First,
            "R-B3: a wait after round 2"
        );
        let reason = self.objections(cooling);
        require!(
            self,
            reason.is_none(),
            "R-S11: a wait in spite of {reason:?}"
        );
        let floor = self.earliest(cooling);
        require!(
            self,
            until >= floor,
            "R-S14: wakes before the provider's instant"
        );
        let delay = floor.since(self.now);
        require!(
            self,
            delay <= exhaustion.wait_max,
            "R-S13: the delay is longer than max_wait_ms"
        );
        let width = (delay / 4)
            .max(Duration::from_millis(50))
            .min(Duration::from_millis(500));
        require!(
            self,
            until.since(floor) <= width,
            "R-S14: jitter is wider than {width:?}"
        );
        require!(
            self,
            until.after(ALLOWANCE) <= self.plan.deadline,
            "R-S10: the wait does not fit"
        );
        self.wait = Some(Wait {
            began: self.now,
            until,
        });
    }

    /// The first reason of R-S11 that holds, in the documented order, but for the slot.
    fn objections(&self, cooling: &Cooling) -> Option<Suppression> {
        let holds = |reason: &Suppression| self.holds(*reason, cooling);
        Suppression::ALL.iter().copied().find(holds)
    }

    fn holds(&self, reason: Suppression, cooling: &Cooling) -> bool {
        let routing = &self.plan.route.routing;
        let any = |test: &dyn Fn(&AttemptReport) -> bool| {
            self.past
                .iter()
                .filter_map(|past| past.report.as_ref())
                .any(test)
        };
        let uncertified = |report: &AttemptReport| !matches!(report.outcome, Outcome::Rejected(_));
        let delay = self.earliest(cooling).since(self.now);
        match reason {
            Suppression::Committed => self.committed,
            Suppression::OutputSeen => any(&|r| r.outcome == Outcome::Partial),
            Suppression::ClientGone => self.gone,
            Suppression::Shutdown => self.draining,
            Suppression::Ambiguous => any(&|r| {
                let named = matches!(
                    r.class,
                    Class::Malformed | Class::QuotaHard | Class::Auth | Class::Config
                );
                r.outcome == Outcome::Ambiguous && !named
            }),
            Suppression::Malformed => any(&|r| uncertified(r) && r.class == Class::Malformed),
            Suppression::HardQuota => any(&|r| uncertified(r) && r.class == Class::QuotaHard),
            Suppression::AuthConfig => {
                any(&|r| uncertified(r) && matches!(r.class, Class::Auth | Class::Config))
            }
            Suppression::NotThrottled => any(&uncertified),
            Suppression::StateBound => self.plan.binding.is_some(),
            Suppression::SlowFailure => self.past.last().is_some_and(|past| past.slow),
            Suppression::CallerRetry => self.plan.caller_retry,
            Suppression::Cleanup => self.open.is_some(),
            Suppression::SendBudget => {
                let max = routing.tries_max.unwrap_or(u32::MAX).min(routing.sends_max);
                self.sends >= max
            }
            Suppression::WaitTooLong => {
                delay > routing.exhaustion.map(|e| e.wait_max).unwrap_or_default()
            }
            // The jitter decides in its width; here only what must and must not fit.
            Suppression::Deadline => delay + ALLOWANCE > self.plan.deadline.since(self.now),
            Suppression::AdmissionFull => false,
        }
    }

    fn on_suppressed(&mut self, event: &Event, reason: Suppression, cooling: &Cooling) {
        require!(
            self,
            self.suppressed.is_none(),
            "R-S11: more than one reason"
        );
        require!(
            self,
            !self.has_wait,
            "R-S11: suppressed after the wait had begun"
        );
        let configured = self
            .plan
            .route
            .routing
            .exhaustion
            .is_some_and(|e| e.rounds_max == 2);
        require!(self, configured, "R-S1: a suppression although it is off");
        self.suppressed = Some(reason);
        let expected = self.objections(cooling);
        let fits = match (expected, reason) {
            (Some(expected), reason) if expected == reason => true,
            // An event of the deadline is the deadline, whatever the clock says.
            (None, Suppression::Deadline) => {
                let delay = self.earliest(cooling).since(self.now);
                let left = self.plan.deadline.since(self.now);
                let widest = (delay / 4)
                    .max(Duration::from_millis(50))
                    .min(Duration::from_millis(500));
                matches!(event, Event::DeadlinePassed) || delay + widest + ALLOWANCE >= left
            }
            (None, Suppression::AdmissionFull) => {
                let room = &self.plan.route.waiters;
                room.waiting() > 0 || self.plan.held_bytes > 0
            }
            _ => false,
        };
        require!(
            self,
            fits,
            "R-S11: suppressed by {reason:?}, but {expected:?} holds first"
        );
    }

    fn on_wait_ended(&mut self, event: &Event, how: WaitEnd, waited: Duration) {
        let Some(wait) = self.wait.take() else {
            self.fail("a wait ended twice");
        };
        require!(
            self,
            waited == self.now.since(wait.began),
            "R-S21: the wait's duration is wrong"
        );
        let expected = match event {
            Event::WaitElapsed => WaitEnd::Elapsed,
            Event::ClientGone => WaitEnd::ClientGone,
            Event::ShutdownBegun => WaitEnd::Shutdown,
            Event::DeadlinePassed => WaitEnd::Deadline,
            Event::Dropped => WaitEnd::Dropped,
            _ => self.fail("R-S15: a wait was ended by something else"),
        };
        require!(self, how == expected, "R-S15: the wait ended as {how:?}");
        let early = how == WaitEnd::Elapsed && self.now < wait.until;
        require!(self, !early, "R-S14: woken early");
        self.waits.push((waited, how));
    }

    fn on_second_round_ended(&mut self, event: &Event, end: SecondRoundEnd) {
        require!(
            self,
            self.round() == Round::Second,
            "a second round that never began has ended"
        );
        require!(
            self,
            self.second_round_end.is_none(),
            "R-S22: the second round ended twice"
        );
        self.second_round_end = Some(end);
        let accepted = matches!(event, Event::Outcome(r) if r.outcome == Outcome::Succeeded);
        let all_rejected = self.past.iter().all(|past| {
            past.begin.round == Round::First
                || past
                    .report
                    .as_ref()
                    .is_some_and(|r| matches!(r.outcome, Outcome::Rejected(_)))
        });
        let expected = if accepted {
            Some(SecondRoundEnd::Success)
        } else {
            None
        };
        let fits = match end {
            SecondRoundEnd::Success => expected.is_some(),
            SecondRoundEnd::Exhausted => expected.is_none() && all_rejected && !self.gone,
            SecondRoundEnd::Other => expected.is_none(),
        };
        require!(self, fits, "R-S22: the second round ended as {end:?}");
    }

    fn on_settled(&mut self, settled: &OperationSettled) {
        require!(self, self.settled.is_none(), "R-L1: settled twice");
        require!(
            self,
            self.open.is_none(),
            "R-L1: settled with an open attempt"
        );
        require!(self, self.wait.is_none(), "settled while waiting");
        require!(self, settled.sends == self.sends, "R-S23: sends");
        require!(
            self,
            settled.rounds == self.round().number(),
            "R-S23: rounds"
        );
        let waited: Duration = self.waits.iter().map(|(waited, _)| *waited).sum();
        require!(self, settled.waited == waited, "R-S21: wait time");
        require!(
            self,
            settled.state != State::Pending,
            "R-L1: pending is not terminal"
        );
        let cancelled = settled.outcome == OperationOutcome::Cancelled;
        require!(
            self,
            cancelled == self.gone,
            "R-D4: cancelled and gone go together"
        );
        self.settled = Some(*settled);
        self.check_round_account();
    }

    /// With the round configured, each operation had a success in round 1, one suppression or one wait.
    fn check_round_account(&self) {
        let configured = self
            .plan
            .route
            .routing
            .exhaustion
            .is_some_and(|e| e.rounds_max == 2);
        if !configured || self.plan.candidates.is_empty() {
            return;
        }
        let first_success = self.accepted && self.round() == Round::First;
        let count =
            u8::from(first_success) + u8::from(self.suppressed.is_some()) + u8::from(self.has_wait);
        require!(
            self,
            count == 1,
            "R-S11, R-S21: {count} accounts of the second round"
        );
        let elapsed = self.round() == Round::Second;
        require!(
            self,
            elapsed == self.second_round_end.is_some(),
            "R-S22: the second round's end"
        );
    }

    fn take_next(&mut self, event: &Event, next: &Next, cooling: &Cooling) {
        match next {
            Next::Begin(begin) => {
                require!(
                    self,
                    self.open() == Some(*begin),
                    "R-S23: begun but not opened"
                );
            }
            Next::Send => {
                let sent = self.open.as_ref().is_some_and(|open| open.sent);
                require!(
                    self,
                    matches!(event, Event::SendBegun) && sent,
                    "R-B8: an unrecorded send"
                );
            }
            Next::Wait(until) => match self.wait {
                Some(wait) => require!(self, wait.until == *until, "the wait was moved"),
                None => {
                    require!(self, self.has_wait, "R-S21: an unrecorded wait");
                    self.on_wait(*until, cooling);
                }
            },
            Next::Deliver(deliver) => self.on_deliver(deliver, cooling),
            Next::Answer(answer) => {
                self.on_answer();
                self.check_answer(event, answer, cooling);
            }
            Next::Continue => {}
            Next::End => require!(
                self,
                self.settled.is_some(),
                "R-S23: ended without a settlement"
            ),
        }
    }

    fn on_answer(&mut self) {
        require!(self, !self.answered, "answered twice");
        require!(self, !self.gone, "R-D4: an answer to nobody");
        self.answered = true;
    }

    fn on_deliver(&mut self, deliver: &Deliver, cooling: &Cooling) {
        self.on_answer();
        if let Some(open) = &self.open {
            let good = open
                .report
                .as_ref()
                .is_some_and(|r| r.outcome == Outcome::Succeeded);
            require!(
                self,
                good,
                "an open attempt is delivered that is no success"
            );
            self.accepted = true;
            return;
        }
        let Some(last) = self.past.last().and_then(|past| past.report.clone()) else {
            self.fail("nothing is held that could be delivered");
        };
        require!(
            self,
            last.carrier == Carrier::Status,
            "an answer inside a stream is not delivered"
        );
        let told = self.told().and_then(|past| past.report.clone());
        let same =
            told.is_some_and(|told| told.outcome == last.outcome && told.status == last.status);
        require!(self, same, "R-D1: the held answer is not the one to tell");
        match (deliver, last.outcome) {
            (Deliver::Throttled(headers), Outcome::Rejected(_)) => {
                self.check_headers(headers, cooling)
            }
            (Deliver::AsIs, Outcome::Refused) => {}
            _ => self.fail("R-S20: delivered in the wrong form"),
        }
    }

    /// The failure of R-D1; a slow one is told itself (R-F4).
    fn told(&self) -> Option<&Past> {
        let last = self.past.last()?;
        if last.slow && last.report.is_some() {
            return Some(last);
        }
        let ranked = self.past.iter().filter(|past| past.report.is_some());
        ranked.max_by_key(|past| past.report.as_ref().map_or(0, rank))
    }

    fn check_answer(&mut self, event: &Event, answer: &FinalAnswer, cooling: &Cooling) {
        let told = self.told().and_then(|past| past.report.clone());
        let late = self.now >= self.plan.deadline || matches!(event, Event::DeadlinePassed);
        let fits = match answer {
            FinalAnswer::Throttled(reply, headers) => {
                self.check_headers(headers, cooling);
                let same = told.as_ref().is_some_and(|r| {
                    matches!(r.outcome, Outcome::Rejected(_)) && r.reply == *reply
                });
                let remembered = reply.is_none()
                    && !self.skipped.is_empty()
                    && told
                        .as_ref()
                        .is_none_or(|r| r.outcome == Outcome::NotDelivered);
                same || remembered
            }
            FinalAnswer::Upstream(reply) => told
                .as_ref()
                .is_some_and(|r| r.outcome == Outcome::Refused && r.reply.as_ref() == Some(reply)),
            FinalAnswer::Unreachable => {
                let slow = self.past.last().is_some_and(|past| past.slow);
                told.is_some_and(|r| r.outcome == Outcome::NotDelivered)
                    && (slow || self.skipped.is_empty())
            }
            FinalAnswer::Ambiguous => told.is_some_and(|r| {
                matches!(r.outcome, Outcome::Ambiguous | Outcome::Partial)
                    && r.class != Class::Timeout
            }),
            FinalAnswer::TimedOut => {
                told.is_some_and(|r| r.outcome == Outcome::Ambiguous && r.class == Class::Timeout)
            }
            FinalAnswer::Deadline => late,
            FinalAnswer::NoCandidate => self.plan.candidates.is_empty(),
            FinalAnswer::ShuttingDown => self.draining && told.is_none() && !self.has_wait,
            FinalAnswer::Internal => false,
        };
        require!(self, fits, "R-D1: the wrong answer");
    }

    fn check_headers(&mut self, headers: &ThrottleHeaders, cooling: &Cooling) {
        require!(
            self,
            self.exhausted,
            "R-S21: a final throttle that is not counted"
        );
        let of = |candidate: usize| {
            let own = self.own_not_before[candidate];
            let shared = Some(cooling.until(self.keys[candidate])).filter(|i| *i > self.now);
            own.max(shared).map(|instant| instant.since(self.now))
        };
        let expected = (0..self.reach()).filter_map(of).min().unwrap_or_default();
        require!(
            self,
            headers.retry_after == expected,
            "R-S20: retry-after {:?} instead of {expected:?}",
            headers.retry_after
        );
        let seconds = expected.as_micros().div_ceil(1_000_000).max(1);
        require!(
            self,
            u128::from(headers.seconds()) == seconds,
            "R-S20: whole seconds, rounded up"
        );
        require!(
            self,
            headers.should_retry == self.plan.caller_owns_retries,
            "R-P1: x-should-retry"
        );
        self.throttle = Some(*headers);
    }
}

/// R-D1: ambiguous > terminal > refused > rejected > not_delivered.
fn rank(report: &AttemptReport) -> u8 {
    let terminal = matches!(
        report.class,
        Class::Auth | Class::Config | Class::ContextOverflow | Class::ContentPolicy
    ) || report
        .status
        .is_some_and(|s| (400..500).contains(&s) && s != 429);
    match report.outcome {
        Outcome::Ambiguous | Outcome::Partial => 5,
        Outcome::Refused if terminal => 4,
        Outcome::Refused => 3,
        Outcome::Rejected(_) => 2,
        Outcome::NotDelivered => 1,
        Outcome::Succeeded => 0,
    }
}

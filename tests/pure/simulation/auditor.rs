//! Watches one operation from outside and knows the requirements, not the code. It never asks the executor what it thinks:
//! it is told every event with its effects, keeps its own books and fails the test on the first line that is broken.
//!
//! Not here: what spans operations (slots, bytes, balances); see [`super::world`].

macro_rules! require {
    ($self:ident, $cond:expr, $($what:tt)+) => {
        if !$cond {
            $self.fail(&format!($($what)+));
        }
    };
}

mod answers;
mod attempts;
mod budget;
mod keys;
mod retries;
mod rounds;
mod shares;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use rondo::core::decision::{Decision, Round};
use rondo::core::outcome::{AttemptReport, Outcome};
use rondo::core::settlement::{OperationOutcome, State};
use rondo::core::suppression::Suppression;
use rondo::core::time::MonoTime;
use rondo::executor::effect::{
    Begin, Effects, FinalAnswer, Next, Note, OperationSettled, SecondRoundEnd, ThrottleHeaders,
    WaitEnd,
};
use rondo::executor::event::{Event, StreamEnd};
use rondo::executor::plan::Plan;
use rondo::policy::route::Target;
use rondo::policy::routing::Mode;

use keys::KeyBooks;
pub use keys::{Cooling, Unfit};
use retries::Counted;
use shares::Taken;

/// Delay of a target that gave none (R-S13).
const DEFAULT_DELAY: Duration = Duration::from_millis(250);
/// What an attempt needs after a wait (R-S10).
const ALLOWANCE: Duration = Duration::from_millis(250);

#[derive(Debug, Clone)]
struct Open {
    begin: Begin,
    began: MonoTime,
    sent: bool,
    cooling_seen: MonoTime,
    failing_seen: MonoTime,
    taken: Taken,
    own_retry: bool,
    next_key: bool,
    report: Option<AttemptReport>,
}

#[derive(Debug, Clone)]
struct Past {
    begin: Begin,
    report: Option<AttemptReport>,
    slow: bool,
    /// Whether it came after a pause, or with the next key of a pool.
    own_retry: bool,
    next_key: bool,
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
    /// All keys of each target of the route. A target may stand in several places, and is the same in all.
    keys: Vec<Vec<KeyBooks>>,
    /// The keys that each candidate may use, in order.
    order: Vec<Vec<usize>>,
    now: MonoTime,
    began: MonoTime,
    history: Vec<(MonoTime, Event, Next, Vec<Note>)>,
    open: Option<Open>,
    past: Vec<Past>,
    skipped: Vec<(Round, usize, Unfit)>,
    /// What is skipped in this step stands before this place.
    skips_before: usize,
    /// Whose turn came after the others', since another operation tried them first.
    deferred: BTreeSet<(Round, usize)>,
    counted: BTreeMap<usize, Counted>,
    spent: BTreeSet<usize>,
    pause: Option<Wait>,
    paused: Duration,
    /// Whether the last sleep was a pause that ended by the clock.
    paused_before: bool,
    pub sends: u32,
    pub attempts: u32,
    pub settled_attempts: u32,
    wait: Option<Wait>,
    pub waits: Vec<(Duration, WaitEnd)>,
    gone: bool,
    /// When the open attempt, or its answer, runs out of time.
    pub watchdog: Option<MonoTime>,
    /// Whether the answer that is given says that time ran out.
    told_late: bool,
    /// Whether time had run out when the client left (R-L4).
    gone_late: bool,
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

impl Auditor {
    pub fn new(plan: &Plan, began: MonoTime) -> Auditor {
        let pool = |target: &Target| {
            let keys = target.keys.iter();
            let books = keys.map(|key| KeyBooks {
                cooldown: Arc::as_ptr(&key.cooldown) as usize,
                aside: Arc::as_ptr(&key.aside) as usize,
                named: key.name.is_some(),
                told: None,
                assumed: None,
            });
            books.collect::<Vec<_>>()
        };
        let keys = plan.route.targets.iter().map(pool).collect();
        // R-F8: a bound operation has the first key alone.
        let most = plan.binding.map_or(usize::MAX, |_| 1);
        let order = plan.candidates.iter();
        let order = order.map(|c| c.keys.iter().copied().take(most).collect());
        let order = order.collect();
        Auditor {
            keys,
            order,
            counted: BTreeMap::new(),
            spent: BTreeSet::new(),
            pause: None,
            paused: Duration::ZERO,
            paused_before: false,
            plan: plan.clone(),
            now: began,
            began,
            history: Vec::new(),
            open: None,
            past: Vec::new(),
            skipped: Vec::new(),
            skips_before: usize::MAX,
            deferred: BTreeSet::new(),
            sends: 0,
            attempts: 0,
            settled_attempts: 0,
            wait: None,
            waits: Vec::new(),
            gone: false,
            watchdog: None,
            told_late: false,
            gone_late: false,
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

    /// The attempt whose send was dispatched and is not settled.
    pub fn sent(&self) -> Option<Begin> {
        let open = self.open.as_ref().filter(|open| open.sent);
        open.map(|open| open.begin)
    }

    /// Whether a send is out of which nothing is known yet.
    pub fn is_undecided(&self) -> bool {
        let mut open = self.open.iter();
        open.any(|open| open.sent && open.report.is_none())
    }

    /// Where the operation is, for counting what was interrupted.
    pub fn stage(&self) -> &'static str {
        match (&self.open, self.wait, self.pause) {
            (_, Some(_), _) => "wait",
            (_, _, Some(_)) => "pause",
            _ if self.committed => "streaming",
            _ if self.answered => "answering",
            (Some(open), ..) if open.sent => "sent",
            (Some(_), ..) => "prepared",
            (None, ..) => "begun",
        }
    }

    /// Whether the client left when its time had run out already (R-L4).
    pub fn left_late(&self) -> bool {
        self.gone && self.gone_late
    }

    /// Why candidates were skipped.
    pub fn skips(&self) -> impl Iterator<Item = Unfit> + use<'_> {
        self.skipped.iter().map(|(_, _, unfit)| *unfit)
    }

    /// How many came after the others since another operation tried them first.
    pub fn deferrals(&self) -> usize {
        self.deferred.len()
    }

    /// Whether a send that is out, or an answer that is being passed on, has run out of time: whoever leaves then has not ended it (R-L4).
    pub fn has_run_out(&self, now: MonoTime) -> bool {
        let run_out = self.watchdog.is_some_and(|due| now >= due);
        let over = now >= self.plan.deadline && self.is_undecided();
        self.open.as_ref().is_some_and(|open| open.sent) && (run_out || over)
    }

    /// Whether the operation sleeps now.
    pub fn is_waiting(&self) -> bool {
        self.wait.is_some() || self.pause.is_some()
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
        let begun = effects.notes.iter().find_map(|note| match note {
            Note::AttemptOpened(begin) => Some(begin.candidate),
            _ => None,
        });
        self.skips_before = begun.unwrap_or(usize::MAX);
        for note in &effects.notes {
            self.take_note(event, note, cooling);
        }
        self.take_next(event, &effects.next, cooling);
        self.check_decision(&effects.notes);
    }

    /// A decision to go on and the attempt that follows are one step, so that the counters of both agree.
    fn check_decision(&self, notes: &[Note]) {
        let goes_on = notes.iter().any(|note| {
            let Note::AttemptSettled(settled) = note else {
                return false;
            };
            matches!(
                settled.decision,
                Decision::NextTarget | Decision::SameTarget | Decision::NextKey
            )
        });
        let begun = notes
            .iter()
            .any(|note| matches!(note, Note::AttemptOpened(_)));
        require!(
            self,
            !goes_on || begun,
            "R-S21: decided to go on, but nothing was begun"
        );
        let retries = notes.iter().any(|note| {
            matches!(note, Note::AttemptSettled(s) if matches!(s.decision, Decision::Retry(_)))
        });
        require!(
            self,
            retries
                == notes
                    .iter()
                    .any(|n| matches!(n, Note::RetryScheduled { .. })),
            "R-P7: a retry and its note go together"
        );
    }

    fn take_event(&mut self, event: &Event, cooling: &mut Cooling) {
        self.wake(event);
        match event {
            Event::ClientGone | Event::Dropped | Event::StreamEnded(StreamEnd::ClientGone) => {
                self.gone = true;
                self.gone_late = self.is_late();
                if self.is_undecided() && self.has_run_out(self.now) {
                    self.count_failure(cooling);
                }
            }
            Event::ShutdownBegun => self.draining = true,
            Event::Committed => {
                require!(self, self.answered, "committed without an answer");
                self.committed = true;
                self.committed_at.get_or_insert(self.now);
            }
            Event::Outcome(report) => self.take_report(report, cooling),
            Event::Admitted => self.deposit(cooling),
            Event::SendBegun
            | Event::WaitElapsed
            | Event::DeadlinePassed
            | Event::StreamEnded(_) => {}
        }
    }

    /// Whether the operation has run out of time by now: what is being sent or answered, not what sleeps.
    fn is_late(&self) -> bool {
        let run_out = self.watchdog.is_some_and(|due| self.now >= due);
        let over = self.now >= self.plan.deadline;
        match &self.open {
            Some(_) if self.accepted => run_out,
            Some(_) => run_out || over,
            None if self.answered => self.told_late,
            None => over && self.attempts == 0 && !self.is_waiting(),
        }
    }

    fn take_report(&mut self, report: &AttemptReport, cooling: &mut Cooling) {
        let Some(open) = &mut self.open else {
            self.fail("an outcome without an attempt");
        };
        open.report = Some(report.clone());
        let (begin, seen, failing) = (open.begin, open.cooling_seen, open.failing_seen);
        match report.outcome {
            Outcome::Succeeded => {
                let key = self.keys[begin.target][begin.key].cooldown;
                cooling.end(key, seen);
                cooling.recover(key, failing);
            }
            Outcome::Rejected(_)
            | Outcome::NotDelivered
            | Outcome::Refused
            | Outcome::Ambiguous
            | Outcome::Partial => {
                self.count_curable(&begin, report);
                self.take_of_key(begin.target, begin.key, report, cooling);
            }
        }
        let mut open = self.open.take().unwrap();
        self.take_end(&mut open, report, cooling);
        self.open = Some(open);
    }

    fn take_note(&mut self, event: &Event, note: &Note, cooling: &Cooling) {
        match note {
            Note::AttemptOpened(begin) => self.on_opened(*begin, cooling),
            Note::SendDispatched(begin) => self.on_sent(event, *begin),
            Note::AttemptSettled(settled) => self.on_attempt_settled(event, settled, cooling),
            Note::Skipped {
                candidate,
                target,
                round,
            } => self.on_skipped(*candidate, *target, *round, cooling),
            Note::Failover { from, to, .. } => {
                let last = self.past.last().map(|past| past.begin.target);
                require!(
                    self,
                    last == Some(*from) && from != to,
                    "a failover between the wrong targets"
                );
            }
            Note::RetryScheduled { failed, pause, .. } => {
                self.on_retry_scheduled(*failed, *pause, cooling);
            }
            Note::RetriesExhausted(last) => self.on_retries_exhausted(*last),
            Note::RetryBudgetExhausted => self.on_budget_exhausted(cooling),
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

    fn tried(&self, round: Round, candidate: usize) -> bool {
        self.past
            .iter()
            .any(|p| p.begin.round == round && p.begin.candidate == candidate)
    }

    fn on_settled(&mut self, settled: &OperationSettled) {
        require!(self, self.settled.is_none(), "R-L1: settled twice");
        require!(
            self,
            self.open.is_none(),
            "R-L1: settled with an open attempt"
        );
        require!(self, !self.is_waiting(), "settled while waiting");
        require!(self, settled.sends == self.sends, "R-S23: sends");
        require!(
            self,
            settled.rounds == self.round().number(),
            "R-S23: rounds"
        );
        let waited: Duration = self.waits.iter().map(|(waited, _)| *waited).sum();
        let waited = waited + self.paused;
        require!(self, settled.waited == waited, "R-S21: wait time");
        require!(
            self,
            settled.state != State::Pending,
            "R-L1: pending is not terminal"
        );
        let cancelled = settled.outcome == OperationOutcome::Cancelled;
        require!(
            self,
            cancelled == (self.gone && !self.gone_late),
            "R-D4: cancelled and gone go together"
        );
        let states = (settled.outcome, settled.state);
        require!(
            self,
            !self.gone_late || states == (OperationOutcome::TimedOut, State::TimedOut),
            "R-L4: who leaves after the time has run out cancels nothing"
        );
        self.settled = Some(*settled);
        self.check_round_account();
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
            Next::Wait(until) => match self.wait.or(self.pause) {
                Some(wait) => require!(self, wait.until == *until, "the wait was moved"),
                None => {
                    require!(self, self.has_wait, "R-S21: an unrecorded wait");
                    self.on_wait(*until, cooling);
                }
            },
            Next::Deliver(deliver) => self.on_deliver(deliver, cooling),
            Next::Answer(answer) => {
                self.on_answer();
                self.told_late = matches!(answer, FinalAnswer::TimedOut | FinalAnswer::Deadline);
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
}

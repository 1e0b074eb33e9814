//! One operation and its timers: obeys effects as the shell does. Every step passes the auditor.

use std::time::Duration;

use rand::SeedableRng;
use rand::rngs::SmallRng;
use rondo::core::class::Class;
use rondo::core::outcome::{AttemptReport, Outcome};
use rondo::core::time::MonoTime;
use rondo::executor::Executor;
use rondo::executor::effect::{Begin, Effects, Next};
use rondo::executor::event::{Event, StreamEnd};
use rondo::executor::plan::Plan;
use rondo::executor::watchdog::{Reached, Watchdog};

use crate::simulation::auditor::{Auditor, Cooling};

/// What the world around an operation does.
pub trait Surroundings {
    /// Time to prepare a request.
    fn preparation(&mut self) -> Duration;
    /// What becomes of a send, and when.
    fn send(&mut self, now: MonoTime, begin: Begin) -> (Duration, AttemptReport);
    /// How late the timer of a limit fires. What comes meanwhile comes after the time has run out.
    fn lateness(&mut self) -> Duration {
        Duration::ZERO
    }
    /// How the writing of an answer ends, and when. `good` is false for error answers.
    fn stream(&mut self, now: MonoTime, good: bool) -> (Duration, StreamEnd);
}

/// An operation that is being driven.
#[derive(Debug)]
pub struct Driver {
    pub executor: Executor,
    pub auditor: Auditor,
    pub deadline: MonoTime,
    /// The event that the operation's own work brings next.
    pub due: Option<(MonoTime, Event)>,
    rng: SmallRng,
    good: bool,
}

impl Driver {
    pub fn new(plan: Plan, began: MonoTime, seed: u64) -> Driver {
        Driver {
            auditor: Auditor::new(&plan, began),
            deadline: plan.deadline,
            executor: Executor::new(plan),
            due: Some((began, Event::Admitted)),
            rng: SmallRng::seed_from_u64(seed),
            good: false,
        }
    }

    /// Feeds one event and sets the timer that follows from the answer.
    pub fn feed(
        &mut self,
        now: MonoTime,
        event: Event,
        cooling: &mut Cooling,
        around: &mut impl Surroundings,
    ) -> Effects {
        let is_own = !matches!(
            event,
            Event::ClientGone | Event::ShutdownBegun | Event::DeadlinePassed | Event::Dropped
        );
        let committed = matches!(event, Event::Committed);
        if is_own {
            self.due = None;
        }
        let seen = event.clone();
        let effects = self.executor.handle(now, event, &mut self.rng);
        self.auditor.observe(now, &seen, &effects, cooling);
        match &effects.next {
            Next::Begin(_) => self.due = Some((now.after(around.preparation()), Event::SendBegun)),
            Next::Send => {
                let begin = self.auditor.open().expect("a send without an attempt");
                let (after, report) = around.send(now, begin);
                let mut at = now.after(after);
                if (report.outcome, report.class) == (Outcome::Ambiguous, Class::Timeout) {
                    self.watch(at);
                    at = at.after(around.lateness());
                }
                self.due = Some((at, Event::Outcome(report)));
            }
            Next::Wait(until) => self.due = Some((*until, Event::WaitElapsed)),
            Next::Deliver(_) | Next::Answer(_) => {
                self.good = self.auditor.open().is_some();
                self.due = Some((now.after(Duration::from_micros(50)), Event::Committed));
            }
            Next::Continue if committed => {
                let (after, end) = around.stream(now, self.good);
                let mut at = now.after(after);
                if end == StreamEnd::UpstreamTimedOut {
                    self.watch(at);
                    at = at.after(around.lateness());
                }
                self.due = Some((at, Event::StreamEnded(end)));
            }
            Next::Continue => {}
            Next::End => self.due = None,
        }
        effects
    }

    /// What comes then is a timer, and everybody knows.
    fn watch(&mut self, due: MonoTime) {
        let reached = Reached::Sent;
        self.executor.watch(Some(Watchdog { due, reached }));
        self.auditor.watchdog = Some(due);
    }

    /// Whether the operation has ended.
    pub fn has_ended(&self) -> bool {
        self.executor.has_ended()
    }
}

//! What the executor tells the shell: one next step, and notes for whoever counts and records.

use std::sync::Arc;
use std::time::Duration;

use crate::core::decision::{Decision, Round, Stop};
use crate::core::outcome::{AttemptReport, Reply};
use crate::core::precedence::Standing;
use crate::core::settlement::{OperationOutcome, State};
use crate::core::suppression::Suppression;
use crate::core::time::MonoTime;

/// The answer to one event.
#[derive(Debug)]
#[must_use]
pub struct Effects {
    /// What the shell does now.
    pub next: Next,
    /// What is to be counted and recorded, in order.
    pub notes: Vec<Note>,
}

/// The one thing to do next.
#[derive(Debug, Clone)]
pub enum Next {
    /// Prepare a fresh request for this candidate, then report [`Event::SendBegun`](super::event::Event::SendBegun).
    Begin(Begin),
    /// Send it. Nothing else permits a send.
    Send,
    /// Sleep until the instant, holding no connection; end early when the client leaves, drain begins or the deadline passes.
    Wait(MonoTime),
    /// Pass the held answer of the current attempt on.
    Deliver(Deliver),
    /// Answer from here.
    Answer(FinalAnswer),
    /// Go on with what is being done.
    Continue,
    /// The operation has ended and nothing more is to be written.
    End,
}

/// A try of one candidate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Begin {
    /// Counts from 1 over the operation.
    pub attempt_no: u32,
    /// Position of the candidate in the plan.
    pub candidate: usize,
    /// Position of its target in the route.
    pub target: usize,
    /// The pass it belongs to.
    pub round: Round,
    /// 0, and one more for each derived try on the same key (R-K3).
    pub retry_index: u32,
    /// Position of the key in the target's pool.
    pub key: usize,
}

impl Begin {
    /// How this attempt follows the last one that was settled. Another place of the same target is another candidate: a retry of the
    /// first that others kept from happening is not made there.
    pub fn standing(&self, last: Option<(Begin, Decision)>) -> Standing {
        match last {
            Some((before, decision))
                if (before.candidate, before.round) == (self.candidate, self.round) =>
            {
                match decision {
                    Decision::SameTarget => Standing::SameKey,
                    Decision::Retry(_) => Standing::Retry,
                    Decision::NextKey => Standing::NextKey,
                    Decision::Accept
                    | Decision::NextTarget
                    | Decision::RoundOver
                    | Decision::Stop(_) => Standing::Fresh,
                }
            }
            _ => Standing::Fresh,
        }
    }
}

/// How the held answer is passed on.
#[derive(Debug, Clone)]
pub enum Deliver {
    /// As it is.
    AsIs,
    /// As the final throttle of the route: with the exact remaining delay (R-S20).
    Throttled(ThrottleHeaders),
}

/// The headers of a final throttle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ThrottleHeaders {
    /// Earliest remaining not-before over the route's targets.
    pub retry_after: Duration,
    /// Whether the caller may retry: not when the gateway owns the retries of a target.
    pub should_retry: bool,
    /// `x-rondo-reason`.
    pub reason: &'static str,
}

impl ThrottleHeaders {
    /// `retry-after`: whole seconds, rounded up, at least 1.
    pub fn seconds(&self) -> u64 {
        self.milliseconds().div_ceil(1000).max(1)
    }

    /// `retry-after-ms`: milliseconds, rounded up, at least 1.
    pub fn milliseconds(&self) -> u64 {
        u64::try_from(self.retry_after.as_micros().div_ceil(1000))
            .unwrap_or(u64::MAX)
            .max(1)
    }
}

/// An answer that the gateway writes itself.
#[derive(Debug, Clone)]
pub enum FinalAnswer {
    /// The stored error answer of an attempt, unchanged.
    Upstream(Arc<Reply>),
    /// Every target rejected: the last certified answer if there is one, with the exact remaining delay.
    Throttled(Option<Arc<Reply>>, ThrottleHeaders),
    /// The targets' local limits are used up, and nothing else was met: 429 with the exact remaining delay.
    LocalLimit(ThrottleHeaders),
    /// Every target is set aside for its failures: 503 with the exact remaining delay.
    Failing(ThrottleHeaders),
    /// No target could be reached: 502.
    Unreachable,
    /// It was sent, it may have run, and there is no answer: 502.
    Ambiguous,
    /// It was sent, it may have run, and time ran out: 504.
    TimedOut,
    /// The deadline passed before an answer: 504.
    Deadline,
    /// Every key that could be used is not accepted by its provider: 502. The client's own credential was not the matter.
    CredentialsExhausted,
    /// No target could be picked: 503.
    NoCandidate,
    /// The gateway is draining: 503.
    ShuttingDown,
    /// The gateway met something it cannot explain: 500.
    Internal,
}

/// A fact to be counted and recorded.
#[derive(Debug, Clone)]
pub enum Note {
    /// An attempt is owned; its record is pending.
    AttemptOpened(Begin),
    /// A send was permitted at the dispatch point.
    SendDispatched(Begin),
    /// An attempt has reached its one terminal state.
    AttemptSettled(AttemptSettled),
    /// A candidate was passed over without a send because it cools, fails, or has used up its limits.
    Skipped {
        /// Position of the candidate in the plan: a target may stand in several places.
        candidate: usize,
        /// Position of the target in the route.
        target: usize,
        /// The pass.
        round: Round,
    },
    /// Another target is tried.
    Failover {
        /// Target that failed.
        from: usize,
        /// Target that is tried.
        to: usize,
        /// Class of the failure.
        reason: &'static str,
    },
    /// The provider's own retry was scheduled (R-P7); the attempt that failed is settled.
    RetryScheduled {
        /// The attempt that failed.
        failed: Begin,
        /// The status that it failed with.
        status: u16,
        /// What the answer said.
        reason: &'static str,
        /// How long the operation sleeps.
        pause: Duration,
    },
    /// The provider's own retries are used up, in number or in time (R-P5). Once for each target.
    RetriesExhausted(Begin),
    /// The route's retry budget refused an extra send. At most once per operation.
    RetryBudgetExhausted,
    /// A waiting slot was taken and the wait begun (R-S21).
    WaitBegun,
    /// The wait ended.
    WaitEnded {
        /// How.
        how: WaitEnd,
        /// How long it lasted.
        waited: Duration,
    },
    /// The second round ended.
    SecondRoundEnded(SecondRoundEnd),
    /// There was no second round, for this reason. At most once per operation.
    Suppressed(Suppression),
    /// The route is exhausted. At most once per operation.
    RouteExhausted,
    /// The operation has reached its one terminal state.
    OperationSettled(OperationSettled),
    /// An event that the state does not explain.
    Unexpected(&'static str),
}

/// The end of an attempt.
#[derive(Debug, Clone)]
pub struct AttemptSettled {
    /// Which attempt.
    pub begin: Begin,
    /// Whether it was sent.
    pub sent: bool,
    /// What became of it; `None` when it ended before there was an outcome.
    pub report: Option<AttemptReport>,
    /// What followed.
    pub decision: Decision,
    /// The terminal state.
    pub state: State,
}

impl AttemptSettled {
    /// The `outcome` label of `rondo_attempts_total` and the `delivery` column.
    pub fn delivery(&self) -> &'static str {
        match &self.report {
            Some(report) => report.outcome.label(),
            None if self.sent => "ambiguous",
            None => "not_delivered",
        }
    }
}

/// How a wait ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum WaitEnd {
    /// Its instant was reached.
    Elapsed,
    /// The client left.
    ClientGone,
    /// The gateway began to drain.
    Shutdown,
    /// The deadline passed.
    Deadline,
    /// The operation was dropped.
    Dropped,
}

impl WaitEnd {
    /// The `end` label.
    pub const fn label(self) -> &'static str {
        match self {
            WaitEnd::Elapsed => "elapsed",
            WaitEnd::ClientGone => "client_gone",
            WaitEnd::Shutdown => "shutdown",
            WaitEnd::Deadline => "deadline",
            WaitEnd::Dropped => "dropped",
        }
    }
}

/// How a second round ended (R-S22).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SecondRoundEnd {
    /// A target answered.
    Success,
    /// Every target rejected again.
    Exhausted,
    /// Anything else.
    Other,
}

impl SecondRoundEnd {
    /// The `end` label.
    pub const fn label(self) -> &'static str {
        match self {
            SecondRoundEnd::Success => "success",
            SecondRoundEnd::Exhausted => "exhausted",
            SecondRoundEnd::Other => "other",
        }
    }
}

/// The end of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OperationSettled {
    /// From the client's side.
    pub outcome: OperationOutcome,
    /// The terminal state of the record.
    pub state: State,
    /// Why it ended so; empty for a plain success.
    pub reason: &'static str,
    /// Why it stopped, when it was stopped.
    pub stop: Option<Stop>,
    /// Sends used.
    pub sends: u32,
    /// Rounds entered.
    pub rounds: u8,
    /// Time slept.
    pub waited: Duration,
}

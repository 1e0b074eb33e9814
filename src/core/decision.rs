//! The one place where another send is permitted. Every question is asked here, in one order, and answered from facts.
//!
//! Not here: selecting the next candidate, waiting, counting. Those are the executor's, which only obeys.

use std::time::Duration;

use super::class::Class;
use super::commitment::Commitment;
use super::fallback::Fallback;
use super::limits::ATTEMPT_ALLOWANCE_MIN;
use super::outcome::{AttemptReport, Carrier, Outcome, Scope};
use super::suppression::Suppression;

/// Which ordered pass over the targets this is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Round {
    /// The first pass.
    First,
    /// The pass after the wait; there is no other.
    Second,
}

impl Round {
    /// 1 or 2.
    pub const fn number(self) -> u8 {
        match self {
            Round::First => 1,
            Round::Second => 2,
        }
    }

    /// The `round` label.
    pub const fn label(self) -> &'static str {
        match self {
            Round::First => "1",
            Round::Second => "2",
        }
    }
}

/// What is known when an attempt has ended, beside its report.
#[derive(Debug, Clone, Copy)]
pub struct Facts<'a> {
    /// What became of the attempt.
    pub report: &'a AttemptReport,
    /// The round it belonged to.
    pub round: Round,
    /// What the client has been given.
    pub commitment: Commitment,
    /// Whether the gateway is draining.
    pub draining: bool,
    /// Whether the operation's deadline has passed.
    pub deadline_passed: bool,
    /// Whether the attempt failed later than the route accepts (R-F4).
    pub slow: bool,
    /// Whether no other try may start any more (`max_failover_elapsed_ms`).
    pub failover_over: bool,
    /// Sends left of the operation's budget (R-B1).
    pub sends_left: u32,
    /// Whether the route's retry budget has an extra send.
    pub budget_left: bool,
    /// Target attempts left in this round (R-B2).
    pub attempts_left: u32,
    /// Extra tries left for this candidate on its key (R-K1); 0 for every candidate but the first of round 1.
    pub sticky_left: u32,
    /// Whether another candidate is left that the operation may move to.
    pub has_next: bool,
    /// Whether the next candidate is locally exhausted, and the route does not skip such.
    pub next_limited: bool,
    /// Whether another key of the same target's pool is left that may be used now.
    pub has_next_key: bool,
    /// Whether an earlier key of the same pool failed in a way that may move on: a refused key beside it does not stand for the pool.
    pub pool_moves_on: bool,
    /// The pause before the provider's own retry (R-P), when one is left and fits its bounds.
    pub retry_pause: Option<Duration>,
    /// What may move on beyond the replay-safe failures.
    pub fallback: &'a Fallback,
}

/// What follows an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// The answer goes to the client.
    Accept,
    /// One more try of the same candidate.
    SameTarget,
    /// The same target with the next key of its pool.
    NextKey,
    /// The same target and key after a pause: the provider's own retry (R-P).
    Retry(Duration),
    /// The next candidate.
    NextTarget,
    /// No candidate or budget is left in this round; whether there is another round is [`second_round`]'s to say.
    RoundOver,
    /// The operation ends with what is known.
    Stop(Stop),
}

impl Decision {
    /// The `decision` label of `rondo_attempts_total` and the records.
    pub const fn label(self) -> &'static str {
        match self {
            Decision::Accept => "accepted",
            Decision::SameTarget | Decision::Retry(_) => "same_target",
            Decision::NextKey => "next_key",
            Decision::NextTarget => "next_target",
            Decision::RoundOver | Decision::Stop(_) => "stop",
        }
    }
}

/// Why an operation stops although candidates may be left. A closed set, given in records as `reason`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Stop {
    /// Something was already written to the client.
    Committed,
    /// Output was seen before it broke.
    OutputSeen,
    /// The gateway is draining.
    Shutdown,
    /// The deadline has passed.
    Deadline,
    /// It may have run, and the route does not opt in to sending it again.
    Ambiguous,
    /// An answer that no other target would change, or that the route does not opt in to.
    Terminal,
    /// It failed later than `retry_on_failure_within_ms`.
    SlowFailure,
    /// More than `max_failover_elapsed_ms` have passed since the operation began.
    FailoverElapsed,
    /// The route's retry budget has no extra send for it.
    RetryBudget,
    /// The next candidate is locally exhausted, and the route does not skip such.
    LocalLimit,
    /// A failure other than a certified rejection ends the second round (R-S19).
    SecondRound,
    /// The client left.
    ClientGone,
    /// The executor met an event it cannot explain.
    Unexpected,
}

impl Stop {
    /// Every reason.
    pub const ALL: [Stop; 13] = [
        Stop::Committed,
        Stop::OutputSeen,
        Stop::Shutdown,
        Stop::Deadline,
        Stop::Ambiguous,
        Stop::Terminal,
        Stop::SlowFailure,
        Stop::FailoverElapsed,
        Stop::RetryBudget,
        Stop::LocalLimit,
        Stop::SecondRound,
        Stop::ClientGone,
        Stop::Unexpected,
    ];

    /// The `reason` of records and the access log.
    pub const fn label(self) -> &'static str {
        match self {
            Stop::Committed => "committed",
            Stop::OutputSeen => "output_seen",
            Stop::Shutdown => "shutdown",
            Stop::Deadline => "deadline",
            Stop::Ambiguous => "ambiguous",
            Stop::Terminal => "terminal",
            Stop::SlowFailure => "slow_failure",
            Stop::FailoverElapsed => "failover_elapsed",
            Stop::RetryBudget => "retry_budget",
            Stop::LocalLimit => "local_limit",
            Stop::SecondRound => "second_round_failed",
            Stop::ClientGone => "client_gone",
            Stop::Unexpected => "unexpected",
        }
    }
}

/// Decides what follows an attempt. The order of the questions is the order of the lines.
pub fn decide(facts: &Facts<'_>) -> Decision {
    let report = facts.report;
    match report.outcome {
        Outcome::Succeeded => return Decision::Accept,
        Outcome::Partial => return Decision::Stop(Stop::OutputSeen),
        Outcome::NotDelivered | Outcome::Rejected(_) | Outcome::Refused | Outcome::Ambiguous => {}
    }
    if facts.commitment > Commitment::Open {
        return Decision::Stop(Stop::Committed);
    }
    let rotates = facts.has_next_key && deserves_next_key(report, facts.fallback);
    let beside_others = facts.pool_moves_on && is_of_key_alone(report);
    let moves_on = beside_others || may_move_on(report, facts.fallback);
    if !rotates && facts.retry_pause.is_none() && !moves_on {
        let ambiguous = report.outcome == Outcome::Ambiguous;
        return Decision::Stop(if ambiguous {
            Stop::Ambiguous
        } else {
            Stop::Terminal
        });
    }
    if facts.deadline_passed {
        return Decision::Stop(Stop::Deadline);
    }
    if facts.draining {
        return Decision::Stop(Stop::Shutdown);
    }
    if facts.slow {
        return Decision::Stop(Stop::SlowFailure);
    }
    if facts.failover_over {
        return Decision::Stop(Stop::FailoverElapsed);
    }
    if facts.round == Round::Second && !matches!(report.outcome, Outcome::Rejected(_)) {
        return Decision::Stop(Stop::SecondRound);
    }
    if facts.sends_left == 0 {
        return Decision::RoundOver;
    }
    if rotates {
        return Decision::NextKey;
    }
    extra_send(facts)
}

/// The sends that the route's retry budget is asked for: own retries, sticky tries, and moves after what may have run.
fn extra_send(facts: &Facts<'_>) -> Decision {
    let sticks = facts.sticky_left > 0 && deserves_same_target(facts.report);
    if facts.budget_left {
        if let Some(pause) = facts.retry_pause {
            return Decision::Retry(pause);
        }
        if sticks {
            return Decision::SameTarget;
        }
    }
    let moves = (facts.has_next || facts.next_limited) && facts.attempts_left > 0;
    if moves && (facts.budget_left || moves_freely(facts.report)) {
        return match facts.next_limited {
            true => Decision::Stop(Stop::LocalLimit),
            false => Decision::NextTarget,
        };
    }
    let denied = moves || sticks || facts.retry_pause.is_some();
    if denied && !facts.budget_left && !matches!(facts.report.outcome, Outcome::Rejected(_)) {
        return Decision::Stop(Stop::RetryBudget);
    }
    Decision::RoundOver
}

/// Whether the move to the next target costs nothing of the retry budget: nobody has run the request, and R-F1 lets it move on always,
/// within `max_target_attempts`.
pub fn moves_freely(report: &AttemptReport) -> bool {
    matches!(report.outcome, Outcome::NotDelivered | Outcome::Rejected(_))
}

/// Whether such a decision is charged to the route's retry budget.
pub fn is_charged(decision: Decision, report: &AttemptReport) -> bool {
    match decision {
        Decision::SameTarget | Decision::Retry(_) => true,
        Decision::NextTarget => !moves_freely(report),
        // Another key of the pool: bounded by its size, and what the last one met was its own.
        Decision::NextKey | Decision::Accept | Decision::RoundOver | Decision::Stop(_) => false,
    }
}

/// Whether such a failure may be followed by another send at all (R-F1, R-F2, R-F7).
pub fn may_move_on(report: &AttemptReport, fallback: &Fallback) -> bool {
    match report.outcome {
        // Replay-safe: nothing ran.
        Outcome::NotDelivered | Outcome::Rejected(_) => true,
        Outcome::Refused => refusal_may_move_on(report, fallback),
        Outcome::Ambiguous => fallback.transport_error,
        Outcome::Partial | Outcome::Succeeded => false,
    }
}

fn refusal_may_move_on(report: &AttemptReport, fallback: &Fallback) -> bool {
    let Some(status) = report.status else {
        return false;
    };
    if fallback.statuses.binary_search(&status).is_ok() {
        return true;
    }
    if is_terminal(report.class) {
        return false;
    }
    let in_stream = report.carrier == Carrier::Stream;
    if matches!(status, 429 | 529) || (in_stream && report.class.is_pushback()) {
        return fallback.http_429;
    }
    (in_stream || (500..=599).contains(&status)) && fallback.http_5xx
}

/// Classes that no other target would answer differently, or that only the operator or caller can mend (R-F7).
const fn is_terminal(class: Class) -> bool {
    matches!(
        class,
        Class::Auth | Class::Config | Class::ContextOverflow | Class::ContentPolicy
    )
}

/// A throttle, a used-up quota and a credential that is not accepted are the key's: another key of the pool may do better.
pub fn deserves_next_key(report: &AttemptReport, fallback: &Fallback) -> bool {
    // What reaches further than the key is the same with every key.
    if report.scope > Scope::Credential {
        return false;
    }
    match report.outcome {
        Outcome::Rejected(_) => true,
        Outcome::Refused if report.class.is_pushback() => may_move_on(report, fallback),
        Outcome::Refused => is_of_key_alone(report),
        Outcome::NotDelivered | Outcome::Ambiguous | Outcome::Partial | Outcome::Succeeded => false,
    }
}

/// A refusal that says nothing of other keys: the credential is not accepted, or its quota is used up.
pub fn is_of_key_alone(report: &AttemptReport) -> bool {
    report.outcome == Outcome::Refused
        && report.scope == Scope::Credential
        && !report.class.is_pushback()
}

/// Statuses that a provider's own retry is for (R-P2). One counter over any mix of them.
pub const RETRY_STATUSES: [u16; 7] = [429, 500, 502, 503, 504, 520, 529];

/// Whether the provider's own retry may follow such a failure: a listed status, whatever carries it, unless what it says is terminal (R-P4).
pub fn deserves_retry(report: &AttemptReport) -> bool {
    let is_answer = matches!(report.outcome, Outcome::Rejected(_) | Outcome::Refused);
    let curable = !is_terminal(report.class) && report.class != Class::QuotaHard;
    let listed = report
        .status
        .is_some_and(|status| RETRY_STATUSES.contains(&status));
    is_answer && curable && listed
}

/// A candidate-scoped failure that is no throttle deserves another try on the same key (R-K2). So does an address that was not reached:
/// another connection may get through, and only then it is ruled out for other candidates.
pub fn deserves_same_target(report: &AttemptReport) -> bool {
    let unreached = report.outcome == Outcome::NotDelivered && report.scope == Scope::Endpoint;
    if (report.scope != Scope::Candidate && !unreached) || report.class.is_pushback() {
        return false;
    }
    match report.outcome {
        Outcome::NotDelivered | Outcome::Ambiguous => true,
        Outcome::Refused => report
            .status
            .is_some_and(|s| (500..=599).contains(&s) && s != 529),
        Outcome::Rejected(_) | Outcome::Partial | Outcome::Succeeded => false,
    }
}

/// Whether such a failure speaks against the target: a 5xx without a certificate, or a broken or silent connection.
pub fn is_strike(report: &AttemptReport) -> bool {
    match report.outcome {
        Outcome::NotDelivered | Outcome::Ambiguous => true,
        Outcome::Refused => {
            let server = report.status.is_some_and(|s| (500..=599).contains(&s));
            server && !is_terminal(report.class) && report.class != Class::QuotaHard
        }
        Outcome::Rejected(_) | Outcome::Partial | Outcome::Succeeded => false,
    }
}

/// The reason that such an attempt gives against a second round, if any. The least of a round's reasons stands for it.
pub fn objection(report: &AttemptReport) -> Option<Suppression> {
    match report.outcome {
        Outcome::Rejected(_) => None,
        Outcome::Partial => Some(Suppression::OutputSeen),
        Outcome::Succeeded | Outcome::NotDelivered => Some(Suppression::NotThrottled),
        Outcome::Ambiguous | Outcome::Refused => Some(match report.class {
            Class::Malformed => Suppression::Malformed,
            Class::QuotaHard => Suppression::HardQuota,
            Class::Auth | Class::Config => Suppression::AuthConfig,
            Class::Throttle
            | Class::Overload
            | Class::ServerError
            | Class::ContextOverflow
            | Class::ContentPolicy
            | Class::Timeout
            | Class::Ambiguous
            | Class::Transport
            | Class::OkStream
            | Class::Ok => match report.outcome {
                Outcome::Ambiguous => Suppression::Ambiguous,
                _ => Suppression::NotThrottled,
            },
        }),
    }
}

/// What is known when the first round is over.
#[derive(Debug, Clone, Copy)]
pub struct RoundFacts {
    /// What the client has been given.
    pub commitment: Commitment,
    /// Whether the gateway is draining.
    pub draining: bool,
    /// The least of the round's [`objection`]s; `None` when every attempt was a certified rejection.
    pub objection: Option<Suppression>,
    /// Whether the operation is bound to provider state.
    pub bound: bool,
    /// Whether the last attempt failed too late (R-F4).
    pub slow: bool,
    /// Whether the client said this is its own retry.
    pub caller_retry: bool,
    /// Whether an attempt is still open.
    pub unfinished: bool,
    /// Sends left (R-B1).
    pub sends_left: u32,
    /// Whether the route's retry budget has an extra send.
    pub budget_left: bool,
    /// Whether a locally exhausted candidate ended the round.
    pub limited: bool,
    /// Whether no other try may start any more (`max_failover_elapsed_ms`).
    pub failover_over: bool,
    /// How long another try may still start; `None` when that is not limited.
    pub failover_left: Option<Duration>,
    /// From now to the earliest not-before instant.
    pub delay: Duration,
    /// Jitter drawn for it.
    pub jitter: Duration,
    /// `max_wait_ms`.
    pub wait_max: Duration,
    /// From now to the deadline.
    pub time_left: Duration,
}

/// Whether a second round is permitted, and after what wait (R-S5 to R-S14). The waiting slot is taken by the executor afterwards, last.
pub fn second_round(facts: &RoundFacts) -> Result<Duration, Suppression> {
    if facts.commitment > Commitment::Open {
        return Err(Suppression::Committed);
    }
    if facts.objection == Some(Suppression::OutputSeen) {
        return Err(Suppression::OutputSeen);
    }
    if facts.draining {
        return Err(Suppression::Shutdown);
    }
    if let Some(objection) = facts.objection {
        return Err(objection);
    }
    if facts.bound {
        return Err(Suppression::StateBound);
    }
    if facts.slow {
        return Err(Suppression::SlowFailure);
    }
    if facts.caller_retry {
        return Err(Suppression::CallerRetry);
    }
    if facts.unfinished {
        return Err(Suppression::Cleanup);
    }
    if facts.sends_left == 0 {
        return Err(Suppression::SendBudget);
    }
    if !facts.budget_left {
        return Err(Suppression::RetryBudget);
    }
    if facts.limited {
        return Err(Suppression::LocalLimit);
    }
    if facts.delay > facts.wait_max {
        return Err(Suppression::WaitTooLong);
    }
    let wait = facts.delay.saturating_add(facts.jitter);
    // A wait of nothing fits into nothing, but what is over is over.
    if facts.failover_over || facts.failover_left.is_some_and(|left| wait > left) {
        return Err(Suppression::FailoverElapsed);
    }
    if wait.saturating_add(ATTEMPT_ALLOWANCE_MIN) > facts.time_left {
        return Err(Suppression::Deadline);
    }
    Ok(wait)
}

//! The end of an operation: which failure is told, in which form, and how it is settled.

use super::effect::{
    Begin, Deliver, FinalAnswer, Next, Note, OperationSettled, SecondRoundEnd, ThrottleHeaders,
};
use super::machine::Executor;
use super::state::Phase;
use crate::core::class::Class;
use crate::core::decision::Stop;
use crate::core::limits::FULL_RETRY_AFTER;
use crate::core::outcome::{AttemptReport, Carrier, Outcome, Scope};
use crate::core::settlement::{OperationOutcome, State};
use crate::core::suppression::Suppression;
use crate::core::time::MonoTime;
use crate::policy::limits::Exhausted;
use crate::policy::provider::Ownership;

/// `x-rondo-reason` of a final throttle that no suppression explains.
const EXHAUSTED: &str = "exhausted";
/// The reason of an operation whose last attempt got no answer in time.
pub(super) const UPSTREAM_TIMEOUT: &str = "upstream_timeout";
/// The reason of an operation that its deadline ended.
pub(super) const DEADLINE: &str = "deadline";

/// What brought the operation to its end.
pub(super) struct Cause<'a> {
    /// Why it was stopped; `None` when the candidates ran out.
    pub stop: Option<Stop>,
    /// Why there was no second round, when one was configured.
    pub suppression: Option<Suppression>,
    /// The attempt whose response is held at this moment.
    pub current: Option<(Begin, &'a AttemptReport)>,
}

/// The failure that the client is told.
struct Told<'a> {
    attempt_no: u32,
    target: usize,
    report: &'a AttemptReport,
    is_slow: bool,
}

impl Executor {
    /// Ends the operation with an answer. Every path that does not deliver a good answer and still has a client ends here.
    pub(super) fn conclude(
        &mut self,
        now: MonoTime,
        cause: &Cause<'_>,
        notes: &mut Vec<Note>,
    ) -> Next {
        self.close_second_round(cause.stop, notes);
        let (answer, from) = self.final_answer(now, cause);
        self.lasting.told = from;
        self.lasting.forbids_retry = self.forbids_caller_retry(cause);
        let settled = self.settlement(&answer, cause);
        if settled.outcome == OperationOutcome::Exhausted {
            notes.push(Note::RouteExhausted);
        }
        self.phase = Phase::Passing(settled);
        let held = cause.current.filter(|(begin, report)| {
            from == Some(begin.attempt_no) && report.carrier == Carrier::Status
        });
        match (held, answer) {
            (Some(_), FinalAnswer::Upstream(_)) => Next::Deliver(Deliver::AsIs),
            (Some(_), FinalAnswer::Throttled(Some(_), headers)) => {
                Next::Deliver(Deliver::Throttled(headers))
            }
            (_, answer) => Next::Answer(answer),
        }
    }

    fn close_second_round(&mut self, stop: Option<Stop>, notes: &mut Vec<Note>) {
        if !std::mem::take(&mut self.lasting.second_round_open) {
            return;
        }
        let exhausted = stop.is_none() && self.pass.objection.is_none();
        let end = if exhausted {
            SecondRoundEnd::Exhausted
        } else {
            SecondRoundEnd::Other
        };
        notes.push(Note::SecondRoundEnded(end));
    }

    /// The answer, and the attempt that it comes from.
    fn final_answer(&self, now: MonoTime, cause: &Cause<'_>) -> (FinalAnswer, Option<u32>) {
        if cause.stop == Some(Stop::Deadline) {
            return (FinalAnswer::Deadline, None);
        }
        let told = self.told(cause);
        let Some(Told {
            attempt_no,
            target,
            report,
            is_slow,
        }) = told
        else {
            let answer = match cause.stop {
                Some(Stop::Unexpected) => FinalAnswer::Internal,
                _ if self.is_limited() => {
                    FinalAnswer::LocalLimit(self.throttle_headers(now, cause))
                }
                _ if self.lasting.keys_refused && !self.lasting.skipped() => {
                    FinalAnswer::CredentialsExhausted
                }
                // A wait for remembered cooldowns ends with its 429 as well.
                Some(Stop::Shutdown) if !self.lasting.skipped() => FinalAnswer::ShuttingDown,
                _ if self.plan.candidates.is_empty() => FinalAnswer::NoCandidate,
                _ if self.lasting.failing && !self.lasting.skipped() => {
                    FinalAnswer::Failing(self.failing_headers(now, cause))
                }
                _ => FinalAnswer::Throttled(None, self.throttle_headers(now, cause)),
            };
            return (answer, None);
        };
        let answer = match (report.outcome, &report.reply) {
            (Outcome::Rejected(_), reply) => {
                FinalAnswer::Throttled(reply.clone(), self.throttle_headers(now, cause))
            }
            // It is our key that was not accepted: as a 401 the client would take it for its own.
            (Outcome::Refused, _) if is_refused_key(report) && self.has_keys(target) => {
                FinalAnswer::CredentialsExhausted
            }
            (Outcome::Refused, Some(reply)) => FinalAnswer::Upstream(reply.clone()),
            // A remembered cooldown counts as a rejection, which outranks this.
            (Outcome::NotDelivered, _) if self.lasting.skipped() && !is_slow => {
                FinalAnswer::Throttled(None, self.throttle_headers(now, cause))
            }
            (Outcome::NotDelivered, _) if self.is_limited() && !is_slow => {
                FinalAnswer::LocalLimit(self.throttle_headers(now, cause))
            }
            (Outcome::NotDelivered, _) => FinalAnswer::Unreachable,
            _ if report.class == Class::Timeout => FinalAnswer::TimedOut,
            _ => FinalAnswer::Ambiguous,
        };
        (answer, Some(attempt_no))
    }

    fn throttle_headers(&self, now: MonoTime, cause: &Cause<'_>) -> ThrottleHeaders {
        let known = |candidate| match self.local_limit(candidate, now) {
            Some(Exhausted::Full) => {
                let by_default = Some(now.after(FULL_RETRY_AFTER));
                self.known_not_before(candidate, now).max(by_default)
            }
            Some(Exhausted::Until(_)) | None => self.known_not_before(candidate, now),
        };
        let earliest = (0..self.plan.reach()).filter_map(known).min();
        let reason = match (cause.suppression, cause.stop) {
            (Some(suppression), _) => suppression.label(),
            (None, Some(stop)) => stop.label(),
            (None, None) if self.waiting_is_vain(cause) => Suppression::HardQuota.label(),
            (None, None) if self.is_limited() => Stop::LocalLimit.label(),
            (None, None) => EXHAUSTED,
        };
        ThrottleHeaders {
            retry_after: earliest.unwrap_or(now).since(now),
            should_retry: self.plan.caller_owns_retries && !self.waiting_is_vain(cause),
            reason,
        }
    }

    /// Whether local limits are what keeps the operation from a target, and nothing that a provider said.
    fn is_limited(&self) -> bool {
        let limited = self.lasting.limited || self.lasting.limit_stop;
        limited && !self.lasting.skipped()
    }

    /// The same when every candidate is set aside for its failures.
    fn failing_headers(&self, now: MonoTime, cause: &Cause<'_>) -> ThrottleHeaders {
        let keys = (0..self.plan.reach()).flat_map(|candidate| {
            self.plan
                .keys(candidate)
                .iter()
                .filter_map(move |key| self.key(candidate, *key))
        });
        let earliest = keys.filter_map(|key| key.cooldown.failing_after(now)).min();
        ThrottleHeaders {
            retry_after: earliest.unwrap_or(now).since(now),
            ..self.throttle_headers(now, cause)
        }
    }

    /// The failure that is told: a slow one itself (R-F4), otherwise by precedence (R-D1).
    fn told<'a>(&'a self, cause: &Cause<'a>) -> Option<Told<'a>> {
        let slow = cause
            .current
            .filter(|_| self.lasting.slow)
            .map(|(begin, report)| Told {
                attempt_no: begin.attempt_no,
                target: begin.target,
                report,
                is_slow: true,
            });
        let kept = self.lasting.precedence.kept().map(|kept| Told {
            attempt_no: kept.attempt_no,
            target: kept.target,
            report: &kept.report,
            is_slow: false,
        });
        slow.or(kept)
    }

    /// Whether the gateway has keys of its own for the target. Without one, a 401 is the server's word to whoever asks.
    fn has_keys(&self, target: usize) -> bool {
        let target = self.plan.route.targets.get(target);
        target.is_some_and(|target| target.keys.iter().any(|key| key.name.is_some()))
    }

    /// Whether what is told is a quota, which waiting does not clear.
    fn waiting_is_vain(&self, cause: &Cause<'_>) -> bool {
        match self.told(cause) {
            Some(told) => told.report.class == Class::QuotaHard,
            // Candidates that only cool are worth waiting for, whatever the others lack.
            None => self.lasting.used_up && !self.lasting.cooled,
        }
    }

    /// Whether the answer must not be retried by the caller (R-P1).
    fn forbids_caller_retry(&self, cause: &Cause<'_>) -> bool {
        let target = self
            .told(cause)
            .and_then(|told| self.plan.route.targets.get(told.target));
        let internal = target.is_some_and(|target| target.ownership == Ownership::Internal);
        internal || self.waiting_is_vain(cause)
    }

    fn settlement(&self, answer: &FinalAnswer, cause: &Cause<'_>) -> OperationSettled {
        let stopped = cause.stop.map(Stop::label);
        let (outcome, state, reason) = match answer {
            FinalAnswer::Upstream(_) => (
                OperationOutcome::UpstreamError,
                State::Refused,
                stopped.unwrap_or("upstream_error"),
            ),
            FinalAnswer::Throttled(_, headers) => {
                (OperationOutcome::Exhausted, State::Rejected, headers.reason)
            }
            FinalAnswer::Unreachable => (
                OperationOutcome::Failed,
                State::Failed,
                stopped.unwrap_or("unreachable"),
            ),
            FinalAnswer::Ambiguous => (OperationOutcome::Failed, State::Ambiguous, "ambiguous"),
            FinalAnswer::TimedOut => (
                OperationOutcome::TimedOut,
                State::TimedOut,
                UPSTREAM_TIMEOUT,
            ),
            FinalAnswer::Deadline => (OperationOutcome::TimedOut, State::TimedOut, DEADLINE),
            FinalAnswer::CredentialsExhausted => (
                OperationOutcome::Failed,
                State::Refused,
                "credentials_exhausted",
            ),
            FinalAnswer::LocalLimit(headers) => {
                (OperationOutcome::Rejected, State::Refused, headers.reason)
            }
            FinalAnswer::Failing(_) => (OperationOutcome::Rejected, State::Refused, "no_candidate"),
            FinalAnswer::NoCandidate => {
                (OperationOutcome::Rejected, State::Refused, "no_candidate")
            }
            FinalAnswer::ShuttingDown => (OperationOutcome::Rejected, State::Refused, "shutdown"),
            FinalAnswer::Internal => (OperationOutcome::Failed, State::Failed, "unexpected"),
        };
        self.settled(outcome, state, reason, cause.stop)
    }

    pub(super) fn settled(
        &self,
        outcome: OperationOutcome,
        state: State,
        reason: &'static str,
        stop: Option<Stop>,
    ) -> OperationSettled {
        OperationSettled {
            outcome,
            state,
            reason,
            stop,
            sends: self.lasting.sends,
            rounds: self.pass.round.number(),
            waited: self.lasting.waited,
        }
    }

    /// The operation ends without an answer because nobody is there to read one.
    pub(super) fn abandon(&mut self, reason: &'static str, notes: &mut Vec<Note>) -> Next {
        self.end_unanswered(OperationOutcome::Cancelled, State::Cancelled, reason, notes)
    }

    /// The same, whatever it ends as.
    pub(super) fn end_unanswered(
        &mut self,
        outcome: OperationOutcome,
        state: State,
        reason: &'static str,
        notes: &mut Vec<Note>,
    ) -> Next {
        self.close_second_round(Some(Stop::ClientGone), notes);
        let settled = self.settled(outcome, state, reason, Some(Stop::ClientGone));
        notes.push(Note::OperationSettled(settled));
        self.phase = Phase::Ended;
        Next::End
    }
}

/// Whether the answer says that the gateway's own key is not accepted.
fn is_refused_key(report: &AttemptReport) -> bool {
    report.class == Class::Auth
        && report.scope == Scope::Credential
        && matches!(report.status, Some(401 | 403))
}

//! The end of an operation: which failure is told, in which form, and how it is settled.

use super::effect::{
    Begin, Deliver, FinalAnswer, Next, Note, OperationSettled, SecondRoundEnd, ThrottleHeaders,
};
use super::machine::Executor;
use super::state::Phase;
use crate::core::class::Class;
use crate::core::decision::Stop;
use crate::core::outcome::{AttemptReport, Carrier, Outcome};
use crate::core::settlement::{OperationOutcome, State};
use crate::core::suppression::Suppression;
use crate::core::time::MonoTime;

/// `x-rondo-reason` of a final throttle that no suppression explains.
const EXHAUSTED: &str = "exhausted";

/// What brought the operation to its end.
pub(super) struct Cause<'a> {
    /// Why it was stopped; `None` when the candidates ran out.
    pub stop: Option<Stop>,
    /// Why there was no second round, when one was configured.
    pub suppression: Option<Suppression>,
    /// The attempt whose response is held at this moment.
    pub current: Option<(Begin, &'a AttemptReport)>,
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
        // A slow failure is returned itself (R-F4); otherwise precedence picks (R-D1).
        let kept = self
            .lasting
            .precedence
            .kept()
            .map(|kept| (kept.attempt_no, &kept.report));
        let slow = cause.current.filter(|_| self.lasting.slow);
        let told = slow
            .map(|(begin, report)| (begin.attempt_no, report))
            .or(kept);
        let Some((attempt_no, report)) = told else {
            let answer = match cause.stop {
                Some(Stop::Unexpected) => FinalAnswer::Internal,
                // A wait for remembered cooldowns ends with its 429 as well.
                Some(Stop::Shutdown) if !self.lasting.skipped => FinalAnswer::ShuttingDown,
                _ if self.plan.candidates.is_empty() => FinalAnswer::NoCandidate,
                _ => FinalAnswer::Throttled(None, self.throttle_headers(now, cause)),
            };
            return (answer, None);
        };
        let answer = match (report.outcome, &report.reply) {
            (Outcome::Rejected(_), reply) => {
                FinalAnswer::Throttled(reply.clone(), self.throttle_headers(now, cause))
            }
            (Outcome::Refused, Some(reply)) => FinalAnswer::Upstream(reply.clone()),
            // A remembered cooldown counts as a rejection, which outranks this.
            (Outcome::NotDelivered, _) if self.lasting.skipped && slow.is_none() => {
                FinalAnswer::Throttled(None, self.throttle_headers(now, cause))
            }
            (Outcome::NotDelivered, _) => FinalAnswer::Unreachable,
            _ if report.class == Class::Timeout => FinalAnswer::TimedOut,
            _ => FinalAnswer::Ambiguous,
        };
        (answer, Some(attempt_no))
    }

    fn throttle_headers(&self, now: MonoTime, cause: &Cause<'_>) -> ThrottleHeaders {
        let earliest = (0..self.plan.reach())
            .filter_map(|candidate| match self.not_before(candidate, now) {
                Some(instant) => Some(instant),
                None => self.was_rejected(candidate).then_some(now),
            })
            .min();
        let reason = match (cause.suppression, cause.stop) {
            (Some(suppression), _) => suppression.label(),
            (None, Some(stop)) => stop.label(),
            (None, None) => EXHAUSTED,
        };
        ThrottleHeaders {
            retry_after: earliest.unwrap_or(now).since(now),
            should_retry: self.plan.caller_owns_retries,
            reason,
        }
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
                "upstream_timeout",
            ),
            FinalAnswer::Deadline => (OperationOutcome::TimedOut, State::TimedOut, "deadline"),
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
        self.close_second_round(Some(Stop::ClientGone), notes);
        let stop = Some(Stop::ClientGone);
        let settled = self.settled(OperationOutcome::Cancelled, State::Cancelled, reason, stop);
        notes.push(Note::OperationSettled(settled));
        self.phase = Phase::Ended;
        Next::End
    }
}

//! One operation's record while the operation runs: notes go in, the settled record comes out once.

use std::sync::Arc;
use std::time::Duration;

use super::entry::{AttemptEntry, Capture, Moment, OperationEntry, Record, may_overwrite};
use crate::core::api::Api;
use crate::core::class::Class;
use crate::core::decision::{Decision, Stop};
use crate::core::outcome::{AttemptReport, Outcome};
use crate::core::precedence::Precedence;
use crate::core::settlement::{OperationOutcome, State};
use crate::core::usage::Usage;
use crate::executor::effect::{AttemptSettled, Begin, Note};
use crate::policy::route::Route;
use crate::policy::snapshot::Snapshot;

/// Longest provider id that is kept: real ones have some 40 characters, and nothing from a provider is trusted.
const UPSTREAM_ID_MAX: usize = 128;

/// What is known of an operation when its record is opened.
#[derive(Debug, Clone)]
pub struct Opening {
    /// `x-request-id`.
    pub operation_id: Arc<str>,
    /// The process.
    pub boot_id: Arc<str>,
    /// The configuration that it began with.
    pub snapshot: Arc<Snapshot>,
    /// Its route.
    pub route: Arc<Route>,
    /// The client's API format.
    pub api: Api,
    /// The model name that the client gave.
    pub public_model: Arc<str>,
    /// The configured name of the client's key.
    pub client_key: Option<Arc<str>>,
    /// Whether the client asked for a stream.
    pub stream: bool,
    /// When the request header was complete.
    pub started: Moment,
    /// Bytes of the request body.
    pub request_bytes: u64,
}

/// What the shell knows of an attempt beside the note that settles it.
#[derive(Debug, Clone, Copy, Default)]
pub struct AttemptFacts<'a> {
    /// The provider's own id of the request.
    pub upstream_request_id: Option<&'a str>,
    /// When the response header arrived.
    pub first_byte: Option<Moment>,
}

/// The end of an operation.
#[derive(Debug, Clone, Copy)]
pub struct Ending {
    /// HTTP status that was written, 499 when the client left first.
    pub status: u16,
    /// How it ended.
    pub outcome: OperationOutcome,
    /// The terminal state.
    pub state: State,
    /// Why it ended so.
    pub reason: &'static str,
    /// Target whose answer the client was given, as a position in the route.
    pub target: Option<usize>,
    /// Sends used.
    pub sends: u32,
    /// Rounds entered.
    pub rounds: u8,
    /// Time slept between rounds.
    pub waited: Duration,
    /// When the first byte of the answer was written.
    pub first_byte: Option<Moment>,
    /// When it ended.
    pub ended: Moment,
    /// Bytes of the response body that were written.
    pub response_bytes: u64,
    /// What the answer said that it cost.
    pub usage: Option<Usage>,
}

/// A pending record. It has one owner and ends in [`OpenOperation::end`], which takes it by value: twice is impossible.
#[derive(Debug)]
#[must_use]
pub struct OpenOperation {
    record: Record,
    opening: Opening,
    /// Monotonic start of each attempt, in step with `record.attempts`.
    began: Vec<Moment>,
    /// The failure that the client would be told about, kept as the executor keeps it (R-D1).
    told: Precedence,
    /// The last failed attempt and what followed it.
    followed: Option<(Begin, Decision)>,
    /// Class of the last failure.
    last: Option<Class>,
    stop: Option<Stop>,
}

impl OpenOperation {
    /// Opens the record, pending.
    pub fn begin(sequence: u64, opening: Opening) -> OpenOperation {
        let operation = OperationEntry {
            operation_id: Arc::clone(&opening.operation_id),
            boot_id: Arc::clone(&opening.boot_id),
            route: Arc::clone(&opening.route.name),
            api: opening.api,
            public_model: Arc::clone(&opening.public_model),
            stream: opening.stream,
            state: State::Pending,
            http_status: None,
            error_class: None,
            reason: "",
            client_key: opening.client_key.clone(),
            started_at: opening.started.wall,
            first_byte_at: None,
            finished_at: None,
            latency_ms: None,
            wait_ms: 0,
            sends: 0,
            rounds: 1,
            request_bytes: opening.request_bytes,
            response_bytes: 0,
            // An operation begins when its body has been read whole.
            request_capture: Capture::Complete,
            response_capture: Capture::Absent,
            prompt_tokens: None,
            completion_tokens: None,
            cached_tokens: None,
            reasoning_tokens: None,
            usage_partial: None,
            profile: Arc::clone(&opening.route.policy.profile),
        };
        let record = Record {
            sequence,
            operation,
            attempts: Vec::new(),
            delivered_by: None,
        };
        OpenOperation {
            record,
            opening,
            began: Vec::new(),
            told: Precedence::default(),
            followed: None,
            last: None,
            stop: None,
        }
    }

    /// The record as it stands.
    pub fn record(&self) -> &Record {
        &self.record
    }

    /// Takes a note of the executor. Gives the attempt's row when the note opened or settled one.
    pub fn note(
        &mut self,
        note: &Note,
        facts: AttemptFacts<'_>,
        at: Moment,
    ) -> Option<&AttemptEntry> {
        match note {
            Note::AttemptOpened(begin) => self.open_attempt(begin, at),
            Note::SendDispatched(_) => {
                self.record.operation.sends += 1;
                None
            }
            Note::AttemptSettled(settled) => self.settle_attempt(settled, facts, at),
            Note::WaitEnded { waited, .. } => {
                let wait = &mut self.record.operation.wait_ms;
                *wait = wait.saturating_add(millis(*waited));
                None
            }
            Note::OperationSettled(settled) => {
                self.stop = settled.stop;
                // Pauses before a provider's own retries count as well.
                let wait = &mut self.record.operation.wait_ms;
                *wait = (*wait).max(millis(settled.waited));
                None
            }
            Note::Skipped { .. }
            | Note::Failover { .. }
            | Note::WaitBegun
            | Note::SecondRoundEnded(_)
            | Note::Suppressed(_)
            | Note::RouteExhausted
            | Note::RetryScheduled { .. }
            | Note::RetriesExhausted(_)
            | Note::RetryBudgetExhausted
            | Note::Unexpected(_) => None,
        }
    }

    fn open_attempt(&mut self, begin: &Begin, at: Moment) -> Option<&AttemptEntry> {
        let rounds = &mut self.record.operation.rounds;
        *rounds = (*rounds).max(begin.round.number());
        if self.position(begin.attempt_no).is_some() {
            // It arrived late: what is there stands.
            return None;
        }
        let entry = self.pending_attempt(begin, at)?;
        self.began.push(at);
        self.record.attempts.push(entry);
        self.record.attempts.last()
    }

    fn pending_attempt(&self, begin: &Begin, at: Moment) -> Option<AttemptEntry> {
        let target = self.opening.route.targets.get(begin.target)?;
        let provider = self.opening.snapshot.provider(target.provider)?;
        let model = target.model.as_ref().unwrap_or(&self.opening.public_model);
        Some(AttemptEntry {
            operation_id: Arc::clone(&self.opening.operation_id),
            attempt_no: begin.attempt_no,
            round: begin.round,
            candidate_index: begin.candidate,
            retry_index: begin.retry_index,
            target: Arc::clone(&target.name),
            provider: Arc::clone(&provider.name),
            key_name: target.keys.get(begin.key).and_then(|key| key.name.clone()),
            upstream_model: Arc::clone(model),
            state: State::Pending,
            delivery: None,
            class: None,
            certified: false,
            decision: None,
            http_status: None,
            error_class: None,
            upstream_request_id: None,
            retry_after_ms: None,
            started_at: at.wall,
            first_byte_at: None,
            finished_at: None,
            latency_ms: None,
        })
    }

    fn settle_attempt(
        &mut self,
        settled: &AttemptSettled,
        facts: AttemptFacts<'_>,
        at: Moment,
    ) -> Option<&AttemptEntry> {
        let position = self.position(settled.begin.attempt_no);
        debug_assert!(
            position.is_some() || std::thread::panicking(),
            "an attempt was settled before it opened"
        );
        let position = position?;
        let began = self.began.get(position)?.mono;
        let entry = self.record.attempts.get_mut(position)?;
        if !may_overwrite(entry.state) {
            debug_assert!(
                false,
                "attempt {} was settled twice",
                settled.begin.attempt_no
            );
            return None;
        }
        write_terminal(entry, settled, facts);
        entry.finished_at = Some(at.wall);
        entry.latency_ms = Some(millis(at.mono.since(began)));
        if let Some(report) = &settled.report
            && report.outcome != Outcome::Succeeded
        {
            self.last = entry.error_class;
            let begin = settled.begin;
            let standing = begin.standing(self.followed.replace((begin, settled.decision)));
            // Its class is what counts here; a body has no place in a record (R-L3).
            let report = AttemptReport {
                reply: None,
                ..report.clone()
            };
            self.told
                .offer(standing, begin.attempt_no, begin.target, report);
        }
        self.record.attempts.get(position)
    }

    fn position(&self, attempt_no: u32) -> Option<usize> {
        self.record
            .attempts
            .iter()
            .position(|attempt| attempt.attempt_no == attempt_no)
    }

    /// Settles the operation. Its attempts were settled before it; one that was not ends as the operation does.
    pub fn end(mut self, ending: &Ending) -> Record {
        self.close_attempts(ending);
        let error_class = self.error_class(ending);
        let target = ending
            .target
            .and_then(|t| self.opening.route.targets.get(t));
        self.record.delivered_by = target.map(|target| Arc::clone(&target.name));
        let operation = &mut self.record.operation;
        operation.state = ending.state;
        operation.http_status = Some(ending.status);
        operation.error_class = error_class;
        operation.reason = ending.reason;
        operation.first_byte_at = ending.first_byte.map(|at| at.wall);
        operation.finished_at = Some(ending.ended.wall);
        operation.latency_ms = Some(millis(ending.ended.mono.since(self.opening.started.mono)));
        operation.wait_ms = millis(ending.waited);
        operation.sends = ending.sends;
        operation.rounds = ending.rounds;
        operation.response_bytes = ending.response_bytes;
        operation.response_capture = response_capture(ending, &self.record.attempts);
        operation.set_usage(ending.usage);
        self.record
    }

    fn close_attempts(&mut self, ending: &Ending) {
        for (entry, began) in self.record.attempts.iter_mut().zip(&self.began) {
            if !may_overwrite(entry.state) {
                continue;
            }
            debug_assert!(
                std::thread::panicking(),
                "attempt {} was open when its operation ended",
                entry.attempt_no
            );
            entry.state = ending.state;
            entry.delivery = Some(Outcome::Ambiguous.label());
            entry.finished_at = Some(ending.ended.wall);
            entry.latency_ms = Some(millis(ending.ended.mono.since(began.mono)));
        }
    }

    /// The class of the failure that was told: precedence picks it (R-D1), but a slow failure is told itself (R-F4).
    fn error_class(&self, ending: &Ending) -> Option<Class> {
        match ending.outcome {
            OperationOutcome::Succeeded
            | OperationOutcome::Cancelled
            | OperationOutcome::Rejected => None,
            OperationOutcome::UpstreamError
            | OperationOutcome::Exhausted
            | OperationOutcome::Failed
            | OperationOutcome::TimedOut => {
                if self.stop == Some(Stop::SlowFailure) {
                    return self.last;
                }
                let (no, class) = self
                    .told
                    .kept()
                    .map(|kept| (kept.attempt_no, kept.report.class))?;
                let entry = self.position(no).and_then(|p| self.record.attempts.get(p));
                entry.map_or(Some(class), |entry| entry.error_class)
            }
        }
    }
}

fn write_terminal(entry: &mut AttemptEntry, settled: &AttemptSettled, facts: AttemptFacts<'_>) {
    entry.state = settled.state;
    entry.delivery = Some(settled.delivery());
    entry.decision = Some(settled.decision);
    entry.error_class = attempt_error(settled);
    entry.upstream_request_id = facts.upstream_request_id.map(|id| Arc::from(cut(id)));
    entry.first_byte_at = facts.first_byte.map(|at| at.wall);
    if let Some(report) = &settled.report {
        entry.class = Some(report.class);
        entry.certified = matches!(report.outcome, Outcome::Rejected(_));
        entry.http_status = report.status;
        entry.retry_after_ms = report.pushback.map(millis);
    }
}

/// The class of an attempt's failure. A good answer that broke off is a transport failure, or a timeout.
fn attempt_error(settled: &AttemptSettled) -> Option<Class> {
    if settled.state == State::Cancelled {
        return None;
    }
    let report = settled.report.as_ref()?;
    match (report.outcome, report.class) {
        (Outcome::Succeeded, _) => None,
        (Outcome::Partial, Class::Ok | Class::OkStream) if settled.state == State::TimedOut => {
            Some(Class::Timeout)
        }
        (Outcome::Partial, Class::Ok | Class::OkStream) => Some(Class::Transport),
        (_, class) => Some(class),
    }
}

fn response_capture(ending: &Ending, attempts: &[AttemptEntry]) -> Capture {
    if ending.first_byte.is_none() && ending.response_bytes == 0 {
        return Capture::Absent;
    }
    let partial = Some(Outcome::Partial.label());
    let broke = attempts.last().is_some_and(|last| last.delivery == partial);
    if broke || ending.outcome == OperationOutcome::Cancelled {
        Capture::Partial
    } else {
        Capture::Complete
    }
}

fn cut(id: &str) -> &str {
    let mut end = id.len().min(UPSTREAM_ID_MAX);
    while !id.is_char_boundary(end) {
        end -= 1;
    }
    id.get(..end).unwrap_or_default()
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

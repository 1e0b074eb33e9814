//! The observer: each fact goes to one counter, to the book, and at the end to one line of the access log.

use std::sync::Arc;

use super::series::{FirstByte, is_of_route};
use super::{Telemetry, access_log, labels};
use crate::core::usage::Usage;
use crate::executor::effect::{Begin, Note};
use crate::ledger::{AttemptFacts, Ending, LateUsage, Moment, Opening};
use crate::policy::overload::{Overload, SlowPhase};
use crate::proxy::host::{
    AttemptExtras, DrainEnd, Exchanged, Observer, OperationEnd, OperationFacts, Refusal, Stamp,
};

impl Observer for Telemetry {
    fn request_opened(&self) {
        self.families.inflight.inc();
    }

    fn request_closed(&self) {
        self.families.inflight.dec();
    }

    fn operation_started(&self, facts: &OperationFacts) {
        self.book.begin(Opening {
            operation_id: Arc::clone(&facts.id),
            boot_id: Arc::clone(&self.boot_id),
            snapshot: Arc::clone(&facts.snapshot),
            route: Arc::clone(&facts.route),
            api: facts.api,
            public_model: Arc::clone(&facts.public_model),
            client_key: facts.client_key.clone(),
            stream: facts.stream,
            started: moment(facts.started),
            request_bytes: facts.request_bytes,
        });
    }

    fn note(&self, facts: &OperationFacts, note: &Note, extras: AttemptExtras<'_>, at: Stamp) {
        self.count(facts, note);
        let attempt = AttemptFacts {
            upstream_request_id: extras.upstream_request_id,
            first_byte: extras.first_byte.map(moment),
        };
        self.book.note(&facts.id, note, attempt, moment(at));
        log_note(facts, note);
    }

    fn operation_ended(&self, facts: &OperationFacts, end: &OperationEnd) -> Option<u64> {
        self.generations.count(facts, |series| {
            let api = Some(facts.api);
            series.request_ended(api, end.outcome, end.status);
            series.of_profile();
            let times = end.first_byte.map(|first_byte| FirstByte {
                took: first_byte.mono.since(facts.started.mono),
                overhead: end.overhead,
            });
            series.observe(api, end.ended.mono.since(facts.started.mono), times);
        });
        let record = self.book.end(&facts.id, &ending(end));
        access_log::operation(facts, end, record.as_deref());
        record.map(|record| record.sequence)
    }

    fn usage_came(&self, facts: &OperationFacts, sequence: u64, usage: Usage) {
        self.book.amend(LateUsage {
            operation_id: Arc::clone(&facts.id),
            boot_id: Arc::clone(&self.boot_id),
            sequence,
            prompt_tokens: usage.prompt_tokens,
            completion_tokens: usage.completion_tokens,
            cached_tokens: usage.cached_tokens,
            reasoning_tokens: usage.reasoning_tokens,
            partial: usage.partial,
        });
    }

    fn drain_begun(&self) {
        self.families.drains.inc();
    }

    fn drain_ended(&self, end: DrainEnd) {
        if end != DrainEnd::Refused {
            self.families.drains.dec();
        }
        let ends = &self.families.drain_ends;
        ends.with_label_values(&[end.label()]).inc();
    }

    fn refused(&self, refusal: &Refusal) {
        let named = refusal.route.as_deref();
        let series = named.and_then(|name| self.generations.by_name(name));
        let series = series.as_ref().unwrap_or(self.generations.none());
        let outcome = labels::refusal_outcome(refusal.status);
        series.request_ended(refusal.api, outcome, refusal.status);
        series.observe(refusal.api, refusal.latency, None);
        access_log::refusal(refusal, outcome);
    }

    fn overloaded(&self, limit: Overload) {
        if let Some(counter) = self.families.overloads.get(limit as usize) {
            counter.inc();
        }
    }

    fn slow_client(&self, phase: SlowPhase) {
        if let Some(counter) = self.families.slow_clients.get(phase as usize) {
            counter.inc();
        }
    }

    fn token_exchanged(&self, provider: &str, result: Exchanged) {
        let labels = [provider, result.label()];
        self.families
            .token_exchanges
            .with_label_values(&labels)
            .inc();
    }
}

impl Telemetry {
    fn count(&self, facts: &OperationFacts, note: &Note) {
        if let Note::Unexpected(event) = note {
            self.families.unexpected.with_label_values(&[event]).inc();
        } else if is_of_route(note) {
            self.generations.count(facts, |series| series.note(note));
        }
    }
}

/// What an operator reads about beside the access log: exhaustion, retries on the same target, and what must not happen.
fn log_note(facts: &OperationFacts, note: &Note) {
    match note {
        Note::RouteExhausted => log::warn!(
            target: "rondo::route",
            "every target of route {} rejected; request={}",
            facts.route.name,
            access_log::Escaped(&facts.id),
        ),
        Note::Unexpected(event) => log::error!(
            target: "rondo::executor",
            "event {event} is not explained by the state; the operation was stopped; request={} route={}",
            access_log::Escaped(&facts.id),
            facts.route.name,
        ),
        Note::RetryScheduled {
            failed,
            status,
            reason,
            pause,
        } => log::info!(
            target: "rondo::retry",
            "request={} route={} target={} attempt={} status={status} delay_ms={} reason={reason}",
            access_log::Escaped(&facts.id),
            facts.route.name,
            target_name(facts, failed),
            failed.attempt_no,
            pause.as_millis(),
        ),
        Note::RetriesExhausted(last) => log::warn!(
            target: "rondo::retry",
            "own retries used up: request={} route={} target={} attempt={}",
            access_log::Escaped(&facts.id),
            facts.route.name,
            target_name(facts, last),
            last.attempt_no,
        ),
        Note::AttemptSettled(_)
        | Note::AttemptOpened(_)
        | Note::SendDispatched(_)
        | Note::Skipped { .. }
        | Note::Failover { .. }
        | Note::WaitBegun
        | Note::WaitEnded { .. }
        | Note::SecondRoundEnded(_)
        | Note::Suppressed(_)
        | Note::RetryBudgetExhausted
        | Note::OperationSettled(_) => {}
    }
}

fn target_name<'f>(facts: &'f OperationFacts, begin: &Begin) -> &'f str {
    let target = facts.route.targets.get(begin.target);
    target.map_or(labels::NONE, |target| &*target.name)
}

const fn moment(stamp: Stamp) -> Moment {
    Moment {
        mono: stamp.mono,
        wall: stamp.wall,
    }
}

fn ending(end: &OperationEnd) -> Ending {
    Ending {
        status: end.status,
        outcome: end.outcome,
        state: end.state,
        reason: end.reason,
        target: end.target,
        sends: end.sends,
        rounds: end.rounds,
        waited: end.waited,
        first_byte: end.first_byte.map(moment),
        ended: moment(end.ended),
        response_bytes: end.response_bytes,
        usage: end.usage,
    }
}

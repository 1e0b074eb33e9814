//! Which fact counts where: the totals of one route of one snapshot, found by position.
//!
//! Not here: the numbers themselves ([`super::totals`]).

use std::sync::Arc;
use std::time::Duration;

use super::labels::{self, DELIVERIES, ENDS};
use super::tally::Count;
use super::totals::{RouteTotals, TargetTotals, Totals};
use crate::core::api::Api;
use crate::core::decision::Decision;
use crate::core::settlement::OperationOutcome;
use crate::core::suppression::Suppression;
use crate::executor::effect::{AttemptSettled, Note, SecondRoundEnd, WaitEnd};
use crate::policy::route::Route;

/// The series of one route, or of requests without one.
#[derive(Debug)]
pub(super) struct RouteSeries {
    totals: Arc<RouteTotals>,
    /// In configured order.
    targets: Vec<Arc<TargetTotals>>,
    profile: Option<Arc<Count>>,
}

/// When the first byte of an answer came.
#[derive(Debug, Clone, Copy)]
pub(super) struct FirstByte {
    /// Since the operation began.
    pub took: Duration,
    /// Of that, the gateway's own part.
    pub overhead: Duration,
}

/// What was counted for a route, for the admin page.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RouteCounters {
    /// Waits begun.
    pub waits: u64,
    /// Slots taken.
    pub admissions: u64,
    /// Second rounds in which a target answered.
    pub successes: u64,
    /// Final exhaustions.
    pub exhaustions: u64,
    /// Suppressed second rounds that happened, by reason.
    pub suppressions: Vec<(&'static str, u64)>,
    /// How what was admitted ended, by end.
    pub ends: Vec<(&'static str, u64)>,
    /// By target, in configured order.
    pub targets: Vec<TargetCounters>,
}

/// What was counted for a target of a route.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TargetCounters {
    /// Sends, over both rounds.
    pub sends: u64,
    /// Times it was passed over while it cooled.
    pub skipped: u64,
    /// Settled attempts by delivery class, those that happened.
    pub attempts: Vec<(&'static str, u64)>,
}

impl RouteSeries {
    pub(super) fn new(totals: &Totals, route: &Route) -> RouteSeries {
        let profile = totals.profile(&route.policy.profile);
        let totals = totals.route(&route.name);
        let targets = route.targets.iter();
        RouteSeries {
            targets: targets.map(|target| totals.target(&target.name)).collect(),
            totals,
            profile: Some(profile),
        }
    }

    /// The series of requests that found no route.
    pub(super) fn without_route(totals: &Totals) -> RouteSeries {
        RouteSeries {
            totals: totals.without_route(&Arc::from(labels::NONE)),
            targets: Vec::new(),
            profile: None,
        }
    }

    /// An operation ended on a route of the profile.
    pub(super) fn of_profile(&self) {
        if let Some(count) = &self.profile {
            count.inc();
        }
    }

    pub(super) fn request_ended(&self, api: Option<Api>, outcome: OperationOutcome, status: u16) {
        let kind = (labels::api(api), outcome, labels::status(status));
        self.totals.requests.count(kind);
    }

    /// How long a request took, and its first byte if there was one.
    pub(super) fn observe(&self, api: Option<Api>, took: Duration, first_byte: Option<FirstByte>) {
        let Some(times) = self.totals.timings(api) else {
            return;
        };
        times.duration.observe(took);
        if let Some(first_byte) = first_byte {
            times.first_byte.observe(first_byte.took);
            times.overhead.observe(first_byte.overhead);
        }
    }

    /// Counts what the executor tells of a route.
    pub(super) fn note(&self, note: &Note) {
        let exhaustion = &self.totals.exhaustion;
        match note {
            Note::OperationSettled(settled) => {
                if let Some(stop) = settled.stop {
                    self.totals.stops.count(stop);
                }
            }
            Note::RetryBudgetExhausted => exhaustion.retry_budget_exhausted.inc(),
            Note::SendDispatched(begin) => {
                let target = self.targets.get(begin.target);
                inc(target.and_then(|target| target.sends.get(labels::round(begin.round))));
            }
            Note::AttemptSettled(settled) => self.attempt_settled(settled),
            Note::Skipped { target, round, .. } => {
                let target = self.targets.get(*target);
                inc(target.and_then(|target| target.skipped.get(labels::round(*round))));
            }
            Note::Failover { from, to, reason } => {
                let number = |at: usize| self.targets.get(at).map(|target| target.number);
                let kind = (number(*from), number(*to), *reason);
                self.totals.failovers.count(kind);
            }
            // One fact here: the slot is taken in the step that begins the wait.
            Note::WaitBegun => {
                exhaustion.waits.inc();
                exhaustion.admissions.inc();
            }
            Note::WaitEnded { how, waited } => self.wait_ended(*how, *waited),
            Note::SecondRoundEnded(end) => {
                if *end == SecondRoundEnd::Success {
                    exhaustion.successes.inc();
                }
                inc(exhaustion.ends.get(labels::second_round_end(*end)));
            }
            Note::Suppressed(reason) => inc(exhaustion.suppressions.get(*reason as usize)),
            Note::RouteExhausted => exhaustion.exhaustions.inc(),
            Note::AttemptOpened(_)
            | Note::RetryScheduled { .. }
            | Note::RetriesExhausted(_)
            | Note::Unexpected(_) => {}
        }
    }

    fn attempt_settled(&self, settled: &AttemptSettled) {
        let Some(target) = self.targets.get(settled.begin.target) else {
            return;
        };
        let deliveries = target.attempts.get(labels::round(settled.begin.round));
        let decisions = deliveries.and_then(|d| d.get(labels::delivery(settled)));
        inc(decisions.and_then(|d| d.get(labels::decision(settled.decision))));
        if matches!(settled.decision, Decision::SameTarget | Decision::Retry(_)) {
            let status = settled.report.as_ref().and_then(|report| report.status);
            target
                .retries
                .count(labels::status(status.unwrap_or_default()));
        }
    }

    fn wait_ended(&self, how: WaitEnd, waited: Duration) {
        let exhaustion = &self.totals.exhaustion;
        exhaustion.wait_seconds.observe(waited);
        inc(labels::wait_end(how).and_then(|end| exhaustion.ends.get(end)));
    }

    /// What was counted so far.
    pub(super) fn read(&self) -> RouteCounters {
        let counted = &self.totals.exhaustion;
        let reasons = Suppression::ALL.iter().map(|reason| reason.label());
        RouteCounters {
            waits: counted.waits.get(),
            admissions: counted.admissions.get(),
            successes: counted.successes.get(),
            exhaustions: counted.exhaustions.get(),
            suppressions: happened(reasons, &counted.suppressions),
            ends: happened(ENDS.into_iter(), &counted.ends),
            targets: self.targets.iter().map(|target| read(target)).collect(),
        }
    }
}

/// Whether [`RouteSeries::note`] may count this. Half the notes of a plain request are not: nobody has to look for their series.
pub(super) fn is_of_route(note: &Note) -> bool {
    match note {
        Note::OperationSettled(settled) => settled.stop.is_some(),
        other => !matches!(other, Note::AttemptOpened(_)),
    }
}

fn inc(count: Option<&Count>) {
    if let Some(count) = count {
        count.inc();
    }
}

fn read(target: &TargetTotals) -> TargetCounters {
    let mut attempts = Vec::new();
    for (position, label) in DELIVERIES.into_iter().enumerate() {
        let rounds = target.attempts.iter().filter_map(|r| r.get(position));
        let sum: u64 = rounds.flatten().map(Count::get).sum();
        if sum > 0 {
            attempts.push((label, sum));
        }
    }
    TargetCounters {
        sends: target.sends.iter().map(Count::get).sum(),
        skipped: target.skipped.iter().map(Count::get).sum(),
        attempts,
    }
}

fn happened(
    names: impl Iterator<Item = &'static str>,
    counts: &[Count],
) -> Vec<(&'static str, u64)> {
    names
        .zip(counts.iter().map(Count::get))
        .filter(|(_, count)| *count > 0)
        .collect()
}

//! What happened in a world, and the sums that have to agree.

use std::collections::BTreeMap;

use rondo::core::decision::Decision;
use rondo::core::settlement::OperationOutcome;
use rondo::executor::effect::{Effects, Note, SecondRoundEnd, WaitEnd};
use rondo::executor::event::Event;
use rondo::executor::plan::Plan;
use rondo::policy::ordering::Why;

use super::auditor::{Auditor, Unfit};

/// Where an operation awaits something.
pub const STAGES: [&str; 6] = [
    "prepared",
    "sent",
    "wait",
    "pause",
    "answering",
    "streaming",
];

/// What happened, counted from the notes alone.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tally {
    pub operations: u64,
    pub refused_before_reading: u64,
    pub attempts: u64,
    pub sends: u64,
    pub settled_attempts: u64,
    pub settled_operations: u64,
    pub waits: u64,
    pub waits_ended: u64,
    pub admissions: u64,
    pub successes: u64,
    pub exhausted_after_round_2: u64,
    pub other_ends_of_round_2: u64,
    pub waits_cut_short: u64,
    pub exhaustions: u64,
    pub most_waiting: u64,
    pub retries: u64,
    pub retries_exhausted: u64,
    pub next_keys: u64,
    pub budgets_exhausted: u64,
    /// Operations that begin elsewhere than at the first target, and those that a good answer drew there.
    pub begun_elsewhere: u64,
    pub drawn_by_affinity: u64,
    /// Further tries of a first candidate, and candidates whose turn came after the others'.
    pub sticky_tries: u64,
    pub deferrals: u64,
    /// Clients that left when the time had run out already, but before the timer was heard.
    pub left_late: u64,
    /// What came from outside, and where the operation was.
    pub interrupted: BTreeMap<(&'static str, &'static str), u64>,
    /// Why candidates were skipped.
    pub skipped: BTreeMap<String, u64>,
    pub suppressed: BTreeMap<&'static str, u64>,
    pub outcomes: BTreeMap<&'static str, u64>,
    pub reasons: BTreeMap<&'static str, u64>,
}

impl Tally {
    pub fn add(&mut self, other: &Tally) {
        self.operations += other.operations;
        self.refused_before_reading += other.refused_before_reading;
        self.attempts += other.attempts;
        self.sends += other.sends;
        self.settled_attempts += other.settled_attempts;
        self.settled_operations += other.settled_operations;
        self.waits += other.waits;
        self.waits_ended += other.waits_ended;
        self.admissions += other.admissions;
        self.successes += other.successes;
        self.exhausted_after_round_2 += other.exhausted_after_round_2;
        self.other_ends_of_round_2 += other.other_ends_of_round_2;
        self.waits_cut_short += other.waits_cut_short;
        self.exhaustions += other.exhaustions;
        self.retries += other.retries;
        self.retries_exhausted += other.retries_exhausted;
        self.next_keys += other.next_keys;
        self.budgets_exhausted += other.budgets_exhausted;
        self.begun_elsewhere += other.begun_elsewhere;
        self.drawn_by_affinity += other.drawn_by_affinity;
        self.sticky_tries += other.sticky_tries;
        self.deferrals += other.deferrals;
        self.left_late += other.left_late;
        for (key, count) in &other.interrupted {
            *self.interrupted.entry(*key).or_default() += count;
        }
        for (why, count) in &other.skipped {
            *self.skipped.entry(why.clone()).or_default() += count;
        }
        self.most_waiting = self.most_waiting.max(other.most_waiting);
        for (from, to) in [
            (&other.suppressed, &mut self.suppressed),
            (&other.outcomes, &mut self.outcomes),
            (&other.reasons, &mut self.reasons),
        ] {
            for (label, count) in from {
                *to.entry(label).or_default() += count;
            }
        }
    }

    pub fn reordered(&mut self, plan: &Plan) {
        let first = plan.candidates.first();
        self.begun_elsewhere += u64::from(first.is_some_and(|first| first.target != 0));
        let affine = first.is_some_and(|first| first.place.why == Why::Affinity);
        self.drawn_by_affinity += u64::from(affine);
    }

    pub fn take(&mut self, effects: &Effects) {
        for note in &effects.notes {
            match note {
                Note::AttemptOpened(_) => self.attempts += 1,
                Note::SendDispatched(_) => self.sends += 1,
                Note::AttemptSettled(settled) => {
                    self.settled_attempts += 1;
                    self.next_keys += u64::from(settled.decision == Decision::NextKey);
                    self.sticky_tries += u64::from(settled.decision == Decision::SameTarget);
                }
                Note::RetryScheduled { .. } => self.retries += 1,
                Note::RetriesExhausted(_) => self.retries_exhausted += 1,
                Note::RetryBudgetExhausted => self.budgets_exhausted += 1,
                Note::WaitBegun => {
                    self.waits += 1;
                    self.admissions += 1;
                }
                Note::WaitEnded { how, .. } => {
                    self.waits_ended += 1;
                    self.waits_cut_short += u64::from(*how != WaitEnd::Elapsed);
                }
                Note::SecondRoundEnded(SecondRoundEnd::Success) => self.successes += 1,
                Note::SecondRoundEnded(SecondRoundEnd::Exhausted) => {
                    self.exhausted_after_round_2 += 1
                }
                Note::SecondRoundEnded(SecondRoundEnd::Other) => self.other_ends_of_round_2 += 1,
                Note::Suppressed(reason) => {
                    *self.suppressed.entry(reason.label()).or_default() += 1
                }
                Note::RouteExhausted => self.exhaustions += 1,
                Note::OperationSettled(settled) => {
                    self.settled_operations += 1;
                    *self.outcomes.entry(settled.outcome.label()).or_default() += 1;
                    *self.reasons.entry(settled.reason).or_default() += 1;
                }
                Note::Skipped { .. } | Note::Failover { .. } => {}
                Note::Unexpected(event) => panic!("unexpected {event}"),
            }
        }
    }

    /// Notes where an operation is when something comes from outside.
    pub fn interrupt(&mut self, event: &Event, stage: &'static str) {
        let is_outside = matches!(
            event,
            Event::ClientGone | Event::Dropped | Event::ShutdownBegun | Event::DeadlinePassed
        );
        if is_outside {
            *self.interrupted.entry((event.label(), stage)).or_default() += 1;
        }
    }

    /// What the auditor knows of an operation at its end.
    pub fn ended(&mut self, auditor: &Auditor) {
        self.left_late += u64::from(auditor.left_late());
        self.deferrals += auditor.deferrals() as u64;
        for unfit in auditor.skips() {
            *self.skipped.entry(format!("{unfit:?}")).or_default() += 1;
        }
    }

    /// Conservation (R-S22, R-S23, R-L1).
    pub fn balance(&self) {
        assert_eq!(
            self.settled_operations + self.refused_before_reading,
            self.operations,
            "R-S23"
        );
        assert_eq!(self.attempts, self.settled_attempts, "R-S23");
        assert!(self.sends <= self.attempts);
        assert_eq!(self.waits, self.waits_ended, "R-S21");
        let ends = self.successes
            + self.exhausted_after_round_2
            + self.other_ends_of_round_2
            + self.waits_cut_short;
        assert_eq!(self.admissions, ends, "R-S22");
    }

    /// A run of some length that never saw one of these proves nothing about it.
    pub fn assert_that_everything_happened(&self) {
        assert!(
            self.begun_elsewhere > 0 && self.drawn_by_affinity > 0,
            "{self:#?}"
        );
        for label in [
            "client_gone",
            "shutdown",
            "ambiguous",
            "malformed",
            "hard_quota",
            "auth_config",
            "not_throttled",
            "state_bound",
            "caller_retry",
            "send_budget",
            "retry_budget",
            "failover_elapsed",
            "wait_too_long",
            "deadline",
            "admission_full",
            "output_seen",
            "slow_failure",
            "local_limit",
        ] {
            assert!(
                self.suppressed.contains_key(label),
                "no suppression by {label}"
            );
        }
        for outcome in OperationOutcome::ALL {
            let refused_here = outcome == OperationOutcome::Rejected;
            assert!(
                refused_here || self.outcomes.contains_key(outcome.label()),
                "no outcome {outcome:?}"
            );
        }
        assert!(
            self.successes > 0
                && self.exhausted_after_round_2 > 0
                && self.other_ends_of_round_2 > 0
        );
        // What sleeps, sleeps within its deadline, and other awaits are too short to be met by it in every run.
        let by_time = ["sent", "streaming"].map(|stage| ("deadline_passed", stage));
        let from_outside = ["client_gone", "dropped", "shutdown_begun"].into_iter();
        let everywhere = from_outside.flat_map(|event| STAGES.map(|stage| (event, stage)));
        for key in everywhere.chain(by_time) {
            assert!(
                self.interrupted.contains_key(&key),
                "no {key:?}: {:?}",
                self.interrupted
            );
        }
        assert!(self.left_late > 0 && self.sticky_tries > 0 && self.deferrals > 0);
        assert_eq!(self.skipped.len(), Unfit::COUNT, "{:?}", self.skipped);
        assert!(self.retries > 0 && self.retries_exhausted > 0 && self.next_keys > 0);
        assert!(self.budgets_exhausted > 0);
        assert!(self.waits_cut_short > 0 && self.refused_before_reading > 0);
    }
}

//! Closed label sets as positions, so that a series is found in an array and not by its text.

use crate::core::api::Api;
use crate::core::decision::{Decision, Round};
use crate::core::outcome::Outcome;
use crate::core::settlement::{OperationOutcome, State};
use crate::executor::effect::{AttemptSettled, SecondRoundEnd, WaitEnd};

/// The label that stands for "there was none".
pub(super) const NONE: &str = "none";
/// The `round` label, by [`round`].
pub(super) const ROUNDS: [&str; 2] = ["1", "2"];
/// The `outcome` label of attempts, by [`delivery`].
pub(super) const DELIVERIES: [&str; 7] = [
    "not_delivered",
    "rejected",
    "refused",
    "ambiguous",
    "partial",
    "succeeded",
    "cancelled",
];
/// The `decision` label, by [`decision`].
pub(super) const DECISIONS: [&str; 5] =
    ["accepted", "next_target", "same_target", "stop", "next_key"];
/// The `end` label of `rondo_exhaustion_ends_total`: how what was admitted came to its end.
pub(super) const ENDS: [&str; 7] = [
    "success",
    "exhausted",
    "other",
    "wait_client_gone",
    "wait_shutdown",
    "wait_deadline",
    "wait_dropped",
];
/// API formats, and one place for requests without any.
pub(super) const APIS: usize = Api::ALL.len() + 1;
/// What no status can be: an upstream's number outside the range of HTTP.
const STATUS_UNKNOWN: u16 = 0;

pub(super) const fn round(round: Round) -> usize {
    match round {
        Round::First => 0,
        Round::Second => 1,
    }
}

/// The same classes as [`AttemptSettled::delivery`]; but what the client ended before there was an outcome says nothing of the target,
/// and is counted apart (R-L5).
pub(super) const fn delivery(settled: &AttemptSettled) -> usize {
    match &settled.report {
        Some(report) => match report.outcome {
            Outcome::NotDelivered => 0,
            Outcome::Rejected(_) => 1,
            Outcome::Refused => 2,
            Outcome::Ambiguous => 3,
            Outcome::Partial => 4,
            Outcome::Succeeded => 5,
        },
        None if matches!(settled.state, State::Cancelled) => 6,
        None if settled.sent => 3,
        None => 0,
    }
}

pub(super) const fn decision(decision: Decision) -> usize {
    match decision {
        Decision::Accept => 0,
        Decision::NextTarget => 1,
        Decision::SameTarget | Decision::Retry(_) => 2,
        Decision::RoundOver | Decision::Stop(_) => 3,
        Decision::NextKey => 4,
    }
}

pub(super) const fn api(api: Option<Api>) -> usize {
    match api {
        Some(api) => api as usize,
        None => Api::ALL.len(),
    }
}

pub(super) fn api_label(api: Option<Api>) -> &'static str {
    api.map_or(NONE, Api::label)
}

/// The label of the format with this position.
pub(super) fn api_name(position: usize) -> &'static str {
    api_label(Api::ALL.get(position).copied())
}

pub(super) const fn second_round_end(end: SecondRoundEnd) -> usize {
    match end {
        SecondRoundEnd::Success => 0,
        SecondRoundEnd::Exhausted => 1,
        SecondRoundEnd::Other => 2,
    }
}

/// Where a wait that was cut short is counted; `None` for one that went on into the second round.
pub(super) const fn wait_end(end: WaitEnd) -> Option<usize> {
    match end {
        WaitEnd::Elapsed => None,
        WaitEnd::ClientGone => Some(3),
        WaitEnd::Shutdown => Some(4),
        WaitEnd::Deadline => Some(5),
        WaitEnd::Dropped => Some(6),
    }
}

/// The outcome of a refusal: the gateway's own, or the client left during the upload.
pub(super) const fn refusal_outcome(status: u16) -> OperationOutcome {
    if status == 499 {
        OperationOutcome::Cancelled
    } else {
        OperationOutcome::Rejected
    }
}

/// The status, if it is one; an upstream cannot open more series than there are statuses.
pub(super) const fn status(status: u16) -> u16 {
    match status {
        100..=599 => status,
        _ => STATUS_UNKNOWN,
    }
}

pub(super) fn status_label(status: u16) -> String {
    if status == STATUS_UNKNOWN {
        NONE.to_owned()
    } else {
        status.to_string()
    }
}

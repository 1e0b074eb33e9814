//! The limits of the operation and the most that it can cost.

use std::time::Duration;

use super::ask::Asked;
use super::places::{Candidate, own_tries};
use super::rounds::{Possible, SecondRound};
use crate::config::units::show_span;
use crate::core::limits::{ERROR_BODY_TIME_MAX, JITTER_WIDTH_MAX, PEEK_TIME_MAX};
use crate::policy::provider::Timeouts;
use crate::policy::route::Route;

/// The limits of one operation. Totals include the first, as everywhere in the code.
#[derive(Debug, Clone)]
pub struct Budgets {
    /// Target attempts of one round.
    pub attempts_max: u32,
    /// `max_upstream_sends`.
    pub sends_max: u32,
    /// `1 + max_retries`, when that is set.
    pub tries_max: Option<u32>,
    /// The lesser of both.
    pub sends_allowed: u32,
    /// Total tries of the first candidate on its key.
    pub sticky_tries: u32,
    /// `retry_on_failure_within_ms`.
    pub fail_within: Option<Duration>,
    /// `max_failover_elapsed_ms`.
    pub failover_within: Option<Duration>,
    /// Extra sends of the route for a hundred operations, and for a second besides.
    pub retry_terms: (u64, u64),
    /// The route's deadline.
    pub route_deadline: Duration,
    /// What the client's timeout makes of it.
    pub deadline: Duration,
    /// Longest wait for a second round; `None` when there is none.
    pub wait_max: Option<Duration>,
}

/// The most that the operation can cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WorstCase {
    /// Sends.
    pub sends: u32,
    /// Rounds.
    pub rounds: u8,
    /// Until an answer begins, whatever happens.
    pub until_answer: Duration,
    /// The same if every try takes its whole timeouts; uploads are not counted.
    pub by_timeouts: Duration,
    /// Until the last byte of an answer that began in time.
    pub until_end: Duration,
}

/// Reads the budgets of a route for a request.
pub(super) fn budgets(route: &Route, asked: &Asked) -> Budgets {
    let routing = &route.routing;
    let rounds = routing
        .exhaustion
        .filter(|exhaustion| exhaustion.rounds_max > 1);
    Budgets {
        attempts_max: routing.attempts_max,
        sends_max: routing.sends_max,
        tries_max: routing.tries_max,
        sends_allowed: routing.sends_allowed(),
        sticky_tries: routing.sticky_tries,
        fail_within: routing.fail_within,
        failover_within: routing.failover_within,
        retry_terms: route.retry_budget.terms(),
        route_deadline: route.deadline,
        deadline: deadline(route, asked),
        wait_max: rounds.map(|exhaustion| exhaustion.wait_max),
    }
}

/// The route's deadline, shortened by the client's own timeout (R-B4).
pub(super) fn deadline(route: &Route, asked: &Asked) -> Duration {
    asked
        .client_timeout
        .map_or(route.deadline, |client| client.min(route.deadline))
}

/// The worst case over everything that upstreams can do.
pub(super) fn worst_case(
    route: &Route,
    budgets: &Budgets,
    candidates: &[Candidate],
    reach: usize,
    second: &SecondRound,
) -> WorstCase {
    let allowed = budgets.sends_allowed;
    let attempts = budgets.attempts_max.min(count(reach));
    // Any of the candidates in reach may be the ones that are tried, so the costliest count.
    let of_target = |candidate: &Candidate| own_tries(candidate.retry, candidate.keys.len());
    let pass = costliest(candidates, reach, attempts, of_target);
    let extra = if attempts == 0 {
        0
    } else {
        route.routing.sticky_tries.saturating_sub(1)
    };
    let first_round = pass.saturating_add(extra);
    let two_rounds = second.possible != Possible::No;
    // A second round follows certified rejections alone, and those are never tried again on the same key.
    let both_rounds = if two_rounds {
        pass.saturating_mul(2)
    } else {
        0
    };
    let sends = first_round.max(both_rounds).min(allowed);
    let slowest = candidates
        .iter()
        .take(reach)
        .map(|candidate| longest_try(&candidate.timeouts));
    let slowest = slowest.max().unwrap_or_default();
    let moved_on = budgets
        .fail_within
        .map_or(slowest, |limit| limit.min(slowest));
    let wait = match (two_rounds, budgets.wait_max) {
        (true, Some(wait)) => wait.saturating_add(JITTER_WIDTH_MAX),
        (true, None) | (false, _) => Duration::ZERO,
    };
    let tries = moved_on
        .saturating_mul(sends.saturating_sub(1))
        .saturating_add(slowest);
    let pauses = candidates
        .iter()
        .take(reach)
        .filter_map(|candidate| candidate.retry);
    let pauses = pauses
        .map(|retry| retry.elapsed_max)
        .fold(wait, Duration::saturating_add);
    let by_timeouts = if sends == 0 {
        Duration::ZERO
    } else {
        tries.saturating_add(pauses)
    };
    let total = candidates
        .iter()
        .take(reach)
        .map(|candidate| candidate.timeouts.total)
        .max();
    WorstCase {
        sends,
        rounds: if two_rounds { 2 } else { 1 },
        until_answer: budgets.deadline,
        by_timeouts: by_timeouts.min(budgets.deadline),
        until_end: budgets.deadline.saturating_add(total.unwrap_or_default()),
    }
}

/// The sum of the largest costs of so many candidates.
fn costliest(
    candidates: &[Candidate],
    reach: usize,
    attempts: u32,
    cost: impl Fn(&Candidate) -> u32,
) -> u32 {
    let mut costs: Vec<u32> = candidates.iter().take(reach).map(cost).collect();
    costs.sort_unstable_by(|a, b| b.cmp(a));
    let costs = costs
        .into_iter()
        .take(usize::try_from(attempts).unwrap_or(usize::MAX));
    costs.fold(0, u32::saturating_add)
}

/// The longest that a try can take until it is decided, beside the upload.
fn longest_try(timeouts: &Timeouts) -> Duration {
    let looking = ERROR_BODY_TIME_MAX.max(PEEK_TIME_MAX);
    let steps = timeouts
        .connect
        .saturating_add(timeouts.first_byte)
        .saturating_add(looking);
    steps.min(timeouts.total)
}

/// A count in 32 bits.
pub(super) fn count(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

/// Whole milliseconds.
pub(super) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// A duration for people.
pub(super) fn span(duration: Duration) -> String {
    let millis = millis(duration);
    // `show_span` is exact, so 65750 ms would read as that; a person reads seconds.
    match millis {
        0 => "0 ms".to_owned(),
        1_000.. if !millis.is_multiple_of(1_000) => {
            let (whole, rest) = (millis / 1_000, millis % 1_000);
            format!("{whole}.{}s", format!("{rest:03}").trim_end_matches('0'))
        }
        _ => show_span(millis),
    }
}

//! What follows each kind of failure, by asking the one function that decides; and what ends the operation.

use super::ask::Asked;
use super::budgets::{Budgets, span};
use crate::core::class::Class;
use crate::core::commitment::Commitment;
use crate::core::decision::{Decision, Facts, Round, Stop, decide};
use crate::core::outcome::{AttemptReport, Carrier, Outcome, Scope};
use crate::policy::routing::{OnDisconnect, Routing};

/// A kind of failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failure {
    /// Nothing arrived.
    NotDelivered,
    /// The provider certified that it did not run.
    Rejected,
    /// A throttle or overload answer without that proof.
    Throttle,
    /// The same inside a stream, before output.
    StreamThrottle,
    /// A quota that waiting does not clear.
    HardQuota,
    /// A complete 5xx answer.
    ServerError,
    /// Another error inside a stream, before output.
    StreamError,
    /// Anything else after bytes were sent.
    Ambiguous,
    /// The credential was refused.
    Auth,
    /// The request was refused.
    BadRequest,
    /// A status of `fallback_http_statuses`.
    Listed(u16),
    /// Output was seen, and then it broke.
    Partial,
}

/// What follows a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Follows {
    /// Another try of the same target, on the same key.
    SameTarget,
    /// The next target.
    NextTarget,
    /// No other target or send is left: the round is over.
    RoundOver,
    /// The operation ends.
    Stop(Stop),
}

/// A kind of failure and what follows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Move {
    /// The failure.
    pub failure: Failure,
    /// Typical statuses that carry it and are not listed by themselves.
    pub statuses: Vec<u16>,
    /// What follows at the first candidate.
    pub first: Follows,
    /// What follows when the first candidate has no extra try left, and at the others.
    pub then: Follows,
}

impl Move {
    /// The failure for people.
    pub fn phrase(&self) -> String {
        let statuses: Vec<String> = self.statuses.iter().map(u16::to_string).collect();
        match statuses.as_slice() {
            [] => self.failure.phrase(),
            statuses => format!("{}: {}", statuses.join(", "), self.failure.phrase()),
        }
    }
}

impl Failure {
    const ALL: [Failure; 11] = [
        Failure::NotDelivered,
        Failure::Rejected,
        Failure::Throttle,
        Failure::StreamThrottle,
        Failure::HardQuota,
        Failure::ServerError,
        Failure::StreamError,
        Failure::Ambiguous,
        Failure::Auth,
        Failure::BadRequest,
        Failure::Partial,
    ];

    /// The value in JSON.
    pub fn label(self) -> String {
        match self {
            Failure::NotDelivered => "not_delivered".to_owned(),
            Failure::Rejected => "rejected".to_owned(),
            Failure::Throttle => "uncertified_throttle".to_owned(),
            Failure::StreamThrottle => "stream_throttle".to_owned(),
            Failure::HardQuota => "hard_quota".to_owned(),
            Failure::ServerError => "http_5xx".to_owned(),
            Failure::StreamError => "stream_error".to_owned(),
            Failure::Ambiguous => "ambiguous".to_owned(),
            Failure::Auth => "auth".to_owned(),
            Failure::BadRequest => "bad_request".to_owned(),
            Failure::Listed(status) => format!("http_{status}"),
            Failure::Partial => "partial".to_owned(),
        }
    }

    fn phrase(self) -> String {
        match self {
            Failure::NotDelivered => "no connection: nothing was sent".to_owned(),
            Failure::Rejected => "throttle or overload, certified".to_owned(),
            Failure::Throttle => "throttle or overload, not certified".to_owned(),
            Failure::StreamThrottle => "throttle in a stream, no output yet".to_owned(),
            Failure::HardQuota => "quota used up".to_owned(),
            Failure::ServerError => "failure inside the provider".to_owned(),
            Failure::StreamError => "other error in a stream, no output".to_owned(),
            Failure::Ambiguous => "broke off or timed out after sending".to_owned(),
            Failure::Auth => "credential refused".to_owned(),
            Failure::BadRequest => "request refused".to_owned(),
            Failure::Listed(status) => format!("{status}: in fallback_http_statuses"),
            Failure::Partial => "broke off after output".to_owned(),
        }
    }

    /// Statuses that carry it; empty when it has none of its own.
    const fn statuses(self) -> &'static [u16] {
        match self {
            Failure::Throttle => &[429, 529],
            Failure::HardQuota => &[429],
            Failure::ServerError => &[500, 502, 503, 504],
            Failure::Auth => &[401, 403],
            Failure::BadRequest => &[400, 404, 413, 422],
            Failure::StreamThrottle
            | Failure::StreamError
            | Failure::NotDelivered
            | Failure::Rejected
            | Failure::Ambiguous
            | Failure::Listed(_)
            | Failure::Partial => &[],
        }
    }

    /// The report of such an attempt. A certified rejection has none here, since a certificate cannot be made up.
    fn report(self, status: Option<u16>) -> Option<AttemptReport> {
        let (outcome, class, scope, carrier) = match self {
            Failure::Rejected => return None,
            Failure::NotDelivered => (
                Outcome::NotDelivered,
                Class::Transport,
                Scope::Candidate,
                Carrier::None,
            ),
            Failure::Throttle => (
                Outcome::Refused,
                Class::Throttle,
                Scope::Credential,
                Carrier::Status,
            ),
            Failure::StreamThrottle => (
                Outcome::Refused,
                Class::Throttle,
                Scope::Credential,
                Carrier::Stream,
            ),
            Failure::HardQuota => (
                Outcome::Refused,
                Class::QuotaHard,
                Scope::Credential,
                Carrier::Status,
            ),
            Failure::ServerError => (
                Outcome::Refused,
                Class::ServerError,
                Scope::Candidate,
                Carrier::Status,
            ),
            Failure::StreamError => (
                Outcome::Refused,
                Class::ServerError,
                Scope::Candidate,
                Carrier::Stream,
            ),
            Failure::Ambiguous => (
                Outcome::Ambiguous,
                Class::Transport,
                Scope::Candidate,
                Carrier::None,
            ),
            Failure::Auth => (
                Outcome::Refused,
                Class::Auth,
                Scope::Credential,
                Carrier::Status,
            ),
            Failure::BadRequest | Failure::Listed(_) => (
                Outcome::Refused,
                Class::Config,
                Scope::Candidate,
                Carrier::Status,
            ),
            Failure::Partial => (
                Outcome::Partial,
                Class::Transport,
                Scope::Candidate,
                Carrier::Stream,
            ),
        };
        let status = status.or(match self {
            Failure::Listed(status) => Some(status),
            Failure::StreamThrottle => Some(429),
            Failure::StreamError => Some(500),
            _ => None,
        });
        Some(AttemptReport {
            outcome,
            class,
            scope,
            carrier,
            status,
            pushback: None,
            reply: None,
        })
    }
}

/// What follows each kind of failure on a route.
pub(super) fn moves(routing: &Routing, reach: usize) -> Vec<Move> {
    let listed = routing
        .fallback
        .statuses
        .iter()
        .map(|status| Failure::Listed(*status));
    let kinds = Failure::ALL.into_iter().chain(listed);
    kinds
        .filter_map(|failure| movement(routing, reach, failure))
        .collect()
}

/// `None` when every status of the failure is listed by itself.
fn movement(routing: &Routing, reach: usize, failure: Failure) -> Option<Move> {
    let statuses = failure.statuses();
    let is_listed = |status: &u16| routing.fallback.statuses.contains(status);
    let own: Vec<u16> = statuses
        .iter()
        .copied()
        .filter(|status| !is_listed(status))
        .collect();
    let status = own.first().copied();
    if status.is_none() && !statuses.is_empty() {
        return None;
    }
    let has_next = reach > 1 && routing.attempts_max > 1;
    let attempts_left = routing.attempts_max.saturating_sub(1);
    let sends_left = routing.sends_allowed().saturating_sub(1);
    let Some(report) = failure.report(status) else {
        let then = match has_next && sends_left > 0 {
            true => Follows::NextTarget,
            false => Follows::RoundOver,
        };
        return Some(Move {
            failure,
            statuses: own,
            first: then,
            then,
        });
    };
    let follows = |sticky_left| {
        let decision = decide(&Facts {
            report: &report,
            round: Round::First,
            commitment: Commitment::Open,
            draining: false,
            deadline_passed: false,
            slow: false,
            failover_over: false,
            sends_left,
            budget_left: true,
            attempts_left,
            sticky_left,
            has_next,
            next_limited: false,
            // Keys and own retries stay with the target; they are told for each candidate.
            has_next_key: false,
            pool_moves_on: false,
            retry_pause: None,
            fallback: &routing.fallback,
        });
        match decision {
            Decision::SameTarget | Decision::NextKey | Decision::Retry(_) => Follows::SameTarget,
            Decision::NextTarget => Follows::NextTarget,
            // No failure is accepted; if it were, nothing would follow.
            Decision::Accept | Decision::RoundOver => Follows::RoundOver,
            Decision::Stop(stop) => Follows::Stop(stop),
        }
    };
    let (first, then) = (follows(routing.sticky_tries.saturating_sub(1)), follows(0));
    Some(Move {
        failure,
        statuses: own,
        first,
        then,
    })
}

/// What ends the operation, in sentences.
pub(super) fn ends(routing: &Routing, budgets: &Budgets, asked: &Asked) -> Vec<String> {
    let mut ends = Vec::new();
    ends.push(match asked.stream {
        true => "a good answer: its stream is passed on from the first output".to_owned(),
        false => "a good answer".to_owned(),
    });
    ends.push("a failure above that stops; its own status and body are passed on".to_owned());
    ends.push("no target left in the round, and no second round".to_owned());
    ends.push(format!("{} sends were made", budgets.sends_allowed));
    let deadline = span(budgets.deadline);
    ends.push(format!(
        "the deadline, {deadline} after the request came, if no answer has begun"
    ));
    if let Some(within) = budgets.fail_within {
        let within = span(within);
        ends.push(format!(
            "a failure later than {within} after its attempt began"
        ));
    }
    if let Some(within) = budgets.failover_within {
        let within = span(within);
        ends.push(format!(
            "a failure later than {within} after the request came"
        ));
    }
    ends.push("a failure when the route has no extra send left for any operation".to_owned());
    ends.push(match routing.on_client_disconnect {
        OnDisconnect::Abort => "the client leaves: the upstream is closed at once".to_owned(),
        OnDisconnect::Drain => {
            "the client leaves: the answer is read on within a bound, for its usage".to_owned()
        }
    });
    ends.push("the gateway drains: no second send is begun".to_owned());
    ends
}

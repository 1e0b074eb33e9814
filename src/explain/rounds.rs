//! Whether there can be a second round (R-S3, R-S5 to R-S13), and if not why.
//!
//! Not here: the permission itself, which is [`second_round`](crate::core::decision::second_round) of the facts when a round is over.
//! Only what is known beforehand is told; the rest is listed as what it needs.

use std::cmp::Reverse;

use super::ask::Asked;
use super::budgets::{count, deadline, millis, span};
use super::places::Candidate;
use crate::core::limits::{
    ATTEMPT_ALLOWANCE_MIN, WAITERS_PER_ROUTE_MAX, WAITING_BYTES_PER_ROUTE_MAX,
};
use crate::core::suppression::Suppression;
use crate::policy::route::Route;
use crate::policy::routing::{Exhaustion, Mode};

/// Whether a second round can follow the first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Possible {
    /// If the first ends as it must for that.
    Yes,
    /// Only if targets were passed over in the first because they cooled.
    OnlyWhenCooling,
    /// Never.
    No,
}

impl Possible {
    /// The value in JSON.
    pub const fn label(self) -> &'static str {
        match self {
            Possible::Yes => "yes",
            Possible::OnlyWhenCooling => "only_when_cooling",
            Possible::No => "no",
        }
    }
}

/// What speaks against a second round.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Objection {
    /// A suppression reason, or `off`, `max_rounds_0`, `primary_only`, `no_candidate`.
    pub reason: &'static str,
    /// How far it goes.
    pub leaves: Possible,
    /// A sentence.
    pub why: String,
}

/// The second round of such a request.
#[derive(Debug, Clone)]
pub struct SecondRound {
    /// Whether there can be one.
    pub possible: Possible,
    /// What speaks against it, the strongest first; empty when it is possible.
    pub objections: Vec<Objection>,
    /// What must hold at the end of the first round; empty when there can be no second.
    pub needs: Vec<String>,
}

/// Judges the second round.
pub(super) fn second_round(
    route: &Route,
    asked: &Asked,
    candidates: &[Candidate],
    reach: usize,
) -> SecondRound {
    let exhaustion = match configured(route, candidates) {
        Ok(exhaustion) => exhaustion,
        Err(objection) => {
            let (possible, objections) = (objection.leaves, vec![objection]);
            return SecondRound {
                possible,
                objections,
                needs: Vec::new(),
            };
        }
    };
    let mut objections = of_request(route, asked, reach);
    objections.sort_by_key(|objection| Reverse(objection.leaves));
    let possible = objections
        .first()
        .map_or(Possible::Yes, |first| first.leaves);
    let needs = match possible {
        Possible::No => Vec::new(),
        Possible::Yes | Possible::OnlyWhenCooling => needs(&exhaustion),
    };
    SecondRound {
        possible,
        objections,
        needs,
    }
}

fn configured(route: &Route, candidates: &[Candidate]) -> Result<Exhaustion, Objection> {
    let no = |reason, why: &str| {
        Err(Objection {
            reason,
            leaves: Possible::No,
            why: why.to_owned(),
        })
    };
    let Some(exhaustion) = route.routing.exhaustion else {
        return no(
            "off",
            "routing.exhaustion_retry is absent, so there is one round",
        );
    };
    if exhaustion.rounds_max < 2 {
        return no(
            "max_rounds_0",
            "exhaustion_retry.max_rounds is 0: explicitly off",
        );
    }
    if route.routing.mode == Mode::PrimaryOnly {
        return no(
            "primary_only",
            "mode primary_only has no rounds over targets",
        );
    }
    if candidates.is_empty() {
        return no("no_candidate", "no target can serve the request");
    }
    Ok(exhaustion)
}

/// What the request itself has against it, in the order in which the executor asks.
fn of_request(route: &Route, asked: &Asked, reach: usize) -> Vec<Objection> {
    let mut found = Vec::new();
    let mut object = |reason: Suppression, leaves, why: String| {
        found.push(Objection {
            reason: reason.label(),
            leaves,
            why,
        });
    };
    let first_pass = route.routing.attempts_max.min(count(reach));
    if asked.side_effects {
        let why =
            "the request lets the provider act on its own, so no rejection of it is certified";
        object(
            Suppression::NotThrottled,
            Possible::OnlyWhenCooling,
            why.to_owned(),
        );
    }
    if let Some(binding) = asked.binding {
        let why = format!("the request is bound to provider state ({binding})");
        object(Suppression::StateBound, Possible::No, why);
    }
    if asked.caller_retry {
        let why = "the client says that this request is its own retry (x-stainless-retry-count)";
        object(Suppression::CallerRetry, Possible::No, why.to_owned());
    }
    let sends = route.routing.sends_allowed();
    if sends <= first_pass {
        let why = format!("the first round may use all {sends} sends");
        object(Suppression::SendBudget, Possible::OnlyWhenCooling, why);
    }
    let deadline = deadline(route, asked);
    if deadline < ATTEMPT_ALLOWANCE_MIN {
        let why = format!(
            "the deadline of {} ms leaves no {} ms for an attempt after a wait",
            millis(deadline),
            millis(ATTEMPT_ALLOWANCE_MIN)
        );
        object(Suppression::Deadline, Possible::No, why);
    }
    found
}

fn needs(exhaustion: &Exhaustion) -> Vec<String> {
    let (wait, allowance) = (span(exhaustion.wait_max), span(ATTEMPT_ALLOWANCE_MIN));
    let mebibytes = WAITING_BYTES_PER_ROUTE_MAX >> 20;
    vec![
        "every attempt of round 1 is a certified throttle or overload, or a target that still cools"
            .to_owned(),
        format!("the earliest retry-after of its targets is at most {wait} (max_wait_ms)"),
        format!("that wait, its jitter and {allowance} fit the time left to the deadline"),
        "a send is left, and an extra send of the route".to_owned(),
        format!("fewer than {WAITERS_PER_ROUTE_MAX} operations and {mebibytes} MiB wait on the route"),
        "the client is connected, and the gateway is not draining".to_owned(),
    ]
}

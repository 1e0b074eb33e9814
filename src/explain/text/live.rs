//! What holds at one moment, in words; or what only a running process knows.

use std::fmt::{self, Write};

use super::super::Explanation;
use super::super::budgets::span;
use super::super::live::{ProbeState, RouteState, TargetState};
use super::super::ranks::DecidedBy;
use crate::policy::scheduling::SchedulingMode;

/// What holds at the moment.
pub(super) fn now(out: &mut String, state: &TargetState) -> fmt::Result {
    let text = match state.passed_over {
        None => "free".to_owned(),
        Some(why) => format!("passed over: {why} for {}", span(state.free_in)),
    };
    let in_flight = state
        .in_flight
        .map(|sends| format!(", {sends} sends in flight"));
    writeln!(
        out,
        "     now       {text}{}",
        in_flight.unwrap_or_default()
    )?;
    if let Some(limits) = state.limits {
        let left = |left: Option<u64>| left.map_or("any".to_owned(), |left| left.to_string());
        let (requests, tokens) = (left(limits.requests_left), left(limits.tokens_left));
        let slots = left(limits.concurrent_left);
        writeln!(
            out,
            "     left      requests {requests}, tokens {tokens}, at once {slots}"
        )?;
    }
    if state.healthy == Some(false) {
        writeln!(
            out,
            "     health    its provider does not answer its health checks"
        )?;
    }
    for key in state.keys.iter().filter(|key| key.probe.is_some()) {
        let name = key.key.as_deref().unwrap_or("no key");
        let probe = match key.probe {
            Some(ProbeState::UnderWay) => "one attempt tries it again; others come last",
            Some(ProbeState::Due) | None => "its next attempt tries it again, alone",
        };
        writeln!(out, "               {name}: {probe}")?;
    }
    for key in state.keys.iter().filter(|key| !key.left.is_zero()) {
        let name = key.key.as_deref().unwrap_or("no key");
        writeln!(
            out,
            "               {name}: {} for {}",
            key.state,
            span(key.left)
        )?;
    }
    Ok(())
}

pub(super) fn at_the_moment(out: &mut String, state: &RouteState) -> fmt::Result {
    let next: Vec<&str> = state.next.iter().map(|next| &*next.target).collect();
    let next = match next.as_slice() {
        [] => "no target is free".to_owned(),
        next => format!("tried next: {}", next.join(", ")),
    };
    let (waiting, room) = state.waiting;
    writeln!(
        out,
        "\nNow (generation {}): {next}; {waiting} of {room} wait; {} extra sends left",
        state.generation, state.retry_budget.left
    )?;
    match &state.limited_at {
        Some(target) => writeln!(
            out,
            "Then the limits of {target} end it: the route does not skip such"
        ),
        None => Ok(()),
    }
}

/// What a running process would know beside.
pub(super) fn not_known(out: &mut String, explanation: &Explanation) -> fmt::Result {
    writeln!(
        out,
        "\nNot known here: which targets cool at this moment. Those are passed over without a send."
    )?;
    let is_set = |key: &str, value: &str| {
        let mut modes = explanation.policy.modes.iter();
        modes.any(|mode| mode.key == key && mode.value == value)
    };
    if is_set("scheduling_mode", SchedulingMode::CacheAffinity.label()) {
        writeln!(
            out,
            "Nor whose last good answer came from where: that candidate goes first."
        )?;
    }
    if explanation
        .ranks
        .iter()
        .any(|rank| rank.decided_by == DecidedBy::Chance)
    {
        writeln!(
            out,
            "Nor how a draw falls: the order of equals is one of many."
        )?;
    }
    writeln!(
        out,
        "A running gateway tells: GET /admin/api/explain?model=..."
    )
}

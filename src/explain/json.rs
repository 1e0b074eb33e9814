//! The explanation as JSON. Keys are stable: scripts read them.

use std::time::Duration;

use serde_json::{Value, json};

use super::budgets::millis;
use super::live::{Memory, NextTry, ProbeState, RouteState, TargetState};
use super::moves::{Follows, Move};
use super::places::{Candidate, Excluded};
use super::policy::{RuleTold, Verdict};
use super::ranks::Rank;
use super::{Asked, Budgets, Explanation, Mode, Policy, SecondRound, WorstCase};
use crate::policy::provider::Ownership;
use crate::policy::route::ModelPattern;

/// The explanation as JSON.
pub fn to_json(explanation: &Explanation) -> Value {
    let candidates = explanation.candidates.iter().enumerate();
    json!({
        "servable": explanation.is_servable(),
        "request": request(&explanation.asked),
        "route": {
            "name": *explanation.route,
            "matched": match &explanation.pattern {
                ModelPattern::Exact(_) => "exact",
                ModelPattern::Prefix(_) => "prefix",
            },
            "pattern": explanation.pattern.text(),
        },
        "policy": policy(&explanation.policy),
        "candidates": candidates.map(|(index, entry)| candidate(index + 1, entry)).collect::<Value>(),
        "ranks": explanation.ranks.iter().map(rank).collect::<Value>(),
        "excluded": explanation.excluded.iter().map(excluded).collect::<Value>(),
        "budgets": budgets(&explanation.budgets),
        "moves": explanation.moves.iter().map(movement).collect::<Value>(),
        "ends": explanation.ends,
        "second_round": second_round(&explanation.second_round),
        "worst_case": worst_case(&explanation.worst_case),
        "live": explanation.live.as_ref().map(live),
    })
}

fn request(asked: &Asked) -> Value {
    json!({
        "model": asked.model,
        "api": asked.api.label(),
        "api_chosen": asked.because.label(),
        "api_why": asked.because.phrase(),
        "stream": asked.stream,
        "body_bytes": asked.body_bytes,
        "estimated_tokens": asked.tokens,
        "body_model": asked.body_model,
        "binding": asked.binding,
        "side_effects": asked.side_effects,
        "caller_retry": asked.caller_retry,
        "client_timeout_ms": asked.client_timeout.map(millis),
    })
}

fn policy(policy: &Policy) -> Value {
    let modes = policy.modes.iter().map(|mode| {
        let Mode { key, value, origin } = mode;
        let told = json!({ "value": value, "from": origin.text() });
        ((*key).to_owned(), told)
    });
    let values = policy.values.iter().map(|setting| {
        let told = json!({ "value": setting.value, "from": setting.origin.text() });
        (setting.key.to_owned(), told)
    });
    let applied = policy.applied().map(|name| &**name);
    let client = &policy.client;
    json!({
        "profile": *policy.profile,
        "modes": Value::Object(modes.collect()),
        "values": Value::Object(values.collect()),
        "rules": applied.collect::<Vec<_>>(),
        "rules_not_applied": policy.rules.iter().filter_map(not_applied).collect::<Value>(),
        "client_key": client.key.as_deref(),
        "client_shows_credential": client.has_credential,
        "client_refused": client.refused,
    })
}

fn not_applied(rule: &RuleTold) -> Option<Value> {
    let (condition, why) = match &rule.verdict {
        Verdict::Applies => return None,
        Verdict::Unmet(unmet, why) => (unmet.label(), why.clone()),
        Verdict::AfterStop(by) => ("stop", format!("rule {by} stops")),
    };
    Some(json!({ "rule": *rule.name, "condition": condition, "why": why }))
}

fn rank(rank: &Rank) -> Value {
    json!({
        "priorities": rank.priorities,
        "places": rank.places,
        "targets": rank.targets.iter().map(|name| &**name).collect::<Vec<_>>(),
        "decided_by": rank.decided_by.label(),
        "why": rank.why,
    })
}

fn live(state: &RouteState) -> Value {
    let (from, followed) = match &state.memory {
        Memory::Remembered { from, followed } => (from.as_ref().map(next_try), Some(*followed)),
        Memory::Off | Memory::NoClient | Memory::Nothing => (None, None),
    };
    json!({
        "generation": state.generation,
        "next": state.next.iter().map(next_try).collect::<Value>(),
        "limited_at": state.limited_at.as_deref(),
        "retry_budget": { "left": state.retry_budget.left, "charged": state.retry_budget.charged },
        "waiting": state.waiting.0,
        "waiting_max": state.waiting.1,
        "waiting_bytes": state.waiting_bytes.0,
        "waiting_bytes_max": state.waiting_bytes.1,
        "affinity": { "state": state.memory.label(), "last": from, "followed": followed },
    })
}

fn next_try(next: &NextTry) -> Value {
    json!({ "target": *next.target, "key": next.key.as_deref() })
}

fn target_state(state: &TargetState) -> Value {
    let keys = state.keys.iter().map(|key| {
        json!({ "key": key.key.as_deref(), "state": key.state, "for_ms": left(key.left),
            "probe": key.probe.map(ProbeState::label) })
    });
    json!({
        "passed_over": state.passed_over,
        "free_in_ms": left(state.free_in),
        "in_flight": state.in_flight,
        "healthy": state.healthy,
        "limits": state.limits.map(|limits| json!({
            "requests_left": limits.requests_left,
            "tokens_left": limits.tokens_left,
            "concurrent_left": limits.concurrent_left,
            "exhausted": limits.is_exhausted,
            "room_in_ms": limits.room_in.map(left),
        })),
        "keys": keys.collect::<Value>(),
    })
}

/// Whole milliseconds, and none only when nothing is left.
fn left(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros().div_ceil(1000)).unwrap_or(u64::MAX)
}

fn candidate(place: usize, entry: &Candidate) -> Value {
    json!({
        "place": place,
        "reason": entry.reason,
        "arranged": entry.place.why.label(),
        "priority": entry.place.priority,
        "tried": entry.is_tried.label(),
        "target": *entry.target,
        "provider": *entry.provider,
        "adapter": entry.adapter,
        "model": entry.model,
        "model_from": if entry.model_is_clients { "client" } else { "target" },
        "method": "POST",
        "base": entry.base,
        "path": entry.path,
        "key": entry.keys.first().map(|key| &**key),
        "keys": entry.keys.iter().map(|key| &**key).collect::<Vec<_>>(),
        "key_places": entry.key_places.iter().map(|place| {
            json!({ "key": *place.key, "priority": place.priority, "reason": place.reason })
        }).collect::<Value>(),
        "keys_left_out": entry.keys_left_out.iter().map(|(key, why)| {
            json!({ "key": **key, "reason": why.label() })
        }).collect::<Value>(),
        "identity": entry.identity,
        "ownership": match entry.ownership {
            Ownership::External => "external",
            Ownership::Internal => "internal",
        },
        "retry": entry.retry.map(|retry| json!({
            "max_attempts": retry.attempts_max,
            "max_elapsed_ms": millis(retry.elapsed_max),
            "base_delay_ms": millis(retry.delay_base),
            "max_delay_ms": millis(retry.delay_max),
        })),
        "tries_max": entry.tries,
        "certified_statuses": entry.certified,
        "timeouts": {
            "connect_ms": millis(entry.timeouts.connect),
            "first_byte_ms": millis(entry.timeouts.first_byte),
            "idle_ms": millis(entry.timeouts.idle),
            "total_ms": millis(entry.timeouts.total),
        },
        "live": entry.now.as_ref().map(target_state),
    })
}

fn excluded(entry: &Excluded) -> Value {
    json!({
        "target": *entry.target,
        "provider": *entry.provider,
        "reason": entry.reason.label(),
        "why": entry.reason.sentence(),
        "rule": entry.rule.as_deref(),
        "speaks": entry.speaks,
    })
}

fn budgets(budgets: &Budgets) -> Value {
    json!({
        "max_target_attempts": budgets.attempts_max,
        "max_upstream_sends": budgets.sends_max,
        "max_retries": budgets.tries_max.map(|tries| tries.saturating_sub(1)),
        "sends_allowed": budgets.sends_allowed,
        "sticky_key_attempts": budgets.sticky_tries,
        "retry_on_failure_within_ms": budgets.fail_within.map(millis),
        "max_failover_elapsed_ms": budgets.failover_within.map(millis),
        "retry_budget": { "percent": budgets.retry_terms.0, "floor_per_second": budgets.retry_terms.1 },
        "route_deadline_ms": millis(budgets.route_deadline),
        "deadline_ms": millis(budgets.deadline),
        "max_wait_ms": budgets.wait_max.map(millis),
    })
}

fn movement(entry: &Move) -> Value {
    json!({
        "failure": entry.failure.label(),
        "statuses": entry.statuses,
        "first": follows(entry.first),
        "then": follows(entry.then),
        "stop_reason": match entry.first {
            Follows::Stop(stop) => Some(stop.label()),
            Follows::SameTarget | Follows::NextTarget | Follows::RoundOver => None,
        },
    })
}

const fn follows(follows: Follows) -> &'static str {
    match follows {
        Follows::SameTarget => "same_target",
        Follows::NextTarget => "next_target",
        Follows::RoundOver => "round_over",
        Follows::Stop(_) => "stop",
    }
}

fn second_round(second: &SecondRound) -> Value {
    let objections = second.objections.iter().map(|objection| {
        json!({ "reason": objection.reason, "leaves": objection.leaves.label(), "why": objection.why })
    });
    json!({
        "possible": second.possible.label(),
        "reason": second.objections.first().map(|objection| objection.reason),
        "objections": objections.collect::<Value>(),
        "needs": second.needs,
    })
}

fn worst_case(worst: &WorstCase) -> Value {
    json!({
        "sends": worst.sends,
        "rounds": worst.rounds,
        "answer_begins_within_ms": millis(worst.until_answer),
        "by_timeouts_ms": millis(worst.by_timeouts),
        "answer_ends_within_ms": millis(worst.until_end),
    })
}

//! Where each target of the route stands: its place among the candidates and why, or why it is none.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::ask::Asked;
use super::key_places::{KeyPlace, KeyPlaces};
use super::live::{Live, TargetState, all_unhealthy, target_state};
use crate::core::api::Api;
use crate::policy::ordering::{self, Exclusion, InFull, KeyExclusion, Place, Why};
use crate::policy::provider::{Ownership, Provider, RetryRules, Timeouts};
use crate::policy::route::{Route, Target};
use crate::policy::routing::Mode;
use crate::policy::scheduling::{HashOn, PriorityMode};
use crate::policy::snapshot::Snapshot;
use crate::providers::inbound::Version;
use crate::providers::registry;
use crate::providers::request_style::{PathParts, RequestStyle, target_path};
use crate::providers::rules::Proof;

/// A target that can serve the request.
#[derive(Debug, Clone)]
pub struct Candidate {
    /// The target's name.
    pub target: Arc<str>,
    /// Its provider's name.
    pub provider: Arc<str>,
    /// Its provider's adapter.
    pub adapter: &'static str,
    /// The model that is asked of the provider.
    pub model: String,
    /// Whether that is the client's own, since the target names none.
    pub model_is_clients: bool,
    /// Scheme, authority and path prefix of the provider; `None` when a script embedded in the gateway answers.
    pub base: Option<String>,
    /// Path and query at the provider.
    pub path: String,
    /// What is shown to the provider in place of a key, in words.
    pub identity: Option<String>,
    /// Names of the keys that may be used, in order; the secrets are never here.
    pub keys: Vec<Arc<str>>,
    /// The same keys, with what puts each in its place.
    pub key_places: Vec<KeyPlace>,
    /// Names of the keys that may not, and why.
    pub keys_left_out: Vec<(Arc<str>, KeyExclusion)>,
    /// What arranged it, and by which priority it was sorted.
    pub place: Place,
    /// Who owns retries.
    pub ownership: Ownership,
    /// The gateway's own retries at this provider.
    pub retry: Option<RetryRules>,
    /// Statuses with which the provider can prove that the request did not run.
    pub certified: Vec<u16>,
    /// Limits of one attempt.
    pub timeouts: Timeouts,
    /// Total tries in the first round.
    pub tries: u32,
    /// Whether it can be tried at all.
    pub is_tried: Tried,
    /// Why it stands in this place.
    pub reason: String,
    /// What holds for it at the moment, if a running process is asked.
    pub now: Option<TargetState>,
}

/// Whether a candidate can be tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tried {
    /// In its turn.
    InTurn,
    /// Only when an earlier candidate is passed over.
    WhenOthersCool,
    /// Never: the operation stays with the first.
    Never,
}

impl Tried {
    /// The value in JSON.
    pub const fn label(self) -> &'static str {
        match self {
            Tried::InTurn => "in_turn",
            Tried::WhenOthersCool => "when_others_cool",
            Tried::Never => "never",
        }
    }
}

/// A target that cannot serve the request.
#[derive(Debug, Clone)]
pub struct Excluded {
    /// The target's name.
    pub target: Arc<str>,
    /// Its provider's name.
    pub provider: Arc<str>,
    /// Why.
    pub reason: Exclusion,
    /// The rule that restricts the request, if that is why.
    pub rule: Option<Arc<str>>,
    /// The API formats that its provider speaks.
    pub speaks: Vec<&'static str>,
}

/// How many candidates the operation may move over; the executor's plan has the same rule.
pub(super) fn reach(route: &Route, asked: &Asked, candidates: usize) -> usize {
    let alone = asked.binding.is_some() || route.routing.mode == Mode::PrimaryOnly;
    if alone { candidates.min(1) } else { candidates }
}

/// Candidates in order, and the targets that are none.
pub(super) fn places(
    snapshot: &Snapshot,
    route: &Route,
    asked: &Asked,
    found: &InFull<'_>,
    live: Option<Live>,
) -> (Vec<Candidate>, Vec<Excluded>) {
    let turns = Turns {
        route,
        asked,
        found,
        by_format: found
            .excluded
            .iter()
            .all(|(_, why)| *why == Exclusion::ApiFormat),
        is_plain: found
            .ordered
            .candidates
            .iter()
            .all(|c| c.place.priority == 0),
    };
    let ordered = &found.ordered.candidates;
    let within = ordered.iter().take(reach(route, asked, ordered.len()));
    let ignore_health = all_unhealthy(within.filter_map(|entry| route.targets.get(entry.target)));
    let state = |target: &Target, keys: &[usize], live: Live| {
        target_state(target, keys, asked.tokens, ignore_health, live.now)
    };
    let mut candidates = Vec::new();
    for (place, entry) in found.ordered.candidates.iter().enumerate() {
        let Some((target, provider)) = target_of(snapshot, route, entry.target) else {
            continue;
        };
        let key_names = |keys: &[usize]| -> Vec<Arc<str>> {
            let keys = keys.iter().filter_map(|key| provider.keys.get(*key));
            keys.map(|key| Arc::clone(&key.name)).collect()
        };
        let left_out = found.keys_excluded.iter();
        let left_out = left_out.filter(|(of, _, _)| *of == entry.target);
        let left_out = left_out.filter_map(|(_, key, why)| {
            let key = provider.keys.get(*key)?;
            Some((Arc::clone(&key.name), *why))
        });
        // An operation that is bound to state stays with the first key.
        let reachable = match asked.binding {
            Some(_) => entry.keys.get(..1).unwrap_or_default(),
            None => &entry.keys,
        };
        let key_places = KeyPlaces {
            asked,
            found,
            target,
            provider,
        };
        candidates.push(Candidate {
            keys: key_names(reachable),
            key_places: key_places.of(entry, reachable),
            now: live.map(|live| state(target, reachable, live)),
            keys_left_out: left_out.collect(),
            place: entry.place,
            ..turns.candidate(target, provider, (place, entry))
        });
    }
    let excluded = found.excluded.iter().filter_map(|(position, reason)| {
        let (target, provider) = target_of(snapshot, route, *position)?;
        Some(Excluded {
            target: Arc::clone(&target.name),
            provider: Arc::clone(&provider.name),
            reason: *reason,
            rule: match reason {
                Exclusion::Restricted => found.applied.restricting(*position).map(Arc::clone),
                _ => None,
            },
            speaks: provider.speaks.iter().map(|api| api.label()).collect(),
        })
    });
    (candidates, excluded.collect())
}

fn target_of<'s>(
    snapshot: &'s Snapshot,
    route: &'s Route,
    position: usize,
) -> Option<(&'s Target, &'s Provider)> {
    let target = route.targets.get(position)?;
    Some((target, snapshot.provider(target.provider)?))
}

/// Tries of a target in one round beside sticky ones: by its provider's own retries, and one more for each further key of the pool.
pub(super) fn own_tries(retry: Option<RetryRules>, keys: usize) -> u32 {
    let further = u32::try_from(keys.saturating_sub(1)).unwrap_or(u32::MAX);
    retry
        .map_or(1, |retry| retry.attempts_max)
        .saturating_add(further)
}

/// What every place of a route is told from.
struct Turns<'a> {
    route: &'a Route,
    asked: &'a Asked,
    found: &'a InFull<'a>,
    /// Whether nothing but the API format leaves targets out.
    by_format: bool,
    /// Whether no priority was set anywhere.
    is_plain: bool,
}

impl Turns<'_> {
    fn candidate(
        &self,
        target: &Target,
        provider: &Provider,
        (place, entry): (usize, &ordering::Candidate),
    ) -> Candidate {
        let (route, asked) = (self.route, self.asked);
        let model = target.model.as_deref().unwrap_or(&asked.model);
        let query = asked
            .verb
            .is_some_and(|verb| verb.streams())
            .then_some("alt=sse");
        let version = if asked.api == Api::Gemini {
            Version::V1beta
        } else {
            Version::V1
        };
        let style = registry::find(provider.adapter).map_or(RequestStyle::Native, |a| a.style);
        let parts = PathParts {
            api: asked.api,
            verb: asked.verb,
            version,
            base_path: &provider.base.path,
            model,
            stream: asked.stream,
            query,
        };
        let path = target_path(style, &provider.azure, &parts);
        let scheme = if provider.base.tls { "https" } else { "http" };
        let (is_tried, reason) = self.turn(place, entry);
        let extra = if place == 0 {
            route.routing.sticky_tries.saturating_sub(1)
        } else {
            0
        };
        let reachable = match asked.binding {
            Some(_) => 1,
            None => entry.keys.len(),
        };
        let own = own_tries(provider.retry, reachable);
        Candidate {
            target: Arc::clone(&target.name),
            provider: Arc::clone(&provider.name),
            adapter: provider.adapter,
            model: model.to_owned(),
            model_is_clients: target.model.is_none(),
            base: provider
                .mock
                .is_none()
                .then(|| format!("{scheme}://{}", provider.base.authority)),
            path,
            identity: provider.identity.phrase(),
            keys: Vec::new(),
            key_places: Vec::new(),
            now: None,
            keys_left_out: Vec::new(),
            place: entry.place,
            ownership: provider.ownership,
            retry: provider.retry,
            certified: certified(asked, provider),
            timeouts: provider.timeouts,
            tries: own.saturating_add(extra),
            is_tried,
            reason,
        }
    }

    /// Whether a candidate is tried, and why it stands in its place.
    fn turn(&self, place: usize, entry: &ordering::Candidate) -> (Tried, String) {
        let (asked, routing) = (self.asked, &self.route.routing);
        let order = self.order(place, entry);
        if let Some(binding) = asked.binding {
            return match place {
                0 => (
                    Tried::InTurn,
                    format!("{order}; the only one, the request is bound to it ({binding})"),
                ),
                _ => (
                    Tried::Never,
                    format!("never tried: the request is bound to the first ({binding})"),
                ),
            };
        }
        let tried = u32::try_from(place).is_ok_and(|place| place < routing.attempts_max);
        if place == 0 || tried {
            return (Tried::InTurn, order);
        }
        let limit = routing.attempts_max;
        let reason = format!("beyond max_target_attempts {limit}: only if an earlier target cools");
        (Tried::WhenOthersCool, reason)
    }

    /// The rule that gave the target its priority.
    fn by_rule(&self, position: usize) -> String {
        match self.found.applied.prioritizing(position) {
            Some(rule) if self.found.scheduling.priority_mode == PriorityMode::Provider => {
                format!(" by rule {rule}")
            }
            _ => String::new(),
        }
    }

    /// What put the candidate there.
    fn order(&self, place: usize, entry: &ordering::Candidate) -> String {
        let (position, priority) = (entry.target, entry.place.priority);
        let of_what = match self.found.scheduling.priority_mode {
            PriorityMode::Provider => "priority",
            PriorityMode::GlobalKey => "key priority",
        };
        let by_priority = match self.is_plain {
            true => String::new(),
            false => format!(", {of_what} {priority}"),
        };
        match entry.place.why {
            Why::Configured if !self.is_plain => {
                format!("{of_what} {priority}{}", self.by_rule(position))
            }
            Why::Configured if place == 0 && position == 0 => {
                "first target of the route".to_owned()
            }
            Why::Configured if place == 0 && self.by_format => {
                format!("first target that speaks {}", self.asked.api)
            }
            Why::Configured if place == 0 => "first target that may serve it".to_owned(),
            Why::Configured => format!("next in the configured order ({})", position + 1),
            Why::Balanced => format!("one draw by weight and load{by_priority}"),
            Why::Hashed => {
                let on = self.found.scheduling.hash_on.as_ref().map(HashOn::text);
                let on = on.unwrap_or_default();
                format!("by consistent hashing of {on}{by_priority}")
            }
            Why::Affinity => "gave the same client's last good answer".to_owned(),
        }
    }
}

/// Statuses of the rows that certify, and those that the operator trusts. None when the provider may act before it rejects (R-A5).
fn certified(asked: &Asked, provider: &Provider) -> Vec<u16> {
    if asked.side_effects {
        return Vec::new();
    }
    let rules = registry::find(provider.adapter).map_or(&[][..], |adapter| adapter.rules);
    let proving = rules
        .iter()
        .copied()
        .flatten()
        .filter(|rule| rule.proof != Proof::None);
    let proving = proving.flat_map(|rule| rule.statuses);
    let statuses: BTreeSet<u16> = proving.chain(&provider.trust_status).copied().collect();
    statuses.into_iter().collect()
}

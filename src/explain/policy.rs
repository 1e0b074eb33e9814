//! What orders the candidates: the profile, the modes and where each came from, the rules that match.
//!
//! Not here: the order, which is [`ordering`]'s. A draw is told as one that could be; what is remembered of clients is not known here.

use std::sync::Arc;

use super::Request;
use super::ask::Asked;
use crate::core::api::ApiSet;
use crate::core::chance::Chance;
use crate::core::time::MonoTime;
use crate::policy::ordering::{self, Facts, InFull};
use crate::policy::route::Route;
use crate::policy::rules::{Action, Rule};
use crate::policy::scheduling::{HashOn, Origin};
use crate::policy::snapshot::Snapshot;
use crate::providers::client_headers::credentials;
use crate::providers::planning;

/// What orders the candidates of the request.
#[derive(Debug, Clone)]
pub struct Policy {
    /// The route's profile.
    pub profile: Arc<str>,
    /// The effective modes, and where each came from.
    pub modes: Vec<Mode>,
    /// Names of the rules that match, in the order in which they apply.
    pub rules: Vec<Arc<str>>,
    /// The name of the client's key, if the headers show one that is known.
    pub client_key: Option<Arc<str>>,
}

/// One effective value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mode {
    /// The key in the configuration.
    pub key: &'static str,
    /// Its value.
    pub value: String,
    /// Where it came from.
    pub origin: Origin,
}

/// The lowest of everything.
struct Lowest;

impl Chance for Lowest {
    fn below(&mut self, _bound: u64) -> u64 {
        0
    }
}

/// Orders the candidates of a request that is not sent.
pub(super) fn order<'r>(
    snapshot: &Snapshot,
    route: &'r Route,
    asked: &Asked,
    request: &Request<'_>,
) -> InFull<'r> {
    let get = |name: &str| {
        let found = request.headers.iter().find(|header| header.name() == name);
        found.map(|header| header.value().as_bytes())
    };
    let facts = Facts {
        api: asked.api,
        model: &asked.model,
        stream: asked.stream,
        counts_tokens: planning::counts_tokens(asked.api, asked.verb),
        is_bound: asked.binding.is_some(),
        client: snapshot.clients.identify(credentials(get, None)),
        header: &get,
        conversions: ApiSet::EMPTY,
        now: MonoTime::ZERO,
        wall: request.wall,
    };
    ordering::in_full(snapshot, route, &facts, &mut Lowest)
}

/// Tells of an order.
pub(super) fn told(route: &Route, found: &InFull<'_>) -> Policy {
    let scheduling = &found.applied.scheduling;
    let modes = [
        ("priority_mode", scheduling.priority_mode.label().to_owned()),
        (
            "scheduling_mode",
            scheduling.scheduling_mode.label().to_owned(),
        ),
        (
            "keep_priority_on_conversion",
            scheduling.keep_priority_on_conversion.to_string(),
        ),
        (
            "hash_on",
            scheduling
                .hash_on
                .as_ref()
                .map_or("none".to_owned(), HashOn::text),
        ),
        (
            "sticky_key_attempts",
            found.ordered.sticky_tries.to_string(),
        ),
    ];
    let modes = modes.into_iter().map(|(key, value)| Mode {
        key,
        value,
        origin: origin(route, found, key),
    });
    Policy {
        profile: Arc::clone(&route.policy.profile),
        modes: modes.collect(),
        rules: found
            .applied
            .matched()
            .map(|rule| Arc::clone(&rule.name))
            .collect(),
        client_key: found.client_key.clone(),
    }
}

/// The last rule that sets the key, else where the route has it from.
fn origin(route: &Route, found: &InFull<'_>, key: &str) -> Origin {
    let sets = |rule: &&Rule| {
        rule.actions.iter().any(|action| match action {
            Action::Schedule(modes) => match key {
                "priority_mode" => modes.priority_mode.is_some(),
                "scheduling_mode" => modes.scheduling_mode.is_some(),
                "keep_priority_on_conversion" => modes.keep_priority_on_conversion.is_some(),
                "sticky_key_attempts" => modes.sticky_tries.is_some(),
                _ => false,
            },
            Action::Restrict(_) | Action::TargetPriority { .. } | Action::KeyPriority { .. } => {
                false
            }
        })
    };
    if let Some(rule) = found.applied.matched().rev().find(sets) {
        return Origin::Rule(Arc::clone(&rule.name));
    }
    let mut origins = route.policy.origins.iter();
    let known = origins.find(|(of, _)| *of == key);
    known.map_or(Origin::Default, |(_, origin)| origin.clone())
}

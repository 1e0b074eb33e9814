//! What orders the candidates: the profile, every value and where it came from, the rules that match and those that do not.
//!
//! Not here: the order, which is [`ordering`]'s. A draw is told as one that could be. Invariant: of a header its name is told, never what
//! the request carries in it.

use std::sync::Arc;

use serde_json::Value;

use super::ask::Asked;
use super::{Live, Request, Unexplained};
use crate::config::effective_routing;
use crate::core::api::ApiSet;
use crate::core::chance::Chance;
use crate::core::time::MonoTime;
use crate::policy::ordering::{self, Client, Facts, InFull};
use crate::policy::route::Route;
use crate::policy::routing::Routing;
use crate::policy::rules::{Action, HeaderIs, HeaderValueIs, Rule, Unmet};
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
    /// Every key of `routing` with its effective value, in the order of the documentation.
    pub values: Vec<Setting>,
    /// The rules of the route, in the order in which they are looked at.
    pub rules: Vec<RuleTold>,
    /// Who asks.
    pub client: ClientTold,
}

impl Policy {
    /// Names of the rules that apply, in their order.
    pub fn applied(&self) -> impl Iterator<Item = &Arc<str>> {
        let applies = |rule: &&RuleTold| rule.verdict == Verdict::Applies;
        self.rules.iter().filter(applies).map(|rule| &rule.name)
    }
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

/// One effective value as the configuration would give it.
#[derive(Debug, Clone, PartialEq)]
pub struct Setting {
    /// The key in the configuration.
    pub key: &'static str,
    /// Its value.
    pub value: Value,
    /// Where it came from.
    pub origin: Origin,
}

/// A rule of the route, and what became of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuleTold {
    /// Its name.
    pub name: Arc<str>,
    /// Whether it applies.
    pub verdict: Verdict,
}

/// Whether a rule applies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// It does.
    Applies,
    /// A condition does not hold, and why.
    Unmet(Unmet, String),
    /// A rule before it says `stop`.
    AfterStop(Arc<str>),
}

/// Who asks, as far as it is known without any secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientTold {
    /// The name of the client's key, if it is known.
    pub key: Option<Arc<str>>,
    /// Whether some credential is shown.
    pub has_credential: bool,
    /// Whether the gateway would refuse the client, whatever it asks.
    pub refused: bool,
}

/// An order, and what became of the rules.
pub(super) struct Order<'r> {
    pub found: InFull<'r>,
    rules: Vec<RuleTold>,
    client: ClientTold,
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
    live: Option<Live>,
) -> Result<Order<'r>, Unexplained> {
    let get = |name: &str| {
        let found = request.headers.iter().find(|header| header.name() == name);
        found.map(|header| header.value().as_bytes())
    };
    let client = match request.client_key {
        Some(name) => Client::Known(known_client(snapshot, name)?),
        None => snapshot.clients.identify(credentials(get, None)),
    };
    let facts = Facts {
        api: asked.api,
        model: &asked.model,
        stream: asked.stream,
        counts_tokens: planning::counts_tokens(asked.api, asked.verb),
        is_bound: asked.binding.is_some(),
        client,
        header: &get,
        conversions: ApiSet::EMPTY,
        now: live.map_or(MonoTime::ZERO, |live| live.now),
        wall: request.wall,
    };
    let client = ClientTold {
        key: match &facts.client {
            Client::Known(name) => Some(Arc::clone(name)),
            Client::Unknown(_) | Client::Absent => None,
        },
        has_credential: facts.client != Client::Absent,
        refused: snapshot.clients.required && facts.client.name().is_none(),
    };
    Ok(Order {
        found: ordering::in_full(snapshot, route, &facts, &mut Lowest),
        rules: rules(&route.policy.rules, &facts),
        client,
    })
}

fn known_client(snapshot: &Snapshot, name: &str) -> Result<Arc<str>, Unexplained> {
    let mut names = snapshot.clients.names();
    let found = names.find(|known| ***known == *name).map(Arc::clone);
    found.ok_or_else(|| Unexplained::UnknownClientKey {
        name: name.to_owned(),
        known: snapshot
            .clients
            .names()
            .map(|name| name.to_string())
            .collect(),
    })
}

/// What became of each rule. Which match is [`ordering`]'s to say as well, by the same conditions.
fn rules(rules: &[Rule], facts: &Facts<'_>) -> Vec<RuleTold> {
    let mut stopped: Option<Arc<str>> = None;
    let mut told = Vec::with_capacity(rules.len());
    for rule in rules {
        let verdict = match (&stopped, rule.when.unmet(facts)) {
            (Some(by), _) => Verdict::AfterStop(Arc::clone(by)),
            (None, Some(unmet)) => Verdict::Unmet(unmet, why_unmet(rule, unmet)),
            (None, None) => Verdict::Applies,
        };
        if verdict == Verdict::Applies && rule.stop {
            stopped = Some(Arc::clone(&rule.name));
        }
        let name = Arc::clone(&rule.name);
        told.push(RuleTold { name, verdict });
    }
    told
}

fn why_unmet(rule: &Rule, unmet: Unmet) -> String {
    let when = &rule.when;
    let wanted = match unmet {
        Unmet::Model => when
            .model
            .as_ref()
            .map(|model| format!("the model is not {}", model.text())),
        Unmet::Api => when
            .api
            .map(|api| format!("the format is not {}", api.label())),
        Unmet::Stream => when.stream.map(|stream| match stream {
            true => "no stream is asked for".to_owned(),
            false => "a stream is asked for".to_owned(),
        }),
        Unmet::ClientKey => {
            let name = when.client_key.as_deref();
            name.map(|name| format!("the client's key is not {name}"))
        }
        Unmet::Header => when.header.as_ref().map(why_header),
    };
    wanted.unwrap_or_default()
}

fn why_header(header: &HeaderIs) -> String {
    let name = &header.name;
    match &header.value {
        HeaderValueIs::Exact(value) => format!("header {name} is not {value:?}"),
        HeaderValueIs::Prefix(prefix) => format!("header {name} does not begin with {prefix:?}"),
        HeaderValueIs::Present => format!("header {name} is absent"),
        HeaderValueIs::Absent => format!("header {name} is there"),
    }
}

/// Tells of an order. `routing` is what holds with the rules.
pub(super) fn told(route: &Route, routing: &Routing, order: Order<'_>) -> Policy {
    let found = &order.found;
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
    let shown = effective_routing(routing, scheduling);
    let values = route.policy.origins.iter().map(|(key, _)| Setting {
        key,
        value: shown.get(key).cloned().unwrap_or_default(),
        origin: origin(route, found, key),
    });
    Policy {
        profile: Arc::clone(&route.policy.profile),
        modes: modes.collect(),
        values: values.collect(),
        rules: order.rules,
        client: order.client,
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

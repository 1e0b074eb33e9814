//! `routes`: public models, targets, and how well the targets of a route fit each other.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::Compiler;
use super::cells::Cells;
use super::profiles::Sources;
use super::providers::Entry;
use super::rules::{Known, small};
use crate::config::problem::{Spot, nearest};
use crate::config::reader::Map;
use crate::core::api::{Api, ApiSet};
use crate::policy::clients::ClientKeys;
use crate::policy::hash::stable;
use crate::policy::limits::LimitRules;
use crate::policy::provider::{Ownership, Provider};
use crate::policy::route::{ModelPattern, Route, Target, TargetKey};
use crate::policy::routing::{Mode, Routing};

/// What is unique over all routes.
#[derive(Default)]
struct Taken<'n> {
    names: BTreeSet<&'n str>,
    /// The route that claims a model, by the pattern's text.
    models: BTreeMap<&'n str, String>,
    /// Indexes of the providers that a target refers to.
    providers: BTreeSet<usize>,
}

impl Compiler<'_> {
    pub(super) fn routes(
        &mut self,
        root: &Map<'_>,
        providers: &[Entry],
        clients: &ClientKeys,
    ) -> Vec<Arc<Route>> {
        let mut cells = Cells::carried_over(self.previous);
        let mut taken = Taken::default();
        let profiles = self.profiles(root);
        let mut routes = Vec::new();
        for map in root.maps("routes") {
            let sources = self.sources(&map, &profiles);
            routes.push(self.route(&map, &sources, providers, &mut taken, &mut cells));
        }
        self.rules(root, &Known { providers, clients }, &mut routes);
        cells.loads(providers, &mut routes);
        for (index, entry) in providers.iter().enumerate() {
            if !taken.providers.contains(&index) {
                let message = "unused; no target of any route names this provider";
                self.report.warn(&entry.spot, message);
            }
        }
        routes.into_iter().map(Arc::new).collect()
    }

    fn route<'n>(
        &mut self,
        map: &Map<'n>,
        sources: &Sources<'n>,
        providers: &[Entry],
        taken: &mut Taken<'n>,
        cells: &mut Cells,
    ) -> Route {
        let name = map.text("name").unwrap_or_default();
        if !name.is_empty() && !taken.names.insert(name) {
            let message = format!("{name} is the name of two routes; names are unique");
            self.report.refuse(&map.at("name"), message);
        }
        let models = self.models(map, name, taken);
        let items = map.maps("targets");
        let mut targets = self.targets(&items, providers, taken);
        let provider_of = |target: &Target| providers.get(target.provider)?.provider.as_ref();
        for target in &mut targets {
            if let Some(provider) = provider_of(target) {
                target.id = stable(&[target.name.as_bytes(), provider.name.as_bytes()]);
                target.keys = cells.keys(provider, name, target);
                target.ownership = provider.ownership;
                target.retry = provider.retry;
                target.health = provider.health.clone();
            }
        }
        for (target, item) in targets.iter_mut().zip(&items) {
            let rules = item.given_map("limits").map(|limits| limit_rules(&limits));
            target.limits = rules.map(|rules| cells.limits(name, target, rules));
        }
        let used: Vec<Option<&Provider>> = targets.iter().map(provider_of).collect();
        if used.len() == items.len() {
            self.warn_about_formats(&items, &used);
        }
        let routing = self.routing(map, &sources.routing, items.len(), &used);
        self.warn_about_limits(&sources.routing, &items, &routing);
        Route {
            name: name.into(),
            models,
            routing,
            deadline: map.millis("deadline_ms"),
            waiters: cells.waiters(name),
            retry_budget: cells.retry_budget(name),
            targets,
            policy: sources.policy(),
            prepared: Vec::new(),
        }
    }

    fn models<'n>(
        &mut self,
        map: &Map<'n>,
        route: &str,
        taken: &mut Taken<'n>,
    ) -> Vec<ModelPattern> {
        let mut models = Vec::new();
        for item in map.texts("models") {
            let text = item.value;
            if let Some(other) = taken.models.get(text) {
                let message = match other.as_str() == route {
                    true => format!("{text} is listed twice in this route"),
                    false => {
                        format!("{text} already belongs to route {other}; a model has one route")
                    }
                };
                self.report.refuse(&item.spot, message);
                continue;
            }
            taken.models.insert(text, route.to_owned());
            models.push(ModelPattern::of(text));
        }
        models
    }

    fn targets<'n>(
        &mut self,
        items: &[Map<'n>],
        providers: &[Entry],
        taken: &mut Taken<'n>,
    ) -> Vec<Target> {
        let mut names = BTreeSet::new();
        let mut targets = Vec::new();
        for item in items {
            let name = item.text("name");
            if let Some(name) = name
                && !names.insert(name)
            {
                let message =
                    format!("{name} is the name of two targets; names are unique within a route");
                self.report.refuse(&item.at("name"), message);
            }
            let Some(provider) = self.reference(item, providers) else {
                continue;
            };
            taken.providers.insert(provider);
            targets.push(Target {
                name: name.unwrap_or_default().into(),
                provider,
                model: item.text("model").map(Arc::from),
                keys: vec![TargetKey::fresh(None)],
                ownership: Ownership::External,
                retry: None,
                limits: None,
                health: None,
                priority: small(item.number("priority")),
                weight: small(item.number("weight")).max(1),
                id: 0,
                endpoint: endpoint(providers, provider),
                load: None,
            });
        }
        targets
    }

    fn reference(&mut self, item: &Map<'_>, providers: &[Entry]) -> Option<usize> {
        let wanted = item.text("provider")?;
        let found = providers.iter().position(|entry| entry.name == wanted);
        if found.is_none() {
            let names = || providers.iter().map(|entry| entry.name.as_str());
            let message = match nearest(wanted, names()) {
                Some(name) => format!("no provider is called {wanted}; did you mean `{name}`?"),
                None => {
                    let all: Vec<&str> = names().take(20).collect();
                    format!(
                        "no provider is called {wanted}; there are: {}",
                        all.join(", ")
                    )
                }
            };
            self.report.refuse(&item.at("provider"), message);
        }
        found
    }

    /// Limits and the strategy that makes them skip a target belong together.
    fn warn_about_limits(&mut self, rules: &Map<'_>, items: &[Map<'_>], routing: &Routing) {
        let limited: Vec<&Map<'_>> = items.iter().filter(|item| item.has("limits")).collect();
        let skips = routing.fallback.rate_limiting;
        // A profile is written for many routes, and says nothing to one without limits.
        if limited.is_empty() && skips && rules.is_own("fallback_strategy") {
            let spot = rules.at("fallback_strategy");
            let message = "rate_limiting has no effect: no target of this route has `limits`";
            self.report.warn(&spot, message);
        }
        let several = items.len() > 1 && routing.mode == Mode::PriorityFailover;
        for item in limited.iter().filter(|_| several && !skips) {
            let message = "used up, they end the operation with 429 local_limit although the route has other targets; add rate_limiting to routing.fallback_strategy to skip the target instead";
            self.report.warn(&item.at("limits"), message);
        }
        for item in limited {
            if item
                .given_map("limits")
                .is_some_and(|limits| is_empty(&limits))
            {
                let message = "no limit is given; needed is one of requests_per_minute, tokens_per_minute and concurrent";
                self.report.refuse(&item.at("limits"), message);
            }
        }
    }

    /// Warns of targets that some of the route's requests pass by, since their provider does not speak the format.
    fn warn_about_formats(&mut self, items: &[Map<'_>], used: &[Option<&Provider>]) {
        let speaks: Vec<ApiSet> = used
            .iter()
            .flatten()
            .map(|provider| provider.speaks)
            .collect();
        if speaks.len() < 2 || speaks.len() != items.len() {
            return;
        }
        for (index, (item, own)) in items.iter().zip(&speaks).enumerate() {
            let others = speaks
                .iter()
                .enumerate()
                .filter(|(other, _)| *other != index);
            let others: Vec<ApiSet> = others.map(|(_, set)| *set).collect();
            let is_elsewhere = |api: &Api| others.iter().any(|set| set.contains(*api));
            let shares = own.iter().any(|api| is_elsewhere(&api));
            // Most targets of chat models lack some format of images or audio, or take no WebSocket, which says nothing about the route.
            let matters = |api: &Api| !shares || !(api.is_specialised() || api.is_socket());
            let missing: Vec<&str> = Api::ALL
                .iter()
                .filter(|api| is_elsewhere(api) && !own.contains(**api) && matters(api))
                .map(|api| api.label())
                .collect();
            if missing.is_empty() {
                continue;
            }
            let list = missing.join(", ");
            let message = if shares {
                format!(
                    "not a candidate for {list} requests of this route: the provider does not speak that format"
                )
            } else {
                format!(
                    "shares no API format with the other targets ({list}), so it never stands in for them nor they for it"
                )
            };
            let spot: Spot = item.at("provider");
            self.report.warn(&spot, message);
        }
    }
}

const LIMITS: [&str; 3] = ["requests_per_minute", "tokens_per_minute", "concurrent"];

fn limit_rules(limits: &Map<'_>) -> LimitRules {
    LimitRules {
        requests_per_minute: limits.given_number("requests_per_minute"),
        tokens_per_minute: limits.given_number("tokens_per_minute"),
        concurrent: limits.given_number("concurrent"),
    }
}

fn is_empty(limits: &Map<'_>) -> bool {
    !LIMITS.iter().any(|key| limits.has(key))
}

/// The first provider at the same address. A script has an address of its own.
fn endpoint(providers: &[Entry], own: usize) -> usize {
    let address = |entry: &Entry| {
        let provider = entry.provider.as_ref()?;
        let base = &provider.base;
        let place = (base.tls, base.host.to_ascii_lowercase(), base.port);
        provider.mock.is_none().then_some(place)
    };
    let Some(wanted) = providers.get(own).and_then(address) else {
        return own;
    };
    let mut all = providers.iter();
    all.position(|entry| address(entry).as_ref() == Some(&wanted))
        .unwrap_or(own)
}

//! `rules`: names become positions, and each route keeps the rules that can match one of its requests.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::Compiler;
use super::profiles::{priority_mode, scheduling_mode};
use super::providers::Entry;
use crate::config::problem::{Spot, nearest};
use crate::config::reader::{Item, Map};
use crate::core::api::Api;
use crate::policy::clients::ClientKeys;
use crate::policy::route::{ModelPattern, Route};
use crate::policy::rules::{Action, HeaderIs, HeaderValueIs, ModesSet, Rule, When};

/// What names of a rule can mean.
pub(super) struct Known<'a> {
    pub providers: &'a [Entry],
    pub clients: &'a ClientKeys,
}

/// An action whose targets are still names.
enum Asked<'n> {
    Restrict(Vec<&'n str>),
    TargetPriority { target: &'n str, priority: u32 },
    Done(Action),
}

impl Compiler<'_> {
    /// Gives every route the rules that can match it.
    pub(super) fn rules(&mut self, root: &Map<'_>, known: &Known<'_>, routes: &mut [Route]) {
        let mut names = BTreeSet::new();
        let mut maps = root.maps("rules");
        maps.sort_by_key(|map| map.number("priority"));
        for map in maps {
            let name = map.text("name").unwrap_or_default();
            if !name.is_empty() && !names.insert(name) {
                let message = format!("{name} is the name of two rules; names are unique");
                self.report.refuse(&map.at("name"), message);
            }
            let condition = map.map("when");
            let of_route = self.of_route(&condition, routes);
            let when = self.when(&condition, known.clients);
            let actions = self.actions(&map, known, of_route, routes);
            if map.flag("enabled") == Some(false) {
                continue;
            }
            let rule = Rule {
                name: name.into(),
                when,
                actions: Vec::new(),
                stop: map.flag("stop") == Some(true),
            };
            for (index, route) in routes.iter_mut().enumerate() {
                let elsewhere = of_route.is_some_and(|of_route| of_route != Some(index));
                if !elsewhere && can_match(&rule.when, route) {
                    self.give(&rule, &actions, route);
                }
            }
        }
    }

    /// The route that the rule names: `Some(None)` when there is none of the name.
    fn of_route(&mut self, when: &Map<'_>, routes: &[Route]) -> Option<Option<usize>> {
        let wanted = when.text("route")?;
        let found = routes.iter().position(|route| *route.name == *wanted);
        if found.is_none() {
            let names = routes.iter().map(|route| &*route.name);
            self.unknown(&when.at("route"), "route", wanted, names);
        }
        Some(found)
    }

    fn when(&mut self, map: &Map<'_>, clients: &ClientKeys) -> When {
        let client_key = map.text("client_key");
        if let Some(wanted) = client_key
            && !clients.names().any(|name| **name == *wanted)
        {
            let names = clients.names().map(|name| &**name);
            self.unknown(&map.at("client_key"), "client key", wanted, names);
        }
        When {
            model: map.text("model").map(ModelPattern::of),
            api: map.text("api").and_then(Api::from_label),
            header: map
                .given_map("header")
                .and_then(|header| self.header(&header)),
            client_key: client_key.map(Arc::from),
            stream: map.flag("stream"),
        }
    }

    fn header(&mut self, map: &Map<'_>) -> Option<HeaderIs> {
        let given = ["value", "prefix", "present"].map(|key| map.has(key));
        if given.into_iter().filter(|given| *given).count() != 1 {
            let message = "exactly one of value, prefix and present is needed";
            self.report.refuse(map.spot(), message);
        }
        let value = match (map.text("value"), map.text("prefix"), map.flag("present")) {
            (Some(value), _, _) => HeaderValueIs::Exact(value.into()),
            (_, Some(prefix), _) => HeaderValueIs::Prefix(prefix.into()),
            (_, _, Some(false)) => HeaderValueIs::Absent,
            (_, _, Some(true) | None) => HeaderValueIs::Present,
        };
        let name = map.text("name")?.to_ascii_lowercase().into();
        Some(HeaderIs { name, value })
    }

    fn actions<'n>(
        &mut self,
        rule: &Map<'n>,
        known: &Known<'_>,
        of_route: Option<Option<usize>>,
        routes: &[Route],
    ) -> Vec<(Spot, Asked<'n>)> {
        let is_target = |name: &str| {
            let of = |route: &Route| route.targets.iter().any(|target| *target.name == *name);
            match of_route {
                Some(Some(index)) => routes.get(index).is_some_and(of),
                // The route is not known, which was said.
                Some(None) => true,
                None => routes.iter().any(of),
            }
        };
        let mut actions = Vec::new();
        for map in rule.maps("actions") {
            let spot = map.spot().clone();
            let asked = if map.has("restrict_targets") {
                let names = map.texts("restrict_targets");
                for Item { spot, value } in &names {
                    self.check_target(spot, value, &is_target);
                }
                Asked::Restrict(names.into_iter().map(|name| name.value).collect())
            } else if let Some(map) = map.given_map("set_scheduling") {
                Asked::Done(Action::Schedule(modes(&map)))
            } else if let Some(map) = map.given_map("set_target_priority") {
                let Some(target) = map.text("target") else {
                    continue;
                };
                self.check_target(&map.at("target"), target, &is_target);
                let priority = small(map.number("priority"));
                Asked::TargetPriority { target, priority }
            } else if let Some(map) = map.given_map("set_key_priority") {
                match self.key_priority(&map, known.providers) {
                    Some(action) => Asked::Done(action),
                    None => continue,
                }
            } else {
                continue;
            };
            actions.push((spot, asked));
        }
        actions
    }

    fn check_target(&mut self, spot: &Spot, name: &str, is_target: &dyn Fn(&str) -> bool) {
        if !is_target(name) {
            let message = format!("no target that the rule can reach is called {name}");
            self.report.refuse(spot, message);
        }
    }

    fn key_priority(&mut self, map: &Map<'_>, providers: &[Entry]) -> Option<Action> {
        let wanted = map.text("provider");
        let provider = match wanted {
            Some(wanted) => {
                let found = providers.iter().position(|entry| entry.name == wanted);
                if found.is_none() {
                    let names = providers.iter().map(|entry| entry.name.as_str());
                    self.unknown(&map.at("provider"), "provider", wanted, names);
                }
                Some(found?)
            }
            None => None,
        };
        let key = map.text("key")?;
        let asked = providers.iter().enumerate();
        let asked = asked.filter(|(index, _)| provider.is_none_or(|only| only == *index));
        let asked: Vec<_> = asked
            .filter_map(|(_, entry)| entry.provider.as_ref())
            .collect();
        let names = || {
            asked
                .iter()
                .flat_map(|p| p.keys.iter().map(|key| &*key.name))
        };
        if !names().any(|name| name == key) {
            self.unknown(&map.at("key"), "key", key, names());
        }
        Some(Action::KeyPriority {
            api: map.text("api").and_then(Api::from_label),
            provider,
            key: key.into(),
            priority: small(map.number("priority")),
        })
    }

    fn unknown<'k>(
        &mut self,
        spot: &Spot,
        what: &str,
        wanted: &str,
        names: impl Iterator<Item = &'k str>,
    ) {
        let message = match nearest(wanted, names) {
            Some(name) => format!("no {what} is called {wanted}; did you mean `{name}`?"),
            None => format!("no {what} is called {wanted}"),
        };
        self.report.refuse(spot, message);
    }

    /// Gives a route its own form of a rule: what names targets of other routes alone does nothing here, but for a restriction.
    fn give(&mut self, rule: &Rule, asked: &[(Spot, Asked<'_>)], route: &mut Route) {
        let position = |name: &str| {
            let mut targets = route.targets.iter();
            targets.position(|target| *target.name == *name)
        };
        let mut actions = Vec::new();
        for (spot, asked) in asked {
            match asked {
                Asked::Restrict(names) => {
                    let positions = names.iter().filter_map(|name| position(name));
                    let set = positions.fold(0_u64, |set, position| set | 1 << position);
                    if set == 0 {
                        let message = format!(
                            "leaves route {} no target: its requests that match are answered with 503",
                            route.name
                        );
                        self.report.warn(spot, message);
                    }
                    actions.push(Action::Restrict(set));
                }
                Asked::TargetPriority { target, priority } => {
                    let priority = *priority;
                    let found = position(target);
                    actions.extend(found.map(|target| Action::TargetPriority { target, priority }));
                }
                Asked::Done(action) => actions.push(action.clone()),
            }
        }
        if actions.is_empty() && !rule.stop {
            return;
        }
        route.policy.rules.push(Rule {
            actions,
            ..rule.clone()
        });
    }
}

/// Whether some request of the route can be what the rule asks for.
fn can_match(when: &When, route: &Route) -> bool {
    let Some(wanted) = &when.model else {
        return true;
    };
    route.models.iter().any(|own| match (wanted, own) {
        (ModelPattern::Exact(name), own) => own.matches(name),
        (ModelPattern::Prefix(_), ModelPattern::Exact(name)) => wanted.matches(name),
        (ModelPattern::Prefix(a), ModelPattern::Prefix(b)) => {
            a.starts_with(&**b) || b.starts_with(&**a)
        }
    })
}

fn modes(map: &Map<'_>) -> ModesSet {
    let word = |key| map.text(key);
    ModesSet {
        priority_mode: word("priority_mode").map(|word| priority_mode(Some(word))),
        scheduling_mode: word("scheduling_mode").map(|word| scheduling_mode(Some(word))),
        keep_priority_on_conversion: map.flag("keep_priority_on_conversion"),
        sticky_tries: map
            .given_number("sticky_key_attempts")
            .map(|tries| small(tries).max(1)),
    }
}

/// Numbers of the tables fit 32 bits by their bounds.
pub(super) fn small(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

//! Counters that outlive a snapshot: cooldowns of (provider, key, model), sends in flight, the waiting rooms and retry budgets
//! of routes, the limits of targets.

use std::collections::HashMap;
use std::sync::Arc;

use super::providers::Entry;
use crate::policy::admission::Waiters;
use crate::policy::cooldown::{Cooldown, KeyAside};
use crate::policy::hash::stable;
use crate::policy::limits::{LimitRules, TargetLimits};
use crate::policy::load::Load;
use crate::policy::provider::Provider;
use crate::policy::retry_budget::RetryBudget;
use crate::policy::route::{Route, Target, TargetKey};
use crate::policy::rules::Action;
use crate::policy::scheduling::SchedulingMode;
use crate::policy::secret::Secret;
use crate::policy::snapshot::Snapshot;

/// Whose not-before instant it is.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Candidate {
    provider: String,
    key: Option<String>,
    model: Model,
}

/// A target that passes the client's model name is told apart by its own name: which model it meets is not known before.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Model {
    Fixed(String),
    Clients { route: String, target: String },
}

/// Names of a provider and of its key, if it has one.
type ProviderKey = (String, Option<String>);

/// The counters of the previous snapshot and of the one in the making.
pub(super) struct Cells {
    cooldowns: HashMap<Candidate, Arc<Cooldown>>,
    /// With the secret that was set aside: another one under the same name has done nothing yet.
    asides: HashMap<ProviderKey, (Option<Secret>, Arc<KeyAside>)>,
    waiters: HashMap<String, Arc<Waiters>>,
    budgets: HashMap<String, Arc<RetryBudget>>,
    /// By route and target.
    limits: HashMap<(String, String), Arc<TargetLimits>>,
    /// Without the key: what a target has in flight is the same on every one.
    loads: HashMap<Candidate, Arc<Load>>,
}

impl Cells {
    pub fn carried_over(previous: Option<&Snapshot>) -> Cells {
        let mut cells = Cells {
            cooldowns: HashMap::new(),
            asides: HashMap::new(),
            waiters: HashMap::new(),
            budgets: HashMap::new(),
            limits: HashMap::new(),
            loads: HashMap::new(),
        };
        let Some(previous) = previous else {
            return cells;
        };
        for route in &previous.routes {
            let waiters = Arc::clone(&route.waiters);
            cells.waiters.insert(route.name.to_string(), waiters);
            let budget = Arc::clone(&route.retry_budget);
            cells.budgets.insert(route.name.to_string(), budget);
            for target in &route.targets {
                if let Some(limits) = &target.limits {
                    let place = (route.name.to_string(), target.name.to_string());
                    cells.limits.insert(place, Arc::clone(limits));
                }
                let Some(provider) = previous.provider(target.provider) else {
                    continue;
                };
                if let Some(load) = &target.load {
                    let place = Candidate::of(provider, None, &route.name, target);
                    cells.loads.insert(place, Arc::clone(load));
                }
                for key in &target.keys {
                    let candidate = Candidate::of(provider, key.name.as_ref(), &route.name, target);
                    let name = (candidate.provider.clone(), candidate.key.clone());
                    let secret = secret_of(provider, key.name.as_ref());
                    cells.cooldowns.insert(candidate, Arc::clone(&key.cooldown));
                    cells.asides.insert(name, (secret, Arc::clone(&key.aside)));
                }
            }
        }
        cells
    }

    pub fn waiters(&mut self, route: &str) -> Arc<Waiters> {
        let cell = self.waiters.entry(route.to_owned()).or_default();
        Arc::clone(cell)
    }

    pub fn retry_budget(&mut self, route: &str) -> Arc<RetryBudget> {
        Arc::clone(self.budgets.entry(route.to_owned()).or_default())
    }

    /// The account of a target. Another rule begins another account.
    pub fn limits(&mut self, route: &str, target: &Target, rules: LimitRules) -> Arc<TargetLimits> {
        let place = (route.to_owned(), target.name.to_string());
        let known = self
            .limits
            .get(&place)
            .filter(|known| *known.rules() == rules);
        known.map_or_else(|| Arc::new(TargetLimits::new(rules)), Arc::clone)
    }

    /// Sends in flight are counted where some route balances load, and then at every target, so that the counts are whole.
    pub fn loads(&mut self, providers: &[Entry], routes: &mut [Route]) {
        let sets = |action: &Action| matches!(action, Action::Schedule(modes) if modes.scheduling_mode == Some(SchedulingMode::LoadBalance));
        let balances = routes.iter().any(|route| {
            let mut rules = route.policy.rules.iter();
            route.policy.scheduling.scheduling_mode == SchedulingMode::LoadBalance
                || rules.any(|rule| rule.actions.iter().any(sets))
        });
        if !balances {
            return;
        }
        for route in routes {
            for target in &mut route.targets {
                let provider = providers.get(target.provider);
                if let Some(provider) = provider.and_then(|entry| entry.provider.as_ref()) {
                    let place = Candidate::of(provider, None, &route.name, target);
                    let load = self.loads.entry(place).or_default();
                    target.load = Some(Arc::clone(load));
                }
            }
        }
    }

    /// The pool of a target of this provider.
    pub fn keys(&mut self, provider: &Provider, route: &str, target: &Target) -> Vec<TargetKey> {
        let names = provider.keys.iter().map(|key| Some(Arc::clone(&key.name)));
        let mut names: Vec<_> = names.collect();
        if names.is_empty() {
            // What stands in for keys is refused as one.
            names.push(provider.identity.name().map(Into::into));
        }
        let keys = names.into_iter().map(|name| {
            let candidate = Candidate::of(provider, name.as_ref(), route, target);
            let secret = secret_of(provider, name.as_ref());
            let aside = self
                .asides
                .entry((candidate.provider.clone(), candidate.key.clone()))
                .or_default();
            if aside.0 != secret {
                *aside = (secret, Arc::default());
            }
            let known = provider.keys.iter();
            let mut rules = known.filter(|known| Some(&known.name) == name.as_ref());
            let parts = [
                provider.name.as_bytes(),
                name.as_deref().unwrap_or("").as_bytes(),
            ];
            TargetKey {
                id: stable(&parts),
                cooldown: Arc::clone(self.cooldowns.entry(candidate).or_default()),
                aside: Arc::clone(&aside.1),
                rules: rules
                    .next()
                    .map(|key| Arc::clone(&key.rules))
                    .unwrap_or_default(),
                name,
            }
        });
        keys.collect()
    }
}

fn secret_of(provider: &Provider, key: Option<&Arc<str>>) -> Option<Secret> {
    let mut keys = provider.keys.iter();
    let known = keys.find(|known| Some(&known.name) == key);
    let secret = known.map(|known| &known.secret);
    secret.or(provider.identity.secret()).cloned()
}

impl Candidate {
    fn of(provider: &Provider, key: Option<&Arc<str>>, route: &str, target: &Target) -> Candidate {
        Candidate {
            provider: provider.name.to_string(),
            key: key.map(ToString::to_string),
            model: match &target.model {
                Some(model) => Model::Fixed(model.to_string()),
                None => Model::Clients {
                    route: route.to_owned(),
                    target: target.name.to_string(),
                },
            },
        }
    }
}

//! Counters that outlive a snapshot: cooldowns of (provider, key, model) and the waiting rooms of routes.

use std::collections::HashMap;
use std::sync::Arc;

use crate::policy::admission::Waiters;
use crate::policy::cooldown::Cooldown;
use crate::policy::provider::Provider;
use crate::policy::route::Target;
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

/// The counters of the previous snapshot and of the one in the making.
pub(super) struct Cells {
    cooldowns: HashMap<Candidate, Arc<Cooldown>>,
    waiters: HashMap<String, Arc<Waiters>>,
}

impl Cells {
    pub fn carried_over(previous: Option<&Snapshot>) -> Cells {
        let mut cells = Cells {
            cooldowns: HashMap::new(),
            waiters: HashMap::new(),
        };
        let Some(previous) = previous else {
            return cells;
        };
        for route in &previous.routes {
            let waiters = Arc::clone(&route.waiters);
            cells.waiters.insert(route.name.to_string(), waiters);
            for target in &route.targets {
                if let Some(provider) = previous.provider(target.provider) {
                    let candidate = Candidate::of(provider, &route.name, target);
                    let cooldown = Arc::clone(&target.cooldown);
                    cells.cooldowns.insert(candidate, cooldown);
                }
            }
        }
        cells
    }

    pub fn waiters(&mut self, route: &str) -> Arc<Waiters> {
        let cell = self.waiters.entry(route.to_owned()).or_default();
        Arc::clone(cell)
    }

    /// The cell that belongs to a target of this provider.
    pub fn cooldown(&mut self, provider: &Provider, route: &str, target: &Target) -> Arc<Cooldown> {
        let candidate = Candidate::of(provider, route, target);
        Arc::clone(self.cooldowns.entry(candidate).or_default())
    }
}

impl Candidate {
    fn of(provider: &Provider, route: &str, target: &Target) -> Candidate {
        Candidate {
            provider: provider.name.to_string(),
            key: provider.keys.first().map(|key| key.name.to_string()),
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

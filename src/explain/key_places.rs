//! Where each key of a candidate stands in its pool, and why.

use std::sync::Arc;

use super::ask::Asked;
use crate::policy::ordering::{self, InFull, Why};
use crate::policy::provider::Provider;
use crate::policy::route::Target;
use crate::policy::scheduling::SchedulingMode;

/// A key in its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyPlace {
    /// Its name.
    pub key: Arc<str>,
    /// The priority by which it was sorted.
    pub priority: u32,
    /// Why it stands there.
    pub reason: String,
}

/// What the places of a target's keys are told from.
pub(super) struct KeyPlaces<'a> {
    pub asked: &'a Asked,
    pub found: &'a InFull<'a>,
    pub target: &'a Target,
    pub provider: &'a Provider,
}

impl KeyPlaces<'_> {
    pub fn of(&self, entry: &ordering::Candidate, keys: &[usize]) -> Vec<KeyPlace> {
        let priorities: Vec<u32> = keys.iter().map(|key| self.priority(*key)).collect();
        let told = keys.iter().enumerate().filter_map(|(place, key)| {
            let name = &self.provider.keys.get(*key)?.name;
            let priority = self.priority(*key);
            let equals = priorities
                .iter()
                .filter(|other| **other == priority)
                .count();
            Some(KeyPlace {
                key: Arc::clone(name),
                priority,
                reason: self.reason(entry, (place, *key), priority, equals),
            })
        });
        told.collect()
    }

    fn priority(&self, key: usize) -> u32 {
        let Some(key) = self.target.keys.get(key) else {
            return 0;
        };
        let by_rule = key.name.as_deref().and_then(|name| {
            let applied = &self.found.applied;
            applied.key_priority(self.target.provider, name, self.asked.api)
        });
        by_rule.unwrap_or_else(|| key.rules.priority_for(self.asked.api))
    }

    fn reason(
        &self,
        entry: &ordering::Candidate,
        (place, key): (usize, usize),
        priority: u32,
        equals: usize,
    ) -> String {
        if place == 0 && entry.place.why == Why::Affinity {
            return "gave the same client's last good answer".to_owned();
        }
        if equals == 1 && entry.keys.len() == 1 {
            return "the only one".to_owned();
        }
        if equals == 1 {
            return format!("key priority {priority}");
        }
        match self.found.scheduling.scheduling_mode {
            SchedulingMode::LoadBalance => {
                let weight = self.target.keys.get(key).map_or(1, |key| key.rules.weight);
                format!("key priority {priority}, one draw by weight {weight}")
            }
            SchedulingMode::FixedOrder | SchedulingMode::CacheAffinity => {
                format!("key priority {priority}, as in the file")
            }
        }
    }
}

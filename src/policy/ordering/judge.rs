//! Judges targets and keys one by one: who can serve a request, with which priority, in which places.
//!
//! Not here: how equals are arranged.

use super::arrange::{Entry, keys_in_order};
use super::{Exclusion, Facts, KeyExclusion, Why};
use crate::core::api::ApiSet;
use crate::core::chance::Chance;
use crate::policy::route::{Route, Target, TargetKey};
use crate::policy::routing::Mode;
use crate::policy::rules::Applied;
use crate::policy::scheduling::{PriorityMode, Scheduling, SchedulingMode};
use crate::policy::snapshot::Snapshot;

/// Judges targets and keys one by one.
pub(super) struct Judge<'a, 'f, 'r> {
    pub snapshot: &'a Snapshot,
    pub route: &'a Route,
    pub facts: &'a Facts<'f>,
    pub applied: &'a Applied<'r>,
    pub excluded: Vec<(usize, Exclusion)>,
    pub keys_excluded: Vec<(usize, usize, KeyExclusion)>,
}

impl Judge<'_, '_, '_> {
    /// The places of all targets that can serve the request, in no order.
    pub fn entries(&mut self, scheduling: &Scheduling, chance: &mut impl Chance) -> Vec<Entry> {
        let primary = self.primary(scheduling);
        let mut entries = Vec::with_capacity(self.route.targets.len());
        for (position, target) in self.route.targets.iter().enumerate() {
            let verdict = match primary {
                Some(primary) if primary != position => Err(Exclusion::PrimaryOnly),
                _ => self.target(position, target),
            };
            match verdict {
                Ok((converts, keys)) => {
                    let behind = converts && !scheduling.keep_priority_on_conversion;
                    self.places(position, behind, keys, scheduling, chance, &mut entries);
                }
                Err(exclusion) => self.excluded.push((position, exclusion)),
            }
        }
        entries
    }

    /// The one target of mode `primary_only`, when the request has no say in which it is (R-F6).
    fn primary(&self, scheduling: &Scheduling) -> Option<usize> {
        let by_target = scheduling.priority_mode == PriorityMode::Provider
            && scheduling.scheduling_mode == SchedulingMode::FixedOrder
            && scheduling.hash_on.is_none();
        if self.route.routing.mode != Mode::PrimaryOnly || !by_target {
            return None;
        }
        let allowed = |position: &usize| self.applied.restricting(*position).is_none();
        let positions = (0..self.route.targets.len()).filter(allowed);
        positions.min_by_key(|position| self.target_priority(*position))
    }

    fn target_priority(&self, position: usize) -> u32 {
        let own = self
            .route
            .targets
            .get(position)
            .map(|target| target.priority);
        let by_rule = self.applied.target_priority(position);
        by_rule.or(own).unwrap_or_default()
    }

    /// Whether a conversion is needed, and the keys that may be used.
    fn target(
        &mut self,
        position: usize,
        target: &Target,
    ) -> Result<(bool, Vec<usize>), Exclusion> {
        if self.applied.restricting(position).is_some() {
            return Err(Exclusion::Restricted);
        }
        let provider = self.snapshot.provider(target.provider);
        let speaks = provider.map_or(ApiSet::EMPTY, |provider| provider.speaks);
        let natively = speaks.contains(self.facts.api);
        let converts = || {
            self.facts
                .conversions
                .iter()
                .any(|api| speaks.contains(api))
        };
        if !natively && !converts() {
            return Err(Exclusion::ApiFormat);
        }
        let streams = provider.is_some_and(|provider| provider.streams.contains(self.facts.api));
        if natively && self.facts.stream && !streams {
            return Err(Exclusion::StreamFormat);
        }
        let mut first = None;
        let mut keys = Vec::with_capacity(target.keys.len());
        for (index, key) in target.keys.iter().enumerate() {
            match self.key(target, key) {
                Ok(()) => keys.push(index),
                Err(why) => {
                    first.get_or_insert(why);
                    self.keys_excluded.push((position, index, why));
                }
            }
        }
        match first {
            Some(why) if keys.is_empty() => Err(Exclusion::NoUsableKey(why)),
            _ => Ok((!natively, keys)),
        }
    }

    fn key(&self, target: &Target, key: &TargetKey) -> Result<(), KeyExclusion> {
        let rules = &key.rules;
        let model = target.model.as_deref().unwrap_or(self.facts.model);
        if !rules.models.is_empty() && !rules.models.iter().any(|allowed| allowed.matches(model)) {
            return Err(KeyExclusion::Model);
        }
        if rules
            .expires
            .is_some_and(|expires| expires <= self.facts.wall)
        {
            return Err(KeyExclusion::Expired);
        }
        Ok(())
    }

    fn key_priority(&self, target: &Target, key: usize) -> u32 {
        let Some(key) = target.keys.get(key) else {
            return 0;
        };
        let by_rule = key.name.as_deref().and_then(|name| {
            self.applied
                .key_priority(target.provider, name, self.facts.api)
        });
        by_rule.unwrap_or_else(|| key.rules.priority_for(self.facts.api))
    }

    /// One place with the whole pool, or with `global_key` one for each priority among its keys.
    fn places(
        &self,
        position: usize,
        behind: bool,
        keys: Vec<usize>,
        scheduling: &Scheduling,
        chance: &mut impl Chance,
        entries: &mut Vec<Entry>,
    ) {
        let Some(target) = self.route.targets.get(position) else {
            return;
        };
        let priority = self.target_priority(position);
        let draws = scheduling.scheduling_mode == SchedulingMode::LoadBalance;
        let pools = keys_in_order(
            keys.into_iter()
                .map(|key| (self.key_priority(target, key), key)),
            |key| target.keys.get(key).map_or(1, |key| key.rules.weight),
            draws.then_some(chance),
        );
        let entry = |level, priority, keys| Entry {
            level: (behind, level),
            target: position,
            keys,
            priority,
            why: Why::Configured,
        };
        match scheduling.priority_mode {
            PriorityMode::Provider => {
                let whole = pools.into_iter().flat_map(|(_, keys)| keys).collect();
                entries.push(entry((priority, 0), priority, whole));
            }
            PriorityMode::GlobalKey => entries.extend(
                pools
                    .into_iter()
                    .map(|(of_key, keys)| entry((of_key, priority), of_key, keys)),
            ),
        }
    }
}

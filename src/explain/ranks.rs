//! Candidates of equal rank: what arranges them among themselves, and whether that is the file, a hash, chance or what is remembered.
//!
//! Not here: the arranging, which is [`ordering`](crate::policy::ordering)'s.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::policy::ordering::{self, InFull, Why};
use crate::policy::route::Route;
use crate::policy::scheduling::{HashOn, PriorityMode, SchedulingMode};

/// Candidates between which no priority decides.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rank {
    /// The priorities that they share: that of targets; with `global_key` that of keys, then that of targets.
    pub priorities: Vec<u32>,
    /// Their places, counted from 1.
    pub places: Vec<usize>,
    /// Names of their targets, in the same order.
    pub targets: Vec<Arc<str>>,
    /// What decides among them.
    pub decided_by: DecidedBy,
    /// A phrase.
    pub why: String,
}

/// What decides among equals.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DecidedBy {
    /// There is but one.
    Alone,
    /// The order of the file.
    Configuration,
    /// A hash of what the request carries: the same for every such request.
    Hash,
    /// A draw for each request, and what is in flight.
    Chance,
}

impl DecidedBy {
    /// The value in JSON.
    pub const fn label(self) -> &'static str {
        match self {
            DecidedBy::Alone => "alone",
            DecidedBy::Configuration => "configuration",
            DecidedBy::Hash => "hash",
            DecidedBy::Chance => "chance",
        }
    }
}

/// The ranks of the candidates, the first to be tried first.
pub(super) fn ranks(route: &Route, found: &InFull<'_>) -> Vec<Rank> {
    let mut levels: BTreeMap<(u32, u32), Vec<(usize, &ordering::Candidate)>> = BTreeMap::new();
    for (place, entry) in found.ordered.candidates.iter().enumerate() {
        let level = level(route, found, entry);
        levels.entry(level).or_default().push((place + 1, entry));
    }
    let ranks = levels
        .into_iter()
        .map(|(level, equals)| rank(route, found, level, &equals));
    ranks.collect()
}

fn level(route: &Route, found: &InFull<'_>, entry: &ordering::Candidate) -> (u32, u32) {
    let target = route.targets.get(entry.target);
    let of_target = || {
        let by_rule = found.applied.target_priority(entry.target);
        by_rule.or(target.map(|t| t.priority)).unwrap_or_default()
    };
    match found.scheduling.priority_mode {
        PriorityMode::Provider => (entry.place.priority, 0),
        PriorityMode::GlobalKey => (entry.place.priority, of_target()),
    }
}

fn rank(
    route: &Route,
    found: &InFull<'_>,
    level: (u32, u32),
    equals: &[(usize, &ordering::Candidate)],
) -> Rank {
    let targets = equals.iter().filter_map(|(_, entry)| {
        let target = route.targets.get(entry.target)?;
        Some((Arc::clone(&target.name), target.weight))
    });
    let (targets, weights): (Vec<_>, Vec<_>) = targets.unzip();
    let (decided_by, why) = decided(found, equals, &weights);
    Rank {
        priorities: match found.scheduling.priority_mode {
            PriorityMode::Provider => vec![level.0],
            PriorityMode::GlobalKey => vec![level.0, level.1],
        },
        places: equals.iter().map(|(place, _)| *place).collect(),
        targets,
        decided_by,
        why,
    }
}

fn decided(
    found: &InFull<'_>,
    equals: &[(usize, &ordering::Candidate)],
    weights: &[u32],
) -> (DecidedBy, String) {
    let scheduling = &found.scheduling;
    let hash_on = scheduling.hash_on.as_ref().map(HashOn::text);
    let hashed = equals
        .iter()
        .any(|(_, entry)| entry.place.why == Why::Hashed);
    let weights: Vec<String> = weights.iter().map(u32::to_string).collect();
    let weights = weights.join(" : ");
    let (decided_by, mut why) = match (equals, scheduling.scheduling_mode) {
        ([_], _) => return (DecidedBy::Alone, "no other has its priority".to_owned()),
        _ if hashed => {
            let on = hash_on.as_deref().unwrap_or_default();
            let why = format!("consistent hashing of {on}, weights {weights}");
            return (DecidedBy::Hash, why);
        }
        (_, SchedulingMode::LoadBalance) => (
            DecidedBy::Chance,
            format!(
                "a draw for each request, weights {weights}; of two the one with less in flight"
            ),
        ),
        (_, SchedulingMode::FixedOrder | SchedulingMode::CacheAffinity) => (
            DecidedBy::Configuration,
            "as they stand in the file".to_owned(),
        ),
    };
    if let Some(on) = hash_on {
        why.push_str(&format!("; the request has no {on} to hash"));
    }
    (decided_by, why)
}

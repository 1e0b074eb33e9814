//! The arithmetic of the order: levels of priority, draws by weight and load, consistent hashing.
//!
//! Not here: who can serve a request. Everything is deterministic under a seeded source.

use super::{Candidate, Place, Why};
use crate::core::chance::Chance;
use crate::policy::hash::mix;
use crate::policy::route::Route;
use crate::policy::scheduling::{Scheduling, SchedulingMode};

/// A candidate in the making.
#[derive(Debug)]
pub(super) struct Entry {
    /// What it is sorted by: whether it stands behind for a conversion, and its priorities. Equals are arranged among themselves.
    pub level: (bool, (u32, u32)),
    /// Position of the target.
    pub target: usize,
    /// Its keys, in order.
    pub keys: Vec<usize>,
    /// The priority that is told.
    pub priority: u32,
    /// What arranged it.
    pub why: Why,
}

impl Entry {
    pub fn into_candidate(self) -> Candidate {
        Candidate {
            target: self.target,
            keys: self.keys.into(),
            place: Place {
                why: self.why,
                priority: self.priority,
            },
        }
    }
}

/// Keys by priority, those of one priority together: in configured order, or drawn by weight.
pub(super) fn keys_in_order<C: Chance>(
    keys: impl Iterator<Item = (u32, usize)>,
    weight: impl Fn(usize) -> u32,
    mut chance: Option<&mut C>,
) -> Vec<(u32, Vec<usize>)> {
    let mut sorted: Vec<(u32, usize)> = keys.collect();
    sorted.sort_by_key(|(priority, _)| *priority);
    let equals = sorted.chunk_by(|a, b| a.0 == b.0);
    let pools = equals.map(|equals| {
        let priority = equals.first().map_or(0, |(priority, _)| *priority);
        let mut keys: Vec<usize> = equals.iter().map(|(_, key)| *key).collect();
        if let Some(chance) = &mut chance {
            shuffle_by_weight(&mut keys, |key| weight(*key), *chance);
        }
        (priority, keys)
    });
    pools.collect()
}

/// By level; equals stay in configured order.
pub(super) fn by_level(entries: &mut [Entry]) {
    entries.sort_by_key(|entry| (entry.level, entry.target));
}

/// Arranges equals as the modes say.
pub(super) fn arrange(
    entries: &mut [Entry],
    scheduling: &Scheduling,
    hash: Option<u64>,
    route: &Route,
    chance: &mut impl Chance,
) {
    for equals in entries.chunk_by_mut(|a, b| a.level == b.level) {
        match (hash, scheduling.scheduling_mode) {
            _ if equals.len() < 2 => {}
            (Some(hash), _) => rendezvous(equals, hash, route),
            (None, SchedulingMode::LoadBalance) => balance(equals, route, chance),
            (None, SchedulingMode::FixedOrder | SchedulingMode::CacheAffinity) => {}
        }
    }
}

fn weight(route: &Route, entry: &Entry) -> u32 {
    let target = route.targets.get(entry.target);
    target.map_or(1, |target| target.weight)
}

/// Highest random weight: each target gets a score of its own, so that one that leaves moves nobody else's requests.
fn rendezvous(equals: &mut [Entry], hash: u64, route: &Route) {
    let score = |entry: &Entry| {
        let id = route
            .targets
            .get(entry.target)
            .map_or(0, |target| target.id);
        // 53 bits are what a float keeps; half a step keeps the logarithm from both ends.
        let drawn = (mix(hash, id) >> 11) as f64 + 0.5;
        let uniform = drawn / (1_u64 << 53) as f64;
        f64::from(weight(route, entry)) / -uniform.ln()
    };
    equals.sort_by(|a, b| score(b).total_cmp(&score(a)));
    for entry in equals {
        entry.why = Why::Hashed;
    }
}

/// Power of two choices, over and over: of two that are drawn by weight, the one with less in flight for its weight goes first.
fn balance(equals: &mut [Entry], route: &Route, chance: &mut impl Chance) {
    let load = |entry: &Entry| {
        let target = route.targets.get(entry.target);
        let load = target.and_then(|target| target.load.as_ref());
        load.map_or(0, |load| load.sends())
    };
    for place in 0..equals.len() {
        let Some(rest) = equals.get_mut(place..) else {
            return;
        };
        let of = |entry: &Entry| weight(route, entry);
        let one = draw(rest, of, None, chance);
        let other = draw(rest, of, Some(one), chance);
        let chosen = match (rest.get(one), rest.get(other)) {
            (Some(a), Some(b)) => {
                let cost =
                    |entry: &Entry, weight: u32| u128::from(load(entry)) * u128::from(weight);
                match cost(b, of(a)) < cost(a, of(b)) {
                    true => other,
                    false => one,
                }
            }
            _ => one,
        };
        if let Some(up_to) = rest.get_mut(..=chosen) {
            up_to.rotate_right(1);
        }
        if let Some(first) = rest.first_mut() {
            first.why = Why::Balanced;
        }
    }
}

/// A position, drawn by weight, other than `but`; that one if there is no other.
fn draw<T>(
    among: &[T],
    weight: impl Fn(&T) -> u32,
    but: Option<usize>,
    chance: &mut impl Chance,
) -> usize {
    let others = || {
        let all = among.iter().enumerate();
        all.filter(|(index, _)| Some(*index) != but)
    };
    let total = others().map(|(_, item)| u64::from(weight(item))).sum();
    let mut left = chance.below(total);
    for (index, item) in others() {
        match left.checked_sub(u64::from(weight(item))) {
            Some(rest) => left = rest,
            None => return index,
        }
    }
    but.unwrap_or_default()
}

fn shuffle_by_weight<T>(items: &mut [T], weight: impl Fn(&T) -> u32, chance: &mut impl Chance) {
    for place in 0..items.len().saturating_sub(1) {
        let Some(rest) = items.get_mut(place..) else {
            return;
        };
        let chosen = draw(rest, &weight, None, chance);
        if let Some(up_to) = rest.get_mut(..=chosen) {
            up_to.rotate_right(1);
        }
    }
}

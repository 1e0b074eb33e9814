//! Which candidate served a client's last good answer, so that the next request meets a warm prompt cache.
//!
//! Not here: who asks and when that is followed (`ordering`). Invariants: the table is bounded and never grows once it is there; it
//! holds keyed hashes and identities, no name of a client and no secret; an entry past its time is nothing.

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::core::limits::{AFFINITY_ENTRIES_MAX, AFFINITY_SHARDS, AFFINITY_TIME, AFFINITY_WAYS};
use crate::core::time::MonoTime;

const SETS_PER_SHARD: usize = AFFINITY_ENTRIES_MAX / AFFINITY_SHARDS / AFFINITY_WAYS;

/// A target and a key of it, by identities that a reload keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Favourite {
    /// [`Target::id`](super::route::Target::id).
    pub target: u64,
    /// [`TargetKey::id`](super::route::TargetKey::id).
    pub key: u64,
}

#[derive(Debug, Clone, Copy, Default)]
struct Entry {
    who: u64,
    favourite: Favourite,
    /// Zero for a place that is free.
    until: MonoTime,
}

/// The table. Shards keep operations from waiting for each other; a shard is made when it is first written to.
#[derive(Debug)]
pub struct Affinity {
    /// Mixed into every hash: what is in the table tells nothing without it.
    salt: u64,
    shards: [Mutex<Box<[Entry]>>; AFFINITY_SHARDS],
}

impl Affinity {
    /// An empty table. `salt` is drawn once a process.
    pub fn new(salt: u64) -> Affinity {
        Affinity {
            salt,
            shards: std::array::from_fn(|_| Mutex::default()),
        }
    }

    /// The number under which somebody is found.
    pub fn who(&self, parts: &[&[u8]]) -> u64 {
        super::hash::mix(super::hash::stable(parts), self.salt)
    }

    /// Whose answer was good last, unless that is too long ago.
    pub fn find(&self, who: u64, now: MonoTime) -> Option<Favourite> {
        let shard = self.shard(who)?;
        let entry = set(&shard, who).find(|entry| entry.who == who)?;
        (entry.until > now).then_some(entry.favourite)
    }

    /// A good answer: the next one is wanted from there. The oldest of the same set gives way.
    pub fn keep(&self, who: u64, favourite: Favourite, now: MonoTime) {
        let Some(mut shard) = self.shard(who) else {
            return;
        };
        if shard.is_empty() {
            *shard = vec![Entry::default(); SETS_PER_SHARD * AFFINITY_WAYS].into();
        }
        let place = set_mut(&mut shard, who).min_by_key(|entry| {
            (
                entry.who != who || entry.until == MonoTime::ZERO,
                entry.until,
            )
        });
        if let Some(place) = place {
            *place = Entry {
                who,
                favourite,
                until: now.after(AFFINITY_TIME),
            };
        }
    }

    /// A failure there: the next request goes by order, unless another answer was good meanwhile.
    pub fn forget(&self, who: u64, favourite: Favourite) {
        let Some(mut shard) = self.shard(who) else {
            return;
        };
        let found =
            set_mut(&mut shard, who).find(|entry| entry.who == who && entry.favourite == favourite);
        if let Some(entry) = found {
            *entry = Entry::default();
        }
    }

    fn shard(&self, who: u64) -> Option<MutexGuard<'_, Box<[Entry]>>> {
        let index = usize::try_from(who >> 48).unwrap_or_default() % AFFINITY_SHARDS;
        // What is in there is a hint; a panic elsewhere does not make it worse.
        let shard = self.shards.get(index)?;
        Some(shard.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

fn first_of(who: u64) -> usize {
    usize::try_from(who & 0xffff_ffff).unwrap_or_default() % SETS_PER_SHARD * AFFINITY_WAYS
}

fn set(shard: &[Entry], who: u64) -> impl Iterator<Item = &Entry> {
    shard.iter().skip(first_of(who)).take(AFFINITY_WAYS)
}

fn set_mut(shard: &mut [Entry], who: u64) -> impl Iterator<Item = &mut Entry> {
    shard.iter_mut().skip(first_of(who)).take(AFFINITY_WAYS)
}

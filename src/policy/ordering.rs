//! Who is tried for a request, in which order, on which keys, and why. Pure: the request, the counters that operations share, `now` and
//! a source of chance go in; candidates come out.
//!
//! Not here: what follows a failure. The executor moves over the candidates as they stand. Invariants: the order is resolved once for an
//! operation; every target is a candidate or excluded for one reason; a request that is bound to provider state never meets a draw; a
//! route with one fixed order has it prepared, and asking costs one reference.

mod arrange;
mod judge;

use std::sync::Arc;

use super::affinity::{Affinity, Favourite};
use super::route::{Route, Target, TargetKey};
use super::routing::Mode;
use super::rules::Applied;
use super::scheduling::{HashOn, Scheduling, SchedulingMode};
use super::snapshot::Snapshot;
use crate::core::api::{Api, ApiSet};
use crate::core::chance::Chance;
use crate::core::limits::CANDIDATES_MAX;
use crate::core::time::{MonoTime, WallTime};

use self::arrange::{Entry, arrange, by_level};
use self::judge::Judge;

/// What is known of a request when its candidates are ordered.
pub struct Facts<'a> {
    /// The client's API format.
    pub api: Api,
    /// The public model name.
    pub model: &'a str,
    /// Whether a stream is asked for.
    pub stream: bool,
    /// Whether tokens are counted, which no other provider may do.
    pub counts_tokens: bool,
    /// Whether the request is bound to state that one provider keeps.
    pub is_bound: bool,
    /// Who asks.
    pub client: Client,
    /// The value of a request header, by its name in lower case.
    pub header: &'a dyn Fn(&str) -> Option<&'a [u8]>,
    /// Formats into which the request could be converted. The gateway converts none, so this is empty outside tests.
    pub conversions: ApiSet,
    /// Now, for what is waited for.
    pub now: MonoTime,
    /// Now, for what expires.
    pub wall: WallTime,
}

/// Who asks, without any secret.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Client {
    /// A client whose key is configured, by its name.
    Known(Arc<str>),
    /// Another credential, as a keyed hash.
    Unknown(u64),
    /// No credential.
    #[default]
    Absent,
}

impl Client {
    /// The configured name.
    pub fn name(&self) -> Option<&str> {
        match self {
            Client::Known(name) => Some(name),
            Client::Unknown(_) | Client::Absent => None,
        }
    }

    fn hash(&self) -> Option<u64> {
        match self {
            Client::Known(name) => Some(super::hash::stable(&[b"name", name.as_bytes()])),
            Client::Unknown(hash) => Some(*hash),
            Client::Absent => None,
        }
    }
}

/// A target and the keys it may be tried on: one place in the order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate {
    /// Position of the target in the route.
    pub target: usize,
    /// Positions of keys in the target's pool, in the order in which they are tried; never empty.
    pub keys: Box<[usize]>,
    /// Why it stands where it does.
    pub place: Place,
}

/// Candidates in order.
pub type Candidates = Arc<[Candidate]>;

impl Candidate {
    /// Every target of the route in configured order, each with its whole pool.
    pub fn each(route: &Route) -> Candidates {
        let targets = route.targets.iter().enumerate();
        let whole = targets.map(|(target, found)| Candidate {
            target,
            keys: (0..found.keys.len()).collect(),
            place: Place::CONFIGURED,
        });
        whole.collect()
    }
}

/// Why a candidate stands where it does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// What arranged it.
    pub why: Why,
    /// The priority by which it was sorted: the target's or, with `global_key`, that of its keys.
    pub priority: u32,
}

impl Place {
    /// By the order of the configuration.
    pub const CONFIGURED: Place = Place {
        why: Why::Configured,
        priority: 0,
    };
}

/// What arranged a candidate among those of equal priority.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Why {
    /// The order of the configuration.
    Configured,
    /// A draw by weight and load.
    Balanced,
    /// Consistent hashing.
    Hashed,
    /// It gave the client's last good answer.
    Affinity,
}

impl Why {
    /// The value in JSON.
    pub const fn label(self) -> &'static str {
        match self {
            Why::Configured => "configured",
            Why::Balanced => "balanced",
            Why::Hashed => "hashed",
            Why::Affinity => "affinity",
        }
    }
}

/// Why a target of the route is no candidate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exclusion {
    /// Its provider does not speak the client's API format.
    ApiFormat,
    /// The route's mode is `primary_only`.
    PrimaryOnly,
    /// Another provider would count tokens differently.
    OtherTokenizer,
    /// Its provider's streams come in another format than the client's.
    StreamFormat,
    /// A rule restricts the request to other targets.
    Restricted,
    /// None of its keys may be used.
    NoUsableKey(KeyExclusion),
    /// There are more places than an operation can move over.
    BeyondLimit,
}

impl Exclusion {
    /// The value in JSON.
    pub const fn label(self) -> &'static str {
        match self {
            Exclusion::ApiFormat => "api_format",
            Exclusion::PrimaryOnly => "primary_only",
            Exclusion::OtherTokenizer => "other_tokenizer",
            Exclusion::StreamFormat => "stream_format",
            Exclusion::Restricted => "restricted",
            Exclusion::NoUsableKey(KeyExclusion::Model) => "key_models",
            Exclusion::NoUsableKey(KeyExclusion::Expired) => "key_expired",
            Exclusion::BeyondLimit => "beyond_limit",
        }
    }

    /// A sentence for `rondo explain`.
    pub const fn sentence(self) -> &'static str {
        match self {
            Exclusion::ApiFormat => "its provider does not speak the client's API format",
            Exclusion::PrimaryOnly => "mode primary_only uses the first target alone",
            Exclusion::OtherTokenizer => "token counts never go to another provider",
            Exclusion::StreamFormat => {
                "its provider streams in frames that the client's format has not"
            }
            Exclusion::Restricted => "a rule restricts the request to other targets",
            Exclusion::NoUsableKey(KeyExclusion::Model) => {
                "no key of its provider is allowed for the model"
            }
            Exclusion::NoUsableKey(KeyExclusion::Expired) => {
                "every key of its provider has expired"
            }
            Exclusion::BeyondLimit => "an operation moves over 64 places at most",
        }
    }
}

/// Why a key is not used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyExclusion {
    /// Its `models` do not list the upstream model.
    Model,
    /// Its `expires` has passed.
    Expired,
}

impl KeyExclusion {
    /// The value in JSON.
    pub const fn label(self) -> &'static str {
        match self {
            KeyExclusion::Model => "models",
            KeyExclusion::Expired => "expired",
        }
    }

    /// A sentence for `rondo explain`.
    pub const fn sentence(self) -> &'static str {
        match self {
            KeyExclusion::Model => "not allowed for this model",
            KeyExclusion::Expired => "it has expired",
        }
    }
}

/// What an operation is told.
#[derive(Debug, Clone)]
pub struct Ordered {
    /// Candidates in order.
    pub candidates: Candidates,
    /// Total tries of the first one on its key (R-K1).
    pub sticky_tries: u32,
    /// Where its good answer is remembered, if that is wanted.
    pub pin: Option<Pin>,
}

/// What `rondo explain` is told.
#[derive(Debug, Clone)]
pub struct InFull<'r> {
    /// What the operation is told.
    pub ordered: Ordered,
    /// Targets that are no candidates, in configured order.
    pub excluded: Vec<(usize, Exclusion)>,
    /// Keys that are left out of candidates, by target and position.
    pub keys_excluded: Vec<(usize, usize, KeyExclusion)>,
    /// The rules that match, and the modes that hold with them.
    pub applied: Applied<'r>,
    /// The modes by which the candidates were arranged: those, but that what is bound to state is not drawn.
    pub scheduling: Scheduling,
    /// The name of the client's key, if it is known.
    pub client_key: Option<Arc<str>>,
}

/// A client's place in the table of affinities.
#[derive(Debug, Clone)]
pub struct Pin {
    table: Arc<Affinity>,
    who: u64,
}

impl Pin {
    /// A good answer came from there.
    pub fn keep(&self, target: &Target, key: &TargetKey, now: MonoTime) {
        self.table.keep(self.who, favourite(target, key), now);
    }

    /// Where the last good answer came from, if that is remembered.
    pub fn recall(&self, now: MonoTime) -> Option<Favourite> {
        self.table.find(self.who, now)
    }

    /// It failed there.
    pub fn forget(&self, target: &Target, key: &TargetKey) {
        self.table.forget(self.who, favourite(target, key));
    }
}

const fn favourite(target: &Target, key: &TargetKey) -> Favourite {
    let (target, key) = (target.id, key.id);
    Favourite { target, key }
}

/// The order of candidates for a request.
pub fn order(
    snapshot: &Snapshot,
    route: &Route,
    facts: &Facts<'_>,
    chance: &mut impl Chance,
) -> Ordered {
    match route.prepared.get(facts.api as usize) {
        Some(Some(candidates)) if !facts.counts_tokens && facts.conversions.is_empty() => Ordered {
            candidates: Arc::clone(candidates),
            sticky_tries: route.routing.sticky_tries,
            pin: None,
        },
        _ => in_full(snapshot, route, facts, chance).ordered,
    }
}

/// The order for each API format, by its position in [`Api::ALL`], where every request meets the same.
pub fn prepare(snapshot: &Snapshot, route: &Route) -> Vec<Option<Candidates>> {
    let by_request = |key: &TargetKey, target: &Target| {
        key.rules.expires.is_some() || (target.model.is_none() && !key.rules.models.is_empty())
    };
    let mut targets = route.targets.iter();
    let varies = targets.any(|target| target.keys.iter().any(|key| by_request(key, target)));
    if varies || !route.policy.is_fixed() {
        return Vec::new();
    }
    let prepared = Api::ALL.into_iter().map(|api| {
        let facts = Facts {
            api,
            model: "",
            stream: false,
            counts_tokens: false,
            is_bound: false,
            client: Client::Absent,
            header: &|_| None,
            conversions: ApiSet::EMPTY,
            now: MonoTime::ZERO,
            wall: WallTime::default(),
        };
        // Whether a stream is asked for is the request's, and so is who counts tokens.
        let mut providers = route
            .targets
            .iter()
            .filter_map(|target| snapshot.provider(target.provider));
        let varies = providers.any(|p| p.speaks.contains(api) && !p.streams.contains(api));
        let found = in_full(snapshot, route, &facts, &mut NoChance);
        (!varies).then_some(found.ordered.candidates)
    });
    prepared.collect()
}

/// For orders that hold no draw.
struct NoChance;

impl Chance for NoChance {
    fn below(&mut self, _bound: u64) -> u64 {
        0
    }
}

/// The order with everything that explains it.
pub fn in_full<'r>(
    snapshot: &Snapshot,
    route: &'r Route,
    facts: &Facts<'_>,
    chance: &mut impl Chance,
) -> InFull<'r> {
    let routing = &route.routing;
    let policy = &route.policy;
    let applied = Applied::new(
        &policy.rules,
        &policy.scheduling,
        routing.sticky_tries,
        facts,
    );
    let scheduling = steady(&applied.scheduling, facts.is_bound);
    let mut judge = Judge {
        snapshot,
        route,
        facts,
        applied: &applied,
        excluded: Vec::new(),
        keys_excluded: Vec::new(),
    };
    let mut entries = judge.entries(&scheduling, chance);
    let (mut excluded, keys_excluded) = (judge.excluded, judge.keys_excluded);
    by_level(&mut entries);
    let hash = scheduling
        .hash_on
        .as_ref()
        .and_then(|on| hash_of(on, facts));
    arrange(&mut entries, &scheduling, hash, route, chance);
    let pin = pin(snapshot, route, facts, &scheduling);
    if let Some(pin) = &pin {
        prefer(&mut entries, pin, route, facts);
    }
    narrow(&mut entries, route, facts, &mut excluded);
    excluded.sort_by_key(|(target, _)| *target);
    let ordered = Ordered {
        candidates: entries.into_iter().map(Entry::into_candidate).collect(),
        sticky_tries: applied.sticky_tries,
        pin,
    };
    InFull {
        ordered,
        excluded,
        keys_excluded,
        applied,
        scheduling,
        client_key: match &facts.client {
            Client::Known(name) => Some(Arc::clone(name)),
            Client::Unknown(_) | Client::Absent => None,
        },
    }
}

/// State belongs to an account: what is bound to it is not drawn, or the next request of the conversation would go elsewhere (R-F8).
fn steady(scheduling: &Scheduling, is_bound: bool) -> Scheduling {
    let mut scheduling = scheduling.clone();
    if is_bound && scheduling.scheduling_mode == SchedulingMode::LoadBalance {
        scheduling.scheduling_mode = SchedulingMode::FixedOrder;
    }
    scheduling
}

fn hash_of(on: &HashOn, facts: &Facts<'_>) -> Option<u64> {
    match on {
        HashOn::Header(name) => (facts.header)(name).map(|value| super::hash::stable(&[value])),
        HashOn::ClientKey => facts.client.hash(),
    }
}

/// Same client, same route and public model, same format: that is what a prompt cache is warm for.
fn pin(
    snapshot: &Snapshot,
    route: &Route,
    facts: &Facts<'_>,
    scheduling: &Scheduling,
) -> Option<Pin> {
    if scheduling.scheduling_mode != SchedulingMode::CacheAffinity {
        return None;
    }
    let client = facts.client.hash()?.to_le_bytes();
    let parts = [
        client.as_slice(),
        route.name.as_bytes(),
        facts.model.as_bytes(),
        facts.api.label().as_bytes(),
    ];
    let who = snapshot.affinity.who(&parts);
    let table = Arc::clone(&snapshot.affinity);
    Some(Pin { table, who })
}

/// Puts the candidate of the last good answer first, on the key of that answer. One that cools or fails is left where it stands, but not
/// by what is bound to the provider's state: the account of that answer has it, and no other one can do (R-F8).
fn prefer(entries: &mut [Entry], pin: &Pin, route: &Route, facts: &Facts<'_>) {
    let now = facts.now;
    let Some(last) = pin.table.find(pin.who, now) else {
        return;
    };
    let of = |entry: &Entry| {
        let target = route.targets.get(entry.target)?;
        if target.id != last.target {
            return None;
        }
        entry.keys.iter().position(|key| {
            target.keys.get(*key).is_some_and(|key| {
                let rests = key.cooldown.remaining_after(now).is_some()
                    || key.cooldown.failing_after(now).is_some()
                    || key.aside.remaining_after(now).is_some();
                key.id == last.key && (facts.is_bound || !rests)
            })
        })
    };
    let found = entries
        .iter()
        .enumerate()
        .find_map(|(place, entry)| Some((place, of(entry)?)));
    let Some((place, key)) = found else { return };
    if let Some(up_to) = entries.get_mut(..=place) {
        up_to.rotate_right(1);
    }
    if let Some(first) = entries.first_mut() {
        first.why = Why::Affinity;
        if let Some(up_to) = first.keys.get_mut(..=key) {
            up_to.rotate_right(1);
        }
    }
}

/// What depends on who is first: another tokenizer, other targets than the primary; and the bound.
fn narrow(
    entries: &mut Vec<Entry>,
    route: &Route,
    facts: &Facts<'_>,
    excluded: &mut Vec<(usize, Exclusion)>,
) {
    let provider = |entry: &Entry| {
        route
            .targets
            .get(entry.target)
            .map(|target| target.provider)
    };
    let first = entries.first().and_then(provider);
    let mut leave_out = |entries: &mut Vec<Entry>, keep: &dyn Fn(usize, &Entry) -> bool, why| {
        let mut place = 0;
        let mut gone = Vec::new();
        entries.retain(|entry| {
            let keeps = keep(place, entry);
            place += 1;
            if !keeps {
                gone.push(entry.target);
            }
            keeps
        });
        for target in gone {
            let is_there = entries.iter().any(|entry| entry.target == target);
            if !is_there && !excluded.iter().any(|(known, _)| *known == target) {
                excluded.push((target, why));
            }
        }
    };
    if facts.counts_tokens {
        let same = |_: usize, entry: &Entry| provider(entry) == first;
        leave_out(entries, &same, Exclusion::OtherTokenizer);
    }
    if route.routing.mode == Mode::PrimaryOnly {
        leave_out(entries, &|place, _| place == 0, Exclusion::PrimaryOnly);
    }
    leave_out(
        entries,
        &|place, _| place < CANDIDATES_MAX,
        Exclusion::BeyondLimit,
    );
}

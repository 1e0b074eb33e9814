//! A route: public model names and the ordered targets behind them.

use std::sync::Arc;
use std::time::Duration;

use super::admission::Waiters;
use super::cooldown::{Cooldown, KeyAside};
use super::health::Health;
use super::limits::TargetLimits;
use super::load::Load;
use super::ordering::Candidates;
use super::provider::{KeyRules, Ownership, RetryRules};
use super::retry_budget::RetryBudget;
use super::routing::Routing;
use super::scheduling::RoutePolicy;

/// One route of the snapshot.
#[derive(Debug, Clone)]
pub struct Route {
    /// Name in the configuration; the `route` label.
    pub name: Arc<str>,
    /// Public model names and prefixes.
    pub models: Vec<ModelPattern>,
    /// Targets in configured order; never empty, at most `TARGETS_PER_ROUTE_MAX`.
    pub targets: Vec<Target>,
    /// How it fails over.
    pub routing: Routing,
    /// The absolute deadline of an operation, counted from its request header.
    pub deadline: Duration,
    /// The sleepers of this route. Shared with the snapshots before and after.
    pub waiters: Arc<Waiters>,
    /// Its extra sends. Shared with the snapshots before and after.
    pub retry_budget: Arc<RetryBudget>,
    /// What decides who is tried in which order.
    pub policy: RoutePolicy,
    /// The order for each API format, in the order of `Api::ALL`, where every request meets the same; empty where it does not.
    pub prepared: Vec<Option<Candidates>>,
}

/// `gpt-4o` or `gpt-4o-mini*`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ModelPattern {
    /// The whole name.
    Exact(Box<str>),
    /// What the name begins with; the star is not part of it.
    Prefix(Box<str>),
}

impl ModelPattern {
    /// The pattern as it stands in the configuration.
    pub fn text(&self) -> String {
        match self {
            ModelPattern::Exact(name) => name.to_string(),
            ModelPattern::Prefix(prefix) => format!("{prefix}*"),
        }
    }

    /// Whether a model name fits.
    pub fn matches(&self, model: &str) -> bool {
        match self {
            ModelPattern::Exact(name) => **name == *model,
            ModelPattern::Prefix(prefix) => model.starts_with(&**prefix),
        }
    }

    /// The pattern of a text.
    pub fn of(text: &str) -> ModelPattern {
        match text.strip_suffix('*') {
            Some(prefix) => ModelPattern::Prefix(prefix.into()),
            None => ModelPattern::Exact(text.into()),
        }
    }
}

/// One target of a route.
#[derive(Debug, Clone)]
pub struct Target {
    /// Name in the configuration; the `target` label. Unique in its route.
    pub name: Arc<str>,
    /// Index into [`Snapshot::providers`](super::snapshot::Snapshot::providers).
    pub provider: usize,
    /// The upstream's model name; `None` passes the client's.
    pub model: Option<Arc<str>>,
    /// The pool of keys, in the provider's order. Never empty: a provider without keys has one without a name.
    pub keys: Vec<TargetKey>,
    /// Who owns the retries of its provider.
    pub ownership: Ownership,
    /// The gateway's own retries at its provider, when it owns them.
    pub retry: Option<RetryRules>,
    /// The state of its provider, when that is checked.
    pub health: Option<Arc<Health>>,
    /// The account of its local limits, when it has any. Shared with the snapshots before and after as long as they are the same.
    pub limits: Option<Arc<TargetLimits>>,
    /// Where it stands among the route's targets; lower goes first, equals stand in configured order.
    pub priority: u32,
    /// Its share among targets of equal priority; at least 1.
    pub weight: u32,
    /// The same number wherever and whenever the target is configured under this name at this provider.
    pub id: u64,
    /// Position of the first provider with the same address: what cannot be reached there cannot be reached here.
    pub endpoint: usize,
    /// Its sends in flight, where some route balances load. Shared by every route that has the same provider and model.
    pub load: Option<Arc<Load>>,
}

/// One key of a target's pool, with what is known of it.
#[derive(Debug, Clone)]
pub struct TargetKey {
    /// Name in the configuration; safe to print.
    pub name: Option<Arc<str>>,
    /// The not-before instant of (provider, key, model). Shared by every route that has the same three, and kept across reloads.
    pub cooldown: Arc<Cooldown>,
    /// Whether the key is set aside for every model. Shared by every target of the provider, and kept across reloads.
    pub aside: Arc<KeyAside>,
    /// When and before which others it is used.
    pub rules: Arc<KeyRules>,
    /// The same number wherever and whenever the provider has a key of this name.
    pub id: u64,
}

impl TargetKey {
    /// A key of which nothing is known.
    pub fn fresh(name: Option<Arc<str>>) -> TargetKey {
        TargetKey {
            id: super::hash::stable(&[name.as_deref().unwrap_or_default().as_bytes()]),
            name,
            cooldown: Arc::default(),
            aside: Arc::default(),
            rules: Arc::default(),
        }
    }
}

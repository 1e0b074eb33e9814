//! A route: public model names and the ordered targets behind them.

use std::sync::Arc;
use std::time::Duration;

use super::admission::Waiters;
use super::cooldown::{Cooldown, KeyAside};
use super::health::Health;
use super::limits::TargetLimits;
use super::provider::{Ownership, RetryRules};
use super::retry_budget::RetryBudget;
use super::routing::Routing;

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
}

impl TargetKey {
    /// A key of which nothing is known.
    pub fn fresh(name: Option<Arc<str>>) -> TargetKey {
        TargetKey {
            name,
            cooldown: Arc::default(),
            aside: Arc::default(),
        }
    }
}

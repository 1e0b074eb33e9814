//! The effective scheduling of a route: its modes, where each value of its policy came from, and its rules.
//!
//! Not here: the order itself (`ordering`). Resolved when the configuration is loaded; nothing else reads the keys of the scheduler.

use std::sync::Arc;

use super::rules::Rule;

/// What priority is compared first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum PriorityMode {
    /// That of targets; each is tried with its pool of keys.
    #[default]
    Provider,
    /// That of keys, over all targets.
    GlobalKey,
}

impl PriorityMode {
    /// The YAML value.
    pub const fn label(self) -> &'static str {
        match self {
            PriorityMode::Provider => "provider",
            PriorityMode::GlobalKey => "global_key",
        }
    }
}

/// How candidates of equal priority are arranged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum SchedulingMode {
    /// As they stand in the configuration.
    #[default]
    FixedOrder,
    /// The same, after the candidate of the client's last good answer.
    CacheAffinity,
    /// By chance and load.
    LoadBalance,
}

impl SchedulingMode {
    /// The YAML value.
    pub const fn label(self) -> &'static str {
        match self {
            SchedulingMode::FixedOrder => "fixed_order",
            SchedulingMode::CacheAffinity => "cache_affinity",
            SchedulingMode::LoadBalance => "load_balance",
        }
    }
}

/// `hash_on`: what chooses among targets of equal priority, the same for as long as they are the same.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum HashOn {
    /// The value of a request header, by its name in lower case.
    Header(Arc<str>),
    /// Who the client is.
    ClientKey,
}

impl HashOn {
    /// The YAML value.
    pub fn text(&self) -> String {
        match self {
            HashOn::Header(name) => format!("header:{name}"),
            HashOn::ClientKey => "client_key".to_owned(),
        }
    }
}

/// The modes of a route.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Scheduling {
    /// What priority is compared first.
    pub priority_mode: PriorityMode,
    /// How equals are arranged.
    pub scheduling_mode: SchedulingMode,
    /// Whether a candidate that needs another API format keeps its place; else it stands behind those that do not.
    pub keep_priority_on_conversion: bool,
    /// What chooses among equals instead.
    pub hash_on: Option<HashOn>,
}

/// Where an effective value came from, the strongest first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// A rule that matched, by its name.
    Rule(Arc<str>),
    /// The route's own `routing`.
    Route,
    /// A profile, by its name.
    Profile(Arc<str>),
    /// The `scheduler` block.
    Scheduler,
    /// Nobody said anything.
    Default,
}

impl Origin {
    /// A word for views.
    pub fn text(&self) -> String {
        match self {
            Origin::Rule(name) => format!("rule {name}"),
            Origin::Route => "route".to_owned(),
            Origin::Profile(name) => format!("profile {name}"),
            Origin::Scheduler => "scheduler".to_owned(),
            Origin::Default => "default".to_owned(),
        }
    }
}

/// What decides who is tried in which order on a route.
#[derive(Debug, Clone, Default)]
pub struct RoutePolicy {
    /// The profile that the route uses.
    pub profile: Arc<str>,
    /// Its modes, before rules.
    pub scheduling: Scheduling,
    /// Where each key of `routing` has its value from, in the order of the documentation.
    pub origins: Vec<(&'static str, Origin)>,
    /// The rules that can match a request of this route, in the order in which they are applied.
    pub rules: Vec<Rule>,
}

impl RoutePolicy {
    /// Whether the order may depend on who asks.
    pub fn asks_who(&self) -> bool {
        !self.rules.is_empty()
            || self.scheduling.scheduling_mode == SchedulingMode::CacheAffinity
            || self.scheduling.hash_on == Some(HashOn::ClientKey)
    }

    /// Whether every request of one API format meets the same order, as far as modes and rules say.
    pub fn is_fixed(&self) -> bool {
        self.rules.is_empty()
            && self.scheduling.scheduling_mode == SchedulingMode::FixedOrder
            && self.scheduling.hash_on.is_none()
    }
}

//! Routing rules, prepared for one route: what a request must be like, and what then holds.
//!
//! Not here: the names of a configuration. They were resolved when it was loaded, and rules that can never match the route were left out.
//! Rules are applied in their order; a later one wins over an earlier, but a restriction only ever narrows.

use std::sync::Arc;

use super::ordering::Facts;
use super::route::ModelPattern;
use super::scheduling::{PriorityMode, Scheduling, SchedulingMode};
use crate::core::api::Api;

/// A rule as it stands for one route.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// Its name.
    pub name: Arc<str>,
    /// What a request must be like.
    pub when: When,
    /// What then holds, in order.
    pub actions: Vec<Action>,
    /// Whether no later rule is looked at.
    pub stop: bool,
}

/// Conditions; all that are given must hold. The route was checked when the rule was prepared.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct When {
    /// The public model name.
    pub model: Option<ModelPattern>,
    /// The API format.
    pub api: Option<Api>,
    /// A request header.
    pub header: Option<HeaderIs>,
    /// The name of the client's key.
    pub client_key: Option<Arc<str>>,
    /// Whether a stream is asked for.
    pub stream: Option<bool>,
}

/// A condition on a header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeaderIs {
    /// Its name in lower case.
    pub name: Arc<str>,
    /// What its value is.
    pub value: HeaderValueIs,
}

/// What the value of a header is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HeaderValueIs {
    /// Exactly this.
    Exact(Box<str>),
    /// It begins so.
    Prefix(Box<str>),
    /// Anything, if the header is there.
    Present,
    /// The header is not there.
    Absent,
}

/// What holds when a rule matches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// These targets alone: a bit set of positions.
    Restrict(u64),
    /// Other modes.
    Schedule(ModesSet),
    /// Another priority of a target.
    TargetPriority {
        /// Its position.
        target: usize,
        /// The priority.
        priority: u32,
    },
    /// Another priority of a key, wherever it is.
    KeyPriority {
        /// For this format; for all when absent.
        api: Option<Api>,
        /// The provider, as an index; any when absent.
        provider: Option<usize>,
        /// Its name.
        key: Arc<str>,
        /// The priority.
        priority: u32,
    },
}

/// Modes that a rule sets; what is absent stays.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ModesSet {
    /// `priority_mode`.
    pub priority_mode: Option<PriorityMode>,
    /// `scheduling_mode`.
    pub scheduling_mode: Option<SchedulingMode>,
    /// `keep_priority_on_conversion`.
    pub keep_priority_on_conversion: Option<bool>,
    /// `sticky_key_attempts`, as a total of at least 1.
    pub sticky_tries: Option<u32>,
}

/// A condition of a rule that a request does not meet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unmet {
    /// `when.model`.
    Model,
    /// `when.api`.
    Api,
    /// `when.header`.
    Header,
    /// `when.client_key`.
    ClientKey,
    /// `when.stream`.
    Stream,
}

impl Unmet {
    /// The key in the configuration.
    pub const fn label(self) -> &'static str {
        match self {
            Unmet::Model => "model",
            Unmet::Api => "api",
            Unmet::Header => "header",
            Unmet::ClientKey => "client_key",
            Unmet::Stream => "stream",
        }
    }
}

impl When {
    fn holds(&self, facts: &Facts<'_>) -> bool {
        self.unmet(facts).is_none()
    }

    /// The first condition that does not hold.
    pub fn unmet(&self, facts: &Facts<'_>) -> Option<Unmet> {
        let model = self.model.as_ref();
        let client = self.client_key.as_deref();
        let header = self.header.as_ref();
        if model.is_some_and(|model| !model.matches(facts.model)) {
            Some(Unmet::Model)
        } else if self.api.is_some_and(|api| api != facts.api) {
            Some(Unmet::Api)
        } else if self.stream.is_some_and(|stream| stream != facts.stream) {
            Some(Unmet::Stream)
        } else if client.is_some_and(|name| facts.client.name() != Some(name)) {
            Some(Unmet::ClientKey)
        } else if header.is_some_and(|header| !header.holds(facts)) {
            Some(Unmet::Header)
        } else {
            None
        }
    }
}

impl HeaderIs {
    fn holds(&self, facts: &Facts<'_>) -> bool {
        let found = (facts.header)(&self.name);
        match &self.value {
            HeaderValueIs::Exact(value) => found == Some(value.as_bytes()),
            HeaderValueIs::Prefix(prefix) => {
                found.is_some_and(|value| value.starts_with(prefix.as_bytes()))
            }
            HeaderValueIs::Present => found.is_some(),
            HeaderValueIs::Absent => found.is_none(),
        }
    }
}

/// The rules that match a request, applied over a route's own modes.
#[derive(Debug, Clone)]
pub struct Applied<'r> {
    /// All rules of the route.
    rules: &'r [Rule],
    /// Which of them match.
    matched: u64,
    /// The modes that hold.
    pub scheduling: Scheduling,
    /// Total tries of the first candidate on its key.
    pub sticky_tries: u32,
    /// Targets that may be tried: a bit set of positions.
    pub allowed: u64,
}

impl<'r> Applied<'r> {
    /// Looks for the rules that match.
    pub fn new(
        rules: &'r [Rule],
        scheduling: &Scheduling,
        sticky_tries: u32,
        facts: &Facts<'_>,
    ) -> Applied<'r> {
        let mut applied = Applied {
            rules,
            matched: 0,
            scheduling: scheduling.clone(),
            sticky_tries,
            allowed: u64::MAX,
        };
        for (index, rule) in rules.iter().enumerate() {
            if !rule.when.holds(facts) {
                continue;
            }
            applied.matched |= 1 << index;
            for action in &rule.actions {
                applied.take(action);
            }
            if rule.stop {
                break;
            }
        }
        applied
    }

    fn take(&mut self, action: &Action) {
        match action {
            Action::Restrict(targets) => self.allowed &= targets,
            Action::Schedule(modes) => {
                let scheduling = &mut self.scheduling;
                let set = modes.priority_mode.unwrap_or(scheduling.priority_mode);
                scheduling.priority_mode = set;
                let set = modes.scheduling_mode.unwrap_or(scheduling.scheduling_mode);
                scheduling.scheduling_mode = set;
                let keep = modes.keep_priority_on_conversion;
                scheduling.keep_priority_on_conversion =
                    keep.unwrap_or(scheduling.keep_priority_on_conversion);
                self.sticky_tries = modes.sticky_tries.unwrap_or(self.sticky_tries);
            }
            // Looked up when a priority is asked for.
            Action::TargetPriority { .. } | Action::KeyPriority { .. } => {}
        }
    }

    /// The rules that match, in their order.
    pub fn matched(&self) -> impl DoubleEndedIterator<Item = &'r Rule> + use<'r> {
        let matched = self.matched;
        let rules = self.rules.iter().enumerate();
        rules
            .filter(move |(index, _)| matched & (1 << index) != 0)
            .map(|(_, rule)| rule)
    }

    /// The actions that hold, the strongest first.
    fn strongest(&self) -> impl Iterator<Item = &'r Action> + use<'r> {
        self.matched()
            .rev()
            .flat_map(|rule| rule.actions.iter().rev())
    }

    /// The rule that leaves a target out, if one does.
    pub fn restricting(&self, target: usize) -> Option<&'r Arc<str>> {
        let leaves_out =
            |action: &Action| matches!(action, Action::Restrict(set) if set & (1 << target) == 0);
        let mut matched = self.matched();
        let rule = matched.find(|rule| rule.actions.iter().any(leaves_out))?;
        Some(&rule.name)
    }

    /// The priority that a rule gives a target.
    pub fn target_priority(&self, position: usize) -> Option<u32> {
        self.strongest().find_map(|action| match action {
            Action::TargetPriority { target, priority } if *target == position => Some(*priority),
            _ => None,
        })
    }

    /// The rule that gives a target its priority.
    pub fn prioritizing(&self, position: usize) -> Option<&'r Arc<str>> {
        let gives = |action: &Action| matches!(action, Action::TargetPriority { target, .. } if *target == position);
        let mut matched = self.matched().rev();
        let rule = matched.find(|rule| rule.actions.iter().any(gives))?;
        Some(&rule.name)
    }

    /// The priority that a rule gives a key of a provider.
    pub fn key_priority(&self, provider: usize, name: &str, api: Api) -> Option<u32> {
        self.strongest().find_map(|action| match action {
            Action::KeyPriority {
                api: of,
                provider: at,
                key,
                priority,
            } => {
                let fits = **key == *name
                    && of.is_none_or(|of| of == api)
                    && at.is_none_or(|at| at == provider);
                fits.then_some(*priority)
            }
            _ => None,
        })
    }
}

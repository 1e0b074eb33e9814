//! `profiles` and `scheduler`: what a route's `routing` is laid over, and where each value came from.
//!
//! Invariant: without a profile `default` there is one all the same, made from `scheduler`, the same each time; with one, `scheduler`
//! says nothing to anybody.

use std::sync::Arc;

use super::Compiler;
use crate::config::defaults;
use crate::config::problem::nearest;
use crate::config::reader::Map;
use crate::policy::scheduling::{
    HashOn, Origin, PriorityMode, RoutePolicy, Scheduling, SchedulingMode,
};

/// The profiles of the file.
pub(super) struct Profiles<'n> {
    named: Vec<(&'n str, Map<'n>)>,
    /// `None` when it is out of use.
    scheduler: Option<Map<'n>>,
}

/// What one route takes its policy from.
pub(super) struct Sources<'n> {
    /// The name of the profile.
    pub profile: Arc<str>,
    /// `routing` over the profile.
    pub routing: Map<'n>,
    scheduler: Option<Map<'n>>,
}

impl Compiler<'_> {
    pub(super) fn profiles<'n>(&mut self, root: &Map<'n>) -> Profiles<'n> {
        let named = root.named("profiles");
        let named: Vec<_> = named
            .into_iter()
            .map(|(name, map)| (name.value, map))
            .collect();
        let mut scheduler = root.given_map("scheduler");
        if scheduler.is_some() && named.iter().any(|(name, _)| *name == defaults::PROFILE) {
            let message = "no effect: the profile `default` is given and stands alone; move these keys there, or remove them";
            self.report.warn(&root.at("scheduler"), message);
            scheduler = None;
        }
        Profiles { named, scheduler }
    }

    /// Finds the profile of a route.
    pub(super) fn sources<'n>(&mut self, route: &Map<'n>, profiles: &Profiles<'n>) -> Sources<'n> {
        let given = route.text("profile");
        let name = given.unwrap_or(defaults::PROFILE);
        let mut named = profiles.named.iter();
        let found = named.find(|(known, _)| *known == name).map(|(_, map)| map);
        if let (Some(wanted), None) = (given, found)
            && wanted != defaults::PROFILE
        {
            let names = || profiles.named.iter().map(|(name, _)| *name);
            let message = match nearest(wanted, names()) {
                Some(name) => format!("no profile is called {wanted}; did you mean `{name}`?"),
                None => {
                    let all: Vec<&str> = names().take(20).chain([defaults::PROFILE]).collect();
                    let list = all.join(", ");
                    format!("no profile is called {wanted}; there are: {list}")
                }
            };
            self.report.refuse(&route.at("profile"), message);
        }
        Sources {
            profile: name.into(),
            routing: route.map("routing").over(found),
            scheduler: profiles.scheduler.clone(),
        }
    }
}

impl<'n> Sources<'n> {
    /// The policy of the route, before its rules are known.
    pub fn policy(&self) -> RoutePolicy {
        let from = |key: &str| self.giving(key);
        let scheduling = Scheduling {
            priority_mode: priority_mode(from("priority_mode").text("priority_mode")),
            scheduling_mode: scheduling_mode(from("scheduling_mode").text("scheduling_mode")),
            keep_priority_on_conversion: from("keep_priority_on_conversion")
                .flag("keep_priority_on_conversion")
                .unwrap_or(defaults::KEEP_PRIORITY_ON_CONVERSION),
            hash_on: self.routing.text("hash_on").map(hash_on),
        };
        let keys = self.routing.keys();
        let origins = keys.map(|key| (key, self.origin(key))).collect();
        RoutePolicy {
            profile: Arc::clone(&self.profile),
            scheduling,
            origins,
            rules: Vec::new(),
        }
    }

    /// The scheduler, if it is what gives this key.
    fn by_scheduler(&self, key: &str) -> Option<&Map<'n>> {
        let scheduler = self.scheduler.as_ref().filter(|_| !self.routing.has(key))?;
        let mut known = scheduler.keys();
        let gives = known.any(|known| known == key) && scheduler.has(key);
        gives.then_some(scheduler)
    }

    fn giving(&self, key: &str) -> &Map<'n> {
        self.by_scheduler(key).unwrap_or(&self.routing)
    }

    fn origin(&self, key: &str) -> Origin {
        if self.routing.is_own(key) {
            return Origin::Route;
        }
        if self.routing.has(key) {
            return Origin::Profile(Arc::clone(&self.profile));
        }
        match self.by_scheduler(key) {
            Some(_) => Origin::Scheduler,
            None => Origin::Default,
        }
    }
}

/// A word that was refused reads as the default.
pub(super) fn priority_mode(word: Option<&str>) -> PriorityMode {
    let all = [PriorityMode::Provider, PriorityMode::GlobalKey];
    let found = all.into_iter().find(|mode| Some(mode.label()) == word);
    found.unwrap_or_default()
}

/// The same.
pub(super) fn scheduling_mode(word: Option<&str>) -> SchedulingMode {
    let all = [
        SchedulingMode::FixedOrder,
        SchedulingMode::CacheAffinity,
        SchedulingMode::LoadBalance,
    ];
    let found = all.into_iter().find(|mode| Some(mode.label()) == word);
    found.unwrap_or_default()
}

fn hash_on(text: &str) -> HashOn {
    match text.strip_prefix("header:") {
        Some(name) => HashOn::Header(name.to_ascii_lowercase().into()),
        None => HashOn::ClientKey,
    }
}

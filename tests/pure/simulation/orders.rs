//! Orders of a simulated world: asked of the code as the gateway asks, and judged by books of our own.
//!
//! What is held here: nobody is lost or listed twice; priority comes first; equals stand in the configured order unless a mode says
//! otherwise; the last good candidate of a client leads while it is warm and well, and only then.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use rand::rngs::SmallRng;
use rondo::core::api::{Api, ApiSet};
use rondo::core::class::Class;
use rondo::core::outcome::Outcome;
use rondo::core::time::{MonoTime, WallTime};
use rondo::executor::effect::Begin;
use rondo::executor::event::{Event, StreamEnd};
use rondo::executor::plan::Plan;
use rondo::policy::ordering::{Candidate, Client, Facts, order};
use rondo::policy::route::Route;
use rondo::policy::routing::Mode;
use rondo::policy::scheduling::{PriorityMode, SchedulingMode};
use rondo::policy::snapshot::Snapshot;

use crate::compiled::compiled;

/// How long a prompt cache is taken for warm.
const WARM: Duration = Duration::from_secs(300);

/// A snapshot with four providers of OpenAI's format. Routes are the world's.
pub fn providers() -> Arc<Snapshot> {
    let provider = |index: usize| {
        format!("  p{index}: {{ adapter: openai, base_url: 'http://p{index}.example' }}\n")
    };
    let providers: String = (0..4).map(provider).collect();
    let text = format!(
        "
providers:
{providers}
routes: [{{ name: r, models: [m], targets: [{{ name: t, provider: p0 }}] }}]
ledger: {{ store: off }}
"
    );
    compiled(&text, None)
}

/// One operation that is about to begin.
pub struct Asked<'a> {
    pub snapshot: &'a Snapshot,
    pub route: &'a Arc<Route>,
    pub client: &'a str,
    pub is_bound: bool,
    pub now: MonoTime,
}

impl Asked<'_> {
    /// The plan in the order that the route's policy gives.
    pub fn plan(&self, plan: Plan, rng: &mut SmallRng) -> Plan {
        let facts = Facts {
            api: Api::OpenaiChat,
            model: "m",
            stream: false,
            counts_tokens: false,
            is_bound: self.is_bound,
            client: Client::Known(self.client.into()),
            header: &|_| None,
            conversions: ApiSet::EMPTY,
            now: self.now,
            wall: WallTime::default(),
        };
        let ordered = order(self.snapshot, self.route, &facts, rng);
        Plan {
            candidates: ordered.candidates,
            sticky_tries: ordered.sticky_tries,
            pin: ordered.pin,
            ..plan
        }
    }
}

/// What an event says of an attempt, as far as it is remembered of clients.
#[derive(Debug, Clone, Copy)]
pub enum Told {
    Good,
    Bad,
    Nothing,
}

impl Told {
    /// `undecided` is whether a send is out of which nothing is known yet, `run_out` whether that, or an answer, has been silent for longer
    /// than it may: who leaves then has not ended it.
    pub fn of(event: &Event, undecided: bool, run_out: bool) -> Told {
        match event {
            Event::ClientGone | Event::Dropped | Event::StreamEnded(StreamEnd::ClientGone)
                if run_out =>
            {
                Told::Bad
            }
            Event::DeadlinePassed if undecided => Told::Bad,
            Event::Outcome(report) => match (report.outcome, report.class) {
                (Outcome::Succeeded, _) => Told::Good,
                (Outcome::Rejected(_), _) => Told::Nothing,
                (_, Class::Config | Class::ContextOverflow | Class::ContentPolicy) => Told::Nothing,
                _ => Told::Bad,
            },
            Event::StreamEnded(StreamEnd::UpstreamBroke | StreamEnd::UpstreamTimedOut) => Told::Bad,
            _ => Told::Nothing,
        }
    }
}

/// Who served whom last: target, key, and until when that counts.
#[derive(Debug, Default)]
pub struct Orders {
    last: BTreeMap<String, (u64, u64, MonoTime)>,
}

impl Orders {
    /// Takes note of what became of an attempt.
    pub fn learn(
        &mut self,
        client: &str,
        plan: &Plan,
        open: Option<Begin>,
        told: Told,
        now: MonoTime,
    ) {
        let affine = plan.route.policy.scheduling.scheduling_mode == SchedulingMode::CacheAffinity;
        let Some(begin) = open.filter(|_| affine) else {
            return;
        };
        let target = &plan.route.targets[begin.target];
        let place = (target.id, target.keys[begin.key].id);
        match told {
            Told::Good => {
                let entry = (place.0, place.1, now.after(WARM));
                self.last.insert(client.to_owned(), entry);
            }
            Told::Bad if plan.binding.is_some() => {}
            Told::Bad => {
                let same = |entry: &&(u64, u64, MonoTime)| (entry.0, entry.1) == place;
                if self.last.get(client).filter(same).is_some() {
                    self.last.remove(client);
                }
            }
            Told::Nothing => {}
        }
    }

    /// Judges an order.
    pub fn check(&self, asked: &Asked<'_>, plan: &Plan) {
        let (route, candidates) = (asked.route, &plan.candidates);
        let scheduling = &route.policy.scheduling;
        let mut pairs: Vec<(usize, usize)> = candidates
            .iter()
            .flat_map(|c| c.keys.iter().map(|key| (c.target, *key)))
            .collect();
        pairs.sort_unstable();
        let targets = route.targets.iter().enumerate();
        let all: Vec<(usize, usize)> = targets
            .flat_map(|(index, target)| (0..target.keys.len()).map(move |key| (index, key)))
            .collect();
        if route.routing.mode == Mode::PrimaryOnly {
            assert_eq!(candidates.len(), 1, "R-F6");
        } else {
            assert_eq!(pairs, all, "R-B2: every key of every target, once");
        }
        let led = self.leads(asked, candidates);
        let rest = if led { &candidates[1..] } else { candidates };
        let level = |c: &Candidate| {
            let target = &route.targets[c.target];
            let keys = c.keys.iter().map(|key| target.keys[*key].rules.priority);
            match scheduling.priority_mode {
                PriorityMode::Provider => (target.priority, 0),
                PriorityMode::GlobalKey => (keys.min().unwrap(), target.priority),
            }
        };
        let levels: Vec<_> = rest.iter().map(level).collect();
        assert!(levels.is_sorted(), "priority comes first: {levels:?}");
        let draws = scheduling.scheduling_mode == SchedulingMode::LoadBalance && !asked.is_bound;
        if !draws && scheduling.hash_on.is_none() {
            let places: Vec<_> = rest.iter().map(|c| (level(c), c.target)).collect();
            assert!(places.is_sorted(), "equals stand as configured: {places:?}");
        }
        for (place, candidate) in candidates.iter().enumerate() {
            let keys = &route.targets[candidate.target].keys;
            let mut order: Vec<_> = candidate
                .keys
                .iter()
                .map(|k| (keys[*k].rules.priority, *k))
                .collect();
            if led && place == 0 {
                order.remove(0);
            }
            if draws {
                order.iter_mut().for_each(|(_, key)| *key = 0);
            }
            assert!(order.is_sorted(), "keys by priority: {order:?}");
        }
    }

    /// Whether the client's last good candidate leads, as it must while it is warm and well.
    fn leads(&self, asked: &Asked<'_>, candidates: &[Candidate]) -> bool {
        let scheduling = &asked.route.policy.scheduling;
        if scheduling.scheduling_mode != SchedulingMode::CacheAffinity {
            return false;
        }
        let warm = self.last.get(asked.client);
        let Some((target, key, _)) = warm.filter(|(_, _, until)| *until > asked.now) else {
            return false;
        };
        let position = asked.route.targets.iter().position(|t| t.id == *target);
        let Some(position) = position else {
            return false;
        };
        let keys = &asked.route.targets[position].keys;
        let Some(index) = keys.iter().position(|k| k.id == *key) else {
            return false;
        };
        let rests = keys[index].cooldown.remaining_after(asked.now).is_some()
            || keys[index].cooldown.failing_after(asked.now).is_some()
            || keys[index].aside.remaining_after(asked.now).is_some();
        // What is bound has its state there, whatever else.
        if rests && !asked.is_bound {
            return false;
        }
        let first = &candidates[0];
        assert_eq!(
            (first.target, first.keys[0]),
            (position, index),
            "the last good candidate leads"
        );
        true
    }
}

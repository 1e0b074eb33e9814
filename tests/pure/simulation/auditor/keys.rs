//! Pools of keys: which may be used, what sets one aside, when the next one's turn is (R-S12, R-F8, C13).

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::time::Duration;

use rondo::core::class::Class;
use rondo::core::outcome::{AttemptReport, Outcome, Scope};
use rondo::core::time::MonoTime;
use rondo::executor::effect::Begin;
use rondo::policy::cooldown::AsideReason;

use super::budget::BudgetBooks;
use super::shares::{Refuses, Shares};
use super::{Auditor, DEFAULT_DELAY, Past};

/// How long a key is set aside that its provider does not accept.
const REFUSED_ASIDE: Duration = Duration::from_secs(60);

/// What is known to everybody of cooldowns and keys, by the identity of the shared counter.
#[derive(Debug, Default)]
pub struct Cooling {
    until: BTreeMap<usize, MonoTime>,
    refused: BTreeMap<usize, MonoTime>,
    quota: BTreeMap<usize, MonoTime>,
    pub(super) shares: Shares,
    pub(super) budgets: RefCell<BTreeMap<usize, BudgetBooks>>,
}

impl Cooling {
    pub(super) fn until(&self, key: usize) -> MonoTime {
        self.until.get(&key).copied().unwrap_or_default()
    }

    pub fn extend(&mut self, key: usize, until: MonoTime) {
        let entry = self.until.entry(key).or_default();
        *entry = (*entry).max(until);
    }

    pub(super) fn end(&mut self, key: usize, seen: MonoTime) {
        if self.until(key) == seen {
            self.until.remove(&key);
        }
    }

    pub fn set_aside(&mut self, key: usize, reason: AsideReason, until: MonoTime) {
        let map = match reason {
            AsideReason::Refused => &mut self.refused,
            AsideReason::Quota => &mut self.quota,
        };
        let entry = map.entry(key).or_default();
        *entry = (*entry).max(until);
    }

    /// Until when a key is set aside for each reason.
    pub(super) fn aside(&self, key: usize) -> (MonoTime, MonoTime) {
        let of = |map: &BTreeMap<usize, MonoTime>| map.get(&key).copied().unwrap_or_default();
        (of(&self.refused), of(&self.quota))
    }
}

/// One key of a candidate's pool.
#[derive(Debug, Clone, Copy)]
pub(super) struct KeyBooks {
    pub cooldown: usize,
    pub aside: usize,
    pub named: bool,
    /// What this operation was told of it, and what it assumes where nothing was told.
    pub told: Option<MonoTime>,
    pub assumed: Option<MonoTime>,
}

/// Why a key may not be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unfit {
    Cooling,
    Refused,
    Quota,
    Failing,
    Limited,
    RuledOut,
}

impl Unfit {
    /// How many reasons there are.
    pub const COUNT: usize = 6;
}

impl Auditor {
    pub(super) fn target(&self, candidate: usize) -> usize {
        self.plan.candidates[candidate].target
    }

    /// R-K2: a failure of the credential, of the target, of its address or its provider is one of all that have it. An address that was
    /// reached later is not ruled out. Of the candidate that failed itself the other rules speak.
    fn is_ruled_out(&self, candidate: usize, key: usize) -> bool {
        let target = self.target(candidate);
        let of = |position: usize| &self.plan.route.targets[position];
        let own = of(target);
        let unreached = |past: &Past| {
            let report = past.report.as_ref();
            report.is_some_and(|r| r.outcome == Outcome::NotDelivered && r.scope == Scope::Endpoint)
        };
        let same_place = |past: &&Past| of(past.begin.target).endpoint == own.endpoint;
        let last = self.past.iter().rfind(same_place);
        if last.is_some_and(|last| last.begin.candidate != candidate && unreached(last)) {
            return true;
        }
        self.past.iter().any(|past| {
            let Some(report) = past.report.as_ref() else {
                return false;
            };
            if past.begin.candidate == candidate {
                return false;
            }
            let other = of(past.begin.target);
            report.outcome == Outcome::Refused
                && match report.scope {
                    Scope::Candidate => false,
                    Scope::Credential => {
                        Auditor::is_of_key_alone(report)
                            && other.provider == own.provider
                            && past.begin.key == key
                    }
                    Scope::Endpoint => past.begin.target == target,
                    Scope::Provider => other.provider == own.provider,
                }
        })
    }

    pub(super) fn unfit(&self, candidate: usize, key: usize, cooling: &Cooling) -> Option<Unfit> {
        let books = &self.keys[self.target(candidate)][key];
        let (refused, quota) = cooling.aside(books.aside);
        if refused.max(quota) > self.now {
            return Some(if quota >= refused {
                Unfit::Quota
            } else {
                Unfit::Refused
            });
        }
        if self.is_ruled_out(candidate, key) {
            return Some(Unfit::RuledOut);
        }
        let own = books.told.max(books.assumed).unwrap_or_default();
        if own.max(cooling.until(books.cooldown)) > self.now {
            return Some(Unfit::Cooling);
        }
        let sick = self.is_sick(candidate) && !(0..self.reach()).all(|c| self.is_sick(c));
        (sick || cooling.failing(books.cooldown) > self.now).then_some(Unfit::Failing)
    }

    /// Whether the provider does not answer its checks.
    fn is_sick(&self, candidate: usize) -> bool {
        let target = &self.plan.route.targets[self.target(candidate)];
        target
            .health
            .as_ref()
            .is_some_and(|health| !health.is_healthy())
    }

    /// Whether others know a reason not to use the key.
    pub(super) fn shared_unfit(&self, candidate: usize, key: usize, cooling: &Cooling) -> bool {
        let books = &self.keys[self.target(candidate)][key];
        let (refused, quota) = cooling.aside(books.aside);
        let rest = cooling
            .until(books.cooldown)
            .max(cooling.failing(books.cooldown));
        refused.max(quota).max(rest) > self.now
    }

    /// Why the whole candidate may not be used: one key that only cools is enough to wait for.
    pub(super) fn candidate_unfit(&self, candidate: usize, cooling: &Cooling) -> Option<Unfit> {
        let mut first = None;
        for key in &self.order[candidate] {
            let Some(unfit) = self.unfit(candidate, *key, cooling) else {
                return self.limited(candidate, cooling).map(|_| Unfit::Limited);
            };
            match unfit {
                Unfit::Cooling => first = Some(Unfit::Cooling),
                aside => first = first.or(Some(aside)),
            }
        }
        first
    }

    /// The keys of the candidate that were tried in this visit: since it was begun in this round.
    fn keys_tried(&self, begin: &Begin) -> Vec<usize> {
        let visit = self
            .past
            .iter()
            .filter(|p| (p.begin.round, p.begin.candidate) == (begin.round, begin.candidate));
        visit.map(|past| past.begin.key).collect()
    }

    pub(super) fn free_key(&self, begin: &Begin, cooling: &Cooling) -> Option<usize> {
        let tried = self.keys_tried(begin);
        self.order[begin.candidate]
            .iter()
            .copied()
            .find(|key| !tried.contains(key) && self.is_free(begin.candidate, *key, cooling))
    }

    /// Whether another key may do better after such an answer.
    pub(super) fn is_of_key(&self, report: &AttemptReport) -> bool {
        if report.scope > Scope::Credential {
            return false;
        }
        match report.outcome {
            Outcome::Rejected(_) => true,
            Outcome::Refused => match report.class {
                Class::Throttle | Class::Overload => self.moves_on(report),
                _ => report.scope == Scope::Credential,
            },
            Outcome::NotDelivered | Outcome::Ambiguous | Outcome::Partial | Outcome::Succeeded => {
                false
            }
        }
    }

    /// A refusal of the credential or its quota says nothing of other keys.
    pub(super) fn is_of_key_alone(report: &AttemptReport) -> bool {
        report.outcome == Outcome::Refused
            && report.scope == Scope::Credential
            && !matches!(report.class, Class::Throttle | Class::Overload)
    }

    /// A key's turn comes after a failure of another key of the same pool, at once, each once (R-B2).
    pub(super) fn check_next_key(&self, begin: Begin) {
        let Some(last) = self.past.last() else {
            self.fail("a next key without a first one");
        };
        let report = last.report.as_ref().unwrap();
        require!(
            self,
            self.is_of_key(report),
            "another key after what another key cannot mend"
        );
        require!(
            self,
            self.plan.binding.is_none(),
            "R-F8: a bound operation changed its key"
        );
        require!(
            self,
            !self.keys_tried(&begin).contains(&begin.key),
            "R-B2: a key twice in one visit"
        );
        require!(self, begin.retry_index == 0, "R-K3: a new key begins at 0");
        require!(self, !self.paused_before, "a pause before another key");
    }

    pub(super) fn take_of_key(
        &mut self,
        target: usize,
        key: usize,
        report: &AttemptReport,
        cooling: &mut Cooling,
    ) {
        let books = self.keys[target][key];
        if report.outcome == Outcome::Refused && report.scope == Scope::Credential && books.named {
            match report.class {
                Class::Auth => cooling.set_aside(
                    books.aside,
                    AsideReason::Refused,
                    self.now.after(REFUSED_ASIDE),
                ),
                Class::QuotaHard => {
                    let rest = self.plan.route.routing.quota_aside;
                    let until = self.now.after(rest);
                    if !rest.is_zero() {
                        cooling.set_aside(books.aside, AsideReason::Quota, until);
                    }
                }
                _ => {}
            }
        }
        if !matches!(report.outcome, Outcome::Rejected(_)) {
            return;
        }
        let wide = report.scope > Scope::Credential;
        let bound = self.plan.route.routing.cooldown_max;
        // A bound operation uses one key, and tells everybody of all of them.
        let now = self.now;
        for (other, books) in self.keys[target].iter_mut().enumerate() {
            if !wide && other != key {
                continue;
            }
            if let Some(delay) = report.pushback.filter(|_| !bound.is_zero()) {
                cooling.extend(books.cooldown, now.after(delay.min(bound)));
            }
            match report.pushback {
                Some(delay) => books.told = books.told.max(Some(now.after(delay))),
                None => books.assumed = books.assumed.max(Some(now.after(DEFAULT_DELAY))),
            }
        }
    }

    /// From now to the instant at which some key may be used again; `None` when nothing is known of any.
    pub(super) fn known_delay(&self, candidate: usize, cooling: &Cooling) -> Option<Duration> {
        let of = |books: &KeyBooks| {
            let (refused, quota) = cooling.aside(books.aside);
            let own = books.told.max(books.assumed);
            let rest = cooling
                .until(books.cooldown)
                .max(cooling.failing(books.cooldown));
            let cool = own.max(Some(rest).filter(|at| *at > self.now));
            if refused > self.now && refused > quota {
                return None;
            }
            let quota = Some(quota).filter(|at| *at > self.now);
            cool.max(quota).map(|at| at.since(self.now))
        };
        let books = &self.keys[self.target(candidate)];
        let keys = self.order[candidate].iter();
        let keys = keys.filter_map(|key| of(&books[*key])).min();
        match self.limited(candidate, cooling) {
            Some(Refuses::Until(until)) => keys.max(Some(until.since(self.now))),
            Some(Refuses::Full) => keys.filter(|delay| !delay.is_zero()),
            None => keys,
        }
    }

    /// The failure that stands for a visit of a target: of own retries the last, of keys one that was not the key's alone, if any.
    pub(super) fn visit_told<'a>(&self, visit: &[&'a Past]) -> Option<&'a Past> {
        let mut told: Option<&'a Past> = None;
        let mut beyond_key = false;
        for past in visit {
            let Some(report) = &past.report else { continue };
            let of_key = Auditor::is_of_key_alone(report);
            let graver = |old: Option<&'a Past>| match old.and_then(|old| old.report.as_ref()) {
                Some(old_report)
                    if super::answers::rank(old_report) > super::answers::rank(report) =>
                {
                    old
                }
                _ => Some(*past),
            };
            let changed_key = told.is_some_and(|_| past.next_key);
            if past.own_retry {
                told = Some(past);
                beyond_key = !of_key;
                continue;
            }
            told = match (changed_key, of_key, beyond_key) {
                (true, true, true) => told,
                (true, false, false) => Some(past),
                _ => graver(told),
            };
            beyond_key |= !of_key;
        }
        told
    }
}

//! What operations share beside cooldowns of certified rejections: local limits, failures in a row, and who tries a target again first.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use rondo::core::class::Class;
use rondo::core::outcome::{AttemptReport, Outcome};
use rondo::core::time::MonoTime;
use rondo::executor::effect::Begin;
use rondo::policy::limits::{LimitRules, TargetLimits};
use rondo::policy::route::Route;

use super::{Auditor, Cooling, Open};
use crate::support::spec::Spec;

/// The step of a local limit's minute, and the steps that any minute covers.
const STEP: u64 = 250_000;
const STEPS: u64 = 241;
/// How long one that tries first keeps the others away.
const PROBE_HOLD: Duration = Duration::from_secs(1);
/// What a full target asks for.
const FULL: Duration = Duration::from_secs(1);

/// One request of a target's minute.
#[derive(Debug, Clone, Copy)]
struct Counted {
    id: u64,
    step: u64,
    tokens: u64,
}

/// The books of one target's limits.
#[derive(Debug, Default)]
pub struct LimitBooks {
    minute: Vec<Counted>,
    at_once: u64,
    ids: u64,
}

/// Why a target's limits refuse.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refuses {
    Until(MonoTime),
    Full,
}

impl LimitBooks {
    fn forget(&mut self, now: MonoTime) {
        let step = now.as_micros() / STEP;
        self.minute.retain(|counted| counted.step + STEPS > step);
    }

    /// When enough of the oldest have left for the sum to fit.
    fn fits_at(
        &self,
        sum: u64,
        max: Option<u64>,
        of: impl Fn(&Counted) -> u64,
    ) -> Option<MonoTime> {
        let mut over = sum.checked_sub(max?).filter(|over| *over > 0)?;
        let last = self.minute.iter().find(|counted| {
            let fits = of(counted) >= over;
            over = over.saturating_sub(of(counted));
            fits
        });
        last.map(|counted| MonoTime::from_micros((counted.step + STEPS) * STEP))
    }

    fn refuses(&mut self, rules: &LimitRules, tokens: u64, now: MonoTime) -> Option<Refuses> {
        self.forget(now);
        let tokens = tokens.min(rules.tokens_per_minute.unwrap_or(u64::MAX));
        let requests = self.minute.len() as u64 + 1;
        let used: u64 = self.minute.iter().map(|counted| counted.tokens).sum();
        let until = self
            .fits_at(requests, rules.requests_per_minute, |_| 1)
            .max(self.fits_at(used + tokens, rules.tokens_per_minute, |c| c.tokens));
        let full = rules.concurrent.is_some_and(|max| self.at_once >= max);
        until.map(Refuses::Until).or(full.then_some(Refuses::Full))
    }
}

/// Everything of this file that operations share, by the identity of the counter.
#[derive(Debug, Default)]
pub struct Shares {
    limits: RefCell<BTreeMap<usize, LimitBooks>>,
    failing: BTreeMap<usize, MonoTime>,
    strikes: BTreeMap<usize, (u64, u64)>,
    probes: RefCell<BTreeMap<usize, MonoTime>>,
}

impl Cooling {
    pub fn reserve(&self, account: usize, tokens: u64, now: MonoTime) -> u64 {
        let mut limits = self.shares.limits.borrow_mut();
        let books = limits.entry(account).or_default();
        books.ids += 1;
        books.at_once += 1;
        books.minute.push(Counted {
            id: books.ids,
            step: now.as_micros() / STEP,
            tokens,
        });
        books.ids
    }

    /// An attempt has ended; what was not kept is given back.
    pub fn free(&self, account: usize, id: u64, kept: bool) {
        let mut limits = self.shares.limits.borrow_mut();
        let books = limits.get_mut(&account).unwrap();
        books.at_once -= 1;
        if !kept {
            books.minute.retain(|counted| counted.id != id);
        }
    }

    /// Uses up the minute of the targets that the configuration names.
    pub fn exhaust(&self, spec: &Spec, route: &Route, now: MonoTime) {
        for (index, target) in route.targets.iter().enumerate() {
            let Some(account) = target.limits.as_ref() else {
                continue;
            };
            if spec.exhausted & (1 << index) == 0 {
                continue;
            }
            while let Ok(mut share) = account.reserve(spec.tokens, now) {
                share.keep();
                let books = Arc::as_ptr(account) as usize;
                let id = self.reserve(books, spec.tokens, now);
                self.free(books, id, true);
            }
        }
    }

    /// What the books say is under way, and counted in the minute.
    pub fn limit_usage(&self, account: usize, now: MonoTime) -> (u64, u64, u64) {
        let mut limits = self.shares.limits.borrow_mut();
        let books = limits.entry(account).or_default();
        books.forget(now);
        let tokens = books.minute.iter().map(|counted| counted.tokens).sum();
        (books.minute.len() as u64, tokens, books.at_once)
    }

    pub fn fail(&mut self, key: usize, until: MonoTime) {
        let entry = self.shares.failing.entry(key).or_default();
        *entry = (*entry).max(until);
        self.shares.strikes.remove(&key);
    }

    pub(super) fn failing(&self, key: usize) -> MonoTime {
        self.shares.failing.get(&key).copied().unwrap_or_default()
    }

    /// C26, C29: one failure, once; none that began before the last trip.
    fn strike(
        &mut self,
        key: usize,
        seen: MonoTime,
        rules: (u64, Duration, Duration),
        now: MonoTime,
    ) {
        let (count, within, cooldown) = rules;
        let failing = self.failing(key);
        if failing > now || failing != seen {
            return;
        }
        let millis = now.as_micros() / 1000;
        let strikes = self.shares.strikes.entry(key).or_insert((millis, 0));
        if millis - strikes.0 > within.as_millis() as u64 {
            *strikes = (millis, 0);
        }
        strikes.1 += 1;
        if failing != MonoTime::ZERO || strikes.1 >= count {
            self.fail(key, now.after(cooldown));
        }
    }

    pub(super) fn recover(&mut self, key: usize, seen: MonoTime) {
        if self.failing(key) == seen {
            self.shares.failing.remove(&key);
        }
        if !self.shares.failing.contains_key(&key) {
            self.shares.strikes.remove(&key);
        }
    }

    /// Whether a rest is over and nobody has succeeded since.
    fn reopens(&self, key: usize, now: MonoTime) -> bool {
        let (until, failing) = (self.until(key), self.failing(key));
        until.max(failing) != MonoTime::ZERO && until.max(failing) <= now
    }

    fn probed(&self, key: usize, now: MonoTime) -> bool {
        let probes = self.shares.probes.borrow();
        self.reopens(key, now) && probes.get(&key).is_some_and(|until| *until > now)
    }
}

impl Auditor {
    fn account(&self, candidate: usize) -> Option<&Arc<TargetLimits>> {
        self.plan.route.targets[self.target(candidate)]
            .limits
            .as_ref()
    }

    /// The shared counter of the candidate's key.
    fn cooldown(&self, candidate: usize, key: usize) -> usize {
        self.keys[self.target(candidate)][key].cooldown
    }

    pub(super) fn limited(&self, candidate: usize, cooling: &Cooling) -> Option<Refuses> {
        let account = self.account(candidate)?;
        let mut limits = cooling.shares.limits.borrow_mut();
        let books = limits.entry(Arc::as_ptr(account) as usize).or_default();
        books.refuses(account.rules(), self.plan.tokens, self.now)
    }

    /// Whether the key could be tried now, with nobody else before.
    pub(super) fn is_free(&self, candidate: usize, key: usize, cooling: &Cooling) -> bool {
        let cooldown = self.cooldown(candidate, key);
        self.unfit(candidate, key, cooling).is_none()
            && !cooling.probed(cooldown, self.now)
            && self.limited(candidate, cooling).is_none()
    }

    /// Whether the candidate's turn comes later, since another operation tries it first.
    pub(super) fn is_deferred(&self, candidate: usize, cooling: &Cooling) -> bool {
        self.order[candidate].iter().any(|key| {
            self.unfit(candidate, *key, cooling).is_none()
                && cooling.probed(self.cooldown(candidate, *key), self.now)
        })
    }

    /// Whether the next candidate is exhausted and the route does not skip such.
    pub(super) fn ends_by_limit(&self, cooling: &Cooling) -> bool {
        let routing = &self.plan.route.routing;
        let round = self.round();
        let tried = |c: usize| self.tried(round, c) || self.has_skipped(round, c);
        let attempts = (0..self.plan.candidates.len()).filter(|c| self.tried(round, *c));
        let late = self.failover_is_over() || self.now >= self.plan.deadline || self.draining;
        let late = late && !self.past.is_empty();
        let slow = self.past.last().is_some_and(|past| past.slow);
        let spent = self.sends >= self.sends_max() || late || slow;
        if spent
            || routing.fallback.rate_limiting
            || attempts.count() as u32 >= routing.attempts_max
        {
            return false;
        }
        let fit = |c: &usize, yields: bool| {
            self.order[*c].iter().any(|key| {
                let probed = yields && cooling.probed(self.cooldown(*c, *key), self.now);
                self.unfit(*c, *key, cooling).is_none() && !probed
            })
        };
        let next = |yields| (0..self.reach()).find(|c| !tried(*c) && fit(c, yields));
        let limited = |candidate| self.limited(candidate, cooling).is_some();
        // Those that another tries first have their turn after the others, and before the route ends.
        next(true).is_none_or(limited) && next(false).is_some_and(limited)
    }

    /// Whether local limits alone keep the operation from the candidate.
    fn ends_at(&self, candidate: usize, cooling: &Cooling) -> bool {
        let fit = |key: &usize| {
            let probed = cooling.probed(self.cooldown(candidate, *key), self.now);
            self.unfit(candidate, *key, cooling).is_none() && !probed
        };
        let limited = self.limited(candidate, cooling).is_some();
        limited && self.order[candidate].iter().any(fit)
    }

    /// The attempt takes its share of the target's limits, and the right to try first, if that is to be had.
    pub(super) fn take_shares(&self, begin: Begin, is_own_retry: bool, cooling: &Cooling) -> Taken {
        let limited = self.limited(begin.candidate, cooling);
        require!(
            self,
            limited.is_none(),
            "an attempt beyond a local limit: {limited:?}"
        );
        let account = self.account(begin.candidate);
        let reserved = account.map(|account| {
            let most = account.rules().tokens_per_minute.unwrap_or(u64::MAX);
            let account = Arc::as_ptr(account) as usize;
            let tokens = self.plan.tokens.min(most);
            (account, cooling.reserve(account, tokens, self.now))
        });
        let key = self.cooldown(begin.candidate, begin.key);
        let mut probe = None;
        if cooling.probed(key, self.now) {
            let others = (0..self.reach()).filter(|c| {
                *c != begin.candidate
                    && !self.tried(begin.round, *c)
                    && !self.has_skipped(begin.round, *c)
            });
            // Without the strategy, nobody comes after one that is limited.
            let skips = self.plan.route.routing.fallback.rate_limiting;
            let others = others.take_while(|c| skips || !self.ends_at(*c, cooling));
            let mut keys = others.flat_map(|c| self.order[c].iter().map(move |k| (c, *k)));
            let other = keys.find(|(c, k)| self.is_free(*c, *k, cooling));
            require!(
                self,
                is_own_retry || other.is_none(),
                "C21: a second try of a target that reopens, although {other:?} is free"
            );
        } else if cooling.reopens(key, self.now) {
            let until = self.now.after(PROBE_HOLD);
            cooling.shares.probes.borrow_mut().insert(key, until);
            probe = Some((key, until));
        }
        Taken { reserved, probe }
    }

    /// A send without an answer in time is a failure, whoever is there to hear of it (R-L4).
    pub(super) fn count_failure(&self, cooling: &mut Cooling) {
        if let Some(open) = &self.open {
            self.strike(open, cooling);
        }
    }

    fn strike(&self, open: &Open, cooling: &mut Cooling) {
        let key = self.cooldown(open.begin.candidate, open.begin.key);
        if let Some(rules) = &self.plan.route.routing.failures
            && self.now < self.plan.deadline
        {
            let rules = (rules.count, rules.within, rules.cooldown);
            cooling.strike(key, open.failing_seen, rules, self.now);
        }
    }

    /// What the end of an attempt says of the target: failures count, and whoever tried first lets the next one.
    pub(super) fn take_end(&self, open: &mut Open, report: &AttemptReport, cooling: &mut Cooling) {
        let server = report.status.is_some_and(|s| (500..=599).contains(&s));
        let excused = matches!(
            report.class,
            Class::Auth
                | Class::Config
                | Class::ContextOverflow
                | Class::ContentPolicy
                | Class::QuotaHard
        );
        let counts = match report.outcome {
            Outcome::NotDelivered | Outcome::Ambiguous => true,
            Outcome::Refused => server && !excused,
            Outcome::Rejected(_) | Outcome::Partial | Outcome::Succeeded => false,
        };
        if counts {
            self.strike(open, cooling);
        }
        open.taken.end_probe(cooling);
        if report.outcome != Outcome::Succeeded {
            open.taken.free(Some(report), cooling);
        }
    }

    /// The delay of a final answer: a full target asks for a second.
    pub(super) fn told_delay(&self, candidate: usize, cooling: &Cooling) -> Option<Duration> {
        let known = self.known_delay(candidate, cooling);
        match self.limited(candidate, cooling) {
            Some(Refuses::Full) => known.max(Some(FULL)),
            Some(Refuses::Until(_)) | None => known,
        }
    }

    /// From now until the first target that fails may be tried again.
    pub(super) fn failing_delay(&self, cooling: &Cooling) -> Duration {
        let places = 0..self.reach();
        let keys = places.flat_map(|c| self.order[c].iter().map(move |k| (c, *k)));
        let ahead = keys.map(|(c, k)| cooling.failing(self.cooldown(c, k)));
        let first = ahead.filter(|until| *until > self.now).min();
        first.unwrap_or(self.now).since(self.now)
    }
}

/// What an attempt has of what is shared.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Taken {
    reserved: Option<(usize, u64)>,
    probe: Option<(usize, MonoTime)>,
}

impl Taken {
    pub fn end_probe(&mut self, cooling: &Cooling) {
        if let Some((key, until)) = self.probe.take() {
            let mut probes = cooling.shares.probes.borrow_mut();
            if probes.get(&key) == Some(&until) {
                probes.remove(&key);
            }
        }
    }

    /// What certainly did not run, or was cancelled before an answer, is given back.
    pub fn free(&mut self, report: Option<&AttemptReport>, cooling: &Cooling) {
        if let Some((account, id)) = self.reserved.take() {
            let kept = report.is_some_and(|report| {
                !matches!(report.outcome, Outcome::NotDelivered | Outcome::Rejected(_))
            });
            cooling.free(account, id, kept);
        }
    }
}

//! The route's retry budget and the time in which tries may begin: books of their own, kept by second.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use rondo::core::decision::Round;
use rondo::core::outcome::Outcome;
use rondo::core::time::MonoTime;
use rondo::executor::effect::Begin;

use super::{Auditor, Cooling};

/// Seconds before the current one that count.
const WINDOW: u64 = 10;

/// What a route's operations deposited and were charged, by second.
#[derive(Debug, Default)]
pub struct BudgetBooks {
    deposits: BTreeMap<u64, u64>,
    charges: BTreeMap<u64, u64>,
}

fn second(now: MonoTime) -> u64 {
    now.as_micros() / 1_000_000
}

impl BudgetBooks {
    fn room(&self, now: MonoTime, (percent, floor): (u64, u64)) -> u64 {
        let from = second(now).saturating_sub(WINDOW);
        let sum = |counts: &BTreeMap<u64, u64>| counts.range(from..).map(|(_, n)| n).sum::<u64>();
        let allowed = sum(&self.deposits) * percent / 100 + floor * WINDOW;
        allowed.saturating_sub(sum(&self.charges))
    }
}

impl Auditor {
    fn budget(&self) -> usize {
        Arc::as_ptr(&self.plan.route.retry_budget) as usize
    }

    pub(super) fn deposit(&self, cooling: &Cooling) {
        let mut books = cooling.budgets.borrow_mut();
        let books = books.entry(self.budget()).or_default();
        *books.deposits.entry(second(self.now)).or_default() += 1;
    }

    pub(super) fn has_room(&self, cooling: &Cooling) -> bool {
        let mut books = cooling.budgets.borrow_mut();
        let books = books.entry(self.budget()).or_default();
        books.room(self.now, self.plan.route.retry_budget.terms()) > 0
    }

    /// C22: charged when it is scheduled.
    pub(super) fn charge(&self, cooling: &Cooling) {
        require!(
            self,
            self.has_room(cooling),
            "an extra send beyond the retry budget"
        );
        let mut books = cooling.budgets.borrow_mut();
        let books = books.entry(self.budget()).or_default();
        *books.charges.entry(second(self.now)).or_default() += 1;
    }

    /// An attempt that follows another one at once: a sticky try, or a move after what may have run.
    pub(super) fn charge_for(&self, begin: Begin, cooling: &Cooling) {
        let last = self.past.last().filter(|p| p.begin.round == begin.round);
        let Some(report) = last.and_then(|past| past.report.as_ref()) else {
            return;
        };
        let free = matches!(report.outcome, Outcome::NotDelivered | Outcome::Rejected(_));
        if begin.retry_index > 0 || !free {
            self.charge(cooling);
        }
    }

    pub(super) fn on_budget_exhausted(&self, cooling: &Cooling) {
        require!(
            self,
            !self.has_room(cooling),
            "refused although the retry budget has room"
        );
    }

    /// How long a try may still begin.
    pub(super) fn failover_left(&self) -> Duration {
        match self.plan.route.routing.failover_within {
            Some(within) => self.plan.began.after(within).since(self.now),
            None => Duration::MAX,
        }
    }

    pub(super) fn failover_is_over(&self) -> bool {
        let within = self.plan.route.routing.failover_within;
        within.is_some_and(|within| self.now > self.plan.began.after(within))
    }

    /// Once the time for failover has passed, no try but the first begins or is sent.
    pub(super) fn check_timely(&self) {
        let late = self.failover_is_over();
        let first = self.past.is_empty() && self.round() == Round::First;
        require!(self, first || !late, "a try after max_failover_elapsed_ms");
    }
}

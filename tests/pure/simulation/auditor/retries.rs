//! The retries that the gateway makes itself at an internal provider (R-P).

use std::time::Duration;

use rondo::core::class::Class;
use rondo::core::decision::Round;
use rondo::core::outcome::{AttemptReport, Outcome};
use rondo::core::time::MonoTime;
use rondo::executor::effect::Begin;
use rondo::executor::event::Event;
use rondo::policy::provider::{Ownership, RetryRules};

use super::{ALLOWANCE, Auditor, Cooling, Wait};

/// R-P2.
const STATUSES: [u16; 7] = [429, 500, 502, 503, 504, 520, 529];

/// A failure that counts for own retries, and when it was.
#[derive(Debug, Clone, Copy)]
pub(super) struct Counted {
    pub failures: u32,
    pub first: MonoTime,
}

/// Whether such an answer is what own retries are for (R-P2, R-P4).
pub(super) fn is_curable(report: &AttemptReport) -> bool {
    let answered = matches!(report.outcome, Outcome::Rejected(_) | Outcome::Refused);
    let terminal = matches!(
        report.class,
        Class::Auth
            | Class::Config
            | Class::ContextOverflow
            | Class::ContentPolicy
            | Class::QuotaHard
    );
    let listed = report
        .status
        .is_some_and(|status| STATUSES.contains(&status));
    answered && !terminal && listed
}

impl Auditor {
    pub(super) fn rules(&self, candidate: usize) -> Option<RetryRules> {
        let target = &self.plan.route.targets[self.target(candidate)];
        target
            .retry
            .filter(|_| target.ownership == Ownership::Internal)
    }

    /// One counter over any mix, over both rounds (R-P2).
    pub(super) fn count_curable(&mut self, begin: &Begin, report: &AttemptReport) {
        if self.rules(begin.candidate).is_none() || !is_curable(report) {
            return;
        }
        let first = Counted {
            failures: 0,
            first: self.now,
        };
        let counted = self.counted.entry(begin.target).or_insert(first);
        counted.failures += 1;
    }

    pub(super) fn on_retry_scheduled(&mut self, failed: Begin, pause: Duration, cooling: &Cooling) {
        let Some(rules) = self.rules(failed.candidate) else {
            self.fail("R-P1: a retry at a provider whose caller owns them");
        };
        let Some(last) = self.past.last().cloned() else {
            self.fail("R-P7: a retry of nothing");
        };
        require!(
            self,
            last.begin == failed,
            "R-P7: a retry of another attempt"
        );
        let report = last.report.unwrap();
        require!(
            self,
            is_curable(&report),
            "R-P4: a retry of {:?}",
            report.class
        );
        let certified = matches!(report.outcome, Outcome::Rejected(_));
        require!(
            self,
            certified || self.round() == Round::First,
            "R-S19: an own retry of something uncertified in round 2"
        );
        let Some(Counted { failures, first }) = self.counted.get(&failed.target).copied() else {
            self.fail("R-P2: a retry before a failure");
        };
        require!(
            self,
            failures < rules.attempts_max,
            "R-P2: try {} of {}",
            failures + 1,
            rules.attempts_max
        );
        let until = self.now.after(pause);
        require!(
            self,
            until <= first.after(rules.elapsed_max),
            "R-P2: later than max_elapsed_ms"
        );
        require!(
            self,
            until.after(ALLOWANCE) <= self.plan.deadline,
            "R-B4: a pause beyond the deadline"
        );
        require!(
            self,
            until.since(self.now) <= self.failover_left(),
            "a pause beyond max_failover_elapsed_ms"
        );
        self.charge(cooling);
        let grown = rules.delay_base * 2_u32.pow(failures - 1);
        let half = grown.min(rules.delay_max) / 2;
        let told = report.pushback.unwrap_or_default();
        require!(
            self,
            pause >= half.max(told),
            "R-P3: a pause of {pause:?}, told {told:?}"
        );
        // What others have learned of the key: its cooldown, its failures, and that it is set aside.
        let key = self.keys[failed.target][failed.key];
        let (refused, quota) = cooling.aside(key.aside);
        let cools = cooling
            .until(key.cooldown)
            .max(cooling.failing(key.cooldown))
            .max(refused)
            .max(quota)
            .since(self.now);
        let most = if told.max(cools) > half {
            told.max(cools) + half.max(super::rounds::jitter_width(told.max(cools)))
        } else {
            half * 2
        };
        require!(
            self,
            pause <= most,
            "R-P3: a pause of {pause:?}, at most {most:?}"
        );
        require!(self, !last.slow, "R-F4: a retry of a slow failure");
        require!(
            self,
            !self.draining && !self.gone,
            "R-P6: a pause for nobody"
        );
        require!(
            self,
            self.sends < self.sends_max(),
            "R-B1: a pause without a send left"
        );
        let other = self.is_of_key(&report) && self.free_key(&failed, cooling).is_some();
        require!(self, !other, "C13: a pause although another key is free");
        require!(
            self,
            self.pause.is_none() && self.wait.is_none(),
            "asleep twice"
        );
        self.pause = Some(Wait {
            began: self.now,
            until,
        });
    }

    /// Ends the pause when the event says so; anything but the clock ends it at once (R-P6).
    pub(super) fn wake(&mut self, event: &Event) {
        let Some(pause) = self.pause else { return };
        let elapsed = match event {
            Event::WaitElapsed => {
                require!(self, self.now >= pause.until, "R-P3: woken early");
                true
            }
            Event::ClientGone | Event::Dropped | Event::ShutdownBegun | Event::DeadlinePassed => {
                false
            }
            _ => self.fail("R-P6: a pause was ended by something else"),
        };
        self.pause = None;
        self.paused += self.now.since(pause.began);
        self.paused_before = elapsed;
    }

    pub(super) fn on_retries_exhausted(&mut self, last: Begin) {
        let failed = self.past.last().filter(|past| past.begin == last);
        let curable = failed
            .and_then(|past| past.report.as_ref())
            .is_some_and(is_curable);
        require!(
            self,
            curable && self.counted.contains_key(&last.target),
            "R-P7: exhausted without a failure that counts"
        );
        require!(
            self,
            self.spent.insert(last.target),
            "R-P7: exhausted twice"
        );
    }

    pub(super) fn check_own_retry(&self, begin: Begin, cooling: &Cooling) {
        let Some(last) = self.past.last() else {
            self.fail("R-P: a retry of nothing");
        };
        let books = &self.keys[last.begin.target][last.begin.key];
        let own = books.told <= Some(self.now);
        let busy = !own
            || self.shared_unfit(last.begin.candidate, last.begin.key, cooling)
            || self.limited(last.begin.candidate, cooling).is_some();
        if last.begin.key == begin.key {
            let follows = last.begin.retry_index + 1 == begin.retry_index;
            require!(self, follows, "R-K3: retry_index does not follow");
            require!(self, !busy, "R-S12: a cooling key was retried");
        } else {
            require!(self, busy, "R-K1: another key for no reason");
            require!(self, begin.retry_index == 0, "R-K3: a new key begins at 0");
            require!(
                self,
                self.free_key(&last.begin, cooling) == Some(begin.key),
                "another key than the first free one"
            );
        }
        require!(
            self,
            !self.spent.contains(&begin.target),
            "R-P2: a retry after the end of them"
        );
    }
}

//! The second round: who gets one, the wait, its end (R-S).

use std::time::Duration;

use rondo::core::class::Class;
use rondo::core::decision::Round;
use rondo::core::outcome::{AttemptReport, Outcome};
use rondo::core::suppression::Suppression;
use rondo::core::time::MonoTime;
use rondo::executor::effect::{SecondRoundEnd, WaitEnd};
use rondo::executor::event::Event;

use super::{ALLOWANCE, Auditor, Cooling, DEFAULT_DELAY, Unfit, Wait};

/// R-S14.
pub(super) fn jitter_width(delay: Duration) -> Duration {
    (delay / 4)
        .max(Duration::from_millis(50))
        .min(Duration::from_millis(500))
}

impl Auditor {
    /// The instant of R-S13, from what the answers said.
    pub(super) fn earliest(&self, cooling: &Cooling) -> MonoTime {
        let of = |candidate: usize| match self.known_delay(candidate, cooling) {
            Some(delay) => self.now.after(delay),
            None => self.now.after(DEFAULT_DELAY),
        };
        (0..self.reach()).map(of).min().unwrap_or(self.now)
    }

    pub(super) fn on_wait(&mut self, until: MonoTime, cooling: &Cooling) {
        let routing = &self.plan.route.routing;
        let Some(exhaustion) = routing.exhaustion.filter(|e| e.rounds_max == 2) else {
            self.fail("R-S1: a wait although it is off");
        };
        require!(
            self,
            self.round() == Round::First,
            "R-B3: a wait after round 2"
        );
        let reason = self.objections(cooling);
        require!(
            self,
            reason.is_none(),
            "R-S11: a wait in spite of {reason:?}"
        );
        self.charge(cooling);
        let floor = self.earliest(cooling);
        require!(
            self,
            until >= floor,
            "R-S14: wakes before the provider's instant"
        );
        let delay = floor.since(self.now);
        require!(
            self,
            delay <= exhaustion.wait_max,
            "R-S13: the delay is longer than max_wait_ms"
        );
        let width = (delay / 4)
            .max(Duration::from_millis(50))
            .min(Duration::from_millis(500));
        require!(
            self,
            until.since(floor) <= width,
            "R-S14: jitter is wider than {width:?}"
        );
        require!(
            self,
            until.after(ALLOWANCE) <= self.plan.deadline,
            "R-S10: the wait does not fit"
        );
        require!(
            self,
            until.since(self.now) <= self.failover_left(),
            "a wait beyond max_failover_elapsed_ms"
        );
        self.wait = Some(Wait {
            began: self.now,
            until,
        });
    }

    /// The first reason of R-S11 that holds, in the documented order, but for the slot.
    pub(super) fn objections(&self, cooling: &Cooling) -> Option<Suppression> {
        let holds = |reason: &Suppression| self.holds(*reason, cooling);
        Suppression::ALL.iter().copied().find(holds)
    }

    pub(super) fn holds(&self, reason: Suppression, cooling: &Cooling) -> bool {
        let routing = &self.plan.route.routing;
        let any = |test: &dyn Fn(&AttemptReport) -> bool| {
            self.past
                .iter()
                .filter_map(|past| past.report.as_ref())
                .any(test)
        };
        let skipped = |why: Unfit| self.skipped.iter().any(|(_, _, unfit)| *unfit == why);
        let uncertified = |report: &AttemptReport| !matches!(report.outcome, Outcome::Rejected(_));
        let delay = self.earliest(cooling).since(self.now);
        match reason {
            Suppression::Committed => self.committed,
            Suppression::OutputSeen => any(&|r| r.outcome == Outcome::Partial),
            Suppression::ClientGone => self.gone,
            Suppression::Shutdown => self.draining,
            Suppression::Ambiguous => any(&|r| {
                let named = matches!(
                    r.class,
                    Class::Malformed | Class::QuotaHard | Class::Auth | Class::Config
                );
                r.outcome == Outcome::Ambiguous && !named
            }),
            Suppression::Malformed => any(&|r| uncertified(r) && r.class == Class::Malformed),
            Suppression::HardQuota => {
                skipped(Unfit::Quota) || any(&|r| uncertified(r) && r.class == Class::QuotaHard)
            }
            Suppression::AuthConfig => {
                let blamed = |r: &AttemptReport| matches!(r.class, Class::Auth | Class::Config);
                skipped(Unfit::Refused) || any(&|r| uncertified(r) && blamed(r))
            }
            Suppression::NotThrottled => skipped(Unfit::Failing) || any(&uncertified),
            Suppression::StateBound => self.plan.binding.is_some(),
            Suppression::SlowFailure => self.past.last().is_some_and(|past| past.slow),
            Suppression::CallerRetry => self.plan.caller_retry,
            Suppression::Cleanup => self.open.is_some(),
            Suppression::SendBudget => self.sends >= self.sends_max(),
            Suppression::RetryBudget => !self.has_room(cooling),
            Suppression::LocalLimit => self.ends_by_limit(cooling),
            Suppression::FailoverElapsed => self.failover_is_over() || delay > self.failover_left(),
            Suppression::WaitTooLong => {
                delay > routing.exhaustion.map(|e| e.wait_max).unwrap_or_default()
            }
            // The jitter decides in its width; here only what must and must not fit.
            Suppression::Deadline => delay + ALLOWANCE > self.plan.deadline.since(self.now),
            Suppression::AdmissionFull => false,
        }
    }

    pub(super) fn on_suppressed(&mut self, event: &Event, reason: Suppression, cooling: &Cooling) {
        require!(
            self,
            self.suppressed.is_none(),
            "R-S11: more than one reason"
        );
        require!(
            self,
            !self.has_wait,
            "R-S11: suppressed after the wait had begun"
        );
        let configured = self
            .plan
            .route
            .routing
            .exhaustion
            .is_some_and(|e| e.rounds_max == 2);
        require!(self, configured, "R-S1: a suppression although it is off");
        self.suppressed = Some(reason);
        let expected = self.objections(cooling);
        let fits = match (expected, reason) {
            (Some(expected), reason) if expected == reason => true,
            // An event of the deadline is the deadline, whatever the clock says.
            (None, Suppression::Deadline) => {
                let delay = self.earliest(cooling).since(self.now);
                let left = self.plan.deadline.since(self.now);
                let widest = (delay / 4)
                    .max(Duration::from_millis(50))
                    .min(Duration::from_millis(500));
                matches!(event, Event::DeadlinePassed) || delay + widest + ALLOWANCE >= left
            }
            (None | Some(Suppression::Deadline), Suppression::FailoverElapsed) => {
                let delay = self.earliest(cooling).since(self.now);
                delay + jitter_width(delay) >= self.failover_left()
            }
            (None, Suppression::AdmissionFull) => {
                let room = &self.plan.route.waiters;
                room.waiting() > 0 || self.plan.held_bytes > 0
            }
            _ => false,
        };
        require!(
            self,
            fits,
            "R-S11: suppressed by {reason:?}, but {expected:?} holds first"
        );
    }

    pub(super) fn on_wait_ended(&mut self, event: &Event, how: WaitEnd, waited: Duration) {
        let Some(wait) = self.wait.take() else {
            self.fail("a wait ended twice");
        };
        require!(
            self,
            waited == self.now.since(wait.began),
            "R-S21: the wait's duration is wrong"
        );
        let expected = match event {
            Event::WaitElapsed => WaitEnd::Elapsed,
            Event::ClientGone => WaitEnd::ClientGone,
            Event::ShutdownBegun => WaitEnd::Shutdown,
            Event::DeadlinePassed => WaitEnd::Deadline,
            Event::Dropped => WaitEnd::Dropped,
            _ => self.fail("R-S15: a wait was ended by something else"),
        };
        require!(self, how == expected, "R-S15: the wait ended as {how:?}");
        let early = how == WaitEnd::Elapsed && self.now < wait.until;
        require!(self, !early, "R-S14: woken early");
        self.waits.push((waited, how));
    }

    pub(super) fn on_second_round_ended(&mut self, event: &Event, end: SecondRoundEnd) {
        require!(
            self,
            self.round() == Round::Second,
            "a second round that never began has ended"
        );
        require!(
            self,
            self.second_round_end.is_none(),
            "R-S22: the second round ended twice"
        );
        self.second_round_end = Some(end);
        let accepted = matches!(event, Event::Outcome(r) if r.outcome == Outcome::Succeeded);
        let all_rejected = self.past.iter().all(|past| {
            past.begin.round == Round::First
                || past
                    .report
                    .as_ref()
                    .is_some_and(|r| matches!(r.outcome, Outcome::Rejected(_)))
        });
        let expected = if accepted {
            Some(SecondRoundEnd::Success)
        } else {
            None
        };
        let fits = match end {
            SecondRoundEnd::Success => expected.is_some(),
            SecondRoundEnd::Exhausted => expected.is_none() && all_rejected && !self.gone,
            SecondRoundEnd::Other => expected.is_none(),
        };
        require!(self, fits, "R-S22: the second round ended as {end:?}");
    }

    /// With the round configured, each operation had a success in round 1, one suppression or one wait.
    pub(super) fn check_round_account(&self) {
        let configured = self
            .plan
            .route
            .routing
            .exhaustion
            .is_some_and(|e| e.rounds_max == 2);
        if !configured || self.plan.candidates.is_empty() {
            return;
        }
        let first_success = self.accepted && self.round() == Round::First;
        let count =
            u8::from(first_success) + u8::from(self.suppressed.is_some()) + u8::from(self.has_wait);
        require!(
            self,
            count == 1,
            "R-S11, R-S21: {count} accounts of the second round"
        );
        let elapsed = self.round() == Round::Second;
        require!(
            self,
            elapsed == self.second_round_end.is_some(),
            "R-S22: the second round's end"
        );
    }
}

//! What the client is told (R-D1, R-S20).

use rondo::core::class::Class;
use rondo::core::outcome::{AttemptReport, Carrier, Outcome};
use rondo::executor::effect::{Deliver, FinalAnswer, ThrottleHeaders};
use rondo::executor::event::Event;

use super::{Auditor, Cooling, Past, Unfit};

impl Auditor {
    pub(super) fn on_answer(&mut self) {
        require!(self, !self.answered, "answered twice");
        require!(self, !self.gone, "R-D4: an answer to nobody");
        self.answered = true;
    }

    pub(super) fn on_deliver(&mut self, deliver: &Deliver, cooling: &Cooling) {
        self.on_answer();
        if let Some(open) = &self.open {
            let good = open
                .report
                .as_ref()
                .is_some_and(|r| r.outcome == Outcome::Succeeded);
            require!(
                self,
                good,
                "an open attempt is delivered that is no success"
            );
            self.accepted = true;
            return;
        }
        let Some(last) = self.past.last().and_then(|past| past.report.clone()) else {
            self.fail("nothing is held that could be delivered");
        };
        require!(
            self,
            last.carrier == Carrier::Status,
            "an answer inside a stream is not delivered"
        );
        let told = self.told().and_then(|past| past.report.clone());
        let same =
            told.is_some_and(|told| told.outcome == last.outcome && told.status == last.status);
        require!(self, same, "R-D1: the held answer is not the one to tell");
        match (deliver, last.outcome) {
            (Deliver::Throttled(headers), Outcome::Rejected(_)) => {
                self.check_headers(headers, cooling)
            }
            (Deliver::AsIs, Outcome::Refused) => {}
            _ => self.fail("R-S20: delivered in the wrong form"),
        }
    }

    /// The failure of R-D1; a slow one is told itself (R-F4).
    pub(super) fn told(&self) -> Option<&Past> {
        let last = self.past.last()?;
        if last.slow && last.report.is_some() {
            return Some(last);
        }
        let mut visits: Vec<Vec<&Past>> = Vec::new();
        for past in &self.past {
            let place = (past.begin.round, past.begin.candidate);
            match visits.last_mut() {
                Some(visit) if (visit[0].begin.round, visit[0].begin.candidate) == place => {
                    visit.push(past);
                }
                _ => visits.push(vec![past]),
            }
        }
        let ranked = visits.iter().filter_map(|visit| self.visit_told(visit));
        ranked.max_by_key(|past| past.report.as_ref().map_or(0, rank))
    }

    pub(super) fn check_answer(&mut self, event: &Event, answer: &FinalAnswer, cooling: &Cooling) {
        let told = self.told().and_then(|past| past.report.clone());
        let late = self.now >= self.plan.deadline || matches!(event, Event::DeadlinePassed);
        let fits = match answer {
            FinalAnswer::Throttled(reply, headers) => {
                self.check_headers(headers, cooling);
                let same = told.as_ref().is_some_and(|r| {
                    matches!(r.outcome, Outcome::Rejected(_)) && r.reply == *reply
                });
                let remembered = reply.is_none()
                    && self.has_remembered()
                    && told
                        .as_ref()
                        .is_none_or(|r| r.outcome == Outcome::NotDelivered);
                same || remembered
            }
            FinalAnswer::Upstream(reply) => self.told().is_some_and(|past| {
                let r = past.report.as_ref().unwrap();
                r.outcome == Outcome::Refused
                    && r.reply.as_ref() == Some(reply)
                    && !self.blames_our_key(past)
            }),
            FinalAnswer::CredentialsExhausted => match self.told() {
                Some(past) => self.blames_our_key(past),
                None => {
                    self.skipped
                        .iter()
                        .any(|(_, _, unfit)| *unfit == Unfit::Refused)
                        && !self.has_remembered()
                }
            },
            FinalAnswer::Unreachable => {
                let slow = self.past.last().is_some_and(|past| past.slow);
                told.is_some_and(|r| r.outcome == Outcome::NotDelivered)
                    && (slow || !self.has_remembered())
            }
            FinalAnswer::Ambiguous => told.is_some_and(|r| {
                matches!(r.outcome, Outcome::Ambiguous | Outcome::Partial)
                    && r.class != Class::Timeout
            }),
            FinalAnswer::TimedOut => {
                told.is_some_and(|r| r.outcome == Outcome::Ambiguous && r.class == Class::Timeout)
            }
            FinalAnswer::Deadline => late,
            FinalAnswer::NoCandidate => self.plan.candidates.is_empty(),
            FinalAnswer::ShuttingDown => {
                self.draining && told.is_none() && !self.has_wait && self.skipped.is_empty()
            }
            FinalAnswer::Internal => false,
        };
        require!(self, fits, "R-D1: the wrong answer");
    }

    /// A 401 or 403 that blames a key of the gateway is not the client's to read.
    fn blames_our_key(&self, past: &Past) -> bool {
        let keys = &self.plan.route.targets[past.begin.target].keys;
        past.report.as_ref().is_some_and(|report| {
            keys.iter().any(|key| key.name.is_some())
                && report.outcome == Outcome::Refused
                && report.class == Class::Auth
                && matches!(report.status, Some(401 | 403))
        })
    }

    /// Whether a target was passed over for what its provider said before: a throttle or a quota.
    fn has_remembered(&self) -> bool {
        let mut skipped = self.skipped.iter();
        skipped.any(|(_, _, unfit)| matches!(unfit, Unfit::Cooling | Unfit::Quota))
    }

    /// A quota is not waited for: what is told names one, or nothing but quotas stands in the way.
    fn is_vain(&self) -> bool {
        let cools = |(_, _, unfit): &(_, _, Unfit)| *unfit == Unfit::Cooling;
        match self.told().and_then(|past| past.report.as_ref()) {
            Some(report) => report.class == Class::QuotaHard,
            None => {
                self.skipped
                    .iter()
                    .any(|(_, _, unfit)| *unfit == Unfit::Quota)
                    && !self.skipped.iter().any(cools)
            }
        }
    }

    pub(super) fn check_headers(&mut self, headers: &ThrottleHeaders, cooling: &Cooling) {
        require!(
            self,
            self.exhausted,
            "R-S21: a final throttle that is not counted"
        );
        let known = (0..self.reach()).filter_map(|candidate| self.known_delay(candidate, cooling));
        let expected = known.min().unwrap_or_default();
        require!(
            self,
            headers.retry_after == expected,
            "R-S20: retry-after {:?} instead of {expected:?}",
            headers.retry_after
        );
        let seconds = expected.as_micros().div_ceil(1_000_000).max(1);
        require!(
            self,
            u128::from(headers.seconds()) == seconds,
            "R-S20: whole seconds, rounded up"
        );
        require!(
            self,
            headers.should_retry == (self.plan.caller_owns_retries && !self.is_vain()),
            "R-P1: x-should-retry"
        );
        self.throttle = Some(*headers);
    }
}

/// R-D1: ambiguous > terminal > refused > rejected > not_delivered.
pub(super) fn rank(report: &AttemptReport) -> u8 {
    let terminal = matches!(
        report.class,
        Class::Auth | Class::Config | Class::ContextOverflow | Class::ContentPolicy
    ) || report
        .status
        .is_some_and(|s| (400..500).contains(&s) && s != 429);
    match report.outcome {
        Outcome::Ambiguous | Outcome::Partial => 5,
        Outcome::Refused if terminal => 4,
        Outcome::Refused => 3,
        Outcome::Rejected(_) => 2,
        Outcome::NotDelivered => 1,
        Outcome::Succeeded => 0,
    }
}

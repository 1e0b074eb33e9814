//! Attempts and sends: what may begin, what may be sent, how it settles (R-B1, R-B2, R-B8, R-F, R-K, R-L1).

use std::collections::BTreeSet;

use rondo::core::class::Class;
use rondo::core::decision::Round;
use rondo::core::outcome::{AttemptReport, Carrier, Outcome, Scope};
use rondo::core::settlement::State;
use rondo::executor::effect::{AttemptSettled, Begin};
use rondo::executor::event::{Event, StreamEnd};

use super::{Auditor, Cooling, Open, Past, Unfit};

impl Auditor {
    pub(super) fn on_opened(&mut self, begin: Begin, cooling: &Cooling) {
        require!(
            self,
            self.open.is_none(),
            "R-S8: an attempt was begun while another is open"
        );
        require!(
            self,
            !self.is_waiting(),
            "an attempt was begun while waiting"
        );
        require!(
            self,
            !self.gone,
            "R-B8: an attempt was begun after the client left"
        );
        require!(
            self,
            !self.answered,
            "R-B8: an attempt was begun after an answer"
        );
        self.attempts += 1;
        self.check_timely();
        require!(
            self,
            begin.attempt_no == self.attempts,
            "attempts are numbered without gaps"
        );
        let round = self.round();
        require!(
            self,
            begin.round == round,
            "R-K3: round {:?} instead of {round:?}",
            begin.round
        );
        require!(
            self,
            begin.candidate < self.reach(),
            "R-F6, R-F8: a target out of reach"
        );
        let target = self.target(begin.candidate);
        require!(self, begin.target == target, "R-K3: the wrong target");
        let last = self.past.last().map(|past| past.begin);
        let visited = last.is_some_and(|l| (l.round, l.candidate) == (round, begin.candidate));
        let own_retry = visited && self.paused_before;
        let next_key = visited && last.is_some_and(|last| last.key != begin.key);
        if own_retry {
            self.check_own_retry(begin, cooling);
        } else {
            let unfit = self.unfit(begin.candidate, begin.key, cooling);
            require!(
                self,
                unfit.is_none(),
                "R-S12, R-S16: a key was begun that is {unfit:?}"
            );
        }
        if !self.paused_before && !next_key {
            self.charge_for(begin, cooling);
        }
        if own_retry {
            // What allowed it was checked when the pause began.
        } else if next_key {
            self.check_next_key(begin);
            self.check_permission(round, true);
        } else if begin.retry_index == 0 {
            self.check_permission(round, false);
            self.check_order(begin, round, cooling);
        } else {
            self.check_permission(round, false);
            self.check_sticky(begin, round);
        }
        let after_pause = std::mem::take(&mut self.paused_before);
        let taken = self.take_shares(begin, own_retry && after_pause, cooling);
        let cooldown = self.keys[begin.target][begin.key].cooldown;
        self.open = Some(Open {
            begin,
            began: self.now,
            sent: false,
            cooling_seen: cooling.until(cooldown),
            failing_seen: cooling.failing(cooldown),
            taken,
            own_retry,
            next_key,
            report: None,
        });
    }

    /// R-F1, R-F2, R-F4, R-F7, R-S5, R-S19: what the last attempt allows.
    pub(super) fn check_permission(&self, round: Round, next_key: bool) {
        for past in &self.past {
            let Some(report) = &past.report else {
                self.fail("an attempt after one that has no outcome");
            };
            let certified = matches!(report.outcome, Outcome::Rejected(_));
            if past.begin.round != round {
                require!(self, certified, "R-S5: round 2 after something uncertified");
                continue;
            }
            require!(self, !past.slow, "R-F4: a send after a slow failure");
            require!(
                self,
                round == Round::First || certified,
                "R-S19: round 2 went on"
            );
        }
        // What followed the attempts before the last one was judged when it began.
        let last = self.past.last().filter(|past| past.begin.round == round);
        if let Some(report) = last.and_then(|past| past.report.as_ref()) {
            // One refused key does not stand for its pool.
            let visit = self.past.iter().filter(|past| {
                let place = (past.begin.round, past.begin.candidate);
                last.is_some_and(|last| {
                    (last.begin.round, last.begin.candidate) == place
                        && last.begin.key != past.begin.key
                })
            });
            let mut reports = visit.filter_map(|past| past.report.as_ref());
            let beside = Auditor::is_of_key_alone(report) && reports.any(|r| self.moves_on(r));
            require!(
                self,
                next_key || beside || self.moves_on(report),
                "R-F: no send may follow {:?}",
                report.outcome
            );
        }
    }

    pub(super) fn moves_on(&self, report: &AttemptReport) -> bool {
        let fallback = &self.plan.route.routing.fallback;
        let status = report.status.unwrap_or(0);
        match report.outcome {
            Outcome::NotDelivered | Outcome::Rejected(_) => true,
            Outcome::Ambiguous => fallback.transport_error,
            Outcome::Partial | Outcome::Succeeded => false,
            Outcome::Refused => {
                let listed = fallback.statuses.contains(&status);
                let terminal = matches!(
                    report.class,
                    Class::Auth | Class::Config | Class::ContextOverflow | Class::ContentPolicy
                );
                let in_stream = report.carrier == Carrier::Stream;
                let pushback = matches!(report.class, Class::Throttle | Class::Overload);
                let throttle = status == 429 || status == 529 || (in_stream && pushback);
                let server = (500..=599).contains(&status) || in_stream;
                listed
                    || (!terminal && throttle && fallback.http_429)
                    || (!terminal && !throttle && server && fallback.http_5xx)
            }
        }
    }

    pub(super) fn check_order(&mut self, begin: Begin, round: Round, cooling: &Cooling) {
        let last = self.past.last().filter(|past| past.begin.round == round);
        if let Some(last) = last
            && let Some(report) = &last.report
        {
            let left = self.is_of_key(report) && self.free_key(&last.begin, cooling).is_some();
            require!(
                self,
                !left,
                "C13: another target although another key is free"
            );
        }
        let keys = &self.order[begin.candidate];
        let free = keys
            .iter()
            .find(|key| self.is_free(begin.candidate, **key, cooling));
        let mut fit = keys.iter();
        let first =
            free.or_else(|| fit.find(|k| self.unfit(begin.candidate, **k, cooling).is_none()));
        require!(
            self,
            first == Some(&begin.key),
            "the first free key goes first"
        );
        require!(
            self,
            !self.tried(round, begin.candidate),
            "R-B2: a target twice in one round"
        );
        let before = self.past.iter().filter(|p| p.begin.round == round);
        let before: BTreeSet<usize> = before.map(|p| p.begin.candidate).collect();
        let count = u32::try_from(before.len()).unwrap();
        let max = self.plan.route.routing.attempts_max;
        require!(
            self,
            count < max,
            "R-B2: {} attempts in a round of {max}",
            count + 1
        );
        for earlier in 0..begin.candidate {
            let later = self.is_deferred(earlier, cooling);
            if later {
                self.deferred.insert((round, earlier));
            }
            let passed = later || self.tried(round, earlier) || self.has_skipped(round, earlier);
            require!(
                self,
                passed,
                "R-S16: a target was passed over without a word"
            );
        }
        let ordered = self
            .past
            .iter()
            .all(|p| p.begin.round != round || p.begin.candidate < begin.candidate)
            || self.deferred.contains(&(round, begin.candidate));
        require!(self, ordered, "R-S16: out of order");
    }

    pub(super) fn check_sticky(&self, begin: Begin, round: Round) {
        require!(self, round == Round::First, "R-K4: a sticky try in round 2");
        require!(
            self,
            begin.candidate == 0,
            "R-K1: a sticky try of another candidate"
        );
        require!(
            self,
            begin.retry_index < self.plan.sticky_tries,
            "R-K1: too many sticky tries"
        );
        let Some(last) = self.past.last() else {
            self.fail("R-K2: a sticky try that was planned up front");
        };
        let follows = last.begin.candidate == 0
            && last.begin.key == begin.key
            && last.begin.retry_index + 1 == begin.retry_index;
        let keys = self.past.iter().map(|past| past.begin.key);
        require!(
            self,
            keys.collect::<BTreeSet<_>>().len() == 1,
            "R-K1: a sticky try of another key than the first"
        );
        require!(self, follows, "R-K3: retry_index does not follow");
        let report = last.report.as_ref().unwrap();
        let throttle = matches!(report.class, Class::Throttle | Class::Overload);
        let certified = matches!(report.outcome, Outcome::Rejected(_));
        require!(
            self,
            !throttle && !certified,
            "R-K2: a sticky try after a throttle"
        );
        require!(
            self,
            report.scope == Scope::Candidate || report.outcome == Outcome::NotDelivered,
            "R-K2: a sticky try after a wider failure"
        );
    }

    pub(super) fn on_sent(&mut self, event: &Event, begin: Begin) {
        require!(
            self,
            matches!(event, Event::SendBegun),
            "R-B8: a send elsewhere than the dispatch point"
        );
        require!(self, !self.gone, "R-B8: a send after the client left");
        require!(self, !self.committed, "R-B8: a send after commitment");
        require!(
            self,
            self.now < self.plan.deadline,
            "R-B4: a send after the deadline"
        );
        self.check_timely();
        require!(
            self,
            !self.draining || self.sends == 0,
            "R-B8: another send while draining"
        );
        let bound = self.plan.binding.is_some();
        require!(
            self,
            !bound || begin.candidate == 0,
            "R-F8: a bound operation changed target"
        );
        let max = self.sends_max();
        self.sends += 1;
        require!(
            self,
            self.sends <= max,
            "R-B1: {} sends of {max}",
            self.sends
        );
        match &mut self.open {
            Some(open) if open.begin == begin && !open.sent => open.sent = true,
            _ => self.fail("a send without its attempt"),
        }
    }

    pub(super) fn on_skipped(
        &mut self,
        candidate: usize,
        target: usize,
        round: Round,
        cooling: &Cooling,
    ) {
        let known = self.plan.candidates.get(candidate);
        let end = self.reach().min(self.skips_before);
        let fits = candidate < end && known.is_some_and(|known| known.target == target);
        require!(self, fits, "R-B2: an unknown candidate was skipped");
        require!(self, round == self.round(), "skipped in the wrong round");
        require!(
            self,
            self.candidate_unfit(candidate, cooling).is_some(),
            "R-S16: a free target was skipped"
        );
        let unfit = self.candidate_unfit(candidate, cooling);
        let skips = self.plan.route.routing.fallback.rate_limiting;
        require!(
            self,
            unfit != Some(Unfit::Limited) || skips,
            "an exhausted target was skipped without rate_limiting"
        );
        let seen = self.tried(round, candidate) || self.has_skipped(round, candidate);
        require!(self, !seen, "R-B2: skipped or tried before");
        if let Some(unfit) = self.candidate_unfit(candidate, cooling) {
            self.skipped.push((round, candidate, unfit));
        }
    }

    pub(super) fn has_skipped(&self, round: Round, candidate: usize) -> bool {
        let mut skipped = self.skipped.iter();
        skipped.any(|(r, c, _)| (*r, *c) == (round, candidate))
    }

    /// R-B1.
    pub(super) fn sends_max(&self) -> u32 {
        let routing = &self.plan.route.routing;
        routing
            .tries_max
            .map_or(routing.sends_max, |tries| tries.min(routing.sends_max))
    }

    pub(super) fn on_attempt_settled(
        &mut self,
        event: &Event,
        settled: &AttemptSettled,
        cooling: &Cooling,
    ) {
        let Some(mut open) = self.open.take() else {
            self.fail("R-L1: an attempt was settled twice");
        };
        require!(
            self,
            open.begin == settled.begin,
            "another attempt was settled"
        );
        require!(
            self,
            open.sent == settled.sent,
            "R-S23: sent or not is wrong"
        );
        self.settled_attempts += 1;
        self.watchdog = None;
        open.taken.end_probe(cooling);
        open.taken.free(settled.report.as_ref(), cooling);
        let expected = self.expected_state(event, &open);
        require!(
            self,
            settled.state == expected,
            "R-L1: settled {:?} instead of {expected:?}",
            settled.state
        );
        let limit = self.plan.route.routing.fail_within;
        let late = limit.is_some_and(|limit| self.now.since(open.began) > limit);
        let report = if self.gone { None } else { open.report };
        let report = match (report, event) {
            (None, Event::DeadlinePassed) if open.sent => settled.report.clone(),
            (report, _) => report,
        };
        // What ended before it was sent has not failed, late or early.
        let slow = late && report.is_some();
        self.past.push(Past {
            begin: open.begin,
            report,
            slow,
            own_retry: open.own_retry,
            next_key: open.next_key,
        });
    }

    pub(super) fn expected_state(&self, event: &Event, open: &Open) -> State {
        if self.gone {
            return if self.gone_late {
                State::TimedOut
            } else {
                State::Cancelled
            };
        }
        match event {
            Event::DeadlinePassed => State::TimedOut,
            Event::StreamEnded(StreamEnd::Complete) => State::Succeeded,
            Event::StreamEnded(StreamEnd::UpstreamBroke) => State::Failed,
            Event::StreamEnded(StreamEnd::UpstreamTimedOut) => State::TimedOut,
            Event::SendBegun if self.now >= self.plan.deadline => State::TimedOut,
            Event::SendBegun => State::Failed,
            _ => match open.report.as_ref().map(|r| (r.outcome, r.class)) {
                Some((Outcome::Rejected(_), _)) => State::Rejected,
                Some((Outcome::Refused, _)) => State::Refused,
                Some((Outcome::Ambiguous, Class::Timeout)) => State::TimedOut,
                Some((Outcome::Ambiguous, _)) => State::Ambiguous,
                Some((Outcome::NotDelivered | Outcome::Partial, _)) => State::Failed,
                Some((Outcome::Succeeded, _)) | None => State::Pending,
            },
        }
    }
}

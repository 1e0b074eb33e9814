//! What follows the end of an attempt: what is learned of its key, what `decide` is told, and how its answer is obeyed.
//!
//! Not here: the decision itself (`core::decision`), and how a round or an operation ends. Invariant: what a decision was based on is what
//! is done, although other operations change cooldowns at any moment.

use std::time::Duration;

use super::effect::{Begin, Deliver, Next, Note, SecondRoundEnd};
use super::hold::{Hold, Manners};
use super::machine::Executor;
use super::open_send::OpenSend;
use super::provider_retry::Pause;
use super::round::Ahead;
use super::state::Phase;
use crate::core::chance::Chance;
use crate::core::class::Class;
use crate::core::decision::{
    Decision, Facts, Round, decide, deserves_next_key, deserves_retry, deserves_same_target,
    is_charged, is_of_key_alone, is_strike, may_move_on, objection,
};
use crate::core::limits::{KEY_REFUSED_ASIDE, PUSHBACK_DEFAULT};
use crate::core::outcome::{AttemptReport, Outcome, Scope};
use crate::core::precedence::Precedence;
use crate::core::settlement::State;
use crate::core::time::MonoTime;
use crate::policy::admission::WaitPermit;
use crate::policy::cooldown::AsideReason;

/// What could follow a failure, as it was known when that was decided.
struct Ways {
    /// The pause before the provider's own retry, with its slot.
    pause: Option<(Duration, WaitPermit)>,
    /// What a sticky try needs, when one is left.
    here: Option<Hold>,
    /// The next free key of the same pool.
    next_key: Option<(usize, Hold)>,
    /// The next free candidate.
    next: Ahead,
}

impl Executor {
    pub(super) fn on_outcome(
        &mut self,
        mut open: OpenSend,
        report: AttemptReport,
        now: MonoTime,
        chance: &mut impl Chance,
        notes: &mut Vec<Note>,
    ) -> Next {
        let begin = open.begin;
        let slow_after = self.plan.route.routing.fail_within;
        self.lasting.slow = slow_after.is_some_and(|limit| now.since(open.began) > limit);
        self.learn(&open, &report, now);
        self.drop_wider(&begin, &report);
        self.unpin(&begin, &report);
        let succeeded = report.outcome == Outcome::Succeeded;
        if !succeeded {
            // Its place comes free before another is asked for: the target may have one alone.
            std::mem::take(&mut open.hold).settle(Some(&report));
        }
        let mut ways = Ways {
            here: self.sticky_hold(&begin, &report, now),
            pause: self.provider_retry(&begin, &report, now, chance),
            next_key: match deserves_next_key(&report, &self.plan.route.routing.fallback) {
                true => self.next_key(begin.candidate, now),
                false => None,
            },
            next: self.next_target(&report, now),
        };
        let decision = self.decide(&begin, &report, &mut ways, now, notes);
        if decision == Decision::Accept {
            return self.accept(open, report, now, notes);
        }
        self.pass.object(objection(&report));
        if decision == Decision::NextKey {
            self.pass.pool_moves_on |= may_move_on(&report, &self.plan.route.routing.fallback);
        }
        let standing = begin.standing(self.lasting.followed.replace((begin, decision)));
        self.lasting
            .precedence
            .offer(standing, begin.attempt_no, begin.target, report.clone());
        notes.push(open.settle(Some(report.clone()), decision, settled_state(&report)));
        let goes_on = matches!(decision, Decision::NextKey | Decision::SameTarget);
        if ways.pause.is_none() && !goes_on && deserves_retry(&report) {
            self.note_retries_exhausted(&begin, notes);
        }
        self.follow(decision, ways, (begin, &report), now, chance, notes)
    }

    /// The next free candidate, where the failure and the budgets let the operation move on to it. Asked for only then: a place held in vain
    /// is one that another operation lacks.
    fn next_target(&self, report: &AttemptReport, now: MonoTime) -> Ahead {
        let routing = &self.plan.route.routing;
        let beside_others = self.pass.pool_moves_on && is_of_key_alone(report);
        let moves = beside_others || may_move_on(report, &routing.fallback);
        let has_room = self.sends_left() > 0 && self.pass.attempts < routing.attempts_max;
        match moves && has_room {
            true => self.next_free(now),
            false => Ahead::Nothing,
        }
    }

    /// What another try of the first candidate on its key needs, when one is left (R-K1). It passes every guard (R-K2).
    fn sticky_hold(&self, begin: &Begin, report: &AttemptReport, now: MonoTime) -> Option<Hold> {
        // A candidate is a target with its key: the next key of the pool is not the first-ranked one any more, and neither is a candidate
        // whose turn came after another's.
        let first_key = self.pass.keys_tried.count_ones() <= 1 && self.pass.attempts == 1;
        let first = begin.candidate == 0 && self.pass.round == Round::First && first_key;
        // Where the provider's own retries are the rule, their end is the end: a try at once would undo the pause (R-P2, R-P3).
        let own_retries = self
            .plan
            .target(begin.candidate)
            .is_some_and(|(_, t)| t.retry.is_some());
        let sticks = first && !(own_retries && deserves_retry(report));
        let left = begin.retry_index + 1 < self.plan.sticky_tries;
        // Asked for only where it can be used: a place held in vain is one that another operation lacks.
        if !sticks || !left || !deserves_same_target(report) {
            return None;
        }
        // Another operation may have learned something of the key meanwhile.
        let claimed = self.claim(begin.candidate, begin.key, Manners::Yield, now);
        claimed.ok()
    }

    /// Asks, and pays for what the retry budget is charged with. What it refuses is asked again without it: another way may be free.
    fn decide(
        &mut self,
        begin: &Begin,
        report: &AttemptReport,
        ways: &mut Ways,
        now: MonoTime,
        notes: &mut Vec<Note>,
    ) -> Decision {
        let facts = self.facts(begin, report, ways, now);
        let decision = decide(&facts);
        if !is_charged(decision, report) || self.plan.route.retry_budget.charge(now) {
            return decision;
        }
        // What it refuses needs no place any more, and the target may stand in another one, which only that place kept away.
        (ways.here, ways.pause, ways.next) = (None, None, Ahead::Nothing);
        ways.next = self.next_target(report, now);
        let without = Facts {
            budget_left: false,
            has_next: matches!(ways.next, Ahead::Free(_)),
            next_limited: matches!(ways.next, Ahead::Limited),
            ..facts
        };
        let decision = decide(&without);
        self.note_budget_exhausted(notes);
        decision
    }

    /// Notes once that the route's retry budget refused something.
    pub(super) fn note_budget_exhausted(&mut self, notes: &mut Vec<Note>) {
        if !std::mem::replace(&mut self.lasting.budget_noted, true) {
            notes.push(Note::RetryBudgetExhausted);
        }
    }

    /// Does what was decided, by the ways that were known then: others change what is known at any moment.
    fn follow(
        &mut self,
        decision: Decision,
        ways: Ways,
        (begin, report): (Begin, &AttemptReport),
        now: MonoTime,
        chance: &mut impl Chance,
        notes: &mut Vec<Note>,
    ) -> Next {
        let current = Some((begin, report));
        match (decision, ways) {
            (
                Decision::SameTarget,
                Ways {
                    here: Some(hold), ..
                },
            ) => {
                let Begin {
                    candidate,
                    target,
                    key,
                    retry_index,
                    ..
                } = begin;
                let again = self.begin(candidate, target, key, retry_index + 1);
                self.open(again, hold, now, notes)
            }
            (
                Decision::NextKey,
                Ways {
                    next_key: Some((key, hold)),
                    ..
                },
            ) => {
                let next = self.change_key(&begin, key);
                self.open(next, hold, now, notes)
            }
            (
                Decision::Retry(_),
                Ways {
                    pause: Some((pause, permit)),
                    ..
                },
            ) => {
                let failed = begin;
                let pause = Pause {
                    failed,
                    pause,
                    permit,
                };
                self.begin_pause(pause, report, now, notes)
            }
            (
                Decision::NextTarget,
                Ways {
                    next: Ahead::Free(next),
                    ..
                },
            ) => {
                let next = self.take(next, now, notes);
                let from = Some((begin.target, report.class.label()));
                self.go_on(next, from, now, chance, notes)
            }
            (Decision::Stop(stop), ways) => {
                // What is told must not take the operation's own holds for others'.
                drop(ways);
                self.stop(stop, now, chance, notes, current)
            }
            (
                Decision::Accept
                | Decision::RoundOver
                | Decision::SameTarget
                | Decision::NextKey
                | Decision::Retry(_)
                | Decision::NextTarget,
                ways,
            ) => {
                let nothing_ahead = matches!(ways.next, Ahead::Nothing);
                drop(ways);
                let attempts_left = self.pass.attempts < self.plan.route.routing.attempts_max;
                if self.sends_left() > 0 && nothing_ahead && attempts_left {
                    // What is left in this round cools and is passed over.
                    self.pass_over_up_to(self.plan.reach(), Manners::Push, now, notes);
                }
                self.round_over(now, chance, notes, current)
            }
        }
    }

    fn facts<'a>(
        &'a self,
        begin: &Begin,
        report: &'a AttemptReport,
        ways: &Ways,
        now: MonoTime,
    ) -> Facts<'a> {
        let routing = &self.plan.route.routing;
        let tries = self.plan.sticky_tries;
        Facts {
            report,
            round: self.pass.round,
            commitment: self.lasting.commitment,
            draining: self.lasting.draining,
            deadline_passed: now >= self.plan.deadline,
            slow: self.lasting.slow,
            failover_over: self.plan.failover_is_over(now),
            sends_left: self.sends_left(),
            // Asked for by who decides, when the answer costs something.
            budget_left: true,
            attempts_left: routing.attempts_max.saturating_sub(self.pass.attempts),
            sticky_left: match ways.here {
                Some(_) => tries.saturating_sub(begin.retry_index + 1),
                None => 0,
            },
            has_next: matches!(ways.next, Ahead::Free(_)),
            next_limited: matches!(ways.next, Ahead::Limited),
            has_next_key: ways.next_key.is_some(),
            pool_moves_on: self.pass.pool_moves_on,
            retry_pause: ways.pause.as_ref().map(|(pause, _)| *pause),
            fallback: &routing.fallback,
        }
    }

    fn accept(
        &mut self,
        mut open: OpenSend,
        report: AttemptReport,
        now: MonoTime,
        notes: &mut Vec<Note>,
    ) -> Next {
        if let Some((_, target)) = self.plan.target(open.begin.candidate)
            && let Some(key) = target.keys.get(open.begin.key)
        {
            key.cooldown.end(open.seen);
            if let Some(pin) = &self.plan.pin {
                pin.keep(target, key, now);
            }
        }
        open.hold.end_probe();
        if std::mem::take(&mut self.lasting.second_round_open) {
            notes.push(Note::SecondRoundEnded(SecondRoundEnd::Success));
        }
        self.lasting.told = Some(open.begin.attempt_no);
        // The answers of those that failed are told to nobody any more, and this one may take long (R-L3).
        self.lasting.precedence = Precedence::default();
        // What was waited for has come; the next wait sets its own limit.
        open.watchdog = None;
        self.phase = Phase::Delivering(open, report);
        Next::Deliver(Deliver::AsIs)
    }

    /// Keeps what a failure says of the key. The not-before instant of a certified rejection: for this operation in full, for others within
    /// the cooldown's bound. A key that is not accepted or used up is set aside for everyone.
    pub(super) fn learn(&mut self, open: &OpenSend, report: &AttemptReport, now: MonoTime) {
        let begin = &open.begin;
        let Some((_, target)) = self.plan.target(begin.candidate) else {
            return;
        };
        let Some(key) = target.keys.get(begin.key) else {
            return;
        };
        // What the operation's own deadline cut says nothing of the target.
        if let Some(rules) = &self.plan.route.routing.failures
            && is_strike(report)
            && now < self.plan.deadline
        {
            key.cooldown.strike(open.seen, rules, now);
        }
        let is_of_key = report.scope == Scope::Credential && key.name.is_some();
        if report.outcome == Outcome::Refused && is_of_key {
            match report.class {
                Class::Auth => key
                    .aside
                    .extend(AsideReason::Refused, now.after(KEY_REFUSED_ASIDE)),
                Class::QuotaHard if !self.plan.route.routing.quota_aside.is_zero() => {
                    let until = now.after(self.plan.route.routing.quota_aside);
                    key.aside.extend(AsideReason::Quota, until);
                }
                _ => {}
            }
        }
        if !matches!(report.outcome, Outcome::Rejected(_)) {
            return;
        }
        // A throttle is the key's; what reaches further holds for every key of the pool.
        let keys = if report.scope > Scope::Credential {
            0..target.keys.len()
        } else {
            begin.key..begin.key + 1
        };
        let position = begin.target;
        let cooldown_max = self.plan.route.routing.cooldown_max;
        if let Some(delay) = report.pushback
            && !cooldown_max.is_zero()
        {
            let until = now.after(delay.min(cooldown_max));
            let cooled = target.keys.iter().skip(keys.start).take(keys.len());
            cooled.for_each(|key| key.cooldown.extend(until));
        }
        let until = now.after(report.pushback.unwrap_or(PUSHBACK_DEFAULT));
        for key in keys {
            self.learn_not_before(position, key, until);
        }
    }
}

/// The terminal state of an attempt that came to this.
pub(super) const fn settled_state(report: &AttemptReport) -> State {
    match (report.outcome, report.class) {
        (Outcome::Ambiguous, Class::Timeout) => State::TimedOut,
        (Outcome::Ambiguous, _) => State::Ambiguous,
        (Outcome::Rejected(_), _) => State::Rejected,
        (Outcome::Refused, _) => State::Refused,
        (Outcome::NotDelivered | Outcome::Partial, _) => State::Failed,
        (Outcome::Succeeded, _) => State::Succeeded,
    }
}

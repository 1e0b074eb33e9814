//! What an attempt holds of what operations share: its place in the target's limits, and the right to try the target again first.
//!
//! Invariant: whoever chooses a key holds what it needs from then on, so that nobody comes between the choice and the attempt. Dropping
//! a hold gives all of it back; [`Hold::settle`] keeps what may have run.

use super::machine::Executor;
use crate::core::outcome::{AttemptReport, Outcome};
use crate::core::time::MonoTime;
use crate::policy::cooldown::{AsideReason, Probe};
use crate::policy::limits::{Exhausted, Reservation, Share};

/// Shares of an attempt that is chosen or open.
#[derive(Debug, Default)]
#[must_use]
pub(super) struct Hold {
    reservation: Option<Reservation>,
    probe: Option<Probe>,
}

impl Hold {
    /// The attempt has ended. What certainly did not run, or was cancelled before an answer, is given back.
    pub fn settle(self, report: Option<&AttemptReport>) {
        let Some(mut reservation) = self.reservation else {
            return;
        };
        let gives_back = report.is_none_or(|report| match report.outcome {
            Outcome::NotDelivered | Outcome::Rejected(_) => true,
            Outcome::Refused | Outcome::Ambiguous | Outcome::Partial | Outcome::Succeeded => false,
        });
        if !gives_back {
            reservation.keep();
        }
    }

    /// The answer has begun: others need not be kept away any longer.
    pub fn end_probe(&mut self) {
        self.probe = None;
    }

    /// What the target's minute has of it.
    pub fn share(&self) -> Option<Share> {
        self.reservation.as_ref().map(Reservation::share)
    }
}

/// Why a candidate or key is passed over without a send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PassedOver {
    /// A certified not-before instant lies ahead.
    Cooling,
    /// It was set aside for failures that prove nothing.
    Failing,
    /// The key is set aside for every model.
    Aside(AsideReason),
    /// Its provider does not answer its health checks, and another target's does.
    Unhealthy,
    /// What failed before in this operation reaches as far as this.
    Dropped,
    /// Another operation tries it first, or did until this moment; its turn comes after the others.
    Probed,
    /// The target's own limits are used up.
    Limited,
}

/// How one who wants a key meets another that tries it first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Manners {
    /// Leaves it alone.
    Yield,
    /// Goes as well: there is nobody else to go to.
    Push,
}

impl Executor {
    /// Takes what an attempt with the key needs, or says why there is none.
    pub(super) fn claim(
        &self,
        candidate: usize,
        key: usize,
        manners: Manners,
        now: MonoTime,
    ) -> Result<Hold, PassedOver> {
        if let Some(unfit) = self.key_state(candidate, key, now) {
            return Err(unfit);
        }
        self.claim_fit(candidate, key, manners, now)
    }

    /// The same for a key whose not-before instants are not asked.
    pub(super) fn claim_fit(
        &self,
        candidate: usize,
        key: usize,
        manners: Manners,
        now: MonoTime,
    ) -> Result<Hold, PassedOver> {
        let Some((_, target)) = self.plan.target(candidate) else {
            return Ok(Hold::default());
        };
        let cooldown = target.keys.get(key).map(|key| &key.cooldown);
        let reopening = cooldown.filter(|cooldown| cooldown.is_half_open(now));
        let probe = reopening.and_then(|cooldown| cooldown.take_probe(now));
        if reopening.is_some() && probe.is_none() && manners == Manners::Yield {
            return Err(PassedOver::Probed);
        }
        let limits = target.limits.as_ref();
        let reservation = limits.map(|limits| limits.reserve(self.plan.tokens, now));
        let reservation = reservation.transpose().map_err(|_| PassedOver::Limited)?;
        Ok(Hold { reservation, probe })
    }

    /// Why the key may not be used now, if so, whoever else wants it.
    pub(super) fn key_state(
        &self,
        candidate: usize,
        key: usize,
        now: MonoTime,
    ) -> Option<PassedOver> {
        let pooled = self.key(candidate, key)?;
        if let Some((reason, _)) = pooled.aside.remaining_after(now) {
            return Some(PassedOver::Aside(reason));
        }
        if self.is_dropped(candidate, key) {
            return Some(PassedOver::Dropped);
        }
        if self.key_not_before(candidate, key, now).is_some() {
            return Some(PassedOver::Cooling);
        }
        if pooled.cooldown.failing_after(now).is_some() {
            return Some(PassedOver::Failing);
        }
        let unhealthy = self.is_unhealthy(candidate) && !self.all_unhealthy();
        unhealthy.then_some(PassedOver::Unhealthy)
    }

    fn is_unhealthy(&self, candidate: usize) -> bool {
        let target = self.plan.target(candidate).map(|(_, target)| target);
        let health = target.and_then(|target| target.health.as_ref());
        health.is_some_and(|health| !health.is_healthy())
    }

    /// Then nobody is passed over for it: checks may be wrong, and an answer is worth a try.
    fn all_unhealthy(&self) -> bool {
        (0..self.plan.reach()).all(|candidate| self.is_unhealthy(candidate))
    }

    /// Why the target's own limits refuse such a request now, if they do.
    pub(super) fn local_limit(&self, candidate: usize, now: MonoTime) -> Option<Exhausted> {
        let (_, target) = self.plan.target(candidate)?;
        target.limits.as_ref()?.exhausted(self.plan.tokens, now)
    }
}

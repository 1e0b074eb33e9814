//! What a failure rules out beyond the candidate that failed (R-K2), and what it undoes.
//!
//! Not here: certified rejections. Those are not-before instants, which pass, and round two asks again. Nothing here does pass: whatever
//! drops a candidate has spoken against a second round already. Invariant: only what an answer or a connection proved is dropped.

use super::effect::Begin;
use super::machine::Executor;
use crate::core::class::Class;
use crate::core::decision::is_of_key_alone;
use crate::core::outcome::{AttemptReport, Outcome, Scope};

/// What other candidates are not tried in this operation, and the one that showed it. Of its own keys and tries `decide` has the say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Dropped {
    by: usize,
    reach: Reach,
}

/// How far a failure reaches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reach {
    /// A key of a provider, at whichever target.
    Key { provider: usize, key: usize },
    /// A target, with whichever key.
    Target(usize),
    /// Every target at an address.
    Endpoint(usize),
    /// Every target of a provider.
    Provider(usize),
}

impl Executor {
    /// Drops what the failure reaches. An address that was reached after all, by a sticky try, is taken back.
    pub(super) fn drop_wider(&mut self, begin: &Begin, report: &AttemptReport) {
        let Some((_, target)) = self.plan.target(begin.candidate) else {
            return;
        };
        let (provider, endpoint) = (target.provider, target.endpoint);
        let unreached = report.outcome == Outcome::NotDelivered && report.scope == Scope::Endpoint;
        if !unreached {
            let reached = Reach::Endpoint(endpoint);
            self.lasting
                .dropped
                .retain(|dropped| dropped.reach != reached);
        }
        let reach = match (report.outcome, report.scope) {
            _ if unreached => Reach::Endpoint(endpoint),
            (Outcome::Refused, Scope::Credential) if is_of_key_alone(report) => {
                let key = begin.key;
                Reach::Key { provider, key }
            }
            (Outcome::Refused, Scope::Endpoint) => Reach::Target(begin.target),
            (Outcome::Refused, Scope::Provider) => Reach::Provider(provider),
            _ => return,
        };
        let by = begin.candidate;
        self.lasting.dropped.push(Dropped { by, reach });
    }

    /// Whether an earlier failure reaches as far as this key of the candidate.
    pub(super) fn is_dropped(&self, candidate: usize, key: usize) -> bool {
        if self.lasting.dropped.is_empty() {
            return false;
        }
        let Some((position, target)) = self.plan.target(candidate) else {
            return false;
        };
        let by_others = self.lasting.dropped.iter();
        let mut by_others = by_others.filter(|dropped| dropped.by != candidate);
        by_others.any(|dropped| match dropped.reach {
            Reach::Key {
                provider,
                key: other,
            } => (target.provider, key) == (provider, other),
            Reach::Target(other) => position == other,
            Reach::Endpoint(endpoint) => target.endpoint == endpoint,
            Reach::Provider(provider) => target.provider == provider,
        })
    }

    /// The client's next request need not begin where this one failed, unless the request was at fault. A throttle is remembered as a cooldown,
    /// which passes while the cache is warm; and what is bound to the provider's state is still there after a failure.
    pub(super) fn unpin(&self, begin: &Begin, report: &AttemptReport) {
        let Some(pin) = &self.plan.pin else { return };
        let of_request = matches!(
            report.class,
            Class::Config | Class::ContextOverflow | Class::ContentPolicy
        );
        let passes = matches!(report.outcome, Outcome::Succeeded | Outcome::Rejected(_));
        if passes || of_request || self.plan.binding.is_some() {
            return;
        }
        if let Some((_, target)) = self.plan.target(begin.candidate)
            && let Some(key) = target.keys.get(begin.key)
        {
            pin.forget(target, key);
        }
    }
}

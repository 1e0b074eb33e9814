//! What the tables say about an answer, on its way to becoming a verdict.
//!
//! Not here: the lookup ([`super::classify`]) and the minting ([`super::certify`]).

use std::time::Duration;

use super::answer::Verdict;
use super::certify::{self, Evidence, Reading};
use super::rules::{Proof, Rule, scope_of};
use crate::core::certificate::RejectionCertificate;
use crate::core::class::Class;
use crate::core::outcome::{Carrier, Outcome, Scope};

/// A finding.
pub(super) struct Found {
    pub(super) class: Class,
    scope: Scope,
    name: &'static str,
    row: Row,
    /// The status that an event maps to.
    pub(super) mapped: Option<u16>,
    /// The proof, once [`Found::settled`] has looked for it.
    pub(super) certificate: Option<RejectionCertificate>,
}

enum Row {
    /// No row matched.
    None,
    /// A denial row matched.
    Denial,
    /// Another row matched.
    Other(&'static Rule),
}

impl Found {
    /// A finding without a row.
    pub(super) fn plain(class: Class, name: &'static str) -> Found {
        let (scope, row) = (scope_of(class), Row::None);
        let (mapped, certificate) = (None, None);
        Found {
            class,
            scope,
            name,
            row,
            mapped,
            certificate,
        }
    }

    /// A matching row of the denylist.
    pub(super) fn denial(rule: &'static Rule) -> Found {
        Found::matching(rule, Row::Denial)
    }

    /// A matching row of the other tables.
    pub(super) fn row(rule: &'static Rule) -> Found {
        Found::matching(rule, Row::Other(rule))
    }

    fn matching(rule: &'static Rule, row: Row) -> Found {
        Found {
            class: rule.class,
            scope: rule.scope,
            name: rule.name,
            row,
            mapped: rule.statuses.first().copied(),
            certificate: None,
        }
    }

    /// Adds the certificate, if there is one. `trusted` is the status when the operator declared it.
    pub(super) fn settled(mut self, evidence: &Evidence, trusted: Option<u16>) -> Found {
        let (certifying, trustable) = match self.row {
            Row::None => (None, true),
            Row::Denial => (None, false),
            Row::Other(rule) => (
                (rule.proof != Proof::None).then_some(rule),
                speaks_of_the_server(rule.class),
            ),
        };
        if let Some(certificate) = certifying.and_then(|rule| certify::by_rule(rule, evidence)) {
            self.certificate = Some(certificate);
            return self;
        }
        if let Some(certificate) = trusted
            .filter(|_| trustable)
            .and_then(|status| certify::by_operator(status, evidence))
        {
            let found = Found::plain(certificate.class(), certificate.rule());
            return Found {
                certificate: Some(certificate),
                ..found
            };
        }
        if certifying.is_some() && evidence.reading == Reading::Foreign {
            return Found::plain(Class::Ambiguous, "body.undocumented_types");
        }
        self
    }

    /// The verdict.
    pub(super) fn verdict(
        self,
        outcome: Outcome,
        carrier: Carrier,
        status: u16,
        pushback: Option<Duration>,
    ) -> Verdict {
        let (class, scope, rule) = (self.class, self.scope, self.name);
        Verdict {
            outcome,
            class,
            scope,
            carrier,
            status,
            pushback,
            rule,
        }
    }
}

/// Whether a class leaves open that the server merely had no room, so that the operator's word about the status may stand.
const fn speaks_of_the_server(class: Class) -> bool {
    match class {
        Class::Throttle | Class::Overload | Class::Ambiguous | Class::ServerError => true,
        Class::QuotaHard
        | Class::Config
        | Class::ContextOverflow
        | Class::ContentPolicy
        | Class::Auth
        | Class::Timeout
        | Class::Malformed
        | Class::Transport
        | Class::OkStream
        | Class::Ok => false,
    }
}

//! What notes sum up to, and the equations that the sums must satisfy at every moment.
//!
//! Fed by the same notes as the metrics, but counted apart, so that tests can hold one against the other.

use std::collections::BTreeMap;
use std::fmt;

use crate::executor::effect::{Note, SecondRoundEnd};

/// Sums over any number of operations.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Totals {
    /// Attempts that were owned.
    pub attempts_opened: u64,
    /// Attempts that were settled.
    pub attempts_settled: u64,
    /// Sends that were permitted.
    pub sends: u64,
    /// Settled attempts that had been sent.
    pub sends_settled: u64,
    /// Waits begun, each with a slot.
    pub admissions: u64,
    /// Waits that led into a second round.
    pub waits_elapsed: u64,
    /// Waits that ended otherwise.
    pub waits_cut: u64,
    /// Second rounds in which a target answered.
    pub successes: u64,
    /// Second rounds in which every target rejected again.
    pub exhausted_again: u64,
    /// Second rounds that ended otherwise.
    pub other_ends: u64,
    /// Final exhaustions, whatever the round.
    pub exhaustions: u64,
    /// Suppressed second rounds, by reason.
    pub suppressions: BTreeMap<&'static str, u64>,
    /// Operations that were settled.
    pub operations_settled: u64,
}

/// What is open at the moment of a check.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Open {
    /// Attempts that are owned and not settled.
    pub attempts: u64,
    /// Those of them that were sent.
    pub sends: u64,
    /// Operations asleep between rounds.
    pub asleep: u64,
    /// Operations in their second round.
    pub in_second_round: u64,
}

/// An equation that does not hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Imbalance {
    /// Which.
    pub equation: &'static str,
    /// Its left side.
    pub left: u64,
    /// Its right side.
    pub right: u64,
}

impl fmt::Display for Imbalance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Imbalance {
            equation,
            left,
            right,
        } = self;
        write!(f, "{equation}: {left} is not {right}")
    }
}

impl std::error::Error for Imbalance {}

impl Totals {
    /// Adds what one note says.
    pub fn add(&mut self, note: &Note) {
        match note {
            Note::AttemptOpened(_) => self.attempts_opened += 1,
            Note::SendDispatched(_) => self.sends += 1,
            Note::AttemptSettled(settled) => {
                self.attempts_settled += 1;
                self.sends_settled += u64::from(settled.sent);
            }
            Note::WaitBegun => self.admissions += 1,
            Note::WaitEnded { how, .. } => {
                let elapsed = *how == crate::executor::effect::WaitEnd::Elapsed;
                self.waits_elapsed += u64::from(elapsed);
                self.waits_cut += u64::from(!elapsed);
            }
            Note::SecondRoundEnded(SecondRoundEnd::Success) => self.successes += 1,
            Note::SecondRoundEnded(SecondRoundEnd::Exhausted) => self.exhausted_again += 1,
            Note::SecondRoundEnded(SecondRoundEnd::Other) => self.other_ends += 1,
            Note::Suppressed(reason) => {
                *self.suppressions.entry(reason.label()).or_default() += 1;
            }
            Note::RouteExhausted => self.exhaustions += 1,
            Note::OperationSettled(_) => self.operations_settled += 1,
            Note::Skipped { .. }
            | Note::Failover { .. }
            | Note::RetryScheduled { .. }
            | Note::RetriesExhausted(_)
            | Note::RetryBudgetExhausted
            | Note::Unexpected(_) => {}
        }
    }

    /// Checks every equation against what is open.
    pub fn check(&self, open: Open) -> Result<(), Imbalance> {
        attempts_conserved(self, open)?;
        sends_conserved(self, open)?;
        waits_conserved(self, open)?;
        admissions_balance(self, open)
    }
}

/// Attempts = settled attempts + open attempts.
pub fn attempts_conserved(totals: &Totals, open: Open) -> Result<(), Imbalance> {
    let settled = totals.attempts_settled + open.attempts;
    equal("attempts = settled + open", totals.attempts_opened, settled)
}

/// Sends = settled sends + open sends.
pub fn sends_conserved(totals: &Totals, open: Open) -> Result<(), Imbalance> {
    let settled = totals.sends_settled + open.sends;
    equal("sends = settled sends + open sends", totals.sends, settled)
}

/// Waits begun = waits that elapsed + waits cut short + operations asleep.
pub fn waits_conserved(totals: &Totals, open: Open) -> Result<(), Imbalance> {
    let ended = totals.waits_elapsed + totals.waits_cut + open.asleep;
    equal("waits = elapsed + cut + asleep", totals.admissions, ended)
}

/// R-S22: admissions = successes + exhaustions of round 2 + other ends of round 2 + waits cut short + what is still asleep or in round 2.
pub fn admissions_balance(totals: &Totals, open: Open) -> Result<(), Imbalance> {
    let ended = totals.successes + totals.exhausted_again + totals.other_ends + totals.waits_cut;
    equal(
        "admissions = ends + asleep + in round 2",
        totals.admissions,
        ended + open.asleep + open.in_second_round,
    )
}

fn equal(equation: &'static str, left: u64, right: u64) -> Result<(), Imbalance> {
    if left == right {
        Ok(())
    } else {
        Err(Imbalance {
            equation,
            left,
            right,
        })
    }
}

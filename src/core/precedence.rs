//! Which failure of an operation the client is told about (R-D1).

use super::class::Class;
use super::decision::is_of_key_alone;
use super::outcome::{AttemptReport, Outcome};

/// `ambiguous > terminal > refused > rejected > not_delivered`; among equals the last one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Rank {
    /// Nothing arrived.
    NotDelivered,
    /// A certified rejection.
    Rejected,
    /// An error answer that is neither certified nor terminal.
    Refused,
    /// An error answer that the caller or the operator has to mend.
    Terminal,
    /// It may have run.
    Ambiguous,
}

/// How an attempt follows the one before it, as far as it matters for what is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Standing {
    /// Another target, or the first attempt of a round.
    Fresh,
    /// One more try that counts by itself: a sticky one.
    SameKey,
    /// The provider's own retry: of such a sequence the final failure stands for all (R-P5).
    Retry,
    /// The next key of the same pool: a failure of one key alone is nothing beside another key's failure.
    NextKey,
}

/// The failure that would be told if the operation ended now. It survives the change of rounds.
#[derive(Debug, Clone, Default)]
pub struct Precedence {
    kept: Option<Kept>,
    /// What was kept when the current target was first tried.
    before: Option<Kept>,
    /// Whether the current target has failed otherwise than by a key of its own.
    beyond_key: bool,
}

/// A failure and the attempt it came from.
#[derive(Debug, Clone)]
pub struct Kept {
    /// Its rank.
    pub rank: Rank,
    /// The attempt, counted from 1.
    pub attempt_no: u32,
    /// Its target, as a position in the route.
    pub target: usize,
    /// What became of it.
    pub report: AttemptReport,
}

impl Precedence {
    /// Takes note of a failed attempt.
    pub fn offer(
        &mut self,
        standing: Standing,
        attempt_no: u32,
        target: usize,
        report: AttemptReport,
    ) {
        let of_key = is_of_key_alone(&report);
        match standing {
            Standing::Fresh => {
                self.before = self.kept.clone();
                self.beyond_key = false;
            }
            Standing::SameKey => {}
            Standing::Retry => self.kept = self.before.clone(),
            Standing::NextKey if of_key && self.beyond_key => return,
            Standing::NextKey if !of_key && !self.beyond_key => self.kept = self.before.clone(),
            Standing::NextKey => {}
        }
        self.beyond_key = !of_key || (self.beyond_key && standing != Standing::Retry);
        let rank = rank(&report);
        if self.kept.as_ref().is_none_or(|kept| rank >= kept.rank) {
            self.kept = Some(Kept {
                rank,
                attempt_no,
                target,
                report,
            });
        }
    }

    /// The failure to tell.
    pub fn kept(&self) -> Option<&Kept> {
        self.kept.as_ref()
    }
}

/// The rank of a failed attempt. A success has none and ranks lowest.
pub fn rank(report: &AttemptReport) -> Rank {
    match report.outcome {
        Outcome::Ambiguous | Outcome::Partial => Rank::Ambiguous,
        Outcome::Refused if is_terminal(report) => Rank::Terminal,
        Outcome::Refused => Rank::Refused,
        Outcome::Rejected(_) => Rank::Rejected,
        Outcome::NotDelivered | Outcome::Succeeded => Rank::NotDelivered,
    }
}

fn is_terminal(report: &AttemptReport) -> bool {
    let by_class = matches!(
        report.class,
        Class::Auth | Class::Config | Class::ContextOverflow | Class::ContentPolicy
    );
    by_class
        || report
            .status
            .is_some_and(|status| (300..=499).contains(&status) && status != 429)
}

//! What may be asked of records, one value at a time, and whether a record in memory answers it. Strict: what is not understood is
//! refused with what would be.

use std::time::Duration;

use super::utc::Utc;
use crate::core::settlement::State;
use crate::core::time::WallTime;
use crate::ledger::Record;
use crate::ledger::store::{Cursor, Query, SumBy};

/// Records of one page, at most: what a page can show, and what a store reads in far less than its time limit.
pub const PAGE_RECORDS_MAX: usize = 1024;
/// Longest span that `since` takes, in seconds: a hundred years, beyond which it is a slip of the hand.
const SPAN_SECONDS_MAX: u64 = 100 * 366 * 86_400;

const STATES: [State; 9] = [
    State::Pending,
    State::Succeeded,
    State::Rejected,
    State::Refused,
    State::Failed,
    State::Ambiguous,
    State::Cancelled,
    State::TimedOut,
    State::Abandoned,
];

const GROUPS: [(&str, SumBy); 4] = [
    ("route", SumBy::Route),
    ("target", SumBy::Target),
    ("key", SumBy::Key),
    ("state", SumBy::State),
];

/// Reads `limit`: digits alone.
pub fn limit(text: &str) -> Result<usize, String> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let limit = text.parse::<usize>().ok().filter(|_| digits);
    limit
        .filter(|limit| (1..=PAGE_RECORDS_MAX).contains(limit))
        .ok_or_else(|| format!("limit must be a whole number from 1 to {PAGE_RECORDS_MAX}"))
}

/// Reads `state`.
pub fn state(text: &str) -> Result<State, String> {
    let state = STATES.into_iter().find(|state| state.label() == text);
    state.ok_or_else(|| {
        let labels = STATES.map(State::label).join(", ");
        format!("state must be one of: {labels}")
    })
}

/// Reads `by`.
pub fn sum_by(text: &str) -> Result<SumBy, String> {
    let found = GROUPS.into_iter().find(|(label, _)| *label == text);
    found.map(|(_, by)| by).ok_or_else(|| {
        let labels = GROUPS.map(|(label, _)| label).join(", ");
        format!("by must be one of: {labels}")
    })
}

/// The label that [`sum_by`] reads.
pub const fn sum_by_label(by: SumBy) -> &'static str {
    match by {
        SumBy::Route => "route",
        SumBy::Target => "target",
        SumBy::Key => "key",
        SumBy::State => "state",
    }
}

/// From when on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Since {
    /// So long ago.
    Ago(Duration),
    /// From this instant.
    At(WallTime),
}

impl Since {
    /// Reads `30s`, `15m`, `1h`, `2d`, or a time in UTC as records have them.
    pub fn parse(text: &str) -> Result<Since, String> {
        let ago = span(text).map(Since::Ago);
        let since = ago.or_else(|| Utc::parse(text).map(|Utc(at)| Since::At(at)));
        since.ok_or_else(|| {
            "since must be a span like 30s, 15m, 1h or 2d, or a time in UTC like 2026-01-31T12:00:00Z"
                .to_owned()
        })
    }

    /// The instant, for one who asks now.
    pub fn instant(self, now: WallTime) -> WallTime {
        match self {
            Since::Ago(span) => {
                let micros = i64::try_from(span.as_micros()).unwrap_or(i64::MAX);
                WallTime::from_unix_micros(now.unix_micros().saturating_sub(micros))
            }
            Since::At(at) => at,
        }
    }
}

fn span(text: &str) -> Option<Duration> {
    let (unit_at, unit) = text.char_indices().next_back()?;
    let seconds = match unit {
        's' => 1,
        'm' => 60,
        'h' => 3_600,
        'd' => 86_400,
        _ => return None,
    };
    let digits = text.get(..unit_at)?;
    let plain = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    let count: u64 = plain.then(|| digits.parse().ok())??;
    let total = count.checked_mul(seconds)?;
    (total <= SPAN_SECONDS_MAX).then(|| Duration::from_secs(total))
}

/// Whether a record in memory is asked for. A store answers the same question about its rows.
pub fn fits(query: &Query, record: &Record) -> bool {
    let operation = &record.operation;
    let is = |wanted: &Option<String>, value: &str| {
        let wanted = wanted.as_deref();
        wanted.is_none_or(|wanted| wanted == value)
    };
    let target = query.target.as_deref();
    is(&query.route, &operation.route)
        && is(&query.id, &operation.operation_id)
        && query.state.is_none_or(|state| state == operation.state)
        && query
            .since
            .is_none_or(|since| operation.started_at >= since)
        && target.is_none_or(|target| {
            let mut attempts = record.attempts.iter();
            attempts.any(|attempt| &*attempt.target == target)
        })
        && query
            .before
            .as_ref()
            .is_none_or(|before| is_before(record, before))
}

/// Whether the record comes after the cursor's place in a list that begins with the newest.
fn is_before(record: &Record, before: &Cursor) -> bool {
    let operation = &record.operation;
    let place = (operation.started_at, &*operation.operation_id);
    place < (before.started_at, before.operation_id.as_str())
}

//! Query strings, strictly: what is not understood is refused with what would be.

use crate::core::limits::RECENT_OPERATIONS_MAX;
use crate::core::settlement::State;
use crate::ledger::Record;

/// Operations shown when no limit is given.
const LIMIT_DEFAULT: usize = 50;
/// Longest query string that is read: five short values, percent-encoded.
const QUERY_BYTES_MAX: usize = 2048;
const KEYS: &str = "limit, route, state, target, id";
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

/// Which operations are asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecentFilter {
    /// At most so many.
    pub limit: usize,
    /// Of this route.
    pub route: Option<String>,
    /// In this state.
    pub state: Option<State>,
    /// With an attempt at this target.
    pub target: Option<String>,
    /// With this `x-request-id`.
    pub id: Option<String>,
}

impl RecentFilter {
    /// Whether the record is asked for.
    pub fn fits(&self, record: &Record) -> bool {
        let operation = &record.operation;
        let attempts = &record.attempts;
        is(self.route.as_deref(), &operation.route)
            && is(self.id.as_deref(), &operation.operation_id)
            && self.state.is_none_or(|state| state == operation.state)
            && self
                .target
                .as_deref()
                .is_none_or(|target| attempts.iter().any(|attempt| &*attempt.target == target))
    }

    /// Reads a query string; the error says what is allowed.
    pub(super) fn parse(query: Option<&str>) -> Result<RecentFilter, String> {
        let mut limit = None;
        let mut state = None;
        let [mut route, mut target, mut id] = [None, None, None];
        for (key, value) in pairs(query)? {
            match key {
                "limit" => set(&mut limit, key, parse_limit(&value)?)?,
                "state" => set(&mut state, key, parse_state(&value)?)?,
                "route" => set(&mut route, key, value)?,
                "target" => set(&mut target, key, value)?,
                "id" => set(&mut id, key, value)?,
                _ => return Err(format!("unknown parameter; allowed: {KEYS}")),
            }
        }
        Ok(RecentFilter {
            limit: limit.unwrap_or(LIMIT_DEFAULT),
            route,
            state,
            target,
            id,
        })
    }
}

/// For endpoints that take no parameters.
pub(super) fn refuse_any(query: Option<&str>) -> Result<(), String> {
    match query {
        None | Some("") => Ok(()),
        Some(_) => Err("this endpoint takes no parameters".to_owned()),
    }
}

fn is(wanted: Option<&str>, value: &str) -> bool {
    wanted.is_none_or(|wanted| wanted == value)
}

fn parse_limit(value: &str) -> Result<usize, String> {
    let digits = !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit());
    let limit = value.parse::<usize>().ok().filter(|_| digits);
    limit
        .filter(|limit| (1..=RECENT_OPERATIONS_MAX).contains(limit))
        .ok_or_else(|| format!("limit must be a whole number from 1 to {RECENT_OPERATIONS_MAX}"))
}

fn parse_state(value: &str) -> Result<State, String> {
    let state = STATES.into_iter().find(|state| state.label() == value);
    state.ok_or_else(|| {
        let labels = STATES.map(State::label).join(", ");
        format!("state must be one of: {labels}")
    })
}

fn set<T>(slot: &mut Option<T>, key: &str, value: T) -> Result<(), String> {
    match slot.replace(value) {
        None => Ok(()),
        Some(_) => Err(format!("{key} is given twice")),
    }
}

fn pairs(query: Option<&str>) -> Result<Vec<(&str, String)>, String> {
    let query = query.unwrap_or_default();
    if query.len() > QUERY_BYTES_MAX {
        return Err(format!("the query is longer than {QUERY_BYTES_MAX} bytes"));
    }
    let parts = query.split('&').filter(|part| !part.is_empty());
    let read = parts.map(|part| {
        let (key, value) = part.split_once('=').unwrap_or((part, ""));
        let value = decode(value).ok_or("a value is not percent-encoded UTF-8")?;
        Ok((key, value))
    });
    read.collect()
}

/// Undoes `%XX` and `+`.
fn decode(value: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(value.len());
    let mut rest = value.as_bytes();
    loop {
        rest = match rest {
            [] => return String::from_utf8(bytes).ok(),
            [b'%', high, low, rest @ ..] => {
                let digit = |byte: &u8| char::from(*byte).to_digit(16);
                let byte = digit(high)? * 16 + digit(low)?;
                bytes.push(u8::try_from(byte).ok()?);
                rest
            }
            [b'%', ..] => return None,
            [byte, rest @ ..] => {
                bytes.push(if *byte == b'+' { b' ' } else { *byte });
                rest
            }
        };
    }
}

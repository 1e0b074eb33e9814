//! Query strings of the admin API, strictly: what is not understood is refused with what would be.

use super::ask::{self, Since};
use super::cursor::{self, CURSOR_BYTES_MAX};
use crate::core::api::Api;
use crate::core::time::WallTime;
use crate::explain::Header;
use crate::ledger::store::{Query, SumBy};

/// Operations shown when no limit is given.
const LIMIT_DEFAULT: usize = 50;
/// Longest query string that is read: a cursor and six short values, percent-encoded.
pub const QUERY_BYTES_MAX: usize = 2048;
const _: () = assert!(CURSOR_BYTES_MAX < QUERY_BYTES_MAX / 2);

/// Reads which operations are asked for; the error says what is allowed.
pub fn operations(query: Option<&str>, now: WallTime) -> Result<Query, String> {
    let (mut limit, mut state, mut since, mut before) = (None, None, None, None);
    let [mut route, mut target, mut id] = [None, None, None];
    for (key, value) in pairs(query)? {
        match key {
            "limit" => set(&mut limit, key, ask::limit(&value)?)?,
            "state" => set(&mut state, key, ask::state(&value)?)?,
            "since" => set(&mut since, key, Since::parse(&value)?.instant(now))?,
            "before" => set(&mut before, key, cursor::from_text(&value)?)?,
            "route" => set(&mut route, key, value)?,
            "target" => set(&mut target, key, value)?,
            "id" => set(&mut id, key, value)?,
            _ => return Err(unknown("limit, route, state, target, id, since, before")),
        }
    }
    Ok(Query {
        limit: limit.unwrap_or(LIMIT_DEFAULT),
        route,
        state,
        target,
        id,
        since,
        before,
    })
}

/// Reads which sums are asked for: by route unless something else is said, and over everything.
pub fn sums(query: Option<&str>, now: WallTime) -> Result<(SumBy, Option<WallTime>), String> {
    let (mut by, mut since) = (None, None);
    for (key, value) in pairs(query)? {
        match key {
            "by" => set(&mut by, key, ask::sum_by(&value)?)?,
            "since" => set(&mut since, key, Since::parse(&value)?.instant(now))?,
            _ => return Err(unknown("by, since")),
        }
    }
    Ok((by.unwrap_or(SumBy::Route), since))
}

/// For which request the order is asked.
#[derive(Debug)]
pub struct ExplainQuery {
    /// The public model name.
    pub model: String,
    /// The API format, if it is given.
    pub api: Option<Api>,
    /// The client's headers.
    pub headers: Vec<Header>,
    /// The name of the client's key.
    pub client_key: Option<String>,
    /// Whether the answer is a stream.
    pub stream: bool,
}

/// Reads which request is to be explained; `header` may repeat.
pub fn explain(query: Option<&str>) -> Result<ExplainQuery, String> {
    let (mut model, mut api, mut client_key, mut stream) = (None, None, None, None);
    let mut headers = Vec::new();
    for (key, value) in pairs(query)? {
        match key {
            "model" => set(&mut model, key, value)?,
            "api" => set(&mut api, key, api_format(&value)?)?,
            "header" => headers.push(Header::parse(&value)?),
            "client_key" => set(&mut client_key, key, value)?,
            "stream" => set(&mut stream, key, flag(key, &value)?)?,
            _ => return Err(unknown("model, api, header, client_key, stream")),
        }
    }
    Ok(ExplainQuery {
        model: model.ok_or("model is missing; allowed: model, api, header, client_key, stream")?,
        api,
        headers,
        client_key,
        stream: stream.unwrap_or(false),
    })
}

fn api_format(value: &str) -> Result<Api, String> {
    Api::from_label(value).ok_or_else(|| {
        let known: Vec<&str> = Api::ALL.iter().map(|api| api.label()).collect();
        format!("api is one of: {}", known.join(", "))
    })
}

fn flag(key: &str, value: &str) -> Result<bool, String> {
    match value {
        "true" => Ok(true),
        "false" => Ok(false),
        _ => Err(format!("{key} is true or false")),
    }
}

fn unknown(allowed: &str) -> String {
    format!("unknown parameter; allowed: {allowed}")
}

/// For endpoints that take no parameters.
pub fn refuse_any(query: Option<&str>) -> Result<(), String> {
    match query {
        None | Some("") => Ok(()),
        Some(_) => Err("this endpoint takes no parameters".to_owned()),
    }
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
pub fn decode(value: &str) -> Option<String> {
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

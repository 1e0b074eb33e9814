//! One line per operation and per refusal, as `key=value` pairs.
//!
//! Never in it: bodies, prompts, keys, query strings, and model names other than through the route. Nothing is formatted when the
//! level is off. Values that are not plain words are quoted and escaped, so that a line stays a line.

use std::fmt::{self, Display, Write};

use crate::core::settlement::OperationOutcome;
use crate::ledger::Record;
use crate::proxy::host::{OperationEnd, OperationFacts, Refusal};

const TARGET: &str = "rondo::access";
/// Attempts spelled out in one line; the records have them all.
const TRIES_MAX: usize = 16;

/// Writes the line of an operation.
pub(super) fn operation(facts: &OperationFacts, end: &OperationEnd, record: Option<&Record>) {
    if log::log_enabled!(target: TARGET, log::Level::Info) {
        log::info!(target: TARGET, "{}", operation_line(facts, end, record));
    }
}

/// Writes the line of a refusal.
pub(super) fn refusal(refusal: &Refusal, outcome: OperationOutcome) {
    if log::log_enabled!(target: TARGET, log::Level::Info) {
        log::info!(target: TARGET, "{}", refusal_line(refusal, outcome));
    }
}

/// The line of an operation.
pub fn operation_line(
    facts: &OperationFacts,
    end: &OperationEnd,
    record: Option<&Record>,
) -> String {
    let mut line = Line::default();
    let delivered = end
        .target
        .and_then(|target| facts.route.targets.get(target));
    line.text("request", &facts.id);
    line.text("route", &facts.route.name);
    line.plain("api", facts.api.label());
    line.text("target", delivered.map_or("-", |target| &target.name));
    line.plain("status", end.status);
    line.plain("outcome", end.outcome.label());
    line.text(
        "reason",
        if end.reason.is_empty() {
            "-"
        } else {
            end.reason
        },
    );
    line.plain("attempts", record.map_or(0, |record| record.attempts.len()));
    line.plain("sends", end.sends);
    line.plain("rounds", end.rounds);
    line.plain("settlement", end.state.label());
    let millis = |to: crate::core::time::MonoTime| to.since(facts.started.mono).as_millis();
    line.plain("duration_ms", millis(end.ended.mono));
    line.plain("wait_ms", end.waited.as_millis());
    if let Some(first_byte) = end.first_byte {
        line.plain("first_byte_ms", millis(first_byte.mono));
    }
    line.plain("overhead_us", end.overhead.as_micros());
    line.plain("request_bytes", facts.request_bytes);
    line.plain("response_bytes", end.response_bytes);
    let usage = end.usage.unwrap_or_default();
    if let Some(tokens) = usage.prompt_tokens {
        line.plain("prompt_tokens", tokens);
    }
    if let Some(tokens) = usage.completion_tokens {
        line.plain("completion_tokens", tokens);
    }
    line.text("profile", &facts.route.policy.profile);
    line.text("client_key", facts.client_key.as_deref().unwrap_or("-"));
    line.text("tries", &record.map(tries).unwrap_or_default());
    line.0
}

/// The line of a refusal.
pub fn refusal_line(refusal: &Refusal, outcome: OperationOutcome) -> String {
    let mut line = Line::default();
    line.text("request", &refusal.id);
    line.text("route", refusal.route.as_deref().unwrap_or("-"));
    line.plain("api", super::labels::api_label(refusal.api));
    line.plain("target", "-");
    line.plain("status", refusal.status);
    line.plain("outcome", outcome.label());
    line.text("reason", refusal.code);
    line.plain("attempts", 0);
    line.plain("sends", 0);
    line.plain("rounds", 0);
    line.plain("duration_ms", refusal.latency.as_millis());
    if let Some(limit) = refusal.overload {
        line.plain("limit", limit.label());
    }
    line.0
}

/// `primary:rejected/throttle,backup:succeeded`
fn tries(record: &Record) -> String {
    let mut text = String::new();
    for (position, attempt) in record.attempts.iter().enumerate() {
        if position > 0 {
            text.push(',');
        }
        if position == TRIES_MAX {
            let _ = write!(text, "+{}", record.attempts.len() - position);
            break;
        }
        text.push_str(&attempt.target);
        text.push(':');
        text.push_str(attempt.delivery.unwrap_or("pending"));
        if let Some(class) = attempt.error_class {
            text.push('/');
            text.push_str(class.label());
        }
    }
    text
}

/// A line under construction.
#[derive(Default)]
struct Line(String);

impl Line {
    /// A number or a word of our own.
    fn plain(&mut self, key: &str, value: impl Display) {
        self.key(key);
        let _ = write!(self.0, "{value}");
    }

    /// Text from outside.
    fn text(&mut self, key: &str, value: &str) {
        self.key(key);
        let _ = write!(self.0, "{}", Escaped(value));
    }

    fn key(&mut self, key: &str) {
        if !self.0.is_empty() {
            self.0.push(' ');
        }
        self.0.push_str(key);
        self.0.push('=');
    }
}

/// A value as it stands in a log line: bare when it is a plain word, else quoted with quotes, backslashes and everything that is not
/// printable escaped.
pub(super) struct Escaped<'a>(pub &'a str);

impl Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bare = |c: char| c.is_ascii_graphic() && !matches!(c, '"' | '\\' | '=');
        if !self.0.is_empty() && self.0.chars().all(bare) {
            return f.write_str(self.0);
        }
        f.write_char('"')?;
        for c in self.0.chars() {
            match c {
                '"' | '\\' => write!(f, "\\{c}")?,
                '\n' => f.write_str("\\n")?,
                '\r' => f.write_str("\\r")?,
                '\t' => f.write_str("\\t")?,
                c if c == ' ' || c.is_alphanumeric() || c.is_ascii_graphic() => f.write_char(c)?,
                c => write!(f, "{}", c.escape_unicode())?,
            }
        }
        f.write_char('"')
    }
}

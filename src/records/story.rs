//! What happened to one operation, told in order: what was asked, each attempt, the end, waits, tokens.

use super::row::Row;
use super::text::{Grid, Side, clean, joined, number, span, time, word};
use crate::core::settlement::State;
use crate::core::time::WallTime;
use crate::ledger::columns::StoredRecord;

/// Tells one operation.
pub fn story(record: &StoredRecord) -> String {
    let row = Row::operation(record);
    let mut lines = vec![headline(row), String::new()];
    let mut say = |name: &str, text: String| lines.push(format!("{name:<11} {text}"));
    say("route", format!("{}, {}", word(row, "route"), asked(row)));
    if let Some(key) = row.text("client_key") {
        say("client key", clean(key));
    }
    say("started", time(row, "started_at"));
    lines.push(String::new());
    lines.extend(attempts(record));
    lines.push(String::new());
    let mut say = |name: &str, text: String| lines.push(format!("{name:<11} {text}"));
    say("end", end(row));
    if let Some(at) = row.time("first_byte_at") {
        say("first byte", offset(row, at));
    }
    say("waits", waits(row));
    say("sends", sends(row));
    say("tokens", tokens(row));
    say("bytes", bytes(row));
    say("process", format!("boot {}", word(row, "boot_id")));
    joined(lines)
}

fn headline(row: Row<'_>) -> String {
    let status = row.number("http_status").map(|status| format!(" {status}"));
    format!(
        "{}: {}{}",
        word(row, "operation_id"),
        word(row, "state"),
        status.unwrap_or_default()
    )
}

fn asked(row: Row<'_>) -> String {
    let stream = match row.flag("stream") {
        Some(true) => ", as a stream",
        Some(false) | None => "",
    };
    let (model, api) = (word(row, "public_model"), word(row, "api"));
    format!("model {model}, {api}{stream}")
}

fn attempts(record: &StoredRecord) -> Vec<String> {
    use Side::{Left, Right};
    let mut grid = Grid::new(&[
        ("#", Right),
        ("ROUND", Right),
        ("TARGET", Left),
        ("KEY", Left),
        ("STATE", Left),
        ("DELIVERY", Left),
        ("CLASS", Left),
        ("STATUS", Right),
        ("DECISION", Left),
        ("BEGAN", Right),
        ("TOOK", Right),
    ]);
    let operation = Row::operation(record);
    for row in Row::attempts(record) {
        let began = row.time("started_at").map(|at| offset(operation, at));
        // The class of a failure comes before that of the answer: a stream may begin well and break.
        let class = match row.text("error_class") {
            Some(_) => "error_class",
            None => "class",
        };
        grid.row(vec![
            number(row, "attempt_no"),
            number(row, "round"),
            word(row, "target"),
            word(row, "key_name"),
            word(row, "state"),
            word(row, "delivery"),
            word(row, class),
            number(row, "http_status"),
            word(row, "decision"),
            began.unwrap_or_default(),
            span(row.number("latency_ms")),
        ]);
    }
    let mut lines = grid.lines();
    if lines.len() == 1 {
        return vec!["no attempt was made".to_owned()];
    }
    let facts = Row::attempts(record).map(facts).enumerate();
    // Each attempt's facts go below it; from the end, so that the places before stay as they are.
    for (index, facts) in facts.collect::<Vec<_>>().into_iter().rev() {
        lines.insert(
            index.saturating_add(2).min(lines.len()),
            format!("   {facts}"),
        );
    }
    lines
}

/// What does not fit a column: who was asked for what, and what the answer proved and wanted.
fn facts(row: Row<'_>) -> String {
    let mut facts = vec![format!(
        "{} was asked for {}",
        word(row, "provider"),
        word(row, "upstream_model")
    )];
    if row.flag("certified") == Some(true) {
        facts.push("its answer proves that nothing ran".to_owned());
    }
    if row.text("delivery") == Some("ambiguous") {
        facts.push("it may have run".to_owned());
    }
    if let Some(wait) = row.number("retry_after_ms") {
        facts.push(format!("asked to come back after {}", span(Some(wait))));
    }
    if let Some(again) = row.number("retry_index").filter(|again| *again > 0) {
        facts.push(format!("retry {again} on this key"));
    }
    if let Some(id) = row.text("upstream_request_id") {
        facts.push(format!("its id {}", clean(id)));
    }
    facts.join("; ")
}

fn end(row: Row<'_>) -> String {
    let state = row.text("state").unwrap_or_default();
    if state == State::Pending.label() {
        return "none yet: it runs, or its process died and was not followed by another".to_owned();
    }
    let mut text = clean(state);
    if let Some(status) = row.number("http_status") {
        text.push_str(&format!(", status {status}"));
    }
    if let Some(class) = row.text("error_class") {
        text.push_str(&format!(", the client was told of {}", clean(class)));
    }
    if let Some(reason) = row.text("reason").filter(|reason| !reason.is_empty()) {
        text.push_str(&format!(", because: {}", clean(reason)));
    }
    if state == State::Abandoned.label() {
        text.push_str(", its process ended before it did");
    }
    if let Some(took) = row.number("latency_ms") {
        text.push_str(&format!(", after {}", span(Some(took))));
    }
    if row.time("finished_at").is_some() {
        text.push_str(&format!(", at {}", time(row, "finished_at")));
    }
    text
}

fn waits(row: Row<'_>) -> String {
    match row.number("wait_ms") {
        Some(0) | None => "none".to_owned(),
        waited => format!("{} between rounds", span(waited)),
    }
}

fn sends(row: Row<'_>) -> String {
    let rounds = row.number("rounds").unwrap_or_default();
    let word = if rounds == 1 { "round" } else { "rounds" };
    format!("{} in {rounds} {word}", number(row, "sends"))
}

fn tokens(row: Row<'_>) -> String {
    let named = [
        ("prompt_tokens", "prompt"),
        ("cached_tokens", "of them cached"),
        ("completion_tokens", "completion"),
        ("reasoning_tokens", "of them reasoning"),
    ];
    let counts = named.into_iter().filter_map(|(column, name)| {
        let count = row.number(column)?;
        Some(format!("{count} {name}"))
    });
    let counts: Vec<String> = counts.collect();
    if counts.is_empty() {
        return "not known".to_owned();
    }
    let partial = match row.flag("usage_partial") {
        Some(true) => " (only what was seen before it broke off)",
        Some(false) | None => "",
    };
    format!("{}{partial}", counts.join(", "))
}

fn bytes(row: Row<'_>) -> String {
    format!(
        "request {} ({}), response {} ({})",
        number(row, "request_bytes"),
        word(row, "request_capture"),
        number(row, "response_bytes"),
        word(row, "response_capture")
    )
}

/// How long after the operation's start.
fn offset(operation: Row<'_>, at: WallTime) -> String {
    let started = operation.time("started_at").unwrap_or_default();
    let micros = at.unix_micros().saturating_sub(started.unix_micros());
    let millis = micros.div_euclid(1000);
    format!("+{}", span(Some(millis)))
}

//! Records and sums for people: aligned columns, plain text.
//!
//! Invariant: what a client or provider named is printed without the characters that move a cursor or colour a terminal.

use std::fmt::Write;

use super::ask::sum_by_label;
use super::row::Row;
use super::utc::Utc;
use crate::ledger::columns::StoredRecord;
use crate::ledger::store::{Sum, SumBy};

/// Letters of a cell, at most: model names and ids are shorter, and one that is not must not push the rest off the screen.
const CELL_CHARS_MAX: usize = 60;

/// On which side a column is aligned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    Left,
    Right,
}

/// Rows under headings, each column as wide as its widest cell.
pub(super) struct Grid {
    heads: Vec<(&'static str, Side)>,
    rows: Vec<Vec<String>>,
}

impl Grid {
    pub(super) fn new(heads: &[(&'static str, Side)]) -> Grid {
        Grid {
            heads: heads.to_vec(),
            rows: Vec::new(),
        }
    }

    pub(super) fn row(&mut self, cells: Vec<String>) {
        debug_assert_eq!(cells.len(), self.heads.len(), "a cell for each heading");
        self.rows.push(cells);
    }

    /// One string a line: the headings, then the rows.
    pub(super) fn lines(&self) -> Vec<String> {
        let heads = self.heads.iter().map(|(head, _)| (*head).to_owned());
        let heads: Vec<String> = heads.collect();
        let all = || std::iter::once(&heads).chain(&self.rows);
        let width = |index: usize| {
            let cells = all().filter_map(|cells| cells.get(index));
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..heads.len()).map(width).collect();
        let line = |cells: &Vec<String>| {
            let mut line = String::new();
            for ((cell, (_, side)), width) in cells.iter().zip(&self.heads).zip(&widths) {
                let _ = match side {
                    Side::Left => write!(line, "{cell:<width$}  "),
                    Side::Right => write!(line, "{cell:>width$}  "),
                };
            }
            line.trim_end().to_owned()
        };
        all().map(line).collect()
    }
}

/// A list of operations, a line each.
pub fn list(records: &[StoredRecord]) -> String {
    use Side::{Left, Right};
    let mut grid = Grid::new(&[
        ("STARTED", Left),
        ("REQUEST", Left),
        ("ROUTE", Left),
        ("STATE", Left),
        ("STATUS", Right),
        ("SENDS", Right),
        ("WAITED", Right),
        ("TOOK", Right),
        ("TRIES", Left),
    ]);
    for record in records {
        let row = Row::operation(record);
        grid.row(vec![
            time(row, "started_at"),
            word(row, "operation_id"),
            word(row, "route"),
            word(row, "state"),
            number(row, "http_status"),
            number(row, "sends"),
            span(row.number("wait_ms")),
            span(row.number("latency_ms")),
            tries(record),
        ]);
    }
    joined(grid.lines())
}

/// The attempts as the access log has them.
fn tries(record: &StoredRecord) -> String {
    let tries: Vec<String> = Row::attempts(record).map(attempt).collect();
    match tries.is_empty() {
        true => "-".to_owned(),
        false => tries.join(","),
    }
}

fn attempt(row: Row<'_>) -> String {
    // A process that died leaves no delivery behind, but a state.
    let became = row.text("delivery").or_else(|| row.text("state"));
    let mut text = format!(
        "{}:{}",
        word(row, "target"),
        clean(became.unwrap_or("pending"))
    );
    if let Some(class) = row.text("error_class") {
        let _ = write!(text, "/{}", clean(class));
    }
    text
}

/// Sums, a line for each group.
pub fn sums(by: SumBy, sums: &[Sum]) -> String {
    use Side::{Left, Right};
    let what = match by {
        SumBy::Route | SumBy::State => "OPERATIONS",
        SumBy::Target | SumBy::Key => "ATTEMPTS",
    };
    let group = match by {
        SumBy::Route => "ROUTE",
        SumBy::Target => "TARGET",
        SumBy::Key => "KEY",
        SumBy::State => "STATE",
    };
    debug_assert!(group.eq_ignore_ascii_case(sum_by_label(by)));
    let mut grid = Grid::new(&[
        (group, Left),
        (what, Right),
        ("SENDS", Right),
        ("MEAN", Right),
        ("PROMPT", Right),
        ("CACHED", Right),
        ("COMPLETION", Right),
        ("REASONING", Right),
        ("STATES", Left),
    ]);
    for sum in sums {
        let mean = sum.latency_ms.checked_div(sum.timed);
        let states = sum.states.iter();
        let states: Vec<String> = states
            .map(|(state, rows)| format!("{} {rows}", clean(state)))
            .collect();
        grid.row(vec![
            clean(&sum.group),
            sum.rows.to_string(),
            sum.sends.to_string(),
            span(mean.and_then(|mean| i64::try_from(mean).ok())),
            sum.prompt_tokens.to_string(),
            sum.cached_tokens.to_string(),
            sum.completion_tokens.to_string(),
            sum.reasoning_tokens.to_string(),
            states.join(", "),
        ]);
    }
    joined(grid.lines())
}

pub(super) fn joined(lines: Vec<String>) -> String {
    let mut text = lines.join("\n");
    text.push('\n');
    text
}

pub(super) fn time(row: Row<'_>, column: &str) -> String {
    or_dash(row.time(column).map(|at| Utc(at).to_string()))
}

pub(super) fn word(row: Row<'_>, column: &str) -> String {
    or_dash(row.text(column).map(clean))
}

pub(super) fn number(row: Row<'_>, column: &str) -> String {
    or_dash(row.number(column).map(|number| number.to_string()))
}

/// Milliseconds, or seconds where those are easier to read.
pub(super) fn span(millis: Option<i64>) -> String {
    or_dash(millis.map(|millis| match millis {
        ..10_000 => format!("{millis} ms"),
        _ => format!("{}.{:03} s", millis / 1000, millis % 1000),
    }))
}

fn or_dash(text: Option<String>) -> String {
    text.filter(|text| !text.is_empty())
        .unwrap_or_else(|| "-".to_owned())
}

/// The text without what a terminal would act on, and not too long.
pub(super) fn clean(text: &str) -> String {
    let harmless = |c: char| if is_harmless(c) { c } else { '\u{fffd}' };
    let mut clean: String = text.chars().take(CELL_CHARS_MAX).map(harmless).collect();
    if text.chars().nth(CELL_CHARS_MAX).is_some() {
        clean.push('…');
    }
    clean
}

/// Neither a control character nor one that changes the direction of what follows.
fn is_harmless(c: char) -> bool {
    let turns = matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2028}' | '\u{2029}' | '\u{2066}'..='\u{2069}');
    !c.is_control() && !turns
}

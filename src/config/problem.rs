//! What is wrong with a configuration, and where. Not here: the checks themselves.
//!
//! Invariant: no message carries the text of a secret; whoever writes a message about a secret names its source only.

use std::collections::HashSet;
use std::fmt;
use std::path::Path;

/// Findings of one file that are kept. Nobody reads more at once, and a file of nothing else has a million of them.
const PROBLEMS_MAX: usize = 1000;
/// Bytes of one message: the longest of ours lists the keys of a mapping.
const MESSAGE_BYTES_MAX: usize = 2048;
/// Bytes of one path: seven keys as long as they are shown.
const PATH_BYTES_MAX: usize = 1024;
/// Bytes of a key that a path shows; names that are meant to be read are shorter.
const KEY_BYTES_SHOWN: usize = 128;
/// What the longest escape and the mark of a cut need.
const ELLIPSIS_ROOM: usize = 16;

/// A place in a YAML file; both count from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position {
    /// Line.
    pub line: usize,
    /// Column, in characters.
    pub column: usize,
}

impl Position {
    /// The first character of a file.
    pub const START: Position = Position { line: 1, column: 1 };
}

/// One finding. Prints as `FILE:LINE:COL: path.to.key: message`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The file, as the operator named it.
    pub origin: String,
    /// Where in the file.
    pub at: Position,
    /// The key, e.g. `routes[0].targets[1].provider`; `config` for the file as a whole.
    pub path: String,
    /// What is wrong and what would be accepted.
    pub message: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Position { line, column } = self.at;
        let path = match self.path.as_str() {
            "" => "config",
            path => path,
        };
        write!(
            f,
            "{}:{line}:{column}: {path}: {}",
            self.origin, self.message
        )
    }
}

/// Everything that is wrong with a file, in the order of the file; never empty. Prints one finding a line.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct Problems(Vec<Problem>);

impl Problems {
    /// A file that cannot be read at all.
    pub(super) fn unreadable(file: &Path, why: &str) -> Problems {
        Problems(vec![Problem {
            origin: file.display().to_string(),
            at: Position::START,
            path: String::new(),
            message: format!("cannot read the file: {why}"),
        }])
    }

    /// The findings.
    pub fn list(&self) -> &[Problem] {
        &self.0
    }
}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, problem) in self.0.iter().enumerate() {
            if index > 0 {
                f.write_str("\n")?;
            }
            problem.fmt(f)?;
        }
        Ok(())
    }
}

/// A place and the key that stands there.
#[derive(Debug, Clone)]
pub(super) struct Spot {
    pub at: Position,
    pub path: String,
}

/// Collects findings while a file is read.
pub(super) struct Report {
    origin: String,
    problems: Vec<Problem>,
    warnings: Vec<Problem>,
    /// Errors that were not kept, and the last of them.
    unkept: usize,
    last: Position,
}

impl Report {
    pub fn new(origin: &str) -> Report {
        Report {
            origin: origin.to_owned(),
            problems: Vec::new(),
            warnings: Vec::new(),
            unkept: 0,
            last: Position::START,
        }
    }

    /// The file is refused because of this.
    pub fn refuse(&mut self, spot: &Spot, message: impl Into<String>) {
        if self.problems.len() >= PROBLEMS_MAX {
            self.unkept = self.unkept.saturating_add(1);
            self.last = self.last.max(spot.at);
            return;
        }
        let problem = self.problem(spot, message.into());
        self.problems.push(problem);
    }

    /// The file is accepted in spite of this.
    pub fn warn(&mut self, spot: &Spot, message: impl Into<String>) {
        if self.warnings.len() < PROBLEMS_MAX {
            let problem = self.problem(spot, message.into());
            self.warnings.push(problem);
        }
    }

    /// The warnings, or the errors if there is one.
    pub fn finish(self) -> Result<Vec<Problem>, Problems> {
        if self.problems.is_empty() {
            Ok(sorted(self.warnings))
        } else {
            Err(self.into_problems())
        }
    }

    /// The errors of a file that could not be read as YAML; there is always one.
    pub fn into_problems(mut self) -> Problems {
        if self.unkept > 0 {
            let spot = Spot {
                at: self.last,
                path: String::new(),
            };
            let message = format!("and {} more up to here", self.unkept);
            let more = self.problem(&spot, message);
            self.problems.push(more);
        }
        Problems(sorted(self.problems))
    }

    fn problem(&self, spot: &Spot, message: String) -> Problem {
        Problem {
            origin: self.origin.clone(),
            at: spot.at,
            path: one_line(spot.path.clone(), PATH_BYTES_MAX),
            message: one_line(message, MESSAGE_BYTES_MAX),
        }
    }
}

/// The text as one line of a terminal that commands nothing: what a file says may stand in it.
fn one_line(text: String, bytes_max: usize) -> String {
    if text.len() <= bytes_max && !text.contains(char::is_control) {
        return text;
    }
    let mut line = String::new();
    for char in text.chars() {
        if line.len() > bytes_max.saturating_sub(ELLIPSIS_ROOM) {
            line.push_str("...");
            break;
        }
        match char.is_control() {
            true => line.extend(char.escape_default()),
            false => line.push(char),
        }
    }
    line
}

fn sorted(mut problems: Vec<Problem>) -> Vec<Problem> {
    problems.sort_by(|a, b| (a.at, &a.path).cmp(&(b.at, &b.path)));
    // What several routes share is read for each of them, and told once.
    let mut told = HashSet::new();
    problems.retain(|problem| {
        let Problem {
            at, path, message, ..
        } = problem;
        told.insert((*at, path.clone(), message.clone()))
    });
    problems
}

/// `path.key`, with a key that holds other than letters, digits, `_`, `-` and `.`, or is too long, in quotes.
pub(super) fn join(path: &str, key: &str) -> String {
    let plain = (1..=KEY_BYTES_SHOWN).contains(&key.len())
        && key
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.'));
    let key = if plain {
        key.to_owned()
    } else {
        format!("{:?}", clip(key))
    };
    if path.is_empty() {
        key
    } else {
        format!("{path}.{key}")
    }
}

/// At most 40 characters of a value, so that a message stays one line.
pub(super) fn clip(text: &str) -> String {
    const SHOWN_MAX: usize = 40;
    match text.char_indices().nth(SHOWN_MAX) {
        Some((end, _)) => format!("{}...", text.get(..end).unwrap_or_default()),
        None => text.to_owned(),
    }
}

/// The one of `known` that `word` was probably meant to be.
pub(super) fn nearest<'k>(word: &str, known: impl Iterator<Item = &'k str>) -> Option<&'k str> {
    const COMPARED_MAX: usize = 64;
    if word.len() > COMPARED_MAX {
        return None;
    }
    // Among words of one or two letters everything is near everything.
    let limit = (word.chars().count() / 3).min(3);
    known
        .map(|candidate| (distance(word, candidate), candidate))
        .filter(|(distance, _)| *distance <= limit)
        .min()
        .map(|(_, candidate)| candidate)
}

/// Edit distance, a swap of neighbours counting as two edits.
pub(crate) fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.to_lowercase().chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, ca) in a.to_lowercase().chars().enumerate() {
        let mut left = i + 1;
        let mut diagonal = i;
        for (cell, cb) in row.iter_mut().skip(1).zip(&b) {
            let above = *cell;
            let cost = usize::from(ca != *cb);
            left = (left + 1).min(above + 1).min(diagonal + cost);
            diagonal = above;
            *cell = left;
        }
        if let Some(first) = row.first_mut() {
            *first = i + 1;
        }
    }
    row.last().copied().unwrap_or(0)
}

//! The samples of one scenario, as they are kept: one JSON file each, `report/raw/NAME.json`. It is not the report: medians and ratios are
//! computed when it is rendered.
//!
//! Invariants: samples are finite and in the order of the rounds, so that the i-th samples of two rows were taken in the same round; each
//! metric of a row is a column; names are file names (small letters, digits, `-`).

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// What a scenario shows, and so how it is rendered.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Systems side by side in interleaved rounds; the report shows ratios.
    Ab,
    /// What clients, providers and records see while something fails.
    Failure,
    /// The same load at growing sizes; the report shows each row against the first.
    Scaling,
    /// Memory by what is held.
    Memory,
}

/// One scenario's samples.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Raw {
    /// Names the file, too.
    pub name: String,
    /// How it is rendered.
    pub kind: Kind,
    /// One sentence: what was measured.
    pub what: String,
    /// The command that measures it again.
    pub command: String,
    /// Metrics with their units, such as `CPU s/10k requests`, in the order in which they are shown.
    pub columns: Vec<String>,
    /// Systems, sizes or phases, in the order in which they are shown.
    pub rows: Vec<Row>,
    /// What must not have happened, and how often it did.
    #[serde(default)]
    pub zeros: Vec<Zero>,
    /// Sentences that a reader must know to judge the numbers.
    #[serde(default)]
    pub notes: Vec<String>,
}

/// What one system, size or phase gave.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Row {
    /// The system, the size or the phase.
    pub label: String,
    /// One sample a round, by metric.
    pub samples: BTreeMap<String, Vec<f64>>,
}

/// A count that is wanted to be 0.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Zero {
    /// What was counted.
    pub what: String,
    /// How often it was seen.
    pub value: u64,
}

impl Raw {
    /// A scenario without samples.
    pub fn new(name: &str, kind: Kind, what: &str, command: &str) -> Raw {
        Raw {
            name: name.to_owned(),
            kind,
            what: what.to_owned(),
            command: command.to_owned(),
            columns: Vec::new(),
            rows: Vec::new(),
            zeros: Vec::new(),
            notes: Vec::new(),
        }
    }

    /// Adds one sample. Rows and columns appear in the order of their first samples. What is no number is left out.
    pub fn record(&mut self, label: &str, metric: &str, value: f64) {
        if !value.is_finite() {
            return;
        }
        if !self.columns.iter().any(|column| column == metric) {
            self.columns.push(metric.to_owned());
        }
        let at = self
            .rows
            .iter()
            .position(|row| row.label == label)
            .unwrap_or_else(|| {
                self.rows.push(Row {
                    label: label.to_owned(),
                    samples: BTreeMap::new(),
                });
                self.rows.len() - 1
            });
        if let Some(row) = self.rows.get_mut(at) {
            row.samples
                .entry(metric.to_owned())
                .or_default()
                .push(value);
        }
    }

    /// Adds to a count that is wanted to be 0; adding 0 says that it was looked at.
    pub fn zero(&mut self, what: &str, value: u64) {
        match self.zeros.iter_mut().find(|zero| zero.what == what) {
            Some(zero) => zero.value += value,
            None => self.zeros.push(Zero {
                what: what.to_owned(),
                value,
            }),
        }
    }

    /// Adds a sentence, once.
    pub fn note(&mut self, text: impl Into<String>) {
        let text = text.into();
        if !self.notes.contains(&text) {
            self.notes.push(text);
        }
    }

    /// Writes `DIR/raw/NAME.json`, whole or not at all, and says where.
    pub fn write(&self, dir: &Path) -> io::Result<PathBuf> {
        if !is_name(&self.name) {
            return Err(io::Error::other(format!(
                "{:?} is not a name: small letters, digits, '-'",
                self.name
            )));
        }
        let dir = dir.join("raw");
        std::fs::create_dir_all(&dir)?;
        let file = dir.join(format!("{}.json", self.name));
        let new = dir.join(format!(".{}.new", self.name));
        let mut text = serde_json::to_string_pretty(self).map_err(io::Error::other)?;
        text.push('\n');
        std::fs::write(&new, text)?;
        std::fs::rename(&new, &file)?;
        Ok(file)
    }

    /// Reads one file; an error names it.
    pub fn read(file: &Path) -> io::Result<Raw> {
        let named = |error: String| io::Error::other(format!("{}: {error}", file.display()));
        let text = std::fs::read_to_string(file).map_err(|error| named(error.to_string()))?;
        let raw: Raw = serde_json::from_str(&text).map_err(|error| named(error.to_string()))?;
        for row in &raw.rows {
            if let Some(metric) = row
                .samples
                .keys()
                .find(|metric| !raw.columns.contains(metric))
            {
                return Err(named(format!(
                    "row {:?}: {metric:?} is not among the columns",
                    row.label
                )));
            }
        }
        Ok(raw)
    }

    /// Reads every `DIR/raw/*.json`, by name.
    pub fn read_all(dir: &Path) -> io::Result<Vec<Raw>> {
        let mut files = Vec::new();
        for entry in std::fs::read_dir(dir.join("raw"))? {
            let path = entry?.path();
            if path
                .extension()
                .is_some_and(|extension| extension == "json")
            {
                files.push(path);
            }
        }
        files.sort();
        files.iter().map(|file| Raw::read(file)).collect()
    }
}

fn is_name(name: &str) -> bool {
    !name.is_empty()
        && name
            .bytes()
            .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> io::Result<Folder> {
            let dir = std::env::temp_dir().join(format!("rondo-raw-{}-{name}", std::process::id()));
            std::fs::create_dir_all(&dir)?;
            Ok(Folder(dir))
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    fn sample(name: &str) -> Raw {
        let mut raw = Raw::new(name, Kind::Ab, "What.", "command");
        raw.record("b", "req/s", 1.5);
        raw.record("a", "req/s", 2.0);
        raw.record("b", "CPU", f64::NAN);
        raw.record("b", "req/s", 3.0);
        raw.zero("answers but 200", 0);
        raw.zero("answers but 200", 2);
        raw.note("Once.");
        raw.note("Once.");
        raw
    }

    #[test]
    fn rows_and_columns_stand_in_the_order_of_their_first_samples() {
        let raw = sample("x");
        assert_eq!(
            raw.rows
                .iter()
                .map(|row| row.label.as_str())
                .collect::<Vec<_>>(),
            ["b", "a"]
        );
        assert_eq!(raw.columns, ["req/s"], "what is no number makes no column");
        assert_eq!(raw.rows[0].samples["req/s"], [1.5, 3.0]);
        assert_eq!(
            raw.zeros,
            [Zero {
                what: "answers but 200".to_owned(),
                value: 2
            }]
        );
        assert_eq!(raw.notes, ["Once."]);
    }

    #[test]
    fn what_is_written_is_read_again_in_the_order_of_names() -> io::Result<()> {
        let dir = Folder::new("again")?;
        for name in ["zebra", "ant-1"] {
            sample(name).write(&dir.0)?;
        }
        assert_eq!(Raw::read_all(&dir.0)?, [sample("ant-1"), sample("zebra")]);
        Ok(())
    }

    #[test]
    fn a_name_that_is_no_file_name_is_refused() -> io::Result<()> {
        let dir = Folder::new("name")?;
        for name in ["", "../x", "A", "a.b"] {
            assert!(sample(name).write(&dir.0).is_err(), "{name:?}");
        }
        Ok(())
    }

    #[test]
    fn files_of_another_shape_are_refused_by_name() -> io::Result<()> {
        let dir = Folder::new("shape")?;
        let mut strange = sample("strange");
        strange.columns.clear();
        let file = strange.write(&dir.0)?;
        let error = Raw::read(&file)
            .err()
            .map(|error| error.to_string())
            .unwrap_or_default();
        assert!(
            error.contains("strange.json") && error.contains("req/s"),
            "{error}"
        );
        std::fs::write(
            &file,
            r#"{"name":"strange","kind":"ab","what":"","command":"","columns":[],"rows":[],"more":1}"#,
        )?;
        assert!(Raw::read(&file).is_err());
        Ok(())
    }
}

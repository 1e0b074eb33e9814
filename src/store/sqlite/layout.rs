//! How a record lies in the file: what differs from row to row in `records`, and what many rows have in common in a shape, which is
//! written once and referred to by number. The tables `operations` and `attempts` of the contract are views of these.
//!
//! Not here: statements, connections. Invariants: every column of [`OPERATIONS`] and [`ATTEMPTS`] is in one place only; `pending` says
//! what the state of the shape says; a shape never changes.

use crate::ledger::columns::{ATTEMPTS, Column, Kind, OPERATIONS, Presence, Table};

/// How a value is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum How {
    /// As it is.
    Plain,
    /// A time, in microseconds since its operation began.
    Since,
}

/// What an operation's row has for itself, its id apart. All else is in its shape.
const OPERATION_FACTS: [(&str, How); 13] = [
    ("sequence", How::Plain),
    ("started_at", How::Plain),
    ("first_byte_at", How::Since),
    ("finished_at", How::Since),
    ("latency_ms", How::Plain),
    ("wait_ms", How::Plain),
    ("request_bytes", How::Plain),
    ("response_bytes", How::Plain),
    ("prompt_tokens", How::Plain),
    ("completion_tokens", How::Plain),
    ("cached_tokens", How::Plain),
    ("reasoning_tokens", How::Plain),
    ("usage_partial", How::Plain),
];
/// What an attempt's row has for itself.
const ATTEMPT_FACTS: [(&str, How); 6] = [
    ("started_at", How::Since),
    ("first_byte_at", How::Since),
    ("finished_at", How::Since),
    ("latency_ms", How::Plain),
    ("retry_after_ms", How::Plain),
    ("upstream_request_id", How::Plain),
];
/// What an attempt has from its operation, and the number that its place tells.
const ATTEMPT_INHERITED: [&str; 4] = ["operation_id", "attempt_no", "boot_id", "sequence"];

/// A column that a row has for itself.
#[derive(Debug, Clone, Copy)]
pub(super) struct Fact {
    /// Where its value stands in the values of a row.
    pub at: usize,
    /// How it is kept.
    pub how: How,
    column: Column,
    prefix: &'static str,
}

impl Fact {
    /// What it is called in the file.
    pub(super) fn name(&self) -> String {
        let name = self.column.name;
        let kept = match self.how {
            How::Plain => name.to_owned(),
            How::Since => format!("{}_us", name.trim_end_matches("_at")),
        };
        format!("{}{kept}", self.prefix)
    }

    /// The value that went in, from a row called `row` and the operation's called `r`.
    fn shown(&self, row: &str) -> String {
        let kept = self.name();
        match self.how {
            How::Plain => format!("{row}.{kept}"),
            How::Since => format!("r.started_at + {row}.{kept}"),
        }
    }
}

/// One of the two kinds of rows.
#[derive(Debug)]
pub(super) struct Layout {
    /// The table of the contract, which is a view in the file.
    pub table: &'static Table,
    /// Where shapes are.
    pub shapes: &'static str,
    /// What is in a row.
    pub facts: Vec<Fact>,
    /// What is in a shape: places in the values of a row.
    pub common: Vec<usize>,
    /// Where the state stands.
    pub state: usize,
    /// Where the start stands.
    pub started: usize,
}

impl Layout {
    pub(super) fn operations() -> Layout {
        let inherited = &["operation_id"];
        Layout::of(
            &OPERATIONS,
            "operation_shapes",
            &OPERATION_FACTS,
            inherited,
            "",
        )
    }

    pub(super) fn attempts() -> Layout {
        let inherited = &ATTEMPT_INHERITED;
        Layout::of(
            &ATTEMPTS,
            "attempt_shapes",
            &ATTEMPT_FACTS,
            inherited,
            "attempt_",
        )
    }

    fn of(
        table: &'static Table,
        shapes: &'static str,
        facts: &[(&str, How)],
        inherited: &[&str],
        prefix: &'static str,
    ) -> Layout {
        let how = |name: &str| facts.iter().find(|(fact, _)| *fact == name);
        let columns = || table.columns.iter().enumerate();
        let facts = columns().filter_map(|(at, column)| {
            let (_, how) = how(column.name)?;
            Some(Fact {
                at,
                how: *how,
                column: *column,
                prefix,
            })
        });
        let is_common = |name: &str| how(name).is_none() && !inherited.contains(&name);
        let common = columns().filter(|(_, column)| is_common(column.name));
        Layout {
            table,
            shapes,
            facts: facts.collect(),
            common: common.map(|(at, _)| at).collect(),
            state: table.position("state").unwrap_or_default(),
            started: table.position("started_at").unwrap_or_default(),
        }
    }

    /// The columns of a shape.
    pub(super) fn common_columns(&self) -> impl Iterator<Item = &'static Column> {
        let columns = self.table.columns;
        self.common.iter().filter_map(|at| columns.get(*at))
    }

    fn fact_columns(&self, presence: Option<Presence>) -> String {
        let columns = self.facts.iter().map(|fact| {
            let presence = presence.unwrap_or(fact.column.presence);
            format!(", {} {}", fact.name(), typed(fact.column.kind, presence))
        });
        columns.collect()
    }

    fn shape_table(&self) -> String {
        let columns = self.common_columns();
        let columns: String = columns
            .map(|column| format!(", {} {}", column.name, typed(column.kind, column.presence)))
            .collect();
        let name = self.shapes;
        format!(
            "CREATE TABLE {name} (shape INTEGER PRIMARY KEY, after_row INTEGER NOT NULL{columns}) STRICT;\n\
             CREATE TRIGGER {name}_stay BEFORE UPDATE ON {name}\n\
                 BEGIN SELECT raise(ABORT, 'a shape never changes'); END;\n"
        )
    }

    /// What a view shows: every column of the contract, in its order. `row` holds the facts, `s` is the shape; `r` and `o` are the record
    /// and the shape of the operation.
    fn shown(&self, row: &str, attempt_no: &str) -> String {
        let shown = self.table.columns.iter().enumerate().map(|(at, column)| {
            let name = column.name;
            let place = match self.facts.iter().find(|fact| fact.at == at) {
                Some(fact) => fact.shown(row),
                None if self.common.contains(&at) => format!("s.{name}"),
                None if name == "attempt_no" => attempt_no.to_owned(),
                None if name == "boot_id" => format!("o.{name}"),
                None => format!("r.{name}"),
            };
            format!("{place} AS {name}")
        });
        shown.collect::<Vec<_>>().join(", ")
    }
}

fn typed(kind: Kind, presence: Presence) -> String {
    let kind = match kind {
        Kind::Text => "TEXT",
        Kind::Count | Kind::Flag | Kind::Time => "INTEGER",
    };
    let presence = match presence {
        Presence::Always => " NOT NULL",
        Presence::Maybe => "",
    };
    format!("{kind}{presence}")
}

/// The tables and the guards.
///
/// Rows are appended, whatever ids clients send; only the index by id pays for disorder. Nearly every operation has one attempt, which lies
/// in the record itself; the others are in `further_attempts`. Indexes are what finding an operation, retention, recovery and the listing
/// by time need, and nothing else; each is paid for at every write.
pub(super) fn tables() -> String {
    let (operations, attempts) = (Layout::operations(), Layout::attempts());
    let shapes = operations.shape_table() + &attempts.shape_table();
    let facts = operations.fact_columns(None);
    let first = attempts.fact_columns(Some(Presence::Maybe));
    let further = attempts.fact_columns(None);
    let guards = guard("records", "", "") + &guard("records", "attempt_", "_attempt");
    let guards = guards + &guard("further_attempts", "attempt_", "");
    format!(
        "{shapes}\
         CREATE TABLE records (row INTEGER PRIMARY KEY, operation_id TEXT NOT NULL, shape INTEGER NOT NULL,
             pending INTEGER NOT NULL{facts}, attempt_shape INTEGER, attempt_pending INTEGER{first}) STRICT;
         CREATE TABLE further_attempts (row INTEGER NOT NULL, attempt_no INTEGER NOT NULL, attempt_shape INTEGER NOT NULL,
             attempt_pending INTEGER NOT NULL{further}, PRIMARY KEY (row, attempt_no)) STRICT, WITHOUT ROWID;
         CREATE UNIQUE INDEX records_id ON records (operation_id);
         CREATE INDEX records_started ON records (started_at);
         CREATE INDEX records_pending ON records (shape) WHERE pending = 1;
         CREATE INDEX records_attempt_pending ON records (shape) WHERE attempt_pending = 1;
         CREATE INDEX further_attempts_pending ON further_attempts (row) WHERE attempt_pending = 1;
         {guards}"
    )
}

/// The views of the tables, by their names, as the file has them.
///
/// A view names its record first and fetches the shape by its number (`CROSS JOIN`), so that a condition on the record uses its indexes.
pub(super) fn views() -> [(&'static str, String); 2] {
    let shown = Layout::operations().shown("r", "");
    let operations = format!(
        "CREATE VIEW operations AS SELECT {shown} FROM records r CROSS JOIN operation_shapes s ON s.shape = r.shape"
    );
    let attempts = format!("CREATE VIEW attempts AS {}", attempt_rows(""));
    [("operations", operations), ("attempts", attempts)]
}

/// Every attempt, with more columns of its operation's record `r`: what a join of the two views would show, which would look each
/// record up a second time.
///
/// The number of a first attempt has the type of the others' (`CAST`): SQLite joins the two halves of a `UNION ALL` one by one only if
/// each column has one affinity, and else copies all attempts first (`a_join_of_the_views_searches`).
pub(super) fn attempt_rows(more: &str) -> String {
    let layout = Layout::attempts();
    let (first, further) = (
        layout.shown("r", "CAST(1 AS INTEGER)"),
        layout.shown("f", "f.attempt_no"),
    );
    format!(
        "SELECT {first}{more} FROM records r CROSS JOIN operation_shapes o ON o.shape = r.shape
             CROSS JOIN attempt_shapes s ON s.shape = r.attempt_shape
         UNION ALL
         SELECT {further}{more} FROM records r CROSS JOIN further_attempts f ON f.row = r.row
             CROSS JOIN operation_shapes o ON o.shape = r.shape CROSS JOIN attempt_shapes s ON s.shape = f.attempt_shape"
    )
}

/// The second lock on the door: whoever writes, a terminal state stays (R-L1).
fn guard(table: &str, prefix: &str, name: &str) -> String {
    let (shape, pending) = (format!("{prefix}shape"), format!("{prefix}pending"));
    format!(
        "CREATE TRIGGER {table}{name}_terminal BEFORE UPDATE OF {shape}, {pending} ON {table}
             WHEN old.{pending} = 0 AND (new.{pending} IS NOT 0 OR new.{shape} IS NOT old.{shape})
             BEGIN SELECT raise(ABORT, 'a terminal state never changes'); END;\n"
    )
}

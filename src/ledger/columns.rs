//! The tables of the records, column by column, and the values of a row: one list from which stores make their tables and
//! statements, the spool its lines, and readers their views.
//!
//! Not here: SQL, files. Invariant: a row's values stand in the order of its table's columns, each of its column's kind.

use std::sync::Arc;

use super::entry::{AttemptEntry, OperationEntry, Record};
use crate::core::time::WallTime;

/// What a column holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// UTF-8 text.
    Text,
    /// A whole number from 0; what is larger than `i64::MAX` is stored as that.
    Count,
    /// True or false.
    Flag,
    /// Microseconds since 1970-01-01 UTC.
    Time,
}

/// Whether a column may be empty.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Presence {
    /// Every row has it.
    Always,
    /// It is empty where nothing is known, or nothing yet.
    Maybe,
}

/// A column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Column {
    /// Its name in the store, in JSON and on the command line.
    pub name: &'static str,
    /// What it holds.
    pub kind: Kind,
    /// Whether it may be empty.
    pub presence: Presence,
}

/// A table.
#[derive(Debug, PartialEq, Eq)]
pub struct Table {
    /// Its name.
    pub name: &'static str,
    /// The columns of its primary key.
    pub key: &'static [&'static str],
    /// All columns, the key's included.
    pub columns: &'static [Column],
}

impl Table {
    /// Where a column stands.
    pub fn position(&self, name: &str) -> Option<usize> {
        self.columns.iter().position(|column| column.name == name)
    }
}

const fn always(name: &'static str, kind: Kind) -> Column {
    let presence = Presence::Always;
    Column {
        name,
        kind,
        presence,
    }
}

const fn maybe(name: &'static str, kind: Kind) -> Column {
    let presence = Presence::Maybe;
    Column {
        name,
        kind,
        presence,
    }
}

/// One row an operation. `sequence` counts the operations of one boot from 1: with `boot_id` it names the operation even when
/// clients use one `x-request-id` twice.
pub const OPERATIONS: Table = Table {
    name: "operations",
    key: &["operation_id"],
    columns: &[
        always("operation_id", Kind::Text),
        always("boot_id", Kind::Text),
        always("sequence", Kind::Count),
        always("route", Kind::Text),
        always("api", Kind::Text),
        always("public_model", Kind::Text),
        always("stream", Kind::Flag),
        always("state", Kind::Text),
        maybe("http_status", Kind::Count),
        maybe("error_class", Kind::Text),
        always("reason", Kind::Text),
        maybe("client_key", Kind::Text),
        always("started_at", Kind::Time),
        maybe("first_byte_at", Kind::Time),
        maybe("finished_at", Kind::Time),
        maybe("latency_ms", Kind::Count),
        always("wait_ms", Kind::Count),
        always("sends", Kind::Count),
        always("rounds", Kind::Count),
        always("request_bytes", Kind::Count),
        always("response_bytes", Kind::Count),
        always("request_capture", Kind::Text),
        always("response_capture", Kind::Text),
        maybe("prompt_tokens", Kind::Count),
        maybe("completion_tokens", Kind::Count),
        maybe("cached_tokens", Kind::Count),
        maybe("reasoning_tokens", Kind::Count),
        maybe("usage_partial", Kind::Flag),
        maybe("profile", Kind::Text),
    ],
};

/// One row an attempt. `boot_id` and `sequence` are those of its operation.
pub const ATTEMPTS: Table = Table {
    name: "attempts",
    key: &["operation_id", "attempt_no"],
    columns: &[
        always("operation_id", Kind::Text),
        always("attempt_no", Kind::Count),
        always("boot_id", Kind::Text),
        always("sequence", Kind::Count),
        always("round", Kind::Count),
        always("candidate_index", Kind::Count),
        always("retry_index", Kind::Count),
        always("target", Kind::Text),
        always("provider", Kind::Text),
        maybe("key_name", Kind::Text),
        always("upstream_model", Kind::Text),
        always("state", Kind::Text),
        maybe("delivery", Kind::Text),
        maybe("class", Kind::Text),
        always("certified", Kind::Flag),
        maybe("decision", Kind::Text),
        maybe("http_status", Kind::Count),
        maybe("error_class", Kind::Text),
        maybe("upstream_request_id", Kind::Text),
        maybe("retry_after_ms", Kind::Count),
        always("started_at", Kind::Time),
        maybe("first_byte_at", Kind::Time),
        maybe("finished_at", Kind::Time),
        maybe("latency_ms", Kind::Count),
    ],
};

/// A value of a row, borrowed from the entry it belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Value<'a> {
    /// Nothing.
    Null,
    /// Of a [`Kind::Text`] column.
    Text(&'a str),
    /// Of a [`Kind::Count`] or [`Kind::Time`] column.
    Number(i64),
    /// Of a [`Kind::Flag`] column.
    Flag(bool),
}

/// A value that was read back from a store or from the spool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stored {
    /// Nothing.
    Null,
    /// Of a [`Kind::Text`] column.
    Text(Box<str>),
    /// Of a [`Kind::Count`] or [`Kind::Time`] column.
    Number(i64),
    /// Of a [`Kind::Flag`] column.
    Flag(bool),
}

impl Stored {
    /// The same value, borrowed.
    pub fn value(&self) -> Value<'_> {
        match self {
            Stored::Null => Value::Null,
            Stored::Text(text) => Value::Text(text),
            Stored::Number(number) => Value::Number(*number),
            Stored::Flag(flag) => Value::Flag(*flag),
        }
    }
}

impl From<Value<'_>> for Stored {
    fn from(value: Value<'_>) -> Stored {
        match value {
            Value::Null => Stored::Null,
            Value::Text(text) => Stored::Text(Box::from(text)),
            Value::Number(number) => Stored::Number(number),
            Value::Flag(flag) => Stored::Flag(flag),
        }
    }
}

/// The row of an operation, in the order of [`OPERATIONS`].
pub fn operation_values(record: &Record) -> [Value<'_>; OPERATIONS.columns.len()] {
    let OperationEntry {
        operation_id,
        boot_id,
        route,
        api,
        public_model,
        stream,
        state,
        http_status,
        error_class,
        reason,
        client_key,
        started_at,
        first_byte_at,
        finished_at,
        latency_ms,
        wait_ms,
        sends,
        rounds,
        request_bytes,
        response_bytes,
        request_capture,
        response_capture,
        prompt_tokens,
        completion_tokens,
        cached_tokens,
        reasoning_tokens,
        usage_partial,
        profile,
    } = &record.operation;
    [
        Value::Text(operation_id),
        Value::Text(boot_id),
        count(record.sequence),
        Value::Text(route),
        Value::Text(api.label()),
        Value::Text(public_model),
        Value::Flag(*stream),
        Value::Text(state.label()),
        maybe_count(http_status.map(u64::from)),
        maybe_text(error_class.map(|class| class.label())),
        Value::Text(reason),
        maybe_text(client_key.as_deref()),
        time(*started_at),
        maybe_time(*first_byte_at),
        maybe_time(*finished_at),
        maybe_count(*latency_ms),
        count(*wait_ms),
        count(u64::from(*sends)),
        count(u64::from(*rounds)),
        count(*request_bytes),
        count(*response_bytes),
        Value::Text(request_capture.label()),
        Value::Text(response_capture.label()),
        maybe_count(*prompt_tokens),
        maybe_count(*completion_tokens),
        maybe_count(*cached_tokens),
        maybe_count(*reasoning_tokens),
        usage_partial.map_or(Value::Null, Value::Flag),
        Value::Text(profile),
    ]
}

/// The row of one of the record's attempts, in the order of [`ATTEMPTS`].
pub fn attempt_values<'a>(
    record: &'a Record,
    attempt: &'a AttemptEntry,
) -> [Value<'a>; ATTEMPTS.columns.len()] {
    let AttemptEntry {
        operation_id,
        attempt_no,
        round,
        candidate_index,
        retry_index,
        target,
        provider,
        key_name,
        upstream_model,
        state,
        delivery,
        class,
        certified,
        decision,
        http_status,
        error_class,
        upstream_request_id,
        retry_after_ms,
        started_at,
        first_byte_at,
        finished_at,
        latency_ms,
    } = attempt;
    [
        Value::Text(operation_id),
        count(u64::from(*attempt_no)),
        Value::Text(&record.operation.boot_id),
        count(record.sequence),
        count(u64::from(round.number())),
        count(u64::try_from(*candidate_index).unwrap_or(u64::MAX)),
        count(u64::from(*retry_index)),
        Value::Text(target),
        Value::Text(provider),
        maybe_text(key_name.as_deref()),
        Value::Text(upstream_model),
        Value::Text(state.label()),
        maybe_text(*delivery),
        maybe_text(class.map(|class| class.label())),
        Value::Flag(*certified),
        maybe_text(decision.map(|decision| decision.label())),
        maybe_count(http_status.map(u64::from)),
        maybe_text(error_class.map(|class| class.label())),
        maybe_text(upstream_request_id.as_deref()),
        maybe_count(*retry_after_ms),
        time(*started_at),
        maybe_time(*first_byte_at),
        maybe_time(*finished_at),
        maybe_count(*latency_ms),
    ]
}

fn count<'a>(number: u64) -> Value<'a> {
    Value::Number(i64::try_from(number).unwrap_or(i64::MAX))
}

fn maybe_count<'a>(number: Option<u64>) -> Value<'a> {
    number.map_or(Value::Null, count)
}

fn time<'a>(at: WallTime) -> Value<'a> {
    Value::Number(at.unix_micros())
}

fn maybe_time<'a>(at: Option<WallTime>) -> Value<'a> {
    at.map_or(Value::Null, time)
}

fn maybe_text(text: Option<&str>) -> Value<'_> {
    text.map_or(Value::Null, Value::Text)
}

/// A record that was read back: values in the order of the tables' columns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredRecord {
    /// The row of [`OPERATIONS`].
    pub operation: Vec<Stored>,
    /// The rows of [`ATTEMPTS`], by `attempt_no`.
    pub attempts: Vec<Vec<Stored>>,
}

impl From<&Record> for StoredRecord {
    fn from(record: &Record) -> StoredRecord {
        let attempts = record.attempts.iter();
        StoredRecord {
            operation: operation_values(record).map(Stored::from).into(),
            attempts: attempts
                .map(|attempt| attempt_values(record, attempt).map(Stored::from).into())
                .collect(),
        }
    }
}

impl From<&Arc<Record>> for StoredRecord {
    fn from(record: &Arc<Record>) -> StoredRecord {
        StoredRecord::from(&**record)
    }
}

//! The records that gateways left in SQLite files or in PostgreSQL, held against what clients and provider saw.

use std::collections::HashMap;
use std::io;
use std::path::Path;

use rusqlite::{Connection, OpenFlags};

use super::client::{End, Ends};
use super::upstream::Sends;
use crate::outage::Database;

/// The rows of one operation.
#[derive(Default)]
pub struct Operation {
    /// States of its rows in `operations`; one, if all is well.
    states: Vec<String>,
    /// Status of the last of them.
    status: Option<u16>,
    /// Attempts that may have arrived: state of each.
    sent: Vec<String>,
    /// Attempts that did not.
    unsent: usize,
}

impl Operation {
    /// Attempts with a whole answer.
    fn answered(&self) -> usize {
        let answered =
            |state: &&String| matches!(state.as_str(), "succeeded" | "rejected" | "refused");
        self.sent.iter().filter(answered).count()
    }
}

/// The records of one gateway.
#[derive(Default)]
pub struct Records {
    pub operations: HashMap<String, Operation>,
    /// Rows in state `pending`, of both tables.
    pub pending: u64,
}

impl Records {
    /// Adds what is in a SQLite file.
    pub fn read(&mut self, database: &Path) -> io::Result<()> {
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY;
        let connection = Connection::open_with_flags(database, flags).map_err(io::Error::other)?;
        self.add(&connection).map_err(io::Error::other)
    }

    fn add(&mut self, connection: &Connection) -> rusqlite::Result<()> {
        let mut statement =
            connection.prepare("SELECT operation_id, state, http_status FROM operations")?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            self.operation(row.get(0)?, row.get(1)?, row.get(2)?);
        }
        let mut statement =
            connection.prepare("SELECT operation_id, state, delivery FROM attempts")?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            let delivery: Option<String> = row.get(2)?;
            self.attempt(row.get(0)?, row.get(1)?, delivery.as_deref());
        }
        Ok(())
    }

    /// Adds what is in a PostgreSQL database. Ids, states and deliveries have neither commas nor spaces.
    pub async fn read_postgres(&mut self, database: &mut Database) -> io::Result<()> {
        let select = |column, table| {
            format!(
                "sql SELECT operation_id || ',' || state || ',' || coalesce({column}::text, '') FROM {table}"
            )
        };
        let answer = database.order(&select("http_status", "operations")).await?;
        for [id, state, status] in fields(&answer) {
            self.operation(id.to_owned(), state.to_owned(), status.parse().ok());
        }
        let answer = database.order(&select("delivery", "attempts")).await?;
        for [id, state, delivery] in fields(&answer) {
            self.attempt(id.to_owned(), state.to_owned(), Some(delivery));
        }
        Ok(())
    }

    fn operation(&mut self, id: String, state: String, status: Option<u16>) {
        self.pending += u64::from(state == "pending");
        let operation = self.operations.entry(id).or_default();
        operation.states.push(state);
        operation.status = status;
    }

    fn attempt(&mut self, id: String, state: String, delivery: Option<&str>) {
        self.pending += u64::from(state == "pending");
        let operation = self.operations.entry(id).or_default();
        match delivery {
            Some("not_delivered") => operation.unsent += 1,
            _ => operation.sent.push(state),
        }
    }
}

fn fields(answer: &str) -> impl Iterator<Item = [&str; 3]> {
    let rows = answer.split(' ').skip(1);
    rows.filter_map(|row| row.split(',').collect::<Vec<_>>().try_into().ok())
}

/// What the comparison found.
#[derive(Debug, Default)]
pub struct Compared {
    /// Rows of sends, and of attempts that were proved not to have arrived, of what clients asked for.
    pub rows: u64,
    pub not_delivered: u64,
    /// Sends that no row accounts for.
    pub sends_without_row: u64,
    /// Rows of sends that were answered, though the provider did not see them.
    pub rows_without_send: u64,
    /// Rows of sends that were cut short, or timed out, before the provider read them.
    pub unread: u64,
    /// Whole answers whose operation was settled by a later process: the one that answered was killed before it could.
    pub answers_abandoned: u64,
    /// Whole answers whose operation has no row, or two, or another status.
    pub answers_recorded_otherwise: u64,
    /// Rows of operations that no client asked for.
    pub strangers: u64,
}

/// Holds records against the sends and the ends of ids.
pub fn compare(records: &Records, sends: &Sends, ends: &Ends, calm: u64) -> Compared {
    let mut found = Compared::default();
    let (mut calm_rows, mut calm_answered) = (0, 0);
    for (id, operation) in &records.operations {
        if id.starts_with("calm-") {
            calm_rows += operation.sent.len() as u64;
            calm_answered += operation.answered() as u64;
            continue;
        }
        if ends.by_id.contains_key(id) {
            found.rows += operation.sent.len() as u64;
            found.not_delivered += operation.unsent as u64;
        }
        let seen = sends.get(id).map_or(0, Vec::len);
        let more = operation.sent.len().saturating_sub(seen);
        let unanswered = operation.sent.len() - operation.answered();
        found.unread += more.min(unanswered) as u64;
        found.rows_without_send += more.saturating_sub(unanswered) as u64;
        found.strangers += u64::from(!ends.by_id.contains_key(id) && !id.starts_with("warm-"));
    }
    for (id, acts) in sends {
        let rows = records.operations.get(id).map_or(0, |o| o.sent.len());
        found.sends_without_row += acts.len().saturating_sub(rows) as u64;
    }
    found.sends_without_row += calm.saturating_sub(calm_rows);
    found.rows_without_send += calm_answered.saturating_sub(calm);
    for (id, end) in &ends.by_id {
        let End::Status(status) = end else { continue };
        let recorded = records.operations.get(id);
        if recorded.is_some_and(|o| o.states == ["abandoned"]) {
            found.answers_abandoned += 1;
            continue;
        }
        let same = recorded.is_some_and(|o| o.states.len() == 1 && o.status == Some(*status));
        found.answers_recorded_otherwise += u64::from(!same);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::modes::upstream::Act;

    fn recorded(sent: &[&str]) -> Records {
        let operation = Operation {
            states: vec!["succeeded".to_owned()],
            status: Some(200),
            sent: sent.iter().map(|state| (*state).to_owned()).collect(),
            unsent: 0,
        };
        Records {
            operations: HashMap::from([("x".to_owned(), operation)]),
            pending: 0,
        }
    }

    fn asked(end: End) -> Ends {
        Ends {
            by_id: HashMap::from([("x".to_owned(), end)]),
            ..Ends::default()
        }
    }

    fn seen(count: usize) -> Sends {
        Sends::from([("x".to_owned(), vec![Act::Silent; count])])
    }

    #[test]
    fn every_send_wants_its_row_and_every_row_its_send() {
        let found = |sent: &[&str], count| {
            let found = compare(&recorded(sent), &seen(count), &asked(End::Status(200)), 0);
            (
                found.sends_without_row,
                found.rows_without_send,
                found.unread,
            )
        };
        assert_eq!(found(&["succeeded"], 1), (0, 0, 0));
        assert_eq!(found(&["succeeded"], 2), (1, 0, 0));
        assert_eq!(found(&["rejected", "succeeded"], 1), (0, 1, 0));
        assert_eq!(found(&["rejected", "cancelled"], 1), (0, 0, 1));
        assert_eq!(found(&["rejected", "timed_out"], 0), (0, 1, 1));
    }

    #[test]
    fn another_status_is_noticed() {
        let found = |end| compare(&recorded(&["succeeded"]), &seen(1), &asked(end), 0);
        assert_eq!(found(End::Status(200)).answers_recorded_otherwise, 0);
        assert_eq!(found(End::Status(504)).answers_recorded_otherwise, 1);
        assert_eq!(found(End::Left).answers_recorded_otherwise, 0);
    }
}

//! What an error of the database means for a write: worth repeating, or never to be taken.
//!
//! Invariant: an error is `Refused` only when the same rows would be refused again. Whatever else it is, a missing right or table included,
//! an operator may mend it, and until then the spool keeps the records. Rows are not quoted.

use std::error::Error as _;

use crate::ledger::store::StoreError;

/// Classes of SQLSTATE that blame the data: cardinality, data exception, integrity constraint, an exception raised by our trigger, and
/// a program limit, such as a key that is too long for an index.
const REFUSED: &[&str] = &["21", "22", "23", "P0", "54"];

/// What a failed statement means.
pub(super) fn failed(error: &tokio_postgres::Error) -> StoreError {
    let Some(db) = error.as_db_error() else {
        return StoreError::Unavailable(chain(error));
    };
    let code = db.code().code();
    let text = format!("{} ({code})", db.message());
    if REFUSED.iter().any(|class| code.starts_with(class)) {
        StoreError::Refused(text)
    } else {
        StoreError::Unavailable(text)
    }
}

/// What a failed connection means: another may succeed, even after a wrong password.
pub(super) fn unconnected(error: &tokio_postgres::Error) -> StoreError {
    let text = match error.as_db_error() {
        Some(db) => format!("{} ({})", db.message(), db.code().code()),
        None => chain(error),
    };
    StoreError::Unavailable(format!("cannot connect: {text}"))
}

/// The error with its causes.
fn chain(error: &tokio_postgres::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let more = error.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        cause = error.source();
    }
    text
}

//! How a piece looks on disk while it waits for its store: entries of a length, a checksum and values, one after the other.
//!
//! Not here: files. Invariants: an entry whose checksum does not fit is never taken for a piece; what a crash cut off at the end of a file
//! is seen and ignored. New columns go to the end of their table, so that entries of an older version can be filled up.

use std::sync::Arc;

use super::columns::{
    ATTEMPTS, OPERATIONS, Presence, Stored, StoredRecord, Table, Value, attempt_values,
    operation_values,
};
use super::store::{LateUsage, Piece};

/// Bytes in front of an entry's content: its length and its checksum.
const HEAD: usize = 8;
/// Longest entry that is believed without its checksum: damage may be in the length itself. Rows have some hundred bytes, an operation at
/// most a few hundred attempts.
pub const ENTRY_BYTES_MAX: usize = 4 << 20;

const RECORD: u8 = 1;
const USAGE: u8 = 2;

const NULL: u8 = 0;
const TEXT: u8 = 1;
const NUMBER: u8 = 2;
const FALSE: u8 = 3;
const TRUE: u8 = 4;

/// Appends the piece as one entry.
pub fn encode(piece: &Piece, out: &mut Vec<u8>) {
    let start = out.len();
    out.extend_from_slice(&[0; HEAD]);
    match piece {
        Piece::Live(record) => {
            out.push(RECORD);
            row(&operation_values(record), out);
            count(record.attempts.len(), out);
            for attempt in &record.attempts {
                row(&attempt_values(record, attempt), out);
            }
        }
        Piece::Spooled(record) => {
            out.push(RECORD);
            stored_row(&record.operation, out);
            count(record.attempts.len(), out);
            for attempt in &record.attempts {
                stored_row(attempt, out);
            }
        }
        Piece::Usage(usage) => {
            out.push(USAGE);
            let sequence = i64::try_from(usage.sequence).unwrap_or(i64::MAX);
            value(&Value::Text(&usage.operation_id), out);
            value(&Value::Text(&usage.boot_id), out);
            value(&Value::Number(sequence), out);
            for item in usage.values() {
                value(&item, out);
            }
        }
    }
    let content = out.get(start.saturating_add(HEAD)..).unwrap_or_default();
    let length = u32::try_from(content.len()).unwrap_or(u32::MAX);
    let sum = crc32fast::hash(content);
    let head = [length.to_le_bytes(), sum.to_le_bytes()].concat();
    if let Some(place) = out.get_mut(start..start.saturating_add(HEAD)) {
        place.copy_from_slice(&head);
    }
}

fn row(values: &[Value<'_>], out: &mut Vec<u8>) {
    count(values.len(), out);
    for item in values {
        value(item, out);
    }
}

fn stored_row(values: &[Stored], out: &mut Vec<u8>) {
    count(values.len(), out);
    for item in values {
        value(&item.value(), out);
    }
}

fn count(number: usize, out: &mut Vec<u8>) {
    out.extend_from_slice(&u32::try_from(number).unwrap_or(u32::MAX).to_le_bytes());
}

fn value(value: &Value<'_>, out: &mut Vec<u8>) {
    match value {
        Value::Null => out.push(NULL),
        Value::Text(text) => {
            out.push(TEXT);
            count(text.len(), out);
            out.extend_from_slice(text.as_bytes());
        }
        Value::Number(number) => {
            out.push(NUMBER);
            out.extend_from_slice(&number.to_le_bytes());
        }
        Value::Flag(flag) => out.push(if *flag { TRUE } else { FALSE }),
    }
}

/// What a file of entries holds.
#[derive(Debug, Default)]
pub struct Read {
    /// The pieces that are whole, in order.
    pub pieces: Vec<Piece>,
    /// Entries that are there and cannot be read. What was cut off at the end counts as one.
    pub damaged: u64,
    /// Whether the last of these is only what a crash cut off at the end.
    pub is_torn: bool,
}

/// Reads all entries.
pub fn decode(bytes: &[u8]) -> Read {
    let mut read = Read::default();
    let mut rest = bytes;
    while !rest.is_empty() {
        let Some((content, is_whole, after)) = entry(rest).filter(|_| !is_blank(rest)) else {
            read.damaged = read.damaged.saturating_add(1);
            read.is_torn = is_blank(rest) || is_cut(rest);
            break;
        };
        rest = after;
        match is_whole.then(|| piece(content)).flatten() {
            Some(piece) => read.pieces.push(piece),
            None => read.damaged = read.damaged.saturating_add(1),
        }
    }
    read
}

/// Whether there are only zeros: a machine that lost power kept the length of the file, and not what was written.
fn is_blank(bytes: &[u8]) -> bool {
    bytes.iter().all(|byte| *byte == 0)
}

/// Whether this is the beginning of an entry whose end is missing.
fn is_cut(bytes: &[u8]) -> bool {
    let length = Reader(bytes).count();
    length.is_none_or(|length| length <= ENTRY_BYTES_MAX)
}

/// The first entry's content, whether its checksum fits, and what follows it.
fn entry(bytes: &[u8]) -> Option<(&[u8], bool, &[u8])> {
    let mut reader = Reader(bytes);
    let length = reader.count()?;
    let sum = u32::from_le_bytes(reader.array()?);
    let content = reader.take(length)?;
    let is_whole = crc32fast::hash(content) == sum;
    // A length that cannot be, and nothing that speaks for it: where the next entry begins is not known.
    (is_whole || length <= ENTRY_BYTES_MAX).then_some((content, is_whole, reader.0))
}

fn piece(content: &[u8]) -> Option<Piece> {
    let mut reader = Reader(content);
    let [kind] = reader.array()?;
    let piece = match kind {
        RECORD => {
            let operation = reader.row(&OPERATIONS)?;
            let attempts = reader.count()?;
            let rows = (0..attempts).map(|_| reader.row(&ATTEMPTS));
            let attempts = rows.collect::<Option<_>>()?;
            Piece::Spooled(StoredRecord {
                operation,
                attempts,
            })
        }
        USAGE => Piece::Usage(LateUsage {
            operation_id: reader.text()?,
            boot_id: reader.text()?,
            sequence: reader.number()??,
            prompt_tokens: reader.number()?,
            completion_tokens: reader.number()?,
            cached_tokens: reader.number()?,
            reasoning_tokens: reader.number()?,
            partial: reader.value()? == Stored::Flag(true),
        }),
        _ => return None,
    };
    reader.0.is_empty().then_some(piece)
}

/// What is left to read.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(taken)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    fn count(&mut self) -> Option<usize> {
        usize::try_from(u32::from_le_bytes(self.array()?)).ok()
    }

    fn value(&mut self) -> Option<Stored> {
        let [tag] = self.array()?;
        Some(match tag {
            NULL => Stored::Null,
            TEXT => {
                let length = self.count()?;
                let text = std::str::from_utf8(self.take(length)?).ok()?;
                Stored::Text(Box::from(text))
            }
            NUMBER => Stored::Number(i64::from_le_bytes(self.array()?)),
            FALSE => Stored::Flag(false),
            TRUE => Stored::Flag(true),
            _ => return None,
        })
    }

    fn text(&mut self) -> Option<Arc<str>> {
        match self.value()? {
            Stored::Text(text) => Some(Arc::from(text)),
            Stored::Null | Stored::Number(_) | Stored::Flag(_) => None,
        }
    }

    fn number(&mut self) -> Option<Option<u64>> {
        match self.value()? {
            Stored::Null => Some(None),
            Stored::Number(number) => Some(u64::try_from(number).ok()),
            Stored::Text(_) | Stored::Flag(_) => None,
        }
    }

    /// A row of this table, as this version has it or as an older one had.
    fn row(&mut self, table: &Table) -> Option<Vec<Stored>> {
        let given = self.count()?;
        let later = table.columns.get(given..)?;
        let values = (0..given).map(|_| self.value());
        let mut values: Vec<Stored> = values.collect::<Option<_>>()?;
        for column in later {
            match column.presence {
                Presence::Always => return None,
                Presence::Maybe => values.push(Stored::Null),
            }
        }
        Some(values)
    }
}

//! A place in the list of records as text: what one page gives and the next takes back.
//!
//! The text is opaque: who makes one up, or loses a letter while copying, is told so and does not get some other page.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use crate::core::time::WallTime;
use crate::ledger::store::Cursor;

/// Longest id that a cursor takes: an `x-request-id` of 128 bytes, and what a renamed one has beside it, with room to spare.
const ID_BYTES_MAX: usize = 256;
/// Longest text of a cursor: four letters for three bytes of version, time, id and checksum.
pub const CURSOR_BYTES_MAX: usize = (1 + 8 + ID_BYTES_MAX + 4).div_ceil(3) * 4;
/// Stands first, so that another form can be told apart later.
const VERSION: u8 = 1;

/// The cursor as text: letters, digits, `-` and `_`.
pub fn to_text(cursor: &Cursor) -> String {
    let mut bytes = vec![VERSION];
    bytes.extend(cursor.started_at.unix_micros().to_be_bytes());
    bytes.extend(cursor.operation_id.as_bytes());
    bytes.extend(crc32fast::hash(&bytes).to_be_bytes());
    URL_SAFE_NO_PAD.encode(bytes)
}

/// The cursor that was given out as this text.
pub fn from_text(text: &str) -> Result<Cursor, String> {
    read(text).ok_or_else(|| {
        "before must be what an earlier answer gave as `next`, letter for letter".to_owned()
    })
}

fn read(text: &str) -> Option<Cursor> {
    if text.len() > CURSOR_BYTES_MAX {
        return None;
    }
    let bytes = URL_SAFE_NO_PAD.decode(text).ok()?;
    let (covered, sum) = bytes.split_last_chunk::<4>()?;
    if crc32fast::hash(covered) != u32::from_be_bytes(*sum) {
        return None;
    }
    let (version, rest) = covered.split_first()?;
    let (micros, id) = rest.split_first_chunk::<8>()?;
    if *version != VERSION || id.len() > ID_BYTES_MAX {
        return None;
    }
    Some(Cursor {
        started_at: WallTime::from_unix_micros(i64::from_be_bytes(*micros)),
        operation_id: std::str::from_utf8(id).ok()?.to_owned(),
    })
}

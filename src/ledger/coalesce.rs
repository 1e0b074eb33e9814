//! What one collection hands on: nothing is written as pending that is settled in the same breath.

use std::collections::HashSet;
use std::sync::Arc;

use super::entry::Record;
use super::store::Piece;

/// The open records that did not end meanwhile, then what left the book, in its order.
pub fn coalesce(open: Vec<Arc<Record>>, settled: Vec<Piece>) -> Vec<Piece> {
    if open.is_empty() {
        return settled;
    }
    let ended: HashSet<u64> = settled
        .iter()
        .filter_map(|piece| match piece {
            Piece::Live(record) => Some(record.sequence),
            Piece::Spooled(_) | Piece::Usage(_) => None,
        })
        .collect();
    let mut pieces: Vec<Piece> = open
        .into_iter()
        .filter(|record| !ended.contains(&record.sequence))
        .map(Piece::Live)
        .collect();
    pieces.extend(settled);
    pieces
}

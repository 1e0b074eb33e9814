//! What waits on disk comes back as it was, or not at all; and whether a process is dead.

use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use rondo::ledger::columns::{ATTEMPTS, Kind, OPERATIONS, Presence, Stored, StoredRecord, Table};
use rondo::ledger::spool::{ENTRY_BYTES_MAX, decode, encode};
use rondo::ledger::store::{Boot, BootLock, LEASE, LateUsage, OtherBoot, Piece, is_dead};

fn row(table: &'static Table) -> impl Strategy<Value = Vec<Stored>> {
    let columns: Vec<BoxedStrategy<Stored>> = table
        .columns
        .iter()
        .map(|column| {
            let value = match column.kind {
                Kind::Text => ".{0,20}".prop_map(|text| Stored::Text(text.into())).boxed(),
                Kind::Count | Kind::Time => any::<i64>().prop_map(Stored::Number).boxed(),
                Kind::Flag => any::<bool>().prop_map(Stored::Flag).boxed(),
            };
            match column.presence {
                Presence::Always => value,
                Presence::Maybe => prop_oneof![Just(Stored::Null), value].boxed(),
            }
        })
        .collect();
    columns
}

fn piece() -> impl Strategy<Value = Piece> {
    let attempts = prop::collection::vec(row(&ATTEMPTS), 0..3);
    let record = (row(&OPERATIONS), attempts).prop_map(|(operation, attempts)| {
        Piece::Spooled(StoredRecord {
            operation,
            attempts,
        })
    });
    let tokens = || prop::option::of(0..i64::MAX as u64);
    let usage =
        (".{0,9}", tokens(), tokens(), any::<bool>()).prop_map(|(id, one, two, partial)| {
            Piece::Usage(LateUsage {
                operation_id: Arc::from(id),
                boot_id: Arc::from("b"),
                sequence: 7,
                prompt_tokens: one,
                completion_tokens: two,
                cached_tokens: None,
                reasoning_tokens: one,
                partial,
            })
        });
    prop_oneof![3 => record, 1 => usage]
}

fn bytes(pieces: &[Piece]) -> Vec<u8> {
    let mut bytes = Vec::new();
    pieces.iter().for_each(|piece| encode(piece, &mut bytes));
    bytes
}

/// Pieces as texts that can be compared.
fn told(pieces: &[Piece]) -> Vec<String> {
    pieces.iter().map(|piece| format!("{piece:?}")).collect()
}

proptest! {
    // R-L7
    #[test]
    fn what_was_spooled_comes_back(pieces in prop::collection::vec(piece(), 0..5)) {
        let read = decode(&bytes(&pieces));
        prop_assert_eq!(read.damaged, 0);
        prop_assert_eq!(told(&read.pieces), told(&pieces));
    }

    // A crash cuts anywhere: what was whole before stays, and what was cut is none.
    #[test]
    fn a_torn_end_is_ignored(pieces in prop::collection::vec(piece(), 1..4), cut in any::<prop::sample::Index>()) {
        let whole = bytes(&pieces);
        let at = cut.index(whole.len());
        let ends: Vec<usize> = (0..=pieces.len()).map(|count| bytes(&pieces[..count]).len()).collect();
        let kept = ends.iter().rposition(|end| *end <= at).unwrap();
        let read = decode(&whole[..at]);
        prop_assert_eq!(told(&read.pieces), told(&pieces[..kept]));
        prop_assert_eq!((read.damaged, read.is_torn), (u64::from(ends[kept] != at), ends[kept] != at));
        // Without power the file may be as long as it was to be, and hold nothing there.
        let blank = decode(&[&whole[..ends[kept]], &[0; 100]].concat());
        prop_assert_eq!((blank.pieces.len(), blank.damaged, blank.is_torn), (kept, 1, true));
    }

    // Whatever bit turns over: never a piece that was not written, and what stands before it is read.
    #[test]
    fn a_flipped_bit_makes_no_other_piece(pieces in prop::collection::vec(piece(), 1..4), at in any::<prop::sample::Index>(), bit in 0..8_u8) {
        let mut spoilt = bytes(&pieces);
        let at = at.index(spoilt.len());
        spoilt[at] ^= 1 << bit;
        let read = decode(&spoilt);
        let (found, written) = (told(&read.pieces), told(&pieces));
        prop_assert!(read.damaged > 0);
        prop_assert!(found.iter().all(|piece| written.contains(piece)));
        let before = (0..pieces.len()).take_while(|count| bytes(&pieces[..=*count]).len() <= at).count();
        prop_assert_eq!(&found[..before], &written[..before]);
    }

    #[test]
    fn nonsense_is_no_piece(nonsense in prop::collection::vec(any::<u8>(), 0..200)) {
        let read = decode(&nonsense);
        prop_assert!(read.pieces.is_empty());
        prop_assert_eq!(read.damaged > 0, !nonsense.is_empty());
    }
}

// R-L7: what was written is read, however long it is, and so is what stands behind it.
#[test]
fn an_entry_over_the_bound_takes_nothing_with_it() {
    let text = |bytes: usize| Stored::Text("x".repeat(bytes).into());
    let long = Piece::Spooled(StoredRecord {
        operation: OPERATIONS
            .columns
            .iter()
            .map(|_| text(ENTRY_BYTES_MAX / 16))
            .collect(),
        attempts: Vec::new(),
    });
    let short = Piece::Spooled(StoredRecord {
        operation: OPERATIONS.columns.iter().map(|_| text(1)).collect(),
        attempts: Vec::new(),
    });
    let mut segment = bytes(&[long, short.clone()]);
    assert!(segment.len() > ENTRY_BYTES_MAX);
    let read = decode(&segment);
    assert_eq!((read.pieces.len(), read.damaged), (2, 0));
    assert_eq!(told(&read.pieces[1..]), told(&[short]));
    // Damaged, its length proves nothing, and what follows cannot be found.
    segment[100] ^= 1;
    let read = decode(&segment);
    assert_eq!(
        (read.pieces.len(), read.damaged, read.is_torn),
        (0, 1, false)
    );
}

// R-L6: a lock of this machine is proof either way; without one only silence speaks.
#[test]
fn who_is_dead() {
    let other = |silent: Duration| OtherBoot {
        boot: Boot {
            boot_id: Arc::from("b"),
            instance: Arc::from("i"),
        },
        silent,
    };
    let moment = Duration::from_micros(1);
    for (lock, silent, dead) in [
        (BootLock::Held, LEASE * 100, false),
        (BootLock::Held, Duration::ZERO, false),
        (BootLock::Free, Duration::ZERO, true),
        (BootLock::Free, LEASE * 100, true),
        (BootLock::Unknown, LEASE, false),
        (BootLock::Unknown, LEASE + moment, true),
    ] {
        assert_eq!(is_dead(&other(silent), lock), dead, "{lock:?} {silent:?}");
    }
}

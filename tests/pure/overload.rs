//! Seats, the pace of clients, and the limits of each client; one thread where no race is claimed (R-B7).

use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use rondo::policy::clients::{ClientFull, ClientKeys};
use rondo::policy::ordering::Client;
use rondo::policy::pace::{Pace, Reader};
use rondo::policy::seats::Seats;

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

// R-B7
#[test]
fn a_seat_is_taken_only_below_the_bound_and_given_back() {
    let seats = Arc::new(Seats::default());
    let first = seats.take(2).unwrap();
    let second = seats.take(2).unwrap();
    assert!(seats.take(2).is_none());
    assert_eq!(seats.taken(), 2);
    drop(first);
    assert_eq!(seats.taken(), 1);
    assert!(seats.take(0).is_none(), "no bound lets nobody in");
    drop(second);
    assert_eq!(seats.taken(), 0);
    assert_eq!(Arc::strong_count(&seats), 1, "a seat outlived its end");
}

// R-B7 R-C2: a lower bound ends nobody and lets nobody in until there is room below it; a higher one lets in at once.
#[test]
fn a_bound_that_changes_loses_no_count() {
    let seats = Arc::new(Seats::default());
    let mut held: Vec<_> = (0..5).map(|_| seats.take(5).unwrap()).collect();
    assert!(seats.take(3).is_none());
    held.truncate(3);
    assert!(seats.take(3).is_none());
    held.truncate(2);
    held.push(seats.take(3).unwrap());
    held.push(seats.take(4).unwrap());
    assert_eq!(seats.taken(), 4);
    drop(held);
    assert_eq!(seats.taken(), 0);
}

// R-B7 R-L2: 10,000 admissions on four threads, each of which ends in its own way.
#[test]
fn ten_thousand_admissions_end_at_none() {
    const MAX: u64 = 7;
    let seats = Arc::new(Seats::default());
    let threads: Vec<_> = (0..4)
        .map(|thread| {
            let seats = Arc::clone(&seats);
            std::thread::spawn(move || {
                let mut admitted = 0_u32;
                for number in 0..2500_u32 {
                    let Some(seat) = seats.take(MAX) else {
                        std::thread::yield_now();
                        continue;
                    };
                    admitted += 1;
                    assert!(seats.taken() <= MAX);
                    match (number + thread) % 3 {
                        0 => drop(seat),
                        1 => {
                            let holder = std::thread::spawn(move || drop(seat));
                            if number % 16 == 0 {
                                holder.join().unwrap();
                            }
                        }
                        _ => {
                            let caught = std::panic::catch_unwind(move || {
                                let _seat = seat;
                                std::panic::resume_unwind(Box::new("an operation failed"));
                            });
                            assert!(caught.is_err());
                        }
                    }
                }
                admitted
            })
        })
        .collect();
    let admitted: u32 = threads.into_iter().map(|t| t.join().unwrap()).sum();
    assert!(admitted > 0);
    while Arc::strong_count(&seats) > 1 {
        std::thread::yield_now();
    }
    assert_eq!(seats.taken(), 0);
}

const PACE: Pace = Pace {
    bytes_per_second: Some(1000),
    pause_max: Duration::from_millis(500),
};

// R-B7
#[test]
fn an_upload_is_due_by_its_average() {
    let due = |bytes| PACE.due(bytes);
    assert_eq!(due(0), ms(500), "everybody has the first pause");
    assert_eq!(due(1), ms(501));
    assert_eq!(due(2000), ms(2500), "who was fast may pause later");
    let free = Pace {
        bytes_per_second: None,
        ..PACE
    };
    assert_eq!(free.due(0), Duration::MAX, "no rate asks for nothing");
    assert_eq!(due(u64::MAX), Duration::MAX.min(due(u64::MAX)));
}

// R-L5
#[test]
fn a_reader_is_held_to_what_it_keeps_waiting() {
    let mut reader = Reader::new(PACE);
    assert_eq!(reader.allowance(100), ms(500));
    reader.took(100, ms(400));
    assert_eq!(reader.allowance(0), ms(200), "300 ms behind");
    reader.took(100, ms(400));
    assert_eq!(reader.allowance(100), Duration::ZERO, "600 ms behind");
    let mut reader = Reader::new(PACE);
    reader.took(1_000_000, Duration::ZERO);
    reader.took(0, ms(500));
    assert_eq!(
        reader.allowance(100),
        Duration::ZERO,
        "bytes make up for time, but not in advance"
    );
}

proptest! {
    // R-L5: whoever takes at the rate is never ended, however the bytes are cut.
    #[test]
    fn at_the_rate_nobody_is_ended(pieces in prop::collection::vec(1_u64..100_000, 1..200)) {
        let mut reader = Reader::new(PACE);
        for bytes in pieces {
            prop_assert!(!reader.allowance(bytes).is_zero());
            reader.took(bytes, Duration::from_millis(bytes));
        }
        prop_assert_eq!(reader.allowance(1), ms(500));
    }

    // R-L5: below the rate somebody is ended when it is that far behind, and no earlier.
    #[test]
    fn half_the_rate_is_ended_in_time(piece in 1_u64..400) {
        let mut reader = Reader::new(PACE);
        let mut behind = 0;
        while behind < 500 {
            prop_assert!(!reader.allowance(piece).is_zero(), "{behind} ms behind");
            reader.took(piece, Duration::from_millis(2 * piece));
            behind += piece;
        }
        prop_assert!(reader.allowance(piece).is_zero());
    }

    // R-B7: more bytes never bring the end nearer.
    #[test]
    fn an_upload_that_moves_on_is_never_due_earlier(bytes in any::<u64>(), more in any::<u64>()) {
        prop_assert!(PACE.due(bytes.saturating_add(more)) >= PACE.due(bytes));
    }
}

fn clients(limit: Option<u64>, previous: Option<&ClientKeys>) -> ClientKeys {
    let keys = [
        (Arc::from("one"), b"first".as_slice()),
        (Arc::from("two"), b"second".as_slice()),
    ];
    let keys = ClientKeys::new(false, [7; 32], keys.into_iter());
    keys.limited([limit, None].into_iter(), previous)
}

// R-B7
#[test]
fn each_client_has_its_own_limit() {
    let keys = clients(Some(1), None);
    let (one, two) = (
        Client::Known(Arc::from("one")),
        Client::Known(Arc::from("two")),
    );
    let seat = keys.seat(&one).unwrap().unwrap();
    assert_eq!(keys.seat(&one).unwrap_err(), ClientFull);
    assert!(keys.seat(&two).unwrap().is_none(), "no limit, no count");
    assert!(keys.seat(&Client::Absent).unwrap().is_none());
    assert!(keys.seat(&Client::Unknown(7)).unwrap().is_none());
    assert_eq!(keys.in_flight("one"), 1);
    drop(seat);
    assert!(keys.seat(&one).unwrap().is_some());
}

// R-C2
#[test]
fn a_clients_count_outlives_a_reload() {
    let before = clients(Some(2), None);
    let one = Client::Known(Arc::from("one"));
    let seats = [before.seat(&one).unwrap(), before.seat(&one).unwrap()];
    let after = clients(Some(1), Some(&before));
    assert_eq!(after.in_flight("one"), 2);
    assert_eq!(after.seat(&one).unwrap_err(), ClientFull);
    drop(before);
    drop(seats);
    assert_eq!(after.in_flight("one"), 0);
    assert!(after.seat(&one).unwrap().is_some());
}

//! The shared counters, one thread: bounds, and that everything taken is given back (R-B6, R-B7).

use std::sync::Arc;

use rondo::core::time::MonoTime;
use rondo::policy::admission::Waiters;
use rondo::policy::buffered::BufferedBytes;
use rondo::policy::cooldown::Cooldown;

// R-B7
#[test]
fn a_reservation_grows_shrinks_and_is_given_back_whole() {
    let account = Arc::new(BufferedBytes::default());
    let mut share = account.reserve(100, 1000).unwrap();
    assert!(share.grow(900, 1000));
    assert!(!share.grow(1, 1000));
    assert!(account.reserve(1, 1000).is_none());
    assert_eq!((share.bytes(), account.held()), (1000, 1000));
    share.shrink_to(300);
    share.shrink_to(400);
    assert_eq!((share.bytes(), account.held()), (300, 300));
    drop(share);
    assert_eq!(account.held(), 0);
    assert_eq!(Arc::strong_count(&account), 1, "a share outlived its end");
}

// R-B7
#[test]
fn a_reservation_that_overflows_is_refused() {
    let account = Arc::new(BufferedBytes::default());
    let share = account.reserve(u64::MAX, u64::MAX).unwrap();
    assert!(account.reserve(1, u64::MAX).is_none());
    drop(share);
    assert_eq!(account.held(), 0);
}

// R-B6
#[test]
fn a_waiting_room_is_bounded_in_slots_and_bytes() {
    let room = Arc::new(Waiters::new(2, 100));
    let first = room.enter(60).unwrap();
    assert!(room.enter(41).is_none());
    let second = room.enter(40).unwrap();
    assert!(room.enter(0).is_none());
    assert_eq!((room.waiting(), room.waiting_bytes()), (2, 100));
    drop(first);
    assert_eq!((room.waiting(), room.waiting_bytes()), (1, 40));
    drop(second);
    assert_eq!((room.waiting(), room.waiting_bytes()), (0, 0));
}

// R-B6: the byte count never runs into the slots.
#[test]
fn the_largest_numbers_do_not_run_over() {
    let room = Arc::new(Waiters::new(u16::MAX, u64::MAX));
    assert!(room.enter(u64::MAX).is_none());
    let all = room.enter((1 << 48) - 1).unwrap();
    assert!(room.enter(1).is_none());
    let crowd: Vec<_> = (1..u16::MAX).map(|_| room.enter(0).unwrap()).collect();
    assert!(room.enter(0).is_none());
    assert_eq!(room.waiting(), u64::from(u16::MAX));
    drop((all, crowd));
    assert_eq!((room.waiting(), room.waiting_bytes()), (0, 0));
}

// R-S12, C30
#[test]
fn a_cooldown_is_only_extended_and_ended_by_a_success_that_saw_it() {
    let cooldown = Cooldown::default();
    let at = MonoTime::from_micros;
    cooldown.extend(at(100));
    cooldown.extend(at(50));
    assert_eq!(cooldown.remaining_after(at(99)), Some(at(100)));
    assert_eq!(cooldown.remaining_after(at(100)), None);
    let seen = cooldown.seen(at(100));
    cooldown.extend(at(200));
    cooldown.end(seen);
    assert_eq!(cooldown.remaining_after(at(0)), Some(at(200)));
    cooldown.end(cooldown.seen(at(200)));
    assert_eq!(cooldown.remaining_after(at(0)), None);
}

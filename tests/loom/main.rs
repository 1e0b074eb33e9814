//! The shared counters under every interleaving of two or three threads. Built only with `--cfg loom`:
//!
//! `RUSTFLAGS="--cfg loom" CARGO_TARGET_DIR=target/loom cargo test --no-default-features --test loom`
//!
//! What is held: no bound is passed at any moment, what is taken is given back, an instant is only extended.
#![cfg(loom)]
#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use loom::thread;
use rondo::core::time::MonoTime;
use rondo::policy::admission::Waiters;
use rondo::policy::buffered::BufferedBytes;
use rondo::policy::cooldown::Cooldown;

const fn at(micros: u64) -> MonoTime {
    MonoTime::from_micros(micros)
}

// R-B6
#[test]
fn slots_are_never_more_than_the_bound() {
    loom::model(|| {
        let room = Arc::new(Waiters::new(1, 100));
        let inside = Arc::new(loom::sync::atomic::AtomicUsize::new(0));
        let visitor = |room: Arc<Waiters>, inside: Arc<loom::sync::atomic::AtomicUsize>| {
            move || {
                let Some(permit) = room.enter(10) else {
                    return false;
                };
                let before = inside.fetch_add(1, loom::sync::atomic::Ordering::SeqCst);
                assert_eq!(before, 0, "two sleepers in one slot");
                inside.fetch_sub(1, loom::sync::atomic::Ordering::SeqCst);
                drop(permit);
                true
            }
        };
        let other = thread::spawn(visitor(Arc::clone(&room), Arc::clone(&inside)));
        let here = visitor(Arc::clone(&room), inside)();
        let there = other.join().unwrap();
        assert!(here || there, "a free slot was given to nobody");
        assert_eq!((room.waiting(), room.waiting_bytes()), (0, 0));
    });
}

// R-B6
#[test]
fn bytes_asleep_are_never_more_than_the_bound() {
    loom::model(|| {
        let room = Arc::new(Waiters::new(3, 100));
        let sleepers: Vec<_> = (0..2)
            .map(|_| {
                let room = Arc::clone(&room);
                thread::spawn(move || room.enter(60))
            })
            .collect();
        let permits: Vec<_> = sleepers
            .into_iter()
            .filter_map(|s| s.join().unwrap())
            .collect();
        assert_eq!(permits.len(), 1, "both fit, or none did");
        assert_eq!((room.waiting(), room.waiting_bytes()), (1, 60));
        drop(permits);
        assert_eq!((room.waiting(), room.waiting_bytes()), (0, 0));
    });
}

// R-B7
#[test]
fn held_bytes_are_never_more_than_the_bound() {
    loom::model(|| {
        let account = Arc::new(BufferedBytes::default());
        let holder = |account: Arc<BufferedBytes>| {
            move || {
                let Some(mut share) = account.reserve(40, 100) else {
                    return 0;
                };
                let grown = share.grow(30, 100);
                assert_eq!(share.bytes(), if grown { 70 } else { 40 });
                assert!(account.held() <= 100, "more bytes than the bound");
                share.shrink_to(10);
                share.bytes()
            }
        };
        let other = thread::spawn(holder(Arc::clone(&account)));
        let here = holder(Arc::clone(&account))();
        let there = other.join().unwrap();
        assert!(here == 10 || there == 10, "free bytes were given to nobody");
        assert_eq!(account.held(), 0);
    });
}

// R-S12
#[test]
fn two_rejections_leave_the_later_instant() {
    loom::model(|| {
        let cooldown = Arc::new(Cooldown::default());
        let other = {
            let cooldown = Arc::clone(&cooldown);
            thread::spawn(move || cooldown.extend(at(200)))
        };
        cooldown.extend(at(100));
        other.join().unwrap();
        assert_eq!(cooldown.remaining_after(at(0)), Some(at(200)));
    });
}

// R-S12: a success that began before a rejection does not end what the rejection set.
#[test]
fn a_success_never_ends_a_cooldown_it_has_not_seen() {
    loom::model(|| {
        let cooldown = Arc::new(Cooldown::default());
        cooldown.extend(at(100));
        let seen = cooldown.seen();
        let other = {
            let cooldown = Arc::clone(&cooldown);
            thread::spawn(move || cooldown.extend(at(200)))
        };
        cooldown.end(seen);
        other.join().unwrap();
        assert_eq!(cooldown.remaining_after(at(0)), Some(at(200)));
    });
}

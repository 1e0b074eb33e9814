//! The writer, the line and the spool when store or disk fail: who counts as dead after it, what stays, what is counted.

use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use rondo::core::time::WallTime;
use rondo::ledger::store::{LEASE, Piece};
use rondo::ledger::{Book, Outbox};
use rondo::store::spool::{Spool, SpoolError, Sync};
use rondo::store::{Boots, Counts, Habits, Recording, Setup, Step};

use crate::store_sqlite::Dir;
use crate::store_suite::START;
use crate::store_writer::{Bench, Double, MIB, names, other, usage};
use crate::world::{Does, World};

const STRANGER: &str = "00000000000000aa";

fn abandons(double: &Double) -> usize {
    let calls = &double.0.lock().calls;
    calls.iter().filter(|call| **call == "abandon").count()
}

// R-L6: while the store was away nobody could beat, so silence proves nothing when it is back.
#[test]
fn an_outage_of_all_makes_nobody_dead() {
    let double = Double::default();
    let mut bench = Bench::new(double.clone(), false, MIB);
    bench.settle();
    bench.wait(LEASE * 2);
    double.0.lock().away = true;
    bench.now += Duration::from_secs(10);
    let _ = bench.step();
    bench.now += LEASE * 4;
    {
        let mut seen = double.0.lock();
        seen.away = false;
        seen.others = vec![other(STRANGER, "elsewhere", LEASE * 4)];
        seen.pending.insert(STRANGER.into(), 3);
    }
    bench.settle();
    bench.wait(LEASE - Duration::from_secs(1));
    assert_eq!(abandons(&double), 0);
    // Who still says nothing after that is dead.
    bench.wait(Duration::from_secs(11));
    assert_eq!(bench.counts().abandoned(), 3);
}

// R-L6: nor does it at the start, when all may be starting after the same outage.
#[test]
fn a_start_gives_everybody_a_lease() {
    let double = Double::default();
    double.0.lock().others = vec![other(STRANGER, "elsewhere", LEASE * 4)];
    let mut bench = Bench::new(double.clone(), false, MIB);
    bench.settle();
    bench.wait(LEASE - Duration::from_secs(1));
    assert_eq!(abandons(&double), 0);
    bench.wait(Duration::from_secs(11));
    assert_eq!(abandons(&double), 1);
}

// R-L6: who was being settled when the store went away is judged anew.
#[test]
fn an_outage_takes_a_verdict_of_silence_back() {
    let double = Double::default();
    let mut bench = Bench::new(double.clone(), false, MIB);
    bench.settle();
    {
        let mut seen = double.0.lock();
        seen.others = vec![other(STRANGER, "elsewhere", LEASE * 2)];
        seen.pending.insert(STRANGER.into(), 12_000);
    }
    bench.now += LEASE;
    while bench.counts().abandoned() == 0 {
        let _ = bench.step();
    }
    double.0.lock().away = true;
    let _ = bench.step();
    {
        let mut seen = double.0.lock();
        seen.away = false;
        seen.others = vec![other(STRANGER, "elsewhere", Duration::ZERO)];
    }
    bench.wait(LEASE);
    bench.wait(LEASE);
    assert_eq!(bench.counts().abandoned(), 5_000);
}

// R-L7: beyond the bound rows are lost, and every one is counted.
#[test]
fn a_full_spool_counts_what_it_does_not_take() {
    let double = Double::default();
    double.0.lock().away = true;
    let mut bench = Bench::new(double.clone(), false, 20_000);
    let total = 100_000;
    for round in 0..total / 1_000 {
        for number in 0..1_000 {
            bench.book.amend(usage(round * 1_000 + number));
        }
        bench.collect();
        let _ = bench.step();
    }
    // The disk took some, and the reserve in memory, which has a bound of its own, some more.
    let lost = bench.counts().lost();
    assert!(bench.spooled() > 0 && lost > 0, "{lost}");
    double.0.lock().away = false;
    bench.wait(Duration::from_secs(20));
    assert_eq!(double.0.lock().usages + lost, total);
    let counts = bench.counts();
    assert_eq!(
        (counts.lost(), counts.waiting(), counts.spool_bytes()),
        (lost, 0, 0)
    );
}

/// The only segment there is.
fn segment(bench: &Bench) -> PathBuf {
    let only = |dir: PathBuf| {
        let mut found = std::fs::read_dir(dir).unwrap();
        let path = found.next().unwrap().unwrap().path();
        assert!(found.next().is_none());
        path
    };
    only(only(bench.dir.0.join("spool")))
}

/// A bench whose store was away, so that this many operations wait in one segment.
fn waiting(double: &Double, count: usize) -> Bench {
    double.0.lock().away = true;
    let mut bench = Bench::new(double.clone(), false, MIB);
    bench.run(names("op", count));
    bench.collect();
    let _ = bench.step();
    double.0.lock().away = false;
    bench
}

// R-L7: a segment that cannot be read now is read later.
#[test]
fn a_segment_outlives_an_error_of_the_disk() {
    let double = Double::default();
    let mut bench = waiting(&double, 5);
    let (path, aside) = (segment(&bench), bench.dir.0.join("aside"));
    std::fs::rename(&path, &aside).unwrap();
    // A directory in its place: whoever reads it gets an error that is not its absence.
    std::fs::create_dir(&path).unwrap();
    for _ in 0..10 {
        bench.wait(Duration::from_secs(2));
    }
    assert_eq!((bench.counts().lost(), bench.counts().waiting()), (0, 5));
    std::fs::remove_dir(&path).unwrap();
    std::fs::rename(&aside, &path).unwrap();
    bench.wait(Duration::from_secs(2));
    assert_eq!(double.0.lock().order, names("op", 5));
    assert_eq!((bench.counts().lost(), bench.counts().waiting()), (0, 0));
}

// R-L7: one that never can be read is lost row by row, and holds nothing up for ever.
#[test]
fn a_segment_that_is_gone_is_counted_by_its_rows() {
    for is_there in [false, true] {
        let double = Double::default();
        let mut bench = waiting(&double, 5);
        let path = segment(&bench);
        std::fs::remove_file(&path).unwrap();
        if is_there {
            std::fs::create_dir(&path).unwrap();
        }
        for _ in 0..400 {
            bench.wait(Duration::from_secs(2));
        }
        assert_eq!((bench.counts().lost(), bench.counts().waiting()), (10, 0));
        assert_eq!(double.0.lock().order.len(), 0);
    }
}

/// Ends a process that has spooled, as a kill does, and starts the next one in its place.
fn next(old: Bench, double: &Double) -> Bench {
    let Bench { dir, parts, .. } = old;
    drop(parts);
    Bench::in_dir(dir, double.clone(), false, MIB)
}

// R-L6 R-L7: the next process does not throw away what it cannot read now, nor settle what it belongs to.
#[test]
fn what_a_dead_process_left_outlives_an_error_of_the_disk() {
    let double = Double::default();
    let old = waiting(&double, 5);
    let (path, aside) = (segment(&old), old.dir.0.join("aside"));
    std::fs::rename(&path, &aside).unwrap();
    std::fs::create_dir(&path).unwrap();
    let mut new = next(old, &double);
    new.settle();
    new.wait(Duration::from_secs(60));
    assert_eq!(abandons(&double), 0);
    std::fs::remove_dir(&path).unwrap();
    std::fs::rename(&aside, &path).unwrap();
    new.wait(Duration::from_secs(10));
    assert_eq!(double.0.lock().order, names("op", 5));
    assert_eq!((new.counts().lost(), abandons(&double)), (0, 1));
}

// R-L7: what is damaged in it is counted.
#[test]
fn damage_in_what_a_dead_process_left_is_counted() {
    let double = Double::default();
    let old = waiting(&double, 5);
    let path = segment(&old);
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[20] ^= 1;
    // And a torn end, which is not.
    bytes.extend_from_slice(&[200, 0, 0, 0, 1, 2, 3]);
    std::fs::write(&path, bytes).unwrap();
    let mut new = next(old, &double);
    new.settle();
    assert_eq!(double.0.lock().order, names("op", 5)[1..]);
    assert_eq!(new.counts().lost(), 1);
}

/// Names the directory in the process whose disk takes nothing.
const FULL_DISK: &str = "RONDO_TEST_FULL_DISK";

// R-L7: a full disk is not filled with empty files.
#[test]
fn a_disk_that_takes_nothing_gets_no_files() {
    let name = "store_outages::a_disk_that_takes_nothing_gets_no_files";
    let Some(dir) = std::env::var_os(FULL_DISK) else {
        // The limit is the whole process's, so this test runs once more in one of its own.
        let dir = Dir::new();
        let done = Command::new("sh")
            .args(["-c", "trap '' XFSZ; ulimit -f 0; exec \"$@\"", "sh"])
            .arg(std::env::current_exe().unwrap())
            .args(["--exact", name])
            .env(FULL_DISK, &dir.0)
            .output()
            .unwrap();
        let told = String::from_utf8_lossy(&done.stdout);
        assert!(done.status.success(), "{told}");
        assert!(told.contains("1 passed"), "{told}");
        return;
    };
    let counts = Arc::new(Counts::default());
    let dir = PathBuf::from(dir);
    for sync in [Sync::Later, Sync::Now] {
        let mut spool = Spool::new(dir.clone(), MIB, sync, Arc::clone(&counts));
        for _ in 0..10 {
            let pieces = [Piece::Usage(usage(1))];
            let (taken, error) = spool.append(&pieces).unwrap_err();
            assert!(matches!(error, SpoolError::Disk(_)), "{error}");
            assert_eq!(taken, 0);
            let _ = spool.prepend(&pieces).unwrap_err();
        }
        assert!(spool.is_empty());
        assert_eq!(std::fs::read_dir(&dir).unwrap().count(), 0);
    }
}

// R-L7: what a full spool cannot take is not encoded again and again.
#[test]
fn a_full_spool_is_seen_at_the_first_piece_that_does_not_fit() {
    let dir = Dir::new();
    let counts = Arc::new(Counts::default());
    let mut spool = Spool::new(dir.0.clone(), 1_000, Sync::Later, counts);
    let pieces: Vec<Piece> = (0..10_000)
        .map(|number| Piece::Usage(usage(number)))
        .collect();
    let mut seen = 0;
    let put = spool.prepend(pieces.iter().inspect(|_| seen += 1));
    assert!(matches!(put, Err(SpoolError::Full)));
    assert!(seen < 100, "{seen}");
    assert!(spool.is_empty());
    spool.prepend(&pieces[..5]).unwrap();
}

// R-L7: a broken disk is offered the records again after a pause.
#[test]
fn a_broken_disk_is_asked_again_after_a_pause() {
    let double = Double::default();
    let mut bench = Bench::new(double.clone(), false, MIB);
    bench.settle();
    double.0.lock().away = true;
    let spool = bench.dir.0.join("spool");
    std::fs::write(&spool, "no directory").unwrap();
    bench.now += Duration::from_secs(10);
    let _ = bench.step();
    // Long enough away that the next try is later than the pause.
    while !matches!(bench.step(), Step::Wait(time) if time > Duration::from_secs(4)) {
        bench.now += Duration::from_millis(500);
    }
    bench.run(names("op", 5));
    bench.collect();
    let _ = bench.step();
    std::fs::remove_file(&spool).unwrap();
    bench.now += Duration::from_millis(25);
    let _ = bench.step();
    assert_eq!(bench.spooled(), 0);
    bench.now += Duration::from_secs(1);
    let _ = bench.step();
    assert_eq!(bench.spooled(), 1);
    double.0.lock().away = false;
    bench.wait(Duration::from_secs(20));
    assert_eq!(double.0.lock().order, names("op", 5));
}

// R-L7: what neither store nor disk took at the end is lost, and counted.
#[test]
fn what_the_end_can_put_nowhere_is_counted() {
    let double = Double::default();
    double.0.lock().away = true;
    let dir = Dir::new();
    let book = Arc::new(Book::new(Some(Outbox::default())));
    let boots = Boots::enter(&dir.0).unwrap();
    let boot_id = Arc::clone(&boots.own().boot_id);
    let recording = Recording::start(Setup {
        book: Arc::clone(&book),
        store: Box::new(double),
        is_open: false,
        boots,
        habits: Habits {
            keep: LEASE,
            strict: false,
        },
        spool_bytes_max: 0,
    });
    let recording = recording.unwrap();
    World::of(book, &boot_id).run(1, "op", &[Does::Answer]);
    recording.finish(Duration::from_secs(60));
    let counts = recording.counts();
    assert!(counts.lost() >= 2, "{counts:?}");
    assert_eq!(counts.waiting(), 0);
}

// R-L7: what did not fit into the spool is younger than what did, and is written after it.
#[test]
fn what_did_not_fit_is_written_after_what_did() {
    let double = Double::default();
    double.0.lock().away = true;
    let mut bench = Bench::new(double.clone(), false, 6_000);
    let mut expected = Vec::new();
    for round in 0..30 {
        let names = names(&format!("r{round:02}"), 2);
        expected.extend(names.clone());
        bench.run(names);
        bench.collect();
        bench.now += Duration::from_millis(25);
        let _ = bench.step();
    }
    assert!(bench.spooled() > 0);
    assert_eq!((bench.counts().waiting(), bench.counts().lost()), (60, 0));
    double.0.lock().away = false;
    bench.now += Duration::from_secs(20);
    let _ = bench.step();
    // What comes meanwhile goes behind all of it.
    bench.run(names("late", 3));
    bench.collect();
    expected.extend(names("late", 3));
    bench.settle();
    assert_eq!(double.0.lock().order, expected);
    let counts = bench.counts();
    assert_eq!((counts.waiting(), counts.spool_bytes()), (0, 0));
}

// R-L7: what a living process spooled counts as long as it is there, and no longer.
#[test]
fn the_spool_of_a_living_process_is_measured_again() {
    let away = Double::default();
    let mut old = waiting(&away, 20);
    let held = old.counts().spool_bytes();
    assert!(held > 0);
    let mut new = Bench::in_dir(Dir(old.dir.0.clone()), Double::default(), false, MIB);
    new.settle();
    assert_eq!(new.counts().spool_bytes(), held);
    old.wait(Duration::from_secs(20));
    assert_eq!(old.spooled(), 0);
    new.wait(Duration::from_secs(10));
    assert_eq!(new.counts().spool_bytes(), 0);
    // And the other way: what it spools later counts as well.
    away.0.lock().away = true;
    old.now += Duration::from_secs(10);
    old.run(names("more", 20));
    old.collect();
    let _ = old.step();
    new.wait(Duration::from_secs(10));
    assert_eq!(new.counts().spool_bytes(), old.counts().spool_bytes());
    assert!(new.counts().spool_bytes() > 0);
    std::mem::forget(new.dir);
}

// The server's clock says what is old, and one that jumps ahead deletes nothing that is not.
#[test]
fn what_is_old_is_told_by_the_stores_clock() {
    const DAY: i64 = 86_400_000_000;
    let store = Double::default();
    let mut bench = Bench::new(store.clone(), false, MIB);
    let later = START + 500 * DAY;
    for (told, expected) in [
        (None, START - DAY),
        (Some(START - 7 * DAY), START - 8 * DAY),
        (Some(later), START - 8 * DAY + 60_000_000),
    ] {
        store.0.lock().clock = told.map(WallTime::from_unix_micros);
        bench.settle();
        let pruned = store.0.lock().pruned.last().copied();
        assert_eq!(pruned, Some(WallTime::from_unix_micros(expected)));
        bench.now += Duration::from_secs(60);
    }
}

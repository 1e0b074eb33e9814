//! Records on disk: what the book is collected into, and how it gets to a store without a request waiting for it.
//!
//! A collector takes from the book what changed since it last looked, every [`COLLECT_EVERY`]. A writer takes that from a short queue and
//! writes it to the store; when it cannot keep up, or the store is away, the collections go to the spool instead, and from there to the
//! store later. Not here: what a record is (`ledger/`), when one is made. Invariants: no request waits for a store (R-L7), in `strict` for a
//! bounded time for its own disk; what is not kept is counted; terminal rows are never undone (each store sees to that itself).

mod age;
mod boots;
pub mod counts;
mod line;
pub mod look;
pub mod postgres;
pub mod spool;
pub mod sqlite;
mod strict;
mod writer;

pub use boots::{Boots, Claim};
pub use counts::Counts;
pub use strict::{STRICT_WAIT_MAX, Strict};
pub use writer::{Habits, Step, Writer};

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::Builder;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::core::time::WallTime;
use crate::ledger::Book;
use crate::ledger::book::Which;
use crate::ledger::store::Store;
use line::{Hand, Line};
use spool::{Spool, Sync};
use strict::Bell;

/// Time between two collections. Four of them are the most that a killed process can lack: two in which the record of a send becomes ripe,
/// and two on its way (see `line`). That leaves some room up to a tenth of a second, which is what is promised.
pub const COLLECT_EVERY: Duration = Duration::from_millis(20);
/// Time that the end of a process waits for operations that its runtimes are dropping.
const DROPS_MAX: Duration = Duration::from_millis(250);
/// Time for the records when recording is dropped without having been finished.
const DROP_MAX: Duration = Duration::from_secs(1);
/// How often it looks.
const DROPS_EVERY: Duration = Duration::from_millis(5);

/// What recording is made from.
pub struct Setup {
    /// The records.
    pub book: Arc<Book>,
    /// Where they go.
    pub store: Box<dyn Store>,
    /// Whether the store was opened already.
    pub is_open: bool,
    /// This process.
    pub boots: Boots,
    /// How the writer goes about it.
    pub habits: Habits,
    /// Bytes that all spools of this installation hold at most.
    pub spool_bytes_max: u64,
}

/// The parts, not yet running. A test turns them by hand.
pub struct Parts {
    /// Takes from the book.
    pub collector: Collector,
    /// Gives to the store.
    pub writer: Writer,
    line: Arc<Line>,
    bell: Arc<Bell>,
}

impl Parts {
    /// Puts them together.
    pub fn new(setup: Setup) -> Parts {
        let counts = Arc::new(Counts::default());
        let boots = &setup.boots;
        counts.others_spool(boots.spooled_bytes());
        let sync = if setup.habits.strict {
            Sync::Now
        } else {
            Sync::Later
        };
        let own = boots.spool_of(&boots.own().boot_id);
        let spool = Spool::new(own, setup.spool_bytes_max, sync, Arc::clone(&counts));
        let line = Arc::new(Line::new(spool, Arc::clone(&counts)));
        let bell = Arc::new(Bell::default());
        let strict = setup.habits.strict.then(|| {
            let strict = Strict::new(Arc::clone(&bell), counts);
            Arc::new(strict)
        });
        let mut writer = Writer::new(setup.store, Arc::clone(&line), setup.boots, setup.habits);
        if setup.is_open {
            writer.opened();
        }
        Parts {
            collector: Collector {
                book: setup.book,
                line: Arc::clone(&line),
                strict,
            },
            writer,
            line,
            bell,
        }
    }

    /// What is counted.
    pub fn counts(&self) -> Arc<Counts> {
        Arc::clone(&self.line.counts)
    }
}

/// Takes from the book what changed.
pub struct Collector {
    book: Arc<Book>,
    line: Arc<Line>,
    strict: Option<Arc<Strict>>,
}

impl Collector {
    /// One collection of many. What may end within the next moment is left to the next one, unless somebody waits for it, or this one is late
    /// and what it finds may be old.
    fn look(&self, since_last: Duration) {
        if self.strict.is_some() || since_last > COLLECT_EVERY * 5 / 4 {
            return self.collect();
        }
        let pieces = self.book.collect_open(Which::Ripe);
        self.line.push(pieces, Hand::Over);
    }

    /// One collection of all there is.
    pub fn collect(&self) {
        let Some(strict) = &self.strict else {
            self.line.push(self.book.collect(), Hand::Over);
            return;
        };
        let asked = strict.asked();
        let on_disk = self.line.push(self.book.collect(), Hand::ToSpool);
        strict.publish(asked, on_disk);
    }
}

/// Recording that runs: two threads, which end with it.
pub struct Recording {
    book: Arc<Book>,
    counts: Arc<Counts>,
    strict: Option<Arc<Strict>>,
    line: Arc<Line>,
    bell: Arc<Bell>,
    stop: Arc<Stop>,
    ends: Mutex<Option<Ends>>,
}

#[derive(Debug, Default)]
struct Stop {
    collector: AtomicBool,
    writer: AtomicBool,
}

/// Tell that a thread has ended.
struct Ends {
    collector: Receiver<()>,
    /// Whether it wrote all.
    writer: Receiver<bool>,
}

impl std::fmt::Debug for Recording {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Recording")
            .field("counts", &self.counts)
            .finish_non_exhaustive()
    }
}

impl Recording {
    /// Starts the two threads.
    pub fn start(setup: Setup) -> io::Result<Recording> {
        let book = Arc::clone(&setup.book);
        let Parts {
            collector,
            mut writer,
            line,
            bell,
        } = Parts::new(setup);
        let (counts, strict) = (Arc::clone(&line.counts), collector.strict.clone());
        let stop = Arc::new(Stop::default());
        let (collected, collector_ends) = sync_channel(1);
        let (wrote, writer_ends) = sync_channel(1);
        let (its_bell, its_stop) = (Arc::clone(&bell), Arc::clone(&stop));
        Builder::new()
            .name("rondo-collect".to_owned())
            .spawn(move || {
                let mut last = Instant::now();
                while !its_stop.collector.load(Ordering::Acquire) {
                    its_bell.wait(COLLECT_EVERY);
                    let now = Instant::now();
                    collector.look(now.saturating_duration_since(last));
                    last = now;
                }
                collector.collect();
                let _ = collected.send(());
            })?;
        let (its_line, its_stop) = (Arc::clone(&line), Arc::clone(&stop));
        Builder::new()
            .name("rondo-store".to_owned())
            .spawn(move || {
                while !its_stop.writer.load(Ordering::Acquire) {
                    match writer.step(Instant::now(), wall()) {
                        Step::Again => {}
                        Step::Wait(time) => its_line.wait(time),
                    }
                }
                let _ = wrote.send(writer.finish(Instant::now(), wall()));
            })?;
        Ok(Recording {
            book,
            counts,
            strict,
            line,
            bell,
            stop,
            ends: Mutex::new(Some(Ends {
                collector: collector_ends,
                writer: writer_ends,
            })),
        })
    }

    /// What is counted.
    pub fn counts(&self) -> &Arc<Counts> {
        &self.counts
    }

    /// Where sends wait for their records, if they do.
    pub fn strict(&self) -> Option<&Arc<Strict>> {
        self.strict.as_ref()
    }

    /// Collects and writes everything, within the time; what is not written by then is in the spool, for the next start. Called again, it
    /// returns when the first call has.
    pub fn finish(&self, within: Duration) {
        let mut ends = self.ends.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(ends) = ends.take() else { return };
        let due = Instant::now() + within;
        // Operations that the runtimes drop settle in that moment, on threads that nobody waits for.
        let drops = Instant::now() + DROPS_MAX.min(within);
        while self.book.open() > 0 && Instant::now() < drops {
            let _ = ends.collector.recv_timeout(DROPS_EVERY);
        }
        self.stop.collector.store(true, Ordering::Release);
        self.bell.ring();
        let left = || due.saturating_duration_since(Instant::now());
        let collected = ends.collector.recv_timeout(left());
        self.stop.writer.store(true, Ordering::Release);
        self.line.ring();
        let written = ends.writer.recv_timeout(left());
        if matches!(collected, Err(RecvTimeoutError::Timeout)) {
            log::error!(target: "rondo::ledger", "the last records were not collected in time");
        }
        let why = match written {
            Ok(true) => return,
            Ok(false) => "the store is away",
            Err(_) => "the store was too slow",
        };
        match self.line.rescue() {
            Ok(()) => {
                log::warn!(target: "rondo::ledger", "{why}: the last records wait on disk for the next start")
            }
            Err(error) => {
                log::error!(target: "rondo::ledger", "{why}, and the last records are lost: {error}")
            }
        }
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        // Whoever forgot to finish has it done, so that the threads end.
        self.finish(DROP_MAX);
    }
}

/// Now, for records.
fn wall() -> WallTime {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    WallTime::from_unix_micros(i64::try_from(since.as_micros()).unwrap_or(i64::MAX))
}

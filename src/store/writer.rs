//! The one who writes: takes what was collected, writes it to the store, and in between beats, settles what dead processes left, and deletes
//! what is old.
//!
//! Not here: threads and clocks. [`Writer::step`] is told the time and does one thing. Invariants: what the store does not take now is on
//! disk or in the queue before the step ends; what is dropped is counted; live records go before the past.

use std::collections::VecDeque;
use std::io::ErrorKind;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rand::Rng;

use super::age::Age;
use super::boots::{Boots, Claim};
use super::line::{Line, Seldom, Work};
use super::spool::segments_in;
use crate::core::time::WallTime;
use crate::ledger::spool::decode;
use crate::ledger::store::{Boot, BootLock, HEARTBEAT, LEASE, Piece, Store, StoreError, is_dead};

/// Pieces of one transaction. Large enough that its commit costs little beside them, small enough that nothing else waits long.
const PIECES_PER_WRITE: usize = 512;
/// Rows of a dead process that one transaction settles.
const ABANDON_ROWS: u32 = 5_000;
/// Operations that one transaction deletes.
const PRUNE_OPERATIONS: u32 = 500;
/// Pause between two deletions while more is due: ten times what a busy gateway adds can go in that time.
const PRUNE_PAUSE: Duration = Duration::from_millis(20);
/// Time between two looks for what is old.
const PRUNE_EVERY: Duration = Duration::from_secs(60);
/// Time between two looks for processes that died.
const LOOK_EVERY: Duration = Duration::from_secs(10);
/// First pause after a failure of the store.
const BACKOFF_MIN: Duration = Duration::from_millis(100);
/// Longest pause. A store that comes back is noticed this much later at most.
const BACKOFF_MAX: Duration = Duration::from_secs(10);
/// Time between two looks into the spool when everything goes through it: segments are then few and not tiny.
const SEGMENT_PAUSE: Duration = Duration::from_millis(100);

/// Pause before what the disk did not take is offered to it again.
const GIVE_BACK_PAUSE: Duration = Duration::from_secs(1);
/// Pause before a segment that could not be read is read again.
const UNREAD_PAUSE: Duration = Duration::from_secs(1);
/// How often that is done. Files that ran out are back within minutes; a broken sector must not hold up for ever what stands behind it.
const UNREAD_MAX: u32 = 300;

/// How the writer goes about it.
#[derive(Debug, Clone, Copy)]
pub struct Habits {
    /// Age at which operations are deleted.
    pub keep: Duration,
    /// Whether every piece comes through the spool.
    pub strict: bool,
}

/// What follows a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// There is more to do.
    Again,
    /// Nothing for so long, unless something is handed over.
    Wait(Duration),
}

/// Pieces on their way to the store.
#[derive(Debug)]
struct Job {
    pieces: Arc<Vec<Piece>>,
    done: usize,
    from: From,
}

#[derive(Debug)]
enum From {
    Queue,
    Segment(u64),
}

/// A process that ended without saying so.
#[derive(Debug)]
struct Dead {
    boot: Boot,
    /// What it spooled and is not written yet.
    segments: VecDeque<PathBuf>,
    reading: Option<(Vec<Piece>, usize)>,
    /// Its lock, if this machine has it. Without it only its silence spoke.
    claim: Option<Claim>,
}

/// The writer.
pub struct Writer {
    store: Box<dyn Store>,
    line: Arc<Line>,
    boots: Boots,
    habits: Habits,
    is_open: bool,
    retry_at: Option<Instant>,
    backoff: Duration,
    /// When the disk is offered again what it did not take.
    give_back_at: Option<Instant>,
    job: Option<Job>,
    dead: VecDeque<Dead>,
    beat_at: Option<Instant>,
    look_at: Option<Instant>,
    /// From when on silence speaks: before, nobody may have been able to beat. `None` while the store is away.
    lease_from: Option<Instant>,
    prune_at: Option<Instant>,
    age: Age,
    segment_at: Option<Instant>,
    /// How often the oldest segment could not be read.
    unread: u32,
    said: Seldom,
    refused: Seldom,
    unreadable: Seldom,
}

impl Writer {
    pub(super) fn new(
        store: Box<dyn Store>,
        line: Arc<Line>,
        boots: Boots,
        habits: Habits,
    ) -> Writer {
        Writer {
            store,
            line,
            boots,
            habits,
            is_open: false,
            retry_at: None,
            backoff: BACKOFF_MIN,
            give_back_at: None,
            job: None,
            dead: VecDeque::new(),
            beat_at: None,
            look_at: None,
            lease_from: None,
            prune_at: None,
            age: Age::default(),
            segment_at: None,
            unread: 0,
            said: Seldom::default(),
            refused: Seldom::default(),
            unreadable: Seldom::default(),
        }
    }

    /// The store was opened before.
    pub(super) fn opened(&mut self) {
        self.is_open = true;
    }

    /// Does one thing that is due.
    pub fn step(&mut self, now: Instant, wall: WallTime) -> Step {
        if !self.is_open && !self.reopen(now) {
            let wait = self
                .retry_at
                .map_or(BACKOFF_MIN, |at| at.saturating_duration_since(now));
            return Step::Wait(wait);
        }
        let _ = self.lease_from.get_or_insert(now + LEASE);
        let done = self
            .beat(now)
            .and_then(|()| self.write(now))
            .and_then(|wrote| {
                let tended = self.tend(now, wall, wrote)?;
                Ok(wrote || tended)
            });
        match done {
            Ok(true) => Step::Again,
            Ok(false) => Step::Wait(self.until_due(now)),
            Err(error) => {
                self.failed(now, &error);
                Step::Again
            }
        }
    }

    /// Writes everything that is left, settles what this process leaves open, and closes the store. Whether nothing is left.
    pub(super) fn finish(&mut self, now: Instant, wall: WallTime) -> bool {
        match self.write_all(now, wall) {
            Ok(()) => true,
            Err(error) => {
                self.failed(now, &error);
                false
            }
        }
    }

    fn write_all(&mut self, now: Instant, wall: WallTime) -> Result<(), StoreError> {
        let own = self.boots.own().clone();
        if !self.is_open {
            self.store.open(&own)?;
            self.is_open = true;
        }
        self.segment_at = None;
        // Ends: what cannot be read is no write, and nobody hands over any more.
        while self.write(now)? {
            self.segment_at = None;
        }
        if self.line.waits().1 {
            return Err(StoreError::Unavailable(
                "a segment of the spool cannot be read".into(),
            ));
        }
        // What is pending now was cut by the end of this process.
        while self.store.abandon(&own, wall, ABANDON_ROWS)? > 0 {}
        self.store.close(&own)?;
        self.boots.forget(&own.boot_id);
        Ok(())
    }

    fn reopen(&mut self, now: Instant) -> bool {
        if self.retry_at.is_some_and(|at| now < at) {
            if self.give_back_at.is_none_or(|at| now >= at) {
                self.give_back(&[], now);
            }
            return false;
        }
        match self.store.open(self.boots.own()) {
            Ok(()) => {
                if self.retry_at.take().is_some() {
                    log::info!(target: "rondo::ledger", "the store of records is back");
                }
                self.is_open = true;
                self.backoff = BACKOFF_MIN;
                self.said = Seldom::default();
                true
            }
            Err(error) => {
                self.failed(now, &error);
                false
            }
        }
    }

    /// The store failed: what is in memory goes to disk, and the next try comes after a pause.
    fn failed(&mut self, now: Instant, error: &StoreError) {
        self.line.counts.fail();
        if self.said.is_due(now) {
            log::error!(target: "rondo::ledger", "the store of records is away, they wait for it: {error}");
        }
        self.is_open = false;
        // Whoever seemed dead by silence alone is judged anew.
        self.lease_from = None;
        self.dead.retain(|dead| dead.claim.is_some());
        let queued = |job: &mut Job| matches!(job.from, From::Queue);
        let job = self.job.take_if(queued);
        self.give_back(job.as_ref().map_or(&[], Job::rest), now);
        let half = self.backoff / 2;
        let jitter = rand::rng().random_range(Duration::ZERO..=half);
        self.retry_at = Some(now + half + jitter);
        self.backoff = self.backoff.saturating_mul(2).min(BACKOFF_MAX);
    }

    fn give_back(&mut self, rest: &[Piece], now: Instant) {
        let is_on_disk = self.line.give_back(rest);
        self.give_back_at = (!is_on_disk).then(|| now + GIVE_BACK_PAUSE);
    }

    fn beat(&mut self, now: Instant) -> Result<(), StoreError> {
        if self.beat_at.is_none_or(|at| now >= at) {
            self.store.beat(self.boots.own())?;
            self.beat_at = Some(now + HEARTBEAT);
        }
        Ok(())
    }

    /// Writes the next pieces. Whether there were any.
    fn write(&mut self, now: Instant) -> Result<bool, StoreError> {
        if self.job.is_none() {
            self.job = self.next_job(now);
        }
        let Some(job) = self.job.as_mut() else {
            return Ok(false);
        };
        let rest = job.rest();
        let next = rest.get(..PIECES_PER_WRITE).unwrap_or(rest);
        let count = next.len();
        if count > 0 {
            write_or_split(&mut *self.store, &self.line, next, &mut self.refused, now)?;
        }
        self.line.counts.leave(count);
        job.done = job.done.saturating_add(count);
        if job.rest().is_empty() {
            match job.from {
                From::Queue => self.line.written(),
                From::Segment(number) => self.line.done_with(number),
            }
            self.job = None;
        }
        Ok(true)
    }

    fn next_job(&mut self, now: Instant) -> Option<Job> {
        let (queued, _) = self.line.waits();
        let paced = self.segment_at.is_some_and(|at| now < at);
        if paced && !queued {
            return None;
        }
        match self.line.take()? {
            Work::Batch(pieces) => Some(Job {
                pieces,
                done: 0,
                from: From::Queue,
            }),
            Work::Segment(number) => {
                self.segment_at = self.habits.strict.then_some(now + SEGMENT_PAUSE);
                let pieces = self.read(number, now)?;
                Some(Job {
                    pieces: Arc::new(pieces),
                    done: 0,
                    from: From::Segment(number),
                })
            }
        }
    }

    /// The pieces of a segment of this process; `None` when it cannot be read now. What can never be read is lost.
    fn read(&mut self, number: u64, now: Instant) -> Option<Vec<Piece>> {
        let error = match self.line.read(number) {
            Ok(bytes) => {
                self.unread = 0;
                let read = decode(&bytes);
                self.line.counts.lose(read.damaged);
                let damaged = usize::try_from(read.damaged).unwrap_or(usize::MAX);
                self.line.counts.leave(damaged);
                return Some(read.pieces);
            }
            Err(error) => error,
        };
        if error.kind() != ErrorKind::NotFound && self.unread < UNREAD_MAX {
            self.unread = self.unread.saturating_add(1);
            self.segment_at = Some(now + UNREAD_PAUSE);
            if self.unreadable.is_due(now) {
                log::error!(target: "rondo::ledger", "a segment of the spool cannot be read now, it is tried again: {error}");
            }
            return None;
        }
        log::error!(target: "rondo::ledger", "a segment of the spool cannot be read, its records are lost: {error}");
        self.unread = 0;
        self.line.lose_segment(number);
        Some(Vec::new())
    }

    /// One step of what is not urgent. Whether anything was done.
    fn tend(&mut self, now: Instant, wall: WallTime, busy: bool) -> Result<bool, StoreError> {
        if self.look_at.is_none_or(|at| now >= at) {
            self.look(now)?;
            self.look_at = Some(now + LOOK_EVERY);
            return Ok(true);
        }
        if let Some(mut dead) = self.dead.pop_front() {
            match self.bury(&mut dead, now, wall) {
                Ok(true) => {}
                Ok(false) => self.dead.push_front(dead),
                Err(error) => {
                    self.dead.push_front(dead);
                    return Err(error);
                }
            }
            return Ok(true);
        }
        if !busy && self.prune_at.is_none_or(|at| now >= at) {
            let keep = i64::try_from(self.habits.keep.as_micros()).unwrap_or(i64::MAX);
            let today = self.age.now(now, self.store.clock(wall)?);
            let before = today.unix_micros().saturating_sub(keep);
            let before = WallTime::from_unix_micros(before);
            let gone = self.store.prune(before, PRUNE_OPERATIONS)?;
            let more = gone >= u64::from(PRUNE_OPERATIONS);
            self.prune_at = Some(now + if more { PRUNE_PAUSE } else { PRUNE_EVERY });
        }
        Ok(false)
    }

    /// Looks for processes that ended without saying so.
    fn look(&mut self, now: Instant) -> Result<(), StoreError> {
        let silence_speaks = self.lease_from.is_some_and(|from| now >= from);
        self.measure();
        let own = self.boots.own().clone();
        for boot_id in self.boots.spooled() {
            let instance = Arc::clone(&own.instance);
            self.take_over(Boot { boot_id, instance }, true);
        }
        for other in self.store.others(&own)? {
            let lock = self.boots.look(&other);
            let is_proof = lock == BootLock::Free || silence_speaks;
            if is_proof && is_dead(&other, lock) {
                self.take_over(other.boot, lock == BootLock::Free);
            }
        }
        Ok(())
    }

    /// What others spool counts towards the bound as it is now: they grow, shrink and bury each other.
    fn measure(&self) {
        self.line.counts.others_spool(self.boots.spooled_bytes());
    }

    fn take_over(&mut self, boot: Boot, is_here: bool) {
        if self.dead.iter().any(|dead| dead.boot == boot) {
            return;
        }
        let claim = is_here.then(|| self.boots.claim(&boot.boot_id)).flatten();
        if is_here && claim.is_none() {
            return;
        }
        let segments = segments_in(&self.boots.spool_of(&boot.boot_id)).unwrap_or_default();
        log::info!(
            target: "rondo::ledger",
            "settling what boot {} left: {} spooled segments, and its pending rows",
            boot.boot_id,
            segments.len()
        );
        self.dead.push_back(Dead {
            boot,
            segments: segments.into_iter().map(|(path, _)| path).collect(),
            reading: None,
            claim,
        });
    }

    /// One step of settling what a dead process left: first what it spooled, then its pending rows. Whether that was all
    /// for now.
    fn bury(&mut self, dead: &mut Dead, now: Instant, wall: WallTime) -> Result<bool, StoreError> {
        if let Some((pieces, done)) = &mut dead.reading {
            let rest = pieces.get(*done..).unwrap_or_default();
            let next = rest.get(..PIECES_PER_WRITE).unwrap_or(rest);
            if !next.is_empty() {
                let count = next.len();
                write_or_split(&mut *self.store, &self.line, next, &mut self.refused, now)?;
                *done = done.saturating_add(count);
                return Ok(false);
            }
            dead.reading = None;
            if let Some(path) = dead.segments.pop_front() {
                let _ = std::fs::remove_file(path);
                self.measure();
            }
            return Ok(false);
        }
        if let Some(path) = dead.segments.front() {
            let pieces = match std::fs::read(path) {
                Ok(bytes) => {
                    let read = decode(&bytes);
                    // What a crash cut off was promised to nobody.
                    let torn = u64::from(read.is_torn);
                    self.line.counts.lose(read.damaged.saturating_sub(torn));
                    read.pieces
                }
                Err(error) if error.kind() == ErrorKind::NotFound => Vec::new(),
                Err(error) => {
                    if self.unreadable.is_due(now) {
                        log::error!(target: "rondo::ledger", "{}: {error}; it is tried again", path.display());
                    }
                    // It keeps its segments and its rows, and is found again at the next look.
                    return Ok(true);
                }
            };
            dead.reading = Some((pieces, 0));
            return Ok(false);
        }
        let settled = self.store.abandon(&dead.boot, wall, ABANDON_ROWS)?;
        self.line.counts.abandon(settled);
        if settled == 0 {
            self.boots.forget(&dead.boot.boot_id);
        }
        Ok(settled == 0)
    }

    fn until_due(&self, now: Instant) -> Duration {
        let segment = self.segment_at.filter(|_| self.line.waits().1);
        [self.beat_at, self.look_at, self.prune_at, segment]
            .into_iter()
            .flatten()
            .map(|at| at.saturating_duration_since(now))
            .min()
            .unwrap_or(HEARTBEAT)
    }
}

impl Job {
    fn rest(&self) -> &[Piece] {
        self.pieces.get(self.done..).unwrap_or_default()
    }
}

/// Writes the pieces. When the store refuses them, each half alone, down to the one at fault, which is dropped and counted.
fn write_or_split(
    store: &mut dyn Store,
    line: &Line,
    pieces: &[Piece],
    said: &mut Seldom,
    now: Instant,
) -> Result<(), StoreError> {
    // Halves that are still to be written. Each split halves one, so that there are never more than the bits of a length.
    let mut parts = vec![pieces];
    while let Some(part) = parts.pop() {
        match store.write(part) {
            Ok(_) => part.iter().for_each(|piece| line.counts.written(piece)),
            Err(StoreError::Refused(error)) if part.len() <= 1 => {
                line.counts.lose(part.iter().map(Piece::rows).sum());
                if said.is_due(now) {
                    log::error!(target: "rondo::ledger", "the store refuses a record, which is lost: {error}");
                }
            }
            Err(StoreError::Refused(_)) => {
                let (first, second) = part.split_at_checked(part.len() / 2).unwrap_or((part, &[]));
                parts.push(second);
                parts.push(first);
            }
            Err(error @ StoreError::Unavailable(_)) => return Err(error),
        }
    }
    Ok(())
}

//! Pieces that wait on disk: append-only segments in a directory of this boot's own, read and deleted oldest first.
//!
//! Not here: what an entry looks like ([`crate::ledger::spool`]), when to spool. Invariants: a segment is deleted only when the store has
//! all of it; all spools together never hold more than the bound; a write that failed leaves nothing behind it in the same segment.

use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::counts::Counts;
use super::sqlite::make_private_dir;
use crate::ledger::spool::encode;
use crate::ledger::store::Piece;

/// Bytes after which a segment is closed. Small enough that one fits into memory many times, large enough that files are few.
const SEGMENT_BYTES: usize = 8 << 20;
/// Number of the first segment. Older ones than the oldest can be put in front of it.
const FIRST: u64 = 1 << 32;
/// How segments are called.
const ENDING: &str = "spool";

/// Why pieces were not taken.
#[derive(Debug, thiserror::Error)]
pub enum SpoolError {
    /// The bound is reached.
    #[error("the spool is full")]
    Full,
    /// The disk failed.
    #[error("{0}")]
    Disk(#[from] io::Error),
}

/// Whether what was appended is on the disk itself when the call returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sync {
    /// The system writes it when it likes: it survives this process, not the machine.
    Later,
    /// It survives the machine.
    Now,
}

/// What a segment holds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Held {
    /// Pieces.
    pub pieces: usize,
    /// Rows of these.
    pub rows: u64,
}

#[derive(Debug)]
struct Segment {
    number: u64,
    bytes: u64,
    held: Held,
}

/// The spool of one boot.
#[derive(Debug)]
pub struct Spool {
    dir: PathBuf,
    counts: Arc<Counts>,
    bytes_max: u64,
    sync: Sync,
    segments: VecDeque<Segment>,
    /// The last segment, while it is written to.
    open: Option<File>,
}

impl Spool {
    /// An empty spool in a directory that is made when it is needed.
    pub fn new(dir: PathBuf, bytes_max: u64, sync: Sync, counts: Arc<Counts>) -> Spool {
        Spool {
            dir,
            counts,
            bytes_max,
            sync,
            segments: VecDeque::new(),
            open: None,
        }
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.segments.is_empty()
    }

    /// Puts pieces behind all others. How many were taken is told even when it fails: they stand before those that were not.
    pub fn append(&mut self, pieces: &[Piece]) -> Result<(), (usize, SpoolError)> {
        let mut taken = 0_usize;
        let mut rest = pieces;
        while !rest.is_empty() {
            let (bytes, count) = encoded(rest, self.room());
            if count == 0 {
                return Err((taken, SpoolError::Full));
            }
            let (next, after) = rest.split_at_checked(count).unwrap_or((rest, &[]));
            self.write(&bytes, Held::of(next))
                .map_err(|error| (taken, error.into()))?;
            taken = taken.saturating_add(count);
            rest = after;
        }
        Ok(())
    }

    /// Puts pieces before all others: all of them, or none when there is no room for all.
    pub fn prepend<'a>(
        &mut self,
        pieces: impl IntoIterator<Item = &'a Piece>,
    ) -> Result<(), SpoolError> {
        let mut room = self.room();
        let mut pieces = pieces.into_iter().peekable();
        let mut parts = Vec::new();
        while pieces.peek().is_some() {
            let (mut bytes, mut held) = (Vec::new(), Held::default());
            while bytes.len() < SEGMENT_BYTES
                && let Some(piece) = pieces.next()
            {
                encode(piece, &mut bytes);
                // At the first that does not fit, for this is tried again and again while a lock is held.
                if wide(bytes.len()) > room {
                    return Err(SpoolError::Full);
                }
                held.add(Held::of(std::slice::from_ref(piece)));
            }
            room = room.saturating_sub(wide(bytes.len()));
            parts.push((bytes, held));
        }
        // The last part first, so that each stands before what follows it.
        for (bytes, held) in parts.iter().rev() {
            let number = match self.segments.front() {
                Some(first) => first.number.saturating_sub(1),
                None => FIRST,
            };
            let length = wide(bytes.len());
            let mut file = self.create(number)?;
            if let Err(error) = file.write_all(bytes).and_then(|()| self.settle(&file)) {
                let _ = std::fs::remove_file(self.path(number));
                return Err(error.into());
            }
            self.counts.spool_grew(length);
            self.segments.push_front(Segment {
                number,
                bytes: length,
                held: *held,
            });
        }
        Ok(())
    }

    /// The oldest segment. Nothing is added to it any more.
    pub fn oldest(&mut self) -> Option<u64> {
        if self.segments.len() == 1 {
            self.open = None;
        }
        self.segments.front().map(|segment| segment.number)
    }

    /// Where a segment is.
    pub fn path(&self, number: u64) -> PathBuf {
        self.dir.join(format!("{number:020}.{ENDING}"))
    }

    /// What is in a segment.
    pub fn held(&self, number: u64) -> Held {
        let found = self.segments.iter().find(|one| one.number == number);
        found.map_or(Held::default(), |segment| segment.held)
    }

    /// Deletes a segment, which the store has.
    pub fn remove(&mut self, number: u64) {
        let path = self.path(number);
        if let Err(error) = std::fs::remove_file(&path) {
            log::warn!(target: "rondo::ledger", "{}: {error}", path.display());
        }
        let place = self.segments.iter().position(|one| one.number == number);
        if let Some(gone) = place.and_then(|place| self.segments.remove(place)) {
            self.counts.spool_shrank(gone.bytes);
        }
    }

    fn write(&mut self, bytes: &[u8], held: Held) -> io::Result<()> {
        let length = wide(bytes.len());
        let file = match self.open.take() {
            Some(file) => file,
            None => {
                let number = self
                    .segments
                    .back()
                    .map_or(FIRST, |last| last.number.saturating_add(1));
                let file = self.create(number)?;
                self.segments.push_back(Segment {
                    number,
                    bytes: 0,
                    held: Held::default(),
                });
                file
            }
        };
        let before = self.segments.back().map_or(0, |last| last.bytes);
        let written = (&file).write_all(bytes).and_then(|()| self.settle(&file));
        if let Err(error) = written {
            // What stands there half is cut off, and the next write begins a segment of its own.
            let _ = file.set_len(before);
            self.drop_empty();
            return Err(error);
        }
        self.counts.spool_grew(length);
        if let Some(last) = self.segments.back_mut() {
            last.bytes = last.bytes.saturating_add(length);
            last.held.add(held);
            if last.bytes < wide(SEGMENT_BYTES) {
                self.open = Some(file);
            }
        }
        Ok(())
    }

    /// A last segment that nothing was written to goes, or a full disk would get one more empty file at each try.
    fn drop_empty(&mut self) {
        let Some(last) = self.segments.back().filter(|last| last.bytes == 0) else {
            return;
        };
        if std::fs::remove_file(self.path(last.number)).is_ok() {
            self.segments.pop_back();
        }
    }

    /// Bytes up to the bound.
    fn room(&self) -> u64 {
        self.bytes_max.saturating_sub(self.counts.spool_bytes())
    }

    fn create(&self, number: u64) -> io::Result<File> {
        make_private_dir(&self.dir)?;
        let file = OpenOptions::new()
            .append(true)
            .create_new(true)
            .mode(0o600)
            .open(self.path(number))?;
        if self.sync == Sync::Now {
            // The name has to survive as well as the content.
            let synced = File::open(&self.dir).and_then(|dir| dir.sync_all());
            if let Err(error) = synced {
                // Else the next try would find its name taken.
                let _ = std::fs::remove_file(self.path(number));
                return Err(error);
            }
        }
        Ok(file)
    }

    fn settle(&self, file: &File) -> io::Result<()> {
        match self.sync {
            Sync::Later => Ok(()),
            Sync::Now => file.sync_data(),
        }
    }
}

impl Held {
    fn add(&mut self, more: Held) {
        self.pieces = self.pieces.saturating_add(more.pieces);
        self.rows = self.rows.saturating_add(more.rows);
    }

    fn of(pieces: &[Piece]) -> Held {
        Held {
            pieces: pieces.len(),
            rows: pieces.iter().map(Piece::rows).sum(),
        }
    }
}

/// As many pieces as fill a segment or the room, and how many they are.
fn encoded(pieces: &[Piece], room: u64) -> (Vec<u8>, usize) {
    let mut bytes = Vec::new();
    let mut count = 0_usize;
    for piece in pieces {
        let before = bytes.len();
        encode(piece, &mut bytes);
        if wide(bytes.len()) > room {
            bytes.truncate(before);
            break;
        }
        count = count.saturating_add(1);
        if bytes.len() >= SEGMENT_BYTES {
            break;
        }
    }
    (bytes, count)
}

/// The segments of another boot, oldest first, with their sizes.
pub fn segments_in(dir: &Path) -> io::Result<Vec<(PathBuf, u64)>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir)? {
        let entry = entry?;
        let path = entry.path();
        if path.extension().is_some_and(|ending| ending == ENDING) {
            match entry.metadata() {
                Ok(data) => found.push((path, data.len())),
                // Its writer was done with it.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
    }
    found.sort();
    Ok(found)
}

fn wide(number: usize) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}

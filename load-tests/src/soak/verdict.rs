//! What the soak is judged by: slopes of memory and open files, and the agreement of three books.

use std::collections::HashMap;
use std::io;
use std::path::Path;
use std::sync::atomic::Ordering;

use rusqlite::{Connection, OpenFlags};

use super::{Sample, Seen, lock};

/// Growth of memory over the last two thirds, at most: a part of its mean, and what allocators and page caches move by themselves.
const MEMORY_PART_MAX: f64 = 0.05;
const MEMORY_KIB_MAX: f64 = 4096.0;
/// Growth of open files: the clients come and go, so a part of the mean and a few.
const FILES_PART_MAX: f64 = 0.10;
const FILES_MAX: f64 = 8.0;

/// What the records say.
#[derive(Debug, Default)]
pub struct Book {
    pub operations: u64,
    pub pending: u64,
    pub sends: u64,
    pub attempts: u64,
    pub cancelled: u64,
    /// Operations of which an upstream saw more requests than the record has sends: sent and not accounted for.
    pub unrecorded: u64,
    /// Operations of which it saw fewer although the client stayed.
    pub unseen: u64,
    /// Sends that no upstream saw, of operations whose client left, or whose time ran out.
    pub cut_off: u64,
}

/// Reads the records and holds each operation against what the upstreams saw of it.
pub fn read_records(database: &Path, seen: &Seen) -> io::Result<Book> {
    let read = || -> rusqlite::Result<(Book, HashMap<String, u64>)> {
        let connection = Connection::open_with_flags(database, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
        let mut book = Book::default();
        let count = |sql: &str| {
            connection
                .query_row(sql, [], |row| row.get::<_, i64>(0))
                .map(i64::unsigned_abs)
        };
        let pending = "SELECT (SELECT count(*) FROM operations WHERE state = 'pending') + (SELECT count(*) FROM attempts WHERE state = 'pending')";
        book.pending = count(pending)?;
        book.attempts = count("SELECT count(*) FROM attempts")?;
        let mut sends = HashMap::new();
        let mut statement =
            connection.prepare("SELECT operation_id, sends, state FROM operations")?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            let (id, sent, state): (String, i64, String) = (row.get(0)?, row.get(1)?, row.get(2)?);
            let sent = sent.unsigned_abs();
            book.operations += 1;
            book.sends += sent;
            let reached = lock(&seen.sends).get(&id).copied().unwrap_or(0);
            let was_cut = state == "cancelled" || state == "timed_out";
            book.cancelled += u64::from(state == "cancelled");
            book.unrecorded += u64::from(reached > sent);
            book.unseen += u64::from(reached < sent && !was_cut);
            book.cut_off += if was_cut {
                sent.saturating_sub(reached)
            } else {
                0
            };
            sends.insert(id, sent);
        }
        Ok((book, sends))
    };
    let (mut book, sends) = read().map_err(io::Error::other)?;
    let unknown = lock(&seen.sends)
        .keys()
        .filter(|id| !sends.contains_key(*id))
        .count();
    book.unrecorded += unknown as u64;
    Ok(book)
}

/// Everything that was found.
pub struct Report<'a> {
    pub samples: &'a [Sample],
    pub reloads: u64,
    pub left: Sample,
    pub metrics: &'a str,
    pub book: &'a Book,
    pub ended_well: bool,
}

impl Report<'_> {
    /// Prints it; whether all is well.
    pub fn print(&self, seen: &Seen) -> bool {
        let flat = self.print_slopes();
        let of = |name: &str| sum(self.metrics, name);
        let [begun, answered, left, broken] =
            [&seen.begun, &seen.answered, &seen.left, &seen.broken]
                .map(|count| count.load(Ordering::Relaxed));
        let reached: u64 = lock(&seen.sends).values().sum();
        let (requests, sends) = (of("rondo_requests_total"), of("rondo_upstream_sends_total"));
        let attempts = of("rondo_attempts_total");
        println!(
            "clients: begun {begun}, answered {answered}, left {left}, broken {broken}; reloads {}",
            self.reloads
        );
        println!(
            "gateway: requests {requests}, attempts {attempts}, sends {sends}, seen upstream {reached}"
        );
        println!("records: {:?}", self.book);
        let book = self.book;
        let checks = [
            ("memory and open files are flat", flat),
            (
                "every request has one end and one record",
                requests == book.operations as f64,
            ),
            ("attempts agree", attempts == book.attempts as f64),
            ("sends agree", sends == book.sends as f64),
            ("no send without a record", book.unrecorded == 0),
            (
                "every send of a client that stayed was seen",
                book.unseen == 0,
            ),
            (
                "sends are those that were seen, and those cut off",
                book.sends == reached + book.cut_off,
            ),
            ("nothing is pending", book.pending == 0),
            (
                "nothing is in flight",
                of("rondo_inflight_requests")
                    + of("rondo_exhaustion_waiting")
                    + of("rondo_buffered_bytes")
                    == 0.0,
            ),
            (
                "nothing unexpected, nothing lost",
                of("rondo_unexpected_events_total") + of("rondo_ledger_lost_total") == 0.0,
            ),
            (
                "there was load",
                begun > 100 && answered > 0 && left > 0 && self.reloads > 0,
            ),
            ("the process left when it was told", self.ended_well),
        ];
        for (what, holds) in checks {
            println!("{} {what}", if holds { "ok " } else { "NOT" });
        }
        checks.iter().all(|(_, holds)| *holds)
    }

    fn print_slopes(&self) -> bool {
        let from = self.samples.len() / 3;
        let late = &self.samples[from..];
        let span =
            late.last().map_or(0.0, |last| last.at) - late.first().map_or(0.0, |first| first.at);
        let (memory, memory_mean) = slope(late, |sample| sample.memory);
        let (files, files_mean) = slope(late, |sample| sample.files);
        println!(
            "{} samples, the last two thirds span {span:.0} s",
            self.samples.len()
        );
        println!(
            "memory {memory_mean:.0} KiB, {:+.1} KiB/min, {:+.0} KiB over the span",
            memory * 60.0,
            memory * span
        );
        println!(
            "open files {files_mean:.1}, {:+.3}/min, {:+.1} over the span; {} when idle",
            files * 60.0,
            files * span,
            self.left.files
        );
        memory * span <= memory_mean * MEMORY_PART_MAX + MEMORY_KIB_MAX
            && files * span <= files_mean * FILES_PART_MAX + FILES_MAX
    }
}

/// Slope by least squares, and mean.
fn slope(samples: &[Sample], value: impl Fn(&Sample) -> f64) -> (f64, f64) {
    let count = samples.len().max(1) as f64;
    let at = samples.iter().map(|sample| sample.at).sum::<f64>() / count;
    let mean = samples.iter().map(&value).sum::<f64>() / count;
    let over: f64 = samples
        .iter()
        .map(|sample| (sample.at - at) * (value(sample) - mean))
        .sum();
    let under: f64 = samples.iter().map(|sample| (sample.at - at).powi(2)).sum();
    (if under > 0.0 { over / under } else { 0.0 }, mean)
}

/// The sum of a metric's series; 0 without any.
fn sum(metrics: &str, name: &str) -> f64 {
    let series = metrics.lines().filter(|line| {
        let rest = line.strip_prefix(name);
        rest.is_some_and(|rest| rest.starts_with([' ', '{']))
    });
    series
        .filter_map(|line| line.rsplit_once(' ')?.1.parse::<f64>().ok())
        .sum()
}

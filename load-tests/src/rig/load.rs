//! When requests are sent: closed loop, open loop, bursts, streams, held requests. All are bounded in time.
//!
//! In the open loop a request is due at its own instant whatever happened to the ones before, and its latency counts from there: a stall is
//! charged to every request that was meant to begin during it.

use std::collections::{BTreeMap, VecDeque};
use std::io;

use super::pool::Pool;
use super::sys::now;

/// Nanoseconds of a millisecond and of a second.
pub const MILLI: u64 = 1_000_000;
pub const SECOND: u64 = 1_000 * MILLI;
/// Time for answers that are still to come when the load is over.
const LATE_MAX: u64 = 5 * SECOND;
/// Held requests begin so far apart, so that the gateway's queue of connections is never full.
const HELD_APART: u64 = SECOND / 4000;

/// What came back.
#[derive(Debug, Default)]
pub struct Outcome {
    /// Answers by status.
    pub answers: BTreeMap<u16, u64>,
    /// Answers that broke off.
    pub broken: u64,
    /// Requests without an end when the load was over.
    pub unfinished: u64,
    /// Nanoseconds from the intended start to the last byte, of what was measured.
    pub latencies: Vec<u64>,
    /// Nanoseconds that each event of a stream took.
    pub ages: Vec<u64>,
    /// Answers and seconds after the warm-up, for rates.
    pub counted: u64,
    pub seconds: f64,
}

impl Outcome {
    /// All answers, the warm-up's too: what the processor time of the whole load is divided by.
    pub fn all(&self) -> u64 {
        self.answers.values().sum()
    }

    /// Answers that were not 200.
    pub fn bad(&self) -> u64 {
        self.all() - self.answers.get(&200).copied().unwrap_or(0)
    }

    fn take(&mut self, status: Option<u16>) {
        match status {
            Some(status) => *self.answers.entry(status).or_default() += 1,
            None => self.broken += 1,
        }
    }

    /// What has not ended has taken at least until now.
    fn finish(mut self, pool: &mut Pool) -> Outcome {
        let unfinished = pool.unfinished();
        self.unfinished = unfinished.len() as u64;
        self.latencies
            .extend(unfinished.iter().map(|due| now().saturating_sub(*due)));
        self.ages = std::mem::take(&mut pool.ages);
        self
    }
}

/// Each connection sends its next request as soon as it has the answer, for `warm` and then `length` nanoseconds.
pub fn closed(pool: &mut Pool, connections: usize, warm: u64, length: u64) -> io::Result<Outcome> {
    let mut outcome = Outcome::default();
    for _ in 0..connections {
        let place = pool.open()?;
        pool.start(place, now())?;
    }
    let from = now() + warm;
    let until = from + length;
    let mut busy = connections;
    while busy > 0 && now() < until + LATE_MAX {
        let wait = if now() < until {
            until
        } else {
            until + LATE_MAX
        };
        pool.poll(wait)?;
        let done = std::mem::take(&mut pool.done);
        for one in &done {
            outcome.take(one.status);
            if one.ended >= from && one.ended < until {
                outcome.counted += 1;
                outcome.latencies.push(one.ended - one.due);
            }
            if one.ended < until {
                pool.start(one.place, now())?;
            } else {
                busy -= 1;
            }
        }
    }
    outcome.seconds = length as f64 / SECOND as f64;
    Ok(outcome.finish(pool))
}

/// The instants at which requests are due.
#[derive(Debug)]
pub struct Pacer {
    start: u64,
    step: f64,
    until: u64,
    given: u64,
}

impl Pacer {
    /// `rate` a second from `start` until `until`.
    pub fn new(start: u64, until: u64, rate: f64) -> Pacer {
        Pacer {
            start,
            step: SECOND as f64 / rate,
            until,
            given: 0,
        }
    }

    /// The next instant, whether it has come or not; nothing at the end.
    pub fn next(&self) -> Option<u64> {
        let due = self.start + (self.given as f64 * self.step) as u64;
        (due < self.until).then_some(due)
    }

    /// The next instant, if it has come. Those that nobody asked for in time keep their own.
    pub fn take(&mut self, now: u64) -> Option<u64> {
        let due = self.next().filter(|due| *due <= now)?;
        self.given += 1;
        Some(due)
    }
}

/// `rate` requests a second over kept connections; the ones due before `warm` are not measured.
pub fn open(
    pool: &mut Pool,
    connections: usize,
    rate: f64,
    warm: u64,
    length: u64,
) -> io::Result<Outcome> {
    let mut outcome = Outcome::default();
    let mut idle = VecDeque::with_capacity(connections);
    for _ in 0..connections {
        idle.push_back(pool.open()?);
    }
    let start = now();
    let (from, until) = (start + warm, start + warm + length);
    let (mut pacer, mut queue) = (Pacer::new(start, until, rate), VecDeque::new());
    loop {
        while let Some(due) = pacer.take(now()) {
            queue.push_back(due);
        }
        while let (Some(due), Some(place)) = (queue.front().copied(), idle.front().copied()) {
            queue.pop_front();
            idle.pop_front();
            pool.start(place, due)?;
        }
        let next = pacer.next();
        let over = next.is_none() && queue.is_empty() && idle.len() == connections;
        if over || now() >= until + LATE_MAX {
            break;
        }
        pool.poll(next.unwrap_or(until + LATE_MAX))?;
        for one in pool.done.drain(..) {
            outcome.take(one.status);
            idle.push_back(one.place);
            if one.due >= from {
                outcome.counted += 1;
                outcome.latencies.push(one.ended - one.due);
            }
        }
    }
    outcome.seconds = length as f64 / SECOND as f64;
    // Those that never found a connection have waited as well.
    outcome
        .latencies
        .extend(queue.iter().map(|due| now().saturating_sub(*due)));
    let queued = queue.len() as u64;
    let mut outcome = outcome.finish(pool);
    outcome.unfinished += queued;
    Ok(outcome)
}

/// Every `every` nanoseconds `connections` new connections at once, each with one request; latency counts from the instant of the burst,
/// connecting included.
pub fn burst(pool: &mut Pool, connections: usize, every: u64, length: u64) -> io::Result<Outcome> {
    let mut outcome = Outcome::default();
    let (start, mut bursts) = (now(), 0);
    let mut live = 0;
    loop {
        let due = start + bursts * every;
        let more = due < start + length;
        if more && now() >= due {
            bursts += 1;
            for _ in 0..connections {
                let place = pool.open()?;
                pool.start(place, due)?;
            }
            live += connections;
        } else if (!more && live == 0) || now() >= start + length + LATE_MAX {
            break;
        } else {
            pool.poll(if more { due } else { start + length + LATE_MAX })?;
        }
        let done = std::mem::take(&mut pool.done);
        for one in &done {
            outcome.take(one.status);
            outcome.counted += 1;
            outcome.latencies.push(one.ended - one.due);
            pool.close(one.place);
            live -= 1;
        }
    }
    outcome.seconds = length as f64 / SECOND as f64;
    Ok(outcome.finish(pool))
}

/// `count` streams, opened over `ramp` nanoseconds and read to their ends; `plateau` is called once, when all of them have begun.
pub fn streams(
    pool: &mut Pool,
    count: usize,
    ramp: u64,
    limit: u64,
    plateau: &mut dyn FnMut(),
) -> io::Result<Outcome> {
    let mut outcome = Outcome::default();
    let start = now();
    let (mut opened, mut ended, mut seen) = (0, 0, false);
    while ended < count && now() < start + limit {
        let due = start + ramp * opened as u64 / count.max(1) as u64;
        if opened < count && now() >= due {
            let place = pool.open()?;
            pool.start(place, due)?;
            opened += 1;
            continue;
        }
        pool.poll(if opened < count { due } else { start + limit })?;
        if !seen && pool.begun >= count {
            seen = true;
            plateau();
        }
        let done = std::mem::take(&mut pool.done);
        for one in &done {
            outcome.take(one.status);
            outcome.counted += 1;
            outcome.latencies.push(one.ended - one.due);
            pool.close(one.place);
            ended += 1;
        }
    }
    outcome.seconds = (now() - start) as f64 / SECOND as f64;
    Ok(outcome.finish(pool))
}

/// `count` requests that should not be answered. When all have been sent and `arrived` agrees, or after `limit`, `plateau` is called
/// until it says that it has seen enough.
pub fn hold(
    pool: &mut Pool,
    count: usize,
    limit: u64,
    arrived: &dyn Fn() -> bool,
    plateau: &mut dyn FnMut() -> bool,
) -> io::Result<Outcome> {
    let mut outcome = Outcome::default();
    let start = now();
    let mut opened = 0;
    let mut enough = false;
    while !enough {
        let due = start + HELD_APART * opened as u64;
        if opened < count {
            if now() >= due {
                let place = pool.open()?;
                pool.start(place, due)?;
                opened += 1;
                continue;
            }
            pool.poll(due)?;
        } else {
            pool.poll(now() + 50 * MILLI)?;
            if arrived() || now() > start + limit {
                enough = plateau();
            }
        }
        for one in pool.done.drain(..) {
            outcome.take(one.status);
        }
    }
    outcome.seconds = (now() - start) as f64 / SECOND as f64;
    Ok(outcome)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::rig::http::{chat, post};
    use crate::rig::upstream::{Answer, Upstreams};

    #[test]
    fn latency_counts_from_the_intended_start() {
        let mut pacer = Pacer::new(1000, 1000 + SECOND, 100.0);
        assert_eq!(pacer.take(999), None);
        assert_eq!(pacer.take(1000), Some(1000));
        assert_eq!(
            pacer.take(1000),
            None,
            "the next is due ten milliseconds later"
        );
        // A stall of 95 ms: nine were due in it, each at its own instant.
        let now = 1000 + 95 * MILLI;
        let late: Vec<u64> = std::iter::from_fn(|| pacer.take(now))
            .map(|due| now - due)
            .collect();
        let want: Vec<u64> = (1..=9).map(|step| 95 * MILLI - step * 10 * MILLI).collect();
        assert_eq!(late, want);
        assert_eq!(pacer.next(), Some(1000 + 100 * MILLI));
    }

    #[test]
    fn the_rate_is_kept_to_the_end() {
        let mut pacer = Pacer::new(0, SECOND, 2000.0);
        assert_eq!(std::iter::from_fn(|| pacer.take(u64::MAX)).count(), 2000);
        assert_eq!(pacer.next(), None);
    }

    fn pool(answer: Answer, stream: bool) -> io::Result<(Upstreams, Pool)> {
        let upstreams = Upstreams::start(&[answer])?;
        let port = upstreams.ports.first().map_or(0, |port| port.number);
        let request: Arc<[u8]> = post(port, &chat("m0", 100 << 10, stream), "").into();
        let pool = Pool::new(port, vec![request])?;
        Ok((upstreams, pool))
    }

    #[test]
    fn a_closed_loop_counts_every_answer() -> io::Result<()> {
        let (upstreams, mut pool) = pool(Answer::Json { bytes: 1024 }, false)?;
        let outcome = closed(&mut pool, 4, 0, 50 * MILLI)?;
        let seen = upstreams.ports.iter().map(|port| {
            port.counts
                .requests
                .load(std::sync::atomic::Ordering::Relaxed)
        });
        assert_eq!(outcome.all(), seen.sum::<u64>());
        assert!(
            outcome.counted > 0 && outcome.bad() == 0 && outcome.broken + outcome.unfinished == 0
        );
        Ok(())
    }

    #[test]
    fn an_open_loop_sends_all_that_is_due() -> io::Result<()> {
        let (_upstreams, mut pool) = pool(Answer::Throttle { retry_after: 1 }, false)?;
        let outcome = open(&mut pool, 4, 1000.0, 20 * MILLI, 80 * MILLI)?;
        assert_eq!(
            (outcome.all(), outcome.bad(), outcome.latencies.len()),
            (100, 100, 80)
        );
        Ok(())
    }

    #[test]
    fn streams_are_read_to_their_ends() -> io::Result<()> {
        let (_upstreams, mut pool) = pool(
            Answer::Events {
                count: 3,
                gap_ms: 10,
            },
            true,
        )?;
        let mut seen = 0;
        let outcome = streams(&mut pool, 5, 10 * MILLI, 10 * SECOND, &mut || seen += 1)?;
        assert_eq!((outcome.all(), outcome.ages.len(), seen), (5, 15, 1));
        Ok(())
    }

    #[test]
    fn what_is_never_answered_is_unfinished_and_not_forgotten() -> io::Result<()> {
        let (upstreams, mut pool) = pool(Answer::Hold, false)?;
        let counts = upstreams.ports.first().map(|port| Arc::clone(&port.counts));
        let arrived = || {
            counts
                .as_ref()
                .is_some_and(|c| c.requests.load(std::sync::atomic::Ordering::Relaxed) == 7)
        };
        let outcome = hold(&mut pool, 7, 10 * SECOND, &arrived, &mut || true)?;
        assert_eq!((outcome.all(), pool.unfinished().len()), (0, 7));
        Ok(())
    }
}

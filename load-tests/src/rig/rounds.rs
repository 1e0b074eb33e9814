//! One sample: a load against one system, with what it cost in processor time and memory.
//!
//! Not here: the order of samples (`run`), their meaning (`report`).

use std::io;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::http::{chat, post};
use super::load::{self, MILLI, Outcome, SECOND};
use super::pool::Pool;
use super::process::{Cpu, Memory, busy_seconds, memory};
use super::scenario::{Load, Scenario};
use super::sys::now;
use super::system::System;
use super::upstream::{Answer, Counts, Port};
use crate::report::stats::quantile;

/// Seconds of a load that are not measured, before those that are.
const WARM_SECS: f64 = 0.2;
/// Different requests at most; with more routes an even share of them is asked for.
const REQUESTS_MAX: usize = 256;
/// Time for streams and held requests beyond what the script needs.
const LIMIT: u64 = 60 * SECOND;
/// Readings of memory while requests are held, and the time from one to the next.
const READINGS: u32 = 10;
const READING_EVERY: u64 = 100 * MILLI;
/// Time between the start of a system and the first reading of its memory.
const SETTLE: u64 = SECOND;
/// System calls are counted for so long; the load begins later and ends earlier, so that all of its calls are counted.
const COUNTED_SECS: &str = "1";
const COUNTED_AFTER: u64 = 200 * MILLI;
const COUNTED_FOR: u64 = 500 * MILLI;
/// Open files for everything else than requests that are held.
const FILES_SPARE: u64 = 500;

/// How a load is shortened and bounded.
#[derive(Clone, Copy, Debug)]
pub struct Form {
    /// 1, or less for the short form.
    pub share: f64,
    /// Files that this process may have open.
    pub files: u64,
}

/// What a sample gave.
#[derive(Debug, Default)]
pub struct Sample {
    /// Values by column.
    pub metrics: Vec<(&'static str, f64)>,
    /// Answers that were not what was scripted, and requests without an answer.
    pub bad: u64,
    pub lost: u64,
    /// Cores that others used meanwhile.
    pub others: f64,
    /// Something that a reader must know.
    pub note: Option<String>,
}

/// The requests that a scenario sends to a system.
fn requests(system: &System, scenario: &Scenario, routes: usize) -> Vec<Arc<[u8]>> {
    let body = scenario.load.body();
    let stream = matches!(
        scenario.load,
        Load::Closed { stream: true, .. } | Load::Streams { .. }
    );
    let count = routes.min(REQUESTS_MAX);
    let requests = (0..count).map(|at| {
        let model = format!("m{}", at * routes / count);
        post(system.port, &chat(&model, body, stream), &system.headers).into()
    });
    requests.collect()
}

/// Fills caches, heaps and the upstream's connections, so that the first round is like the others.
pub fn warm(system: &System, scenario: &Scenario, routes: usize) -> io::Result<()> {
    let mut pool = Pool::new(system.port, requests(system, scenario, routes))?;
    let length = (scenario.warm_secs * SECOND as f64) as u64;
    load::closed(&mut pool, 64, 0, length).map(drop)
}

/// Puts the scenario's load on the system once.
pub fn sample(
    system: &System,
    scenario: &Scenario,
    routes: usize,
    upstreams: &[Port],
    form: Form,
) -> io::Result<Sample> {
    let mut pool = Pool::new(system.port, requests(system, scenario, routes))?;
    if matches!(scenario.load, Load::Hold { .. }) {
        // Listening was all that could be seen; workers may come after it.
        wait(SETTLE);
    }
    let ids = system.processes();
    let meter = Meter::start(&ids, upstreams);
    let turn = Turn {
        scenario,
        upstreams,
        form,
        ids: &ids,
        meter,
    };
    let mut sample = Sample::default();
    turn.load(&mut pool, &mut sample)?;
    if ids.is_empty() {
        let of_a_process = |metric: &str| metric.starts_with("CPU") || metric.contains("iB");
        sample.metrics.retain(|(metric, _)| !of_a_process(metric));
    }
    Ok(sample)
}

/// One load, from the reading before it to the reading after it.
struct Turn<'a> {
    scenario: &'a Scenario,
    upstreams: &'a [Port],
    form: Form,
    ids: &'a [u32],
    meter: Meter,
}

impl Turn<'_> {
    fn load(&self, pool: &mut Pool, sample: &mut Sample) -> io::Result<()> {
        let length = |secs: f64| (secs * self.form.share * SECOND as f64) as u64;
        match &self.scenario.load {
            Load::Closed {
                conns,
                secs,
                stream,
                ..
            } => {
                let outcome = load::closed(pool, *conns, length(WARM_SECS), length(*secs))?;
                self.closed(sample, &outcome, *stream);
            }
            Load::Open {
                rate, conns, secs, ..
            } => {
                let outcome = load::open(pool, *conns, *rate, length(WARM_SECS), length(*secs))?;
                self.timed(sample, outcome);
            }
            Load::Burst {
                conns,
                every_ms,
                secs,
                ..
            } => {
                let outcome = load::burst(pool, *conns, every_ms * MILLI, length(*secs))?;
                self.timed(sample, outcome);
            }
            Load::Streams { count, ramp_ms, .. } => {
                self.streams(pool, sample, *count, ramp_ms * MILLI)?
            }
            Load::Hold { count, sends, .. } => {
                let held = Held {
                    count: *count,
                    sends: *sends,
                    each: files_each(self.scenario),
                };
                hold(pool, sample, self.ids, held, self.upstreams, self.form)?;
            }
            Load::Idle { secs } => {
                wait(length(*secs));
                let used = Cpu::of(self.ids).since(self.meter.cpu);
                sample
                    .metrics
                    .push(("CPU ms/s", used * 1e3 / (secs * self.form.share)));
                self.meter.end(sample, self.ids, None);
            }
        }
        Ok(())
    }

    /// What a closed loop tells: rate and cost, no latency.
    fn closed(&self, sample: &mut Sample, outcome: &Outcome, stream: bool) {
        let (rate, cpu) = match stream {
            false => ("requests/s", "CPU s/10k requests"),
            true => ("streams/s", "CPU s/10k streams"),
        };
        sample
            .metrics
            .push((rate, outcome.counted as f64 / outcome.seconds));
        self.meter.end(sample, self.ids, Some((cpu, outcome.all())));
        if matches!(self.scenario.upstreams.primary, Answer::Throttle { .. }) {
            let share = self.meter.asked(self.upstreams) / outcome.all() as f64;
            sample.metrics.push(("primary asked, share", share));
            let opened = self.meter.connected(self.upstreams) * 1e4 / outcome.all() as f64;
            sample
                .metrics
                .push(("connections to upstreams/10k requests", opened));
        }
        sample.take(outcome);
    }

    /// What a load with instants of its own tells: latency and cost.
    fn timed(&self, sample: &mut Sample, mut outcome: Outcome) {
        let cost = ("CPU s/10k requests", outcome.all());
        self.meter.end(sample, self.ids, Some(cost));
        sample.latencies(&mut outcome.latencies);
        sample.take(&outcome);
    }

    fn streams(
        &self,
        pool: &mut Pool,
        sample: &mut Sample,
        count: usize,
        ramp: u64,
    ) -> io::Result<()> {
        let before = memory(self.ids);
        let mut plateau: Option<Memory> = None;
        let reached = &mut || plateau = Some(memory(self.ids));
        let mut outcome = load::streams(pool, count, ramp, LIMIT, reached)?;
        if let Some(plateau) = plateau {
            let grown = plateau.now.saturating_sub(before.now) as f64 / 1024.0;
            sample.metrics.push(("KiB/stream", grown / count as f64));
        }
        for (metric, point) in [("chunk p50 us", 0.5), ("chunk p99 us", 0.99)] {
            let age = quantile(&mut outcome.ages, point) as f64 / 1e3;
            sample.metrics.push((metric, age));
        }
        let chunks = outcome.ages.len() as u64;
        self.meter
            .end(sample, self.ids, Some(("CPU s/10k chunks", chunks)));
        sample.take(&outcome);
        sample.lost += lost_events(self.scenario, count, chunks);
        Ok(())
    }
}

/// What is held.
struct Held {
    count: usize,
    /// Requests that reach an upstream for each.
    sends: u64,
    /// Open files that each needs in one process.
    each: u64,
}

/// Each request has a connection here; one that stays at an upstream has two, and so in the gateway.
fn files_each(scenario: &Scenario) -> u64 {
    if scenario.upstreams.primary == Answer::Hold {
        2
    } else {
        1
    }
}

/// System calls for each request of a closed loop, counted by the kernel; nothing where `perf` may not, or is not there.
pub fn syscalls(system: &System, scenario: &Scenario, routes: usize) -> io::Result<Option<f64>> {
    let (Load::Closed { conns, .. }, ids) = (&scenario.load, system.processes()) else {
        return Ok(None);
    };
    if ids.is_empty() {
        return Ok(None);
    }
    let ids: Vec<String> = ids.iter().map(u32::to_string).collect();
    let mut command = Command::new("perf");
    command.args([
        "stat",
        "-x",
        ",",
        "-e",
        "raw_syscalls:sys_enter",
        "-p",
        &ids.join(","),
        "--",
    ]);
    command
        .args(["sleep", COUNTED_SECS])
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    let Ok(child) = command.spawn() else {
        return Ok(None);
    };
    wait(COUNTED_AFTER);
    let mut pool = Pool::new(system.port, requests(system, scenario, routes))?;
    let answers = load::closed(&mut pool, *conns, 0, COUNTED_FOR)?.all();
    let output = child.wait_with_output()?;
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    let line = text.lines().find(|line| line.contains("sys_enter"));
    let count = line.and_then(|line| line.split(',').next()?.parse::<f64>().ok());
    Ok(count.map(|count| count / answers.max(1) as f64))
}

/// Memory of requests that wait in the gateway.
fn hold(
    pool: &mut Pool,
    sample: &mut Sample,
    ids: &[u32],
    Held { count, sends, each }: Held,
    upstreams: &[Port],
    form: Form,
) -> io::Result<()> {
    let before = memory(ids);
    let asked = requests_seen(upstreams);
    let fit = usize::try_from(form.files.saturating_sub(FILES_SPARE) / each);
    let fit = fit.unwrap_or(usize::MAX).min(count);
    if fit < count {
        let limit = form.files;
        sample.note = Some(format!(
            "{fit} requests instead of {count}: a process may have {limit} files open here."
        ));
    }
    let arrived = || requests_seen(upstreams) - asked >= fit as u64 * sends;
    let (mut readings, mut most, mut next) = (0, Memory::default(), 0);
    let mut plateau = || {
        if now() >= next {
            let seen = memory(ids);
            most = Memory {
                now: most.now.max(seen.now),
                peak: seen.peak,
            };
            readings += 1;
            next = now() + READING_EVERY;
        }
        readings >= READINGS
    };
    let outcome = load::hold(pool, fit, LIMIT, &arrived, &mut plateau)?;
    let grown = most.now.saturating_sub(before.now) as f64;
    sample
        .metrics
        .push(("KiB/request", grown / 1024.0 / fit.max(1) as f64));
    sample.metrics.push((
        "requests held",
        fit as f64 - outcome.all() as f64 - outcome.broken as f64,
    ));
    sample.metrics.push(("idle RSS MiB", mebibytes(before.now)));
    sample.metrics.push(("RSS MiB", mebibytes(most.now)));
    sample.metrics.push(("peak RSS MiB", mebibytes(most.peak)));
    sample.bad = outcome.all();
    sample.lost = outcome.broken + u64::from(!arrived());
    Ok(())
}

impl Sample {
    fn take(&mut self, outcome: &Outcome) {
        self.bad += outcome.bad();
        self.lost += outcome.broken + outcome.unfinished;
    }

    fn latencies(&mut self, latencies: &mut [u64]) {
        let points = [
            ("latency p50 us", 0.5),
            ("latency p90 us", 0.9),
            ("latency p99 us", 0.99),
            ("latency p99.9 us", 0.999),
            ("latency max us", 1.0),
        ];
        for (metric, point) in points {
            self.metrics
                .push((metric, quantile(latencies, point) as f64 / 1e3));
        }
    }
}

/// What was used before a load.
struct Meter {
    cpu: Cpu,
    own: Cpu,
    busy: f64,
    at: u64,
    asked: u64,
    connections: u64,
}

impl Meter {
    fn start(ids: &[u32], upstreams: &[Port]) -> Meter {
        let own = Cpu::of(&[std::process::id()]);
        Meter {
            cpu: Cpu::of(ids),
            own,
            busy: busy_seconds(),
            at: now(),
            asked: primary_seen(upstreams),
            connections: seen(upstreams, |counts| &counts.connections),
        }
    }

    /// Adds processor time by what was done, memory, and what others used.
    fn end(&self, sample: &mut Sample, ids: &[u32], per: Option<(&'static str, u64)>) {
        let used = Cpu::of(ids).since(self.cpu);
        if let Some((metric, count)) = per {
            sample.metrics.push((metric, used * 1e4 / count as f64));
        }
        let memory = memory(ids);
        sample.metrics.push(("RSS MiB", mebibytes(memory.now)));
        sample
            .metrics
            .push(("peak RSS MiB", mebibytes(memory.peak)));
        let own = Cpu::of(&[std::process::id()]).since(self.own);
        let seconds = (now() - self.at) as f64 / SECOND as f64;
        sample.others = ((busy_seconds() - self.busy - used - own) / seconds).max(0.0);
    }

    /// Requests that the failing primary has seen since.
    fn asked(&self, upstreams: &[Port]) -> f64 {
        (primary_seen(upstreams) - self.asked) as f64
    }

    /// Connections that upstreams have accepted since.
    fn connected(&self, upstreams: &[Port]) -> f64 {
        (seen(upstreams, |counts| &counts.connections) - self.connections) as f64
    }
}

/// Requests that the primaries have seen: the first port, and the one that stands for it where peers need another status.
fn primary_seen(upstreams: &[Port]) -> u64 {
    let primaries = [upstreams.first(), upstreams.get(2)];
    primaries
        .into_iter()
        .flatten()
        .map(|port| port.counts.requests.load(Ordering::Relaxed))
        .sum()
}

fn requests_seen(upstreams: &[Port]) -> u64 {
    seen(upstreams, |counts| &counts.requests)
}

/// What all ports together have seen of something.
fn seen(upstreams: &[Port], what: fn(&Counts) -> &AtomicU64) -> u64 {
    let seen = |port: &Port| what(&port.counts).load(Ordering::Relaxed);
    upstreams.iter().map(seen).sum()
}

/// Events that were scripted and did not arrive.
fn lost_events(scenario: &Scenario, streams: usize, seen: u64) -> u64 {
    match scenario.upstreams.primary {
        Answer::Events { count, .. } => (streams as u64 * u64::from(count)).saturating_sub(seen),
        _ => 0,
    }
}

fn mebibytes(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

fn wait(nanos: u64) {
    std::thread::sleep(std::time::Duration::from_nanos(nanos));
}

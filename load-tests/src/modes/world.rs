//! The life of one row: gateways, provider and steady route are started, warmed up, loaded by a mode, left in peace, ended in order, and then
//! everything is counted. What a mode does in between is its own.
//!
//! Invariant: whatever way a run ends, its gateways and files end with [`World`].

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use super::calm::{Calm, Noticed, Phase};
use super::client::{Ask, Clients, End, Ends};
use super::ledger::{Compared, Records, compare};
use super::process::{Metrics, Place, Process};
use super::upstream::{Script, Sends, Upstream, duplicates};
use super::{Outcome, Plan};
use crate::outage::Database;
use crate::rig::process::{Cpu, Memory, busy_seconds};
use crate::stats::percentile;

/// Requests before anything counts: files, threads and pages that come with the first ones.
const WARM_UP: u64 = 50;
/// Warm-up requests have this prefix; scripts answer them well.
pub const WARM: &str = "warm-";
/// Time for connections to be gone on the other side.
const GONE_MAX: Duration = Duration::from_secs(5);
/// Above this many cores used by others, latencies tell of them as well.
const OTHERS_MAX: f64 = 0.1;
/// Bytes of a MiB.
pub const MIB: f64 = 1_048_576.0;

/// What a mode wants to be started.
pub struct Setup {
    /// Letters of a file name.
    pub name: &'static str,
    /// The row's label.
    pub label: String,
    /// Lines of `routes` beside the steady one; providers are `one` and `two`.
    pub routes: String,
    /// Members of `timeouts` of both providers.
    pub timeouts: &'static str,
    /// Gateways.
    pub gateways: usize,
    /// Where and how records are kept.
    pub store: Store,
    /// Statuses that whole answers may have.
    pub statuses: &'static [u16],
    /// Whether a gateway is killed: then connections may break, and what was open is settled by the next process.
    pub kills: bool,
}

/// Where records are kept.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Store {
    /// A SQLite file for each gateway, written in groups.
    Batch,
    /// The same, each attempt's record before its send.
    Strict,
    /// One PostgreSQL for all gateways, each attempt's record on the own disk before its send.
    Postgres,
}

/// What is running.
pub struct World {
    pub setup: Setup,
    pub gateways: Vec<Process>,
    pub upstream: Upstream,
    calm: Calm,
    database: Option<Database>,
    started: Vec<Start>,
    busy: Option<Busy>,
    after: Duration,
    notes: Vec<String>,
    extra_zeros: Vec<(String, u64)>,
    extra_metrics: Vec<(String, f64)>,
    folder: Folder,
}

/// A gateway after its warm-up.
struct Start {
    /// Open files before it: closed connections of the warm-up may still be in its pools.
    files: u64,
    memory: Memory,
    id: u32,
    cpu: Cpu,
}

/// Processor time at the begin of the trouble.
struct Busy {
    at: Instant,
    own: Cpu,
    machine: f64,
}

impl Busy {
    fn now(gateways: &[Process]) -> Busy {
        let ids: Vec<u32> = gateways.iter().map(|gateway| gateway.id).collect();
        Busy {
            at: Instant::now(),
            own: Cpu::of(&[ids, vec![std::process::id()]].concat()),
            machine: busy_seconds(),
        }
    }

    /// Cores that others have used since then. Clients in a process of their own count as others.
    fn others(&self, gateways: &[Process]) -> f64 {
        let now = Busy::now(gateways);
        let own = now.own.since(self.own);
        let seconds = (now.at - self.at).as_secs_f64();
        ((now.machine - self.machine - own) / seconds).max(0.0)
    }
}

struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

impl World {
    /// Starts everything, warms it up and measures the steady route alone.
    pub async fn start(plan: &Plan, setup: Setup, script: Script) -> io::Result<World> {
        let name = format!("rondo-modes-{}-{}", std::process::id(), setup.name);
        let folder = Folder(std::env::temp_dir().join(name));
        std::fs::create_dir_all(&folder.0)?;
        let upstream = Upstream::start(script)?;
        let calm = Calm::open().await?;
        let mut world = World {
            gateways: Vec::new(),
            upstream,
            calm,
            database: None,
            started: Vec::new(),
            busy: None,
            after: plan.after(),
            notes: Vec::new(),
            extra_zeros: Vec::new(),
            extra_metrics: Vec::new(),
            setup,
            folder,
        };
        if world.setup.store == Store::Postgres {
            let database = Database::start().await?;
            std::fs::write(world.folder.0.join("url"), &database.url)?;
            world.database = Some(database);
        }
        for number in 0..world.setup.gateways {
            let place = Place::new(&world.folder.0, &format!("g{number}")).await?;
            std::fs::write(&place.config, world.config(&place, &world.setup.routes))?;
            world
                .gateways
                .push(Process::start(&plan.binary, &place).await?);
        }
        world.warm_up().await?;
        world.calm.phase(Phase::Before);
        if let Some(last) = world.gateways.last() {
            world.calm.begin(last.place.addr);
        }
        tokio::time::sleep(plan.before()).await;
        world.calm.phase(Phase::During);
        world.busy = Some(Busy::now(&world.gateways));
        Ok(world)
    }

    /// The configuration of a gateway with these routes.
    pub fn config(&self, place: &Place, routes: &str) -> String {
        let [one, two] = self.upstream.addrs;
        let (addr, admin) = (place.addr, place.admin);
        let (ledger, timeouts) = (self.ledger(place), self.setup.timeouts);
        let provider = |addr: SocketAddr| {
            format!(
                "{{ adapter: openai_compatible, base_url: \"http://{addr}\", trust_status: [429], timeouts: {{ {timeouts} }} }}"
            )
        };
        format!(
            "server: {{ listen: [{{ address: \"{addr}\" }}], threads: 2 }}\n\
             admin: {{ listen: \"{admin}\" }}\n\
             ledger: {{ {ledger} }}\n\
             providers:\n\
             \x20 calm: {{ adapter: openai_compatible, base_url: \"http://{}\" }}\n\
             \x20 one: {}\n\
             \x20 two: {}\n\
             routes:\n\
             \x20 - {{ name: calm, models: [calm], targets: [{{ name: calm, provider: calm }}] }}\n\
             {routes}",
            self.calm.provider,
            provider(one),
            provider(two),
        )
    }

    fn ledger(&self, place: &Place) -> String {
        let file = place.database.display();
        match self.setup.store {
            Store::Batch => format!("store: sqlite, path: \"{file}\", durability: batch"),
            Store::Strict => format!("store: sqlite, path: \"{file}\", durability: strict"),
            Store::Postgres => format!(
                "store: postgres, url: {{ file: \"{}/url\" }}, state_dir: \"{file}.state\", durability: strict",
                self.folder.0.display()
            ),
        }
    }

    /// Where the first gateway listens.
    pub fn addr(&self) -> io::Result<SocketAddr> {
        let first = self.gateways.first().map(|gateway| gateway.place.addr);
        first.ok_or_else(|| io::Error::other("no gateway"))
    }

    async fn warm_up(&mut self) -> io::Result<()> {
        let mut fresh = Vec::new();
        for gateway in &self.gateways {
            fresh.push(settled(gateway).await?);
        }
        for gateway in &self.gateways {
            let clients = Clients::new(gateway.place.addr);
            let port = gateway.place.addr.port();
            let ask = |number| Ask::plain(format!("{WARM}{port}-{number}"), "m0");
            clients
                .load(WARM_UP * 5, Duration::from_millis(200), ask)
                .await;
            let ends = clients.finish();
            if ends.by_id.values().any(|end| *end != End::Status(200)) {
                return Err(io::Error::other(format!("warm-up: {:?}", ends.counts())));
            }
        }
        self.upstream.hang_up();
        for (gateway, files) in self.gateways.iter().zip(fresh) {
            self.started.push(Start {
                files,
                memory: gateway.memory()?,
                id: gateway.id,
                cpu: Cpu::of(&[gateway.id]),
            });
        }
        Ok(())
    }

    /// The trouble is over; what the steady route notices from now on does not count for it.
    pub fn over(&self) {
        self.calm.phase(Phase::After);
    }

    /// Says something that a reader must know.
    pub fn note(&mut self, text: &str) {
        self.notes.push(text.to_owned());
    }

    /// A count of the mode's own that has to be 0.
    pub fn zero(&mut self, what: &str, value: u64) {
        self.extra_zeros.push((what.to_owned(), value));
    }

    /// A number of the mode's own.
    pub fn metric(&mut self, what: &str, value: f64) {
        self.extra_metrics.push((what.to_owned(), value));
    }

    /// Stops the steady load, waits, ends the gateways and counts.
    pub async fn finish(mut self, ends: Ends) -> io::Result<Outcome> {
        self.over();
        if let Some(busy) = &self.busy {
            let others = busy.others(&self.gateways);
            self.metric("cores used by others", others);
            if others > OTHERS_MAX {
                self.note("The machine was not idle: latencies are provisional.");
            }
        }
        let noticed = self.calm.stop().await?;
        tokio::time::sleep(Duration::from_millis(100)).await;
        let left_open = self.upstream.connections() as u64;
        self.upstream.hang_up();
        tokio::time::sleep(self.after).await;
        let mut outcome = Outcome::new(&self.setup.label);
        self.calm_told(&mut outcome, &noticed, left_open);
        self.gateways_told(&mut outcome).await?;
        let mut records = Records::default();
        let mut disorderly = 0;
        for gateway in &mut self.gateways {
            disorderly += u64::from(!gateway.end().await?);
            if self.database.is_none() {
                records.read(&gateway.place.database)?;
            }
        }
        if let Some(database) = &mut self.database {
            records.read_postgres(database).await?;
        }
        let panics = self.gateways.iter().map(|g| g.place.panics()).sum();
        outcome.zero("panics in the gateway's log", panics);
        outcome.zero("gateways that did not end in order", disorderly);
        let sends = self.upstream.sends();
        self.clients_told(&mut outcome, &ends, &sends);
        let compared = compare(&records, &sends, &ends, noticed.sends);
        records_told(&mut outcome, &compared, records.pending);
        match self.setup.kills {
            true => outcome.metric(
                "answers abandoned in records",
                compared.answers_abandoned as f64,
            ),
            false => outcome.zero("answers abandoned in records", compared.answers_abandoned),
        }
        for (what, value) in &self.extra_zeros {
            outcome.zero(what, *value);
        }
        for (what, value) in &self.extra_metrics {
            outcome.metric(what, *value);
        }
        outcome.notes.append(&mut self.notes);
        for gateway in &self.gateways {
            outcome.logs.push(gateway.place.log_end());
        }
        Ok(outcome)
    }

    fn calm_told(&self, outcome: &mut Outcome, noticed: &Noticed, left_open: u64) {
        let [mut before, mut during, _] = noticed.latencies.clone();
        outcome.metric("steady p50 before us", percentile(&mut before, 50) as f64);
        outcome.metric("steady p50 during us", percentile(&mut during, 50) as f64);
        outcome.metric("steady p99 before us", percentile(&mut before, 99) as f64);
        outcome.metric("steady p99 during us", percentile(&mut during, 99) as f64);
        outcome.metric("steady requests", noticed.asked as f64);
        outcome.metric("steady requests not asked", noticed.unasked as f64);
        outcome.metric("upstream connections after", left_open as f64);
        outcome.zero("failures of the steady route", noticed.failures);
        let beyond = noticed.sends.abs_diff(noticed.asked);
        outcome.zero("sends of the steady route but one a request", beyond);
    }

    async fn gateways_told(&self, outcome: &mut Outcome) -> io::Result<()> {
        let (mut first, mut peak, mut last) = (0, 0, 0);
        let (mut files_before, mut files_after, mut more) = (0, 0, 0);
        let mut processor = 0.0;
        for (gateway, start) in self.gateways.iter().zip(&self.started) {
            let now = settled(gateway).await?;
            files_before += start.files;
            files_after += now;
            more += now.saturating_sub(start.files);
            // One that was started again begins at 0.
            let before = if gateway.id == start.id {
                start.cpu
            } else {
                Cpu::default()
            };
            processor += Cpu::of(&[gateway.id]).since(before);
            let memory_now = gateway.memory()?;
            first += start.memory.now;
            peak += memory_now.peak;
            last += memory_now.now;
        }
        outcome.metric("RSS before MiB", first as f64 / MIB);
        outcome.metric("RSS peak MiB", peak as f64 / MIB);
        outcome.metric("RSS after MiB", last as f64 / MIB);
        outcome.metric("gateway CPU s", processor);
        outcome.metric("open files before", files_before as f64);
        outcome.metric("open files after", files_after as f64);
        outcome.zero("open files more than before", more);
        let mut sums = Sums::default();
        for gateway in &self.gateways {
            sums.add(&gateway.metrics().await?)?;
        }
        sums.told(outcome);
        Ok(())
    }

    fn clients_told(&self, outcome: &mut Outcome, ends: &Ends, sends: &Sends) {
        let asked = ends.by_id.len() as u64;
        outcome.metric("requests", asked as f64);
        let counts = ends.counts();
        let of = |end: End| counts.get(&end).copied().unwrap_or(0);
        let mut others = 0;
        for (end, count) in &counts {
            if let End::Status(status) = end {
                outcome.metric(&format!("answers {status}"), *count as f64);
                let expected = self.setup.statuses.contains(status);
                others += if expected { 0 } else { *count };
            }
        }
        let unsent = ends
            .by_id
            .iter()
            .filter(|(id, end)| **end == End::Left && !sends.contains_key(*id));
        outcome.metric("left", of(End::Left) as f64);
        outcome.metric("left, nothing sent", unsent.count() as f64);
        outcome.metric("broken", of(End::Broken) as f64);
        let of_asked = |id: &String| sends.get(id).map_or(0, Vec::len);
        let total: usize = ends.by_id.keys().map(of_asked).sum();
        let most = ends.by_id.keys().map(of_asked).max().unwrap_or(0);
        outcome.metric("sends", total as f64);
        outcome.metric("sends a request, mean", total as f64 / asked.max(1) as f64);
        outcome.metric("sends a request, most", most as f64);
        let mut latencies = ends.latencies.clone();
        outcome.metric("p99 us", percentile(&mut latencies, 99) as f64);
        outcome.zero("clients without an end", of(End::Hung));
        outcome.zero("answers that nobody had asked for", ends.second_answers);
        outcome.zero("requests that were due and not asked", ends.unasked);
        outcome.zero(
            "answers with a status that the mode does not explain",
            others,
        );
        if !self.setup.kills {
            outcome.zero("answers that broke off", of(End::Broken));
        }
        outcome.zero(
            "final throttles without Retry-After",
            ends.throttles_without_delay,
        );
        outcome.zero("sends after one that may have run", duplicates(sends));
        let empty = u64::from(asked == 0 || total == 0);
        outcome.zero("rows without load", empty);
    }
}

fn records_told(outcome: &mut Outcome, compared: &Compared, pending: u64) {
    outcome.metric("attempt rows of sends", compared.rows as f64);
    outcome.metric("attempt rows not delivered", compared.not_delivered as f64);
    outcome.metric("attempt rows unread", compared.unread as f64);
    outcome.zero("pending records", pending);
    outcome.zero("sends without an attempt row", compared.sends_without_row);
    outcome.zero("attempt rows without a send", compared.rows_without_send);
    outcome.zero(
        "answers recorded otherwise",
        compared.answers_recorded_otherwise,
    );
    outcome.zero(
        "records of operations that nobody asked for",
        compared.strangers,
    );
}

/// Sums over the gateways, of what has to be 0 at the end.
#[derive(Default)]
struct Sums {
    gauges: [f64; GAUGES.len()],
    admissions: f64,
    ends: f64,
    unexpected: f64,
    refused: f64,
    unconfirmed: f64,
}

/// Gauges and counters of defects, with what they count.
const GAUGES: [(&str, &str); 6] = [
    ("rondo_inflight_requests", "requests in flight at the end"),
    ("rondo_buffered_bytes", "buffered bytes at the end"),
    ("rondo_exhaustion_waiting", "waiting slots at the end"),
    ("rondo_ledger_queue", "records on their way at the end"),
    ("rondo_ledger_lost_total", "records lost"),
    ("rondo_drains", "answers read on at the end"),
];

impl Sums {
    fn add(&mut self, metrics: &Metrics) -> io::Result<()> {
        for ((name, _), sum) in GAUGES.iter().zip(&mut self.gauges) {
            let value = metrics.sum(name, "");
            *sum += value.ok_or_else(|| io::Error::other(format!("no metric {name}")))?;
        }
        let sum = |name| metrics.sum(name, "").unwrap_or(0.0);
        self.admissions += sum("rondo_exhaustion_admissions_total");
        self.ends += sum("rondo_exhaustion_ends_total");
        self.unexpected += sum("rondo_unexpected_events_total");
        let suppressed = metrics.sum("rondo_exhaustion_suppressions_total", "\"admission_full\"");
        self.refused += suppressed.unwrap_or(0.0);
        self.unconfirmed += sum("rondo_ledger_unconfirmed_total");
        Ok(())
    }

    fn told(&self, outcome: &mut Outcome) {
        for ((_, what), sum) in GAUGES.iter().zip(&self.gauges) {
            outcome.zero(what, sum.max(0.0) as u64);
        }
        let open = (self.admissions - self.ends).abs();
        outcome.metric("waits", self.admissions);
        outcome.metric("waits refused, slots full", self.refused);
        outcome.metric("sends not confirmed on disk", self.unconfirmed);
        outcome.zero("waits without an end", open as u64);
        outcome.zero("unexpected events", self.unexpected as u64);
    }
}

/// Open files of a gateway, when two looks agree.
async fn settled(gateway: &Process) -> io::Result<u64> {
    let looking = async {
        let mut last = gateway.files()?;
        loop {
            tokio::time::sleep(Duration::from_millis(150)).await;
            let now = gateway.files()?;
            if now == last {
                return Ok(now);
            }
            last = now;
        }
    };
    match tokio::time::timeout(GONE_MAX, looking).await {
        Ok(files) => files,
        Err(_) => gateway.files(),
    }
}

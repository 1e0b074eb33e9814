//! A gateway that lives for an hour with everything that happens to one: upstreams that throttle, break, stall and trickle, clients that
//! leave and that read slowly, a reload every few seconds, records on disk.
//!
//! Afterwards: memory and open files were flat over the last two thirds, nothing is pending, and the counters of the gateway, its records
//! and what the upstreams saw agree, operation by operation. The faults are drawn by number from one seed, which is printed.

mod client;
mod upstream;
mod verdict;

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::net::TcpStream;
use tokio::process::{Child, Command};

use crate::Options;
use crate::gateway::free_port;
use crate::outage::{fetch, metric};

/// Clients that each have one request at a time.
const CLIENTS: u64 = 24;
/// Time between two reloads.
const RELOAD_EVERY: Duration = Duration::from_secs(4);
/// Time between two looks at the process.
const SAMPLE_EVERY: Duration = Duration::from_secs(2);
/// Time for the process to listen, for the last operations to end, and for the process to leave.
const PATIENCE: Duration = Duration::from_secs(60);

/// Numbers by seed; no library is needed for faults.
#[derive(Clone)]
pub struct Dice(u64);

impl Dice {
    /// The numbers of one user of the seed.
    pub fn new(seed: u64, user: u64) -> Dice {
        Dice(seed ^ user.wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    /// A number below `end`.
    pub fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % end.max(1)
    }
}

/// What was seen from outside.
#[derive(Default)]
pub struct Seen {
    /// Requests that reached an upstream, by the operation's id.
    pub sends: Mutex<HashMap<String, u64>>,
    /// Requests that clients began, and what became of them.
    pub begun: AtomicU64,
    pub answered: AtomicU64,
    pub left: AtomicU64,
    pub broken: AtomicU64,
    /// The load is over.
    pub over: AtomicBool,
}

/// One look at the process.
#[derive(Clone, Copy)]
pub struct Sample {
    pub at: f64,
    pub memory: f64,
    pub files: f64,
}

/// Runs the scenario and prints its report.
pub async fn run(options: &Options) -> ExitCode {
    let folder = std::env::temp_dir().join(format!("rondo-soak-{}", std::process::id()));
    let outcome = soak(options, &folder).await;
    let _ = std::fs::remove_dir_all(&folder);
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// A running gateway and its files.
struct Soaked {
    child: Child,
    id: u32,
    addr: SocketAddr,
    admin: SocketAddr,
    file: PathBuf,
    folder: PathBuf,
    upstreams: [SocketAddr; 2],
}

async fn soak(options: &Options, folder: &Path) -> io::Result<bool> {
    let seed = options.count as u64;
    println!(
        "seed {seed} (--count), {} s, {CLIENTS} clients",
        options.seconds
    );
    let seen = Arc::new(Seen::default());
    let upstreams = [
        upstream::start(seed, 1, &seen).await?,
        upstream::start(seed, 2, &seen).await?,
    ];
    std::fs::create_dir_all(folder)?;
    let mut gateway = Soaked::start(&options.binary, folder, upstreams).await?;
    let mut clients = tokio::task::JoinSet::new();
    for number in 0..CLIENTS {
        clients.spawn(client::run(
            gateway.addr,
            Dice::new(seed, 100 + number),
            number,
            Arc::clone(&seen),
        ));
    }
    let (samples, reloads) = gateway.live(Duration::from_secs(options.seconds)).await?;
    seen.over.store(true, Ordering::Relaxed);
    while clients.join_next().await.is_some() {}
    gateway.settle().await?;
    let metrics = fetch(gateway.admin, "/metrics").await?;
    let left = gateway.look(0.0)?;
    let ended_well = gateway.end().await?;
    let book = verdict::read_records(&folder.join("records.db"), &seen)?;
    let report = verdict::Report {
        samples: &samples,
        reloads,
        left,
        metrics: &metrics,
        book: &book,
        ended_well,
    };
    Ok(report.print(&seen))
}

impl Soaked {
    async fn start(binary: &Path, folder: &Path, upstreams: [SocketAddr; 2]) -> io::Result<Soaked> {
        let (addr, admin) = (free_port().await?, free_port().await?);
        let file = folder.join("rondo.yaml");
        let child = Command::new("true").kill_on_drop(true).spawn()?;
        let mut soaked = Soaked {
            child,
            id: 0,
            addr,
            admin,
            file,
            folder: folder.to_owned(),
            upstreams,
        };
        soaked.write(0)?;
        soaked.child = Command::new(binary)
            .arg("run")
            .arg("-c")
            .arg(&soaked.file)
            .env("RUST_LOG", "error")
            .kill_on_drop(true)
            .spawn()?;
        soaked.id = soaked
            .child
            .id()
            .ok_or_else(|| io::Error::other("the gateway has ended"))?;
        let listening = async {
            while TcpStream::connect(addr).await.is_err() {
                if let Some(status) = soaked.child.try_wait()? {
                    return Err(io::Error::other(format!(
                        "the gateway did not start: {status}"
                    )));
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            Ok(())
        };
        tokio::time::timeout(PATIENCE, listening)
            .await
            .map_err(io::Error::other)??;
        Ok(soaked)
    }

    /// Writes the configuration of this turn: routes, limits and order change, names and listeners stay.
    fn write(&self, turn: u64) -> io::Result<()> {
        let Soaked {
            addr,
            admin,
            upstreams: [one, two],
            ..
        } = self;
        let records = self.folder.join("records.db");
        let (first, second) = if turn.is_multiple_of(2) {
            ("t1", "t2")
        } else {
            ("t2", "t1")
        };
        let limits = if turn.is_multiple_of(3) {
            ", limits: { concurrent: 12 }"
        } else {
            ""
        };
        let wait = [300, 800, 2000][(turn % 3) as usize];
        let provider = |name: &str| if name == "t1" { "one" } else { "two" };
        let yaml = format!(
            "server: {{ listen: [{{ address: \"{addr}\" }}], threads: 2 }}\n\
             admin: {{ listen: \"{admin}\" }}\n\
             ledger: {{ store: sqlite, path: {records:?} }}\n\
             providers:\n\
             \x20 one: {{ adapter: openai_compatible, base_url: \"http://{one}\", trust_status: [429], timeouts: {{ first_byte_ms: 1500, idle_ms: 1500 }} }}\n\
             \x20 two: {{ adapter: openai_compatible, base_url: \"http://{two}\", trust_status: [429], ownership: internal, retry: {{ max_attempts: 3, max_elapsed_ms: 2000, base_delay_ms: 20, max_delay_ms: 100 }}, timeouts: {{ first_byte_ms: 1500, idle_ms: 1500 }} }}\n\
             routes:\n\
             \x20 - name: r\n\
             \x20   models: [m]\n\
             \x20   targets: [{{ name: {first}, provider: {}{limits} }}, {{ name: {second}, provider: {} }}]\n\
             \x20   routing: {{ max_target_attempts: 2, max_upstream_sends: 6, fallback_strategy: [http_429, http_5xx, rate_limiting], cooldown: {{ max_ms: 400 }}, exhaustion_retry: {{ max_rounds: 1, max_wait_ms: {wait} }} }}\n",
            provider(first),
            provider(second),
        );
        // As one step, so that no reload reads half of it.
        let new = self.file.with_extension("new");
        std::fs::write(&new, yaml)?;
        std::fs::rename(new, &self.file)
    }

    /// Reloads and looks at the process, until the time is over.
    async fn live(&mut self, time: Duration) -> io::Result<(Vec<Sample>, u64)> {
        let (begun, mut reloads, mut samples) = (Instant::now(), 0, Vec::new());
        let mut next_reload = RELOAD_EVERY;
        while begun.elapsed() < time {
            tokio::time::sleep(SAMPLE_EVERY).await;
            samples.push(self.look(begun.elapsed().as_secs_f64())?);
            if begun.elapsed() >= next_reload {
                next_reload += RELOAD_EVERY;
                reloads += 1;
                self.reload(reloads).await?;
            }
        }
        Ok((samples, reloads))
    }

    /// Every other reload by signal, and now and then one of a file that is refused.
    async fn reload(&self, number: u64) -> io::Result<()> {
        if number % 7 == 6 {
            std::fs::write(&self.file, "routes: [")?;
        } else {
            self.write(number)?;
        }
        if number.is_multiple_of(2) {
            return self.signal("-HUP").await;
        }
        let answer = post(self.admin, "/admin/api/reload").await?;
        let refused = number % 7 == 6;
        let fits = answer.starts_with("HTTP/1.1 2") != refused;
        fits.then_some(())
            .ok_or_else(|| io::Error::other(format!("reload {number}: {answer}")))
    }

    async fn signal(&self, name: &str) -> io::Result<()> {
        let status = Command::new("kill")
            .arg(name)
            .arg(self.id.to_string())
            .status()
            .await?;
        status
            .success()
            .then_some(())
            .ok_or_else(|| io::Error::other("the gateway has ended"))
    }

    fn look(&self, at: f64) -> io::Result<Sample> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.id))?;
        let field = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let memory = field.and_then(|text| text.trim().strip_suffix(" kB")?.trim().parse().ok());
        let memory: f64 = memory.ok_or_else(|| io::Error::other("no VmRSS"))?;
        let files = std::fs::read_dir(format!("/proc/{}/fd", self.id))?.count();
        Ok(Sample {
            at,
            memory,
            files: files as f64,
        })
    }

    /// Waits until nothing is in flight and nothing on its way to the store.
    async fn settle(&self) -> io::Result<()> {
        let quiet = async {
            let mut seen = 0;
            while seen < 3 {
                tokio::time::sleep(Duration::from_millis(300)).await;
                let busy = metric(self.admin, "rondo_inflight_requests")
                    .await
                    .unwrap_or(0.0)
                    + metric(self.admin, "rondo_ledger_queue").await?;
                seen = if busy == 0.0 { seen + 1 } else { 0 };
            }
            Ok(())
        };
        let settled = tokio::time::timeout(PATIENCE, quiet).await;
        settled.unwrap_or_else(|_| Err(io::Error::other("something is in flight for ever")))
    }

    /// SIGTERM; whether the process then leaves in time and says that all was well.
    async fn end(&mut self) -> io::Result<bool> {
        self.signal("-TERM").await?;
        match tokio::time::timeout(PATIENCE, self.child.wait()).await {
            Ok(status) => Ok(status?.success()),
            Err(_) => Ok(false),
        }
    }
}

async fn post(addr: SocketAddr, path: &str) -> io::Result<String> {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let mut stream = TcpStream::connect(addr).await?;
    let request = format!(
        "POST {path} HTTP/1.1\r\nhost: {addr}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).await?;
    let mut text = String::new();
    stream.read_to_string(&mut text).await?;
    Ok(text)
}

/// The lock of a map that outlives panics.
pub fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

//! Mode b: everything is throttled for a second, and thousands of clients come at once. The clients are a process of their own, as each of
//! them is an open file here, in the gateway, and for an instant at the provider.
//!
//! The bound of sleepers, 256 for each route, is a constant of the gateway. Row 0 has one route; row 1 spreads the same clients over as
//! many routes as have room for all of them, which is what raises the bound.

use std::fmt::Write as _;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{ExitCode, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::Command;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::client::{Ask, End, Ends, HUNG, connection, exchange};
use super::dice::Dice;
use super::trouble::SERVICE;
use super::upstream::{Act, Call};
use super::wire::Wire;
use super::world::{Setup, Store, WARM, World};
use super::{Outcome, Plan};

/// The word after `modes` by which this program starts itself as the clients.
pub const ROLE: &str = "b-clients";
/// Sleepers of one route, at most.
const SLEEPERS: usize = 256;
/// Connections that are being made at the same time.
const CONNECTING: usize = 64;
/// Time for all of them.
const CONNECTED_MAX: Duration = Duration::from_secs(30);
/// What a client waits at least before it comes back, and the spread on top: clients that all come back in the same instant are a second
/// experiment.
const SPREAD_MS: u64 = 250;

/// b: all targets throttle, many clients at once.
pub async fn run(plan: &Plan, row: u8) -> io::Result<Outcome> {
    let routes = match row {
        0 => 1,
        _ => plan.clients().div_ceil(SLEEPERS),
    };
    let setup = Setup {
        name: "b",
        label: match row {
            0 => format!("b: {} clients, one route: 256 sleepers", plan.clients()),
            _ => format!(
                "b: the same over {routes} routes: {} sleepers",
                routes * SLEEPERS
            ),
        },
        routes: (0..routes).map(route).collect(),
        timeouts: "",
        gateways: 1,
        store: Store::Batch,
        statuses: &[429],
        kills: false,
    };
    let script = |call: &Call<'_>| match call.id.starts_with(WARM) {
        true => Act::Answer(SERVICE),
        false => Act::Throttle(Some(1)),
    };
    let mut world = World::start(plan, setup, Arc::new(script)).await?;
    world
        .note("256 sleepers a route are a constant of the gateway; more routes are more sleepers.");
    let ends = crowd(plan, &mut world, routes).await?;
    world.finish(ends).await
}

fn route(number: usize) -> String {
    format!(
        "\x20 - {{ name: hit{number}, models: [m{number}], deadline_ms: 45000, targets: [{{ name: t1, provider: one }}, {{ name: t2, provider: two }}], \
         routing: {{ max_target_attempts: 2, max_upstream_sends: 4, exhaustion_retry: {{ max_rounds: 1, max_wait_ms: 2000 }} }} }}\n"
    )
}

/// Starts the clients, lets them go, and reads what became of them.
async fn crowd(plan: &Plan, world: &mut World, routes: usize) -> io::Result<Ends> {
    let file = std::env::temp_dir().join(format!("rondo-modes-{}-b.txt", std::process::id()));
    let file = Report(file);
    let mut child = Command::new(std::env::current_exe()?)
        .args(["modes", ROLE])
        .arg(world.addr()?.to_string())
        .args([plan.clients().to_string(), routes.to_string()])
        .args([plan.during().as_millis().to_string(), plan.seed.to_string()])
        .arg(&file.0)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()?;
    let (Some(mut orders), Some(words)) = (child.stdin.take(), child.stdout.take()) else {
        return Err(io::Error::other("no pipes to the clients"));
    };
    let mut words = BufReader::new(words).lines();
    let ready = words.next_line().await?.unwrap_or_default();
    let Some(connected) = ready.strip_prefix("connected ") else {
        return Err(io::Error::other("the clients did not connect"));
    };
    world.metric("clients", connected.parse().unwrap_or(0.0));
    orders.write_all(b"go\n").await?;
    if !child.wait().await?.success() {
        return Err(io::Error::other("the clients failed"));
    }
    read(&file.0)
}

/// The clients' report; gone when it was read.
struct Report(PathBuf);

impl Drop for Report {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn read(file: &Path) -> io::Result<Ends> {
    let mut ends = Ends::default();
    for line in std::fs::read_to_string(file)?.lines() {
        let mut words = line.split(' ');
        let mut word = || words.next().unwrap_or_default();
        let (id, end, micros) = (word().to_owned(), word(), word());
        let end = match end {
            "broken" => End::Broken,
            "hung" => End::Hung,
            status => End::Status(status.parse().map_err(io::Error::other)?),
        };
        ends.throttles_without_delay += u64::from(word() == "no-delay");
        ends.latencies.extend(micros.parse::<u64>());
        ends.by_id.insert(id, end);
    }
    Ok(ends)
}

/// This program as the clients: `ADDR CLIENTS ROUTES MILLIS SEED FILE`.
pub async fn play(args: impl Iterator<Item = String>) -> ExitCode {
    match clients(args.collect()).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("clients: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn clients(args: Vec<String>) -> io::Result<()> {
    let [addr, count, routes, millis, seed, file] = args.as_slice() else {
        return Err(io::Error::other("six arguments"));
    };
    let addr: SocketAddr = addr.parse().map_err(io::Error::other)?;
    let number = |text: &String| text.parse::<u64>().map_err(io::Error::other);
    let (count, routes, seed) = (number(count)?, number(routes)?.max(1), number(seed)?);
    let length = Duration::from_millis(number(millis)?);
    let wires = tokio::time::timeout(CONNECTED_MAX, connect_all(addr, count)).await;
    let wires = wires.map_err(io::Error::other)??;
    println!("connected {}", wires.len());
    let order = tokio::task::spawn_blocking(|| {
        let mut order = String::new();
        std::io::stdin().read_line(&mut order).map(|_| order)
    });
    let order = order.await??;
    if order != "go\n" {
        return Err(io::Error::other("nobody said go"));
    }
    let lines: Arc<Mutex<String>> = Arc::default();
    let until = Instant::now() + length;
    let mut running = JoinSet::new();
    for (client, wire) in wires.into_iter().enumerate() {
        let client = Client {
            addr,
            number: client as u64,
            model: format!("m{}", client as u64 % routes),
            seed,
        };
        running.spawn(client.live(wire, until, Arc::clone(&lines)));
    }
    while running.join_next().await.is_some() {}
    std::fs::write(file, &*lock(&lines))
}

async fn connect_all(addr: SocketAddr, count: u64) -> io::Result<Vec<Wire>> {
    let mut wires = Vec::new();
    let mut connecting = JoinSet::new();
    for _ in 0..count {
        if connecting.len() >= CONNECTING
            && let Some(wire) = connecting.join_next().await
        {
            wires.push(wire.map_err(io::Error::other)??);
        }
        connecting.spawn(connection(addr));
    }
    while let Some(wire) = connecting.join_next().await {
        wires.push(wire.map_err(io::Error::other)??);
    }
    Ok(wires)
}

struct Client {
    addr: SocketAddr,
    number: u64,
    model: String,
    seed: u64,
}

impl Client {
    /// Asks once, and again as told until the time is over.
    async fn live(self, wire: Wire, until: Instant, lines: Arc<Mutex<String>>) {
        let mut kept = Some(wire);
        let mut turn = 0;
        loop {
            let id = format!("b-{}-{turn}", self.number);
            let asked = Instant::now();
            let once = self.once(kept.take(), Ask::plain(id.clone(), &self.model));
            let ended = tokio::time::timeout(HUNG, once).await;
            let micros = asked.elapsed().as_micros();
            let (word, delay, note) = match ended {
                Ok(Ok((status, delay, note, wire))) => {
                    kept = wire;
                    (status.to_string(), delay, note)
                }
                Ok(Err(_)) => ("broken".to_owned(), Duration::from_secs(1), ""),
                Err(_) => ("hung".to_owned(), Duration::from_secs(1), ""),
            };
            let _ = writeln!(lock(&lines), "{id} {word} {micros} {note}");
            let spread = Dice::of(self.seed, &id).below(SPREAD_MS);
            let again = Instant::now() + delay + Duration::from_millis(spread);
            if again >= until {
                return;
            }
            tokio::time::sleep_until(again).await;
            turn += 1;
        }
    }

    async fn once(
        &self,
        kept: Option<Wire>,
        ask: Ask,
    ) -> io::Result<(u16, Duration, &'static str, Option<Wire>)> {
        let mut wire = match kept {
            Some(wire) => wire,
            None => connection(self.addr).await?,
        };
        let (answer, again) = exchange(&mut wire, &ask).await?;
        let note = match answer.status == 429 && !answer.has_retry_after {
            true => "no-delay",
            false => "-",
        };
        let delay = answer.retry_after.unwrap_or(Duration::from_secs(1));
        Ok((answer.status, delay, note, again.then_some(wire)))
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

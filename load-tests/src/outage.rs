//! What clients notice when the store of the records is gone: a fixed rate of requests, a PostgreSQL that is stopped in the middle as by a
//! crash and started again, and afterwards every row against every send.
//!
//! Open loop: a request is due at its instant, however the ones before fare, and its latency counts from there.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{ExitCode, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::sync::Semaphore;

use crate::Options;
use crate::closed::{answer, serve};
use crate::gateway::{Gateway, free_port};
use crate::stats::line;

/// Requests in flight at most. More are failures: an outage that piles them up has been noticed.
const IN_FLIGHT_MAX: usize = 2048;
/// Time for the first requests, which are not counted: connections, first pages of memory.
const WARM_UP: Duration = Duration::from_secs(3);
/// Time that the records may take to be in the store when it is back.
const CATCH_UP_MAX: Duration = Duration::from_secs(120);
/// Time that a request may take.
const REQUEST_MAX: Duration = Duration::from_secs(30);

/// What came back in one phase.
#[derive(Default)]
struct Phase {
    latencies: Vec<u64>,
    failures: u64,
}

/// Runs the scenario and prints its report.
pub async fn run(options: &Options) -> ExitCode {
    match measure(options).await {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

async fn measure(options: &Options) -> io::Result<bool> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let upstream = listener.local_addr()?;
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(serve(stream));
        }
    });
    let mut database = Database::start().await?;
    let dir = Folder::new(&database.url)?;
    let (addr, admin) = (free_port().await?, free_port().await?);
    let folder = dir.0.display();
    let yaml = format!(
        "server: {{ listen: [{{ address: \"{addr}\" }}], threads: 1 }}\n\
         admin: {{ listen: \"{admin}\" }}\n\
         ledger: {{ store: postgres, url: {{ file: \"{folder}/url\" }}, state_dir: \"{folder}/state\" }}\n\
         providers: {{ up: {{ adapter: openai_compatible, base_url: \"http://{upstream}\" }} }}\n\
         routes: [{{ name: r, models: [m], targets: [{{ name: t, provider: up }}] }}]\n"
    );
    let gateway = Gateway::start_with(&options.binary, addr, &yaml).await?;
    let clients = Clients::new(gateway.addr);
    let length = Duration::from_secs(options.seconds);

    clients.load(options.rate, WARM_UP).await?;
    until_recorded(admin).await?;
    let mut before = clients.load(options.rate, length).await?;
    database.order("stop").await?;
    let mut outage = clients.load(options.rate, length).await?;
    let queue = metric(admin, "rondo_ledger_queue").await?;
    database.order("start").await?;
    let back = Instant::now();
    let mut after = clients
        .load(options.rate, length.min(Duration::from_secs(10)))
        .await?;
    until_recorded(admin).await?;
    let caught_up = back.elapsed();

    let lost = metric(admin, "rondo_ledger_lost_total").await?;
    let requests = metric(admin, "rondo_requests_total").await?;
    let sends = metric(admin, "rondo_upstream_sends_total").await?;
    let operations = database
        .number("SELECT count(*) FROM operations WHERE state <> 'pending'")
        .await?;
    let sent = "SELECT count(*) FROM attempts WHERE delivery <> 'not_delivered'";
    let attempts = database.number(sent).await?;
    let pending = database
        .number("SELECT count(*) FROM operations WHERE state = 'pending'")
        .await?;

    let size = "SELECT pg_total_relation_size('operations') + pg_total_relation_size('attempts')";
    let size = database.number(size).await?;

    println!(
        "{} requests/s, {} s before and {} s without the store",
        options.rate, options.seconds, options.seconds
    );
    println!(
        "{}   failures {}",
        line("before", &mut before.latencies),
        before.failures
    );
    println!(
        "{}   failures {}",
        line("outage", &mut outage.latencies),
        outage.failures
    );
    println!(
        "{}   failures {}",
        line("after", &mut after.latencies),
        after.failures
    );
    println!(
        "waiting at its end: {queue}   all in the store {:.1} s after its return, the load meanwhile included   lost {lost}",
        caught_up.as_secs_f64()
    );
    println!(
        "operations {operations} of {requests} requests   attempts {attempts} of {sends} sends   pending {pending}"
    );
    println!(
        "{} bytes of tables and indexes a request",
        size.checked_div(operations).unwrap_or(0)
    );
    let failures = before.failures + outage.failures + after.failures;
    let good = failures == 0
        && lost == 0.0
        && operations as f64 == requests
        && attempts as f64 == sends
        && pending == 0;
    println!("nobody noticed and nothing was lost: {good}");
    Ok(good)
}

/// Waits until nothing is on its way to the store.
async fn until_recorded(admin: SocketAddr) -> io::Result<()> {
    let recorded = async {
        // Records are collected every few milliseconds: an empty queue counts when it is seen twice.
        let mut empty = 0;
        while empty < 2 {
            tokio::time::sleep(Duration::from_millis(200)).await;
            empty = match metric(admin, "rondo_ledger_queue").await? {
                0.0 => empty + 1,
                _ => 0,
            };
        }
        Ok(())
    };
    let done = tokio::time::timeout(CATCH_UP_MAX, recorded).await;
    done.unwrap_or_else(|_| Err(io::Error::other("the records did not reach the store")))
}

/// Files of the gateway: the URL, which is a secret, and its state.
struct Folder(PathBuf);

impl Folder {
    fn new(url: &str) -> io::Result<Folder> {
        let folder = std::env::temp_dir().join(format!("rondo-outage-{}", std::process::id()));
        std::fs::create_dir_all(&folder)?;
        std::fs::write(folder.join("url"), url)?;
        Ok(Folder(folder))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Clients with kept connections.
struct Clients {
    addr: SocketAddr,
    idle: Arc<Mutex<Vec<TcpStream>>>,
    permits: Arc<Semaphore>,
}

impl Clients {
    fn new(addr: SocketAddr) -> Clients {
        Clients {
            addr,
            idle: Arc::default(),
            permits: Arc::new(Semaphore::new(IN_FLIGHT_MAX)),
        }
    }

    /// So many requests a second for so long, and their answers.
    async fn load(&self, rate: u64, length: Duration) -> io::Result<Phase> {
        let phase = Arc::new(Mutex::new(Phase::default()));
        let start = tokio::time::Instant::now();
        let count = rate * length.as_millis() as u64 / 1000;
        let mut running = tokio::task::JoinSet::new();
        for number in 0..count {
            let due = start + length.mul_f64(number as f64 / count as f64);
            tokio::time::sleep_until(due).await;
            while running.try_join_next().is_some() {}
            let Ok(permit) = Arc::clone(&self.permits).try_acquire_owned() else {
                lock(&phase).failures += 1;
                continue;
            };
            let (addr, idle, phase) = (self.addr, Arc::clone(&self.idle), Arc::clone(&phase));
            running.spawn(async move {
                let kept = lock(&idle).pop();
                let asked = tokio::time::timeout(REQUEST_MAX, ask(addr, kept)).await;
                match asked {
                    Ok(Ok(stream)) => {
                        let took = u64::try_from(due.elapsed().as_micros()).unwrap_or(u64::MAX);
                        lock(&phase).latencies.push(took);
                        lock(&idle).push(stream);
                    }
                    Ok(Err(_)) | Err(_) => lock(&phase).failures += 1,
                }
                drop(permit);
            });
        }
        while running.join_next().await.is_some() {}
        let phase = std::mem::take(&mut *lock(&phase));
        Ok(phase)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// One request over a kept connection, or a new one; gives the connection back when the answer is good.
async fn ask(addr: SocketAddr, kept: Option<TcpStream>) -> io::Result<TcpStream> {
    let mut stream = match kept {
        Some(stream) => stream,
        None => TcpStream::connect(addr).await?,
    };
    stream.set_nodelay(true)?;
    let body = r#"{"model":"m","messages":[{"role":"user","content":"hello"}]}"#;
    let request = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(request.as_bytes()).await?;
    match answer(&mut stream, &mut Vec::with_capacity(4096)).await? {
        200 => Ok(stream),
        status => Err(io::Error::other(format!("status {status}"))),
    }
}

/// A private PostgreSQL; it ends with its input, and so with this process.
pub struct Database {
    /// Where gateways reach it; it has a password in it.
    pub url: String,
    orders: ChildStdin,
    answers: Lines<BufReader<ChildStdout>>,
    _child: Child,
}

impl Database {
    /// Makes a cluster in a folder of its own and starts it.
    pub async fn start() -> io::Result<Database> {
        let script = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../scripts/postgres");
        let mut child = Command::new(script)
            .arg("serve")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let (Some(orders), Some(answers)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(io::Error::other("no pipes to the database's script"));
        };
        let mut answers = BufReader::new(answers).lines();
        let first = answers.next_line().await?.unwrap_or_default();
        let Some(url) = first.strip_prefix("url ") else {
            return Err(io::Error::other("PostgreSQL did not start"));
        };
        Ok(Database {
            url: url.to_owned(),
            orders,
            answers,
            _child: child,
        })
    }

    /// Gives an order of `scripts/postgres serve`, and waits for its answer.
    pub async fn order(&mut self, order: &str) -> io::Result<String> {
        self.orders
            .write_all(format!("{order}\n").as_bytes())
            .await?;
        let answer = self.answers.next_line().await?;
        answer.ok_or_else(|| io::Error::other(format!("no answer to {order}")))
    }

    async fn number(&mut self, sql: &str) -> io::Result<u64> {
        let answer = self.order(&format!("sql {sql}")).await?;
        let number = answer
            .strip_prefix("sql ")
            .and_then(|text| text.parse().ok());
        number.ok_or_else(|| io::Error::other(answer))
    }
}

/// The sum of a metric's series.
pub async fn metric(admin: SocketAddr, name: &str) -> io::Result<f64> {
    let text = fetch(admin, "/metrics").await?;
    let series = text.lines().filter(|line| {
        let rest = line.strip_prefix(name);
        rest.is_some_and(|rest| rest.starts_with([' ', '{']))
    });
    let values = series.filter_map(|line| line.rsplit_once(' ')?.1.parse::<f64>().ok());
    let sum = values.reduce(|sum, value| sum + value);
    sum.ok_or_else(|| io::Error::other(format!("the gateway has no metric {name}")))
}

/// Reads a whole answer of the admin plane.
pub async fn fetch(addr: SocketAddr, path: &str) -> io::Result<String> {
    let mut stream = TcpStream::connect(addr).await?;
    let request = format!("GET {path} HTTP/1.1\r\nhost: {addr}\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut text = String::new();
    stream.read_to_string(&mut text).await?;
    Ok(text)
}

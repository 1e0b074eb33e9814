//! Memory per waiting attempt: many requests with bodies, an upstream that reads them and never answers. Two gateways one after the other,
//! `store: off` and `store: sqlite`; the difference is the ledger's share.
//!
//! Each attempt takes two sockets here and two in the gateway, so both run with the soft limit of open files raised to the hard one.

use std::io;
use std::net::SocketAddr;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::Options;
use crate::gateway::{Gateway, free_port};

/// Requests that are being sent at the same time; more would only fill backlogs.
const SENDING_MAX: usize = 64;
/// Time for all requests to arrive upstream.
const ARRIVAL_MAX: Duration = Duration::from_secs(300);
/// Samples of memory at the plateau, and the time between them.
const SAMPLES: usize = 10;
const SAMPLE_EVERY: Duration = Duration::from_millis(200);
/// Set in the process that was started again with a raised limit.
const RAISED: &str = "RONDO_LOAD_RAISED";

/// Starts this program again with the soft limit of open files at the hard one. Returns only when that is done, or cannot be.
pub fn raise_limit() {
    if std::env::var_os(RAISED).is_some() {
        return;
    }
    let Ok(own) = std::env::current_exe() else {
        return;
    };
    let mut shell = Command::new("sh");
    shell
        .args(["-c", "ulimit -n \"$(ulimit -Hn)\"; exec \"$0\" \"$@\""])
        .arg(own);
    shell.args(std::env::args_os().skip(1)).env(RAISED, "1");
    eprintln!("the limit of open files stays: {}", shell.exec());
}

/// Holds `count` requests with bodies of `body` bytes in each gateway and prints what one of them costs.
pub async fn run(options: &Options) -> ExitCode {
    let mut costs = Vec::new();
    for store in ["off", "sqlite"] {
        match hold(options, store).await {
            Ok(cost) => costs.push(cost),
            Err(error) => {
                eprintln!("store {store}: {error}");
                return ExitCode::FAILURE;
            }
        }
    }
    if let [off, sqlite] = costs[..] {
        println!("the ledger's share: {} bytes per attempt", sqlite - off);
    }
    ExitCode::SUCCESS
}

/// Bytes per attempt, above what the process has when nothing is in flight.
async fn hold(options: &Options, store: &str) -> io::Result<i64> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let upstream = listener.local_addr()?;
    let arrived = Arc::new(AtomicUsize::new(0));
    // Everything that runs here ends with this set.
    let mut tasks = JoinSet::new();
    let count = Arc::clone(&arrived);
    tasks.spawn(async move {
        let mut connections = JoinSet::new();
        while let Ok((stream, _)) = listener.accept().await {
            connections.spawn(swallow(stream, Arc::clone(&count)));
        }
        Ok(())
    });
    let database = std::env::temp_dir().join(format!("rondo-holding-{}.db", std::process::id()));
    let addr = free_port().await?;
    let ledger = match store {
        "off" => "store: off".to_owned(),
        store => format!("store: {store}, path: {}", database.display()),
    };
    let yaml = format!(
        "server: {{ listen: [{{ address: \"{addr}\" }}], threads: 1, max_buffered_bytes: {} }}\n\
         admin: {{ listen: \"{}\" }}\n\
         ledger: {{ {ledger} }}\n\
         providers: {{ up: {{ adapter: openai_compatible, base_url: \"http://{upstream}\", timeouts: {{ first_byte_ms: 600000 }} }} }}\n\
         routes: [{{ name: r, models: [m], targets: [{{ name: t, provider: up }}] }}]\n",
        2 * options.count * options.body + (64 << 20),
        free_port().await?
    );
    let gateway = Gateway::start_with(&options.binary, addr, &yaml).await?;
    let before = gateway.memory()?;
    let request: Arc<[u8]> = request(options.body).into();
    let sending = Arc::new(Semaphore::new(SENDING_MAX));
    for _ in 0..options.count {
        let turn = Arc::clone(&sending)
            .acquire_owned()
            .await
            .map_err(io::Error::other)?;
        let (addr, request) = (gateway.addr, Arc::clone(&request));
        tasks.spawn(async move {
            let stream = send(addr, &request).await;
            drop(turn);
            wait(stream?).await
        });
        if let Some(early) = tasks.try_join_next() {
            return Err(early
                .map_err(io::Error::other)?
                .err()
                .unwrap_or_else(answered));
        }
    }
    let all = async {
        while arrived.load(Ordering::Relaxed) < options.count {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::select! {
        all = tokio::time::timeout(ARRIVAL_MAX, all) => all.map_err(|_| late(&arrived))?,
        Some(early) = tasks.join_next() => {
            return Err(early.map_err(io::Error::other)?.err().unwrap_or_else(answered));
        }
    }
    let mut most = 0;
    for _ in 0..SAMPLES {
        tokio::time::sleep(SAMPLE_EVERY).await;
        most = most.max(gateway.memory()?);
    }
    let cost = (most - before) / i64::try_from(options.count.max(1)).unwrap_or(i64::MAX);
    println!(
        "store {store:<7} attempts {}   body {}   before {} KiB   plateau {} KiB   {cost} bytes per attempt, {} beside the body",
        options.count,
        options.body,
        before >> 10,
        most >> 10,
        cost - i64::try_from(options.body).unwrap_or(i64::MAX),
    );
    drop(gateway);
    for suffix in ["", "-wal", "-shm"] {
        let _ = std::fs::remove_file(format!("{}{suffix}", database.display()));
    }
    Ok(cost)
}

fn late(arrived: &AtomicUsize) -> io::Error {
    io::Error::other(format!(
        "only {} requests arrived",
        arrived.load(Ordering::Relaxed)
    ))
}

fn answered() -> io::Error {
    io::Error::other("a request was answered, or its connection closed, while it should be held")
}

fn request(body: usize) -> Vec<u8> {
    let frame = r#"{"model":"m","messages":[{"role":"user","content":""}]}"#.len();
    let content = "z".repeat(body.saturating_sub(frame));
    let body = format!(r#"{{"model":"m","messages":[{{"role":"user","content":"{content}"}}]}}"#);
    let head = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    (head + &body).into_bytes()
}

async fn send(addr: SocketAddr, request: &[u8]) -> io::Result<TcpStream> {
    let mut stream = TcpStream::connect(addr).await?;
    stream.write_all(request).await?;
    Ok(stream)
}

/// Nothing is to come; what comes says why.
async fn wait(mut stream: TcpStream) -> io::Result<()> {
    let mut buffer = [0; 256];
    let read = stream.read(&mut buffer).await?;
    let text = String::from_utf8_lossy(buffer.get(..read).unwrap_or_default()).into_owned();
    Err(io::Error::other(format!(
        "answered: {}",
        text.lines().next().unwrap_or("closed")
    )))
}

/// Reads one request whole, counts it, and holds its connection.
async fn swallow(mut stream: TcpStream, arrived: Arc<AtomicUsize>) -> io::Result<()> {
    let mut head = Vec::with_capacity(1024);
    let (mut left, end) = loop {
        if stream.read_buf(&mut head).await? == 0 {
            return Ok(());
        }
        if let Some(end) = head.windows(4).position(|bytes| bytes == b"\r\n\r\n") {
            let text = String::from_utf8_lossy(head.get(..end).unwrap_or_default()).to_lowercase();
            let length = text
                .split_once("content-length:")
                .and_then(|(_, rest)| rest.split("\r\n").next()?.trim().parse::<usize>().ok());
            break (length.unwrap_or(0), end + 4);
        }
    };
    left = left.saturating_sub(head.len() - end);
    drop(head);
    let mut buffer = vec![0; 64 << 10];
    while left > 0 {
        let read = stream.read(&mut buffer).await?;
        if read == 0 {
            return Ok(());
        }
        left = left.saturating_sub(read);
    }
    drop(buffer);
    arrived.fetch_add(1, Ordering::Relaxed);
    let _ = stream.read(&mut [0]).await;
    Ok(())
}

//! Kills the gateway with SIGKILL under load, starts it again, and holds its records against what the upstream and the clients saw.
//!
//! Per round: no record stays pending, no operation or attempt has two records, what a client was answered is recorded so, and how old the sends
//! without a record were at the kill. With `strict` there is none; with `batch` only the last instants may be missing.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rusqlite::{Connection, OpenFlags};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::Options;
use crate::gateway::{Gateway, free_port};

/// Time that the upstream takes for an answer, so that some operations are in flight at the kill.
const UPSTREAM_TIME: Duration = Duration::from_millis(20);
/// Load before the kill; each round adds a little, so that kills fall at different points of the writer's rhythm.
const LOAD_TIME: Duration = Duration::from_millis(1000);
/// What each round adds.
const LOAD_STEP: Duration = Duration::from_millis(13);
/// Time after the restart in which the records of the killed process must be settled.
const RECOVERY_MAX: Duration = Duration::from_secs(20);

/// What was seen from outside.
#[derive(Default)]
struct Seen {
    /// When the upstream of this number had read the request with this id.
    sends: Mutex<HashMap<(String, u8), Instant>>,
    /// When a client had its whole answer.
    answers: Mutex<HashMap<String, Instant>>,
}

/// What one round found.
#[derive(Debug, Default)]
struct Found {
    sends: usize,
    rows: usize,
    pending: usize,
    duplicates: usize,
    unsent: usize,
    unrecorded: usize,
    oldest_unrecorded: Duration,
    answered_unrecorded: usize,
    recovery: Duration,
}

impl Found {
    fn is_clean(&self, strict: bool) -> bool {
        let lost = if strict { self.unrecorded } else { 0 };
        // A round without load proves nothing.
        let loaded = self.sends > 0 && self.rows > 0;
        loaded && self.pending + self.duplicates + self.unsent + lost == 0
    }
}

/// Runs `count` rounds and prints a line for each.
pub async fn run(options: &Options) -> ExitCode {
    match rounds(options).await {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

async fn rounds(options: &Options) -> io::Result<bool> {
    let strict = options.ledger == "strict";
    let folder = std::env::temp_dir().join(format!("rondo-crash-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let seen = Arc::new(Seen::default());
    let (first, second) = (upstream(1, &seen).await?, upstream(2, &seen).await?);
    let database = folder.join("records.db");
    let addr = free_port().await?;
    let yaml = config(
        addr,
        free_port().await?,
        &database,
        &options.ledger,
        [first, second],
    );
    let (mut clean, mut oldest) = (true, Duration::ZERO);
    for round in 0..options.count {
        let found = one(options, round, &yaml, addr, &database, &seen).await?;
        println!("round {:>2}: {found:?}", round + 1);
        clean &= found.is_clean(strict);
        oldest = oldest.max(found.oldest_unrecorded);
    }
    println!(
        "{} rounds, durability {}, {} requests/s: {}; oldest send without a record: {oldest:?} before the kill",
        options.count,
        options.ledger,
        options.rate,
        if clean { "clean" } else { "NOT CLEAN" }
    );
    std::fs::remove_dir_all(&folder)?;
    Ok(clean)
}

fn config(
    addr: SocketAddr,
    admin: SocketAddr,
    database: &Path,
    durability: &str,
    ups: [SocketAddr; 2],
) -> String {
    let [first, second] = ups;
    format!(
        "server: {{ listen: [{{ address: \"{addr}\" }}], threads: 1 }}\n\
         admin: {{ listen: \"{admin}\" }}\n\
         ledger: {{ store: sqlite, path: {database:?}, durability: {durability} }}\n\
         providers:\n\
         \x20 one: {{ adapter: openai_compatible, base_url: \"http://{first}\", trust_status: [429] }}\n\
         \x20 two: {{ adapter: openai_compatible, base_url: \"http://{second}\" }}\n\
         routes:\n\
         \x20 - name: r\n\
         \x20   models: [m]\n\
         \x20   targets: [{{ name: t1, provider: one }}, {{ name: t2, provider: two }}]\n\
         \x20   routing: {{ cooldown: {{ max_ms: 0 }} }}\n"
    )
}

async fn one(
    options: &Options,
    round: usize,
    yaml: &str,
    addr: SocketAddr,
    database: &Path,
    seen: &Arc<Seen>,
) -> io::Result<Found> {
    lock(&seen.sends).clear();
    lock(&seen.answers).clear();
    let gateway = Gateway::start_with(&options.binary, addr, yaml).await?;
    let load = LOAD_TIME + LOAD_STEP * u32::try_from(round).unwrap_or(0);
    let clients = tokio::spawn(drive(
        addr,
        round,
        options.rate,
        load + Duration::from_secs(1),
        Arc::clone(seen),
    ));
    tokio::time::sleep(load).await;
    let killed = Instant::now();
    gateway.kill().await?;
    clients.abort();
    let _ = clients.await;
    // What was on its way to the upstream arrives.
    tokio::time::sleep(UPSTREAM_TIME * 5).await;
    let again = Instant::now();
    let gateway = Gateway::start_with(&options.binary, addr, yaml).await?;
    let mut found = loop {
        let found = compare(database, round, seen, killed)?;
        if found.pending == 0 || again.elapsed() > RECOVERY_MAX {
            break found;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    found.recovery = again.elapsed();
    gateway.kill().await?;
    Ok(found)
}

/// Holds the database against what was seen.
fn compare(database: &Path, round: usize, seen: &Seen, killed: Instant) -> io::Result<Found> {
    let connection = Connection::open_with_flags(database, OpenFlags::SQLITE_OPEN_READ_ONLY)
        .map_err(io::Error::other)?;
    let rows = attempts(&connection, round).map_err(io::Error::other)?;
    let operations = operations(&connection, round).map_err(io::Error::other)?;
    let (sends, answers) = (lock(&seen.sends), lock(&seen.answers));
    let mut found = Found {
        sends: sends.len(),
        rows: rows.values().map(Vec::len).sum(),
        ..Found::default()
    };
    let states = rows.values().flatten().chain(operations.values().flatten());
    found.pending = states.filter(|state| *state == "pending").count();
    found.duplicates = rows.values().filter(|states| states.len() > 1).count()
        + operations
            .values()
            .filter(|states| states.len() > 1)
            .count();
    let ended = rows
        .iter()
        .filter(|(_, states)| states.iter().any(|s| s == "succeeded" || s == "rejected"));
    found.unsent = ended.filter(|(key, _)| !sends.contains_key(*key)).count();
    for (key, at) in sends.iter() {
        if !rows.contains_key(key) {
            found.unrecorded += 1;
            found.oldest_unrecorded = found
                .oldest_unrecorded
                .max(killed.saturating_duration_since(*at));
        }
    }
    for id in answers.keys() {
        let state = operations.get(id).and_then(|states| states.first());
        if state.is_none_or(|state| state != "succeeded") {
            found.answered_unrecorded += 1;
        }
    }
    Ok(found)
}

type States = Vec<String>;

fn attempts(
    connection: &Connection,
    round: usize,
) -> rusqlite::Result<HashMap<(String, u8), States>> {
    let mut statement = connection
        .prepare("SELECT operation_id, target, state FROM attempts WHERE operation_id LIKE ?1")?;
    let mut found: HashMap<(String, u8), States> = HashMap::new();
    let mut rows = statement.query([format!("crash-{round}-%")])?;
    while let Some(row) = rows.next()? {
        let target = if row.get::<_, String>(1)? == "t1" {
            1
        } else {
            2
        };
        found
            .entry((row.get(0)?, target))
            .or_default()
            .push(row.get(2)?);
    }
    Ok(found)
}

fn operations(connection: &Connection, round: usize) -> rusqlite::Result<HashMap<String, States>> {
    let mut statement = connection
        .prepare("SELECT operation_id, state FROM operations WHERE operation_id LIKE ?1")?;
    let mut found: HashMap<String, States> = HashMap::new();
    let mut rows = statement.query([format!("crash-{round}-%")])?;
    while let Some(row) = rows.next()? {
        found.entry(row.get(0)?).or_default().push(row.get(1)?);
    }
    Ok(found)
}

/// Open loop: a request every `1 / rate` seconds, over as many connections as are needed.
async fn drive(addr: SocketAddr, round: usize, rate: u64, time: Duration, seen: Arc<Seen>) {
    let idle: Arc<Mutex<Vec<TcpStream>>> = Arc::default();
    let mut ticks = tokio::time::interval(Duration::from_nanos(1_000_000_000 / rate.max(1)));
    let ends = Instant::now() + time;
    let mut number = 0_u64;
    let mut running = tokio::task::JoinSet::new();
    while Instant::now() < ends {
        ticks.tick().await;
        number += 1;
        let id = format!("crash-{round}-{number}");
        let (idle, seen) = (Arc::clone(&idle), Arc::clone(&seen));
        running.spawn(async move {
            if ask(addr, &id, &idle).await.is_ok() {
                lock(&seen.answers).insert(id, Instant::now());
            }
        });
    }
}

async fn ask(addr: SocketAddr, id: &str, idle: &Mutex<Vec<TcpStream>>) -> io::Result<()> {
    let kept = lock(idle).pop();
    let mut stream = match kept {
        Some(stream) => stream,
        None => TcpStream::connect(addr).await?,
    };
    let body = r#"{"model":"m","messages":[{"role":"user","content":"hello"}]}"#;
    let request = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nx-request-id: {id}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(request.as_bytes()).await?;
    let mut buffer = Vec::new();
    let head = message(&mut stream, &mut buffer)
        .await?
        .ok_or(io::ErrorKind::UnexpectedEof)?;
    if !head.starts_with("http/1.1 200") {
        return Err(io::Error::other(head));
    }
    lock(idle).push(stream);
    Ok(())
}

/// Reads one message with a length; its head in lower case, `None` at the end of the connection.
async fn message(stream: &mut TcpStream, buffer: &mut Vec<u8>) -> io::Result<Option<String>> {
    buffer.clear();
    let head = loop {
        if stream.read_buf(buffer).await? == 0 {
            return Ok(None);
        }
        if let Some(end) = buffer.windows(4).position(|w| w == b"\r\n\r\n") {
            break end + 4;
        }
    };
    let text = String::from_utf8_lossy(buffer.get(..head).unwrap_or_default()).to_ascii_lowercase();
    let length = field(&text, "content-length")
        .and_then(|value| value.parse::<usize>().ok())
        .unwrap_or(0);
    while buffer.len() < head + length {
        if stream.read_buf(buffer).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
    Ok(Some(text))
}

fn field<'t>(head: &'t str, name: &str) -> Option<&'t str> {
    let mut lines = head.split("\r\n").filter_map(|line| line.split_once(':'));
    lines
        .find(|(key, _)| *key == name)
        .map(|(_, value)| value.trim())
}

async fn upstream(number: u8, seen: &Arc<Seen>) -> io::Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let addr = listener.local_addr()?;
    let seen = Arc::clone(seen);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(serve(number, stream, Arc::clone(&seen)));
        }
    });
    Ok(addr)
}

/// Answers the requests of one connection: the first upstream throttles every third, the second answers all.
async fn serve(number: u8, mut stream: TcpStream, seen: Arc<Seen>) -> io::Result<()> {
    let mut buffer = Vec::new();
    while let Some(head) = message(&mut stream, &mut buffer).await? {
        let id = field(&head, "x-request-id").unwrap_or_default().to_owned();
        lock(&seen.sends).insert((id.clone(), number), Instant::now());
        tokio::time::sleep(UPSTREAM_TIME).await;
        let throttled = number == 1 && id.bytes().last().is_some_and(|digit| digit % 3 == 0);
        let (status, body) = match throttled {
            true => (
                "429 Too Many Requests",
                r#"{"error":{"code":"rate_limit_exceeded","message":"slow down"}}"#,
            ),
            false => (
                "200 OK",
                r#"{"choices":[{"message":{"content":"hi"}}],"usage":{"prompt_tokens":3,"completion_tokens":1}}"#,
            ),
        };
        let answer = format!(
            "HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        stream.write_all(answer.as_bytes()).await?;
    }
    Ok(())
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

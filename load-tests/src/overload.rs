//! Overload: as many streams as the gateway may serve at once, and a flood beyond them. Reports what a refusal costs, and what the admitted
//! streams notice.
//!
//! Phases of `--seconds` each: streams alone; a flood of `--rate` requests a second, open loop, ten clients for each stream; the same
//! clients as fast as they are refused; and clients whose body is too large to pass, so that each refusal takes a connection.
//! The gateway has one thread. Every chunk carries the time of its writing, so one clock sees both ends. A refusal's share of processor
//! time is what the phase took beyond the first one.

use std::io;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::MissedTickBehavior;

use crate::Options;
use crate::closed::answer;
use crate::gateway::{Gateway, free_port};
use crate::stats::line;

/// Time between two chunks of a stream.
const CHUNK_EVERY: Duration = Duration::from_millis(20);
/// Clients of the flood for each stream that is served.
const FLOOD_FACTOR: usize = 10;
/// Time for all streams to begin.
const BEGIN_MAX: Duration = Duration::from_secs(30);

/// What the flood meets.
#[derive(Default)]
struct Counts {
    refused: AtomicU64,
    other: AtomicU64,
    broken: AtomicU64,
}

/// How the flood comes.
#[derive(Clone, Copy)]
enum Flood {
    /// So many requests a second, whatever becomes of them.
    Open(u64),
    /// The next one when the one before is refused.
    Closed,
    /// The same with a connection each.
    Connecting,
}

/// Fills the gateway, floods it and prints what it costs.
pub async fn run(options: &Options) -> ExitCode {
    match measure(options).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

async fn measure(options: &Options) -> io::Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let (upstream, start) = (listener.local_addr()?, Instant::now());
    // Everything that runs here ends with this set.
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        let mut streams = JoinSet::new();
        while let Ok((stream, _)) = listener.accept().await {
            streams.spawn(chunks(stream, start));
        }
        Ok(())
    });
    let addr = free_port().await?;
    let yaml = format!(
        "server: {{ listen: [{{ address: \"{addr}\" }}], threads: 1, max_in_flight: {} }}\n\
         admin: {{ listen: \"{}\" }}\n\
         ledger: {{ store: off }}\n\
         providers: {{ up: {{ adapter: openai_compatible, base_url: \"http://{upstream}\" }} }}\n\
         routes: [{{ name: r, models: [m], targets: [{{ name: t, provider: up }}] }}]\n",
        options.count,
        free_port().await?
    );
    let gateway = Gateway::start_with(&options.binary, addr, &yaml).await?;
    let (chunk_seen, mut latencies) = mpsc::unbounded_channel();
    for _ in 0..options.count {
        tasks.spawn(admitted(addr, start, chunk_seen.clone()));
    }
    let begun = async {
        let mut seen = 0;
        while seen < 10 * options.count && latencies.recv().await.is_some() {
            seen += 1;
        }
    };
    tokio::time::timeout(BEGIN_MAX, begun)
        .await
        .map_err(io::Error::other)?;
    let phase = Duration::from_secs(options.seconds);
    println!(
        "{} streams, {} clients of the flood, {phase:?} each",
        options.count,
        FLOOD_FACTOR * options.count
    );

    let alone = taken(&gateway, &mut latencies, tokio::time::sleep(phase)).await?;
    println!("{}", line("streams alone", &mut alone.latencies.clone()));
    println!("processor {:.1} % of a core", 100.0 * alone.share());
    for (name, flood) in [
        ("open loop", Flood::Open(options.rate)),
        ("closed loop", Flood::Closed),
        ("a connection each", Flood::Connecting),
    ] {
        let counts = Arc::new(Counts::default());
        let flooding = flood_for(
            phase,
            addr,
            FLOOD_FACTOR * options.count,
            flood,
            Arc::clone(&counts),
        );
        let seen = taken(&gateway, &mut latencies, flooding).await?;
        let refused = counts.refused.load(Ordering::Relaxed);
        println!("\n{}", line(name, &mut seen.latencies.clone()));
        let cost =
            (seen.share() - alone.share()) * seen.took.as_secs_f64() * 1e6 / refused.max(1) as f64;
        println!(
            "refused {refused} ({:.0} a second)   other {}   broken {}   processor {:.1} % of a core   {cost:.1} us a refusal, {:.0} a second of a core",
            refused as f64 / seen.took.as_secs_f64(),
            counts.other.load(Ordering::Relaxed),
            counts.broken.load(Ordering::Relaxed),
            100.0 * seen.share(),
            1e6 / cost.max(0.001),
        );
    }
    if let Some(ended) = tasks.try_join_next() {
        return Err(ended
            .map_err(io::Error::other)?
            .err()
            .unwrap_or_else(|| io::Error::other("a stream ended")));
    }
    Ok(())
}

/// What a phase took of the gateway, and the latencies of the chunks in it.
struct Taken {
    processor: Duration,
    took: Duration,
    latencies: Vec<u64>,
}

impl Taken {
    fn share(&self) -> f64 {
        self.processor.as_secs_f64() / self.took.as_secs_f64()
    }
}

async fn taken(
    gateway: &Gateway,
    latencies: &mut mpsc::UnboundedReceiver<u64>,
    phase: impl Future<Output = ()>,
) -> io::Result<Taken> {
    while latencies.try_recv().is_ok() {}
    let (before, began) = (gateway.processor()?, Instant::now());
    phase.await;
    let (after, took) = (gateway.processor()?, began.elapsed());
    let mut seen = Vec::new();
    while let Ok(latency) = latencies.try_recv() {
        seen.push(latency);
    }
    Ok(Taken {
        processor: after.saturating_sub(before),
        took,
        latencies: seen,
    })
}

/// Answers one request with a stream that never ends, each chunk with the time of its writing.
async fn chunks(mut stream: TcpStream, start: Instant) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut request = [0; 16 << 10];
    if stream.read(&mut request).await? == 0 {
        return Ok(());
    }
    let head =
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
    stream.write_all(head.as_bytes()).await?;
    let mut every = tokio::time::interval(CHUNK_EVERY);
    every.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        every.tick().await;
        let event = format!(
            "data: {{\"choices\":[{{\"delta\":{{\"content\":\"<{}>\"}}}}]}}\n\n",
            start.elapsed().as_micros()
        );
        stream
            .write_all(format!("{:x}\r\n{event}\r\n", event.len()).as_bytes())
            .await?;
    }
}

/// Reads one stream and tells the latency of each chunk in microseconds.
async fn admitted(
    addr: SocketAddr,
    start: Instant,
    seen: mpsc::UnboundedSender<u64>,
) -> io::Result<()> {
    let mut stream = TcpStream::connect(addr).await?;
    stream.set_nodelay(true)?;
    stream
        .write_all(request(r#"{"model":"m","stream":true,"messages":[]}"#).as_bytes())
        .await?;
    let mut buffer = Vec::with_capacity(4096);
    loop {
        if stream.read_buf(&mut buffer).await? == 0 {
            return Err(io::Error::other(format!(
                "a stream ended: {}",
                String::from_utf8_lossy(&buffer)
            )));
        }
        let now = u64::try_from(start.elapsed().as_micros()).unwrap_or(u64::MAX);
        let text = String::from_utf8_lossy(&buffer);
        let stamps = text
            .split('<')
            .skip(1)
            .filter_map(|part| part.split_once('>')?.0.parse::<u64>().ok());
        for stamp in stamps {
            let _ = seen.send(now.saturating_sub(stamp));
        }
        let rest = text
            .rfind('<')
            .filter(|at| !text.get(*at..).unwrap_or_default().contains('>'));
        let rest = rest
            .and_then(|at| text.get(at..))
            .unwrap_or_default()
            .as_bytes()
            .to_vec();
        buffer = rest;
    }
}

fn request(body: &str) -> String {
    format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
}

async fn flood_for(
    phase: Duration,
    addr: SocketAddr,
    clients: usize,
    flood: Flood,
    counts: Arc<Counts>,
) {
    let ends = Arc::new(AtomicBool::new(false));
    let mut flooding = JoinSet::new();
    for number in 0..clients {
        let (ends, counts) = (Arc::clone(&ends), Arc::clone(&counts));
        flooding.spawn(async move {
            let pause = match flood {
                Flood::Open(rate) => {
                    Some(Duration::from_secs_f64(clients as f64 / rate.max(1) as f64))
                }
                Flood::Closed | Flood::Connecting => None,
            };
            if let Some(pause) = pause {
                // Spread over the time between two requests of one client.
                tokio::time::sleep(pause.mul_f64(number as f64 / clients as f64)).await;
            }
            let mut due = tokio::time::Instant::now();
            let mut stream = None;
            while !ends.load(Ordering::Relaxed) {
                match ask(addr, &mut stream, flood).await {
                    Ok(503) => counts.refused.fetch_add(1, Ordering::Relaxed),
                    Ok(_) => counts.other.fetch_add(1, Ordering::Relaxed),
                    Err(_) => {
                        stream = None;
                        counts.broken.fetch_add(1, Ordering::Relaxed)
                    }
                };
                if let Some(pause) = pause {
                    due += pause;
                    tokio::time::sleep_until(due).await;
                }
            }
        });
    }
    tokio::time::sleep(phase).await;
    ends.store(true, Ordering::Relaxed);
    // A client that sleeps until its next request is not waited for.
    flooding.abort_all();
    while flooding.join_next().await.is_some() {}
}

async fn ask(addr: SocketAddr, kept: &mut Option<TcpStream>, flood: Flood) -> io::Result<u16> {
    let mut stream = match kept.take() {
        Some(stream) => stream,
        None => {
            let stream = TcpStream::connect(addr).await?;
            stream.set_nodelay(true)?;
            stream
        }
    };
    let mut buffer = Vec::with_capacity(1024);
    if matches!(flood, Flood::Connecting) {
        // The length alone: the gateway says no before it reads any of it.
        let head =
            "POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 1000000\r\n\r\n";
        stream.write_all(head.as_bytes()).await?;
        return answer(&mut stream, &mut buffer).await;
    }
    stream
        .write_all(
            request(r#"{"model":"m","messages":[{"role":"user","content":"hello"}]}"#).as_bytes(),
        )
        .await?;
    let status = answer(&mut stream, &mut buffer).await?;
    *kept = Some(stream);
    Ok(status)
}

//! Closed loop: each connection sends its next request as soon as it has read the whole answer. Counts answers, errors and connections that
//! the gateway closed although it said that it would keep them.

use std::io;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::Options;
use crate::gateway::Gateway;
use crate::stats::line;

/// Connections of the client.
const CONNECTIONS: usize = 16;

#[derive(Default)]
struct Counts {
    good: AtomicU64,
    other: AtomicU64,
    closed: AtomicU64,
}

/// Sends `count` requests over each connection and prints what came back.
pub async fn run(options: &Options) -> ExitCode {
    match measure(options).await {
        Ok(clean) if clean => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
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
    let gateway = Gateway::start(&options.binary, upstream, &options.ledger).await?;
    let counts = Arc::new(Counts::default());
    let start = Instant::now();
    let mut clients = Vec::new();
    for _ in 0..CONNECTIONS {
        clients.push(tokio::spawn(client(
            gateway.addr,
            options.count,
            Arc::clone(&counts),
        )));
    }
    let mut latencies = Vec::new();
    for client in clients {
        latencies.extend(client.await.map_err(io::Error::other)??);
    }
    let took = start.elapsed();
    let (good, other, closed) = (
        counts.good.load(Ordering::Relaxed),
        counts.other.load(Ordering::Relaxed),
        counts.closed.load(Ordering::Relaxed),
    );
    println!("{}", line("gateway", &mut latencies));
    println!(
        "answers 200: {good}   other: {other}   closed early: {closed}   {:.0} requests/s",
        rate(good, took)
    );
    Ok(other == 0 && closed == 0)
}

fn rate(count: u64, took: Duration) -> f64 {
    count as f64 / took.as_secs_f64()
}

async fn client(addr: SocketAddr, count: usize, counts: Arc<Counts>) -> io::Result<Vec<u64>> {
    let body = r#"{"model":"m","messages":[{"role":"user","content":"hello"}]}"#;
    let request = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    let mut stream = connect(addr).await?;
    let mut latencies = Vec::with_capacity(count);
    let mut buffer = Vec::with_capacity(4096);
    for _ in 0..count {
        let sent = Instant::now();
        let answered = async {
            stream.write_all(request.as_bytes()).await?;
            answer(&mut stream, &mut buffer).await
        };
        match answered.await {
            Ok(200) => {
                counts.good.fetch_add(1, Ordering::Relaxed);
                latencies.push(u64::try_from(sent.elapsed().as_micros()).unwrap_or(u64::MAX));
            }
            Ok(_) => {
                counts.other.fetch_add(1, Ordering::Relaxed);
            }
            Err(_) => {
                counts.closed.fetch_add(1, Ordering::Relaxed);
                stream = connect(addr).await?;
            }
        }
    }
    Ok(latencies)
}

async fn connect(addr: SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::connect(addr).await?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// Reads one answer with a length and returns its status.
pub async fn answer(stream: &mut TcpStream, buffer: &mut Vec<u8>) -> io::Result<u16> {
    buffer.clear();
    let head = loop {
        if stream.read_buf(buffer).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if let Some(end) = buffer.windows(4).position(|w| w == b"\r\n\r\n") {
            break end + 4;
        }
    };
    let text = String::from_utf8_lossy(buffer.get(..head).unwrap_or_default()).to_ascii_lowercase();
    let status = text
        .get(9..12)
        .and_then(|status| status.parse().ok())
        .unwrap_or(0);
    let length = text
        .split_once("content-length:")
        .and_then(|(_, rest)| rest.split("\r\n").next()?.trim().parse::<usize>().ok())
        .unwrap_or(0);
    while buffer.len() < head + length {
        if stream.read_buf(buffer).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
    Ok(status)
}

/// Answers requests on one connection, for ever.
pub async fn serve(mut stream: TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let body = format!(
        r#"{{"choices":[{{"message":{{"content":"{}"}}}}]}}"#,
        "x".repeat(900)
    );
    let reply = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    let mut buffer = Vec::with_capacity(4096);
    loop {
        buffer.clear();
        let head = loop {
            if stream.read_buf(&mut buffer).await? == 0 {
                return Ok(());
            }
            if let Some(end) = buffer.windows(4).position(|w| w == b"\r\n\r\n") {
                break end + 4;
            }
        };
        let text =
            String::from_utf8_lossy(buffer.get(..head).unwrap_or_default()).to_ascii_lowercase();
        let length = text
            .split_once("content-length:")
            .and_then(|(_, rest)| rest.split("\r\n").next()?.trim().parse::<usize>().ok())
            .unwrap_or(0);
        while buffer.len() < head + length {
            if stream.read_buf(&mut buffer).await? == 0 {
                return Ok(());
            }
        }
        stream.write_all(reply.as_bytes()).await?;
    }
}

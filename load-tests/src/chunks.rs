//! How long a chunk of a committed stream is in the gateway: written by the upstream, read by the client, on one clock.

use std::io;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::Options;
use crate::gateway::Gateway;
use crate::stats::{line, percentile};

/// The claim: a chunk leaves within two milliseconds, in the median.
const MEDIAN_MAX_US: u64 = 2000;

/// Measures through the gateway and directly, and prints both.
pub async fn run(options: &Options) -> ExitCode {
    match measure(options).await {
        Ok((mut through, mut direct)) => {
            println!("{}", line("gateway", &mut through));
            println!("{}", line("direct", &mut direct));
            let good =
                through.len() >= options.count && percentile(&mut through, 50) <= MEDIAN_MAX_US;
            println!("a chunk leaves within {MEDIAN_MAX_US} us in the median: {good}");
            if good {
                ExitCode::SUCCESS
            } else {
                ExitCode::FAILURE
            }
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

async fn measure(options: &Options) -> io::Result<(Vec<u64>, Vec<u64>)> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let upstream = listener.local_addr()?;
    let (count, gap) = (options.count, Duration::from_micros(options.gap_us));
    let start = Instant::now();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(serve(stream, start, count, gap));
        }
    });
    let gateway = Gateway::start(&options.binary, upstream, &options.ledger).await?;
    let through = read(gateway.addr, start).await?;
    let direct = read(upstream, start).await?;
    Ok((through, direct))
}

/// Answers one request with a stream whose events carry the time at which they were written.
async fn serve(
    mut stream: TcpStream,
    start: Instant,
    count: usize,
    gap: Duration,
) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut request = vec![0; 4096];
    if stream.read(&mut request).await? == 0 {
        return Ok(());
    }
    let head =
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
    stream.write_all(head.as_bytes()).await?;
    for _ in 0..count {
        let micros = start.elapsed().as_micros();
        let event =
            format!("data: {{\"choices\":[{{\"delta\":{{\"content\":\"@{micros}@\"}}}}]}}\n\n");
        let chunk = format!("{:x}\r\n{event}\r\n", event.len());
        stream.write_all(chunk.as_bytes()).await?;
        tokio::time::sleep(gap).await;
    }
    stream.write_all(b"0\r\n\r\n").await
}

/// Asks for the stream and returns the age of each event at its arrival, in microseconds.
async fn read(addr: SocketAddr, start: Instant) -> io::Result<Vec<u64>> {
    let mut stream = TcpStream::connect(addr).await?;
    stream.set_nodelay(true)?;
    let body = r#"{"model":"m","stream":true,"messages":[]}"#;
    let request = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\
         content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(request.as_bytes()).await?;
    let mut ages = Vec::new();
    let mut pending = String::new();
    let mut buffer = vec![0; 16 << 10];
    loop {
        let read = stream.read(&mut buffer).await?;
        let now = u64::try_from(start.elapsed().as_micros()).unwrap_or(u64::MAX);
        pending.push_str(&String::from_utf8_lossy(
            buffer.get(..read).unwrap_or_default(),
        ));
        while let Some((stamp, rest)) = next_stamp(&pending) {
            ages.push(now.saturating_sub(stamp));
            pending = rest;
        }
        if read == 0 || pending.ends_with("0\r\n\r\n") {
            return Ok(ages);
        }
    }
}

/// The next complete stamp and what follows it.
fn next_stamp(text: &str) -> Option<(u64, String)> {
    let (_, after) = text.split_once('@')?;
    let (digits, rest) = after.split_once('@')?;
    Some((digits.parse().ok()?, rest.to_owned()))
}

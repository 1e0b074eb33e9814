//! One client of the soak: most requests it reads to their end, some slowly, some it leaves at an instant of its own.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::upstream::field;
use super::{Dice, Seen};

/// How a client behaves for one request.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Manner {
    Patient,
    /// Leaves after so many milliseconds, wherever things are.
    Leaves(u64),
    /// Reads so many bytes at a time, with pauses.
    Slow(usize),
}

/// Asks until the load is over.
pub async fn run(addr: SocketAddr, mut dice: Dice, number: u64, seen: Arc<Seen>) {
    let (mut kept, mut turn) = (None, 0);
    while !seen.over.load(Ordering::Relaxed) {
        turn += 1;
        let id = format!("soak-{number}-{turn}");
        let manner = match dice.below(100) {
            0..12 => Manner::Leaves(dice.below(120)),
            12..16 => Manner::Leaves(dice.below(2000)),
            16..26 => Manner::Slow(1 + usize::try_from(dice.below(2000)).unwrap_or(0)),
            _ => Manner::Patient,
        };
        let filler = if dice.below(20) == 0 {
            dice.below(200_000)
        } else {
            dice.below(2000)
        };
        let request = request(&id, filler, dice.below(2) == 0);
        let asked = ask(addr, kept.take(), &request, manner, &seen);
        let outcome = match manner {
            Manner::Leaves(after) => {
                tokio::time::timeout(Duration::from_millis(after), asked).await
            }
            Manner::Patient | Manner::Slow(_) => Ok(asked.await),
        };
        let counter = match outcome {
            Ok(Ok(stream)) => {
                kept = stream;
                &seen.answered
            }
            Ok(Err(_)) => &seen.broken,
            Err(_) => &seen.left,
        };
        counter.fetch_add(1, Ordering::Relaxed);
        tokio::time::sleep(Duration::from_millis(dice.below(80))).await;
    }
}

fn request(id: &str, filler: u64, stream: bool) -> String {
    let filler = "z".repeat(usize::try_from(filler).unwrap_or(0));
    let body = format!(
        r#"{{"model":"m","stream":{stream},"messages":[{{"role":"user","content":"{filler}"}}]}}"#
    );
    let length = body.len();
    format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nx-request-id: {id}\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
    )
}

/// The connection, where it can be used again.
async fn ask(
    addr: SocketAddr,
    kept: Option<TcpStream>,
    request: &str,
    manner: Manner,
    seen: &Seen,
) -> io::Result<Option<TcpStream>> {
    let mut stream = match kept {
        Some(stream) => stream,
        None => TcpStream::connect(addr).await?,
    };
    seen.begun.fetch_add(1, Ordering::Relaxed);
    stream.write_all(request.as_bytes()).await?;
    let mut buffer = Vec::with_capacity(4096);
    let head = loop {
        if let Some(end) = buffer.windows(4).position(|bytes| bytes == b"\r\n\r\n") {
            break end + 4;
        }
        if stream.read_buf(&mut buffer).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    };
    let text = String::from_utf8_lossy(&buffer[..head]).to_ascii_lowercase();
    let length = field(&text, "content-length").and_then(|text| text.parse::<usize>().ok());
    let mut body = buffer.split_off(head);
    let mut piece = vec![
        0;
        if let Manner::Slow(bytes) = manner {
            bytes
        } else {
            16 << 10
        }
    ];
    loop {
        let whole = match length {
            Some(length) => body.len() >= length,
            None => body.ends_with(b"0\r\n\r\n"),
        };
        if whole {
            return Ok((field(&text, "connection") != Some("close")).then_some(stream));
        }
        match stream.read(&mut piece).await? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            read => body.extend_from_slice(&piece[..read]),
        }
        if manner != Manner::Patient && body.len() < 64 << 10 {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }
}

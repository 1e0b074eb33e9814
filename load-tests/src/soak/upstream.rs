//! An upstream whose every answer is drawn: good ones whole and in pieces, throttles, errors, silence, ends in the middle.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::{Dice, Seen, lock};

/// Listens, for ever.
pub async fn start(seed: u64, number: u64, seen: &Arc<Seen>) -> io::Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let addr = listener.local_addr()?;
    let seen = Arc::clone(seen);
    let requests = Arc::new(AtomicU64::new(0));
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let (seen, requests) = (Arc::clone(&seen), Arc::clone(&requests));
            tokio::spawn(async move {
                let _ = serve(stream, Dice::new(seed, number), &requests, &seen).await;
            });
        }
    });
    Ok(addr)
}

async fn serve(
    mut stream: TcpStream,
    dice: Dice,
    requests: &AtomicU64,
    seen: &Seen,
) -> io::Result<()> {
    stream.set_nodelay(true)?;
    while request(&mut stream, seen).await?.is_some() {
        let turn = requests.fetch_add(1, Ordering::Relaxed);
        let mut dice = Dice::new(dice.0, 1000 + turn);
        if !answer(&mut stream, &mut dice).await? {
            return Ok(());
        }
    }
    Ok(())
}

/// Reads one request whole and notes it; `None` at the end of the connection.
async fn request(stream: &mut TcpStream, seen: &Seen) -> io::Result<Option<()>> {
    let mut buffer = Vec::with_capacity(4096);
    loop {
        if let Some(end) = buffer.windows(4).position(|bytes| bytes == b"\r\n\r\n") {
            let head = String::from_utf8_lossy(&buffer[..end]).to_ascii_lowercase();
            let id = field(&head, "x-request-id").unwrap_or_default().to_owned();
            *lock(&seen.sends).entry(id).or_default() += 1;
            let length = field(&head, "content-length")
                .and_then(|text| text.parse::<usize>().ok())
                .unwrap_or(0);
            let mut left = (end + 4 + length).saturating_sub(buffer.len());
            let mut rest = vec![0; 16 << 10];
            while left > 0 {
                match stream.read(&mut rest).await? {
                    0 => return Ok(None),
                    read => left = left.saturating_sub(read),
                }
            }
            return Ok(Some(()));
        }
        if stream.read_buf(&mut buffer).await? == 0 {
            return Ok(None);
        }
    }
}

/// A field of a head in lower case.
pub fn field<'t>(head: &'t str, name: &str) -> Option<&'t str> {
    let mut lines = head.split("\r\n").filter_map(|line| line.split_once(':'));
    lines
        .find(|(key, _)| *key == name)
        .map(|(_, value)| value.trim())
}

/// Whether the connection is kept.
async fn answer(stream: &mut TcpStream, dice: &mut Dice) -> io::Result<bool> {
    const GOOD: &str = r#"{"choices":[{"message":{"content":"hi"}}],"usage":{"prompt_tokens":3,"completion_tokens":1}}"#;
    match dice.below(100) {
        0..50 => whole(stream, "200 OK", "", GOOD).await,
        50..72 => events(stream, dice, true).await,
        72..80 => {
            let body = r#"{"error":{"code":"rate_limit_exceeded","message":"slow down"}}"#;
            whole(
                stream,
                "429 Too Many Requests",
                "retry-after-ms: 40\r\n",
                body,
            )
            .await
        }
        80..84 => {
            whole(
                stream,
                "500 Internal Server Error",
                "",
                r#"{"error":{"message":"no"}}"#,
            )
            .await
        }
        84..87 => {
            let body = format!(r#"{{"error":{{"message":"{}"}}}}"#, "x".repeat(20_000));
            whole(stream, "503 Service Unavailable", "", &body).await
        }
        87..90 => Ok(false),
        90..93 => {
            let head =
                "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 9000\r\n\r\n";
            stream.write_all(head.as_bytes()).await?;
            stream.write_all(GOOD.as_bytes()).await?;
            Ok(false)
        }
        93..95 => events(stream, dice, false).await,
        95..97 => {
            // Silence: until the gateway has had enough of it.
            let _ = stream.read(&mut [0; 16]).await?;
            Ok(false)
        }
        _ => {
            tokio::time::sleep(Duration::from_millis(100 + dice.below(500))).await;
            whole(stream, "200 OK", "", GOOD).await
        }
    }
}

async fn whole(stream: &mut TcpStream, status: &str, fields: &str, body: &str) -> io::Result<bool> {
    let head = format!(
        "HTTP/1.1 {status}\r\ncontent-type: application/json\r\n{fields}content-length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).await?;
    stream.write_all(body.as_bytes()).await?;
    Ok(true)
}

/// A stream of events, which may end in its middle.
async fn events(stream: &mut TcpStream, dice: &mut Dice, ends_well: bool) -> io::Result<bool> {
    let head =
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
    stream.write_all(head.as_bytes()).await?;
    let text = "y".repeat(usize::try_from(dice.below(2000)).unwrap_or(0));
    let event = format!("data: {{\"choices\":[{{\"delta\":{{\"content\":\"{text}\"}}}}]}}\n\n");
    for _ in 0..=dice.below(40) {
        chunk(stream, &event).await?;
        if dice.below(4) == 0 {
            tokio::time::sleep(Duration::from_millis(dice.below(20))).await;
        }
    }
    if !ends_well {
        return Ok(false);
    }
    chunk(stream, "data: [DONE]\n\n").await?;
    stream.write_all(b"0\r\n\r\n").await?;
    Ok(true)
}

async fn chunk(stream: &mut TcpStream, text: &str) -> io::Result<()> {
    let chunk = format!("{:x}\r\n{text}\r\n", text.len());
    stream.write_all(chunk.as_bytes()).await
}

//! HTTP/1.1 as far as the scenarios need it: heads, and bodies with a length or in chunks, read at any pace. Nothing is written here.

use std::io;
use std::time::Duration;

use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio::time::Instant;

/// Heads are small; what is longer is not ours.
const HEAD_MAX: usize = 64 << 10;

/// How fast a side reads.
#[derive(Clone, Copy)]
pub struct Pace {
    /// Bytes of each reading, at most.
    pub bytes: usize,
    /// Pause after it.
    pub pause: Duration,
}

/// A connection and what was read from it ahead.
pub struct Wire {
    pub stream: TcpStream,
    ahead: Vec<u8>,
    pace: Option<(Pace, Instant)>,
}

/// The head of a message, in lower case.
pub struct Head(String);

impl Head {
    /// The value of a field.
    pub fn field(&self, name: &str) -> Option<&str> {
        let mut fields = self.0.split("\r\n").filter_map(|line| line.split_once(':'));
        fields
            .find(|(key, _)| *key == name)
            .map(|(_, value)| value.trim())
    }

    /// The status of an answer; 0 for what is none.
    pub fn status(&self) -> u16 {
        let word = self.0.split(' ').nth(1);
        word.and_then(|word| word.parse().ok()).unwrap_or(0)
    }

    /// Whether the connection ends with this message.
    pub fn closes(&self) -> bool {
        self.field("connection") == Some("close")
    }
}

impl Wire {
    pub fn new(stream: TcpStream) -> Wire {
        Wire {
            stream,
            ahead: Vec::new(),
            pace: None,
        }
    }

    /// Reads at this pace until then, and as fast as it can afterwards.
    pub fn pace_until(&mut self, pace: Pace, until: Instant) {
        self.pace = Some((pace, until));
    }

    /// Whether more came than was asked for.
    pub fn has_more(&self) -> bool {
        let mut byte = [0];
        !self.ahead.is_empty() || matches!(self.stream.try_read(&mut byte), Ok(1..))
    }

    /// The next head; `None` when the connection ended before its first byte.
    pub async fn head(&mut self) -> io::Result<Option<Head>> {
        loop {
            if let Some(end) = self.ahead.windows(4).position(|w| w == b"\r\n\r\n") {
                let head: Vec<u8> = self.ahead.drain(..end + 4).collect();
                return Ok(Some(Head(
                    String::from_utf8_lossy(&head).to_ascii_lowercase(),
                )));
            }
            if self.ahead.len() > HEAD_MAX {
                return Err(io::ErrorKind::InvalidData.into());
            }
            if self.stream.read_buf(&mut self.ahead).await? == 0 {
                return match self.ahead.is_empty() {
                    true => Ok(None),
                    false => Err(io::ErrorKind::UnexpectedEof.into()),
                };
            }
        }
    }

    /// Reads the body that follows this head and says how long it was. A body that is cut is an error.
    pub async fn body(&mut self, head: &Head) -> io::Result<usize> {
        if head
            .field("transfer-encoding")
            .is_some_and(|value| value == "chunked")
        {
            let mut total = 0;
            loop {
                let size = self.chunk_size().await?;
                self.skip(size + 2).await?;
                if size == 0 {
                    return Ok(total);
                }
                total += size;
            }
        }
        let length = head
            .field("content-length")
            .and_then(|value| value.parse().ok());
        let length = length.unwrap_or(0);
        self.skip(length).await?;
        Ok(length)
    }

    async fn chunk_size(&mut self) -> io::Result<usize> {
        loop {
            if let Some(end) = self.ahead.windows(2).position(|w| w == b"\r\n") {
                let line: Vec<u8> = self.ahead.drain(..end + 2).collect();
                let text = String::from_utf8_lossy(&line);
                let digits = text.trim().split(';').next().unwrap_or_default();
                return usize::from_str_radix(digits, 16).map_err(io::Error::other);
            }
            self.fill().await?;
        }
    }

    async fn skip(&mut self, mut bytes: usize) -> io::Result<()> {
        loop {
            let taken = bytes.min(self.ahead.len());
            self.ahead.drain(..taken);
            bytes -= taken;
            if bytes == 0 {
                return Ok(());
            }
            self.fill().await?;
        }
    }

    async fn fill(&mut self) -> io::Result<()> {
        let pace = self.pace.filter(|(_, until)| Instant::now() < *until);
        let most = pace.map_or(64 << 10, |(pace, _)| pace.bytes);
        let mut piece = vec![0; most];
        let read = self.stream.read(&mut piece).await?;
        if read == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.ahead
            .extend_from_slice(piece.get(..read).unwrap_or_default());
        if let Some((pace, until)) = pace {
            tokio::time::sleep_until(until.min(Instant::now() + pace.pause)).await;
        }
        Ok(())
    }
}

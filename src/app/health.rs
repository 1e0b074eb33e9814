//! `rondo health`: asks a running gateway whether it is well. For container health checks, where no other client is at hand.
//!
//! Not a general HTTP client: one `GET` over plain HTTP/1.1, of whose answer only the status line is read.

use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

/// Time to connect, and for each read and write. Health checks of container engines give up after tens of seconds.
const PATIENCE: Duration = Duration::from_secs(3);
/// Bytes in which the status line must end; real ones are shorter than a hundred.
const STATUS_LINE_MAX: u64 = 1024;
/// The port that `http` stands for.
const HTTP_PORT: u16 = 80;

/// Why the gateway counts as unwell.
#[derive(Debug, thiserror::Error)]
pub enum Unwell {
    /// The address cannot be used.
    #[error("{0}: not an address of the form http://HOST:PORT/PATH")]
    Url(String),
    /// Nobody answers there.
    #[error("no answer: {0}")]
    Unreachable(#[from] io::Error),
    /// What answers does not speak HTTP.
    #[error("the answer is not HTTP")]
    NotHttp,
    /// It answers that it is not well.
    #[error("it answers {0}")]
    Status(u16),
}

/// Asks once. `Ok` when the answer's status is 2xx.
pub fn ask(url: &str) -> Result<u16, Unwell> {
    let unusable = || Unwell::Url(url.to_owned());
    let rest = url.strip_prefix("http://").ok_or_else(unusable)?;
    let (authority, path) = match rest.split_once('/') {
        Some((authority, path)) => (authority, path),
        None => (rest, ""),
    };
    let is_plain = |text: &str| text.bytes().all(|byte| byte.is_ascii_graphic());
    if authority.is_empty() || authority.contains('@') || !is_plain(rest) {
        return Err(unusable());
    }
    let mut stream = connect(authority)?;
    let request = format!("GET /{path} HTTP/1.1\r\nhost: {authority}\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes())?;
    let status = read_status(stream)?;
    if (200..=299).contains(&status) {
        Ok(status)
    } else {
        Err(Unwell::Status(status))
    }
}

fn connect(authority: &str) -> io::Result<TcpStream> {
    let has_port = authority
        .rsplit_once(':')
        .is_some_and(|(_, port)| !port.contains(']'));
    let named = if has_port {
        authority.to_owned()
    } else {
        format!("{authority}:{HTTP_PORT}")
    };
    let mut last = io::Error::other("the name has no address");
    for address in named.to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, PATIENCE) {
            Ok(stream) => {
                stream.set_read_timeout(Some(PATIENCE))?;
                stream.set_write_timeout(Some(PATIENCE))?;
                return Ok(stream);
            }
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// The status of `HTTP/1.1 200 OK`.
fn read_status(stream: TcpStream) -> Result<u16, Unwell> {
    let mut line = Vec::new();
    for byte in io::BufReader::new(stream).take(STATUS_LINE_MAX).bytes() {
        match byte? {
            b'\n' => return parse_status(&line).ok_or(Unwell::NotHttp),
            byte => line.push(byte),
        }
    }
    Err(Unwell::NotHttp)
}

fn parse_status(line: &[u8]) -> Option<u16> {
    let rest = std::str::from_utf8(line).ok()?.strip_prefix("HTTP/1.")?;
    let status = rest.split(' ').nth(1)?.trim_end();
    status
        .parse()
        .ok()
        .filter(|status| (100..=599).contains(status))
}

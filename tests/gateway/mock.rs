//! The scripted provider on real sockets, driven by a raw HTTP/1.1 client and by h2: what the tests of its parts have in common.

mod bodies;
mod connections;
mod http2;
mod plans;
mod presets;
mod scripts;

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

use rondo::mock::{MockServer, Script};
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Nothing here takes long; a hang is a failure.
const PATIENCE: Duration = Duration::from_secs(20);

const CHAT: &str = "/v1/chat/completions";
const HELLO: &str = r#"{"model":"gpt-4o","messages":[{"role":"user","content":"Hi"}]}"#;
const HELLO_STREAM: &str =
    r#"{"model":"gpt-4o","stream":true,"messages":[{"role":"user","content":"Hi"}]}"#;

fn script(text: &str) -> Script {
    Script::parse(text).unwrap_or_else(|error| panic!("{text}\n{error}"))
}

fn listener() -> TcpListener {
    TcpListener::bind("127.0.0.1:0").unwrap()
}

fn start(text: &str) -> MockServer {
    MockServer::start("primary", script(text), listener()).unwrap()
}

async fn soon<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future)
        .await
        .expect("nothing happened in time")
}

/// What a client read until the connection ended.
#[derive(Debug)]
struct Answer {
    status: u16,
    head: String,
    body: Vec<u8>,
    /// Whether the body ended as its framing says.
    is_whole: bool,
}

impl Answer {
    fn read(bytes: &[u8]) -> Answer {
        let at = bytes
            .windows(4)
            .position(|four| four == b"\r\n\r\n")
            .expect("a header");
        let head = String::from_utf8(bytes[..at].to_vec())
            .unwrap()
            .to_lowercase();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        let rest = &bytes[at + 4..];
        let mut answer = Answer {
            status,
            head,
            body: rest.to_vec(),
            is_whole: true,
        };
        if answer.header("transfer-encoding") == Some("chunked") {
            (answer.body, answer.is_whole) = dechunked(rest);
        } else if let Some(length) = answer.header("content-length") {
            answer.is_whole = rest.len() == length.parse::<usize>().unwrap();
        }
        answer
    }

    fn header(&self, name: &str) -> Option<&str> {
        let lines = self.head.lines().skip(1);
        let mut fields = lines.filter_map(|line| line.split_once(": "));
        fields
            .find(|(known, _)| *known == name)
            .map(|(_, value)| value)
    }

    fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }

    fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{self:?}: {error}"))
    }

    /// The JSON of every event, `[DONE]` aside.
    fn events(&self) -> Vec<Value> {
        let data = self
            .text()
            .lines()
            .filter_map(|line| line.strip_prefix("data: "));
        let json = data.filter(|data| *data != "[DONE]");
        json.map(|data| serde_json::from_str(data).unwrap_or_else(|e| panic!("{data}: {e}")))
            .collect()
    }
}

fn dechunked(mut rest: &[u8]) -> (Vec<u8>, bool) {
    let mut body = Vec::new();
    loop {
        let Some(at) = rest.windows(2).position(|two| two == b"\r\n") else {
            return (body, false);
        };
        let size = std::str::from_utf8(&rest[..at]).unwrap();
        let size = usize::from_str_radix(size, 16).unwrap();
        let from = at + 2;
        if size == 0 {
            return (body, true);
        }
        if rest.len() < from + size {
            body.extend_from_slice(&rest[from..]);
            return (body, false);
        }
        body.extend_from_slice(&rest[from..from + size]);
        rest = &rest[from + size + 2..];
    }
}

fn request(path: &str, extra: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    format!(
        "POST {path} HTTP/1.1\r\nhost: mock\r\nconnection: close\r\n{extra}content-length: {length}\r\n\r\n{body}"
    )
    .into_bytes()
}

/// Everything that comes back on a connection of its own, and how it ended.
async fn raw(addr: SocketAddr, bytes: &[u8]) -> (Vec<u8>, io::Result<usize>) {
    let mut tcp = TcpStream::connect(addr).await.unwrap();
    tcp.write_all(bytes).await.unwrap();
    let mut read = Vec::new();
    let end = soon(tcp.read_to_end(&mut read)).await;
    (read, end)
}

async fn post(addr: SocketAddr, path: &str, body: &str) -> Answer {
    post_with(addr, path, "", body).await
}

async fn post_with(addr: SocketAddr, path: &str, extra: &str, body: &str) -> Answer {
    let (read, end) = raw(addr, &request(path, extra, body)).await;
    end.unwrap();
    Answer::read(&read)
}

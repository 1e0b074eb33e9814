//! Providers and clients that misbehave: bytes on a socket, written by hand.

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::soon;

/// A provider that does with each connection what a test says.
#[derive(Clone)]
pub struct Upstream {
    pub addr: SocketAddr,
    connections: Arc<AtomicUsize>,
    requests: Arc<AtomicUsize>,
}

/// One connection of it.
pub struct Link {
    pub stream: TcpStream,
    /// Number of the connection, from 1.
    pub number: usize,
    requests: Arc<AtomicUsize>,
    kept: Vec<u8>,
}

/// A request as it came.
#[derive(Debug)]
pub struct Request {
    pub head: String,
    pub body: Vec<u8>,
}

impl Upstream {
    /// Serves every connection on a task of its own.
    pub async fn start<F, Served>(serve: F) -> Upstream
    where
        F: Fn(Link) -> Served + Send + Sync + 'static,
        Served: Future<Output = ()> + Send + 'static,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let upstream = Upstream {
            addr: listener.local_addr().unwrap(),
            connections: Arc::default(),
            requests: Arc::default(),
        };
        let shared = upstream.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                stream.set_nodelay(true).unwrap();
                let number = shared.connections.fetch_add(1, Ordering::SeqCst) + 1;
                let requests = Arc::clone(&shared.requests);
                tokio::spawn(serve(Link {
                    stream,
                    number,
                    requests,
                    kept: Vec::new(),
                }));
            }
        });
        upstream
    }

    /// Connections that were accepted.
    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }

    /// Requests that were read whole.
    pub fn requests(&self) -> usize {
        self.requests.load(Ordering::SeqCst)
    }

    /// The provider in a configuration.
    pub fn provider(&self, more: &str) -> String {
        format!(
            "{{ adapter: openai, base_url: \"http://{}\"{more} }}",
            self.addr
        )
    }
}

impl Link {
    /// The next HTTP/1.1 request; `None` when the connection ended first.
    pub async fn request(&mut self) -> Option<Request> {
        let head = self.head().await?;
        let length = head.lines().find_map(|line| {
            let (name, value) = line.split_once(':')?;
            name.eq_ignore_ascii_case("content-length")
                .then(|| value.trim().parse().unwrap())
        });
        let body = self.body(length.unwrap_or(0)).await?;
        self.count();
        Some(Request { head, body })
    }

    /// The next request's head alone.
    pub async fn head(&mut self) -> Option<String> {
        loop {
            if let Some(at) = self.kept.windows(4).position(|four| four == b"\r\n\r\n") {
                let rest = self.kept.split_off(at + 4);
                let head = std::mem::replace(&mut self.kept, rest);
                return Some(String::from_utf8(head).unwrap());
            }
            self.more().await?;
        }
    }

    /// So many bytes of a body.
    pub async fn body(&mut self, length: usize) -> Option<Vec<u8>> {
        while self.kept.len() < length {
            self.more().await?;
        }
        let rest = self.kept.split_off(length);
        Some(std::mem::replace(&mut self.kept, rest))
    }

    /// Bytes that were read and belong to no request.
    pub fn left_over(&self) -> &[u8] {
        &self.kept
    }

    /// Counts a request that was read otherwise.
    pub fn count(&self) {
        self.requests.fetch_add(1, Ordering::SeqCst);
    }

    async fn more(&mut self) -> Option<()> {
        match self.stream.read_buf(&mut self.kept).await {
            Ok(0) | Err(_) => None,
            Ok(_) => Some(()),
        }
    }

    /// Writes text as it is.
    pub async fn write(&mut self, text: &str) {
        let _ = self.stream.write_all(text.as_bytes()).await;
    }

    /// Waits until the other side has closed.
    pub async fn closed(&mut self) {
        let mut rest = [0; 4096];
        while matches!(self.stream.read(&mut rest).await, Ok(read) if read > 0) {}
    }

    /// Ends the connection with a reset.
    pub fn reset(self) {
        self.stream.set_zero_linger().unwrap();
    }

    /// Answers the next request with a JSON body.
    pub async fn answer(&mut self, status: u16, body: &str) -> Option<Request> {
        let request = self.request().await?;
        self.write(&json(status, body)).await;
        Some(request)
    }
}

/// An HTTP/1.1 answer with a JSON body.
pub fn json(status: u16, body: &str) -> String {
    let length = body.len();
    format!(
        "HTTP/1.1 {status} Said\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
    )
}

/// A good answer to a chat request.
pub const GOOD: &str = r#"{"id":"x","object":"chat.completion","choices":[{"index":0,"message":{"role":"assistant","content":"raw"},"finish_reason":"stop"}]}"#;
/// A certified rejection.
pub const THROTTLE: &str = r#"{"error":{"message":"Slow down.","type":"requests","param":null,"code":"rate_limit_exceeded"}}"#;

/// A client that writes bytes.
pub struct RawClient {
    pub stream: TcpStream,
    kept: Vec<u8>,
}

impl RawClient {
    pub async fn connect(addr: SocketAddr) -> RawClient {
        let stream = TcpStream::connect(addr).await.unwrap();
        stream.set_nodelay(true).unwrap();
        RawClient {
            stream,
            kept: Vec::new(),
        }
    }

    pub async fn write(&mut self, text: &str) {
        self.stream.write_all(text.as_bytes()).await.unwrap();
    }

    /// Writes bytes that are no text. Who is cut off inside them reads why.
    pub async fn bytes(&mut self, bytes: &[u8]) {
        let _ = self.stream.write_all(bytes).await;
    }

    /// Reads up to and with this text, and returns what was read.
    pub async fn read_to(&mut self, text: &str) -> String {
        soon(async {
            loop {
                let found = self
                    .kept
                    .windows(text.len())
                    .position(|part| part == text.as_bytes());
                if let Some(at) = found {
                    let rest = self.kept.split_off(at + text.len());
                    let read = std::mem::replace(&mut self.kept, rest);
                    return String::from_utf8(read).unwrap();
                }
                let read = self.stream.read_buf(&mut self.kept).await.unwrap();
                assert!(
                    read > 0,
                    "ended after {}",
                    String::from_utf8_lossy(&self.kept)
                );
            }
        })
        .await
    }

    /// The head of an answer, and its body when it has a length.
    pub async fn answer(&mut self) -> (String, String) {
        let head = self.read_to("\r\n\r\n").await.to_lowercase();
        let length = head
            .lines()
            .find_map(|line| line.strip_prefix("content-length: "));
        let length: usize = length.map_or(0, |length| length.parse().unwrap());
        soon(async {
            while self.kept.len() < length {
                assert!(
                    self.stream.read_buf(&mut self.kept).await.unwrap() > 0,
                    "body cut"
                );
            }
        })
        .await;
        let rest = self.kept.split_off(length);
        let body = std::mem::replace(&mut self.kept, rest);
        (head, String::from_utf8(body).unwrap())
    }

    /// What comes first, up to the end of a body whose length it tells; less when the connection ends.
    pub async fn first_answer(&mut self) -> String {
        soon(async {
            loop {
                let text = String::from_utf8_lossy(&self.kept).into_owned();
                let is_whole = text.split_once("\r\n\r\n").is_some_and(|(head, body)| {
                    let lower = head.to_lowercase();
                    let length = lower
                        .lines()
                        .find_map(|line| line.strip_prefix("content-length: "));
                    length.is_none_or(|length| {
                        length.parse().is_ok_and(|length| body.len() >= length)
                    })
                });
                if is_whole || !matches!(self.stream.read_buf(&mut self.kept).await, Ok(1..)) {
                    return text;
                }
            }
        })
        .await
    }

    /// Forgets what was looked at by `first_answer`.
    pub fn skip_answer(&mut self) {
        self.kept.clear();
    }

    /// Everything until the end; whether it ended in order.
    pub async fn rest(&mut self) -> (String, bool) {
        let read = soon(self.stream.read_to_end(&mut self.kept)).await;
        (
            String::from_utf8_lossy(&std::mem::take(&mut self.kept)).into_owned(),
            read.is_ok(),
        )
    }
}

/// An HTTP/1.1 request to the gateway.
pub fn post_text(path: &str, headers: &str, body: &str) -> String {
    let length = body.len();
    format!(
        "POST {path} HTTP/1.1\r\nhost: gateway.test\r\ncontent-type: application/json\r\n{headers}content-length: {length}\r\n\r\n{body}"
    )
}

/// A pause that belongs to what a provider does.
pub async fn pause(time: std::time::Duration) {
    let _ = tokio::time::timeout(time, std::future::pending::<()>()).await;
}

/// A route `m` over two providers, each target tried once and never set aside.
pub fn two(first: &str, second: &str) -> String {
    two_with(first, second, "")
}

/// The same with more of `routing`.
pub fn two_with(first: &str, second: &str, routing: &str) -> String {
    format!(
        "providers:\n  one: {first}\n  two: {second}\nroutes:\n  - name: chat\n    models: [m]\n    targets: [{{ name: first, provider: one }}, {{ name: second, provider: two }}]\n    routing: {{ sticky_key_attempts: 1, cooldown: {{ max_ms: 0 }}{routing} }}\n"
    )
}

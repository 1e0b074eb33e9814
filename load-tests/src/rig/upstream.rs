//! Scripted upstreams: one thread, one answer a port, so that they cost as little as possible beside what is measured.
//!
//! They read requests and do not look into them. Invariants: a port answers in one way only; every event of a stream carries the instant at
//! which it was written; the thread ends with [`Upstreams`].

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;

use serde::Deserialize;

use super::http::{Decoder, Role};
use super::sys::{Poller, Ready, listen, now};

/// How long the thread sleeps at most before it looks whether it should end.
const LOOK_EVERY: u64 = 50_000_000;
/// Bytes read at once; a request of 100 KB takes two reads.
const READ_MAX: usize = 64 << 10;

/// What a port answers.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(tag = "answer", rename_all = "snake_case", deny_unknown_fields)]
pub enum Answer {
    /// 200 with a chat completion of so many bytes.
    Json {
        /// Length of the body.
        bytes: usize,
    },
    /// A certified throttle: the vendor's body, and when to come back.
    Throttle {
        /// Seconds.
        retry_after: u64,
    },
    /// 503, the same for every peer that cannot fail over on 429.
    Unavailable,
    /// 200 with a stream of events.
    Events {
        /// Events with content.
        count: u32,
        /// Milliseconds between two of them; 0: all at once.
        gap_ms: u64,
    },
    /// Nothing, ever.
    Hold,
}

/// What a port has seen.
#[derive(Debug, Default)]
pub struct Counts {
    /// Whole requests.
    pub requests: AtomicU64,
    /// Connections.
    pub connections: AtomicU64,
}

/// A port of [`Upstreams`].
#[derive(Clone, Debug)]
pub struct Port {
    /// On the loopback.
    pub number: u16,
    /// What it has seen.
    pub counts: Arc<Counts>,
}

/// The running upstreams.
pub struct Upstreams {
    /// In the order of the answers.
    pub ports: Vec<Port>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<io::Result<()>>>,
}

impl Upstreams {
    /// Listens on one free port for each answer.
    pub fn start(answers: &[Answer]) -> io::Result<Upstreams> {
        let stop = Arc::new(AtomicBool::new(false));
        let (mut listeners, mut ports) = (Vec::new(), Vec::new());
        for answer in answers {
            let socket = listen()?;
            let number = socket.local_addr()?.port();
            let counts = Arc::new(Counts::default());
            ports.push(Port {
                number,
                counts: Arc::clone(&counts),
            });
            listeners.push(Listener {
                socket,
                counts,
                answer: answer.clone(),
                bytes: Arc::new(bytes(answer)),
            });
        }
        let mut server = Server::new(listeners, Arc::clone(&stop))?;
        let thread = std::thread::Builder::new()
            .name("upstreams".into())
            .spawn(move || server.run())?;
        Ok(Upstreams {
            ports,
            stop,
            thread: Some(thread),
        })
    }
}

impl Drop for Upstreams {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(Ok(Err(error))) = self.thread.take().map(JoinHandle::join) {
            eprintln!("the upstreams ended early: {error}");
        }
    }
}

struct Listener {
    socket: TcpListener,
    counts: Arc<Counts>,
    answer: Answer,
    bytes: Arc<Vec<u8>>,
}

struct Connection {
    stream: TcpStream,
    listener: usize,
    /// Tells this connection from an earlier one in the same place.
    born: u64,
    decoder: Decoder,
    unsent: Vec<u8>,
    /// Events that are still to come, and the terminator after them.
    events: u32,
}

struct Server {
    poller: Poller,
    listeners: Vec<Listener>,
    connections: Vec<Option<Connection>>,
    free: Vec<usize>,
    timers: BinaryHeap<Reverse<(u64, usize, u64)>>,
    born: u64,
    stop: Arc<AtomicBool>,
    buffer: Vec<u8>,
}

impl Server {
    fn new(listeners: Vec<Listener>, stop: Arc<AtomicBool>) -> io::Result<Server> {
        let poller = Poller::new()?;
        for (token, listener) in listeners.iter().enumerate() {
            poller.add(&listener.socket, token)?;
        }
        let (connections, free, timers) = (Vec::new(), Vec::new(), BinaryHeap::new());
        Ok(Server {
            poller,
            listeners,
            connections,
            free,
            timers,
            born: 0,
            stop,
            buffer: vec![0; READ_MAX],
        })
    }

    fn run(&mut self) -> io::Result<()> {
        let mut ready: Vec<Ready> = Vec::new();
        while !self.stop.load(Ordering::Relaxed) {
            let next = self
                .timers
                .peek()
                .map_or(u64::MAX, |Reverse((due, ..))| *due);
            self.poller.wait(next.min(now() + LOOK_EVERY), &mut ready)?;
            for event in ready.drain(..) {
                match event.token.checked_sub(self.listeners.len()) {
                    None => self.accept(event.token)?,
                    Some(place) => {
                        if self.serve(place, event).is_none() {
                            self.close(place);
                        }
                    }
                }
            }
            self.fire();
        }
        Ok(())
    }

    fn accept(&mut self, at: usize) -> io::Result<()> {
        let Some(listener) = self.listeners.get(at) else {
            return Ok(());
        };
        while let Ok((stream, _)) = listener.socket.accept() {
            listener.counts.connections.fetch_add(1, Ordering::Relaxed);
            stream.set_nonblocking(true)?;
            stream.set_nodelay(true)?;
            let place = self.free.pop().unwrap_or(self.connections.len());
            self.poller.add(&stream, place + self.listeners.len())?;
            self.born += 1;
            let connection = Some(Connection {
                stream,
                listener: at,
                born: self.born,
                decoder: Decoder::new(Role::Request),
                unsent: Vec::new(),
                events: 0,
            });
            match self.connections.get_mut(place) {
                Some(slot) => *slot = connection,
                None => self.connections.push(connection),
            }
        }
        Ok(())
    }

    /// What is there to read and to write; nothing when the connection is over.
    fn serve(&mut self, place: usize, event: Ready) -> Option<()> {
        let connection = self.connections.get_mut(place)?.as_mut()?;
        if event.readable {
            let read = match connection.stream.read(&mut self.buffer) {
                Ok(0) => return None,
                Ok(read) => read,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => 0,
                Err(_) => return None,
            };
            let mut rest = self.buffer.get(..read)?;
            while !rest.is_empty() {
                let Some(used) = connection.decoder.feed(rest, &mut |_| {}) else {
                    break;
                };
                rest = rest.get(used..)?;
                let listener = self.listeners.get(connection.listener)?;
                listener.counts.requests.fetch_add(1, Ordering::Relaxed);
                connection.unsent.extend_from_slice(&listener.bytes);
                if let Answer::Events { count, gap_ms } = listener.answer {
                    connection.events = count;
                    loop {
                        connection.event();
                        connection.send()?;
                        if gap_ms > 0 || connection.events == 0 {
                            break;
                        }
                    }
                    if connection.events > 0 {
                        let due = now() + gap_ms * 1_000_000;
                        self.timers.push(Reverse((due, place, connection.born)));
                    }
                }
            }
        }
        self.flush(place)
    }

    /// Writes what is unsent, and asks to be told of room for the rest.
    fn flush(&mut self, place: usize) -> Option<()> {
        let connection = self.connections.get_mut(place)?.as_mut()?;
        let waited = !connection.unsent.is_empty();
        connection.send()?;
        let waits = !connection.unsent.is_empty();
        if waited || waits {
            let token = place + self.listeners.len();
            self.poller
                .set_writing(&connection.stream, token, waits)
                .ok()?;
        }
        Some(())
    }

    /// The events that are due.
    fn fire(&mut self) {
        while let Some(Reverse((due, place, born))) = self.timers.peek().copied() {
            if due > now() {
                return;
            }
            self.timers.pop();
            let Some(Some(connection)) = self.connections.get_mut(place) else {
                continue;
            };
            if connection.born != born {
                continue;
            }
            connection.event();
            if connection.events > 0
                && let Some(Listener {
                    answer: Answer::Events { gap_ms, .. },
                    ..
                }) = self.listeners.get(connection.listener)
            {
                self.timers
                    .push(Reverse((due + gap_ms * 1_000_000, place, born)));
            }
            if self.flush(place).is_none() {
                self.close(place);
            }
        }
    }

    fn close(&mut self, place: usize) {
        if self
            .connections
            .get_mut(place)
            .and_then(Option::take)
            .is_some()
        {
            self.free.push(place);
        }
    }
}

impl Connection {
    /// Appends the next event; the last one has the end of the stream with it.
    fn event(&mut self) {
        self.events = self.events.saturating_sub(1);
        let stamp = now();
        chunk(
            &mut self.unsent,
            &delta(&format!(r#"{{"content":" @{stamp}@ word"}}"#), "null"),
        );
        if self.events == 0 {
            chunk(
                &mut self.unsent,
                &format!("{}data: [DONE]\n\n", delta("{}", r#""stop""#)),
            );
            self.unsent.extend_from_slice(b"0\r\n\r\n");
        }
    }

    fn send(&mut self) -> Option<()> {
        let mut sent = 0;
        while let Some(rest) = self.unsent.get(sent..).filter(|rest| !rest.is_empty()) {
            match self.stream.write(rest) {
                Ok(written) if written > 0 => sent += written,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                _ => return None,
            }
        }
        self.unsent.drain(..sent);
        Some(())
    }
}

fn delta(delta: &str, finish: &str) -> String {
    format!(
        "data: {{\"id\":\"chatcmpl-load\",\"object\":\"chat.completion.chunk\",\"created\":1767225600,\"model\":\"gpt-load\",\
         \"choices\":[{{\"index\":0,\"delta\":{delta},\"finish_reason\":{finish}}}]}}\n\n"
    )
}

fn chunk(out: &mut Vec<u8>, text: &str) {
    out.extend_from_slice(format!("{:x}\r\n{text}\r\n", text.len()).as_bytes());
}

/// Everything of the answer that is the same each time.
fn bytes(answer: &Answer) -> Vec<u8> {
    match answer {
        Answer::Json { bytes } => {
            let frame = completion("").len();
            let text = "x".repeat(bytes.saturating_sub(frame));
            whole("200 OK", "", &completion(&text))
        }
        Answer::Throttle { retry_after } => whole(
            "429 Too Many Requests",
            &format!("retry-after: {retry_after}\r\n"),
            r#"{"error":{"message":"Rate limit reached for requests per min (RPM): Limit 500, Used 500, Requested 1.","type":"requests","param":null,"code":"rate_limit_exceeded"}}"#,
        ),
        Answer::Unavailable => whole(
            "503 Service Unavailable",
            "",
            r#"{"error":{"message":"Overloaded.","type":"server_error","param":null,"code":null}}"#,
        ),
        Answer::Events { .. } => {
            b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n".to_vec()
        }
        Answer::Hold => Vec::new(),
    }
}

fn completion(text: &str) -> String {
    format!(
        r#"{{"id":"chatcmpl-load","object":"chat.completion","created":1767225600,"model":"gpt-load","choices":[{{"index":0,"message":{{"role":"assistant","content":"{text}"}},"finish_reason":"stop"}}],"usage":{{"prompt_tokens":200,"completion_tokens":100,"total_tokens":300}}}}"#
    )
}

fn whole(status: &str, headers: &str, body: &str) -> Vec<u8> {
    format!(
        "HTTP/1.1 {status}\r\ncontent-type: application/json\r\n{headers}content-length: {}\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

//! One request of a client and its one end. Clients never ask twice by themselves: a broken connection is an end like any other.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::wire::Wire;

/// Longer than any deadline of the scenarios: a client that waits so long has been forgotten.
pub const HUNG: Duration = Duration::from_secs(60);
/// Requests in flight at most; what is due above it is not asked, and counted.
const IN_FLIGHT_MAX: usize = 2048;

/// How a client leaves before it has its answer.
#[derive(Clone, Copy)]
pub enum Leave {
    /// With so many per cent of its body sent.
    Upload(u64),
    /// So long after the request is sent: while it waits, or inside the answer.
    After(Duration),
}

/// What a client asks, and how it behaves.
#[derive(Clone)]
pub struct Ask {
    pub id: String,
    pub model: String,
    pub stream: bool,
    /// Bytes of the prompt.
    pub prompt: usize,
    pub leave: Option<Leave>,
    /// Whether it leaves with a reset instead of an orderly end.
    pub reset: bool,
}

impl Ask {
    /// A plain request.
    pub fn plain(id: String, model: &str) -> Ask {
        Ask {
            id,
            model: model.to_owned(),
            stream: false,
            prompt: 40,
            leave: None,
            reset: false,
        }
    }

    fn bytes(&self) -> (String, String) {
        let body = format!(
            r#"{{"model":"{}","stream":{},"messages":[{{"role":"user","content":"{}"}}]}}"#,
            self.model,
            self.stream,
            "z".repeat(self.prompt)
        );
        let head = format!(
            "POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nx-request-id: {}\r\n\
             content-type: application/json\r\ncontent-length: {}\r\n\r\n",
            self.id,
            body.len()
        );
        (head, body)
    }
}

/// How a request ended for its client.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum End {
    /// A whole answer with this status.
    Status(u16),
    /// The connection ended, or could not be made, before the answer was whole.
    Broken,
    /// The client left by itself.
    Left,
    /// Nothing for [`HUNG`].
    Hung,
}

/// A whole answer.
pub struct Answer {
    pub status: u16,
    pub bytes: usize,
    /// `retry-after-ms`, if the answer has one.
    pub retry_after: Option<Duration>,
    /// Whether it had `retry-after`.
    pub has_retry_after: bool,
}

/// Asks over this connection and reads the whole answer. `true`: the connection may be used again.
pub async fn exchange(wire: &mut Wire, ask: &Ask) -> io::Result<(Answer, bool)> {
    let (head, body) = ask.bytes();
    wire.stream.write_all((head + &body).as_bytes()).await?;
    let head = wire.head().await?.ok_or(io::ErrorKind::UnexpectedEof)?;
    let bytes = wire.body(&head).await?;
    let answer = Answer {
        status: head.status(),
        bytes,
        retry_after: head
            .field("retry-after-ms")
            .and_then(|value| value.parse().ok())
            .map(Duration::from_millis),
        has_retry_after: head.field("retry-after").is_some(),
    };
    Ok((answer, !head.closes()))
}

/// Clients of one address with kept connections, and what became of them.
#[derive(Clone)]
pub struct Clients {
    addr: SocketAddr,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    idle: Mutex<Vec<Wire>>,
    ends: Mutex<Ends>,
}

/// What became of all requests.
#[derive(Default)]
pub struct Ends {
    /// By id.
    pub by_id: HashMap<String, End>,
    /// Bytes that came although nobody had asked: second answers.
    pub second_answers: u64,
    /// Requests that were due while too many were in flight.
    pub unasked: u64,
    /// Final throttles without Retry-After.
    pub throttles_without_delay: u64,
    /// Slow readers whose answer was not what was sent.
    pub wrong_lengths: u64,
    /// Microseconds from when a request was due to its whole answer.
    pub latencies: Vec<u64>,
}

impl Ends {
    /// How often each end came.
    pub fn counts(&self) -> BTreeMap<End, u64> {
        let mut counts = BTreeMap::new();
        for end in self.by_id.values() {
            *counts.entry(*end).or_default() += 1;
        }
        counts
    }
}

impl Clients {
    pub fn new(addr: SocketAddr) -> Clients {
        Clients {
            addr,
            shared: Arc::default(),
        }
    }

    /// Asks and notes the one end.
    pub async fn ask(&self, ask: Ask, due: tokio::time::Instant) -> End {
        let end = match tokio::time::timeout(HUNG, self.attempt(&ask)).await {
            Ok(Ok(end)) => end,
            Ok(Err(_)) => End::Broken,
            Err(_) => End::Hung,
        };
        let mut ends = lock(&self.shared.ends);
        if matches!(end, End::Status(_)) {
            let took = u64::try_from(due.elapsed().as_micros()).unwrap_or(u64::MAX);
            ends.latencies.push(took);
        }
        ends.by_id.insert(ask.id, end);
        end
    }

    async fn attempt(&self, ask: &Ask) -> io::Result<End> {
        if let Some(leave) = ask.leave {
            return self.leave(ask, leave).await;
        }
        let kept = lock(&self.shared.idle).pop();
        let mut wire = match kept {
            Some(wire) => wire,
            None => connection(self.addr).await?,
        };
        let (answer, again) = exchange(&mut wire, ask).await?;
        self.note(&answer);
        if wire.has_more() {
            lock(&self.shared.ends).second_answers += 1;
        } else if again {
            lock(&self.shared.idle).push(wire);
        }
        Ok(End::Status(answer.status))
    }

    fn note(&self, answer: &Answer) {
        if answer.status == 429 && !answer.has_retry_after {
            lock(&self.shared.ends).throttles_without_delay += 1;
        }
    }

    /// A client that leaves; an answer that is whole before counts as one.
    async fn leave(&self, ask: &Ask, leave: Leave) -> io::Result<End> {
        let mut wire = connection(self.addr).await?;
        if ask.reset {
            wire.stream.set_zero_linger()?;
        }
        match leave {
            Leave::Upload(percent) => {
                let (head, body) = ask.bytes();
                let part = body.len() * percent as usize / 100;
                let sent = head + body.get(..part).unwrap_or_default();
                wire.stream.write_all(sent.as_bytes()).await?;
                // Some of it is read before the end comes.
                tokio::time::sleep(Duration::from_millis(5)).await;
                Ok(End::Left)
            }
            Leave::After(time) => {
                match tokio::time::timeout(time, exchange(&mut wire, ask)).await {
                    Ok(answered) => Ok(End::Status(answered?.0.status)),
                    Err(_) => Ok(End::Left),
                }
            }
        }
    }

    /// Open loop: so many requests a second for so long, whatever becomes of those before; then waits for all ends.
    pub async fn load(&self, rate: u64, length: Duration, make: impl Fn(u64) -> Ask) {
        let start = tokio::time::Instant::now();
        let count = rate * length.as_millis() as u64 / 1000;
        let permits = Arc::new(Semaphore::new(IN_FLIGHT_MAX));
        let mut running = JoinSet::new();
        for number in 0..count {
            let due = start + length.mul_f64(number as f64 / count as f64);
            tokio::time::sleep_until(due).await;
            while running.try_join_next().is_some() {}
            let Ok(permit) = Arc::clone(&permits).try_acquire_owned() else {
                lock(&self.shared.ends).unasked += 1;
                continue;
            };
            let (clients, ask) = (self.clone(), make(number));
            running.spawn(async move {
                clients.ask(ask, due).await;
                drop(permit);
            });
        }
        while running.join_next().await.is_some() {}
    }

    /// What became of all, and no connection is kept any longer.
    pub fn finish(&self) -> Ends {
        lock(&self.shared.idle).clear();
        std::mem::take(&mut lock(&self.shared.ends))
    }

    /// Adds a finding of a scenario's own clients.
    pub fn with<T>(&self, note: impl FnOnce(&mut Ends) -> T) -> T {
        note(&mut lock(&self.shared.ends))
    }
}

/// A new connection.
pub async fn connection(addr: SocketAddr) -> io::Result<Wire> {
    let stream = TcpStream::connect(addr).await?;
    stream.set_nodelay(true)?;
    Ok(Wire::new(stream))
}

/// A new connection with a small window, so that what is not read is not sent.
pub async fn slow_connection(addr: SocketAddr, window: u32) -> io::Result<Wire> {
    let socket = TcpSocket::new_v4()?;
    socket.set_recv_buffer_size(window)?;
    Ok(Wire::new(socket.connect(addr).await?))
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

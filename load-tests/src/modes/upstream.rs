//! The scripted provider: what it does with a send follows from a script, and every send is noted under its `x-request-id`.
//!
//! A send is noted when its head is read, before anything is done with it. All that serves ends with [`Upstream`], or with [`Upstream::hang_up`].

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::task::JoinSet;

use super::wire::Wire;

/// Connections that may wait to be accepted: bursts of thousands come at once.
const BACKLOG: u32 = 4096;
/// Time for an orderly end of a connection that was answered.
const ACCEPT_PAUSE: Duration = Duration::from_millis(20);

/// A send, as a script sees it.
pub struct Call<'a> {
    pub id: &'a str,
    /// 1 or 2.
    pub target: u8,
}

/// What the provider does with a send.
#[derive(Clone, Copy)]
pub enum Act {
    /// A good answer after so long.
    Answer(Duration),
    /// A 429 that a trusted status certifies, with Retry-After in seconds if there is one.
    Throttle(Option<u64>),
    /// A reset after so long, once the whole request is read.
    Reset(Duration),
    /// Nothing, ever.
    Silent,
    /// So many events with a pause before each.
    Stream(u32, Duration),
    /// A stream of so many KiB, as fast as it is taken.
    Flood(u32),
}

impl Act {
    /// Whether it proves that the request was not run.
    fn is_certified(self) -> bool {
        matches!(self, Act::Throttle(_))
    }
}

/// What a provider is told to do.
pub type Script = Arc<dyn Fn(&Call<'_>) -> Act + Send + Sync>;

/// What was done with the sends of each id, in the order of their arrival.
pub type Sends = HashMap<String, Vec<Act>>;

/// Sends that came although an earlier one of the same operation may have run.
pub fn duplicates(sends: &Sends) -> u64 {
    let of_one = |acts: &Vec<Act>| {
        let first = acts.iter().position(|act| !act.is_certified());
        first.map_or(0, |first| acts.len() - first - 1) as u64
    };
    sends.values().map(of_one).sum()
}

/// A provider with two addresses, one for each target.
pub struct Upstream {
    pub addrs: [SocketAddr; 2],
    sends: Arc<Mutex<Sends>>,
    _accepting: JoinSet<()>,
    connections: Arc<Mutex<JoinSet<()>>>,
}

impl Upstream {
    pub fn start(script: Script) -> io::Result<Upstream> {
        let sends: Arc<Mutex<Sends>> = Arc::default();
        let connections: Arc<Mutex<JoinSet<()>>> = Arc::default();
        let mut accepting = JoinSet::new();
        let mut open = |target: u8| -> io::Result<SocketAddr> {
            let socket = TcpSocket::new_v4()?;
            socket.bind(SocketAddr::from(([127, 0, 0, 1], 0)))?;
            let listener = socket.listen(BACKLOG)?;
            let addr = listener.local_addr()?;
            let work = Work {
                target,
                script: Arc::clone(&script),
                sends: Arc::clone(&sends),
            };
            accepting.spawn(accept(listener, work, Arc::clone(&connections)));
            Ok(addr)
        };
        let addrs = [open(1)?, open(2)?];
        Ok(Upstream {
            addrs,
            sends,
            _accepting: accepting,
            connections,
        })
    }

    /// Closes every connection.
    pub fn hang_up(&self) {
        *lock(&self.connections) = JoinSet::new();
    }

    /// Connections that are served now.
    pub fn connections(&self) -> usize {
        let mut connections = lock(&self.connections);
        while connections.try_join_next().is_some() {}
        connections.len()
    }

    /// All sends until now.
    pub fn sends(&self) -> Sends {
        lock(&self.sends).clone()
    }
}

struct Work {
    target: u8,
    script: Script,
    sends: Arc<Mutex<Sends>>,
}

async fn accept(listener: TcpListener, work: Work, connections: Arc<Mutex<JoinSet<()>>>) {
    let work = Arc::new(work);
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            // No descriptor is free: some will be.
            tokio::time::sleep(ACCEPT_PAUSE).await;
            continue;
        };
        let work = Arc::clone(&work);
        let mut connections = lock(&connections);
        while connections.try_join_next().is_some() {}
        connections.spawn(async move {
            let _ = serve(stream, &work).await;
        });
    }
}

async fn serve(stream: TcpStream, work: &Work) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut wire = Wire::new(stream);
    while let Some(head) = wire.head().await? {
        let id = head.field("x-request-id").unwrap_or_default().to_owned();
        let call = Call {
            id: &id,
            target: work.target,
        };
        let act = (work.script)(&call);
        lock(&work.sends).entry(id).or_default().push(act);
        wire.body(&head).await?;
        if !perform(&mut wire, act).await? {
            return Ok(());
        }
    }
    Ok(())
}

/// Does what the script says; `false`: the connection is over.
async fn perform(wire: &mut Wire, act: Act) -> io::Result<bool> {
    match act {
        Act::Answer(delay) => {
            tokio::time::sleep(delay).await;
            let body = r#"{"choices":[{"index":0,"message":{"role":"assistant","content":"hi"}}],"usage":{"prompt_tokens":3,"completion_tokens":1}}"#;
            answer(wire, "200 OK", "", body).await?;
        }
        Act::Throttle(delay) => {
            let delay = delay.map_or(String::new(), |delay| format!("retry-after: {delay}\r\n"));
            let body = r#"{"error":{"code":"rate_limit_exceeded","message":"slow down"}}"#;
            answer(wire, "429 Too Many Requests", &delay, body).await?;
        }
        Act::Reset(delay) => {
            tokio::time::sleep(delay).await;
            wire.stream.set_zero_linger()?;
            return Ok(false);
        }
        Act::Silent => {
            // Until the gateway gives up.
            let _ = wire.stream.read(&mut [0]).await?;
            return Ok(false);
        }
        Act::Stream(events, pause) => {
            stream_head(wire).await?;
            for _ in 0..events {
                tokio::time::sleep(pause).await;
                chunk(wire, &event(24)).await?;
            }
            stream_end(wire).await?;
        }
        Act::Flood(kibibytes) => {
            stream_head(wire).await?;
            let event = event(FLOOD_EVENT - event(0).len());
            for _ in 0..kibibytes {
                chunk(wire, &event).await?;
            }
            stream_end(wire).await?;
        }
    }
    Ok(true)
}

/// Bytes of each event of a flood.
const FLOOD_EVENT: usize = 1 << 10;

/// Bytes of a flood's whole body.
pub fn flood_bytes(kibibytes: u32) -> usize {
    kibibytes as usize * FLOOD_EVENT + DONE.len()
}

const DONE: &str = "data: [DONE]\n\n";

fn event(content: usize) -> String {
    let content = "y".repeat(content);
    format!("data: {{\"choices\":[{{\"index\":0,\"delta\":{{\"content\":\"{content}\"}}}}]}}\n\n")
}

async fn stream_head(wire: &mut Wire) -> io::Result<()> {
    let head =
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
    wire.stream.write_all(head.as_bytes()).await
}

async fn stream_end(wire: &mut Wire) -> io::Result<()> {
    chunk(wire, DONE).await?;
    wire.stream.write_all(b"0\r\n\r\n").await
}

async fn chunk(wire: &mut Wire, data: &str) -> io::Result<()> {
    let chunk = format!("{:x}\r\n{data}\r\n", data.len());
    wire.stream.write_all(chunk.as_bytes()).await
}

async fn answer(wire: &mut Wire, status: &str, fields: &str, body: &str) -> io::Result<()> {
    let answer = format!(
        "HTTP/1.1 {status}\r\ncontent-type: application/json\r\n{fields}content-length: {}\r\n\r\n{body}",
        body.len()
    );
    wire.stream.write_all(answer.as_bytes()).await
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_sends_after_what_may_have_run_are_duplicates() {
        let throttle = Act::Throttle(None);
        let of = |acts: &[Act]| duplicates(&Sends::from([("x".to_owned(), acts.to_vec())]));
        assert_eq!(of(&[throttle, throttle, Act::Silent]), 0);
        assert_eq!(of(&[Act::Silent, throttle]), 1);
        assert_eq!(of(&[throttle, Act::Reset(Duration::ZERO), throttle]), 1);
        assert_eq!(of(&[Act::Answer(Duration::ZERO), throttle, throttle]), 2);
    }
}

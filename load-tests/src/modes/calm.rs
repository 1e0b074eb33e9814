//! The route that nothing happens to: a steady open-loop load with a provider of its own, on a thread of its own, so that the scenario's
//! clients do not delay it. What it notices of the others is latency.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinSet;

use super::client::{Ask, connection, exchange};
use super::wire::Wire;

/// Requests a second: enough for a p99 in seconds, and a small part of what a core can do.
const RATE: u64 = 200;
/// Requests in flight at most. What is due above it is not asked, and counted: more would only pile up.
const IN_FLIGHT_MAX: usize = 1024;
/// A request that takes longer has been forgotten.
const REQUEST_MAX: Duration = Duration::from_secs(60);
/// Before, during, after.
const PHASES: usize = 3;

/// What a phase is.
#[derive(Clone, Copy)]
pub enum Phase {
    Before = 0,
    During = 1,
    After = 2,
}

#[derive(Default)]
struct Shared {
    phase: AtomicUsize,
    latencies: [Mutex<Vec<u64>>; PHASES],
    failures: AtomicU64,
    unasked: AtomicU64,
    sends: AtomicU64,
}

/// What the route noticed.
pub struct Noticed {
    /// Microseconds from when each request was due, by phase.
    pub latencies: [Vec<u64>; PHASES],
    pub asked: u64,
    pub failures: u64,
    /// Due while too many were in flight.
    pub unasked: u64,
    /// What the provider got.
    pub sends: u64,
}

/// A load that runs until it is stopped.
pub struct Calm {
    /// Where its provider is.
    pub provider: SocketAddr,
    shared: Arc<Shared>,
    go: Option<oneshot::Sender<SocketAddr>>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<io::Result<u64>>>,
}

impl Calm {
    /// Opens the provider.
    pub async fn open() -> io::Result<Calm> {
        let shared: Arc<Shared> = Arc::default();
        let (tell, told) = oneshot::channel();
        let (go, going) = oneshot::channel();
        let (stop, stopped) = oneshot::channel();
        let own = Arc::clone(&shared);
        let thread = std::thread::spawn(move || {
            let mut runtime = tokio::runtime::Builder::new_current_thread();
            let runtime = runtime.enable_all().build()?;
            runtime.block_on(async move {
                let listener = TcpListener::bind("127.0.0.1:0").await?;
                let _ = tell.send(listener.local_addr()?);
                let mut providing = JoinSet::new();
                providing.spawn(provide(listener, Arc::clone(&own)));
                match going.await {
                    Ok(addr) => load(addr, own, stopped).await,
                    Err(_) => Ok(0),
                }
            })
        });
        let provider = told.await.map_err(io::Error::other)?;
        Ok(Calm {
            provider,
            shared,
            go: Some(go),
            stop: Some(stop),
            thread: Some(thread),
        })
    }

    /// Begins, through the gateway at this address.
    pub fn begin(&mut self, gateway: SocketAddr) {
        if let Some(go) = self.go.take() {
            let _ = go.send(gateway);
        }
    }

    /// What is due from now on counts for this phase.
    pub fn phase(&self, phase: Phase) {
        self.shared.phase.store(phase as usize, Ordering::Relaxed);
    }

    /// Ends the load, and waits for its last answers.
    pub async fn stop(&mut self) -> io::Result<Noticed> {
        drop(self.stop.take());
        let Some(thread) = self.thread.take() else {
            return Err(io::Error::other("stopped before"));
        };
        let joined = tokio::task::spawn_blocking(|| thread.join()).await?;
        let asked = joined.map_err(|_| io::Error::other("the steady load panicked"))??;
        let latencies = self.shared.latencies.each_ref();
        Ok(Noticed {
            latencies: latencies.map(|latencies| std::mem::take(&mut *lock(latencies))),
            asked,
            failures: self.shared.failures.load(Ordering::Relaxed),
            unasked: self.shared.unasked.load(Ordering::Relaxed),
            sends: self.shared.sends.load(Ordering::Relaxed),
        })
    }
}

async fn load(
    gateway: SocketAddr,
    shared: Arc<Shared>,
    mut stopped: oneshot::Receiver<()>,
) -> io::Result<u64> {
    let idle: Arc<Mutex<Vec<Wire>>> = Arc::default();
    let start = tokio::time::Instant::now();
    let mut running = JoinSet::new();
    let (mut turn, mut number) = (0_u64, 0_u64);
    loop {
        let due = start + Duration::from_micros(turn * 1_000_000 / RATE);
        tokio::select! {
            _ = &mut stopped => break,
            () = tokio::time::sleep_until(due) => {}
        }
        while running.try_join_next().is_some() {}
        if running.len() >= IN_FLIGHT_MAX {
            shared.unasked.fetch_add(1, Ordering::Relaxed);
            turn += 1;
            continue;
        }
        let phase = shared.phase.load(Ordering::Relaxed);
        let (shared, idle) = (Arc::clone(&shared), Arc::clone(&idle));
        running.spawn(async move {
            let ask = Ask::plain(format!("calm-{number}"), "calm");
            let asked = tokio::time::timeout(REQUEST_MAX, once(gateway, &ask, &idle)).await;
            if !matches!(asked, Ok(Ok(200))) {
                shared.failures.fetch_add(1, Ordering::Relaxed);
            }
            let took = u64::try_from(due.elapsed().as_micros()).unwrap_or(u64::MAX);
            if let Some(latencies) = shared.latencies.get(phase) {
                lock(latencies).push(took);
            }
        });
        (turn, number) = (turn + 1, number + 1);
    }
    while running.join_next().await.is_some() {}
    Ok(number)
}

async fn once(gateway: SocketAddr, ask: &Ask, idle: &Mutex<Vec<Wire>>) -> io::Result<u16> {
    let kept = lock(idle).pop();
    let mut wire = match kept {
        Some(wire) => wire,
        None => connection(gateway).await?,
    };
    let (answer, again) = exchange(&mut wire, ask).await?;
    if again {
        lock(idle).push(wire);
    }
    Ok(answer.status)
}

async fn provide(listener: TcpListener, shared: Arc<Shared>) {
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        while connections.try_join_next().is_some() {}
        let shared = Arc::clone(&shared);
        connections.spawn(async move {
            let mut wire = Wire::new(stream);
            let body = r#"{"choices":[{"index":0,"message":{"role":"assistant","content":"hi"}}]}"#;
            let answer = format!(
                "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
                body.len()
            );
            while let Ok(Some(head)) = wire.head().await {
                shared.sends.fetch_add(1, Ordering::Relaxed);
                let read = wire.body(&head).await.is_ok();
                if !read || wire.stream.write_all(answer.as_bytes()).await.is_err() {
                    break;
                }
            }
        });
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

//! The server: accepts, reads requests whole, asks the plan, answers.
//!
//! Not here: what is answered (`plan`, `voice`, `presets`). HTTP/1.1 and HTTP/2 with prior knowledge share the port; there is no TLS.
//! Invariant: a request is entered into the recorder before its answer is chosen, and answers are chosen one at a time.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use parking_lot::Mutex;
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

use super::answer::{Act, Close};
use super::body::{ReplyBody, Watch};
use super::connection::{self, Control, Protocol, Wire};
use super::intake;
use super::plan::{Chosen, Plan, Question};
use super::recorder::Recorder;
use super::reply::{self, Exchange};
use super::script::Script;

/// Streams that a client may have open on one HTTP/2 connection.
const STREAMS_MAX: u32 = 1024;
/// HTTP/2 windows that let a large request through without waiting.
const STREAM_WINDOW: u32 = 1 << 20;
const CONNECTION_WINDOW: u32 = 8 << 20;
/// Wait after a failed accept, so that a lack of file descriptors does not spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(10);

/// The time that windows of a script look at.
#[derive(Debug, Clone)]
pub enum Clock {
    /// Time since the server started.
    Running(tokio::time::Instant),
    /// Milliseconds that a test sets.
    Manual(Arc<AtomicU64>),
}

impl Clock {
    /// A clock that starts now; follows the paused time of a test runtime.
    pub fn running() -> Clock {
        Clock::Running(tokio::time::Instant::now())
    }

    fn elapsed(&self) -> Duration {
        match self {
            Clock::Running(start) => start.elapsed(),
            Clock::Manual(millis) => Duration::from_millis(millis.load(Ordering::SeqCst)),
        }
    }
}

/// What a server is given beside its script.
#[derive(Debug, Clone)]
pub struct Setup {
    /// Where requests are recorded.
    pub recorder: Recorder,
    /// The time for windows.
    pub clock: Clock,
}

impl Default for Setup {
    fn default() -> Setup {
        Setup {
            recorder: Recorder::default(),
            clock: Clock::running(),
        }
    }
}

/// A running scripted provider. Stops when it is dropped.
#[derive(Debug)]
pub struct MockServer {
    shared: Arc<Shared>,
    addr: SocketAddr,
    stop: watch::Sender<bool>,
    accepting: Option<JoinHandle<()>>,
}

#[derive(Debug)]
pub(super) struct Shared {
    pub name: Arc<str>,
    /// The name as it stands in ids.
    pub id_name: String,
    pub recorder: Recorder,
    pub sequence: AtomicU64,
    clock: Clock,
    plan: Mutex<Plan>,
}

impl MockServer {
    /// Starts on the runtime of the caller, with its own recorder.
    pub fn start(
        name: &str,
        script: Script,
        listener: std::net::TcpListener,
    ) -> io::Result<MockServer> {
        MockServer::start_in(&Handle::current(), name, script, listener, Setup::default())
    }

    /// Starts on a given runtime.
    pub fn start_in(
        runtime: &Handle,
        name: &str,
        script: Script,
        listener: std::net::TcpListener,
        setup: Setup,
    ) -> io::Result<MockServer> {
        let _runtime = runtime.enter();
        listener.set_nonblocking(true)?;
        let listener = TcpListener::from_std(listener)?;
        let addr = listener.local_addr()?;
        let id_name = name
            .chars()
            .map(|c| if c.is_ascii_alphanumeric() { c } else { '-' });
        let shared = Arc::new(Shared {
            name: Arc::from(name),
            id_name: id_name.collect(),
            recorder: setup.recorder,
            sequence: AtomicU64::new(0),
            clock: setup.clock,
            plan: Mutex::new(Plan::new(Arc::new(script))),
        });
        let stop = watch::Sender::new(false);
        let accepting = runtime.spawn(accept(listener, Arc::clone(&shared), stop.subscribe()));
        Ok(MockServer {
            shared,
            addr,
            stop,
            accepting: Some(accepting),
        })
    }

    /// The name.
    pub fn name(&self) -> &str {
        &self.shared.name
    }

    /// Where it listens.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// What it saw.
    pub fn recorder(&self) -> &Recorder {
        &self.shared.recorder
    }

    /// Replaces the script, from its beginning. Requests that were given an answer keep it.
    pub fn set_script(&self, script: Script) {
        *self.shared.plan.lock() = Plan::new(Arc::new(script));
    }

    /// Stops: the port is closed and every connection ended when this returns.
    pub async fn stop(mut self) {
        self.stop.send_replace(true);
        if let Some(accepting) = self.accepting.take() {
            // It neither panics nor is cancelled while the runtime lives.
            let _ = accepting.await;
        }
    }
}

impl Drop for MockServer {
    fn drop(&mut self) {
        self.stop.send_replace(true);
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>, mut stop: watch::Receiver<bool>) {
    let mut connections = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = connection::stopped(&mut stop) => break,
        };
        while connections.try_join_next().is_some() {}
        match accepted {
            Ok((tcp, _)) if shared.plan.lock().script().refuse_connections => {
                shared.recorder.connection_opened();
                let _ = tcp.set_zero_linger();
                drop(tcp);
                shared.recorder.connection_closed();
            }
            Ok((tcp, _)) => {
                connections.spawn(serve(tcp, Arc::clone(&shared), stop.clone()));
            }
            Err(error) => {
                log::warn!("mock {}: accept failed: {error}", shared.name);
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
    drop(listener);
    while connections.join_next().await.is_some() {}
}

async fn serve(mut tcp: TcpStream, shared: Arc<Shared>, mut stop: watch::Receiver<bool>) {
    let control = Arc::new(Control::new(shared.recorder.connection_opened()));
    // Small answers must not wait for acknowledgements.
    let _ = tcp.set_nodelay(true);
    let sniffed = tokio::select! {
        sniffed = connection::sniff(&mut tcp) => sniffed,
        () = connection::stopped(&mut stop) => Ok(None),
    };
    if let Ok(Some((protocol, first))) = sniffed {
        let io = TokioIo::new(Wire::new(tcp, first, Arc::clone(&control)));
        let service = service_fn(|request| {
            answer(Arc::clone(&shared), Arc::clone(&control), protocol, request)
        });
        match protocol {
            Protocol::Http1 => {
                let server = hyper::server::conn::http1::Builder::new();
                let running = server.serve_connection(io, service);
                connection::drive(running, &control, &mut stop).await;
            }
            Protocol::Http2 => {
                let mut server = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
                server
                    .max_concurrent_streams(STREAMS_MAX)
                    .initial_stream_window_size(STREAM_WINDOW)
                    .initial_connection_window_size(CONNECTION_WINDOW)
                    .max_pending_accept_reset_streams(STREAMS_MAX as usize);
                let running = server.serve_connection(io, service);
                connection::drive(running, &control, &mut stop).await;
            }
        }
    }
    shared.recorder.connection_closed();
}

/// Answers one request; never ends where the script is silent, hyper drops it when the client leaves.
async fn answer(
    shared: Arc<Shared>,
    control: Arc<Control>,
    protocol: Protocol,
    request: Request<Incoming>,
) -> Result<Response<ReplyBody>, Infallible> {
    let (head, body) = request.into_parts();
    let entry = shared
        .recorder
        .enter(|| intake::seen(&shared.name, control.id, protocol, &head));
    let watch = Watch::new(shared.recorder.clone(), entry, Arc::clone(&control));
    let early = shared.choose_early(&head);
    let is_early = early.as_ref().is_some_and(|chosen| chosen.answer.is_early);
    let read = if is_early {
        tokio::spawn(intake::drain(body, shared.recorder.clone(), entry));
        bytes::Bytes::new()
    } else {
        match intake::read(body, &shared.recorder, entry).await {
            Some(read) => read,
            None => return broken_off(watch, &control, protocol).await,
        }
    };
    let ask = intake::ask(&head, &read);
    let chosen = match early {
        Some(chosen) => chosen,
        None => shared.choose(&ask.model, &head),
    };
    let Chosen {
        answer,
        place,
        delay,
        trickle,
    } = chosen;
    watch.update(|seen| {
        seen.answer = Some(Arc::clone(&answer.label));
        seen.place = Some(place);
    });
    if !delay.is_zero() {
        tokio::time::sleep(delay).await;
    }
    if let Act::Close(close) = &answer.act {
        control.finish(*close);
    }
    match answer.act.reply(ask.surface.family()) {
        Some(reply) => Ok(reply::respond(
            &shared,
            reply,
            trickle,
            Exchange {
                ask: &ask,
                head: &head,
                watch,
            },
        )),
        None => {
            let _watch = watch;
            std::future::pending().await
        }
    }
}

/// The client left inside its body. hyper would keep an HTTP/1.1 connection for an answer; an HTTP/2 stream it drops by itself.
async fn broken_off<T>(watch: Watch, control: &Control, protocol: Protocol) -> T {
    watch.client_left();
    if protocol == Protocol::Http1 {
        control.finish(Close::Orderly);
    }
    std::future::pending().await
}

impl Shared {
    /// The next answer, when the script has answers that do not wait for the body. The model in a body is not known then.
    fn choose_early(&self, head: &hyper::http::request::Parts) -> Option<Chosen> {
        let has_early = self.plan.lock().script().has_early;
        has_early.then(|| self.choose(&intake::ask(head, &[]).model, head))
    }

    fn choose(&self, model: &str, head: &hyper::http::request::Parts) -> Chosen {
        let request_id = head.headers.get("x-request-id");
        let request_id = request_id.and_then(|id| id.to_str().ok()).unwrap_or("");
        let elapsed = self.clock.elapsed();
        self.plan.lock().next(Question {
            model,
            request_id,
            elapsed,
        })
    }
}

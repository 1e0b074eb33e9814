//! `rondo mock`: the servers of one file, until the process is told to stop.

use std::io;
use std::net::SocketAddr;

use tokio::net::{TcpSocket, lookup_host};
use tokio::runtime::Handle;
use tokio::signal::unix::{SignalKind, signal};

use super::recorder::{Depth, Recorder};
use super::script::Script;
use super::server::{Clock, MockServer, Setup};
use super::yaml::ScriptError;

/// Connections that may wait to be accepted; a load test opens many at once.
const BACKLOG: u32 = 4096;
/// Where a server without `listen` listens.
const LISTEN: &str = "127.0.0.1:0";

/// Why `rondo mock` did not start.
#[derive(Debug, thiserror::Error)]
pub enum StandaloneError {
    /// The file is wrong.
    #[error(transparent)]
    Script(#[from] ScriptError),
    /// A server cannot listen.
    #[error("server {server}: cannot listen on {listen}: {source}")]
    Listen {
        /// Name of the server.
        server: String,
        /// The address.
        listen: String,
        /// Why.
        source: io::Error,
    },
    /// The signals of the process cannot be watched.
    #[error("cannot watch signals: {0}")]
    Signals(io::Error),
}

/// Starts every server of a file. Requests are counted, not kept.
pub async fn start_all(text: &str) -> Result<Vec<MockServer>, StandaloneError> {
    let mut servers = Vec::new();
    for (name, script) in Script::parse_file(text)? {
        let listen = script.listen.clone().unwrap_or_else(|| LISTEN.to_owned());
        let started = start_one(&name, script, &listen).await;
        servers.push(started.map_err(|source| StandaloneError::Listen {
            server: name,
            listen,
            source,
        })?);
    }
    Ok(servers)
}

async fn start_one(name: &str, script: Script, listen: &str) -> io::Result<MockServer> {
    let addr = lookup_host(listen).await?.next();
    let addr = addr.ok_or_else(|| io::Error::other("the name has no address"))?;
    let listener = bind(addr)?;
    let setup = Setup {
        recorder: Recorder::new(Depth::Counts),
        clock: Clock::running(),
    };
    MockServer::start_in(&Handle::current(), name, script, listener, setup)
}

/// A listener that a burst of connections does not overflow: the default backlog of 128 resets the rest. Called on a runtime.
pub fn bind(addr: SocketAddr) -> io::Result<std::net::TcpListener> {
    let socket = if addr.is_ipv4() {
        TcpSocket::new_v4()?
    } else {
        TcpSocket::new_v6()?
    };
    socket.set_reuseaddr(true)?;
    socket.bind(addr)?;
    socket.listen(BACKLOG)?.into_std()
}

/// Runs every server of a file until SIGINT or SIGTERM. `on_listening` is told names and addresses once all of them accept.
pub async fn run_standalone(
    text: &str,
    on_listening: impl FnOnce(&[(String, SocketAddr)]),
) -> Result<(), StandaloneError> {
    let mut terminate = signal(SignalKind::terminate()).map_err(StandaloneError::Signals)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(StandaloneError::Signals)?;
    let servers = start_all(text).await?;
    let listening: Vec<(String, SocketAddr)> = servers
        .iter()
        .map(|server| (server.name().to_owned(), server.addr()))
        .collect();
    on_listening(&listening);
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    for server in servers {
        let sends = server.recorder().sends();
        log::info!("mock {}: {sends} requests", server.name());
        server.stop().await;
    }
    Ok(())
}

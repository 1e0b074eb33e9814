//! The servers: listeners, Pingora's configuration, and the order in which everything starts.

use std::io;
use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;

use pingora_core::listeners::tls::TlsSettings;
use pingora_core::listeners::{L4BufferSettings, ListenerConfig};
use pingora_core::server::configuration::{Opt, ServerConf};
use pingora_core::server::{RunArgs, Server};
use pingora_core::services::background::background_service;
use pingora_core::services::listening::Service;
use tokio::runtime::Runtime;

use super::App;
use super::admin_service::AdminService;
use super::drain::Drain;
use super::signals::{self, Signals};
use crate::policy::snapshot::{Listen, ServerSettings, Snapshot};
use crate::proxy::front::{Front, Gatekeeper};
use crate::proxy::service::DataPlane;
use crate::proxy::upstream::AttemptConnector;

/// Idle upstream connections kept over all providers. A pool smaller than a burst opens connections anew each time.
const UPSTREAM_POOL: usize = 4096;
/// Time that Pingora gives its runtimes after the grace period.
const RUNTIME_STOP: Duration = Duration::from_secs(1);

/// Read buffer of a client's connection: none. Heads and bodies are read into buffers of their own anyhow, and Pingora's default, 64 KiB,
/// is held as long as the connection, that is, by every attempt that waits.
const READ_BUFFER: usize = 0;
/// Write buffer of a client's connection: none. Head and body of a usual answer are written in one piece.
const WRITE_BUFFER: usize = 0;
/// The same under TLS, where the records of one write leave in one piece.
const WRITE_BUFFER_TLS: usize = 4 << 10;
/// A read buffer under TLS, which reads in small pieces: the largest record and the beginning of the next.
const READ_BUFFER_TLS: usize = 20 << 10;

/// How the process was started.
#[derive(Debug, Clone, Copy, Default)]
pub struct StartOptions {
    /// Take the listeners over from a running process.
    pub upgrade: bool,
}

/// Why the servers cannot be started.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// An address cannot be listened on: it is taken, not this machine's, or not permitted.
    #[error("cannot listen on {address} ({key}): {source}")]
    Listen {
        /// The address.
        address: String,
        /// The key of the configuration.
        key: &'static str,
        /// Why.
        source: io::Error,
    },
    /// A certificate cannot be used.
    #[error("server.listen {address}: {what}")]
    Tls {
        /// The listener.
        address: String,
        /// Why.
        what: String,
    },
}

/// Tries every address once. Pingora 0.9.1 retries a taken one for seconds, then panics in one of its threads, and the process lives on
/// without serving (`a_taken_port_ends_the_start`).
fn check_addresses(snapshot: &Snapshot) -> Result<(), ServeError> {
    let data = snapshot
        .server
        .listen
        .iter()
        .map(|listen| ("server.listen", &listen.address));
    let admin = snapshot
        .admin
        .listen
        .iter()
        .map(|address| ("admin.listen", address));
    for (key, address) in data.chain(admin) {
        if let Err(source) = TcpListener::bind(address) {
            let address = address.clone();
            return Err(ServeError::Listen {
                address,
                key,
                source,
            });
        }
    }
    Ok(())
}

/// The data plane as a Pingora service, with its listeners.
pub type DataService = Service<Front>;

/// The data plane without listeners.
pub fn data_plane(app: &App) -> DataService {
    let connector = AttemptConnector::new(UPSTREAM_POOL);
    let plane = DataPlane::new(Arc::clone(&app.gateway), connector);
    let front = Front::new(plane, app.snapshot().server.keepalive_timeout);
    let mut service = Service::new("data plane".to_owned(), front);
    let gatekeeper = Gatekeeper(Arc::clone(&app.gateway));
    service
        .endpoints()
        .set_pre_tls_callback(Arc::new(gatekeeper));
    service
}

/// Adds a listener of the configuration.
pub fn listen(service: &mut DataService, listen: &Listen) -> Result<(), ServeError> {
    let endpoint = ListenerConfig::tcp(&*listen.address);
    let Some(tls) = &listen.tls else {
        let buffer = L4BufferSettings::new(READ_BUFFER, WRITE_BUFFER);
        service.add_listener(endpoint.l4_buffer(buffer));
        return Ok(());
    };
    let mut settings =
        TlsSettings::intermediate(&tls.cert, &tls.key).map_err(|error| ServeError::Tls {
            address: listen.address.clone(),
            what: error.to_string(),
        })?;
    settings.enable_h2();
    let buffer = L4BufferSettings::new(READ_BUFFER_TLS, WRITE_BUFFER_TLS);
    service.add_listener(endpoint.tls(settings).l4_buffer(buffer));
    Ok(())
}

/// Pingora's settings for this process.
pub fn conf(server: &ServerSettings) -> ServerConf {
    ServerConf {
        threads: server.threads,
        // One thread has nobody to steal from, and a runtime without queues to guard is cheaper.
        work_stealing: server.threads > 1,
        grace_period_seconds: Some(server.shutdown_grace.as_secs_f64().ceil() as u64),
        graceful_shutdown_timeout_seconds: Some(RUNTIME_STOP.as_secs()),
        ..ServerConf::default()
    }
}

/// Where listeners are handed over. Named by what is handed over, so that two gateways on one machine never meet there.
fn upgrade_socket(server: &ServerSettings) -> String {
    let first = server.listen.first().map_or("", |listen| &*listen.address);
    let name: String = first
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() { c } else { '-' })
        .collect();
    let file = std::env::temp_dir().join(format!("rondo-upgrade-{name}.sock"));
    file.to_string_lossy().into_owned()
}

/// Runs until a signal stops it; the process exits inside.
pub fn run(
    app: &Arc<App>,
    background: &Runtime,
    signals: Signals,
    start: StartOptions,
) -> Result<(), ServeError> {
    let settings = app.snapshot().server.clone();
    // At an upgrade the addresses are taken: by the process that hands them over.
    if !start.upgrade {
        check_addresses(&app.snapshot())?;
    }
    let (hangups, stop) = signals.split(app.gateway.around.lifecycle.clone());
    let opt = Opt {
        upgrade: start.upgrade,
        ..Opt::default()
    };
    let conf = ServerConf {
        upgrade_sock: upgrade_socket(&settings),
        ..conf(&settings)
    };
    let mut server = Server::new_with_opt_and_conf(opt, conf);
    server.bootstrap();

    let mut data = data_plane(app);
    for address in &settings.listen {
        listen(&mut data, address)?;
        let kind = if address.tls.is_some() {
            "https"
        } else {
            "http"
        };
        log::info!("listening on {kind}://{}", address.address);
    }
    server.add_service(data);
    if let Some(address) = &app.snapshot().admin.listen {
        server.add_service(AdminService::new(app, address));
        log::info!("admin plane on http://{address}/admin");
    }
    let drain = Drain::new(Arc::clone(app), settings.shutdown_grace);
    server.add_service(background_service("drain", drain));

    background.spawn(signals::reload_on_hangup(Arc::clone(app), hangups));
    let resolver = Arc::clone(&app.resolver);
    background.spawn(async move { resolver.run().await });
    server.run(RunArgs {
        shutdown_signal: Box::new(stop),
    });
    // An interrupt does not wait for the threads of the data plane to drop what they serve.
    app.gateway.around.inflight.settle_all();
    Ok(())
}

//! A gateway on a port of the system's choice, and clients for it.

pub mod client;
pub mod frames;
pub mod raw;
pub mod tls;

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::fd::IntoRawFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use pingora_core::server::Fds;
use pingora_core::services::Service;
use rondo::app::App;
use rondo::app::server::{StartOptions, conf, data_plane, listen};
use rondo::mock::Recorder;
use rondo::policy::snapshot::{Listen, ListenTls};
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// Longest that anything in a test is waited for. It bounds a hang; no test passes because of it.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// Waits for a future, but not for ever.
pub async fn soon<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future)
        .await
        .expect("it took too long")
}

/// A running gateway.
pub struct Rondo {
    pub app: Arc<App>,
    pub addr: SocketAddr,
    pub file: PathBuf,
    stop: watch::Sender<bool>,
    service: Option<JoinHandle<()>>,
}

impl Rondo {
    /// Starts a gateway with this configuration. `server.listen` and `admin.listen` of it are not used; `ledger` is off unless it is there.
    pub async fn start(yaml: &str) -> Rondo {
        Rondo::start_listening(yaml, None).await
    }

    /// The same, with TLS when there are a certificate and a key.
    pub async fn start_listening(yaml: &str, tls: Option<ListenTls>) -> Rondo {
        let file = write_config(yaml);
        let app = App::load(file.clone(), &Handle::current()).await;
        let app = app.unwrap_or_else(|error| panic!("{error}"));
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        listener.set_nonblocking(true).unwrap();
        let addr = listener.local_addr().unwrap();
        let mut fds = Fds::new();
        fds.add(addr.to_string(), listener.into_raw_fd());
        let server_conf = Arc::new(conf(&app.snapshot().server, StartOptions::default()));
        let mut service = data_plane(&app, &server_conf);
        listen(
            &mut service,
            &Listen {
                address: addr.to_string(),
                tls,
            },
        )
        .unwrap();
        let (stop, shutdown) = watch::channel(false);
        let fds = Some(Arc::new(parking_lot::Mutex::new(fds)));
        let service = tokio::spawn(async move { service.start_service(fds, shutdown, 1).await });
        Rondo {
            app,
            addr,
            file,
            stop,
            service: Some(service),
        }
    }

    /// What the embedded provider has seen.
    pub fn mock(&self, provider: &str) -> Recorder {
        self.app.mock(provider).expect("a provider with a script")
    }

    /// Names of the targets' providers in the order of their sends, by the recorders' times.
    pub fn sends(&self, providers: &[&str]) -> Vec<String> {
        let mut seen: Vec<_> = providers
            .iter()
            .flat_map(|name| {
                let requests = self.mock(name).requests();
                requests
                    .into_iter()
                    .map(move |request| (request.at, (*name).to_owned()))
            })
            .collect();
        seen.sort();
        seen.into_iter().map(|(_, name)| name).collect()
    }

    /// The value of a series, 0 when it does not exist. `labels` are `name="value"` texts that must all be there; matches are summed.
    pub fn metric(&self, name: &str, labels: &[&str]) -> f64 {
        let text = self.app.telemetry.render();
        text.lines()
            .filter(|line| {
                let rest = line.strip_prefix(name);
                rest.is_some_and(|rest| rest.starts_with([' ', '{']))
                    && labels.iter().all(|label| line.contains(label))
            })
            .filter_map(|line| line.rsplit_once(' ')?.1.parse::<f64>().ok())
            .sum()
    }

    /// Waits until no request is in flight.
    pub async fn idle(&self) {
        soon(async {
            while self.app.gateway.around.inflight.count() > 0 {
                tokio::task::yield_now().await;
            }
        })
        .await;
    }

    /// What must hold after every test: nothing in flight, nothing waiting, nothing held, and balanced counters (R-S22).
    pub async fn assert_quiet(&self) {
        self.idle().await;
        assert_eq!(self.app.gateway.buffered.held(), 0, "held bytes");
        for route in &self.app.snapshot().routes {
            assert_eq!(route.waiters.waiting(), 0, "sleepers of {}", route.name);
            assert_eq!(
                route.waiters.waiting_bytes(),
                0,
                "bytes of sleepers of {}",
                route.name
            );
        }
        assert_eq!(self.metric("rondo_inflight_requests", &[]), 0.0);
        assert_eq!(self.metric("rondo_unexpected_events_total", &[]), 0.0);
        let admissions = self.metric("rondo_exhaustion_admissions_total", &[]);
        let ends = self.metric("rondo_exhaustion_ends_total", &[]);
        assert_eq!(admissions, ends, "admissions and their ends");
        let sends = self.metric("rondo_upstream_sends_total", &[]);
        let attempts = self.metric("rondo_attempts_total", &[]);
        assert!(attempts >= sends, "every send belongs to a settled attempt");
    }

    /// Stops listening and waits for the listener's end.
    pub async fn stop(mut self) {
        self.stop.send_replace(true);
        if let Some(service) = self.service.take() {
            soon(service).await.unwrap();
        }
    }
}

impl Drop for Rondo {
    fn drop(&mut self) {
        self.stop.send_replace(true);
        let _ = std::fs::remove_file(&self.file);
    }
}

/// A configuration file of its own for each test.
pub fn write_config(yaml: &str) -> PathBuf {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let name = format!("rondo-{}-{number}.yaml", std::process::id());
    let file = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    let ledger = if yaml.contains("\nledger:") {
        ""
    } else {
        "\nledger: { store: off }\n"
    };
    std::fs::write(&file, format!("{yaml}{ledger}")).unwrap();
    file
}

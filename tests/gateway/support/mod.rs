//! A gateway on a port of the system's choice, and clients for it.

pub mod auditor;
pub mod caller;
pub mod client;
pub mod database;
pub mod frames;
pub mod held;
pub mod process;
pub mod raw;
pub mod socket;
pub mod stage;
pub mod tls;
pub mod wire;

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::fd::IntoRawFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use pingora_core::server::Fds;
use pingora_core::services::Service;
use rondo::app::App;
use rondo::app::server::{data_plane, listen};
use rondo::core::limits::RECENT_OPERATIONS_MAX;
use rondo::core::settlement::State;
use rondo::ledger::Record;
use rondo::mock::Recorder;
use rondo::policy::snapshot::{Listen, ListenTls};
use rondo::proxy::host::Observer;
use tokio::runtime::Handle;
use tokio::sync::watch;

/// Longest that anything in a test is waited for. It bounds a hang; no test passes because of it.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// Waits for a future, but not for ever.
pub async fn soon<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future)
        .await
        .expect("it took too long")
}

/// Waits until something holds that no event tells of. How often it is looked at decides nothing but how busy the machine is.
pub async fn until(mut holds: impl FnMut() -> bool) {
    soon(async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    })
    .await;
}

/// Who counts and records.
pub type Watched = Arc<dyn Observer>;

/// A running gateway.
pub struct Rondo {
    pub app: Arc<App>,
    pub addr: SocketAddr,
    pub file: PathBuf,
    stop: watch::Sender<bool>,
}

impl Rondo {
    /// Starts a gateway with this configuration. `server.listen` and `admin.listen` of it are not used; `ledger` is off unless it is there.
    pub async fn start(yaml: &str) -> Rondo {
        Rondo::start_listening(yaml, None).await
    }

    /// The same, with TLS when there are a certificate and a key.
    pub async fn start_listening(yaml: &str, tls: Option<ListenTls>) -> Rondo {
        Rondo::start_with(yaml, tls, |telemetry| telemetry).await
    }

    /// The same, with an observer of the test's own between the data plane and telemetry.
    pub async fn start_observed(yaml: &str, observer: impl FnOnce(Watched) -> Watched) -> Rondo {
        Rondo::start_with(yaml, None, observer).await
    }

    async fn start_with(
        yaml: &str,
        tls: Option<ListenTls>,
        observer: impl FnOnce(Watched) -> Watched,
    ) -> Rondo {
        let file = write_config(yaml);
        let app = App::load(file.clone(), &Handle::current()).await;
        let mut app = app.unwrap_or_else(|error| panic!("{error}"));
        let inside = Arc::get_mut(&mut app).expect("nobody else has it yet");
        let gateway = Arc::get_mut(&mut inside.gateway).expect("nobody else has it yet");
        gateway.around.observer = observer(Arc::clone(&gateway.around.observer));
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        listener.set_nonblocking(true).unwrap();
        let addr = listener.local_addr().unwrap();
        let mut fds = Fds::new();
        fds.add(addr.to_string(), listener.into_raw_fd());
        let mut service = data_plane(&app);
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
        tokio::spawn(async move { service.start_service(fds, shutdown, 1).await });
        Rondo {
            app,
            addr,
            file,
            stop,
        }
    }

    /// Routes with so much traffic besides that the retry budget is not what bounds the test.
    pub fn with_traffic(self) -> Rondo {
        let now = self.app.gateway.around.clock.mono();
        for route in &self.app.snapshot().routes {
            (0..10_000).for_each(|_| route.retry_budget.deposit(now));
        }
        self
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
            .fold(0.0, |sum, value| sum + value)
    }

    /// Tells the server to stop, as Pingora does when the process is to end.
    pub fn stop(&self) {
        self.stop.send_replace(true);
    }

    /// Waits until no request is in flight.
    pub async fn idle(&self) {
        self.until(|rondo| rondo.app.gateway.around.inflight.count() == 0)
            .await;
    }

    /// Waits until something holds of the gateway.
    pub async fn until(&self, holds: impl Fn(&Rondo) -> bool) {
        until(|| holds(self)).await;
    }

    /// Waits until so many operations sleep between rounds.
    pub async fn until_waiting(&self, count: u64) {
        self.until(|rondo| rondo.waiting() == count).await;
    }

    /// Operations that sleep between rounds, over all routes.
    pub fn waiting(&self) -> u64 {
        self.app
            .snapshot()
            .routes
            .iter()
            .map(|route| route.waiters.waiting())
            .sum()
    }

    /// What must hold after every test: nothing in flight, nothing waiting, nothing held, and balanced counters (R-S22).
    pub async fn assert_quiet(&self) {
        self.idle().await;
        assert_eq!(self.app.gateway.buffered.held(), 0, "held bytes");
        let operations = self.app.gateway.occupancy.operations.taken();
        assert_eq!(operations, 0, "seats of operations");
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
        self.assert_balanced();
    }

    /// The sums that agree whenever nothing is in flight. One counter stands for one fact, so that two ways to count it give one number.
    fn assert_balanced(&self) {
        let sum = |name: &str, labels: &[&str]| self.metric(&format!("rondo_{name}"), labels);
        let ends = sum("exhaustion_ends_total", &[]);
        assert_eq!(
            sum("exhaustion_admissions_total", &[]),
            ends,
            "admissions and their ends"
        );
        assert_eq!(
            sum("exhaustion_successes_total", &[]),
            sum("exhaustion_ends_total", &["end=\"success\""]),
        );
        assert_eq!(
            sum("exhaustion_waits_total", &[]),
            sum("exhaustion_wait_seconds_count", &[]),
            "waits and their durations"
        );

        let decided =
            |decision: &str| sum("attempts_total", &[&format!("decision=\"{decision}\"")]);
        assert_eq!(
            sum("failovers_total", &[]),
            decided("next_target"),
            "failovers"
        );
        assert_eq!(
            sum("provider_retries_total", &[]),
            decided("same_target"),
            "sticky tries"
        );
        // A client may leave while its last answer is written.
        let exhausted = sum("requests_total", &["outcome=\"exhausted\""]);
        assert!(
            sum("route_exhaustions_total", &[]) >= exhausted,
            "exhaustions"
        );
        let ended = sum("requests_total", &[]);
        assert_eq!(
            ended,
            sum("request_duration_seconds_count", &[]),
            "requests and durations"
        );
        let records = self.records();
        if records.len() < RECENT_OPERATIONS_MAX {
            self.assert_recorded(&records);
            assert!(
                ended >= records.len() as f64,
                "{ended} requests, {} records",
                records.len()
            );
        }
    }

    /// Counters and records tell the same story.
    fn assert_recorded(&self, records: &[Arc<Record>]) {
        let sum = |name: &str| self.metric(&format!("rondo_{name}"), &[]);
        let open = |record: &&Arc<Record>| record.operation.state == State::Pending;
        assert_eq!(records.iter().find(open), None, "a record is still pending");
        let attempts: Vec<_> = records.iter().flat_map(|record| &record.attempts).collect();
        let open = attempts
            .iter()
            .find(|attempt| attempt.state == State::Pending);
        assert_eq!(open, None, "an attempt is still pending");
        let sends: u32 = records.iter().map(|record| record.operation.sends).sum();
        let arrived = attempts
            .iter()
            .filter(|attempt| attempt.may_have_arrived())
            .count();
        assert_eq!(
            sum("attempts_total"),
            attempts.len() as f64,
            "attempts and their records"
        );
        assert_eq!(
            sum("upstream_sends_total"),
            f64::from(sends),
            "sends and their records"
        );
        assert!(
            arrived <= sends as usize && sends as usize <= attempts.len(),
            "{sends} sends"
        );
    }

    /// The records of all operations, the oldest first.
    pub fn records(&self) -> Vec<Arc<Record>> {
        let mut records = self.app.telemetry.recent(usize::MAX, |_| true);
        records.reverse();
        records
    }

    /// Requests that ended without having been operations.
    pub fn refusals(&self) -> f64 {
        self.metric("rondo_requests_total", &[]) - self.records().len() as f64
    }
}

impl Drop for Rondo {
    fn drop(&mut self) {
        self.stop();
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

//! A gateway as a process: started, signalled, measured and ended by its id. What it says goes to a file, so that a panic is seen.

use std::fs::File;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};

use crate::gateway::free_port;
use crate::rig::process::{Memory, memory};

/// How long the process may take to listen.
const START_MAX: Duration = Duration::from_secs(10);
/// How long it may take to leave after SIGTERM.
const END_MAX: Duration = Duration::from_secs(20);

/// Lines of its log that are shown when something does not hold.
const LOG_LINES: usize = 12;

/// Where a gateway is reached, and its files.
#[derive(Clone)]
pub struct Place {
    pub addr: SocketAddr,
    pub admin: SocketAddr,
    pub config: PathBuf,
    pub database: PathBuf,
    log: PathBuf,
}

impl Place {
    /// A place with free ports, and files with this name.
    pub async fn new(dir: &Path, name: &str) -> io::Result<Place> {
        let file = |suffix: &str| dir.join(format!("{name}{suffix}"));
        Ok(Place {
            addr: free_port().await?,
            admin: free_port().await?,
            config: file(".yaml"),
            database: file(".db"),
            log: file(".log"),
        })
    }

    /// The last lines of the log.
    pub fn log_end(&self) -> String {
        let text = std::fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        let first = lines.len().saturating_sub(LOG_LINES);
        lines.get(first..).unwrap_or_default().join("\n")
    }

    /// Lines of the log that a defect leaves.
    pub fn panics(&self) -> u64 {
        let text = std::fs::read_to_string(&self.log).unwrap_or_default();
        let lines = text.lines().filter(|line| line.contains("panicked at"));
        lines.count() as u64
    }
}

/// A running gateway; it is killed when this is dropped.
pub struct Process {
    pub place: Place,
    pub id: u32,
    child: Child,
    watcher: Child,
}

impl Process {
    /// Starts the binary with the configuration in its place.
    pub async fn start(binary: &Path, place: &Place) -> io::Result<Process> {
        let log = File::options().create(true).append(true).open(&place.log)?;
        // Many sockets: with as many open files as it may have.
        let mut child = Command::new("sh")
            .args([
                "-c",
                "ulimit -n \"$(ulimit -Hn)\"; exec \"$0\" run -c \"$1\"",
            ])
            .arg(binary)
            .arg(&place.config)
            .env("RUST_LOG", "warn")
            .stderr(log)
            .kill_on_drop(true)
            .spawn()?;
        let id = child.id().ok_or_else(|| io::Error::other("no process"))?;
        let listening = async {
            while TcpStream::connect(place.addr).await.is_err() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::select! {
            ended = child.wait() => {
                return Err(io::Error::other(format!("the gateway ended at once: {}, see {}", ended?, place.log.display())));
            }
            listening = tokio::time::timeout(START_MAX, listening) => listening.map_err(io::Error::other)?,
        }
        Ok(Process {
            place: place.clone(),
            id,
            child,
            watcher: watcher(id)?,
        })
    }

    /// Sends a signal by its name.
    pub async fn signal(&self, name: &str) -> io::Result<()> {
        let mut kill = Command::new("sh");
        kill.args(["-c", "kill -\"$0\" \"$1\"", name, &self.id.to_string()]);
        match kill.status().await?.success() {
            true => Ok(()),
            false => Err(io::Error::other(format!("SIG{name} was not sent"))),
        }
    }

    /// Ends it with SIGKILL and waits until it is gone.
    pub async fn kill(&mut self) -> io::Result<()> {
        self.watcher.kill().await?;
        self.child.kill().await
    }

    /// Ends it with SIGTERM; whether it left in time and with status 0.
    pub async fn end(&mut self) -> io::Result<bool> {
        self.signal("TERM").await?;
        self.watcher.kill().await?;
        match tokio::time::timeout(END_MAX, self.child.wait()).await {
            Ok(status) => Ok(status?.success()),
            Err(_) => self.child.kill().await.map(|()| false),
        }
    }

    /// Open files.
    pub fn files(&self) -> io::Result<u64> {
        Ok(std::fs::read_dir(format!("/proc/{}/fd", self.id))?.count() as u64)
    }

    /// Its memory; an error when it has ended.
    pub fn memory(&self) -> io::Result<Memory> {
        let memory = memory(&[self.id]);
        match memory.now {
            0 => Err(io::Error::other("the gateway has ended")),
            _ => Ok(memory),
        }
    }

    /// The text of all metrics.
    pub async fn metrics(&self) -> io::Result<Metrics> {
        let mut stream = TcpStream::connect(self.place.admin).await?;
        let request = "GET /metrics HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n\r\n";
        stream.write_all(request.as_bytes()).await?;
        let mut text = String::new();
        stream.read_to_string(&mut text).await?;
        Ok(Metrics(text))
    }
}

/// Kills the gateway when this program ends by a signal: its input ends then, and it is itself gone in every other case.
fn watcher(id: u32) -> io::Result<Child> {
    Command::new("sh")
        .args(["-c", "read -r _; kill -KILL \"$0\"", &id.to_string()])
        .stdin(Stdio::piped())
        .stderr(Stdio::null())
        .process_group(0)
        .kill_on_drop(true)
        .spawn()
}

/// The metrics of one moment.
pub struct Metrics(String);

impl Metrics {
    /// The sum of the series whose line starts with the name and contains `with`; `None` when there is no such series.
    pub fn sum(&self, name: &str, with: &str) -> Option<f64> {
        let lines = self.0.lines().filter(|line| {
            let rest = line.strip_prefix(name);
            rest.is_some_and(|rest| rest.starts_with([' ', '{'])) && line.contains(with)
        });
        lines
            .filter_map(|line| line.rsplit_once(' ')?.1.parse::<f64>().ok())
            .reduce(|sum, value| sum + value)
    }
}

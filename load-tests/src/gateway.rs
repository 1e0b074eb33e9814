//! A gateway process with one route to one upstream.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::process::{Child, Command};

/// How long the process may take to listen.
const START_MAX: Duration = Duration::from_secs(10);

/// A running gateway; it is killed when this is dropped.
pub struct Gateway {
    /// Where it listens.
    pub addr: SocketAddr,
    child: Child,
    file: PathBuf,
}

impl Gateway {
    /// Starts the binary with the model `m` routed to `upstream`; `ledger` is `off`, `batch` or `strict`.
    pub async fn start(binary: &Path, upstream: SocketAddr, ledger: &str) -> io::Result<Gateway> {
        let addr = free_port().await?;
        let dir = std::env::temp_dir().join(format!("rondo-load-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        let ledger = match ledger {
            "off" => "store: off".to_owned(),
            durability => {
                format!(
                    "store: sqlite, path: {}, durability: {durability}",
                    dir.join("rondo.db").display()
                )
            }
        };
        let yaml = format!(
            "server: {{ listen: [{{ address: \"{addr}\" }}], threads: 1 }}\n\
             admin: {{ listen: \"{}\" }}\n\
             ledger: {{ {ledger} }}\n\
             providers: {{ up: {{ adapter: openai_compatible, base_url: \"http://{upstream}\" }} }}\n\
             routes: [{{ name: r, models: [m], targets: [{{ name: t, provider: up }}] }}]\n",
            free_port().await?
        );
        Gateway::start_with(binary, addr, &yaml).await
    }

    /// Starts the binary with this configuration, which listens on `addr`.
    pub async fn start_with(binary: &Path, addr: SocketAddr, yaml: &str) -> io::Result<Gateway> {
        let name = format!("rondo-load-{}-{}.yaml", std::process::id(), addr.port());
        let file = std::env::temp_dir().join(name);
        std::fs::write(&file, yaml)?;
        // Many sockets: with as many open files as it may have.
        let child = Command::new("sh")
            .args([
                "-c",
                "ulimit -n \"$(ulimit -Hn)\"; exec \"$0\" run -c \"$1\"",
            ])
            .arg(binary)
            .arg(&file)
            .env("RUST_LOG", "warn")
            .kill_on_drop(true)
            .spawn()?;
        let listening = async {
            while TcpStream::connect(addr).await.is_err() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(START_MAX, listening)
            .await
            .map_err(io::Error::other)?;
        Ok(Gateway { addr, child, file })
    }

    /// Ends the process with SIGKILL, and waits until it is gone.
    pub async fn kill(mut self) -> io::Result<()> {
        self.child.kill().await
    }

    /// Its resident memory in bytes.
    pub fn memory(&self) -> io::Result<i64> {
        let id = self
            .child
            .id()
            .ok_or_else(|| io::Error::other("the gateway has ended"))?;
        let status = std::fs::read_to_string(format!("/proc/{id}/status"))?;
        let field = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kibibytes =
            field.and_then(|text| text.trim().strip_suffix(" kB")?.trim().parse::<i64>().ok());
        kibibytes
            .map(|kibibytes| kibibytes << 10)
            .ok_or_else(|| io::Error::other("no VmRSS"))
    }
}

impl Gateway {
    /// Processor time that it has taken, in kernel and user code.
    pub fn processor(&self) -> io::Result<Duration> {
        let id = self
            .child
            .id()
            .ok_or_else(|| io::Error::other("the gateway has ended"))?;
        let stat = std::fs::read_to_string(format!("/proc/{id}/stat"))?;
        // The name in parentheses may hold anything; after it come numbers, of which the 12th and 13th are ticks of 10 ms.
        let numbers = stat
            .rsplit_once(") ")
            .map_or("", |(_, rest)| rest)
            .split(' ');
        let ticks: u64 = numbers
            .skip(11)
            .take(2)
            .filter_map(|ticks| ticks.parse::<u64>().ok())
            .sum();
        Ok(Duration::from_millis(10 * ticks))
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.file);
    }
}

/// An address of the loopback that nobody listens on.
pub async fn free_port() -> io::Result<SocketAddr> {
    TcpListener::bind("127.0.0.1:0").await?.local_addr()
}

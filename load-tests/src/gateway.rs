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
    dir: PathBuf,
    _child: Child,
}

impl Drop for Gateway {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

impl Gateway {
    /// Starts the binary with the model `m` routed to `upstream`.
    pub async fn start(binary: &Path, upstream: SocketAddr, ledger: &str) -> io::Result<Gateway> {
        let addr = free_port().await?;
        let dir = std::env::temp_dir().join(format!("rondo-load-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        let ledger = match ledger {
            "off" => "store: off".to_owned(),
            durability => format!("store: sqlite, path: {}, durability: {durability}", dir.join("rondo.db").display()),
        };
        let yaml = format!(
            "server: {{ listen: [{{ address: \"{addr}\" }}], threads: 1 }}\n\
             admin: {{ listen: \"{}\" }}\n\
             ledger: {{ {ledger} }}\n\
             providers: {{ up: {{ adapter: openai_compatible, base_url: \"http://{upstream}\" }} }}\n\
             routes: [{{ name: r, models: [m], targets: [{{ name: t, provider: up }}] }}]\n",
            free_port().await?
        );
        let file = std::env::temp_dir().join(format!("rondo-load-{}.yaml", std::process::id()));
        std::fs::write(&file, yaml)?;
        let child = Command::new(binary)
            .arg("run")
            .arg("-c")
            .arg(&file)
            .env("RUST_LOG", "warn")
            .kill_on_drop(true)
            .spawn()?;
        let listening = async {
            while TcpStream::connect(addr).await.is_err() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(START_MAX, listening).await.map_err(io::Error::other)?;
        Ok(Gateway { addr, dir, _child: child })
    }
}

async fn free_port() -> io::Result<SocketAddr> {
    TcpListener::bind("127.0.0.1:0").await?.local_addr()
}

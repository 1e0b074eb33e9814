//! The binary as its users run it: `rondo run` in a process of its own, with signals and an exit status.

use std::io::{BufRead, BufReader};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::atomic::{AtomicU8, Ordering};

use tokio::sync::watch;

use super::{soon, until, write_config};

/// A running `rondo run`. Killed when it is dropped.
pub struct Process {
    pub addr: SocketAddr,
    /// Where the admin plane is.
    pub admin: SocketAddr,
    pub file: PathBuf,
    child: Child,
    log: watch::Receiver<Vec<String>>,
}

impl Process {
    /// Starts the binary with a configuration. Keys for `server` beside `listen` are given apart.
    pub async fn start(server: &str, rest: &str) -> Process {
        Process::start_in(server, rest, &[]).await
    }

    /// The same in an environment with further variables.
    pub async fn start_in(server: &str, rest: &str, variables: &[(&str, &str)]) -> Process {
        let (addr, admin) = (free_address(), free_address());
        let file = write_config(&config(addr, admin, server, rest));
        let mut command = command(&["run", "-c", file.to_str().unwrap()]);
        command.envs(variables.iter().copied());
        let process = Process::spawn(command, file, addr, admin);
        process.until_accepting(true).await;
        until(|| std::net::TcpStream::connect(admin).is_ok()).await;
        process
    }

    /// Starts the binary with the file and the addresses of another, and does not wait for anything.
    pub fn launch(file: PathBuf, addr: SocketAddr, admin: SocketAddr, flags: &[&str]) -> Process {
        let arguments = [&["run", "-c", file.to_str().unwrap()], flags].concat();
        Process::spawn(command(&arguments), file, addr, admin)
    }

    fn spawn(mut command: Command, file: PathBuf, addr: SocketAddr, admin: SocketAddr) -> Process {
        let mut child = command
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let (sender, log) = watch::channel(Vec::new());
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                sender.send_modify(|log| log.push(line));
            }
        });
        Process {
            addr,
            admin,
            file,
            child,
            log,
        }
    }

    /// Writes the configuration anew, with the same address.
    pub fn write(&self, server: &str, rest: &str) {
        std::fs::write(
            &self.file,
            config(self.addr, self.admin, server, rest) + "ledger: { store: off }\n",
        )
        .unwrap();
    }

    /// Sends a signal, by its name without `SIG`.
    pub fn signal(&self, name: &str) {
        let id = self.child.id().to_string();
        assert!(
            Command::new("kill")
                .args(["-s", name, &id])
                .status()
                .unwrap()
                .success()
        );
    }

    /// Waits until the log has so many lines that contain the text, and returns them.
    pub async fn until_logged(&self, text: &str, count: usize) -> Vec<String> {
        let mut log = self.log.clone();
        let found = |log: &Vec<String>| {
            let lines = log.iter().filter(|line| line.contains(text));
            lines.cloned().collect::<Vec<_>>()
        };
        soon(async {
            let log = log.wait_for(|log| found(log).len() >= count).await;
            found(&log.unwrap_or_else(|_| panic!("the log ended without {text}")))
        })
        .await
    }

    /// Waits until new connections are accepted, or refused.
    pub async fn until_accepting(&self, wanted: bool) {
        until(|| std::net::TcpStream::connect(self.addr).is_ok() == wanted).await;
    }

    /// The most memory that it has had, in bytes.
    pub fn memory_peak(&self) -> usize {
        self.memory("VmHWM:")
    }

    /// The memory that it has now, in bytes.
    pub fn memory_now(&self) -> usize {
        self.memory("VmRSS:")
    }

    fn memory(&self, field: &str) -> usize {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix(field))
            .unwrap();
        line.trim()
            .trim_end_matches(" kB")
            .parse::<usize>()
            .unwrap()
            << 10
    }

    /// Waits for the end.
    pub async fn ended(&mut self) -> ExitStatus {
        let mut status = None;
        until(|| {
            status = self.child.try_wait().unwrap();
            status.is_some()
        })
        .await;
        status.unwrap()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_file(&self.file);
    }
}

/// The binary with arguments, and without this process's `RONDO_CONFIG` and `RUST_LOG`.
pub fn command(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rondo"));
    command
        .args(args)
        .env_remove("RONDO_CONFIG")
        .env_remove("RUST_LOG")
        .stdin(Stdio::null());
    command
}

/// Runs the binary to its end.
pub fn run(args: &[&str]) -> Output {
    command(args).output().unwrap()
}

/// A configuration with these listeners.
pub fn config(addr: SocketAddr, admin: SocketAddr, server: &str, rest: &str) -> String {
    format!(
        "server: {{ listen: [{{ address: '{addr}' }}], {server} }}\nadmin: {{ listen: '{admin}' }}\n{rest}"
    )
}

/// An address for a listener of another process. The port was free a moment ago on a loopback address that nobody else uses, so it still is.
pub fn free_address() -> SocketAddr {
    static NUMBER: AtomicU8 = AtomicU8::new(1);
    let [.., high, low] = std::process::id().to_be_bytes();
    let last = NUMBER.fetch_add(1, Ordering::Relaxed).clamp(1, 254);
    let ip = IpAddr::V4(Ipv4Addr::new(127, high.clamp(1, 254), low, last));
    TcpListener::bind((ip, 0)).unwrap().local_addr().unwrap()
}

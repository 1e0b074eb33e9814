//! A system under test: Rondo, a peer, or nothing at all (`direct`), in front of two scripted upstreams.
//!
//! Invariants: it listens on a port that was free; it has a directory of its own that goes with it; it is ended by its own id, first asked
//! and then forced, with everything below it.

use std::fs::File;
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_yaml::{Mapping, Value};

use super::http::{chat, post};
use super::process;
use super::scenario::{Overrides, Peer, Size};
use super::sys::{KILL, TERM, prepare, signal};

/// Time until a system serves. Rondo takes a fraction of a second, interpreters with many modules a minute.
const START_MAX: Duration = Duration::from_secs(90);
/// Time between asking a process to end and ending it.
const END_MAX: Duration = Duration::from_secs(3);
/// Time for one answer while it is found out whether a system serves.
const PROBE_MAX: Duration = Duration::from_secs(5);

/// The buffer that most programs have by default.
const ROOM: usize = 16 << 10;
/// How directories of systems begin; the id of this process follows.
const FOLDER: &str = "rondo-rig-";

/// What is to be started.
pub enum What<'a> {
    /// The load goes to the primary upstream.
    Direct,
    /// The gateway of this tree.
    Rondo {
        /// Its binary.
        binary: &'a Path,
        /// Routes and targets.
        size: Size,
        /// What the scenario sets.
        overrides: &'a Overrides,
    },
    /// A program of `peers.yaml`.
    Peer(&'a Peer),
}

/// How it is started.
pub struct Place<'a> {
    /// The rig's directory in the tree.
    pub dir: &'a Path,
    /// The core that it may use.
    pub core: usize,
    /// The first upstream.
    pub primary: u16,
    /// The second one.
    pub backup: u16,
    /// Bytes of a request's body.
    pub body: usize,
    /// Whether a first request is answered; where requests are held, listening is all that can be seen.
    pub answers: bool,
}

/// A running system; it is ended when this is dropped.
pub struct System {
    /// Where it listens.
    pub port: u16,
    /// Complete lines for each request.
    pub headers: String,
    child: Option<Child>,
    folder: PathBuf,
}

impl System {
    /// Starts it and waits until it serves.
    pub fn start(label: &str, what: &What<'_>, place: &Place<'_>) -> io::Result<System> {
        if matches!(what, What::Direct) {
            let folder = PathBuf::new();
            return Ok(System {
                port: place.primary,
                headers: String::new(),
                child: None,
                folder,
            });
        }
        let (port, admin) = (free_port()?, free_port()?);
        let name = label.replace(|c: char| !c.is_ascii_alphanumeric(), "-");
        let own = std::process::id();
        let folder = std::env::temp_dir().join(format!("{FOLDER}{own}-{name}-{port}"));
        std::fs::create_dir_all(&folder)?;
        let mut system = System {
            port,
            headers: String::new(),
            child: None,
            folder,
        };
        let mut command = match what {
            What::Rondo {
                binary,
                size,
                overrides,
            } => {
                let yaml = gateway(&system, admin, place, *size, overrides)?;
                let file = system.folder.join("rondo.yaml");
                std::fs::write(&file, yaml)?;
                let mut command = Command::new(binary);
                command
                    .arg("run")
                    .arg("-c")
                    .arg(file)
                    .env("RUST_LOG", "error");
                command
            }
            What::Peer(peer) => {
                let (command, headers) = peer_command(peer, &system, admin, place)?;
                system.headers = headers;
                command
            }
            What::Direct => return Ok(system),
        };
        let log = File::create(system.folder.join("log"))?;
        command.current_dir(&system.folder).stdin(Stdio::null());
        command.stdout(log.try_clone()?).stderr(log);
        prepare(&mut command, place.core);
        system.child = Some(command.spawn()?);
        system.wait(place.answers)?;
        Ok(system)
    }

    /// The process and its children.
    pub fn processes(&self) -> Vec<u32> {
        self.child
            .as_ref()
            .map(|child| process::tree(child.id()))
            .unwrap_or_default()
    }

    fn wait(&mut self, answers: bool) -> io::Result<()> {
        let began = Instant::now();
        loop {
            let ended = self
                .child
                .as_mut()
                .map(Child::try_wait)
                .transpose()?
                .flatten();
            if let Some(status) = ended {
                return Err(io::Error::other(format!(
                    "ended with {status}: {}",
                    self.log()
                )));
            }
            let seen = if answers {
                self.probe()
            } else {
                TcpStream::connect(("127.0.0.1", self.port)).is_ok()
            };
            if seen {
                return Ok(());
            }
            if began.elapsed() > START_MAX {
                return Err(io::Error::other(format!("does not serve: {}", self.log())));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Whether a request is answered with 200; its body may take longer.
    fn probe(&self) -> bool {
        let asked = || -> io::Result<bool> {
            let mut stream = TcpStream::connect(("127.0.0.1", self.port))?;
            stream.set_read_timeout(Some(PROBE_MAX))?;
            stream.write_all(&post(self.port, &chat("m0", 256, false), &self.headers))?;
            let mut status = [0; 12];
            stream.read_exact(&mut status)?;
            Ok(status.ends_with(b"200"))
        };
        asked().unwrap_or(false)
    }

    /// The last lines that it wrote.
    fn log(&self) -> String {
        let text = std::fs::read(self.folder.join("log")).unwrap_or_default();
        let text = String::from_utf8_lossy(&text).into_owned();
        let lines: Vec<&str> = text.lines().rev().take(3).collect();
        lines.into_iter().rev().collect::<Vec<_>>().join(" | ")
    }
}

impl Drop for System {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let below = process::tree(child.id());
            signal(child.id(), TERM);
            let began = Instant::now();
            while matches!(child.try_wait(), Ok(None)) && began.elapsed() < END_MAX {
                std::thread::sleep(Duration::from_millis(10));
            }
            if matches!(child.try_wait(), Ok(None)) {
                below.iter().rev().for_each(|id| signal(*id, KILL));
                let _ = child.wait();
            }
        }
        if self.folder.file_name().is_some() {
            let _ = std::fs::remove_dir_all(&self.folder);
        }
    }
}

/// Removes what rigs left that were killed: directories of processes that are no more.
pub fn sweep() {
    for entry in std::fs::read_dir(std::env::temp_dir())
        .into_iter()
        .flatten()
        .flatten()
    {
        let name = entry.file_name().to_string_lossy().into_owned();
        let id = name
            .strip_prefix(FOLDER)
            .and_then(|rest| rest.split('-').next()?.parse::<u32>().ok());
        if id.is_some_and(|id| !Path::new(&format!("/proc/{id}")).exists()) {
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
}

/// A port of the loopback that nobody listens on.
fn free_port() -> io::Result<u16> {
    Ok(TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port())
}

/// The file of the binary, if the peer is installed.
pub fn installed(peer: &Peer, dir: &Path) -> Option<PathBuf> {
    let path = std::env::var("PATH").unwrap_or_default();
    let folders: Vec<PathBuf> = std::env::split_paths(&path)
        .chain([PathBuf::from("/usr/sbin")])
        .collect();
    let found = peer.binaries.iter().find_map(|binary| {
        if binary.contains('/') {
            let file = dir.join(binary);
            return file.is_file().then_some(file);
        }
        folders
            .iter()
            .map(|folder| folder.join(binary))
            .find(|file| file.is_file())
    })?;
    let there = peer.needs.iter().all(|file| dir.join(file).exists());
    there.then(|| std::path::absolute(found).ok()).flatten()
}

fn peer_command(
    peer: &Peer,
    system: &System,
    admin: u16,
    place: &Place<'_>,
) -> io::Result<(Command, String)> {
    let binary = installed(peer, place.dir).ok_or_else(|| io::Error::other("not installed"))?;
    let peers = std::path::absolute(place.dir.join("peers"))?;
    let mut values = vec![
        ("@PORT@", system.port.to_string()),
        ("@ADMIN@", admin.to_string()),
        ("@PRIMARY@", place.primary.to_string()),
        ("@BACKUP@", place.backup.to_string()),
        ("@ROOM@", room(place.body).to_string()),
        ("@DIR@", system.folder.display().to_string()),
        ("@PEERS@", peers.display().to_string()),
    ];
    if let Some(config) = &peer.config {
        let text = fill(&std::fs::read_to_string(peers.join(config))?, &values);
        let file = system.folder.join(config);
        std::fs::write(&file, &text)?;
        values.push(("@CONFIG@", file.display().to_string()));
        values.push(("@CONFIG_TEXT@", text.lines().map(str::trim).collect()));
    }
    let mut command = Command::new(binary);
    command.args(peer.args.iter().map(|arg| fill(arg, &values)));
    command.envs(
        peer.env
            .iter()
            .map(|(name, value)| (name, fill(value, &values))),
    );
    let line = |(name, value): (&String, &String)| format!("{name}: {}\r\n", fill(value, &values));
    Ok((command, peer.headers.iter().map(line).collect()))
}

/// Bytes of a buffer that takes a whole request: 16 KiB, the usual size, unless the body needs more.
fn room(body: usize) -> usize {
    if body <= ROOM / 2 { ROOM } else { body + ROOM }
}

fn fill(text: &str, values: &[(&str, String)]) -> String {
    values.iter().fold(text.to_owned(), |text, (name, value)| {
        text.replace(name, value)
    })
}

/// Rondo's configuration: records in SQLite and metrics on, as in production; one worker, since it has one core.
fn gateway(
    system: &System,
    admin: u16,
    place: &Place<'_>,
    size: Size,
    overrides: &Overrides,
) -> io::Result<String> {
    let mut file = parse(&format!(
        "server: {{ listen: [{{ address: \"127.0.0.1:{}\" }}], threads: 1 }}\n\
         admin: {{ listen: \"127.0.0.1:{admin}\" }}\n\
         ledger: {{ store: sqlite, path: \"{}/rondo.db\", durability: batch }}\n",
        system.port,
        system.folder.display()
    ))?;
    let mut providers = Mapping::new();
    for (name, port) in [("primary", place.primary), ("backup", place.backup)] {
        let mut provider = parse(&format!(
            "{{ adapter: openai, base_url: \"http://127.0.0.1:{port}\", keys: [{{ name: main, secret: {{ literal: sk-rig }} }}] }}"
        ))?;
        merge(&mut provider, &overrides.provider);
        providers.insert(name.into(), provider);
    }
    let mut routes = Vec::new();
    for number in 0..size.routes {
        let targets: Vec<String> = (0..size.targets)
            .map(|at| {
                format!(
                    "{{ name: t{at}, provider: {} }}",
                    if at == 0 { "primary" } else { "backup" }
                )
            })
            .collect();
        let mut route = parse(&format!(
            "{{ name: r{number}, models: [m{number}], targets: [{}] }}",
            targets.join(", ")
        ))?;
        merge(&mut route, &overrides.route);
        routes.push(route);
    }
    if let Value::Mapping(file) = &mut file {
        file.insert("providers".into(), Value::Mapping(providers));
        file.insert("routes".into(), Value::Sequence(routes));
    }
    merge(&mut file, &overrides.file);
    serde_yaml::to_string(&file).map_err(io::Error::other)
}

fn parse(text: &str) -> io::Result<Value> {
    serde_yaml::from_str(text).map_err(io::Error::other)
}

/// Lays one value over another: mappings are joined, everything else is replaced.
fn merge(base: &mut Value, over: &Value) {
    match (base, over) {
        (_, Value::Null) => {}
        (Value::Mapping(base), Value::Mapping(over)) => {
            for (key, value) in over {
                match base.get_mut(key) {
                    Some(known) => merge(known, value),
                    None => {
                        base.insert(key.clone(), value.clone());
                    }
                }
            }
        }
        (base, over) => *base = over.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scenario_changes_what_it_names_and_nothing_else() -> io::Result<()> {
        let mut base = parse("{ a: { b: 1, c: [1] }, d: 2 }")?;
        merge(&mut base, &parse("{ a: { c: [2], e: 3 } }")?);
        merge(&mut base, &Value::Null);
        assert_eq!(base, parse("{ a: { b: 1, c: [2], e: 3 }, d: 2 }")?);
        Ok(())
    }

    #[test]
    fn placeholders_are_filled_everywhere() {
        let values = [("@PORT@", "7".to_owned()), ("@DIR@", "/x".to_owned())];
        assert_eq!(
            fill("listen @PORT@; @DIR@/a @DIR@/b", &values),
            "listen 7; /x/a /x/b"
        );
    }
}

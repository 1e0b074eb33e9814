//! How much of a large body the process holds, measured from outside: a gateway of its own, its peak from the kernel.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};

use bytes::Bytes;
use rondo::mock::{MockServer, Script};

use crate::support::client::{Body, Connection, call, chat, parts, request, whole};
use crate::support::{soon, write_config};

const CHAT: &str = "/v1/chat/completions";
const LARGE: usize = 20 << 20;

/// A gateway in a process of its own, ended with the value.
struct Process {
    child: Child,
    addr: SocketAddr,
    file: std::path::PathBuf,
}

impl Process {
    async fn start(yaml: &str) -> Process {
        let file = write_config(yaml);
        let mut child = Command::new(env!("CARGO_BIN_EXE_rondo"))
            .args(["run", "-c", file.to_str().unwrap()])
            .env("RUST_LOG", "info")
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        // Read to the end, or the process would block on a full pipe.
        let stderr = BufReader::new(child.stderr.take().unwrap());
        std::thread::spawn(move || stderr.lines().map_while(Result::ok).for_each(drop));
        let pid = child.id();
        let addr = soon(async {
            loop {
                if let Some(port) = listening_port(pid) {
                    return SocketAddr::from(([127, 0, 0, 1], port));
                }
                tokio::task::yield_now().await;
            }
        })
        .await;
        Process { child, addr, file }
    }

    /// The most memory that it has had, in bytes.
    fn peak(&self) -> usize {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix("VmHWM:"))
            .unwrap();
        line.trim()
            .trim_end_matches(" kB")
            .parse::<usize>()
            .unwrap()
            << 10
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_file(&self.file);
    }
}

/// The port of the process's only listening socket: the system chose it.
fn listening_port(pid: u32) -> Option<u16> {
    let links = std::fs::read_dir(format!("/proc/{pid}/fd")).ok()?;
    let sockets: Vec<String> = links
        .filter_map(|link| std::fs::read_link(link.ok()?.path()).ok())
        .filter_map(|link| {
            let name = link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?;
            Some(name.to_owned())
        })
        .collect();
    let table = std::fs::read_to_string(format!("/proc/{pid}/net/tcp")).ok()?;
    table.lines().skip(1).find_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let is_listening = fields.get(3) == Some(&"0A");
        let is_own = sockets
            .iter()
            .any(|socket| fields.get(9) == Some(&socket.as_str()));
        let port = fields.get(1)?.rsplit_once(':')?.1;
        (is_listening && is_own).then(|| u16::from_str_radix(port, 16).ok())?
    })
}

fn body() -> Bytes {
    let content = "z".repeat(LARGE);
    format!("{{\"model\":\"m\",\"messages\":[{{\"role\":\"user\",\"content\":\"{content}\"}}]}}")
        .into()
}

fn cut(mut bytes: Bytes) -> Vec<Bytes> {
    let mut cut = Vec::new();
    while !bytes.is_empty() {
        cut.push(bytes.split_to(bytes.len().min(32 << 10)));
    }
    cut
}

/// The peak of a request with a large body that two targets get, above that of a small one.
async fn peak_of(is_h2: bool, up_h2: bool, make: fn(Bytes) -> Body) -> usize {
    let mock = |name: &str, text: &str| {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        MockServer::start(name, Script::parse(text).unwrap(), listener).unwrap()
    };
    let (one, two) = (
        mock("one", "answers: [openai.throttle]"),
        mock("two", "answers: [ok]"),
    );
    let provider = |mock: &MockServer| {
        format!(
            "{{ adapter: openai, http2: {up_h2}, base_url: \"http://{}\" }}",
            mock.addr()
        )
    };
    let (first, second) = (provider(&one), provider(&two));
    let yaml = format!(
        "server: {{ listen: [{{ address: \"127.0.0.1:0\" }}] }}\nadmin: {{ listen: \"off\" }}\nproviders:\n  one: {first}\n  two: {second}\nroutes:\n  - name: chat\n    models: [m]\n    targets: [{{ name: first, provider: one, model: other }}, {{ name: second, provider: two }}]\n    routing: {{ cooldown: {{ max_ms: 0 }} }}\n"
    );
    let process = Process::start(&yaml).await;
    assert_eq!(call(process.addr, chat("m")).await.status, 200);
    let before = process.peak();
    let mut client = match is_h2 {
        true => Connection::h2(process.addr).await,
        false => Connection::h1(process.addr).await,
    };
    let answer = client.call(request(CHAT, &[], make(body()))).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    assert_eq!((one.recorder().sends(), two.recorder().sends()), (2, 2));
    process.peak() - before
}

// R-B7: one copy of a body whose length is known, and two for the moment in which parts of unknown length are joined.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_large_body_is_held_in_two_copies_at_most() {
    let slack = 6 << 20;
    for up_h2 in [false, true] {
        for (is_h2, is_open) in [(false, false), (false, true), (true, false), (true, true)] {
            let make: fn(Bytes) -> Body = match is_open {
                true => |bytes| parts(cut(bytes)),
                false => |bytes| whole(bytes),
            };
            let peak = peak_of(is_h2, up_h2, make).await;
            println!(
                "h2: {is_h2}, without length: {is_open}, upstream h2: {up_h2}: {} KiB",
                peak >> 10
            );
            let copies = if is_open { 2 } else { 1 };
            assert!(
                peak <= copies * LARGE + slack,
                "h2: {is_h2}, open: {is_open}: {peak}"
            );
        }
    }
}

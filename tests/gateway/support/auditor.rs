//! A provider that trusts nobody: it reads every byte that the gateway sends, strictly, and answers each request with what that asked.
//! Whatever a hostile client does, what arrives here is whole requests of the gateway's own, one after the other.

use std::net::SocketAddr;
use std::sync::Arc;

use parking_lot::Mutex;

use super::Rondo;
use super::raw::{Link, RawClient, Upstream, json, post_text};

/// The provider with its notes.
pub struct Auditor {
    pub upstream: Upstream,
    notes: Arc<Mutex<Notes>>,
}

#[derive(Default)]
struct Notes {
    bodies: Vec<String>,
    faults: Vec<String>,
}

/// A chat request whose answer is told from all others by its word.
pub fn asking(word: &str) -> String {
    format!(r#"{{"model":"m","messages":[{{"role":"user","content":"{word}"}}]}}"#)
}

impl Auditor {
    pub async fn start() -> Auditor {
        let notes: Arc<Mutex<Notes>> = Arc::default();
        let shared = Arc::clone(&notes);
        let upstream = Upstream::start(move |link| audit(link, Arc::clone(&shared))).await;
        Auditor { upstream, notes }
    }

    /// The gateway before it, as raw clients know it: one route, `m`.
    pub async fn behind(&self, server: &str) -> Rondo {
        let provider = self.upstream.provider("");
        Rondo::start(&format!(
            "server: {{ {server} }}\nproviders:\n  one: {provider}\nroutes:\n  - {{ name: chat, models: [m], targets: [{{ name: first, provider: one }}] }}\n"
        ))
        .await
    }

    /// How many requests have come.
    pub fn requests(&self) -> usize {
        self.notes.lock().bodies.len()
    }

    /// The body of the last one.
    pub fn last_body(&self) -> Option<String> {
        self.notes.lock().bodies.last().cloned()
    }

    /// Nothing came that was not a whole request of the gateway's own.
    pub fn assert_clean(&self, case: &str) {
        let faults = self.notes.lock().faults.clone();
        assert!(faults.is_empty(), "{case}: {faults:?}");
    }
}

async fn audit(mut link: Link, notes: Arc<Mutex<Notes>>) {
    while let Some(request) = link.request().await {
        let body = String::from_utf8_lossy(&request.body).into_owned();
        let word = check(&request.head, &body);
        {
            let mut notes = notes.lock();
            notes.bodies.push(body.clone());
            if let Err(fault) = &word {
                notes
                    .faults
                    .push(format!("{fault} in {} {body}", request.head));
            }
        }
        link.write(&answer(&word.unwrap_or_default())).await;
    }
    let rest = link.left_over();
    if !rest.is_empty() {
        let rest = String::from_utf8_lossy(rest).into_owned();
        notes.lock().faults.push(format!("half a request: {rest}"));
    }
}

/// The answer to a question.
fn answer(word: &str) -> String {
    let body = format!(
        r#"{{"id":"x","object":"chat.completion","choices":[{{"index":0,"message":{{"role":"assistant","content":"answer to {word}"}},"finish_reason":"stop"}}]}}"#
    );
    json(200, &body)
}

/// What a request asks, or what is wrong with it.
fn check(head: &str, body: &str) -> Result<String, String> {
    let mut lines = head.trim_end().split("\r\n");
    let line = lines.next().unwrap_or_default();
    if line != "POST /v1/chat/completions HTTP/1.1" {
        return Err(format!("request line {line:?}"));
    }
    let mut names = Vec::new();
    for line in lines {
        let Some((name, value)) = line.split_once(": ") else {
            return Err(format!("header {line:?}"));
        };
        if line.bytes().any(|byte| byte < b' ' || byte == 0x7f) {
            return Err(format!("control byte in {line:?}"));
        }
        if name.eq_ignore_ascii_case("host") && value.contains("evil") {
            return Err(format!("host {value:?}"));
        }
        names.push(name.to_ascii_lowercase());
    }
    let count = |wanted: &str| names.iter().filter(|name| *name == wanted).count();
    for (name, wanted) in [
        ("content-length", 1),
        ("host", 1),
        ("transfer-encoding", 0),
        ("connection", 0),
        ("upgrade", 0),
        ("te", 0),
        ("trailer", 0),
        ("x-smuggled", 0),
    ] {
        if count(name) != wanted {
            return Err(format!("{} x {name}", count(name)));
        }
    }
    let asked: serde_json::Value =
        serde_json::from_str(body).map_err(|error| format!("body: {error}"))?;
    let word = asked["messages"][0]["content"].as_str();
    word.map(str::to_owned)
        .ok_or_else(|| "no question".to_owned())
}

/// What a normal client sees beside it all: its own answer.
pub async fn served(addr: SocketAddr, word: &str, case: &str) {
    let mut client = RawClient::connect(addr).await;
    client
        .write(&post_text("/v1/chat/completions", "", &asking(word)))
        .await;
    let (head, body) = client.answer().await;
    assert!(head.starts_with("http/1.1 200"), "{case}: {head}{body}");
    assert!(
        body.contains(&format!("answer to {word}\"")),
        "{case}: {body}"
    );
}

//! Targets that take WebSocket handshakes, and clients that shake hands.

use std::sync::Arc;

use tokio::sync::{Mutex, mpsc};

use super::raw::{RawClient, Upstream};
use super::{Rondo, soon};

/// A switch as a target answers it, with headers that must not pass.
pub const SWITCH: &str = "HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: Upgrade\r\nsec-websocket-accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\nsec-websocket-protocol: realtime\r\nx-request-id: up-1\r\nset-cookie: a=b\r\n\r\n";

/// A handshake as a client sends it.
pub fn handshake(path: &str, headers: &str) -> String {
    format!(
        "GET {path} HTTP/1.1\r\nhost: gateway.test\r\nupgrade: websocket\r\nconnection: keep-alive, Upgrade\r\nsec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n{headers}\r\n"
    )
}

/// A target, and the heads of the handshakes that it got.
pub struct Target {
    pub upstream: Upstream,
    heads: mpsc::UnboundedReceiver<String>,
}

impl Target {
    /// Answers the handshakes one after the other, the last answer for ever. A switch is followed by an echo.
    pub async fn start(answers: &[&str]) -> Target {
        let (seen, heads) = mpsc::unbounded_channel();
        let answers: Vec<String> = answers.iter().map(|&answer| answer.to_owned()).collect();
        let answers = Arc::new(Mutex::new(answers));
        let upstream = Upstream::start(move |mut link| {
            let (seen, answers) = (seen.clone(), Arc::clone(&answers));
            async move {
                while let Some(request) = link.request().await {
                    let _ = seen.send(request.head);
                    let answer = {
                        let mut answers = answers.lock().await;
                        match answers.len() {
                            1 => answers[0].clone(),
                            _ => answers.remove(0),
                        }
                    };
                    link.write(&answer).await;
                    if answer.starts_with("HTTP/1.1 101") {
                        let (mut read, mut write) = link.stream.split();
                        let _ = tokio::io::copy(&mut read, &mut write).await;
                        return;
                    }
                }
            }
        })
        .await;
        Target { upstream, heads }
    }

    pub fn provider(&self) -> String {
        self.upstream.provider("")
    }

    pub async fn head(&mut self) -> String {
        soon(self.heads.recv()).await.unwrap().to_lowercase()
    }

    pub fn sends(&self) -> usize {
        self.upstream.requests()
    }
}

/// Shakes hands and returns the client with the head of the answer.
pub async fn open(rondo: &Rondo, path: &str) -> (RawClient, String) {
    let mut client = RawClient::connect(rondo.addr).await;
    client.write(&handshake(path, "")).await;
    let head = client.read_to("\r\n\r\n").await.to_lowercase();
    (client, head)
}

/// Shakes hands and returns the head and the body of the refusal.
pub async fn refused(rondo: &Rondo, path: &str) -> (String, String) {
    let mut client = RawClient::connect(rondo.addr).await;
    client.write(&handshake(path, "")).await;
    client.answer().await
}

/// The code of an error of the gateway.
pub fn code(body: &str) -> String {
    let body: serde_json::Value = serde_json::from_str(body).unwrap();
    body["error"]["code"].as_str().unwrap_or("").to_owned()
}

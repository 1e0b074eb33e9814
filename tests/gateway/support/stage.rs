//! A provider whose answers a test writes while the client reads: what comes when is the test's to say, without a clock.

use std::sync::Arc;

use tokio::sync::{Mutex, mpsc};

use super::frames::{DATA, END_STREAM};
use super::raw::Upstream;

/// The head of a stream of events over HTTP/1.1.
pub const EVENTS: &str =
    "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";

/// What a staged provider does next.
pub enum Step {
    Bytes(Vec<u8>),
    /// The proper end.
    End,
    /// The connection breaks.
    Break,
}

/// A provider whose answers a test writes while the client reads.
pub struct Stage {
    pub upstream: Upstream,
    pub steps: mpsc::UnboundedSender<Step>,
}

impl Stage {
    /// Over HTTP/1.1, with this head.
    pub async fn h1(head: &'static str) -> Stage {
        let (steps, receiver) = mpsc::unbounded_channel();
        let receiver = Arc::new(Mutex::new(receiver));
        let upstream = Upstream::start(move |mut link| {
            let receiver = Arc::clone(&receiver);
            async move {
                while link.request().await.is_some() {
                    link.write(head).await;
                    loop {
                        match receiver.lock().await.recv().await {
                            Some(Step::Bytes(bytes)) => {
                                let mut chunk = format!("{:x}\r\n", bytes.len()).into_bytes();
                                chunk.extend_from_slice(&bytes);
                                chunk.extend_from_slice(b"\r\n");
                                let text = &mut link.stream;
                                let _ = tokio::io::AsyncWriteExt::write_all(text, &chunk).await;
                            }
                            Some(Step::End) => break link.write("0\r\n\r\n").await,
                            Some(Step::Break) | None => return,
                        }
                    }
                }
            }
        })
        .await;
        Stage { upstream, steps }
    }

    /// Over HTTP/2.
    pub async fn h2() -> Stage {
        let (steps, receiver) = mpsc::unbounded_channel();
        let receiver = Arc::new(Mutex::new(receiver));
        let upstream = Upstream::start(move |mut link| {
            let receiver = Arc::clone(&receiver);
            async move {
                link.greet(&[]).await;
                while let Some(stream) = link.stream().await {
                    link.head_h2(stream, "200", "text/event-stream").await;
                    loop {
                        match receiver.lock().await.recv().await {
                            Some(Step::Bytes(bytes)) => link.frame(DATA, 0, stream, &bytes).await,
                            Some(Step::End) => {
                                break link.frame(DATA, END_STREAM, stream, b"").await;
                            }
                            Some(Step::Break) | None => return,
                        }
                    }
                }
            }
        })
        .await;
        Stage { upstream, steps }
    }

    pub fn say(&self, text: &str) {
        self.steps
            .send(Step::Bytes(text.as_bytes().to_vec()))
            .unwrap();
    }

    pub fn end(&self) {
        self.steps.send(Step::End).unwrap();
    }

    pub fn cut(&self) {
        self.steps.send(Step::Break).unwrap();
    }
}

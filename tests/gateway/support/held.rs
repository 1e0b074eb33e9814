//! A provider whose answers a test writes piece by piece.

use std::sync::Arc;

use tokio::sync::{Mutex, mpsc};

use super::raw::{Request, Upstream};
use super::{Rondo, soon};

/// The provider. It reads one request after the other, and answers each with what the test says.
pub struct Held {
    pub upstream: Upstream,
    came: mpsc::UnboundedReceiver<Request>,
    say: mpsc::UnboundedSender<Option<String>>,
}

impl Held {
    pub async fn start() -> Held {
        let (seen, came) = mpsc::unbounded_channel();
        let (say, said) = mpsc::unbounded_channel::<Option<String>>();
        let said = Arc::new(Mutex::new(said));
        let upstream = Upstream::start(move |mut link| {
            let (seen, said) = (seen.clone(), Arc::clone(&said));
            async move {
                while let Some(request) = link.request().await {
                    let _ = seen.send(request);
                    while let Some(Some(text)) = said.lock().await.recv().await {
                        link.write(&text).await;
                    }
                }
            }
        })
        .await;
        Held {
            upstream,
            came,
            say,
        }
    }

    /// A gateway with this `server` before it: one route, `m`.
    pub async fn behind(&self, server: &str) -> Rondo {
        let provider = self.upstream.provider("");
        Rondo::start(&format!(
            "server: {{ {server} }}\nproviders:\n  one: {provider}\nroutes:\n  - {{ name: chat, models: [m], targets: [{{ name: first, provider: one }}] }}\n"
        ))
        .await
    }

    /// The next request, as soon as it has come.
    pub async fn came(&mut self) -> Request {
        soon(self.came.recv()).await.unwrap()
    }

    /// Writes a piece of the answer.
    pub fn say(&self, text: &str) {
        self.say.send(Some(text.to_owned())).unwrap();
    }

    /// Writes the last piece of it, and reads the next request.
    pub fn end(&self, text: &str) {
        self.say(text);
        self.say.send(None).unwrap();
    }

    pub fn sends(&self) -> usize {
        self.upstream.requests()
    }
}

/// The head of a stream, in chunks.
pub const STREAM: &str =
    "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";

/// A piece of output.
pub fn event(word: &str) -> String {
    format!("data: {{\"choices\":[{{\"index\":0,\"delta\":{{\"content\":\"{word}\"}}}}]}}\n\n")
}

/// The last event.
pub const DONE: &str = "data: [DONE]\n\n";

/// Text as one chunk.
pub fn chunk(text: &str) -> String {
    format!("{:x}\r\n{text}\r\n", text.len())
}

/// What stands in chunks, which have to end.
pub fn unchunked(mut text: &str) -> String {
    let mut body = String::new();
    loop {
        let (size, rest) = text.split_once("\r\n").expect("the size of a chunk");
        let size = usize::from_str_radix(size, 16).expect("a size");
        let (part, rest) = rest.split_at(size);
        body.push_str(part);
        text = rest.strip_prefix("\r\n").expect("the end of a chunk");
        if size == 0 {
            assert_eq!(text, "", "something stands behind the body");
            return body;
        }
    }
}

/// Lets everybody do what there is to do. Tests run on one thread, which looks at its sockets on each turn.
pub async fn turns() {
    for _ in 0..200 {
        tokio::task::yield_now().await;
    }
}

//! Clients that stay and do not read. Every operation ends, theirs too.

use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use crate::support::caller::{Caller, Way};
use crate::support::client::chat_body;
use crate::support::{Rondo, soon};

/// An upstream that streams for ever. Its task ends when its one connection does.
async fn endless() -> (SocketAddr, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    let serving = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut request = vec![0; 64 << 10];
        let _ = stream.read(&mut request).await.unwrap();
        let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n";
        stream.write_all(head.as_bytes()).await.unwrap();
        let text = "x".repeat(8 << 10);
        let event = format!(
            "data: {{\"choices\":[{{\"index\":0,\"delta\":{{\"content\":\"{text}\"}}}}]}}\n\n"
        );
        while stream.write_all(event.as_bytes()).await.is_ok() {}
    });
    (addr, serving)
}

/// C126: a client that opens a stream and reads nothing holds it for as long as it may, not for ever. The upstream is closed.
#[tokio::test]
async fn a_client_that_does_not_read_has_left() {
    // R-D4
    for way in [Way::H1Close, Way::H2Reset] {
        let (addr, serving) = endless().await;
        let rondo = Rondo::start(&format!(
            r#"
server: {{ client_write_timeout_ms: 300 }}
providers:
  one: {{ adapter: openai, base_url: "http://{addr}" }}
routes:
  - {{ name: chat, models: [m], targets: [{{ name: first, provider: one }}] }}
"#
        ))
        .await;
        let path = "/v1/chat/completions";
        let client = Caller::ask(way, rondo.addr, path, &chat_body("m", true)).await;
        soon(serving).await.unwrap();
        rondo.assert_quiet().await;
        let labels = ["outcome=\"cancelled\"", "status=\"499\""];
        assert_eq!(
            rondo.metric("rondo_requests_total", &labels),
            1.0,
            "{way:?}"
        );
        client.leave();
    }
}

//! A client on a raw socket that may leave at any moment, over HTTP/1.1 or HTTP/2.

use std::net::SocketAddr;

use bytes::Bytes;
use h2::client::{ResponseFuture, SendRequest};
use h2::{Reason, RecvStream, SendStream};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

use super::soon;

/// What the client speaks and how it leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// HTTP/1.1: closes its socket.
    H1Close,
    /// HTTP/1.1: resets its connection.
    H1Reset,
    /// HTTP/2: resets the stream.
    H2Reset,
    /// HTTP/2: closes the connection.
    H2Close,
}

impl Way {
    pub const ALL: [Way; 4] = [Way::H1Close, Way::H1Reset, Way::H2Reset, Way::H2Close];
}

/// A client that has sent a request, or a part of one.
pub struct Caller {
    way: Way,
    wire: Wire,
}

enum Wire {
    H1(TcpStream),
    H2 {
        response: Option<ResponseFuture>,
        received: Option<RecvStream>,
        upload: SendStream<Bytes>,
        connection: JoinHandle<()>,
        _sender: SendRequest<Bytes>,
    },
}

impl Caller {
    /// Sends a whole request.
    pub async fn ask(way: Way, addr: SocketAddr, path: &str, body: &str) -> Caller {
        Caller::begin(way, addr, path, body, body.len()).await
    }

    /// Sends the header, which tells the length of the whole body, and the first `part` bytes of it.
    pub async fn begin(way: Way, addr: SocketAddr, path: &str, body: &str, part: usize) -> Caller {
        let stream = TcpStream::connect(addr).await.unwrap();
        stream.set_nodelay(true).unwrap();
        let sent = Bytes::copy_from_slice(&body.as_bytes()[..part]);
        let wire = match way {
            Way::H1Close | Way::H1Reset => h1(stream, path, body.len(), sent).await,
            Way::H2Reset | Way::H2Close => h2(stream, path, body.len(), sent).await,
        };
        Caller { way, wire }
    }

    /// Reads until the answer's bytes so far contain the text.
    pub async fn read_to(&mut self, text: &str) {
        soon(async {
            let mut seen = Vec::new();
            while !seen
                .windows(text.len())
                .any(|window| window == text.as_bytes())
            {
                let part = self.read().await;
                let part = part.unwrap_or_else(|| panic!("{}", String::from_utf8_lossy(&seen)));
                seen.extend_from_slice(&part);
            }
        })
        .await;
    }

    /// The next bytes of the answer: on HTTP/1.1 of head and body, on HTTP/2 of the body. `None` at its end, however it ends.
    pub async fn read(&mut self) -> Option<Bytes> {
        match &mut self.wire {
            Wire::H1(stream) => {
                let mut buffer = vec![0; 16 << 10];
                let read = stream.read(&mut buffer).await.unwrap_or(0);
                (read > 0).then(|| Bytes::copy_from_slice(&buffer[..read]))
            }
            Wire::H2 {
                response, received, ..
            } => {
                if let Some(response) = response.take() {
                    *received = Some(response.await.ok()?.into_body());
                }
                let received = received.as_mut()?;
                let data = received.data().await?.ok()?;
                received.flow_control().release_capacity(data.len()).ok()?;
                Some(data)
            }
        }
    }

    /// Leaves.
    pub fn leave(self) {
        match (self.way, self.wire) {
            (Way::H1Reset, Wire::H1(stream)) => {
                #[allow(deprecated)]
                stream.set_linger(Some(std::time::Duration::ZERO)).unwrap();
            }
            (_, Wire::H1(_)) => {}
            (Way::H2Close, Wire::H2 { connection, .. }) => connection.abort(),
            (_, Wire::H2 { mut upload, .. }) => upload.send_reset(Reason::CANCEL),
        }
    }
}

async fn h1(mut stream: TcpStream, path: &str, length: usize, sent: Bytes) -> Wire {
    let head = format!(
        "POST {path} HTTP/1.1\r\nhost: gateway.test\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n"
    );
    stream
        .write_all(&[head.as_bytes(), &sent].concat())
        .await
        .unwrap();
    Wire::H1(stream)
}

async fn h2(stream: TcpStream, path: &str, length: usize, sent: Bytes) -> Wire {
    let (sender, connection) = h2::client::handshake(stream).await.unwrap();
    let connection = tokio::spawn(async move {
        let _ = connection.await;
    });
    let mut sender = sender.ready().await.unwrap();
    let request = http::Request::post(format!("http://gateway.test{path}"))
        .header("content-type", "application/json")
        .header("content-length", length)
        .body(())
        .unwrap();
    let (response, mut upload) = sender.send_request(request, false).unwrap();
    let end = sent.len() == length;
    upload.send_data(sent, end).unwrap();
    Wire::H2 {
        response: Some(response),
        received: None,
        upload,
        connection,
        _sender: sender,
    }
}

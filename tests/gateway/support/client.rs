//! Clients: HTTP/1.1 and HTTP/2 over plain TCP. Raw sockets where a test needs to misbehave.

use std::net::SocketAddr;

use bytes::Bytes;
use http::{HeaderMap, Request, Response, StatusCode};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

use super::soon;
use super::tls::Identity;

/// A request body.
pub type Body = BoxBody<Bytes, std::io::Error>;

/// A body with its length.
pub fn whole(bytes: impl Into<Bytes>) -> Body {
    Full::new(bytes.into())
        .map_err(|never| match never {})
        .boxed()
}

/// A body in parts, without a length: chunked on HTTP/1.1.
pub fn parts(parts: Vec<Bytes>) -> Body {
    let frames = parts.into_iter().map(|part| Ok(Frame::data(part)));
    BodyExt::boxed(StreamBody::new(futures::stream::iter(frames)))
}

/// A complete answer.
#[derive(Debug)]
pub struct Answer {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Bytes,
}

impl Answer {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }

    pub fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&self.body)))
    }

    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }
}

/// A connection that can carry one request after the other (HTTP/1.1) or many at once (HTTP/2).
pub enum Connection {
    H1(hyper::client::conn::http1::SendRequest<Body>),
    H2(hyper::client::conn::http2::SendRequest<Body>),
}

impl Connection {
    pub async fn h1(addr: SocketAddr) -> Connection {
        let stream = TcpStream::connect(addr).await.unwrap();
        stream.set_nodelay(true).unwrap();
        Connection::h1_over(stream).await
    }

    async fn h1_over(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) -> Connection {
        let io = TokioIo::new(stream);
        let (sender, connection) = hyper::client::conn::http1::handshake(io).await.unwrap();
        tokio::spawn(connection);
        Connection::H1(sender)
    }

    /// HTTP/1.1 over TLS.
    pub async fn h1_tls(addr: SocketAddr, identity: &Identity) -> Connection {
        Connection::h1_over(identity.connect(addr, "http/1.1").await).await
    }

    /// HTTP/2 over TLS.
    pub async fn h2_tls(addr: SocketAddr, identity: &Identity) -> Connection {
        Connection::h2_over(identity.connect(addr, "h2").await).await
    }

    pub async fn h2(addr: SocketAddr) -> Connection {
        let stream = TcpStream::connect(addr).await.unwrap();
        // Without it a large body stalls on the delayed acknowledgement.
        stream.set_nodelay(true).unwrap();
        Connection::h2_over(stream).await
    }

    async fn h2_over(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) -> Connection {
        let io = TokioIo::new(stream);
        let executor = TokioExecutor::new();
        let (sender, connection) = hyper::client::conn::http2::handshake(executor, io)
            .await
            .unwrap();
        tokio::spawn(connection);
        Connection::H2(sender)
    }

    /// Sends a request and returns the head of the answer.
    pub async fn send(&mut self, request: Request<Body>) -> hyper::Result<Response<Incoming>> {
        match self {
            Connection::H1(sender) => {
                sender.ready().await?;
                sender.send_request(request).await
            }
            Connection::H2(sender) => {
                sender.ready().await?;
                sender.send_request(request).await
            }
        }
    }

    /// Sends a request and reads the whole answer.
    pub async fn call(&mut self, request: Request<Body>) -> Answer {
        soon(async {
            let response = self.send(request).await.unwrap();
            let (head, body) = response.into_parts();
            let body = body.collect().await.unwrap().to_bytes();
            Answer {
                status: head.status,
                headers: head.headers,
                body,
            }
        })
        .await
    }
}

/// A POST with a JSON body.
pub fn post(path: &str, body: impl Into<Bytes>) -> Request<Body> {
    request(path, &[], whole(body))
}

/// A POST with headers of its own.
pub fn request(path: &str, headers: &[(&str, &str)], body: Body) -> Request<Body> {
    let mut builder = Request::post(format!("http://gateway.test{path}"))
        .header("content-type", "application/json");
    if !headers
        .iter()
        .any(|(name, _)| name.eq_ignore_ascii_case("host"))
    {
        builder = builder.header("host", "gateway.test");
    }
    for (name, value) in headers {
        builder = builder.header(*name, *value);
    }
    builder.body(body).unwrap()
}

/// A small chat request for the model.
pub fn chat(model: &str) -> Request<Body> {
    post("/v1/chat/completions", chat_body(model, false))
}

/// The body of one.
pub fn chat_body(model: &str, stream: bool) -> String {
    let messages = r#"[{"role":"user","content":"Say hello."}]"#;
    format!(r#"{{"model":"{model}","stream":{stream},"messages":{messages}}}"#)
}

/// One call on a fresh HTTP/1.1 connection.
pub async fn call(addr: SocketAddr, request: Request<Body>) -> Answer {
    Connection::h1(addr).await.call(request).await
}

/// A GET, or another method without a body, on a fresh connection.
pub async fn ask(addr: SocketAddr, method: &str, path: &str) -> Answer {
    let builder = Request::builder()
        .method(method)
        .uri(path)
        .header("host", "localhost");
    call(addr, builder.body(whole("")).unwrap()).await
}

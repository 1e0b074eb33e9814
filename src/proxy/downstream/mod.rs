//! A client with its request, whichever protocol it speaks.
//!
//! HTTP/1.1 is served by [`http1`], over the rules of [`crate::wire`]; a stream of HTTP/2 is Pingora's. Not here: what is asked and what is
//! answered. Invariants: no write waits longer than it is given; a connection serves another request only after a whole request and a
//! whole answer.

pub mod http1;
mod write;

use std::time::Duration;

use bytes::Bytes;
use http::HeaderMap;
use http::header::{AsHeaderName, CONTENT_LENGTH, EXPECT, HeaderValue};
use http::request::Parts;
use pingora_core::protocols::http::v2::server::HttpSession as Http2;
use pingora_core::{Error, ErrorType, Result};
use pingora_http::ResponseHeader;

use http1::Http1;

/// A client.
pub enum Downstream {
    /// On an HTTP/1.1 connection.
    Http1(Box<Http1>),
    /// On a stream of an HTTP/2 connection.
    Http2(Box<Http2>),
}

/// A piece of an answer.
#[derive(Default)]
pub struct Piece {
    /// The head, first of all.
    pub header: Option<Box<ResponseHeader>>,
    /// Parts of the body.
    pub parts: Vec<Bytes>,
    /// Fields behind the body; HTTP/1.1 clients do not get them.
    pub trailers: Option<HeaderMap>,
    /// Whether the answer ends here.
    pub ends: bool,
}

impl Piece {
    /// Bytes of the body.
    pub fn body_len(&self) -> usize {
        self.parts.iter().map(Bytes::len).sum()
    }
}

impl Downstream {
    /// Method, target, version and headers.
    pub fn head(&self) -> &Parts {
        match self {
            Downstream::Http1(client) => client.head(),
            Downstream::Http2(client) => client.req_header(),
        }
    }

    /// A header, the first of its name.
    pub fn header(&self, name: impl AsHeaderName) -> Option<&HeaderValue> {
        self.head().headers.get(name)
    }

    /// What the head says of the body's length. HTTP/1.1 has been read strictly; HTTP/2 carries it only as a promise.
    pub fn length(&self) -> Option<Result<u64>> {
        let value = self.header(CONTENT_LENGTH)?;
        let length = value
            .to_str()
            .ok()
            .and_then(|text| text.trim().parse().ok());
        Some(length.ok_or_else(|| {
            Error::explain(ErrorType::InvalidHTTPHeader, "a length that is none").into_down()
        }))
    }

    /// Whether the client waits to be told that its body is wanted.
    pub fn expects(&self) -> bool {
        self.header(EXPECT).is_some()
    }

    /// Whether it speaks HTTP/2.
    pub fn is_http2(&self) -> bool {
        matches!(self, Downstream::Http2(_))
    }

    /// Whether the body has been read to its end, or there is none.
    pub fn is_body_read(&self) -> bool {
        match self {
            Downstream::Http1(client) => client.is_body_read(),
            Downstream::Http2(client) => client.is_body_done(),
        }
    }

    /// The next part of the body; `None` at its end.
    pub async fn read_body(&mut self) -> Result<Option<Bytes>> {
        match self {
            Downstream::Http1(client) => client.read_body().await,
            Downstream::Http2(client) => client.read_body_bytes().await.map_err(Error::into_down),
        }
    }

    /// Resolves when the client has left, or has broken the protocol. Its body has been read: nothing is expected of it now.
    pub async fn gone(&mut self) -> Box<Error> {
        match self {
            Downstream::Http1(client) => client.gone().await,
            Downstream::Http2(client) => match client.idle().await {
                Ok(_) => Error::new_down(ErrorType::ConnectionClosed),
                Err(error) => error.into_down(),
            },
        }
    }

    /// Says that the body is wanted. On HTTP/2 nobody is told: its windows say it.
    pub async fn want_body(&mut self, time: Duration) -> Result<()> {
        match self {
            Downstream::Http1(client) => client.want_body(time).await,
            Downstream::Http2(_) => Ok(()),
        }
    }

    /// The connection serves nothing after this request, and the client is told so if its answer has not begun.
    pub fn close_after(&mut self) {
        if let Downstream::Http1(client) = self {
            client.close_after();
        }
    }

    /// Lets go of what was read of a body that nobody wants.
    pub fn forget(&mut self) {
        if let Downstream::Http1(client) = self {
            client.forget();
        }
    }

    /// Writes a piece of the answer, in so much time.
    pub async fn write(&mut self, piece: Piece, time: Duration) -> Result<()> {
        match self {
            Downstream::Http1(client) => client.write(piece, time).await,
            Downstream::Http2(client) => write_http2(client, piece, time).await,
        }
    }
}

async fn write_http2(client: &mut Http2, piece: Piece, time: Duration) -> Result<()> {
    let ends_with_parts = piece.ends && piece.trailers.is_none();
    let last = piece.parts.len();
    if let Some(header) = piece.header {
        let ends = ends_with_parts && last == 0;
        let written = client.write_response_header(header, ends);
        written.map_err(Error::into_down)?;
    }
    client.set_write_timeout(Some(time));
    for (at, part) in piece.parts.into_iter().enumerate() {
        let ends = ends_with_parts && at + 1 == last;
        let written = client.write_body(part, ends).await;
        written.map_err(Error::into_down)?;
    }
    if let Some(trailers) = piece.trailers {
        client.write_trailers(trailers).map_err(Error::into_down)?;
    }
    if piece.ends {
        client.finish().map_err(Error::into_down)?;
    }
    Ok(())
}

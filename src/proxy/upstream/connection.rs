//! The connection of an attempt, whichever protocol it turned out to speak.

use bytes::Bytes;
use pingora_core::Result;
use pingora_core::protocols::http::v2::client::Http2Session as Http2;

use super::http1::Http1;

/// A connection, or a stream of one, that carries one exchange.
pub enum Connection {
    /// An HTTP/1.1 connection.
    Http1(Box<Http1>),
    /// A stream of an HTTP/2 connection.
    Http2(Box<Http2>),
}

impl Connection {
    /// The next part of the answer's body; `None` at its end.
    pub async fn read_body(&mut self) -> Result<Option<Bytes>> {
        match self {
            Connection::Http1(connection) => connection.read_body().await,
            Connection::Http2(stream) => stream.read_response_body().await,
        }
    }

    /// Whether the answer has been read to its end.
    pub fn has_ended(&self) -> bool {
        match self {
            Connection::Http1(connection) => connection.has_ended(),
            Connection::Http2(stream) => stream.response_finished(),
        }
    }
}

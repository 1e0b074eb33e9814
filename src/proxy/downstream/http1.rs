//! A client's HTTP/1.1 connection, for one request at a time. Writing an answer is in `write`.
//!
//! Not here: the rules of the protocol ([`crate::wire`]). Invariants: every read may be given up at any point and taken up again; what is
//! read behind a request before its answer has ended is kept, within a bound, and is never the next request: two readers of a connection
//! could disagree where that begins. So such a connection ends with its answer, and a client that did mean another request asks again.

use std::io;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::Request;
use http::request::Parts;
use pingora_core::protocols::Stream;
use pingora_core::server::ShutdownWatch;
use pingora_core::{Error, ErrorType, Result};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::{Instant, timeout, timeout_at};

use super::write::Answer;
use crate::core::limits::HEAD_BYTES_MAX;
use crate::proxy::io::{Incoming, read_small};
use crate::wire::Malformed;
use crate::wire::body::{BodyReader, Framing, Step};
use crate::wire::request::{self, NoHead};

/// What a client with prior knowledge of HTTP/2 begins with (RFC 9113, 3.4).
const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// Bytes kept of what comes before the answer: the first frames of a socket, or another request.
const EARLY_BYTES_MAX: usize = HEAD_BYTES_MAX;
/// Time for the last message of a connection.
const CLOSE_TIME: Duration = Duration::from_secs(1);
/// Told to who waits with its body.
const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

/// A connection.
pub struct Http1 {
    pub(super) stream: Stream,
    incoming: Incoming,
    /// Empty lines that came before the head.
    skipped: usize,
    pub(super) request: Parts,
    pub(super) body: BodyReader,
    /// Whether the connection may serve another request.
    pub(super) keeps: bool,
    pub(super) answer: Answer,
    http2: Http2,
    /// The end of the server, which no answer's connection outlives.
    shutdown: Option<ShutdownWatch>,
}

/// Whether HTTP/2 is spoken on a connection on which nothing was served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Http2 {
    /// It is not.
    No,
    /// By a client with prior knowledge.
    Maybe,
    /// The handshake of TLS has said so.
    Yes,
}

/// Why there is no request.
#[derive(Debug)]
pub enum NoRequest {
    /// The client has left.
    Closed,
    /// Its head took too long.
    TooSlow,
    /// It speaks HTTP/2.
    Http2,
    /// Its head cannot be taken.
    Refused(NoHead),
}

/// What becomes of a connection after a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Finished {
    /// It can serve another.
    GoesOn,
    /// It is closed.
    Closes,
    /// It is closed, once what is still coming has been read.
    Lingers,
    /// Its answer has no end.
    Broken,
}

impl Http1 {
    /// A new connection.
    pub fn new(stream: Stream) -> Http1 {
        Http1 {
            stream,
            incoming: Incoming::new(),
            skipped: 0,
            request: Request::new(()).into_parts().0,
            body: BodyReader::new(Framing::Empty),
            keeps: false,
            answer: Answer::Ended,
            http2: Http2::No,
            shutdown: None,
        }
    }

    /// A new connection whose client may speak HTTP/2 by prior knowledge.
    pub fn open_to_http2(stream: Stream) -> Http1 {
        Http1 {
            http2: Http2::Maybe,
            ..Http1::new(stream)
        }
    }

    /// A new connection that says it speaks HTTP/2.
    pub fn expecting_http2(stream: Stream) -> Http1 {
        Http1 {
            http2: Http2::Yes,
            ..Http1::new(stream)
        }
    }

    /// The same, for as long as the server runs: each answer after that is the last of its connection, and says so.
    pub fn until(self, shutdown: ShutdownWatch) -> Http1 {
        let shutdown = Some(shutdown);
        Http1 { shutdown, ..self }
    }

    /// The connection, and what was read of it.
    pub fn into_parts(self) -> (Stream, Bytes) {
        (self.stream, self.incoming.bytes.freeze())
    }

    /// The same for a tunnel.
    pub fn parts(&mut self) -> (&mut Stream, BytesMut) {
        (&mut self.stream, std::mem::take(&mut self.incoming.bytes))
    }

    /// Waits for the first bytes of another request; `false` when none come in time, or never will.
    pub async fn awaken(&mut self, idle: Duration) -> bool {
        if !self.incoming.bytes.is_empty() {
            return true;
        }
        matches!(timeout(idle, self.fill()).await, Ok(Ok(1..)))
    }

    /// Reads the head of a request, whole in so much time.
    pub async fn next_request(&mut self, whole: Duration) -> Result<(), NoRequest> {
        let due = Instant::now() + whole;
        self.skipped = 0;
        self.incoming.search_anew();
        self.incoming.expect_little();
        loop {
            if self.take_head()? {
                return Ok(());
            }
            match timeout_at(due, self.fill()).await {
                Err(_) => return Err(NoRequest::TooSlow),
                Ok(Ok(0) | Err(_)) => return Err(NoRequest::Closed),
                Ok(Ok(_)) => {}
            }
        }
    }

    /// Takes a head, if a whole one is there.
    fn take_head(&mut self) -> Result<bool, NoRequest> {
        if self.incoming.bytes.is_empty() {
            return Ok(false);
        }
        if self.http2 != Http2::No {
            if self.incoming.bytes.starts_with(PREFACE) {
                return Err(NoRequest::Http2);
            }
            if PREFACE.starts_with(&self.incoming.bytes) {
                return Ok(false);
            }
            if self.http2 == Http2::Yes {
                return Err(NoRequest::Closed);
            }
            self.http2 = Http2::No;
        }
        // They are passed over (RFC 9112, 2.2), and not looked through again with each that follows.
        let blank = self
            .incoming
            .bytes
            .iter()
            .take_while(|byte| is_blank(**byte));
        let blank = blank.count();
        if blank > 0 {
            self.incoming.skip(blank);
            self.skipped += blank;
        }
        if self.skipped > HEAD_BYTES_MAX {
            return Err(NoRequest::Refused(NoHead::TooLarge));
        }
        if self.incoming.bytes.is_empty() {
            return Ok(false);
        }
        if !self.incoming.may_have_head() {
            return Ok(false);
        }
        let Some(head) = request::take(&mut self.incoming.bytes).map_err(NoRequest::Refused)?
        else {
            return Ok(false);
        };
        self.request = head.parts;
        self.body = BodyReader::new(head.framing);
        self.keeps = head.keeps;
        self.answer = Answer::Due;
        self.incoming.free();
        Ok(true)
    }

    /// Method, target, version and headers.
    pub fn head(&self) -> &Parts {
        &self.request
    }

    /// Whether the body has been read to its end.
    pub fn is_body_read(&self) -> bool {
        self.body.has_ended()
    }

    /// The next part of the body; `None` at its end.
    pub async fn read_body(&mut self) -> Result<Option<Bytes>> {
        loop {
            let step = self.body.take(&mut self.incoming.bytes);
            match step.map_err(|Malformed(why)| broke(ErrorType::InvalidHTTPHeader, why))? {
                Step::Part(part) => {
                    self.incoming.free();
                    return Ok(Some(part));
                }
                Step::Ended => return Ok(None),
                Step::NeedMore => {}
            }
            self.fill_or_fail().await?;
        }
    }

    /// Reads more of a body of this length, in one piece. Memory that is not reached is never touched, so a length that lies costs nothing.
    pub async fn gather_body(&mut self, length: usize) -> Result<()> {
        let missing = length.saturating_sub(self.incoming.bytes.len());
        if missing == 0 {
            return Ok(());
        }
        self.incoming.bytes.reserve(missing);
        let read = self.stream.read_buf(&mut self.incoming.bytes).await;
        some(read)
    }

    /// How much of a body of this length is there.
    pub fn gathered(&self, length: usize) -> usize {
        self.incoming.bytes.len().min(length)
    }

    /// Resolves when the client has left. Of one that sends more than is kept before its answer this is not seen any more: its connection
    /// pushes back, and its operation goes on to its end.
    pub async fn gone(&mut self) -> Box<Error> {
        while self.incoming.bytes.len() <= EARLY_BYTES_MAX {
            let read = read_small(&mut self.stream, &mut self.incoming.bytes).await;
            if let Err(error) = some(read) {
                return error;
            }
        }
        std::future::pending().await
    }

    /// Says that the body is wanted. HTTP/1.0 knows no such answer.
    pub async fn want_body(&mut self, time: Duration) -> Result<()> {
        if self.request.version < http::Version::HTTP_11 || !self.incoming.bytes.is_empty() {
            return Ok(());
        }
        self.write_all(&[CONTINUE], time).await
    }

    /// The connection serves nothing after this request.
    pub fn close_after(&mut self) {
        self.keeps = false;
    }

    /// Whether the server stops.
    pub(super) fn is_stopping(&self) -> bool {
        let shutdown = self.shutdown.as_ref();
        shutdown.is_some_and(|shutdown| *shutdown.borrow())
    }

    /// Whether bytes stand behind the request, other than the empty line that some clients put there.
    pub fn has_early(&self) -> bool {
        self.body.has_ended() && !self.incoming.bytes.iter().all(|byte| is_blank(*byte))
    }

    /// Ends a request.
    pub fn finish(&mut self) -> Finished {
        if self.answer != Answer::Ended {
            return match self.answer {
                Answer::UntilClose => Finished::Broken,
                _ => Finished::Closes,
            };
        }
        if !self.body.has_ended() || !self.keeps && self.has_early() {
            return Finished::Lingers;
        }
        if !self.keeps {
            return Finished::Closes;
        }
        if !self.has_early() {
            self.incoming.clear();
        }
        // Held while the connection is idle otherwise.
        self.request = Request::new(()).into_parts().0;
        Finished::GoesOn
    }

    /// The connection is closed without a look at what still comes.
    pub fn break_off(&mut self) {
        self.keeps = false;
        self.body = BodyReader::new(Framing::Empty);
        self.incoming.clear();
    }

    /// Lets go of a body that nobody wants.
    pub fn forget(&mut self) {
        self.incoming.clear();
    }

    /// Closes the writing half, with TLS's last message. A client that reads nothing does not let it out.
    pub async fn shutdown(&mut self) {
        let _ = timeout(CLOSE_TIME, AsyncWriteExt::shutdown(&mut self.stream)).await;
    }

    /// Reads and forgets the next bytes, whatever they are; 0 at their end.
    pub async fn discard(&mut self) -> usize {
        let held = self.incoming.bytes.len();
        self.incoming.bytes.clear();
        if held > 0 {
            return held;
        }
        self.fill().await.unwrap_or_default()
    }

    async fn fill_or_fail(&mut self) -> Result<()> {
        let read = self.fill().await;
        some(read)
    }

    /// Reads more; 0 at the end.
    async fn fill(&mut self) -> io::Result<usize> {
        self.incoming.fill(&mut self.stream).await
    }
}

/// A byte of an empty line.
fn is_blank(byte: u8) -> bool {
    matches!(byte, b'\r' | b'\n')
}

/// What a read gave, where there has to be something.
fn some(read: io::Result<usize>) -> Result<()> {
    match read {
        Ok(0) => Err(broke(ErrorType::ConnectionClosed, "the client has left")),
        Ok(_) => Ok(()),
        Err(cause) => {
            Err(Error::because(ErrorType::ReadError, "reading a request", cause).into_down())
        }
    }
}

/// An error of the client's connection.
pub(super) fn broke(kind: ErrorType, why: &'static str) -> Box<Error> {
    Error::explain(kind, why).into_down()
}

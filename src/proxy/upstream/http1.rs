//! One HTTP/1.1 connection to an upstream, for one exchange at a time.
//!
//! Not here: the rules of the protocol ([`crate::wire`]) and time, which the caller keeps. Invariants: waiting for an answer may be given up
//! at any point and taken up again; a connection is handed on only after a whole request and a whole answer with nothing behind it.

use std::io::IoSlice;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use http::StatusCode;
use pingora_core::{Error, ErrorType, Result};
use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::time::timeout;

use super::socket::Socket;
use crate::proxy::io::{Incoming, poll_read_small};
use crate::wire::Malformed;
use crate::wire::answer::{self, Head};
use crate::wire::body::{BodyReader, Step};

/// Time for the last message of a connection.
const CLOSE_TIME: Duration = Duration::from_secs(1);
/// Bytes that TLS certainly puts into one record, of which a part cannot be read.
const RECORD_BYTES: usize = 1400;
/// Interim answers (1xx) that are skipped before the answer. Nobody sends more than one or two.
const INTERIM_MAX: usize = 32;

/// A connection.
#[derive(Debug)]
pub struct Http1 {
    socket: Socket,
    incoming: Incoming,
    /// The body of the answer, once its head has come.
    body: Option<BodyReader>,
    keeps: bool,
    /// How long the server says that it keeps the connection.
    keep_alive: Option<Duration>,
    /// Whether a piece of the request was written.
    has_written: bool,
    /// Whether the whole request was written.
    is_sent: bool,
    interim: usize,
}

/// A piece of a request.
pub struct Piece<'a> {
    /// What is written first.
    pub first: &'a [u8],
    /// What follows it.
    pub second: &'a [u8],
    /// How much of both was written before.
    pub from: usize,
    /// Whether the request ends with it.
    pub is_last: bool,
    /// Whether to stop for what the server says while it takes nothing.
    pub listens: bool,
}

/// What a write came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wrote {
    /// All of the piece.
    All,
    /// So much of it. The server has said something that was read.
    Heard(usize),
}

/// A write that failed.
#[derive(Debug)]
pub struct NotWritten {
    /// Whether the system took none of it: then nothing can have arrived.
    pub nothing: bool,
    /// Why.
    pub error: Box<Error>,
}

impl Http1 {
    /// A connection over a socket that carries no exchange.
    pub fn new(socket: Socket) -> Http1 {
        Http1 {
            socket,
            incoming: Incoming::new(),
            body: None,
            keeps: false,
            has_written: false,
            is_sent: false,
            keep_alive: None,
            interim: 0,
        }
    }

    /// Writes a piece of the request, and what follows it, in as few system calls as it takes.
    pub async fn write(&mut self, piece: &Piece<'_>) -> Result<Wrote, NotWritten> {
        let Piece { first, second, .. } = *piece;
        let mut written = piece.from;
        let mut pieces = Buf::chain(first, second);
        pieces.advance(written.min(pieces.remaining()));
        // Over TLS a failed write may have let records out before, but of a request that is one record either all has left or nothing
        // that can be read.
        let is_plain = matches!(self.socket, Socket::Plain(_));
        let waits = first.len() + second.len() <= RECORD_BYTES;
        while pieces.has_remaining() {
            match self.write_some(&mut pieces, piece.listens).await {
                Ok(None) => return Ok(Wrote::Heard(written)),
                Ok(Some(0)) => {
                    let error =
                        Error::explain(ErrorType::WriteError, "the connection takes no more");
                    return Err(self.not_written(written == 0 && (is_plain || waits), error));
                }
                Ok(Some(bytes)) => written += bytes,
                Err(cause) => {
                    let error = Error::because(ErrorType::WriteError, "writing a request", cause);
                    return Err(self.not_written(written == 0 && (is_plain || waits), error));
                }
            }
        }
        match self.flush_some(piece.listens).await {
            Ok(true) => {}
            Ok(false) => return Ok(Wrote::Heard(written)),
            Err(cause) => {
                let error = Error::because(ErrorType::WriteError, "writing a request", cause);
                return Err(self.not_written(waits, error));
            }
        }
        self.has_written = true;
        self.is_sent |= piece.is_last;
        Ok(Wrote::All)
    }

    /// The head of the final answer. Interim ones (1xx) are skipped; 101 is final where a switch of protocols was asked for.
    pub async fn read_head(&mut self, switches: bool) -> Result<Head> {
        loop {
            if self.incoming.may_have_head()
                && let Some(head) = answer::take(&mut self.incoming.bytes).map_err(malformed)?
            {
                self.incoming.search_anew();
                let is_switch = head.status == StatusCode::SWITCHING_PROTOCOLS;
                if is_switch && !switches {
                    // What follows is no HTTP any more, whatever it looks like.
                    return Err(malformed(Malformed("a switch that nobody asked for")));
                }
                if head.status.is_informational() && !is_switch {
                    self.interim += 1;
                    if self.interim > INTERIM_MAX {
                        return Err(malformed(Malformed("interim answers without end")));
                    }
                    continue;
                }
                self.keep_alive = answer::keep_alive_timeout(&head.headers);
                self.body = Some(BodyReader::new(head.framing));
                self.keeps = head.keeps;
                return Ok(head);
            }
            if self.fill().await? == 0 {
                return Err(closed("before the head of the answer was whole"));
            }
        }
    }

    /// The next part of the body; `None` at its end.
    pub async fn read_body(&mut self) -> Result<Option<Bytes>> {
        loop {
            let Some(body) = self.body.as_mut() else {
                return Ok(None);
            };
            match body.take(&mut self.incoming.bytes).map_err(malformed)? {
                Step::Part(part) => {
                    self.incoming.free();
                    return Ok(Some(part));
                }
                Step::Ended => return Ok(None),
                Step::NeedMore => {}
            }
            if self.fill().await? == 0 {
                let body = self.body.as_mut().map_or(Ok(()), BodyReader::close);
                body.map_err(|Malformed(why)| closed(why))?;
                return Ok(None);
            }
        }
    }

    /// A part of the body that is there already. An error is left for whoever reads next.
    pub fn part_at_hand(&mut self) -> Option<Bytes> {
        if self.incoming.bytes.is_empty() {
            return None;
        }
        match self.body.as_mut()?.take(&mut self.incoming.bytes) {
            Ok(Step::Part(part)) => Some(part),
            Ok(Step::NeedMore | Step::Ended) | Err(_) => None,
        }
    }

    /// Whether the answer has been read to its end.
    pub fn has_ended(&self) -> bool {
        self.body.as_ref().is_some_and(BodyReader::has_ended)
    }

    /// The socket, if another exchange may follow.
    pub fn into_reusable(self) -> Option<Socket> {
        let is_clean =
            self.is_sent && self.keeps && self.has_ended() && self.incoming.bytes.is_empty();
        is_clean.then_some(self.socket)
    }

    /// How long the server says that it keeps the connection when it is idle.
    pub fn keep_alive(&self) -> Option<Duration> {
        self.keep_alive
    }

    /// The socket and what was read of it beyond the head.
    pub fn into_parts(self) -> (Socket, Bytes) {
        (self.socket, self.incoming.bytes.freeze())
    }

    /// Whether closing it takes a message.
    pub fn says_goodbye(&self) -> bool {
        matches!(self.socket, Socket::Other(_))
    }

    /// Closes it: over TLS with a last message, for which there is little time when the peer reads nothing.
    pub async fn shutdown(&mut self) {
        let _ = timeout(CLOSE_TIME, AsyncWriteExt::shutdown(&mut self.socket)).await;
    }

    fn not_written(&self, nothing: bool, error: Box<Error>) -> NotWritten {
        NotWritten {
            nothing: nothing && !self.has_written,
            error: error.into_up(),
        }
    }

    async fn fill(&mut self) -> Result<usize> {
        let read = self.incoming.fill(&mut self.socket).await;
        read.map_err(|cause| {
            Error::because(ErrorType::ReadError, "reading an answer", cause).into_up()
        })
    }

    /// `None` when the server takes nothing now and has said something.
    async fn write_some(
        &mut self,
        pieces: &mut impl Buf,
        listens: bool,
    ) -> std::io::Result<Option<usize>> {
        let (socket, bytes) = (&mut self.socket, &mut self.incoming.bytes);
        let mut listens = listens;
        std::future::poll_fn(|context: &mut Context<'_>| {
            let mut slices = [IoSlice::new(&[]); 2];
            let count = pieces.chunks_vectored(&mut slices);
            let slices = slices.get(..count).unwrap_or_default();
            if let Poll::Ready(wrote) = Pin::new(&mut *socket).poll_write_vectored(context, slices)
            {
                return Poll::Ready(wrote.map(|wrote| {
                    pieces.advance(wrote);
                    Some(wrote)
                }));
            }
            hears(socket, bytes, context, &mut listens).map(|()| Ok(None))
        })
        .await
    }

    /// Lets out what waits in the stream; `false` when the server takes nothing now and has said something.
    async fn flush_some(&mut self, listens: bool) -> std::io::Result<bool> {
        let (socket, bytes) = (&mut self.socket, &mut self.incoming.bytes);
        let mut listens = listens;
        std::future::poll_fn(|context: &mut Context<'_>| {
            if let Poll::Ready(flushed) = Pin::new(&mut *socket).poll_flush(context) {
                return Poll::Ready(flushed.map(|()| true));
            }
            hears(socket, bytes, context, &mut listens).map(|()| Ok(false))
        })
        .await
    }
}

/// Ready when something was read. Who says nothing more may still take the rest; the write tells.
fn hears(
    socket: &mut Socket,
    bytes: &mut BytesMut,
    context: &mut Context<'_>,
    listens: &mut bool,
) -> Poll<()> {
    if *listens {
        match poll_read_small(socket, bytes, context) {
            Poll::Ready(Ok(1..)) => return Poll::Ready(()),
            Poll::Ready(_) => *listens = false,
            Poll::Pending => {}
        }
    }
    Poll::Pending
}

fn malformed(error: Malformed) -> Box<Error> {
    Error::explain(ErrorType::InvalidHTTPHeader, error.0).into_up()
}

fn closed(when: &'static str) -> Box<Error> {
    Error::explain(ErrorType::ConnectionClosed, when).into_up()
}

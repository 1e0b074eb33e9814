//! One attempt's side of an exchange. It holds what was read before commitment and reads through afterwards.
//!
//! Not here: the exchange up to the decision (`exchange`), and the loop over attempts ([`crate::proxy::relay`]).

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt;
use http::{HeaderMap, StatusCode, header};
use pingora_core::{Error, ErrorType, Result};
use pingora_http::ResponseHeader;
use tokio::time::error::Elapsed;
use tokio::time::{Instant, timeout_at};

use super::connection::Connection;
use super::connector::AttemptConnector;
use super::drain;
use super::limit::within;
use super::spec::{AttemptSpec, missing};
use super::tunnel::Tunnel;
use super::write::Written;
use crate::executor::watchdog::Reached;
use crate::providers::envelope::{self, GatewayCode, GatewayError};

/// Time for the error event of a broken stream to leave, before the stream is reset. Nothing tells when it has left; a write to a socket
/// that takes bytes needs far less.
const LAST_EVENT_TIME: Duration = Duration::from_millis(50);

/// One attempt.
pub struct AttemptSession {
    pub(super) connector: AttemptConnector,
    pub(super) spec: Arc<AttemptSpec>,
    pub(super) inner: Option<Connection>,
    /// The upstream's own head, until it is delivered or discarded.
    pub(super) upstream: Option<ResponseHeader>,
    /// The head that the client gets.
    pub(super) delivered: Option<ResponseHeader>,
    /// Whether the answer is a stream of events, which can end with one that tells of an error.
    carries_errors: bool,
    /// Body bytes read before commitment.
    pub(super) held: VecDeque<Bytes>,
    /// Whether the upstream's body has been read to its end.
    pub(super) ended: bool,
    /// What an HTTP/2 answer still lacks of its `content-length`; `None` when it has none. HTTP/1.1 sessions keep count themselves.
    lacking: Option<u64>,
    /// Whether the body ended by its length, without the end of its HTTP/2 stream.
    end_owed: bool,
    pub(super) leftover: Leftover,
    /// Whether the upstream broke, or its answer is not wanted: nothing of it is read on.
    pub(super) is_over: bool,
    /// Whether the whole request was written.
    pub(super) is_sent: bool,
    /// How much of the request had been written when the head came; `None` while there is no head.
    pub(super) written: Option<Written>,
    /// When the whole answer has to be over.
    pub(super) total_ends: Option<Instant>,
    /// The connection, once it was upgraded; then there is no inner one any more.
    pub(super) tunnel: Option<Tunnel>,
    /// The error that ends a stream after its in-band error event was passed on.
    broken: Option<Box<Error>>,
}

/// What a session leaves behind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Leftover {
    /// The exchange came to an outcome and its answer is the client's; it can be used again once the answer was read whole.
    Finished,
    /// The answer is not wanted; what is left of it may be drained.
    Discarded,
    /// The exchange broke, or the client left: nothing to be used again.
    Broken,
}

impl AttemptSession {
    /// The session of an attempt that is about to be made.
    pub fn begin(connector: AttemptConnector, spec: Arc<AttemptSpec>) -> AttemptSession {
        AttemptSession {
            connector,
            spec,
            inner: None,
            upstream: None,
            delivered: None,
            carries_errors: false,
            held: VecDeque::new(),
            ended: false,
            lacking: None,
            end_owed: false,
            leftover: Leftover::Broken,
            is_over: false,
            is_sent: false,
            written: None,
            total_ends: None,
            tunnel: None,
            broken: None,
        }
    }

    /// Gives the connection back, or closes it.
    pub async fn release(self: Box<Self>) {
        let connector = self.connector.clone();
        drain::release(&connector, self).await;
    }

    /// The head that the client gets.
    pub(super) fn delivers(&mut self, header: ResponseHeader) {
        self.carries_errors = carries_errors(&header);
        self.delivered = Some(header);
    }

    /// The header for the client, once the exchange is over.
    pub fn take_header(&mut self) -> Result<ResponseHeader> {
        self.delivered.take().ok_or_else(missing)
    }

    /// The tunnel that the connection has become.
    pub fn take_tunnel(&mut self) -> Option<Tunnel> {
        self.tunnel.take()
    }

    /// Whether nothing is left to be read: no body, no trailers.
    pub fn is_read(&self) -> bool {
        self.ended && self.held.is_empty() && !self.has_trailers()
    }

    /// The connection, if one was opened, and what may be done with it.
    pub(super) fn into_leftover(
        self: Box<Self>,
    ) -> Option<(Connection, Arc<AttemptSpec>, Leftover)> {
        let inner = self.inner?;
        let is_h1 = matches!(inner, Connection::Http1(_));
        let leftover = match (self.written, self.leftover) {
            (None, _) => Leftover::Broken,
            (Some(Written::Part), _) if is_h1 => Leftover::Broken,
            (Some(_), _) if inner.has_ended() => Leftover::Finished,
            (Some(_), Leftover::Discarded) => Leftover::Discarded,
            // Reading on to the end of the stream spares the provider a reset.
            (Some(_), Leftover::Finished) if self.end_owed => Leftover::Discarded,
            (Some(_), Leftover::Finished | Leftover::Broken) => Leftover::Broken,
        };
        Some((inner, self.spec, leftover))
    }

    /// The next bytes of the upstream's body, within the idle and total limits.
    pub(super) async fn read_through(&mut self) -> Result<Option<Bytes>> {
        let due = self.read_due();
        let Some(inner) = self.inner.as_mut() else {
            return Ok(None);
        };
        let read = within(&self.spec.cell, due, Reached::Sent, inner.read_body()).await;
        self.have_read(read)
    }

    /// The same where running out is not the end of the attempt: an answer that is an error anyhow.
    pub(super) async fn read_unwatched(&mut self) -> Result<Option<Bytes>> {
        let due = self.read_due();
        let Some(inner) = self.inner.as_mut() else {
            return Ok(None);
        };
        let read = timeout_at(due, inner.read_body()).await;
        self.have_read(read)
    }

    fn read_due(&self) -> Instant {
        let idle_ends = Instant::now() + self.spec.provider.provider.timeouts.idle;
        self.total_ends
            .map_or(idle_ends, |total| total.min(idle_ends))
    }

    fn have_read(&mut self, read: Result<Result<Option<Bytes>>, Elapsed>) -> Result<Option<Bytes>> {
        self.is_over |= !matches!(read, Ok(Ok(_)));
        let Ok(read) = read else {
            let late = Error::explain(ErrorType::ReadTimedout, "the answer paused too long");
            return Err(late.into_up());
        };
        let read = read.map_err(|error| error.into_up())?;
        if let Some(bytes) = &read {
            self.spec.cell.answer_read(bytes);
        }
        let bytes = read.as_ref().map_or(0, Bytes::len);
        let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
        self.lacking = self.lacking.map(|lacking| lacking.saturating_sub(bytes));
        if read.is_none() || self.inner.as_ref().is_some_and(Connection::has_ended) {
            // h2 0.4 breaks such a stream itself, but says that it ended well if trailers came.
            if self.lacking.is_some_and(|lacking| lacking > 0) {
                self.is_over = true;
                let short = Error::explain(ErrorType::ReadError, "shorter than its length");
                return Err(short.into_up());
            }
            self.ended = true;
        } else {
            self.end_by_length();
        }
        if self.ended {
            self.spec.cell.answer_ended();
        }
        Ok(read)
    }

    /// Notes the length of an HTTP/2 answer whose head has come.
    pub(super) fn note_length(&mut self, head: &ResponseHeader) {
        let bodiless = matches!(
            head.status,
            StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED
        );
        if bodiless || !matches!(self.inner, Some(Connection::Http2(_))) {
            return;
        }
        let mut lengths = head.headers.get_all(header::CONTENT_LENGTH).iter();
        if let (Some(length), None) = (lengths.next(), lengths.next()) {
            self.lacking = length.to_str().ok().and_then(|text| text.parse().ok());
            self.end_by_length();
        }
    }

    /// Ends an answer that has come whole by its `content-length`, whether or not its stream has ended: an HTTP/1.1 client has all of it,
    /// and its next request waits as long as this session lives. Trailers that have come with the body pass; later ones are not waited for.
    /// A reset takes nothing away any more. More bytes than the length never get here, as h2 breaks such a stream.
    fn end_by_length(&mut self) {
        if self.ended || self.lacking != Some(0) {
            return;
        }
        let Some(inner) = self.inner.as_mut() else {
            return;
        };
        // Not waited for: an await here could be dropped together with the part that was just read.
        let next = tokio::task::unconstrained(inner.read_body()).now_or_never();
        let is_at_end = matches!(next, Some(Ok(None))) || inner.has_ended();
        self.end_owed = !is_at_end;
        self.ended = true;
    }

    /// Whether trailers have come that nobody has read.
    fn has_trailers(&self) -> bool {
        let is_open = |inner: &Connection| match inner {
            Connection::Http2(inner) => !inner.response_finished(),
            Connection::Http1(_) => false,
        };
        self.leftover == Leftover::Finished
            && self.ended
            && !self.end_owed
            && self.inner.as_ref().is_some_and(is_open)
    }

    /// The error event that tells the client of a broken stream, if the stream is one that can carry it.
    fn in_band_error(&self) -> Option<Bytes> {
        let facts = &self.spec.cell.facts;
        if !self.carries_errors {
            return None;
        }
        let error = GatewayError::plain(GatewayCode::StreamInterrupted);
        let event = envelope::stream_error_event(facts.api, &error, &facts.id);
        // A blank line first: the stream may have broken inside an event.
        let mut bytes = Vec::with_capacity(event.len() + 2);
        bytes.extend_from_slice(b"\n\n");
        bytes.extend_from_slice(&event);
        Some(bytes.into())
    }

    /// The next part of the body; `None` at its end. A stream that breaks ends with an error event first, where one can be told.
    pub async fn next_part(&mut self) -> Result<Option<Bytes>> {
        if let Some(held) = self.held.pop_front() {
            return Ok(Some(held));
        }
        if let Some(error) = self.broken.take() {
            // A reset makes HTTP/2 forget what it has not sent yet, and the error event is the last of it.
            tokio::time::sleep(LAST_EVENT_TIME).await;
            return Err(error);
        }
        if self.ended {
            return Ok(None);
        }
        match self.read_through().await {
            Ok(read) => Ok(read),
            Err(error) => match self.in_band_error() {
                Some(event) => {
                    self.broken = Some(error);
                    Ok(Some(event))
                }
                None => Err(error),
            },
        }
    }

    /// A part of the body that was read with the last one. Nothing is waited for.
    pub fn part_at_hand(&mut self) -> Option<Bytes> {
        if let Some(held) = self.held.pop_front() {
            return Some(held);
        }
        if self.ended || self.broken.is_some() {
            return None;
        }
        let Some(Connection::Http1(connection)) = self.inner.as_mut() else {
            return None;
        };
        let part = connection.part_at_hand()?;
        self.have_read(Ok(Ok(Some(part)))).ok().flatten()
    }

    /// What follows the body on HTTP/2.
    pub async fn take_trailers(&mut self) -> Result<Option<HeaderMap>> {
        match self.inner.as_mut() {
            Some(Connection::Http2(inner))
                if self.leftover == Leftover::Finished && !self.end_owed =>
            {
                inner.read_trailers().await
            }
            _ => Ok(None),
        }
    }
}

/// Whether an answer is a plain stream of events, of any length.
fn carries_errors(header: &ResponseHeader) -> bool {
    let is = |name, wanted: &str| {
        let value = header.headers.get(name).map(|value| value.as_bytes());
        value.is_some_and(|value| value.starts_with(wanted.as_bytes()))
    };
    let framed = header.headers.contains_key(header::CONTENT_LENGTH);
    let encoded = header.headers.contains_key(header::CONTENT_ENCODING);
    header.status == 200 && !framed && !encoded && is("content-type", "text/event-stream")
}

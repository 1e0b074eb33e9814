//! Writing a request and reading the head of its answer, which may come before the request is written.

use std::time::Duration;

use bytes::BytesMut;
use futures::FutureExt;
use pingora_core::protocols::http::v2::client::Http2Session as Http2;
use pingora_core::protocols::http::v2::write_body;
use pingora_core::{Error, ErrorType, Result};
use pingora_http::ResponseHeader;
use tokio::time::{Instant, timeout, timeout_at};

use super::connection::Connection;
use super::failure::broken;
use super::http1::{Http1, Piece, Wrote};
use super::limit::within;
use super::spec::AttemptSpec;
use crate::core::class::Class;
use crate::core::outcome::AttemptReport;
use crate::executor::watchdog::Reached;
use crate::wire;
use crate::wire::body::Framing;

/// Bytes written at once; between two writes an early answer is looked for.
const WRITE_BYTES_MAX: usize = 128 << 10;
/// Parts of a body that are copied behind what is written before them, so that a usual request leaves in one piece.
const COPY_BYTES_MAX: usize = 16 << 10;
/// Room for the head of a request and a small body.
const HEAD_ROOM: usize = 2 << 10;
/// How long an answer is waited for after a write failed: a provider that refuses early answers and then closes.
const EARLY_ANSWER_TIME: Duration = Duration::from_millis(200);

/// The head of an answer.
pub(super) struct Head {
    /// Status and headers.
    pub header: ResponseHeader,
    /// Whether the answer has no body.
    pub ended: bool,
    /// Whether the request had been written when the head came.
    pub written: Written,
}

/// How much of a request was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Written {
    /// All of it.
    Whole,
    /// A part: an HTTP/1.1 connection waits for the rest and cannot carry anything else.
    Part,
}

/// When the parts of an exchange have to be over.
#[derive(Clone, Copy)]
pub(super) struct Timers {
    /// The operation's deadline.
    pub deadline: Instant,
    /// From the end of the request to the head.
    pub first_byte: Duration,
    /// Longest pause inside the request.
    pub pause: Duration,
}

impl Timers {
    fn pause_ends(&self) -> Instant {
        self.deadline.min(Instant::now() + self.pause)
    }

    pub(super) fn head_due(&self) -> Instant {
        self.deadline.min(Instant::now() + self.first_byte)
    }
}

/// Sends the request and returns the head of the answer, or the report of what broke. `is_sent` tells who drops this while it waits
/// whether the whole request was written.
pub(super) async fn send(
    inner: &mut Connection,
    spec: &AttemptSpec,
    timers: Timers,
    is_sent: &mut bool,
) -> Result<Head, AttemptReport> {
    match inner {
        Connection::Http1(connection) => send_http1(connection, spec, timers, is_sent).await,
        Connection::Http2(stream) => send_http2(stream, spec, timers, is_sent).await,
    }
}

async fn send_http1(
    connection: &mut Http1,
    spec: &AttemptSpec,
    timers: Timers,
    is_sent: &mut bool,
) -> Result<Head, AttemptReport> {
    if let Some(early) = write_http1(connection, spec, timers).await? {
        return Ok(early);
    }
    *is_sent = true;
    let read = connection.read_head(spec.is_handshake());
    match within(&spec.cell, timers.head_due(), Reached::Sent, read).await {
        Err(_) => Err(Reached::Sent.timed_out()),
        Ok(Err(error)) => Err(broken(Reached::Sent, &error)),
        Ok(Ok(head)) => Ok(whole(head, Written::Whole)),
    }
}

/// Writes the request. `Some` is the head of an answer that came before the end. An error ends the upload; a good answer may depend on the
/// rest of the request, so that is still written.
async fn write_http1(
    connection: &mut Http1,
    spec: &AttemptSpec,
    timers: Timers,
) -> Result<Option<Head>, AttemptReport> {
    let mut small = BytesMut::with_capacity(HEAD_ROOM);
    let head = spec.head(&mut small);
    head.map_err(|error| broken(Reached::NothingSent, &error))?;
    let mut parts = spec.take_parts().peekable();
    let mut early: Option<wire::answer::Head> = None;
    let mut is_first = true;
    loop {
        while let Some(part) = parts.next_if(|part| small.len() + part.len() <= COPY_BYTES_MAX) {
            small.extend_from_slice(&part);
        }
        let mut large = parts.next().unwrap_or_default();
        loop {
            // Not before the first write: hardly anyone answers a bare header.
            if !is_first && early.is_none() {
                early = early_head(connection, spec)?;
            }
            if let Some(head) = early.take_if(|head| !head.status.is_success()) {
                return Ok(Some(whole(head, Written::Part)));
            }
            let piece = large.split_to(large.len().min(WRITE_BYTES_MAX));
            let is_last = large.is_empty() && parts.peek().is_none();
            let mut from = 0;
            let failed = loop {
                let piece = Piece {
                    first: &small,
                    second: &piece,
                    from,
                    is_last,
                    listens: early.is_none(),
                };
                let write = connection.write(&piece);
                match within(&spec.cell, timers.pause_ends(), Reached::Sent, write).await {
                    Ok(Ok(Wrote::All)) => break None,
                    Ok(Ok(Wrote::Heard(so_far))) => from = so_far,
                    // The system took nothing: a stale pooled connection.
                    Ok(Err(failed)) if failed.nothing => {
                        return Err(broken(Reached::NothingSent, &failed.error));
                    }
                    Ok(Err(failed)) => break Some(broken(Reached::Sent, &failed.error)),
                    Err(_) => break Some(Reached::Sent.timed_out()),
                }
                early = early_head(connection, spec)?;
                if let Some(head) = early.take_if(|head| !head.status.is_success()) {
                    return Ok(Some(whole(head, Written::Part)));
                }
            };
            if let Some(failed) = failed {
                let head = match early {
                    Some(head) => Some(head),
                    None => late_head(connection, spec).await,
                };
                let head = head.map(|head| whole(head, Written::Part));
                return head.map(Some).ok_or(failed);
            }
            is_first = false;
            small.clear();
            if is_last {
                return Ok(early.map(|head| whole(head, Written::Whole)));
            }
            if large.is_empty() {
                break;
            }
        }
    }
}

/// A final head that is there already. Reading is safe to stop: what was read stays with the connection.
fn early_head(
    connection: &mut Http1,
    spec: &AttemptSpec,
) -> Result<Option<wire::answer::Head>, AttemptReport> {
    let read = connection.read_head(spec.is_handshake());
    let read = tokio::task::unconstrained(read).now_or_never();
    read.transpose()
        .map_err(|error| broken(Reached::Sent, &error))
}

/// A final head that comes soon after a failed write.
async fn late_head(connection: &mut Http1, spec: &AttemptSpec) -> Option<wire::answer::Head> {
    let read = connection.read_head(spec.is_handshake());
    timeout(EARLY_ANSWER_TIME, read).await.ok()?.ok()
}

fn whole(head: wire::answer::Head, written: Written) -> Head {
    Head {
        ended: head.framing == Framing::Empty,
        header: header_of(head),
        written,
    }
}

/// A head as Pingora has it, without copying its headers.
pub(super) fn header_of(head: wire::answer::Head) -> ResponseHeader {
    let (mut parts, ()) = http::Response::new(()).into_parts();
    parts.status = head.status;
    parts.headers = head.headers;
    ResponseHeader::from(parts)
}

fn no_head() -> Box<Error> {
    Error::explain(ErrorType::InvalidHTTPHeader, "a body before its head")
}

/// Sets the limit of a wait that is a race of several.
fn watch(spec: &AttemptSpec, due: Instant) {
    spec.cell.watch(Some((due.into_std(), Reached::Sent)));
}

async fn send_http2(
    session: &mut Http2,
    spec: &AttemptSpec,
    timers: Timers,
    is_sent: &mut bool,
) -> Result<Head, AttemptReport> {
    let header = spec.header();
    let header = header.map_err(|error| broken(Reached::NothingSent, &error))?;
    let mut parts = spec.take_parts().peekable();
    let empty = parts.peek().is_none();
    let opened = session.write_request_header(header, empty);
    // Opening a stream only queues it: a connection that refuses it has sent nothing.
    opened.map_err(|error| broken(Reached::NothingSent, &error))?;
    let mut body = if empty {
        None
    } else {
        session.take_request_body_writer()
    };
    let write = async {
        let Some(writer) = body.as_mut() else {
            return Ok(());
        };
        while let Some(part) = parts.next() {
            let last = parts.peek().is_none();
            write_body(writer, part, last, Some(timers.pause)).await?;
        }
        Ok::<(), Box<Error>>(())
    };
    tokio::pin!(write);
    let mut written = false;
    let mut failed = None;
    let mut due = timers.deadline;
    watch(spec, due);
    loop {
        tokio::select! {
            biased;
            head = session.read_response_header() => {
                head.map_err(|error| broken(Reached::Sent, &error))?;
                break;
            }
            wrote = &mut write, if !written => {
                written = true;
                *is_sent = wrote.is_ok();
                due = timers.head_due();
                let Err(error) = wrote else {
                    watch(spec, due);
                    continue;
                };
                let report = broken(Reached::Sent, &error);
                if report.class == Class::Timeout {
                    watch(spec, Instant::now());
                }
                // The peer stopped reading; its answer, if there is one, says why.
                due = due.min(Instant::now() + EARLY_ANSWER_TIME);
                failed = Some(report);
            }
            () = tokio::time::sleep_until(due) => {
                return Err(failed.unwrap_or_else(|| Reached::Sent.timed_out()));
            }
        }
    }
    let header = session.response_header().cloned();
    let header = header.ok_or_else(|| broken(Reached::Sent, &no_head()))?;
    if !written && header.status.is_success() {
        // A good answer may depend on the rest of the request.
        written = matches!(timeout_at(timers.deadline, write).await, Ok(Ok(())));
    }
    Ok(Head {
        header,
        ended: session.response_finished(),
        written: if written {
            Written::Whole
        } else {
            Written::Part
        },
    })
}

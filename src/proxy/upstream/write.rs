//! Writing a request and reading the head of its answer, which may come before the request is written.

use std::time::Duration;

use futures::FutureExt;
use pingora_core::protocols::http::HttpTask;
use pingora_core::protocols::http::client::HttpSession;
use pingora_core::protocols::http::v1::client::HttpSession as Http1;
use pingora_core::protocols::http::v2::client::Http2Session as Http2;
use pingora_core::protocols::http::v2::write_body;
use pingora_core::{Error, ErrorType, Result};
use pingora_http::ResponseHeader;
use tokio::time::{Instant, timeout_at};

use super::failure::broken;
use super::limit::within;
use super::spec::{AttemptSpec, Wire};
use crate::core::class::Class;
use crate::core::outcome::AttemptReport;
use crate::executor::watchdog::Reached;

/// Bytes written at once; between two writes an early answer is looked for.
const WRITE_BYTES_MAX: usize = 64 << 10;
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
    inner: &mut HttpSession,
    spec: &AttemptSpec,
    timers: Timers,
    is_sent: &mut bool,
) -> Result<Head, AttemptReport> {
    match inner {
        HttpSession::H1(session) => send_h1(session, spec, timers, is_sent).await,
        HttpSession::H2(session) => send_h2(session, spec, timers, is_sent).await,
        HttpSession::Custom(()) => Err(broken(Reached::NothingSent, &super::spec::missing())),
    }
}

async fn send_h1(
    session: &mut Http1,
    spec: &AttemptSpec,
    timers: Timers,
    is_sent: &mut bool,
) -> Result<Head, AttemptReport> {
    let header = spec.request_header(Wire::H1);
    let header = header.map_err(|error| broken(Reached::NothingSent, &error))?;
    let (cell, pause_ends) = (&*spec.cell, timers.pause_ends());
    let write = session.write_request_header(header);
    match within(cell, pause_ends, Reached::Sent, write).await {
        Err(_) => return Err(Reached::Sent.timed_out()),
        // The first write failed: a stale pooled connection. Nothing can have arrived.
        Ok(Err(error)) => return Err(broken(Reached::NothingSent, &error)),
        Ok(Ok(_)) => {}
    }
    if let Some((early, written)) = write_body_h1(session, spec, timers).await? {
        let head = head_of(early, written, spec).and_then(|head| head.ok_or_else(unexpected_task));
        return head.map_err(|error| broken(Reached::Sent, &error));
    }
    *is_sent = true;
    let due = timers.head_due();
    loop {
        let read = session.read_response_task();
        let task = match within(cell, due, Reached::Sent, read).await {
            Err(_) => return Err(Reached::Sent.timed_out()),
            Ok(task) => task.map_err(|error| broken(Reached::Sent, &error))?,
        };
        let head = head_of(task, Written::Whole, spec);
        if let Some(head) = head.map_err(|error| broken(Reached::Sent, &error))? {
            return Ok(head);
        }
    }
}

/// Writes the body. `Some` is the head of an answer that came before the end. An error ends the upload; a good answer may depend on the
/// rest of the request, so that is still written.
async fn write_body_h1(
    session: &mut Http1,
    spec: &AttemptSpec,
    timers: Timers,
) -> Result<Option<(HttpTask, Written)>, AttemptReport> {
    let mut early = None;
    let mut written = 0_usize;
    for mut part in spec.take_parts() {
        while !part.is_empty() {
            // Not before the first write: hardly anyone answers a bare header, and the look costs a system call.
            if written > 0 && early.is_none() {
                early = early_head(session)?;
            }
            if let Some(head) = early.take_if(|head| !is_good(head)) {
                return Ok(Some((head, Written::Part)));
            }
            let piece = part.split_to(part.len().min(WRITE_BYTES_MAX));
            let (due, write) = (timers.pause_ends(), session.write_body(&piece));
            let wrote = within(&spec.cell, due, Reached::Sent, write).await;
            let failed = match wrote {
                Ok(Ok(_)) => None,
                Ok(Err(error)) => Some(broken(Reached::Sent, &error)),
                Err(_) => Some(Reached::Sent.timed_out()),
            };
            if let Some(failed) = failed {
                let head = match early {
                    Some(head) => Some(head),
                    None => late_head(session).await,
                };
                return head.map(|head| Some((head, Written::Part))).ok_or(failed);
            }
            written += piece.len();
        }
    }
    let finished = session.finish_body().await;
    finished.map_err(|error| broken(Reached::Sent, &error))?;
    Ok(early.map(|head| (head, Written::Whole)))
}

fn is_good(task: &HttpTask) -> bool {
    matches!(task, HttpTask::Header(header, _) if header.status.is_success())
}

/// A final head that is there already. Reading is safe to stop: what was read stays in the session.
fn early_head(session: &mut Http1) -> Result<Option<HttpTask>, AttemptReport> {
    loop {
        let read = tokio::task::unconstrained(session.read_response_task()).now_or_never();
        match read {
            None => return Ok(None),
            Some(Err(error)) => return Err(broken(Reached::Sent, &error)),
            Some(Ok(HttpTask::Header(header, _))) if is_interim(&header) => {}
            Some(Ok(task)) => return Ok(Some(task)),
        }
    }
}

/// A final head that comes soon after a failed write.
async fn late_head(session: &mut Http1) -> Option<HttpTask> {
    let due = Instant::now() + EARLY_ANSWER_TIME;
    loop {
        match timeout_at(due, session.read_response_task())
            .await
            .ok()?
            .ok()?
        {
            HttpTask::Header(header, _) if is_interim(&header) => {}
            task @ HttpTask::Header(..) => return Some(task),
            _ => return None,
        }
    }
}

/// The head in a task; `None` for an interim one (1xx), which is not passed on.
fn head_of(task: HttpTask, written: Written, spec: &AttemptSpec) -> Result<Option<Head>> {
    match task {
        HttpTask::Header(header, ended) if spec.is_handshake() && header.status == 101 => {
            Ok(Some(Head {
                header: *header,
                ended,
                written,
            }))
        }
        HttpTask::Header(header, _) if is_interim(&header) => Ok(None),
        HttpTask::Header(header, ended) => Ok(Some(Head {
            header: *header,
            ended,
            written,
        })),
        _ => Err(unexpected_task()),
    }
}

fn is_interim(header: &ResponseHeader) -> bool {
    header.status.is_informational()
}

fn unexpected_task() -> Box<Error> {
    Error::explain(ErrorType::InvalidHTTPHeader, "a body before its head")
}

/// Sets the limit of a wait that is a race of several.
fn watch(spec: &AttemptSpec, due: Instant) {
    spec.cell.watch(Some((due.into_std(), Reached::Sent)));
}

async fn send_h2(
    session: &mut Http2,
    spec: &AttemptSpec,
    timers: Timers,
    is_sent: &mut bool,
) -> Result<Head, AttemptReport> {
    let header = spec.request_header(Wire::H2);
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
    let header = header.ok_or_else(|| broken(Reached::Sent, &unexpected_task()))?;
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

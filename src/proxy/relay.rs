//! One operation, attempt after attempt, and its answer on its way to the client.
//!
//! Pingora's own loop would do the same through channels, two message forwarders and a copy of the request header for each attempt; it is
//! left to what may become a tunnel ([`super::upgrade`]), since it pumps both directions. Invariants: the executor is asked before
//! anything is done; the client is watched during every wait, and when it leaves the attempt is dropped at once; an attempt's connection
//! is given back before the last byte of its answer goes to the client, whose next request may need it.

use std::sync::Arc;

use futures::FutureExt;
use http::header;
use pingora_core::protocols::http::HttpTask;
use pingora_core::{Error, ErrorSource, ErrorType, Result};
use pingora_http::ResponseHeader;
use pingora_proxy::Session;
use tokio::time::Instant;

use super::ctx::{Operation, RequestCtx};
use super::operation::OperationCell;
use super::service::{DataPlane, write_final};
use super::upstream::{AGAIN, AttemptSession, AttemptSpec, TUNNEL_CLOSED};
use crate::core::class::Class;
use crate::core::outcome::{AttemptReport, Carrier, Outcome, Scope};
use crate::core::time::MonoTime;
use crate::executor::effect::{Begin, FinalAnswer, Next};
use crate::executor::event::{Event, StreamEnd};

impl DataPlane {
    /// Makes attempts until one is delivered or the operation ends, and writes the answer. `Err` when the client's connection is of no more use.
    pub(super) async fn relay(&self, session: &mut Session, ctx: &mut RequestCtx) -> Result<()> {
        loop {
            if let Err(answer) = self.next_attempt(session, ctx).await {
                let (Some(answer), Some(cell)) = (answer, ctx.cell()) else {
                    return Err(over());
                };
                return write_final(session, cell, &answer).await.map(|_| ());
            }
            let (Some(spec), Some(operation)) = (ctx.prepared.take(), &mut ctx.operation) else {
                return Err(over());
            };
            // Whoever has left by now is sent nothing for: the first turn of an exchange may already write.
            if let Some(gone) = tokio::task::unconstrained(gone(session)).now_or_never() {
                broke(&operation.cell, &gone);
                return Err(gone);
            }
            let mut upstream = Some(AttemptSession::begin(self.connector.clone(), spec));
            let made = self.attempt(session, operation, &mut upstream).await;
            if let Some(upstream) = upstream {
                upstream.release().await;
            }
            match made {
                Err(error) if error.etype() == &AGAIN => {}
                Err(error) => {
                    broke(&operation.cell, &error);
                    return Err(error);
                }
                Ok(()) => return Ok(()),
            }
        }
    }

    /// One attempt, and its answer if the client gets it.
    async fn attempt(
        &self,
        session: &mut Session,
        operation: &mut Operation,
        upstream: &mut Option<AttemptSession>,
    ) -> Result<()> {
        let attempt = upstream.as_mut().ok_or_else(over)?;
        let mut header = tokio::select! {
            biased;
            made = attempt.exchange() => made.and_then(|()| attempt.take_header()),
            gone = gone(session) => Err(gone),
        }?;
        operation.cell.committed(header.status.as_u16());
        operation.release_body();
        frame(&mut header, session)?;

        let mut tasks = Vec::with_capacity(2);
        let mut ended = attempt.is_read();
        tasks.push(HttpTask::Header(Box::new(header), ended));
        while let Some(part) = attempt.take_held() {
            ended = attempt.is_read();
            operation.cell.wrote(part.len(), false);
            tasks.push(HttpTask::Body(Some(part), ended));
        }
        loop {
            if ended && let Some(attempt) = upstream.take() {
                attempt.release().await;
            }
            write(session, &operation.cell, tasks).await?;
            if ended {
                // Only now: what could not be written is no end.
                operation.cell.wrote(0, true);
                break;
            }
            let attempt = upstream.as_mut().ok_or_else(over)?;
            let part = tokio::select! {
                biased;
                part = attempt.next_part() => part,
                gone = gone(session) => Err(gone),
            }?;
            ended = part.is_none() || attempt.is_read();
            let length = part.as_ref().map_or(0, |part| part.len());
            operation.cell.wrote(length, false);
            tasks = vec![match part {
                Some(part) => HttpTask::Body(Some(part), ended),
                None => HttpTask::Trailer(attempt.take_trailers().await?.map(Box::new)),
            }];
        }
        session.as_downstream_mut().finish_body().await.map(|_| ())
    }

    /// Sleeps until the instant, or until something else ends the wait; the executor is told which.
    async fn wait(&self, session: &mut Session, operation: &Operation, until: MonoTime) -> Next {
        let event = tokio::select! {
            biased;
            event = self.interruption(session, operation) => event,
            () = self.gateway.around.lifecycle.drain_begun() => Event::ShutdownBegun,
            () = self.sleep_until(until) => Event::WaitElapsed,
        };
        operation.cell.feed(event)
    }

    /// What ends an operation whatever it is waiting for: the client leaves, or the deadline passes.
    async fn interruption(&self, session: &mut Session, operation: &Operation) -> Event {
        tokio::select! {
            biased;
            // Nothing is expected of the client now: whatever comes means that it has left or broken the protocol.
            _ = session.as_downstream_mut().read_body_or_idle(true) => Event::ClientGone,
            () = self.sleep_until(operation.deadline) => Event::DeadlinePassed,
        }
    }

    async fn sleep_until(&self, at: MonoTime) {
        let at = self.gateway.around.clock.instant(at);
        tokio::time::sleep_until(Instant::from_std(at)).await;
    }

    /// Prepares an attempt. Only a name that was never resolved takes time, and nothing waits for it that has ended.
    async fn prepare(
        &self,
        session: &mut Session,
        operation: &Operation,
        begin: Begin,
    ) -> Result<AttemptSpec, Event> {
        let peer = tokio::select! {
            biased;
            peer = self.gateway.peer(operation, begin) => peer,
            event = self.interruption(session, operation) => return Err(event),
        };
        let client = &session.req_header().headers;
        // A name that does not resolve does so for nobody; a credential that is missing is one provider's matter.
        let peer = peer.ok_or_else(|| Event::Outcome(unreachable_target(Scope::Endpoint)))?;
        let prepared = self.gateway.prepare(operation, begin, peer, client);
        prepared.ok_or_else(|| Event::Outcome(unreachable_target(Scope::Candidate)))
    }

    /// Follows the executor until there is an attempt to make or the operation is over.
    pub(super) async fn next_attempt(
        &self,
        session: &mut Session,
        ctx: &mut RequestCtx,
    ) -> Result<(), Option<FinalAnswer>> {
        let Some(operation) = &ctx.operation else {
            return Err(Some(FinalAnswer::Internal));
        };
        let mut next = operation.cell.take_next();
        loop {
            next = match next {
                Some(Next::Begin(begin)) => match self.prepare(session, operation, begin).await {
                    Ok(spec) => {
                        ctx.prepared = Some(Arc::new(spec));
                        return Ok(());
                    }
                    Err(event) => Some(operation.cell.feed(event)),
                },
                Some(Next::Wait(until)) => Some(self.wait(session, operation, until).await),
                Some(Next::Answer(answer)) => return Err(Some(answer)),
                Some(Next::End) => return Err(None),
                Some(Next::Send | Next::Deliver(_) | Next::Continue) | None => {
                    return Err(Some(FinalAnswer::Internal));
                }
            };
        }
    }
}

/// Resolves when the client has left, or has broken the protocol: nothing is expected of it now.
async fn gone(session: &mut Session) -> Box<Error> {
    match session.as_downstream_mut().read_body_or_idle(true).await {
        Err(error) => error.into_down(),
        Ok(_) => Error::new_down(ErrorType::ConnectionClosed),
    }
}

/// Writes what there is for the client, who may take his time for it, and no more than that.
async fn write(session: &mut Session, cell: &OperationCell, tasks: Vec<HttpTask>) -> Result<()> {
    let lengths = tasks.iter().map(|task| match task {
        HttpTask::Body(Some(part), _) => part.len(),
        _ => 0,
    });
    let bytes = lengths.sum();
    let allowance = cell.allowance(bytes);
    if allowance.is_zero() {
        let slow = Error::explain(ErrorType::WriteTimedout, "the client reads too slowly");
        return Err(slow.into_down());
    }
    session.set_write_timeout(Some(allowance));
    // What there is room for is written at once: it is the client who makes this long.
    let began = Instant::now();
    session.write_response_tasks(tasks).await?;
    cell.took(bytes, began.elapsed());
    Ok(())
}

/// Tells the executor of an operation that its answer broke, or its client.
pub(super) fn broke(cell: &OperationCell, error: &Error) {
    if error.etype() == &ErrorType::WriteTimedout && has_left(error) {
        cell.read_too_slowly();
    }
    let _ = cell.feed(
        match (cell.end_seen(), has_left(error), cell.has_committed()) {
            (true, ..) => Event::StreamEnded(StreamEnd::Complete),
            (_, true, _) => Event::ClientGone,
            (_, _, false) => Event::Dropped,
            _ if error.etype() == &TUNNEL_CLOSED => Event::StreamEnded(StreamEnd::Complete),
            _ if error.etype() == &ErrorType::ReadTimedout => {
                Event::StreamEnded(StreamEnd::UpstreamTimedOut)
            }
            _ => Event::StreamEnded(StreamEnd::UpstreamBroke),
        },
    );
}

/// Whether the error is the client's.
pub(super) fn has_left(error: &Error) -> bool {
    error.esource() == &ErrorSource::Downstream
}

/// The error that ends a request whose operation is over without an answer.
fn over() -> Box<Error> {
    let mut error = Error::new_in(ErrorType::Custom("the operation ends here"));
    error.set_retry(false);
    error
}

/// Says how the body is framed for an HTTP/1.1 client (RFC 9112, 6). HTTP/2 frames by itself.
fn frame(header: &mut ResponseHeader, session: &Session) -> Result<()> {
    header.set_version(http::Version::HTTP_11);
    let bodiless = matches!(header.status.as_u16(), 204 | 304);
    if !bodiless && !session.is_http2() && !header.headers.contains_key(header::CONTENT_LENGTH) {
        header.insert_header(header::TRANSFER_ENCODING, "chunked")?;
    }
    Ok(())
}

/// The report of a target that could not even be asked: its name does not resolve, or its credential cannot be sent.
const fn unreachable_target(scope: Scope) -> AttemptReport {
    AttemptReport {
        outcome: Outcome::NotDelivered,
        class: Class::Transport,
        scope,
        carrier: Carrier::None,
        status: None,
        pushback: None,
        reply: None,
    }
}

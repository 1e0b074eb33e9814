//! One operation, attempt after attempt, and its answer on its way to the client.
//!
//! Not here: a request before it is an operation (`service`), one attempt's side (`upstream`), the bytes of the client's connection
//! (`downstream`). Invariants: the executor is asked before anything is done; the client is watched during every wait, and when it leaves
//! the attempt is dropped at once; an attempt's connection is given back before the last byte of its answer goes to the client, whose next
//! request may need it.

use std::sync::Arc;

use futures::FutureExt;
use http::StatusCode;
use pingora_core::{Error, ErrorSource, ErrorType, Result};
use tokio::time::Instant;

use super::ctx::Operation;
use super::downstream::{Downstream, Piece};
use super::operation::OperationCell;
use super::service::{DataPlane, write_final};
use super::upstream::{AttemptSession, AttemptSpec, Exchanged, Tunnel};
use crate::core::class::Class;
use crate::core::outcome::{AttemptReport, Carrier, Outcome, Scope};
use crate::core::time::MonoTime;
use crate::executor::effect::{Begin, FinalAnswer, Next};
use crate::executor::event::{Event, StreamEnd};

impl DataPlane {
    /// Makes attempts until one is delivered or the operation ends, and writes the answer. `Err` when the client's connection is of no more use.
    pub(super) async fn relay(
        &self,
        client: &mut Downstream,
        operation: &mut Operation,
    ) -> Result<()> {
        loop {
            let spec = match self.next_attempt(client, operation).await {
                Ok(spec) => spec,
                Err(Some(answer)) => return write_final(client, &operation.cell, &answer).await,
                Err(None) => return Err(over()),
            };
            others_first().await;
            // Whoever has left by now is sent nothing for: the first turn of an exchange may already write.
            if let Some(gone) = tokio::task::unconstrained(client.gone()).now_or_never() {
                broke(&operation.cell, &gone);
                return Err(gone);
            }
            // Boxed, and let go before the next wait: whoever waits for a second round has no attempt.
            match Box::pin(self.attempt(client, operation, spec)).await {
                Ok(Exchanged::Again) => {}
                Ok(Exchanged::Answered) => return Ok(()),
                Err(error) => {
                    broke(&operation.cell, &error);
                    return Err(error);
                }
            }
        }
    }

    /// One attempt, and its answer if the client gets it.
    async fn attempt(
        &self,
        client: &mut Downstream,
        operation: &mut Operation,
        spec: Arc<AttemptSpec>,
    ) -> Result<Exchanged> {
        // Boxed: it is given away while the answer is still written.
        let session = AttemptSession::begin(self.connector.clone(), spec);
        let mut upstream = Some(Box::new(session));
        let made = self.deliver(client, operation, &mut upstream).await;
        if let Some(upstream) = upstream {
            upstream.release().await;
        }
        made
    }

    async fn deliver(
        &self,
        client: &mut Downstream,
        operation: &mut Operation,
        upstream: &mut Option<Box<AttemptSession>>,
    ) -> Result<Exchanged> {
        let attempt = upstream.as_mut().ok_or_else(over)?;
        let exchanged = tokio::select! {
            biased;
            made = attempt.exchange() => made,
            gone = client.gone() => Err(gone),
        }?;
        if exchanged == Exchanged::Again {
            return Ok(exchanged);
        }
        let header = attempt.take_header()?;
        operation.commit(header.status);
        let cell = &operation.cell;
        let switches = header.status == StatusCode::SWITCHING_PROTOCOLS;
        let mut piece = Piece {
            header: Some(Box::new(header)),
            ends: attempt.is_read(),
            ..Piece::default()
        };
        gather(&mut piece, attempt);
        if switches && let Some(tunnel) = attempt.take_tunnel() {
            piece.ends = false;
            write(client, cell, piece).await?;
            self.tunnel(client, tunnel).await?;
            return Ok(exchanged);
        }
        loop {
            if piece.ends
                && let Some(attempt) = upstream.take()
            {
                attempt.release().await;
            }
            let ends = piece.ends;
            cell.wrote(piece.body_len(), false);
            write(client, cell, piece).await?;
            if ends {
                // Only now: what could not be written is no end.
                cell.wrote(0, true);
                return Ok(exchanged);
            }
            let attempt = upstream.as_mut().ok_or_else(over)?;
            let part = tokio::select! {
                biased;
                part = attempt.next_part() => part,
                gone = client.gone() => Err(gone),
            }?;
            piece = Piece {
                ends: part.is_none() || attempt.is_read(),
                ..Piece::default()
            };
            match part {
                Some(part) => {
                    piece.parts.push(part);
                    gather(&mut piece, attempt);
                }
                None => piece.trailers = attempt.take_trailers().await?,
            }
        }
    }

    async fn tunnel(&self, client: &mut Downstream, tunnel: Tunnel) -> Result<()> {
        let Downstream::Http1(client) = client else {
            return Err(over());
        };
        let pause_max = self.gateway.client_write_timeout();
        let (stream, early) = client.parts();
        tunnel.run(stream, early, pause_max).await
    }

    /// Sleeps until the instant, or until something else ends the wait; the executor is told which.
    async fn wait(&self, client: &mut Downstream, operation: &Operation, until: MonoTime) -> Next {
        let event = tokio::select! {
            biased;
            event = self.interruption(client, operation) => event,
            () = self.gateway.around.lifecycle.drain_begun() => Event::ShutdownBegun,
            () = self.sleep_until(until) => Event::WaitElapsed,
        };
        operation.cell.feed(event)
    }

    /// What ends an operation whatever it is waiting for: the client leaves, or the deadline passes.
    async fn interruption(&self, client: &mut Downstream, operation: &Operation) -> Event {
        tokio::select! {
            biased;
            _ = client.gone() => Event::ClientGone,
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
        client: &mut Downstream,
        operation: &Operation,
        begin: Begin,
    ) -> Result<Arc<AttemptSpec>, Event> {
        let peer = tokio::select! {
            biased;
            peer = self.gateway.peer(operation, begin) => peer,
            event = self.interruption(client, operation) => return Err(event),
        };
        // A name that does not resolve does so for nobody; a credential that is missing is one provider's matter.
        let peer = peer.ok_or_else(|| Event::Outcome(unreachable_target(Scope::Endpoint)))?;
        let prepared = self
            .gateway
            .prepare(operation, begin, peer, &client.head().headers);
        prepared
            .map(Arc::new)
            .ok_or_else(|| Event::Outcome(unreachable_target(Scope::Candidate)))
    }

    /// Follows the executor until there is an attempt to make or the operation is over.
    async fn next_attempt(
        &self,
        client: &mut Downstream,
        operation: &Operation,
    ) -> Result<Arc<AttemptSpec>, Option<FinalAnswer>> {
        let mut next = operation.cell.take_next();
        loop {
            next = match next {
                Some(Next::Begin(begin)) => match self.prepare(client, operation, begin).await {
                    Ok(spec) => return Ok(spec),
                    Err(event) => Some(operation.cell.feed(event)),
                },
                Some(Next::Wait(until)) => Some(self.wait(client, operation, until).await),
                Some(Next::Answer(answer)) => return Err(Some(answer)),
                Some(Next::End) => return Err(None),
                Some(Next::Send | Next::Deliver(_) | Next::Continue) | None => {
                    return Err(Some(FinalAnswer::Internal));
                }
            };
        }
    }
}

/// Bytes of parts that are written at once. A burst of small events is one write, and no part waits for another.
const GATHERED_BYTES_MAX: usize = 16 << 10;

/// Adds to a piece what was read together with it.
fn gather(piece: &mut Piece, attempt: &mut AttemptSession) {
    while piece.body_len() < GATHERED_BYTES_MAX
        && let Some(part) = attempt.part_at_hand()
    {
        piece.parts.push(part);
        piece.ends = attempt.is_read();
    }
}

/// Lets everybody go first who can read now. Under load the writes of many requests follow each other then, and whoever reads them on this
/// machine is woken once for all of them and not once for each, which takes a third of a request's time (ADR 23). Where nobody is waiting
/// it costs one look for more to read.
async fn others_first() {
    tokio::task::yield_now().await;
}

/// Writes what there is for the client, who may take his time for it, and no more than that.
async fn write(client: &mut Downstream, cell: &OperationCell, piece: Piece) -> Result<()> {
    let bytes = piece.body_len();
    let allowance = cell.allowance(bytes);
    if allowance.is_zero() {
        let slow = Error::explain(ErrorType::WriteTimedout, "the client reads too slowly");
        return Err(slow.into_down());
    }
    others_first().await;
    // What there is room for is written at once: it is the client who makes this long.
    let began = Instant::now();
    client.write(piece, allowance).await?;
    cell.took(bytes, began.elapsed());
    Ok(())
}

/// Tells the executor of an operation that its answer broke, or its client.
fn broke(cell: &OperationCell, error: &Error) {
    if error.etype() == &ErrorType::WriteTimedout && has_left(error) {
        cell.read_too_slowly();
    }
    let _ = cell.feed(
        match (cell.end_seen(), has_left(error), cell.has_committed()) {
            (true, ..) => Event::StreamEnded(StreamEnd::Complete),
            (_, true, _) => Event::ClientGone,
            (_, _, false) => Event::Dropped,
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
    Error::new_in(ErrorType::Custom("the operation ends here"))
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

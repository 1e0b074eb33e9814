//! One attempt from the dispatch point to the decision.

use std::sync::Arc;

use bytes::BytesMut;
use pingora_core::{Error, Result};
use pingora_http::ResponseHeader;
use tokio::time::{Instant, timeout_at};

use super::connection::Connection;
use super::failure::{broken, report, unreached};
use super::limit::within;
use super::session::{AttemptSession, Leftover};
use super::spec::{AttemptSpec, missing};
use super::tunnel::{Limits, Tunnel};
use super::write::{self, Timers};
use crate::core::class::Class;
use crate::core::limits::{ERROR_BODY_TIME_MAX, PEEK_BYTES_MAX, PEEK_TIME_MAX, REPLY_BODY_MAX};
use crate::core::outcome::{AttemptReport, Carrier, Outcome, Reply, Scope};
use crate::executor::effect::{Deliver, FinalAnswer, Next};
use crate::executor::event::Event;
use crate::executor::watchdog::Reached;
use crate::providers::answer::{BodyEnd, ResponseHead, Verdict};
use crate::providers::classify;
use crate::providers::handshake;
use crate::providers::headers::upstream_request_id;
use crate::providers::peek::{self, Peek, Rest};
use crate::providers::stream::{Progress, StreamWatch};
use crate::providers::usage::UsageReader;
use crate::proxy::respond;
use crate::proxy::translate::Headers;

/// What follows an exchange.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exchanged {
    /// Its answer, or one of the gateway, goes to the client.
    Answered,
    /// The executor says what comes next.
    Again,
}

impl AttemptSession {
    /// Asks for the send, makes it, tells the executor what became of it, and obeys.
    pub async fn exchange(&mut self) -> Result<Exchanged> {
        let spec = Arc::clone(&self.spec);
        if let Some(strict) = &spec.cell.around.strict {
            // This future is dropped when the client leaves. A drain does not cut the wait short: it is no sleep, and what was read may
            // have its first send. Whatever comes of it, the executor is asked afterwards and sees deadline and drain as they are then.
            let deadline = Instant::from_std(spec.cell.around.clock.instant(spec.deadline));
            strict.confirm(deadline).await;
        }
        match spec.cell.feed(Event::SendBegun) {
            Next::Send => {}
            next => return self.obey(&spec, &next),
        }
        let report = match self.attempt(&spec).await {
            Ok(report) => {
                self.leftover = Leftover::Finished;
                report
            }
            Err(report) => {
                self.is_over = true;
                report
            }
        };
        let next = spec.cell.feed(Event::Outcome(report));
        self.obey(&spec, &next)
    }

    fn obey(&mut self, spec: &AttemptSpec, next: &Next) -> Result<Exchanged> {
        match next {
            Next::Deliver(deliver) => self.deliver(spec, deliver)?,
            Next::Answer(answer) => self.answer(spec, answer)?,
            Next::Begin(_) | Next::Wait(_) => {
                self.discard(spec);
                return Ok(Exchanged::Again);
            }
            Next::Send | Next::Continue | Next::End => {
                self.discard(spec);
                return Err(Error::new_in(pingora_core::ErrorType::InternalError));
            }
        }
        Ok(Exchanged::Answered)
    }

    /// The upstream's own answer becomes the client's.
    fn deliver(&mut self, spec: &AttemptSpec, deliver: &Deliver) -> Result<()> {
        let upstream = self.upstream.take().ok_or_else(missing)?;
        let mut header = respond::passed_header(&upstream, &spec.cell)?;
        if let Deliver::Throttled(throttle) = deliver {
            let route_headers = spec.cell.facts.snapshot.server.route_headers;
            respond::throttled(&mut header, throttle, route_headers)?;
        }
        self.delivers(header);
        if upstream.status == http::StatusCode::SWITCHING_PROTOCOLS {
            self.switch(spec)?;
        }
        Ok(())
    }

    /// The connection becomes a tunnel.
    fn switch(&mut self, spec: &AttemptSpec) -> Result<()> {
        let (Some(Connection::Http1(inner)), Some(total_ends)) =
            (self.inner.take(), self.total_ends)
        else {
            return Err(missing());
        };
        let limits = Limits {
            idle: spec.provider.provider.timeouts.idle,
            total_ends,
        };
        self.tunnel = Some(Tunnel::new(*inner, Arc::clone(&spec.cell), limits));
        Ok(())
    }

    /// An answer of the gateway, passed on as if it came from upstream: the client's connection stays usable.
    fn answer(&mut self, spec: &AttemptSpec, answer: &FinalAnswer) -> Result<()> {
        self.discard(spec);
        let answer = respond::final_answer(&spec.cell, answer)?;
        self.delivers(answer.header);
        if !answer.body.is_empty() {
            self.held.push_back(answer.body);
        }
        Ok(())
    }

    /// What was read of the answer is not wanted. An exchange that broke stays broken.
    fn discard(&mut self, spec: &AttemptSpec) {
        spec.cell.answer_discarded();
        self.is_over = true;
        self.held.clear();
        if self.leftover == Leftover::Finished {
            self.leftover = Leftover::Discarded;
        }
        self.ended = true;
    }

    /// The send and everything up to its outcome. `Err` and `Ok` are both reports; `?` ends at the first that is final.
    async fn attempt(&mut self, spec: &Arc<AttemptSpec>) -> Result<AttemptReport, AttemptReport> {
        let timeouts = spec.provider.provider.timeouts;
        let begun = Instant::now();
        let deadline = Instant::from_std(spec.cell.around.clock.instant(spec.deadline));
        self.total_ends = begun.checked_add(timeouts.total);

        let inner = match self.connector.idle(&spec.peer) {
            Some(idle) => idle,
            None => {
                // Boxed: its state (socket, TLS) is large, and would be a part of this future while the answer is waited for.
                let connect = Box::pin(self.connector.connect(&spec.peer));
                let connect_ends = deadline.min(begun + timeouts.connect);
                let reached = Reached::NothingSent;
                match within(&spec.cell, connect_ends, reached, connect).await {
                    Err(_) => return Err(reached.timed_out()),
                    Ok(connected) => connected.map_err(|error| unreached(&error))?,
                }
            }
        };
        let timers = Timers {
            deadline,
            first_byte: timeouts.first_byte,
            pause: timeouts.idle,
        };
        let inner = self.inner.insert(inner);
        let head = write::send(inner, spec, timers, &mut self.is_sent).await?;
        self.ended = head.ended;
        self.written = Some(head.written);
        self.note_length(&head.header);
        spec.cell
            .upstream_header(upstream_request_id(&Headers(&head.header.headers)));
        let header = head.header;
        let headers = Headers(&header.headers);
        let seen = ResponseHead {
            status: header.status.as_u16(),
            headers: &headers,
        };
        let (api, stream) = (spec.traits.api, spec.traits.stream);
        spec.cell.answer_begun(UsageReader::new(api, stream, &seen));
        if self.ended {
            spec.cell.answer_ended();
        }
        let report = if spec.is_handshake() && !is_refusal(&header) {
            switched(&header)
        } else if header.status.is_success() {
            self.look_into(spec, &header, deadline).await
        } else {
            Ok(self.read_error(spec, &header, deadline).await)
        };
        self.upstream = Some(header);
        report
    }

    /// Reads an error answer within its bounds and classifies it (R-A2).
    async fn read_error(
        &mut self,
        spec: &AttemptSpec,
        header: &ResponseHeader,
        deadline: Instant,
    ) -> AttemptReport {
        let due = deadline.min(Instant::now() + ERROR_BODY_TIME_MAX);
        let mut body = BytesMut::new();
        let end = loop {
            if self.ended {
                break BodyEnd::Complete;
            }
            if body.len() >= REPLY_BODY_MAX {
                break BodyEnd::OverBound;
            }
            match timeout_at(due, self.read_unwatched()).await {
                Err(_) => break BodyEnd::OverBound,
                Ok(Err(_)) => break BodyEnd::Truncated,
                Ok(Ok(None)) => break BodyEnd::Complete,
                Ok(Ok(Some(part))) => {
                    body.extend_from_slice(&part);
                    self.held.push_back(part);
                }
            }
        };
        body.truncate(REPLY_BODY_MAX);
        let headers = Headers(&header.headers);
        let head = ResponseHead {
            status: header.status.as_u16(),
            headers: &headers,
        };
        let trust = &spec.provider.provider.trust_status;
        let verdict = classify::classify(
            spec.provider.adapter,
            &spec.traits,
            trust,
            &head,
            &body,
            end,
        );
        let verdict = if spec.is_handshake() {
            handshake::reread(verdict, &head, &body)
        } else {
            verdict
        };
        let reply = respond::reply(header.status, header, &body);
        from_verdict(&verdict, Some(reply))
    }

    /// Holds a good answer until it is known to be one (R-A4).
    async fn look_into(
        &mut self,
        spec: &AttemptSpec,
        header: &ResponseHeader,
        deadline: Instant,
    ) -> Result<AttemptReport, AttemptReport> {
        if header.status == http::StatusCode::NO_CONTENT {
            // There is nothing to look into, whatever was asked for.
            return Ok(good(header));
        }
        let headers = Headers(&header.headers);
        let head = ResponseHead {
            status: header.status.as_u16(),
            headers: &headers,
        };
        let mut watch = peek::is_stream(&spec.traits, &head)
            .then(|| StreamWatch::new(spec.provider.adapter, spec.traits, &head));
        let mut prefix = BytesMut::new();
        let mut seen = 0_usize;
        let mut hold_ends = None;
        loop {
            let rest = match (self.ended, hold_ends) {
                (true, _) => Rest::Ended,
                (false, Some(ends)) if Instant::now() >= ends || seen >= PEEK_BYTES_MAX => {
                    Rest::Bound
                }
                (false, _) => Rest::Open,
            };
            let found = match &mut watch {
                Some(watch) => follow(watch, rest),
                None => peek::peek(spec.provider.adapter, &spec.traits, &head, &prefix, rest),
            };
            match found {
                Peek::Commit => return Ok(good(header)),
                Peek::Error(verdict) => {
                    let body = match &watch {
                        Some(watch) => watch.error_body(),
                        None => Some(&prefix[..]),
                    };
                    let reply = body.map(|body| stream_reply(&verdict, header, body));
                    return Ok(from_verdict(&verdict, reply));
                }
                Peek::NeedMore => {}
            }
            let read = match hold_ends {
                Some(ends) if ends < deadline => {
                    match timeout_at(ends, self.read_through()).await {
                        Err(_) => continue,
                        Ok(read) => read,
                    }
                }
                _ => match timeout_at(deadline, self.read_through()).await {
                    Err(_) => return Err(Reached::Sent.timed_out()),
                    Ok(read) => read,
                },
            };
            let Some(part) = read.map_err(|error| broken(Reached::Sent, &error))? else {
                self.ended = true;
                continue;
            };
            hold_ends.get_or_insert_with(|| Instant::now() + PEEK_TIME_MAX);
            seen += part.len();
            match &mut watch {
                Some(watch) => {
                    let _ = watch.feed(&part);
                }
                None => prefix.extend_from_slice(&part),
            }
            self.held.push_back(part);
        }
    }
}

fn follow(watch: &mut StreamWatch, rest: Rest) -> Peek {
    let progress = match rest {
        Rest::Ended => watch.finish(),
        Rest::Open | Rest::Bound => watch.progress(),
    };
    let found = match progress {
        Progress::Preamble => Peek::NeedMore,
        Progress::Output => Peek::Commit,
        Progress::Failed(verdict) => Peek::Error(verdict),
    };
    peek::settle(found, rest)
}

/// The report of a handshake that was not refused: accepted, or answered by something that speaks no WebSocket.
fn switched(header: &ResponseHeader) -> Result<AttemptReport, AttemptReport> {
    let headers = Headers(&header.headers);
    let head = ResponseHead {
        status: header.status.as_u16(),
        headers: &headers,
    };
    if handshake::is_accepted(&head) {
        Ok(good(header))
    } else {
        Err(report(Outcome::Ambiguous, Class::Malformed))
    }
}

fn is_refusal(header: &ResponseHeader) -> bool {
    header.status.as_u16() >= 300
}

fn good(header: &ResponseHeader) -> AttemptReport {
    AttemptReport {
        outcome: Outcome::Succeeded,
        class: Class::Ok,
        scope: Scope::Candidate,
        carrier: Carrier::Status,
        status: Some(header.status.as_u16()),
        pushback: None,
        reply: None,
    }
}

fn from_verdict(verdict: &Verdict, reply: Option<Reply>) -> AttemptReport {
    AttemptReport {
        outcome: verdict.outcome,
        class: verdict.class,
        scope: verdict.scope,
        carrier: verdict.carrier,
        status: Some(verdict.status),
        pushback: verdict.pushback,
        reply: reply.map(Arc::new),
    }
}

/// An error found inside a good answer, as the answer that it should have been: its status, and its body without the framing.
fn stream_reply(verdict: &Verdict, header: &ResponseHeader, body: &[u8]) -> Reply {
    let body = body.get(..REPLY_BODY_MAX).unwrap_or(body);
    let mut reply = respond::reply(header.status, header, body);
    reply.status = verdict.status;
    reply.headers.retain(|(name, _)| name != "content-type");
    reply
        .headers
        .push(("content-type".to_owned(), "application/json".to_owned()));
    reply
}

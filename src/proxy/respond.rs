//! Answers that the gateway writes, and the headers that it puts on every answer.
//!
//! Not here: which answer it is. Invariant: no header of an upstream reaches a client unless `providers::headers` lets it pass.

use bytes::Bytes;
use http::StatusCode;
use http::header::CONTENT_LENGTH;
use pingora_core::Result;
use pingora_http::ResponseHeader;

use super::operation::OperationCell;
use crate::core::api::{Api, Family};
use crate::core::outcome::Reply;
use crate::executor::effect::{FinalAnswer, ThrottleHeaders};
use crate::providers::envelope::{self, GatewayCode, GatewayError};
use crate::providers::{handshake, headers};
use crate::wire::answer::has_no_body;

/// What a 503 of the gateway asks for, in whole seconds: long enough for a drain or a burst to pass.
pub const RETRY_AFTER_SECONDS: u32 = 1;

/// What a client of a responses socket reads when no target has answered its handshake.
const NO_SOCKET: &str =
    "no target answered the WebSocket handshake; the same can be asked over HTTP";

/// A complete answer.
#[derive(Debug)]
pub struct Answer {
    /// Status and headers.
    pub header: ResponseHeader,
    /// The whole body.
    pub body: Bytes,
}

/// An error of the gateway in the client's envelope.
pub fn gateway_error(family: Family, error: &GatewayError, request_id: &str) -> Result<Answer> {
    let body = Bytes::from(envelope::encode(family, error, request_id));
    let mut header = ResponseHeader::build(error.status(), Some(8))?;
    header.insert_header("content-type", envelope::CONTENT_TYPE)?;
    header.insert_header("content-length", body.len())?;
    header.insert_header("x-request-id", request_id)?;
    if error.code() == GatewayCode::UpgradeRequired {
        header.insert_header("upgrade", "websocket")?;
        header.insert_header("sec-websocket-version", handshake::VERSION)?;
    }
    if error.status() == 503 || error.code() == GatewayCode::ClientLimit {
        header.insert_header("retry-after", RETRY_AFTER_SECONDS)?;
    }
    Ok(Answer { header, body })
}

/// The final answer of an operation, dressed.
pub fn final_answer(cell: &OperationCell, answer: &FinalAnswer) -> Result<Answer> {
    let family = cell.facts.api.family();
    let made = |code| gateway_error(family, &GatewayError::plain(code), &cell.facts.id);
    let unanswered = |code| match cell.facts.api {
        // What can be asked over HTTP as well: only a 426 makes clients do so. No frame has left, so nothing can run twice.
        Api::OpenaiResponsesSocket => {
            let error = GatewayError::new(GatewayCode::UpgradeRequired, NO_SOCKET);
            gateway_error(family, &error, &cell.facts.id)
        }
        _ => made(code),
    };
    let mut answer = match answer {
        FinalAnswer::Upstream(reply) => from_reply(reply)?,
        FinalAnswer::Throttled(reply, throttle) => {
            let mut answer = match reply {
                Some(reply) => from_reply(reply)?,
                None => made(GatewayCode::UpstreamThrottled)?,
            };
            throttled(
                &mut answer.header,
                throttle,
                cell.facts.snapshot.server.route_headers,
            )?;
            answer
        }
        FinalAnswer::LocalLimit(headers) => {
            let mut answer = made(GatewayCode::LocalLimit)?;
            let route_headers = cell.facts.snapshot.server.route_headers;
            throttled(&mut answer.header, headers, route_headers)?;
            answer
        }
        FinalAnswer::Failing(headers) => {
            let mut answer = made(GatewayCode::NoCandidate)?;
            let route_headers = cell.facts.snapshot.server.route_headers;
            throttled(&mut answer.header, headers, route_headers)?;
            answer
        }
        FinalAnswer::CredentialsExhausted => made(GatewayCode::UpstreamCredentialsExhausted)?,
        FinalAnswer::Unreachable => unanswered(GatewayCode::UpstreamUnreachable)?,
        FinalAnswer::Ambiguous => unanswered(GatewayCode::UpstreamAmbiguous)?,
        FinalAnswer::TimedOut => unanswered(GatewayCode::UpstreamTimeout)?,
        FinalAnswer::Deadline => made(GatewayCode::DeadlineExceeded)?,
        FinalAnswer::NoCandidate => made(GatewayCode::NoCandidate)?,
        FinalAnswer::ShuttingDown => made(GatewayCode::ShuttingDown)?,
        FinalAnswer::Internal => made(GatewayCode::Internal)?,
    };
    mark(&mut answer.header, cell)?;
    dress(&mut answer.header, cell)?;
    Ok(answer)
}

fn from_reply(reply: &Reply) -> Result<Answer> {
    let body = Bytes::copy_from_slice(&reply.body);
    let mut header = ResponseHeader::build(reply.status, Some(reply.headers.len() + 8))?;
    for (name, value) in &reply.headers {
        header.append_header(name.clone(), value.as_str())?;
    }
    header.insert_header("content-length", body.len())?;
    Ok(Answer { header, body })
}

/// The headers of a final throttle (R-S20).
pub fn throttled(
    header: &mut ResponseHeader,
    throttle: &ThrottleHeaders,
    route_headers: bool,
) -> Result<()> {
    header.insert_header("retry-after", throttle.seconds().to_string())?;
    header.insert_header("retry-after-ms", throttle.milliseconds().to_string())?;
    header.insert_header(
        "x-should-retry",
        if throttle.should_retry {
            "true"
        } else {
            "false"
        },
    )?;
    if route_headers {
        header.insert_header("x-rondo-reason", throttle.reason)?;
    }
    Ok(())
}

/// The header of an upstream's answer as the client gets it: what passes, and nothing else.
pub fn passed_header(upstream: &ResponseHeader, cell: &OperationCell) -> Result<ResponseHeader> {
    // A redirect is an answer that could not be had: where it points to is not the client's to follow.
    let switches = upstream.status == StatusCode::SWITCHING_PROTOCOLS;
    let is_error = !upstream.status.is_success() && !switches;
    let mut header =
        ResponseHeader::build_no_case(upstream.status, Some(upstream.headers.len() + 8))?;
    for (name, value) in &upstream.headers {
        let passes = if is_error {
            headers::passes_with_error(name.as_str())
        } else {
            headers::passes_with_answer(name.as_str())
        };
        // A length is told once, further down.
        let is_hop = name == CONTENT_LENGTH || is_nominated(upstream, name.as_str());
        let is_switch = switches && handshake::passes_with_switch(name);
        if (passes && !is_hop) || is_switch {
            header.append_header(name.clone(), value.clone())?;
        }
    }
    // Who has no body tells of no length (RFC 9110, 8.6).
    if !has_no_body(upstream.status)
        && let Some(length) = length(upstream)
    {
        header.insert_header(CONTENT_LENGTH, length)?;
    }
    mark(&mut header, cell)?;
    dress(&mut header, cell)?;
    Ok(header)
}

/// The length of an answer, once: one that is said several times is accepted if it is the same (RFC 9110, 8.6).
fn length(upstream: &ResponseHeader) -> Option<&[u8]> {
    let length = upstream.headers.get(CONTENT_LENGTH)?;
    let length = length.as_bytes().split(|byte| *byte == b',').next()?;
    Some(length.trim_ascii())
}

/// Tells the caller not to retry what the gateway has retried, or what waiting does not clear (R-P1).
fn mark(header: &mut ResponseHeader, cell: &OperationCell) -> Result<()> {
    if cell.forbids_retry() {
        header.insert_header("x-should-retry", "false")?;
    }
    Ok(())
}

/// Whether `connection` names the header: it was meant for the gateway alone (RFC 9110 section 7.6.1).
fn is_nominated(upstream: &ResponseHeader, name: &str) -> bool {
    let nominated = upstream.headers.get_all(http::header::CONNECTION);
    nominated.iter().any(|value| {
        let mut names = value.as_bytes().split(|byte| *byte == b',');
        names.any(|nominated| nominated.trim_ascii().eq_ignore_ascii_case(name.as_bytes()))
    })
}

/// Puts the gateway's own headers on an answer.
fn dress(header: &mut ResponseHeader, cell: &OperationCell) -> Result<()> {
    header.insert_header("x-request-id", &*cell.facts.id)?;
    if !cell.facts.snapshot.server.route_headers {
        return Ok(());
    }
    let (sends, round) = cell.progress();
    header.insert_header("x-rondo-route", &*cell.facts.route.name)?;
    if let Some(target) = cell.delivered_target() {
        header.insert_header("x-rondo-target", &*target)?;
    }
    header.insert_header("x-rondo-attempts", sends)?;
    header.insert_header("x-rondo-round", u32::from(round))?;
    Ok(())
}

/// A bounded copy of an error answer, for the case that it becomes the final one.
pub fn reply(status: StatusCode, upstream: &ResponseHeader, body: &[u8]) -> Reply {
    let headers = upstream
        .headers
        .iter()
        .filter(|(name, _)| headers::passes_with_error(name.as_str()))
        .filter_map(|(name, value)| {
            let value = value.to_str().ok()?;
            Some((name.as_str().to_owned(), value.to_owned()))
        })
        .collect();
    Reply {
        status: status.as_u16(),
        headers,
        body: body.to_vec(),
    }
}

//! From a scripted reply to an HTTP response: composed body, length, request id.

use std::sync::atomic::Ordering;

use hyper::header::{CONTENT_LENGTH, CONTENT_TYPE, HeaderName, HeaderValue};
use hyper::http::request::Parts;
use hyper::{Method, Response, StatusCode};

use super::answer::{Content, Ending, Length, Reply, Trickle};
use super::ask::Ask;
use super::body::{Pace, ReplyBody, Source, Watch};

use super::server::Shared;
use super::voice::Speaker;
use crate::core::api::Family;

/// The request that is answered.
pub(super) struct Exchange<'a> {
    /// What it asks for.
    pub ask: &'a Ask<'a>,
    /// Its header.
    pub head: &'a Parts,
    /// Its record.
    pub watch: Watch,
}

/// The response of a reply to one request; `trickle` is the pace of bodies without their own.
pub(super) fn respond(
    shared: &Shared,
    reply: &Reply,
    trickle: Option<Trickle>,
    exchange: Exchange<'_>,
) -> Response<ReplyBody> {
    let Exchange { ask, head, watch } = exchange;
    let sequence = shared.sequence.fetch_add(1, Ordering::Relaxed) + 1;
    let mut headers = reply.headers.clone();
    let (source, natural) = match &reply.content {
        Content::Bytes(bytes) => (Source::One(bytes.clone()), Length::Exact),
        Content::Pieces(pieces) => (Source::Shared(pieces.clone()), Length::Chunked),
        Content::Good(voice) => {
            let speaker = Speaker {
                server: &shared.id_name,
                sequence,
            };
            let composed = voice.compose(speaker, ask);
            let natural = match composed.content_type {
                "application/json" if composed.pieces.len() <= 1 => Length::Exact,
                _ => Length::Chunked,
            };
            if !headers.contains_key(CONTENT_TYPE) {
                headers.insert(
                    CONTENT_TYPE,
                    HeaderValue::from_static(composed.content_type),
                );
            }
            (Source::Own(composed.pieces), natural)
        }
    };
    if reply.has_request_id {
        add_request_id(
            &mut headers,
            ask.surface.family(),
            &shared.id_name,
            sequence,
        );
    }
    for name in &reply.removed {
        headers.remove(name);
    }
    let status = StatusCode::from_u16(reply.status).unwrap_or(StatusCode::OK);
    let is_bodiless = head.method == Method::HEAD
        || status == StatusCode::NO_CONTENT
        || status == StatusCode::NOT_MODIFIED;
    let length = match reply.length {
        Length::Natural if source.len() == 0 && reply.ending != Ending::Whole => Length::Chunked,
        Length::Natural => natural,
        told => told,
    };
    let told = match length {
        Length::Exact => Some(source.len()),
        Length::Declared(bytes) => Some(bytes),
        Length::Natural | Length::Chunked => None,
    };
    if let Some(bytes) = told.filter(|_| !is_bodiless) {
        headers.insert(CONTENT_LENGTH, HeaderValue::from(bytes));
    }
    let pace = Pace {
        ending: reply.ending,
        trickle: reply.trickle.or(trickle),
        enough: if is_bodiless { Some(0) } else { told },
    };
    let mut response = Response::new(ReplyBody::new(source, pace, watch));
    *response.status_mut() = status;
    *response.headers_mut() = headers;
    response
}

fn add_request_id(headers: &mut hyper::HeaderMap, family: Family, server: &str, sequence: u64) {
    let name = match family {
        Family::Openai => "x-request-id",
        Family::Anthropic => "request-id",
        Family::Gemini => return,
        Family::Bedrock => "x-amzn-requestid",
    };
    if headers.contains_key(name) {
        return;
    }
    if let Ok(value) = HeaderValue::try_from(format!("req_{server}-{sequence:08}")) {
        headers.insert(HeaderName::from_static(name), value);
    }
}

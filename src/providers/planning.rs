//! What is decided about an operation before it begins: who can serve it, and whether it may move.
//!
//! Not here: the order of tries and everything that depends on answers. The data plane and `rondo explain` both ask here.

use super::binding::{self, Binding};
use super::inbound::GeminiVerb;
use super::outbound_headers::GUARDRAIL_HEADER;
use super::registry;
use super::request_style::can_stream;
use super::scan::Scan;
use crate::core::api::{Api, Family};
use crate::policy::provider::{Ownership, Provider};
use crate::policy::route::{Route, Target};
use crate::policy::routing::Mode;
use crate::policy::snapshot::Snapshot;

/// Why a target of the route is no candidate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exclusion {
    /// Its provider does not speak the client's API format.
    ApiFormat,
    /// The route's mode is `primary_only`.
    PrimaryOnly,
    /// Another provider would count tokens differently.
    OtherTokenizer,
    /// Its provider's streams come in another format than the client's.
    StreamFormat,
}

/// What of a request decides who can serve it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wish {
    /// The API format.
    pub api: Api,
    /// What a Gemini path asks for.
    pub verb: Option<GeminiVerb>,
    /// Whether the answer is to be a stream.
    pub stream: bool,
}

impl Exclusion {
    /// A sentence for `rondo explain`.
    pub const fn sentence(self) -> &'static str {
        match self {
            Exclusion::ApiFormat => "its provider does not speak the client's API format",
            Exclusion::PrimaryOnly => "mode primary_only uses the first target alone",
            Exclusion::OtherTokenizer => "token counts never go to another provider",
            Exclusion::StreamFormat => {
                "its provider streams in frames that the client's format has not"
            }
        }
    }
}

/// Whether each target of the route can serve such a request, in the route's order.
pub fn judge(snapshot: &Snapshot, route: &Route, wish: Wish) -> Vec<Result<(), Exclusion>> {
    let Wish { api, verb, stream } = wish;
    let counts = matches!(api, Api::AnthropicCountTokens | Api::BedrockCountTokens)
        || verb == Some(GeminiVerb::CountTokens);
    let mut first_provider = None;
    let judged = route.targets.iter().enumerate().map(|(position, target)| {
        if position > 0 && route.routing.mode == Mode::PrimaryOnly {
            return Err(Exclusion::PrimaryOnly);
        }
        let provider = provider(snapshot, target).filter(|p| p.speaks.contains(api));
        let Some(provider) = provider else {
            return Err(Exclusion::ApiFormat);
        };
        if stream && !streams(provider, api) {
            return Err(Exclusion::StreamFormat);
        }
        let first = *first_provider.get_or_insert(target.provider);
        if counts && target.provider != first {
            return Err(Exclusion::OtherTokenizer);
        }
        Ok(())
    });
    judged.collect()
}

/// Positions of the targets that can serve such a request, in order.
pub fn candidates(snapshot: &Snapshot, route: &Route, wish: Wish) -> Vec<usize> {
    let judged = judge(snapshot, route, wish).into_iter().enumerate();
    judged
        .filter(|(_, verdict)| verdict.is_ok())
        .map(|(position, _)| position)
        .collect()
}

/// The route as a handshake goes over it: a complete 5xx moves on although the route may not opt in. A refused handshake has opened no
/// session and no frame has left, so nothing ran. Cooldowns, keys and waiting slots stay the route's own.
pub fn for_handshake(route: &Route) -> Route {
    let mut route = route.clone();
    route.routing.fallback.http_5xx = true;
    route
}

/// What binds the operation to its first candidate, if anything (R-S7). `has` tells whether the client sent a header.
pub fn binding(scan: &Scan, model: &str, has: impl Fn(&str) -> bool) -> Option<&'static str> {
    let guarded = || {
        let guarded = scan.api.family() == Family::Bedrock && has(GUARDRAIL_HEADER);
        guarded.then_some(Binding::Id)
    };
    scan.binding
        .or_else(|| binding::of_model(model))
        .or_else(guarded)
        .map(|binding| binding.label())
}

/// The tokens of a request of so many bytes, for the limits of its target. English text has some four bytes a token; the answer is not
/// counted before it is there, since few requests say how long it may be.
pub fn estimated_tokens(bytes: usize) -> u64 {
    u64::try_from(bytes.div_ceil(4)).unwrap_or(u64::MAX)
}

/// Whether the caller owns the retries of every target (R-P1).
pub fn caller_owns_retries(snapshot: &Snapshot, route: &Route) -> bool {
    route.targets.iter().all(|target| {
        provider(snapshot, target).is_some_and(|p| p.ownership == Ownership::External)
    })
}

fn streams(provider: &Provider, api: Api) -> bool {
    registry::find(provider.adapter).is_none_or(|adapter| can_stream(adapter.style, api))
}

fn provider<'s>(snapshot: &'s Snapshot, target: &Target) -> Option<&'s Provider> {
    snapshot
        .provider(target.provider)
        .map(|provider| &**provider)
}

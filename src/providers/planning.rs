//! What is read off a request before it is an operation: whether it may move, who owns its retries.
//!
//! Not here: who is tried in which order (`policy::ordering`), and what depends on answers. The data plane and `rondo explain` both ask.

use super::binding::{self, Binding};
use super::inbound::GeminiVerb;
use super::outbound_headers::GUARDRAIL_HEADER;
use super::registry;
use super::request_style::can_stream;
use super::scan::Scan;
use crate::core::api::{Api, ApiSet, Family};
use crate::core::limits::ANSWER_TOKENS_MAX;
use crate::policy::provider::{Ownership, Provider};
use crate::policy::route::{Route, Target};
use crate::policy::snapshot::Snapshot;

/// Whether the request counts tokens, which another provider would do differently.
pub fn counts_tokens(api: Api, verb: Option<GeminiVerb>) -> bool {
    matches!(api, Api::AnthropicCountTokens | Api::BedrockCountTokens)
        || verb == Some(GeminiVerb::CountTokens)
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

/// The tokens of a request of so many bytes, for the limits of its target, until its answer tells them. English text has some four bytes a
/// token; the answer is as long as the client lets it be, and is not counted where the client does not say.
pub fn estimated_tokens(bytes: usize, length_max: u64) -> u64 {
    let prompt = u64::try_from(bytes.div_ceil(4)).unwrap_or(u64::MAX);
    prompt.saturating_add(length_max.min(ANSWER_TOKENS_MAX))
}

/// Whether the caller owns the retries of every target (R-P1).
pub fn caller_owns_retries(snapshot: &Snapshot, route: &Route) -> bool {
    route.targets.iter().all(|target| {
        provider(snapshot, target).is_some_and(|p| p.ownership == Ownership::External)
    })
}

/// The formats of these in which the adapter's streams come as the client's format has them.
pub fn streamed(adapter: &str, speaks: ApiSet) -> ApiSet {
    let streams =
        |api: &Api| registry::find(adapter).is_none_or(|adapter| can_stream(adapter.style, *api));
    let formats: Vec<Api> = speaks.iter().filter(streams).collect();
    ApiSet::of(&formats)
}

fn provider<'s>(snapshot: &'s Snapshot, target: &Target) -> Option<&'s Provider> {
    snapshot
        .provider(target.provider)
        .map(|provider| &**provider)
}

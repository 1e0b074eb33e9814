//! Where in an answer its token counts stand: one table of objects and one of counts, for all API formats.
//!
//! Not here: reading JSON ([`super::usage_walk`]). A key that is not in the tables leads nowhere, so model output that looks like
//! usage, in a tool's arguments for example, is never taken for it.

use super::usage_counts::Slot;
use crate::core::api::{Api, Family};

/// Longest key in the tables.
pub(super) const KEY_MAX: usize = 32;
/// Objects inside each other on the longest path: `response.usage.output_tokens_details`.
pub(super) const PATH_MAX: usize = 4;

/// An object on the way to a count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// The answer, or one event of it.
    Root,
    /// An object that holds the answer so far, or a vendor's extras; `usage` is in it.
    Holder,
    /// Cohere's `meta`.
    Meta,
    /// The counts.
    Usage,
    /// Counts of parts of a count.
    Details,
    /// Cohere's counts as charged.
    Billed,
    /// Gemini's counts.
    Metadata,
}

/// The object under a key; `None` if nothing in it matters.
pub(super) fn object(api: Api, place: Place, key: &[u8]) -> Option<Place> {
    match (api.family(), place, key) {
        (Family::Gemini, Place::Root, b"usageMetadata") => Some(Place::Metadata),
        (Family::Gemini, ..) => None,
        (_, Place::Root | Place::Holder, b"usage") => Some(Place::Usage),
        (Family::Openai, Place::Root, b"response" | b"x_groq") => Some(Place::Holder),
        (Family::Openai, Place::Root, b"meta") => Some(Place::Meta),
        (Family::Anthropic | Family::Bedrock, Place::Root, b"message") => Some(Place::Holder),
        (Family::Bedrock, Place::Root, b"amazon-bedrock-invocationMetrics") => Some(Place::Usage),
        (_, Place::Meta | Place::Usage, b"tokens") => Some(Place::Usage),
        (_, Place::Meta | Place::Usage, b"billed_units") => Some(Place::Billed),
        (
            _,
            Place::Usage,
            b"prompt_tokens_details"
            | b"completion_tokens_details"
            | b"input_tokens_details"
            | b"output_tokens_details",
        ) => Some(Place::Details),
        _ => None,
    }
}

/// What a number under a key counts.
pub(super) fn count(api: Api, place: Place, key: &[u8]) -> Option<Slot> {
    match place {
        Place::Root | Place::Holder | Place::Meta => None,
        Place::Usage => of_usage(api, key),
        Place::Details => match key {
            b"cached_tokens" => Some(Slot::CacheRead),
            b"reasoning_tokens" | b"thinking_tokens" => Some(Slot::Reasoning),
            _ => None,
        },
        Place::Billed => match key {
            b"input_tokens" => Some(Slot::BilledInput),
            b"output_tokens" => Some(Slot::BilledOutput),
            _ => None,
        },
        Place::Metadata => match key {
            b"promptTokenCount" => Some(Slot::Prompt),
            b"toolUsePromptTokenCount" => Some(Slot::ToolPrompt),
            b"cachedContentTokenCount" => Some(Slot::CacheRead),
            b"candidatesTokenCount" => Some(Slot::Candidates),
            b"thoughtsTokenCount" => Some(Slot::Reasoning),
            _ => None,
        },
    }
}

fn of_usage(api: Api, key: &[u8]) -> Option<Slot> {
    match key {
        b"prompt_tokens" => Some(Slot::Prompt),
        b"input_tokens" => match api.family() {
            Family::Openai | Family::Gemini => Some(Slot::Prompt),
            Family::Anthropic | Family::Bedrock => Some(Slot::Uncached),
        },
        b"inputTokens" | b"inputTokenCount" => Some(Slot::Uncached),
        b"completion_tokens" | b"output_tokens" | b"outputTokens" | b"outputTokenCount" => {
            Some(Slot::Completion)
        }
        b"cache_read_input_tokens"
        | b"cacheReadInputTokens"
        | b"cacheReadInputTokenCount"
        | b"prompt_cache_hit_tokens"
        | b"cached_tokens" => Some(Slot::CacheRead),
        b"cache_creation_input_tokens"
        | b"cacheWriteInputTokens"
        | b"cacheWriteInputTokenCount" => Some(Slot::CacheWrite),
        b"reasoning_tokens" => Some(Slot::Reasoning),
        b"total_tokens" | b"totalTokens" => Some(Slot::Total),
        _ => None,
    }
}

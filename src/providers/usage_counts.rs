//! The counts that an answer gave, as it gave them, and their reduction to one meaning.
//!
//! Not here: where in an answer they stand ([`super::usage_paths`]). Counts are cumulative in every format, so a later one replaces
//! an earlier one and nothing is ever added over time.

use crate::core::api::Api;
use crate::core::usage::Usage;

/// A count by what the provider means with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Slot {
    /// The prompt with what was read from the cache.
    Prompt,
    /// The prompt without what was read from or written to the cache.
    Uncached,
    /// Read from the cache.
    CacheRead,
    /// Written to the cache.
    CacheWrite,
    /// What the results of tools added to the prompt.
    ToolPrompt,
    /// The output, with reasoning.
    Completion,
    /// The output without reasoning.
    Candidates,
    /// Reasoning.
    Reasoning,
    /// Everything.
    Total,
    /// The prompt as it is charged for.
    BilledInput,
    /// The output as it is charged for.
    BilledOutput,
}

const SLOTS: usize = Slot::BilledOutput as usize + 1;

/// The last count of each meaning.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Counts([Option<u64>; SLOTS]);

impl Counts {
    pub fn set(&mut self, slot: Slot, tokens: u64) {
        if let Some(place) = self.0.get_mut(slot as usize) {
            *place = Some(tokens);
        }
    }

    fn get(&self, slot: Slot) -> Option<u64> {
        self.0.get(slot as usize).copied().flatten()
    }

    /// What the later ones do not tell stays.
    pub fn replace_by(&mut self, later: &Counts) {
        for (place, later) in self.0.iter_mut().zip(later.0) {
            *place = later.or(*place);
        }
    }

    /// In one meaning for all formats.
    pub fn usage(&self, api: Api, partial: bool) -> Option<Usage> {
        let usage = Usage {
            prompt_tokens: self.prompt(api),
            completion_tokens: self.completion(),
            cached_tokens: self.get(Slot::CacheRead),
            reasoning_tokens: self.get(Slot::Reasoning),
            partial,
        };
        (!usage.is_empty()).then_some(usage)
    }

    fn or_none(&self, slot: Slot) -> u64 {
        self.get(slot).unwrap_or(0)
    }

    fn prompt(&self, api: Api) -> Option<u64> {
        if let Some(prompt) = self.get(Slot::Prompt) {
            return Some(prompt + self.or_none(Slot::ToolPrompt));
        }
        if let Some(uncached) = self.get(Slot::Uncached) {
            return Some(uncached + self.or_none(Slot::CacheRead) + self.or_none(Slot::CacheWrite));
        }
        self.get(Slot::BilledInput)
            .or_else(|| self.get(Slot::Total).filter(|_| has_no_output(api)))
    }

    fn completion(&self) -> Option<u64> {
        let reasoning = self.or_none(Slot::Reasoning);
        if let Some(completion) = self.get(Slot::Completion) {
            // Some servers leave reasoning out of the output; their total tells.
            let apart = self.or_none(Slot::Prompt) + completion + reasoning;
            let is_apart = reasoning > 0 && self.get(Slot::Total) == Some(apart);
            return Some(completion + if is_apart { reasoning } else { 0 });
        }
        match (self.get(Slot::Candidates), self.get(Slot::Reasoning)) {
            (None, None) => self.get(Slot::BilledOutput),
            (candidates, _) => Some(candidates.unwrap_or(0) + reasoning),
        }
    }
}

/// Whether answers of this format consist of no tokens, so that the total is the prompt.
const fn has_no_output(api: Api) -> bool {
    matches!(
        api,
        Api::OpenaiEmbeddings | Api::OpenaiModerations | Api::Rerank
    )
}

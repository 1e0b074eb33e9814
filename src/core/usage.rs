//! What an answer says that it cost, in tokens. Not here: how it is read ([`crate::providers::usage`]), and what a token costs.

/// Largest number of tokens that is believed: a trillion, far beyond any operation; what is larger is no count.
pub const TOKENS_MAX: u64 = 1_000_000_000_000;

/// Token counts in one meaning for all API formats, each as far as the answer told it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Usage {
    /// The whole prompt, cached reads and cache writes included. Anthropic and Bedrock count these apart; they are added.
    pub prompt_tokens: Option<u64>,
    /// The whole output, reasoning included. Gemini and some others count reasoning apart; it is added.
    pub completion_tokens: Option<u64>,
    /// The part of the prompt that was read from the provider's cache.
    pub cached_tokens: Option<u64>,
    /// The part of the output that was reasoning.
    pub reasoning_tokens: Option<u64>,
    /// Whether the answer was not read to its end, so that the counts may be those of a moment.
    pub partial: bool,
}

impl Usage {
    /// Whether it tells nothing at all.
    pub fn is_empty(&self) -> bool {
        let counts = [
            self.prompt_tokens,
            self.completion_tokens,
            self.cached_tokens,
            self.reasoning_tokens,
        ];
        counts.iter().all(Option::is_none)
    }
}

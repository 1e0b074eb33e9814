//! The adapters by name.

use super::adapter::Adapter;
use super::{
    anthropic, azure, bedrock, cohere, compatible, copilot, deepseek, fireworks, gemini, groq,
    mistral, nvidia, openai, openrouter, self_hosted, together, vertex, xai,
};

static ADAPTERS: [&Adapter; 23] = [
    &openai::ADAPTER,
    &azure::ADAPTER,
    &anthropic::ADAPTER,
    &gemini::ADAPTER,
    &vertex::ADAPTER,
    &bedrock::ADAPTER,
    &mistral::ADAPTER,
    &groq::ADAPTER,
    &deepseek::ADAPTER,
    &openrouter::ADAPTER,
    &cohere::ADAPTER,
    &xai::ADAPTER,
    &together::ADAPTER,
    &fireworks::ADAPTER,
    &nvidia::ADAPTER,
    &copilot::ADAPTER,
    &self_hosted::VLLM,
    &self_hosted::SGLANG,
    &self_hosted::TGI,
    &self_hosted::OLLAMA,
    &self_hosted::LLAMA_CPP,
    &compatible::OPENAI,
    &compatible::ANTHROPIC,
];

/// Every adapter, in the order of the documentation.
pub fn all() -> &'static [&'static Adapter] {
    &ADAPTERS
}

/// The adapter with this name.
pub fn find(name: &str) -> Option<&'static Adapter> {
    all().iter().copied().find(|adapter| adapter.name == name)
}

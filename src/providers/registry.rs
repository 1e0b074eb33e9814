//! The adapters by name.

use super::adapter::Adapter;
use super::{anthropic, compatible, gemini, openai};

static ADAPTERS: [&Adapter; 5] = [
    &openai::ADAPTER,
    &anthropic::ADAPTER,
    &gemini::ADAPTER,
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

//! NVIDIA NIM, hosted or on premises: OpenAI's formats, with problem documents of the hosting layer for errors.
//!
//! A problem document has no code, so nothing certifies.

use super::adapter::{Adapter, Envelope, Framing};
use super::openai::CLASSES;
use super::outbound_headers::AuthScheme;
use super::request_style::RequestStyle;
use super::rules::{Rule, Test};
use crate::core::api::{Api, ApiSet};
use crate::core::class::Class;

/// The adapter.
pub static ADAPTER: Adapter = Adapter {
    name: "nvidia_nim",
    speaks: ApiSet::of(&[
        Api::OpenaiChat,
        Api::OpenaiCompletions,
        Api::OpenaiEmbeddings,
    ]),
    default_base_url: Some("https://integrate.api.nvidia.com"),
    auth: AuthScheme::Bearer,
    style: RequestStyle::Native,
    framing: Framing::EventStream,
    envelope: Envelope {
        problem_json: true,
        ..Envelope::of(&[])
    },
    deny: &[],
    rules: &[RULES, CLASSES],
    delays: &[],
};

const RULES: &[Rule] = &[Rule::names(
    "nvidia.429.problem",
    &[429],
    &[Test::Number(&["status"], &[429])],
    Class::Throttle,
)
.on_status()];

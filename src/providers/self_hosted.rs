//! Open-source inference servers: vLLM, SGLang, TGI, Ollama and llama.cpp.
//!
//! Their code is open, so it is known that these answers are given before a request reaches the engine. That is also why two of them
//! certify inside a good stream: the server sends its status before it tries for a place in the queue, and says so in the first event.

use serde_json::Value;

use super::adapter::{Adapter, Envelope, Flat, Framing};
use super::json_envelope::text_at;
use super::openai::{CLASSES, CODE, MESSAGE, TYPE};
use super::outbound_headers::AuthScheme;
use super::request_style::RequestStyle;
use super::rules::{Kind, Path, Rule, Test};
use crate::core::api::{Api, ApiSet};
use crate::core::class::Class;

const OPENAI_AND_MESSAGES: ApiSet = ApiSet::of(&[
    Api::OpenaiChat,
    Api::OpenaiCompletions,
    Api::OpenaiResponses,
    Api::OpenaiEmbeddings,
    Api::AnthropicMessages,
]);

/// `{"error": {"message", "type", "code": number}}`, or the same members at the root.
const NUMBERED: Envelope = Envelope {
    flat: Flat::Marked,
    ..Envelope::of(&[
        (&["error"], Kind::Object),
        (MESSAGE, Kind::Text),
        (TYPE, Kind::Text),
        (CODE, Kind::OptionalCode),
    ])
};

/// vLLM.
pub static VLLM: Adapter = Adapter {
    name: "vllm",
    speaks: OPENAI_AND_MESSAGES.and(ApiSet::of(&[
        Api::OpenaiTranscriptions,
        Api::OpenaiTranslations,
        Api::Rerank,
    ])),
    default_base_url: None,
    auth: AuthScheme::Bearer,
    style: RequestStyle::Native,
    framing: Framing::EventStream,
    envelope: NUMBERED,
    deny: &[],
    rules: &[VLLM_RULES, CLASSES],
    delays: &[],
};

/// The admission check answers 503 before the engine sees the request; failures of the engine have the type `InternalServerError`.
const VLLM_RULES: &[Rule] = &[
    Rule::certifies(
        "vllm.503.queue_full",
        &[503],
        &[Test::Number(CODE, &[503]), Test::Holds(is_no_engine_error)],
        Class::Overload,
    ),
    Rule::names(
        "vllm.context",
        &[400],
        &[Test::Contains(MESSAGE, &["maximum context length"])],
        Class::ContextOverflow,
    ),
];

fn is_no_engine_error(body: &Value) -> bool {
    text_at(body, TYPE).is_some_and(|name| !name.contains("InternalServerError"))
}

/// SGLang.
pub static SGLANG: Adapter = Adapter {
    name: "sglang",
    speaks: OPENAI_AND_MESSAGES.and(ApiSet::of(&[Api::OpenaiTranscriptions, Api::Rerank])),
    default_base_url: None,
    auth: AuthScheme::Bearer,
    style: RequestStyle::Native,
    framing: Framing::EventStream,
    envelope: NUMBERED,
    deny: &[],
    rules: &[SGLANG_RULES, CLASSES],
    delays: &[],
};

const SGLANG_RULES: &[Rule] = &[
    Rule::certifies(
        "sglang.503.queue_full",
        &[503],
        &[
            Test::Is(MESSAGE, &["The request queue is full."]),
            Test::Number(CODE, &[503]),
        ],
        Class::Overload,
    )
    .or_first_event(),
    Rule::names(
        "sglang.unavailable",
        &[503],
        &[Test::Is(TYPE, &["SERVICE_UNAVAILABLE"])],
        Class::Overload,
    ),
];

/// Text Generation Inference.
pub static TGI: Adapter = Adapter {
    name: "tgi",
    speaks: ApiSet::of(&[Api::OpenaiChat, Api::OpenaiCompletions]),
    default_base_url: None,
    auth: AuthScheme::Bearer,
    style: RequestStyle::Native,
    framing: Framing::EventStream,
    envelope: Envelope::of(&[(&["error"], Kind::Text), (TGI_TYPE, Kind::Text)]),
    deny: &[],
    rules: &[TGI_RULES],
    delays: &[],
};

const TGI_TYPE: Path = &["error_type"];

const TGI_RULES: &[Rule] = &[
    Rule::certifies(
        "tgi.429.overloaded",
        &[429],
        &[Test::Is(TGI_TYPE, &["overloaded"])],
        Class::Overload,
    )
    .or_first_event(),
    Rule::names(
        "tgi.chat_stream.overloaded",
        &[429],
        &[Test::Is(MESSAGE, &["Model is overloaded"])],
        Class::Overload,
    )
    .on_stream(),
    Rule::names(
        "tgi.tokens",
        &[422],
        &[
            Test::Is(TGI_TYPE, &["validation"]),
            Test::Contains(
                &["error"],
                &["`inputs` tokens", "`inputs` must have less than"],
            ),
        ],
        Class::ContextOverflow,
    ),
    Rule::names(
        "tgi.generation",
        &[424, 500],
        &[Test::Is(
            TGI_TYPE,
            &[
                "generation",
                "incomplete_generation",
                "incomplete_generation_stream",
            ],
        )],
        Class::ServerError,
    ),
];

/// Ollama. Its three surfaces have three envelopes; a full queue has one sentence in all of them.
pub static OLLAMA: Adapter = Adapter {
    name: "ollama",
    speaks: OPENAI_AND_MESSAGES,
    default_base_url: Some("http://127.0.0.1:11434"),
    auth: AuthScheme::Bearer,
    style: RequestStyle::Native,
    framing: Framing::EventStream,
    envelope: Envelope::of(&[]),
    deny: &[],
    rules: &[OLLAMA_RULES, CLASSES],
    delays: &[],
};

const OLLAMA_BUSY: &[&str] = &["server busy, please try again.  maximum pending requests exceeded"];

const OLLAMA_RULES: &[Rule] = &[
    Rule::certifies(
        "ollama.503.busy",
        &[503],
        &[Test::Is(MESSAGE, OLLAMA_BUSY)],
        Class::Overload,
    ),
    Rule::certifies(
        "ollama.503.busy_native",
        &[503],
        &[Test::Is(&["error"], OLLAMA_BUSY)],
        Class::Overload,
    ),
];

/// llama.cpp's server.
pub static LLAMA_CPP: Adapter = Adapter {
    name: "llama_cpp",
    speaks: OPENAI_AND_MESSAGES.and(ApiSet::of(&[Api::Rerank])),
    default_base_url: Some("http://127.0.0.1:8080"),
    auth: AuthScheme::Bearer,
    style: RequestStyle::Native,
    framing: Framing::EventStream,
    envelope: Envelope {
        flat: Flat::No,
        ..NUMBERED
    },
    deny: &[],
    rules: &[LLAMA_CPP_RULES, CLASSES],
    delays: &[],
};

const LLAMA_CPP_RULES: &[Rule] = &[
    Rule::certifies(
        "llama_cpp.503.loading",
        &[503],
        &[
            Test::Is(TYPE, &["unavailable_error"]),
            Test::Is(MESSAGE, &["Loading model"]),
        ],
        Class::Overload,
    ),
    Rule::names(
        "llama_cpp.not_supported",
        &[501],
        &[Test::Is(TYPE, &["not_supported_error"])],
        Class::Config,
    ),
    Rule::names(
        "llama_cpp.context",
        &[400],
        &[Test::Is(TYPE, &["exceed_context_size_error"])],
        Class::ContextOverflow,
    ),
];

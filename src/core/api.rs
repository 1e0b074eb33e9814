//! The API formats that clients speak. A format names the path, the form of the body, the envelope of errors and how a stream begins.
//!
//! Models of chat serve several formats; those of moderation, images, audio and ranking serve theirs alone. `rerank` has no vendor's
//! prefix: its shape is common to several providers, and OpenAI is none of them.

use std::fmt;

/// One API format of the data plane; the label is the `api` value of metrics, records and `rondo explain`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Api {
    /// `POST /v1/chat/completions`
    OpenaiChat,
    /// `POST /v1/completions`
    OpenaiCompletions,
    /// `POST /v1/responses`
    OpenaiResponses,
    /// `POST /v1/embeddings`
    OpenaiEmbeddings,
    /// `POST /v1/moderations`
    OpenaiModerations,
    /// `POST /v1/images/generations`
    OpenaiImages,
    /// `POST /v1/images/edits`, a form
    OpenaiImageEdits,
    /// `POST /v1/images/variations`, a form
    OpenaiImageVariations,
    /// `POST /v1/audio/speech`
    OpenaiSpeech,
    /// `POST /v1/audio/transcriptions`, a form
    OpenaiTranscriptions,
    /// `POST /v1/audio/translations`, a form
    OpenaiTranslations,
    /// `POST /v1/rerank`
    Rerank,
    /// `GET /v1/realtime`, upgraded to a WebSocket
    OpenaiRealtime,
    /// `GET /v1/responses`, upgraded to a WebSocket
    OpenaiResponsesSocket,
    /// `POST /v1/messages`
    AnthropicMessages,
    /// `POST /v1/messages/count_tokens`
    AnthropicCountTokens,
    /// `POST /v1beta/models/{model}:{verb}`, and the same under `/v1`
    Gemini,
    /// `POST /model/{model}/converse` and `/converse-stream`
    BedrockConverse,
    /// `POST /model/{model}/invoke` and `/invoke-with-response-stream`
    BedrockInvoke,
    /// `POST /model/{model}/count-tokens`
    BedrockCountTokens,
}

/// The family decides the envelope of errors that the gateway makes and the credentials header clients use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Family {
    /// `{"error":{"message","type","param","code"}}`
    Openai,
    /// `{"type":"error","error":{"type","message"}}`
    Anthropic,
    /// `{"error":{"code","message","status","details"}}`
    Gemini,
    /// `{"message","__type"}`
    Bedrock,
}

impl Api {
    /// Every format, in the order of the documentation.
    pub const ALL: [Api; 20] = [
        Api::OpenaiChat,
        Api::OpenaiCompletions,
        Api::OpenaiResponses,
        Api::OpenaiEmbeddings,
        Api::OpenaiModerations,
        Api::OpenaiImages,
        Api::OpenaiImageEdits,
        Api::OpenaiImageVariations,
        Api::OpenaiSpeech,
        Api::OpenaiTranscriptions,
        Api::OpenaiTranslations,
        Api::Rerank,
        Api::OpenaiRealtime,
        Api::OpenaiResponsesSocket,
        Api::AnthropicMessages,
        Api::AnthropicCountTokens,
        Api::Gemini,
        Api::BedrockConverse,
        Api::BedrockInvoke,
        Api::BedrockCountTokens,
    ];

    /// The label used in metrics, records, logs and on the command line.
    pub const fn label(self) -> &'static str {
        match self {
            Api::OpenaiChat => "openai_chat",
            Api::OpenaiCompletions => "openai_completions",
            Api::OpenaiResponses => "openai_responses",
            Api::OpenaiEmbeddings => "openai_embeddings",
            Api::OpenaiModerations => "openai_moderations",
            Api::OpenaiImages => "openai_images",
            Api::OpenaiImageEdits => "openai_image_edits",
            Api::OpenaiImageVariations => "openai_image_variations",
            Api::OpenaiSpeech => "openai_speech",
            Api::OpenaiTranscriptions => "openai_transcriptions",
            Api::OpenaiTranslations => "openai_translations",
            Api::Rerank => "rerank",
            Api::OpenaiRealtime => "openai_realtime",
            Api::OpenaiResponsesSocket => "openai_responses_ws",
            Api::AnthropicMessages => "anthropic_messages",
            Api::AnthropicCountTokens => "anthropic_count_tokens",
            Api::Gemini => "gemini",
            Api::BedrockConverse => "bedrock_converse",
            Api::BedrockInvoke => "bedrock_invoke",
            Api::BedrockCountTokens => "bedrock_count_tokens",
        }
    }

    /// The format with this label.
    pub fn from_label(label: &str) -> Option<Api> {
        Api::ALL.into_iter().find(|api| api.label() == label)
    }

    /// Whose envelope the client expects.
    pub const fn family(self) -> Family {
        match self {
            Api::OpenaiChat
            | Api::OpenaiCompletions
            | Api::OpenaiResponses
            | Api::OpenaiEmbeddings
            | Api::OpenaiModerations
            | Api::OpenaiImages
            | Api::OpenaiImageEdits
            | Api::OpenaiImageVariations
            | Api::OpenaiSpeech
            | Api::OpenaiTranscriptions
            | Api::OpenaiTranslations
            | Api::Rerank
            | Api::OpenaiRealtime
            | Api::OpenaiResponsesSocket => Family::Openai,
            Api::AnthropicMessages | Api::AnthropicCountTokens => Family::Anthropic,
            Api::Gemini => Family::Gemini,
            Api::BedrockConverse | Api::BedrockInvoke | Api::BedrockCountTokens => Family::Bedrock,
        }
    }

    /// Whether the path names the model; a body then need not.
    pub const fn has_path_model(self) -> bool {
        matches!(self.family(), Family::Gemini | Family::Bedrock)
    }

    /// Whether the body is `multipart/form-data`, with the model in a field of the form.
    pub const fn is_form(self) -> bool {
        matches!(
            self,
            Api::OpenaiImageEdits
                | Api::OpenaiImageVariations
                | Api::OpenaiTranscriptions
                | Api::OpenaiTranslations
        )
    }

    /// Whether models of this format serve no other task: a route of chat models never sees such a request.
    pub const fn is_specialised(self) -> bool {
        matches!(
            self,
            Api::OpenaiModerations
                | Api::OpenaiImages
                | Api::OpenaiSpeech
                | Api::Rerank
                | Api::OpenaiRealtime
        ) || self.is_form()
    }

    /// Whether the request is a handshake without a body, after which frames pass both ways.
    pub const fn is_socket(self) -> bool {
        matches!(self, Api::OpenaiRealtime | Api::OpenaiResponsesSocket)
    }

    const fn bit(self) -> u32 {
        1 << (self as u32)
    }
}

impl fmt::Display for Api {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.label())
    }
}

/// The API formats that one provider speaks natively.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ApiSet(u32);

impl ApiSet {
    /// No format.
    pub const EMPTY: ApiSet = ApiSet(0);

    /// A set of the given formats.
    pub const fn of(apis: &[Api]) -> ApiSet {
        let (mut bits, mut rest) = (0, apis);
        while let [first, tail @ ..] = rest {
            bits |= first.bit();
            rest = tail;
        }
        ApiSet(bits)
    }

    /// The formats of both sets.
    pub const fn and(self, other: ApiSet) -> ApiSet {
        ApiSet(self.0 | other.0)
    }

    /// Whether no format is in the set.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether the format is in the set.
    pub const fn contains(self, api: Api) -> bool {
        self.0 & api.bit() != 0
    }

    /// The formats of the set in the order of the documentation.
    pub fn iter(self) -> impl Iterator<Item = Api> {
        Api::ALL.into_iter().filter(move |api| self.contains(*api))
    }
}

//! What a client asks for, from method, path and query alone. The body is read by [`scan`](super::scan).
//!
//! Not here: headers that carry limits (`client_headers`), routes. Invariant: only the documented paths are operations; a
//! path of one is answered 405 for other methods, and everything else is 404.
//!
//! That includes paths to what a provider has stored: `/v1/responses/{id}` and its `/cancel`, `/v1/files`, `/v1/batches`, `/v1/uploads`,
//! `/v1/threads`, `/v1/vector_stores`, `/v1/conversations`, `/v1/containers`. Such a thing exists in one account of one provider,
//! and neither the path nor a body names a model that could tell which (R-S7): a guess might read or delete what is another's.

use std::borrow::Cow;

use crate::core::api::{Api, Family};

/// Bytes of a decoded model name. The longest known are cloud resource names, a few hundred bytes.
pub const MODEL_BYTES_MAX: usize = 1024;

/// What a request line means.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Inbound<'a> {
    /// A model operation that a route can serve.
    Operation(Operation<'a>),
    /// `GET /v1/models`: the public names.
    ListModels,
    /// A documented path with another method.
    MethodNotAllowed {
        /// Value of the `allow` header.
        allow: &'static str,
    },
    /// Any other path.
    NotFound,
}

/// A model operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Operation<'a> {
    /// The API format.
    pub api: Api,
    /// The model of the path, percent-decoded; `None` means that the body names it, or the query of a handshake.
    pub path_model: Option<Cow<'a, str>>,
    /// What a Gemini path does with the model.
    pub verb: Option<GeminiVerb>,
    /// The version of the API that the path names; a target is asked the same.
    pub version: Version,
    /// Whether the answer is a stream, when the path says it; `None` means that the body does.
    pub stream_by_path: Option<bool>,
}

impl Operation<'_> {
    /// An operation of which the path names nothing but the format.
    const fn plain(api: Api) -> Self {
        Operation {
            api,
            path_model: None,
            verb: None,
            version: Version::V1,
            stream_by_path: None,
        }
    }
}

/// The version of an API in a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Version {
    /// The only one of OpenAI's and Anthropic's, and Gemini's stable one.
    V1,
    /// Gemini's other one.
    V1beta,
}

impl Version {
    /// The version as it stands in a path.
    pub const fn text(self) -> &'static str {
        match self {
            Version::V1 => "v1",
            Version::V1beta => "v1beta",
        }
    }
}

/// The part of a Gemini path after the colon.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum GeminiVerb {
    /// One complete answer.
    GenerateContent,
    /// A stream: events with `alt=sse`, else one JSON array.
    StreamGenerateContent,
    /// Counts the tokens of a prompt.
    CountTokens,
    /// One embedding.
    EmbedContent,
    /// An embedding of each request.
    BatchEmbedContents,
}

impl GeminiVerb {
    /// Every verb of the data plane.
    pub const ALL: [GeminiVerb; 5] = [
        GeminiVerb::GenerateContent,
        GeminiVerb::StreamGenerateContent,
        GeminiVerb::CountTokens,
        GeminiVerb::EmbedContent,
        GeminiVerb::BatchEmbedContents,
    ];

    /// The verb as it stands in a path.
    pub const fn text(self) -> &'static str {
        match self {
            GeminiVerb::GenerateContent => "generateContent",
            GeminiVerb::StreamGenerateContent => "streamGenerateContent",
            GeminiVerb::CountTokens => "countTokens",
            GeminiVerb::EmbedContent => "embedContent",
            GeminiVerb::BatchEmbedContents => "batchEmbedContents",
        }
    }

    /// Whether the answer is a stream.
    pub const fn streams(self) -> bool {
        matches!(self, GeminiVerb::StreamGenerateContent)
    }
}

/// Tells what a request line means. One trailing slash is forgiven.
pub fn recognise<'a>(method: &str, path: &'a str) -> Inbound<'a> {
    let path = match path.strip_suffix('/') {
        Some(shorter) if !shorter.ends_with('/') => shorter,
        _ => path,
    };
    let (found, allow) = match path {
        "/v1/models" => (Inbound::ListModels, "GET"),
        "/v1/realtime" => (named_by_path(Api::OpenaiRealtime), "GET"),
        "/v1/responses" => match method {
            "GET" => (named_by_path(Api::OpenaiResponsesSocket), "GET"),
            "POST" => (named_by_path(Api::OpenaiResponses), "POST"),
            _ => return Inbound::MethodNotAllowed { allow: "GET, POST" },
        },
        _ => match operation(path) {
            Some(operation) => (Inbound::Operation(operation), "POST"),
            None => return Inbound::NotFound,
        },
    };
    if method == allow {
        found
    } else {
        Inbound::MethodNotAllowed { allow }
    }
}

/// The family whose envelope an error takes when no operation was recognised, and whose shape a list of models takes.
pub fn family_of(path: &str, anthropic_version: Sent, goog_api_key: Sent) -> Family {
    if path.starts_with("/v1beta") {
        return Family::Gemini;
    }
    if path.starts_with("/model/") {
        return Family::Bedrock;
    }
    match path {
        "/v1/messages" => Family::Anthropic,
        _ if path.starts_with("/v1/messages/") => Family::Anthropic,
        _ if openai_api(path).is_some() || path == "/v1/realtime" => Family::Openai,
        _ if anthropic_version == Sent::Yes => Family::Anthropic,
        _ if goog_api_key == Sent::Yes => Family::Gemini,
        _ => Family::Openai,
    }
}

/// Whether the client sent a header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sent {
    /// It did.
    Yes,
    /// It did not.
    No,
}

impl From<bool> for Sent {
    fn from(sent: bool) -> Sent {
        if sent { Sent::Yes } else { Sent::No }
    }
}

fn named_by_path<'a>(api: Api) -> Inbound<'a> {
    Inbound::Operation(Operation::plain(api))
}

fn operation(path: &str) -> Option<Operation<'_>> {
    if let Some(rest) = path.strip_prefix("/model/") {
        return bedrock(rest);
    }
    let api = match path {
        "/v1/messages" => Some(Api::AnthropicMessages),
        "/v1/messages/count_tokens" => Some(Api::AnthropicCountTokens),
        _ => openai_api(path),
    };
    match api {
        Some(api) => Some(Operation::plain(api)),
        None => {
            let versions = [Version::V1, Version::V1beta].into_iter();
            let mut found = versions.filter_map(|version| {
                let rest = path.strip_prefix('/')?.strip_prefix(version.text())?;
                Some((version, rest.strip_prefix("/models/")?))
            });
            let (version, rest) = found.next()?;
            gemini(version, rest)
        }
    }
}

fn openai_api(path: &str) -> Option<Api> {
    match path {
        "/v1/chat/completions" => Some(Api::OpenaiChat),
        "/v1/completions" => Some(Api::OpenaiCompletions),
        "/v1/responses" => Some(Api::OpenaiResponses),
        "/v1/embeddings" => Some(Api::OpenaiEmbeddings),
        "/v1/moderations" => Some(Api::OpenaiModerations),
        "/v1/images/generations" => Some(Api::OpenaiImages),
        "/v1/images/edits" => Some(Api::OpenaiImageEdits),
        "/v1/images/variations" => Some(Api::OpenaiImageVariations),
        "/v1/audio/speech" => Some(Api::OpenaiSpeech),
        "/v1/audio/transcriptions" => Some(Api::OpenaiTranscriptions),
        "/v1/audio/translations" => Some(Api::OpenaiTranslations),
        "/v1/rerank" => Some(Api::Rerank),
        _ => None,
    }
}

fn gemini(version: Version, rest: &str) -> Option<Operation<'_>> {
    let (model, verb) = rest.rsplit_once(':')?;
    let verb = GeminiVerb::ALL
        .into_iter()
        .find(|known| known.text() == verb)?;
    // A raw slash would name another resource; an encoded one is part of the name and is encoded again on the way out.
    if model.contains('/') {
        return None;
    }
    let model = percent_decode(model)?;
    is_model_name(&model).then_some(Operation {
        api: Api::Gemini,
        path_model: Some(model),
        verb: Some(verb),
        version,
        stream_by_path: Some(verb.streams()),
    })
}

/// `{model}/{verb}`. A raw slash would name another resource; that of an ARN comes encoded.
fn bedrock(rest: &str) -> Option<Operation<'_>> {
    let (model, verb) = rest.split_once('/')?;
    let (api, stream) = match verb {
        "converse" => (Api::BedrockConverse, false),
        "converse-stream" => (Api::BedrockConverse, true),
        "invoke" => (Api::BedrockInvoke, false),
        "invoke-with-response-stream" => (Api::BedrockInvoke, true),
        "count-tokens" => (Api::BedrockCountTokens, false),
        _ => return None,
    };
    let model = percent_decode(model)?;
    is_model_name(&model).then_some(Operation {
        api,
        path_model: Some(model),
        verb: None,
        version: Version::V1,
        stream_by_path: Some(stream),
    })
}

/// Whether a text can be the name of a model: not empty, bounded, no control characters.
pub fn is_model_name(text: &str) -> bool {
    !text.is_empty() && text.len() <= MODEL_BYTES_MAX && !text.contains(char::is_control)
}

/// Decodes `%41`; `None` for a broken escape or text that is not UTF-8.
pub(super) fn percent_decode(text: &str) -> Option<Cow<'_, str>> {
    if !text.contains('%') {
        return Some(Cow::Borrowed(text));
    }
    let mut decoded = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        if byte != b'%' {
            decoded.push(byte);
            continue;
        }
        let high = char::from(bytes.next()?).to_digit(16)?;
        let low = char::from(bytes.next()?).to_digit(16)?;
        decoded.push(u8::try_from(high * 16 + low).ok()?);
    }
    String::from_utf8(decoded).ok().map(Cow::Owned)
}

//! What a request asks for: which API its path belongs to, which model, whether a stream. Pure.
//!
//! Not a validator: a request that no provider would take is answered all the same. Paths are matched by how they end, so that a base URL may carry any prefix.

use std::borrow::Cow;

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;

use crate::core::api::Family;

/// The operation that a path names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Surface {
    /// `…/chat/completions`
    Chat,
    /// `…/completions`
    Completions,
    /// `…/responses`
    Responses,
    /// `…/embeddings`
    Embeddings,
    /// `…/rerank`
    Rerank,
    /// `…/moderations`
    Moderations,
    /// `…/images/generations`
    Images,
    /// `…/images/edits`
    ImageEdits,
    /// `…/images/variations`
    ImageVariations,
    /// `…/audio/speech`
    Speech,
    /// `…/audio/transcriptions`
    Transcriptions,
    /// `…/audio/translations`
    Translations,
    /// `…/messages`
    Messages,
    /// `…/messages/count_tokens`
    CountTokens,
    /// `…:generateContent`
    Generate,
    /// `…:streamGenerateContent?alt=sse`
    StreamEvents,
    /// `…:streamGenerateContent`, answered with one JSON array
    StreamArray,
    /// `…:countTokens`
    CountContent,
    /// `…:embedContent`
    EmbedContent,
    /// `…:batchEmbedContents`
    BatchEmbedContents,
    /// `…/converse`
    Converse,
    /// The other paths of Bedrock's runtime, whose good answers a script has to give.
    Bedrock,
    /// Anything else.
    Other,
}

impl Surface {
    /// The operation of a path and its query.
    pub fn of(path: &str, query: Option<&str>) -> Surface {
        let last = path.trim_end_matches('/');
        let verb = last.rsplit_once(':').map(|(_, verb)| verb);
        match verb {
            Some("generateContent") => return Surface::Generate,
            Some("streamGenerateContent") if asks_for_events(query) => {
                return Surface::StreamEvents;
            }
            Some("streamGenerateContent") => return Surface::StreamArray,
            Some("countTokens") => return Surface::CountContent,
            Some("embedContent") => return Surface::EmbedContent,
            Some("batchEmbedContents") => return Surface::BatchEmbedContents,
            _ => {}
        }
        const ENDINGS: [(&str, Surface); 18] = [
            ("/chat/completions", Surface::Chat),
            ("/completions", Surface::Completions),
            ("/responses", Surface::Responses),
            ("/embeddings", Surface::Embeddings),
            ("/rerank", Surface::Rerank),
            ("/moderations", Surface::Moderations),
            ("/images/generations", Surface::Images),
            ("/images/edits", Surface::ImageEdits),
            ("/images/variations", Surface::ImageVariations),
            ("/audio/speech", Surface::Speech),
            ("/audio/transcriptions", Surface::Transcriptions),
            ("/audio/translations", Surface::Translations),
            ("/messages", Surface::Messages),
            ("/messages/count_tokens", Surface::CountTokens),
            ("/converse", Surface::Converse),
            ("/converse-stream", Surface::Bedrock),
            ("/invoke", Surface::Bedrock),
            ("/invoke-with-response-stream", Surface::Bedrock),
        ];
        let found = ENDINGS
            .into_iter()
            .find(|(ending, _)| last.ends_with(ending));
        found.map_or(Surface::Other, |(_, surface)| surface)
    }

    /// Whose dialect the errors of this operation are in.
    pub const fn family(self) -> Family {
        match self {
            Surface::Chat
            | Surface::Completions
            | Surface::Responses
            | Surface::Embeddings
            | Surface::Rerank
            | Surface::Moderations
            | Surface::Images
            | Surface::ImageEdits
            | Surface::ImageVariations
            | Surface::Speech
            | Surface::Transcriptions
            | Surface::Translations
            | Surface::Other => Family::Openai,
            Surface::Messages | Surface::CountTokens => Family::Anthropic,
            Surface::Generate
            | Surface::StreamEvents
            | Surface::StreamArray
            | Surface::CountContent
            | Surface::EmbedContent
            | Surface::BatchEmbedContents => Family::Gemini,
            Surface::Converse | Surface::Bedrock => Family::Bedrock,
        }
    }
}

fn asks_for_events(query: Option<&str>) -> bool {
    query.is_some_and(|query| query.split('&').any(|pair| pair == "alt=sse"))
}

/// What one request asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ask<'a> {
    /// The operation.
    pub surface: Surface,
    /// The model in the body or its form, or in the path for Gemini; empty when there is none.
    pub model: Cow<'a, str>,
    /// Whether the answer is to be a stream of events.
    pub stream: bool,
    /// The name of the first tool that the request offers.
    pub tool: Option<String>,
    /// How many requests a batch holds.
    pub batch: usize,
    /// Whether the answer is to be bare text.
    pub is_text: bool,
    /// Bytes of the body.
    pub body_len: usize,
}

#[derive(Deserialize, Default)]
struct Shape {
    #[serde(default)]
    model: Option<String>,
    #[serde(default)]
    stream: Option<bool>,
    #[serde(default)]
    tools: Option<Value>,
    #[serde(default)]
    requests: Vec<IgnoredAny>,
}

impl<'a> Ask<'a> {
    /// Reads a request. A body that is neither a JSON object nor a form asks for nothing in particular.
    pub fn read(path: &'a str, query: Option<&str>, body: &[u8]) -> Ask<'a> {
        let surface = Surface::of(path, query);
        let mut shape = serde_json::from_slice::<Shape>(body).unwrap_or_default();
        let mut is_text = false;
        if body.starts_with(b"--") {
            shape.model = form_field(body, "model");
            shape.stream = form_field(body, "stream").map(|value| value == "true");
            is_text = form_field(body, "response_format").is_some_and(|value| value == "text");
        }
        let model = shape.model.map(Cow::Owned);
        Ask {
            surface,
            model: model
                .or_else(|| path_model(path).map(Cow::Borrowed))
                .unwrap_or_default(),
            stream: shape.stream.unwrap_or(false) || surface == Surface::StreamEvents,
            tool: shape.tools.as_ref().and_then(first_tool),
            batch: shape.requests.len(),
            is_text,
            body_len: body.len(),
        }
    }
}

/// The value of a field of a form, read as simply as can be: the line after the blank one after its name.
fn form_field(body: &[u8], name: &str) -> Option<String> {
    let head = format!("\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n");
    let start = memchr::memmem::find(body, head.as_bytes())? + head.len();
    let rest = body.get(start..)?;
    let end = memchr::memchr(b'\r', rest)?;
    String::from_utf8(rest.get(..end)?.to_vec()).ok()
}

/// The `{model}` of `…/models/{model}:verb`.
fn path_model(path: &str) -> Option<&str> {
    let (_, rest) = path.rsplit_once("/models/")?;
    Some(rest.rsplit_once(':').map_or(rest, |(model, _)| model))
}

/// The name of the first tool, wherever the API puts it.
fn first_tool(tools: &Value) -> Option<String> {
    let first = tools.get(0)?;
    let places = ["/function/name", "/name", "/functionDeclarations/0/name"];
    let name = places
        .into_iter()
        .find_map(|place| first.pointer(place)?.as_str());
    name.map(str::to_owned)
}

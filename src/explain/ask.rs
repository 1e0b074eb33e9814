//! What the request is: its API format and how that was chosen, what its body and headers say.
//!
//! Not here: reading bodies ([`scan`]) and headers ([`client_headers`]); the gateway reads both the same way.

use std::time::Duration;

use serde_json::Value;

use super::{Request, Unexplained};
use crate::core::api::{Api, ApiSet, Family};
use crate::policy::route::Route;
use crate::policy::snapshot::Snapshot;
use crate::providers::client_headers;
use crate::providers::envelope::GatewayError;
use crate::providers::inbound::GeminiVerb;
use crate::providers::planning;
use crate::providers::scan::{self, Scan};

/// A header of the client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Header {
    name: String,
    value: String,
}

impl Header {
    /// Reads `name: value`.
    pub fn parse(text: &str) -> Result<Header, String> {
        let (name, value) = text
            .split_once(':')
            .ok_or("a header is written `name: value`")?;
        let (name, value) = (name.trim().to_ascii_lowercase(), value.trim().to_owned());
        if name.is_empty() || name.contains(char::is_whitespace) {
            return Err("a header is written `name: value`".to_owned());
        }
        Ok(Header { name, value })
    }

    /// Its name in lower case.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its value.
    pub fn value(&self) -> &str {
        &self.value
    }
}

/// The request as it is understood.
#[derive(Debug, Clone)]
pub struct Asked {
    /// The public model name.
    pub model: String,
    /// The API format.
    pub api: Api,
    /// How the format was chosen.
    pub because: Because,
    /// What a Gemini path asks for.
    pub verb: Option<GeminiVerb>,
    /// Whether the answer is a stream.
    pub stream: bool,
    /// Bytes of the body, when there is one.
    pub body_bytes: Option<usize>,
    /// Tokens that the request is estimated to cost, which local limits count.
    pub tokens: u64,
    /// The model that the body names, when it is another one.
    pub body_model: Option<String>,
    /// Why the operation may not change target, if so.
    pub binding: Option<&'static str>,
    /// Whether the provider may act before it rejects, so that nothing is certified.
    pub side_effects: bool,
    /// Whether the client says that this is its own retry.
    pub caller_retry: bool,
    /// How long the client waits, if it says so.
    pub client_timeout: Option<Duration>,
}

/// How the API format was chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Because {
    /// It was given.
    Given,
    /// The body has this key, which belongs to the format.
    BodyKey(&'static str),
    /// It is the usual format, and the provider of the first target speaks it.
    Usual,
    /// The provider of the first target does not speak the usual format.
    FirstTarget,
}

impl Because {
    /// The value in JSON.
    pub const fn label(self) -> &'static str {
        match self {
            Because::Given => "given",
            Because::BodyKey(_) => "body",
            Because::Usual => "default",
            Because::FirstTarget => "first_target",
        }
    }

    /// A phrase for people.
    pub fn phrase(self) -> String {
        match self {
            Because::Given => "as given".to_owned(),
            Because::BodyKey(key) => format!("the body has `{key}`"),
            Because::Usual => "by default; the first target speaks it".to_owned(),
            Because::FirstTarget => "what the provider of the first target speaks".to_owned(),
        }
    }
}

/// Reads the request for a route.
pub(super) fn read(
    snapshot: &Snapshot,
    route: &Route,
    request: &Request<'_>,
) -> Result<Asked, Unexplained> {
    let first = route
        .targets
        .first()
        .and_then(|target| snapshot.provider(target.provider));
    let speaks = first.map_or(ApiSet::EMPTY, |provider| provider.speaks);
    let (api, because) = match request.api {
        Some(api) => (api, Because::Given),
        None => choose(speaks, request.body),
    };
    let get = |name: &str| {
        let found = request.headers.iter().find(|header| header.name == name);
        found.map(|header| header.value.as_bytes())
    };
    let scanned = match request.body {
        Some(body) => {
            let guessed = form_type(body);
            let content_type = get("content-type").or(guessed.as_deref());
            let scanned = scan::read(api, content_type, body);
            Some(scanned.map_err(|error| {
                let (what, code) = (error.to_string(), GatewayError::from(error).code().label());
                Unexplained::Body { code, what }
            })?)
        }
        None => None,
    };
    let stream = request.stream || scanned.as_ref().is_some_and(|scan| scan.stream);
    let verb = (api == Api::Gemini).then_some(if stream {
        GeminiVerb::StreamGenerateContent
    } else {
        GeminiVerb::GenerateContent
    });
    let unnamed;
    let facts = match &scanned {
        Some(scan) => scan,
        None => {
            unnamed = nothing_said(api);
            &unnamed
        }
    };
    let in_body = facts
        .model
        .as_deref()
        .filter(|named| api_names_model(api, named, request.model));
    Ok(Asked {
        model: request.model.to_owned(),
        api,
        because,
        verb,
        stream,
        body_bytes: request.body.map(<[u8]>::len),
        tokens: planning::estimated_tokens(request.body.map_or(0, <[u8]>::len), facts.length_max),
        body_model: in_body.map(str::to_owned),
        binding: planning::binding(facts, request.model, |name| get(name).is_some()),
        side_effects: facts.side_effects,
        caller_retry: client_headers::caller_retry(get),
        client_timeout: client_headers::client_timeout(get),
    })
}

/// Whether the body names another model than the one that is asked for. A Gemini body may repeat the resource name of its path.
fn api_names_model(api: Api, named: &str, wanted: &str) -> bool {
    let named = match api.family() {
        Family::Gemini => named.strip_prefix("models/").unwrap_or(named),
        Family::Openai | Family::Anthropic => named,
        // The path alone counts.
        Family::Bedrock => return false,
    };
    named != wanted
}

/// The content type of a form whose first line is its boundary, for a file that comes without the header.
fn form_type(body: &[u8]) -> Option<Vec<u8>> {
    let line = body.split(|byte| *byte == b'\n').next()?;
    let boundary = line.trim_ascii_end().strip_prefix(b"--")?;
    Some([b"multipart/form-data; boundary=\"", boundary, b"\""].concat())
}

/// The scan of a body that says nothing.
fn nothing_said(api: Api) -> Scan {
    Scan {
        api,
        model: None,
        model_spans: Default::default(),
        stream: false,
        binding: None,
        side_effects: false,
        length_max: 0,
    }
}

/// The format by the body's keys, else by what the first target's provider speaks.
fn choose(speaks: ApiSet, body: Option<&[u8]>) -> (Api, Because) {
    if let Some(found) = body.and_then(|body| by_body(speaks, body)) {
        return found;
    }
    if speaks.contains(Api::OpenaiChat) {
        return (Api::OpenaiChat, Because::Usual);
    }
    (
        speaks.iter().next().unwrap_or(Api::OpenaiChat),
        Because::FirstTarget,
    )
}

fn by_body(speaks: ApiSet, body: &[u8]) -> Option<(Api, Because)> {
    let body: Value = serde_json::from_slice(body).ok()?;
    let has = |key: &str| body.get(key).is_some();
    let found = |api, key| Some((api, Because::BodyKey(key)));
    if has("contents") {
        return found(Api::Gemini, "contents");
    }
    if has("messages") {
        let of_anthropic = ["system", "stop_sequences", "thinking"]
            .into_iter()
            .find(|key| has(key));
        return match of_anthropic {
            Some(key) if speaks.contains(Api::AnthropicMessages) => {
                found(Api::AnthropicMessages, key)
            }
            _ if speaks.contains(Api::OpenaiChat) => found(Api::OpenaiChat, "messages"),
            _ if speaks.contains(Api::AnthropicMessages) => {
                found(Api::AnthropicMessages, "messages")
            }
            _ => None,
        };
    }
    if has("prompt") && has("input") {
        return found(Api::OpenaiResponses, "input");
    }
    if has("prompt") {
        return found(Api::OpenaiCompletions, "prompt");
    }
    let of_responses = [
        "instructions",
        "max_output_tokens",
        "previous_response_id",
        "conversation",
    ];
    match of_responses.into_iter().find(|key| has(key)) {
        Some(key) => found(Api::OpenaiResponses, key),
        None if has("encoding_format") || has("dimensions") => {
            found(Api::OpenaiEmbeddings, "input")
        }
        None if has("input") => found(Api::OpenaiResponses, "input"),
        None => None,
    }
}

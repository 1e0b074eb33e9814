//! How an adapter's paths differ from those of the API format, and the paths of the clouds: Azure, Vertex and Bedrock.
//!
//! Not here: headers, bodies ([`super::hosted`]), signatures ([`super::sigv4`]). Models are percent-encoded wherever they stand in a path, so that none can
//! name another resource.

use super::adapter::Adapter;
use super::handshake;
use super::inbound::GeminiVerb;
pub use super::outbound::PathParts;
use super::outbound::{native_operation, push_encoded, push_query, upstream_path};
use super::outbound_headers::AuthScheme;
use crate::core::api::{Api, Family};
use crate::policy::provider::Azure;

/// How paths are built.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestStyle {
    /// As the API format has them, below the base.
    Native,
    /// OpenAI's without a version; Anthropic's as the format has them.
    Unversioned,
    /// Azure OpenAI: `/openai/v1`, or a deployment in the path.
    Azure,
    /// Vertex AI: below `/v1/projects/{project}/locations/{location}`, which the base names.
    Vertex,
    /// Bedrock: its runtime's own paths, and its OpenAI-compatible ones.
    Bedrock,
    /// Cohere: OpenAI's formats below its compatibility address, ranking below `/v2`.
    Cohere,
}

/// The path and query at a target. `azure` matters for [`RequestStyle::Azure`] alone.
pub fn target_path(style: RequestStyle, azure: &Azure, parts: &PathParts<'_>) -> String {
    if parts.api.is_socket() {
        return socket_path(style, azure, parts);
    }
    path_in_style(style, azure, parts)
}

/// The same for a handshake, whose query names the model.
fn socket_path(style: RequestStyle, azure: &Azure, parts: &PathParts<'_>) -> String {
    let by_deployment = style == RequestStyle::Azure && azure.deployments;
    let parameter = match (by_deployment, parts.api) {
        (true, Api::OpenaiRealtime) => "deployment",
        _ => "model",
    };
    let query = handshake::query_for(parts.api, parts.query, parameter, parts.model);
    let query = Some(query.as_str());
    path_in_style(style, azure, &PathParts { query, ..*parts })
}

fn path_in_style(style: RequestStyle, azure: &Azure, parts: &PathParts<'_>) -> String {
    let base = parts.base_path.trim_end_matches('/');
    match style {
        RequestStyle::Native => native(parts, base),
        RequestStyle::Unversioned => match operation_of_openai(parts.api) {
            Some(operation) => with_query(format!("{base}/{operation}"), parts.query),
            None => native(parts, base),
        },
        RequestStyle::Azure => azure_path(azure, parts, base),
        RequestStyle::Vertex => vertex_path(parts, base),
        RequestStyle::Cohere => cohere_path(parts, base),
        RequestStyle::Bedrock => bedrock_target_path(parts, base),
    }
}

/// Whether streams come in the format of the request. Bedrock's come as frames, which no client of Anthropic's messages reads.
pub const fn can_stream(style: RequestStyle, api: Api) -> bool {
    !matches!(
        (style, api),
        (RequestStyle::Bedrock, Api::AnthropicMessages)
    )
}

/// Where the credential goes.
pub fn auth_scheme(adapter: &Adapter, azure: &Azure) -> AuthScheme {
    match adapter.style {
        RequestStyle::Azure if azure.bearer => AuthScheme::Bearer,
        RequestStyle::Azure
        | RequestStyle::Native
        | RequestStyle::Unversioned
        | RequestStyle::Vertex
        | RequestStyle::Bedrock
        | RequestStyle::Cohere => adapter.auth,
    }
}

fn native(parts: &PathParts<'_>, base: &str) -> String {
    upstream_path(&PathParts {
        base_path: base,
        ..*parts
    })
}

fn with_query(mut path: String, query: Option<&str>) -> String {
    push_query(&mut path, query);
    path
}

/// The last part of a path of OpenAI's formats.
fn operation_of_openai(api: Api) -> Option<&'static str> {
    native_operation(api).filter(|_| api.family() == Family::Openai)
}

/// OpenAI's formats below `/compatibility/v1`, ranking below `/v2`. A base that names either is read as the address before it.
fn cohere_path(parts: &PathParts<'_>, base: &str) -> String {
    let named = ["/compatibility/v1", "/v2", "/v1"].into_iter();
    let own = named
        .filter_map(|version| base.strip_suffix(version))
        .next();
    let own = own.unwrap_or(base);
    match parts.api {
        Api::Rerank => with_query(format!("{own}/v2/rerank"), parts.query),
        _ => native(parts, &format!("{own}/compatibility/v1")),
    }
}

/// `/openai/v1/{operation}`, or `/openai/deployments/{deployment}/{operation}`; responses have no deployment in their path,
/// and a realtime session has it in its query. The
/// configuration's `api-version` takes the place of the client's.
fn azure_path(azure: &Azure, parts: &PathParts<'_>, base: &str) -> String {
    let Some(operation) = operation_of_openai(parts.api) else {
        return native(parts, base);
    };
    let mut path = base
        .strip_suffix("/openai/v1")
        .or_else(|| base.strip_suffix("/openai"))
        .unwrap_or(base)
        .to_owned();
    path.push_str("/openai/");
    match (azure.deployments, parts.api) {
        (false, _) => path.push_str("v1/"),
        (true, Api::OpenaiResponses | Api::OpenaiResponsesSocket | Api::OpenaiRealtime) => {}
        (true, _) => {
            path.push_str("deployments/");
            push_segment(&mut path, parts.model);
            path.push('/');
        }
    }
    path.push_str(operation);
    let Some(version) = &azure.api_version else {
        return with_query(path, parts.query);
    };
    let kept: Vec<&str> = parts
        .query
        .unwrap_or("")
        .split('&')
        .filter(|pair| !names_api_version(pair))
        .collect();
    path = with_query(path, Some(&kept.join("&")));
    path.push(if path.contains('?') { '&' } else { '?' });
    path.push_str("api-version=");
    push_encoded(&mut path, version);
    path
}

/// A model as a whole segment. One of dots alone would be read as a step up; no model is called so, and as text it leads nowhere.
fn push_segment(path: &mut String, model: &str) {
    match model {
        "." => path.push_str("%252E"),
        ".." => path.push_str("%252E%252E"),
        _ => push_encoded(path, model),
    }
}

fn names_api_version(pair: &str) -> bool {
    let name = pair.split('=').next().unwrap_or(pair);
    super::inbound::percent_decode(name).is_none_or(|name| name.eq_ignore_ascii_case("api-version"))
}

/// `/publishers/google/models/{model}:{verb}` for Gemini, `/publishers/anthropic/models/{model}:{verb}` for Anthropic's messages,
/// `/endpoints/openapi/{operation}` for OpenAI's formats. Anthropic's own query has no meaning there.
fn vertex_path(parts: &PathParts<'_>, base: &str) -> String {
    let mut path = base.to_owned();
    match parts.api {
        Api::Gemini => {
            let verb = parts.verb.unwrap_or(GeminiVerb::GenerateContent);
            push_publisher(&mut path, "google", parts.model, verb.text());
        }
        Api::AnthropicMessages | Api::AnthropicCountTokens => {
            let (model, verb) = match (parts.api, parts.stream) {
                // The body names the model that is counted for.
                (Api::AnthropicCountTokens, _) => ("count-tokens", "rawPredict"),
                (_, true) => (parts.model, "streamRawPredict"),
                (_, false) => (parts.model, "rawPredict"),
            };
            return vertex_publisher_path(base, "anthropic", model, verb);
        }
        api => match operation_of_openai(api) {
            Some(operation) => path.extend(["/endpoints/openapi/", operation]),
            None => return native(parts, base),
        },
    }
    with_query(path, parts.query)
}

/// `/publishers/{publisher}/models/{model}:{verb}`. A model written as `publishers/{publisher}/models/{model}` or `models/{model}` keeps
/// its last part only.
fn push_publisher(path: &mut String, publisher: &str, model: &str, verb: &str) {
    let model = model
        .strip_prefix("publishers/")
        .and_then(|rest| rest.strip_prefix(publisher)?.strip_prefix('/'))
        .unwrap_or(model);
    let model = model.strip_prefix("models/").unwrap_or(model);
    path.extend(["/publishers/", publisher, "/models/"]);
    push_encoded(path, model);
    path.extend([":", verb]);
}

/// The path of a Vertex publisher model that answers in a publisher's own format, e.g. `rawPredict` and `streamRawPredict`.
pub fn vertex_publisher_path(base_path: &str, publisher: &str, model: &str, verb: &str) -> String {
    let mut path = base_path.trim_end_matches('/').to_owned();
    push_publisher(&mut path, publisher, model, verb);
    path
}

/// What Bedrock's runtime does with a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BedrockVerb {
    /// One answer in Bedrock's own format.
    Converse,
    /// The same as frames.
    ConverseStream,
    /// One answer in the model's own format.
    InvokeModel,
    /// The same as frames.
    InvokeModelWithResponseStream,
    /// Counts the tokens of a prompt.
    CountTokens,
}

impl BedrockVerb {
    /// Every verb.
    pub const ALL: [BedrockVerb; 5] = [
        BedrockVerb::Converse,
        BedrockVerb::ConverseStream,
        BedrockVerb::InvokeModel,
        BedrockVerb::InvokeModelWithResponseStream,
        BedrockVerb::CountTokens,
    ];

    /// The verb as it stands in a path.
    pub const fn text(self) -> &'static str {
        match self {
            BedrockVerb::Converse => "converse",
            BedrockVerb::ConverseStream => "converse-stream",
            BedrockVerb::InvokeModel => "invoke",
            BedrockVerb::InvokeModelWithResponseStream => "invoke-with-response-stream",
            BedrockVerb::CountTokens => "count-tokens",
        }
    }

    /// Whether the answer is a stream of frames.
    pub const fn streams(self) -> bool {
        matches!(
            self,
            BedrockVerb::ConverseStream | BedrockVerb::InvokeModelWithResponseStream
        )
    }
}

/// The runtime's own path, or `/openai/v1/{operation}`. A base that names the compatible paths is read as the runtime's address.
fn bedrock_target_path(parts: &PathParts<'_>, base: &str) -> String {
    let own = base.strip_suffix("/openai/v1").unwrap_or(base);
    let verb = match (parts.api, parts.stream) {
        // Anthropic's own query has no meaning there.
        (Api::AnthropicMessages, _) => {
            return bedrock_path(own, parts.model, BedrockVerb::InvokeModel);
        }
        (Api::BedrockCountTokens, _) => BedrockVerb::CountTokens,
        (Api::BedrockConverse, false) => BedrockVerb::Converse,
        (Api::BedrockConverse, true) => BedrockVerb::ConverseStream,
        (Api::BedrockInvoke, false) => BedrockVerb::InvokeModel,
        (Api::BedrockInvoke, true) => BedrockVerb::InvokeModelWithResponseStream,
        _ if base.is_empty() => return native(parts, "/openai/v1"),
        _ => return native(parts, base),
    };
    with_query(bedrock_path(own, parts.model, verb), parts.query)
}

/// `/model/{id}/{verb}`. The model may be an ARN, whose slashes and colons are part of the name.
pub fn bedrock_path(base_path: &str, model: &str, verb: BedrockVerb) -> String {
    let mut path = base_path.trim_end_matches('/').to_owned();
    path.push_str("/model/");
    push_segment(&mut path, model);
    path.extend(["/", verb.text()]);
    path
}

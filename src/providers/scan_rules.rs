//! What the keys of a request mean, by API format and place.
//!
//! Not here: how JSON is read. The tables follow the providers' documentation; where a place is unknown its keys are read as
//! the provider's own (a false binding costs a failover, a missed one a wrong send), while places that hold the user's own
//! keys (schemas, tool arguments, metadata) are never looked into.

use super::binding::Binding;
use crate::core::api::{Api, Family};

/// Where in a request a container stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// The request object.
    Root,
    /// The provider's own keys, none of which needs its surroundings.
    Plain,
    /// The user's own keys: nothing in it has a meaning to a provider.
    Free,
    /// An object whose `id` is a reference.
    Reference,
    /// How the answer is to be generated, where that has an object of its own.
    Generation,
    /// The input list of the Responses API, and one item of it.
    Items,
    /// One item of it.
    Item,
    /// A list of tools.
    Tools,
    /// One tool.
    Tool,
}

impl Place {
    /// The place of an object that stands here.
    pub fn of_object(self) -> Place {
        match self {
            Place::Items => Place::Item,
            Place::Tools => Place::Tool,
            Place::Root
            | Place::Plain
            | Place::Free
            | Place::Reference
            | Place::Generation
            | Place::Item
            | Place::Tool => self,
        }
    }
}

/// What the value of a key says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    /// Nothing by itself.
    Pass(Place),
    /// The model.
    Model,
    /// Whether the answer is a stream.
    Stream,
    /// How long the answer may be, in tokens.
    LengthMax,
    /// Whether the provider keeps the response; only `false` is of interest.
    Store,
    /// A reference to something the provider issued.
    Bind(Binding),
    /// The name of a container, or its description, which may refer to one.
    Container,
    /// A stored conversation: bound, and changed by the operation.
    Conversation,
    /// `true`, or anything in a container, runs something at the provider.
    Runs,
    /// Any value but `null` and `false` does, `{}` included.
    Enables,
    /// The kind of an input item.
    ItemType,
    /// The id of an input item.
    ItemId,
    /// The author of an input item.
    ItemAuthor,
    /// The kind of a tool.
    ToolType,
    /// The kind of another object.
    Type,
}

impl Role {
    /// How a container under the key is read.
    pub fn place(self) -> Place {
        match self {
            Role::Pass(place) => place,
            Role::Container => Place::Reference,
            Role::Model
            | Role::Stream
            | Role::LengthMax
            | Role::Store
            | Role::Bind(_)
            | Role::Conversation
            | Role::Runs
            | Role::Enables
            | Role::ItemType
            | Role::ItemId
            | Role::ItemAuthor
            | Role::ToolType
            | Role::Type => Place::Plain,
        }
    }
}

/// The kinds of input items that matter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ItemKind {
    /// A reference to a stored item.
    Reference,
    /// Reasoning of an earlier turn.
    Reasoning,
    /// A call of a tool.
    Call,
    /// Messages, outputs and the like.
    Other,
}

impl ItemKind {
    /// The kind with this name.
    pub fn of(name: &[u8]) -> ItemKind {
        match name {
            b"item_reference" => ItemKind::Reference,
            b"reasoning" => ItemKind::Reasoning,
            _ if name.ends_with(b"_call") => ItemKind::Call,
            _ => ItemKind::Other,
        }
    }
}

/// What a key means in its place.
pub(super) fn role(api: Api, place: Place, key: &[u8]) -> Role {
    match place {
        Place::Free => Role::Pass(Place::Free),
        Place::Root => root(api, key).unwrap_or_else(|| anywhere(api, key)),
        Place::Tool => tool(api, key).unwrap_or_else(|| anywhere(api, key)),
        Place::Reference if key == b"id" => Role::Bind(Binding::Id),
        Place::Generation => match key {
            b"maxOutputTokens" | b"max_output_tokens" | b"maxTokens" => Role::LengthMax,
            _ => anywhere(api, key),
        },
        Place::Item => match key {
            b"type" => Role::ItemType,
            b"id" => Role::ItemId,
            b"role" => Role::ItemAuthor,
            _ => anywhere(api, key),
        },
        Place::Plain | Place::Reference | Place::Items | Place::Tools => anywhere(api, key),
    }
}

/// Whether a tool of this type can act at the provider. Every type that is not known to run at the client does.
pub(super) fn tool_runs_at_provider(name: &[u8]) -> bool {
    const AT_CLIENT: [&[u8]; 6] = [
        b"",
        b"function",
        b"custom",
        b"apply_patch",
        b"local_shell",
        b"namespace",
    ];
    const AT_CLIENT_VERSIONED: [&[u8]; 3] = [b"bash_", b"text_editor_", b"memory_"];
    !AT_CLIENT.contains(&name)
        && !AT_CLIENT_VERSIONED
            .iter()
            .any(|start| name.starts_with(start))
}

/// The binding of an object that its type alone tells.
pub(super) fn bound_type(name: &[u8]) -> Option<Binding> {
    match name {
        b"redacted_thinking" | b"reasoning.encrypted" => Some(Binding::Encrypted),
        _ => None,
    }
}

fn root(api: Api, key: &[u8]) -> Option<Role> {
    let common = match key {
        // The path names it; what a body may name there is the model's own and passes as it is.
        b"model" if api.family() == Family::Bedrock => Role::Pass(Place::Free),
        b"model" => Role::Model,
        b"kv_transfer_params" | b"lora" | b"lora_request" | b"id_slot" => {
            Role::Bind(Binding::Server)
        }
        _ => match api.family() {
            Family::Openai => return openai_root(api, key),
            Family::Anthropic => return anthropic_root(key),
            Family::Gemini => return gemini_root(key),
            Family::Bedrock => return bedrock_root(api, key),
        },
    };
    Some(common)
}

fn openai_root(api: Api, key: &[u8]) -> Option<Role> {
    Some(match key {
        b"stream" => Role::Stream,
        b"max_tokens" | b"max_completion_tokens" | b"max_output_tokens" => Role::LengthMax,
        b"store" => Role::Store,
        b"input" if api == Api::OpenaiResponses => Role::Pass(Place::Items),
        b"input" => Role::Pass(Place::Plain),
        b"prompt" => Role::Pass(Place::Reference),
        b"preset" => Role::Bind(Binding::Prompt),
        b"context" if api == Api::OpenaiCompletions => Role::Bind(Binding::Server),
        b"conversation" | b"thread" => Role::Conversation,
        b"container" => Role::Container,
        // Of an image it is the colour behind it.
        b"background" if !api.is_specialised() => Role::Runs,
        b"plugins" => Role::Runs,
        // What is ranked is the user's own, and so are the keys of documents that are objects.
        b"query" | b"documents" if api == Api::Rerank => Role::Pass(Place::Free),
        b"web_search_options" | b"search_parameters" => Role::Enables,
        _ => return None,
    })
}

fn anthropic_root(key: &[u8]) -> Option<Role> {
    Some(match key {
        b"stream" => Role::Stream,
        b"max_tokens" => Role::LengthMax,
        b"container" => Role::Container,
        b"thread" => Role::Conversation,
        b"mcp_servers" | b"background" => Role::Runs,
        _ => return None,
    })
}

fn gemini_root(key: &[u8]) -> Option<Role> {
    Some(match key {
        b"generateContentRequest" | b"generate_content_request" => Role::Pass(Place::Root),
        // Each request of a batch names the model again.
        b"requests" => Role::Pass(Place::Root),
        b"background" => Role::Runs,
        b"generationConfig" | b"generation_config" => Role::Pass(Place::Generation),
        _ => return None,
    })
}

/// An invocation has the model's own format; Anthropic's is the one with keys that matter.
fn bedrock_root(api: Api, key: &[u8]) -> Option<Role> {
    Some(match key {
        b"guardrailConfig" | b"projectIdentifier" => Role::Bind(Binding::Id),
        b"promptVariables" | b"requestMetadata" => Role::Pass(Place::Free),
        b"inferenceConfig" => Role::Pass(Place::Generation),
        // Whether it streams is said by the path.
        b"stream" => Role::Pass(Place::Free),
        _ if api == Api::BedrockInvoke => return anthropic_root(key),
        _ => return None,
    })
}

fn tool(api: Api, key: &[u8]) -> Option<Role> {
    match (api.family(), key) {
        (Family::Gemini, b"functionDeclarations" | b"function_declarations") => None,
        (Family::Gemini, _) => Some(Role::Enables),
        // Tools of a conversation are specifications; one of the system's runs at the provider.
        (Family::Bedrock, b"systemTool") => Some(Role::Enables),
        (Family::Openai | Family::Anthropic | Family::Bedrock, b"type") => Some(Role::ToolType),
        (Family::Openai | Family::Anthropic | Family::Bedrock, b"container") => {
            Some(Role::Container)
        }
        (Family::Openai | Family::Anthropic | Family::Bedrock, b"authorization") => {
            Some(Role::Bind(Binding::Connector))
        }
        (Family::Openai | Family::Anthropic | Family::Bedrock, _) => None,
    }
}

fn anywhere(api: Api, key: &[u8]) -> Role {
    if is_free(api, key) {
        return Role::Pass(Place::Free);
    }
    match key {
        b"type" => Role::Type,
        b"tools" => Role::Pass(Place::Tools),
        b"audio" | b"voice" => Role::Pass(Place::Reference),
        _ => bound_key(key).map_or(Role::Pass(Place::Plain), Role::Bind),
    }
}

/// Keys under which users put keys of their own.
fn is_free(api: Api, key: &[u8]) -> bool {
    match key {
        // Tool arguments and results as objects.
        b"arguments" | b"args" | b"partialArgs" | b"partial_args" | b"input" => true,
        b"response" => api == Api::Gemini,
        // Results of tools, and schemas.
        b"json" => api == Api::BedrockConverse,
        // Schemas.
        b"inputSchema"
        | b"parameters"
        | b"parametersJsonSchema"
        | b"parameters_json_schema"
        | b"input_schema"
        | b"output_schema"
        | b"schema"
        | b"json_schema"
        | b"properties"
        | b"$defs"
        | b"responseSchema"
        | b"response_schema"
        | b"responseJsonSchema"
        | b"response_json_schema"
        | b"input_examples"
        | b"guided_json"
        | b"structured_outputs" => true,
        // Labels, template values and the like; none of them changes which provider can answer.
        b"metadata"
        | b"client_metadata"
        | b"labels"
        | b"attributes"
        | b"filters"
        | b"headers"
        | b"variables"
        | b"logit_bias"
        | b"cache_control"
        | b"user_location"
        | b"diagnostics"
        | b"chat_template_kwargs"
        | b"trace" => true,
        _ => false,
    }
}

/// Keys whose value a provider has issued, wherever they stand.
fn bound_key(key: &[u8]) -> Option<Binding> {
    Some(match key {
        b"previous_response_id" | b"previous_interaction_id" => Binding::Response,
        b"conversation_id" | b"thread_id" | b"previous_message_id" => Binding::Conversation,
        b"agent_id" | b"assistant_id" => Binding::Prompt,
        b"container_id" | b"environment_id" => Binding::Container,
        b"file_id" | b"file_ids" | b"fileUri" | b"file_uri" | b"s3Location" => Binding::File,
        b"vector_store_ids"
        | b"fileSearchStoreNames"
        | b"file_search_store_names"
        | b"ragCorpora"
        | b"rag_corpora"
        | b"ragResources"
        | b"rag_resources"
        | b"datastore"
        | b"library_ids" => Binding::Store,
        b"cachedContent" | b"cached_content" => Binding::Cache,
        b"signature" | b"thoughtSignature" | b"thought_signature" => Binding::Signature,
        b"reasoning_opaque" | b"stateful_marker" => Binding::Encrypted,
        b"continuationToken" | b"continuation_token" => Binding::Response,
        b"connector_id" | b"tunnel_id" | b"authorization_token" | b"fallback_credit_token" => {
            Binding::Connector
        }
        b"session_id" => Binding::Server,
        _ if key.starts_with(b"encrypted_") => Binding::Encrypted,
        _ if is_issued_id(key) => Binding::Id,
        _ => return None,
    })
}

/// Whether a key ends like an id and is not one of those that clients choose, or that only tie parts of one request together.
fn is_issued_id(key: &[u8]) -> bool {
    const OF_CLIENTS: [&[u8]; 10] = [
        b"call_id",
        b"tool_call_id",
        b"tool_use_id",
        b"user_id",
        b"end_user_id",
        b"request_id",
        b"client_request_id",
        b"custom_id",
        b"trace_id",
        b"span_id",
    ];
    let is_id = key.ends_with(b"_id") || key.ends_with(b"_ids");
    let is_token = key.ends_with(b"token_id") || key.ends_with(b"token_ids");
    is_id && !is_token && !OF_CLIENTS.contains(&key)
}

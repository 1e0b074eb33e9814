//! Paths of adapters whose requests differ from the format's own, and where their credential goes.

use rondo::core::api::Api;
use rondo::policy::provider::Azure;
use rondo::providers::inbound::{GeminiVerb, Version};
use rondo::providers::outbound_headers::AuthScheme;
use rondo::providers::registry;
use rondo::providers::request_style::{
    BedrockVerb, PathParts, RequestStyle, auth_scheme, bedrock_path, target_path,
    vertex_publisher_path,
};

fn path(style: RequestStyle, azure: &Azure, api: Api, base_path: &str, model: &str) -> String {
    asked(style, azure, api, base_path, model, None)
}

fn asked(
    style: RequestStyle,
    azure: &Azure,
    api: Api,
    base_path: &str,
    model: &str,
    query: Option<&str>,
) -> String {
    let parts = PathParts {
        api,
        verb: (api == Api::Gemini).then_some(GeminiVerb::StreamGenerateContent),
        version: if api == Api::Gemini {
            Version::V1beta
        } else {
            Version::V1
        },
        base_path,
        model,
        stream: false,
        query,
    };
    target_path(style, azure, &parts)
}

fn deployments() -> Azure {
    Azure {
        deployments: true,
        api_version: Some("2024-10-21".into()),
        bearer: false,
    }
}

#[test]
fn azure_has_its_current_form_below_openai_v1() {
    let azure = Azure::default();
    for base in ["", "/openai", "/openai/v1", "/openai/v1/"] {
        let found = path(RequestStyle::Azure, &azure, Api::OpenaiChat, base, "gpt");
        assert_eq!(found, "/openai/v1/chat/completions", "{base}");
    }
    let found = path(
        RequestStyle::Azure,
        &azure,
        Api::OpenaiResponses,
        "/proxy",
        "gpt",
    );
    assert_eq!(found, "/proxy/openai/v1/responses");
    let preview = Azure {
        api_version: Some("preview".into()),
        ..Azure::default()
    };
    let found = path(
        RequestStyle::Azure,
        &preview,
        Api::OpenaiEmbeddings,
        "",
        "e",
    );
    assert_eq!(found, "/openai/v1/embeddings?api-version=preview");
}

#[test]
fn azure_deployments_stand_in_the_path() {
    let cases = [
        (
            Api::OpenaiChat,
            "gpt-4o",
            "/openai/deployments/gpt-4o/chat/completions",
        ),
        (
            Api::OpenaiCompletions,
            "d",
            "/openai/deployments/d/completions",
        ),
        (
            Api::OpenaiEmbeddings,
            "d",
            "/openai/deployments/d/embeddings",
        ),
        (
            Api::OpenaiChat,
            "../x?y#z",
            "/openai/deployments/..%2Fx%3Fy%23z/chat/completions",
        ),
        (
            Api::OpenaiChat,
            "..",
            "/openai/deployments/%252E%252E/chat/completions",
        ),
        (Api::OpenaiResponses, "d", "/openai/responses"),
    ];
    for (api, model, wanted) in cases {
        for base in ["", "/openai", "/openai/v1"] {
            let found = path(RequestStyle::Azure, &deployments(), api, base, model);
            assert_eq!(found, format!("{wanted}?api-version=2024-10-21"), "{base}");
        }
    }
}

#[test]
fn the_api_version_is_the_configurations() {
    // R-X2
    let query =
        Some("api-version=2020-01-01&a=b&API-Version=x&api%2Dversion=y&api-key=secret&%zz=1");
    let found = asked(
        RequestStyle::Azure,
        &deployments(),
        Api::OpenaiChat,
        "",
        "d",
        query,
    );
    let wanted = "/openai/deployments/d/chat/completions?a=b&api-version=2024-10-21";
    assert_eq!(found, wanted);
    let azure = Azure::default();
    let query = Some("api-version=preview&api-key=secret");
    let found = asked(RequestStyle::Azure, &azure, Api::OpenaiChat, "", "d", query);
    assert_eq!(found, "/openai/v1/chat/completions?api-version=preview");
}

#[test]
fn azure_keys_and_tokens_go_where_azure_looks_for_them() {
    // R-X2
    let scheme = |name: &str, bearer| {
        let azure = Azure {
            bearer,
            ..Azure::default()
        };
        auth_scheme(registry::find(name).unwrap(), &azure)
    };
    assert_eq!(scheme("azure_openai", false), AuthScheme::ApiKey);
    assert_eq!(scheme("azure_openai", true), AuthScheme::Bearer);
    assert_eq!(scheme("anthropic", true), AuthScheme::XApiKey);
    for adapter in registry::all() {
        assert_eq!(scheme(adapter.name, false), adapter.auth);
    }
}

#[test]
fn vertex_paths_stand_below_project_and_location() {
    let base = "/v1/projects/p/locations/us-east1";
    let azure = Azure::default();
    let cases = [
        (
            Api::Gemini,
            "gemini-2.5-pro",
            "/publishers/google/models/gemini-2.5-pro:streamGenerateContent",
        ),
        (
            Api::Gemini,
            "models/g",
            "/publishers/google/models/g:streamGenerateContent",
        ),
        (
            Api::Gemini,
            "publishers/google/models/g",
            "/publishers/google/models/g:streamGenerateContent",
        ),
        (
            Api::Gemini,
            "a/../b",
            "/publishers/google/models/a%2F..%2Fb:streamGenerateContent",
        ),
        (
            Api::OpenaiChat,
            "google/g",
            "/endpoints/openapi/chat/completions",
        ),
        (
            Api::AnthropicMessages,
            "publishers/anthropic/models/claude-x@1",
            "/publishers/anthropic/models/claude-x%401:rawPredict",
        ),
        (
            Api::AnthropicCountTokens,
            "claude-x",
            "/publishers/anthropic/models/count-tokens:rawPredict",
        ),
    ];
    for (api, model, wanted) in cases {
        let found = path(RequestStyle::Vertex, &azure, api, base, model);
        assert_eq!(found, format!("{base}{wanted}"));
    }
    let query = Some("alt=sse&key=secret");
    let found = asked(RequestStyle::Vertex, &azure, Api::Gemini, base, "g", query);
    let wanted = "/publishers/google/models/g:streamGenerateContent?alt=sse";
    assert_eq!(found, format!("{base}{wanted}"));
    let found = vertex_publisher_path(base, "anthropic", "claude-x@20260101", "streamRawPredict");
    let wanted = "/publishers/anthropic/models/claude-x%4020260101:streamRawPredict";
    assert_eq!(found, format!("{base}{wanted}"));
}

#[test]
fn bedrock_paths_encode_the_whole_model() {
    let cases = [
        (
            "anthropic.claude-x-v1:0",
            BedrockVerb::Converse,
            "/model/anthropic.claude-x-v1%3A0/converse",
        ),
        (
            "arn:aws:bedrock:us-east-1:1:provisioned-model/m",
            BedrockVerb::InvokeModelWithResponseStream,
            "/model/arn%3Aaws%3Abedrock%3Aus-east-1%3A1%3Aprovisioned-model%2Fm/invoke-with-response-stream",
        ),
    ];
    assert_eq!(
        bedrock_path("", ".", BedrockVerb::Converse),
        "/model/%252E/converse"
    );
    for (model, verb, wanted) in cases {
        assert_eq!(bedrock_path("", model, verb), wanted);
    }
    let streaming: Vec<&str> = BedrockVerb::ALL
        .into_iter()
        .filter(|verb| verb.streams())
        .map(BedrockVerb::text)
        .collect();
    assert_eq!(
        streaming,
        ["converse-stream", "invoke-with-response-stream"]
    );
    let azure = Azure::default();
    for (base, wanted) in [
        ("", "/openai/v1/chat/completions"),
        ("/openai/v1", "/openai/v1/chat/completions"),
        ("/v1", "/v1/chat/completions"),
    ] {
        assert_eq!(
            path(RequestStyle::Bedrock, &azure, Api::OpenaiChat, base, "m"),
            wanted
        );
    }
}

#[test]
fn copilot_has_no_version_in_openais_paths() {
    let azure = Azure::default();
    let style = registry::find("copilot").unwrap().style;
    let cases = [
        (Api::OpenaiChat, "/chat/completions"),
        (Api::OpenaiResponses, "/responses"),
        (Api::OpenaiEmbeddings, "/embeddings"),
        (Api::AnthropicMessages, "/v1/messages"),
    ];
    for (api, wanted) in cases {
        assert_eq!(path(style, &azure, api, "", "m"), wanted);
        assert_eq!(
            path(style, &azure, api, "/base/", "m"),
            format!("/base{wanted}")
        );
    }
}

#[test]
fn cohere_ranks_at_its_own_address() {
    let azure = Azure::default();
    let style = RequestStyle::Cohere;
    for base in ["/compatibility/v1", "/v2", "/v1", ""] {
        assert_eq!(path(style, &azure, Api::Rerank, base, "m"), "/v2/rerank");
        let chat = path(style, &azure, Api::OpenaiChat, base, "m");
        assert_eq!(chat, "/compatibility/v1/chat/completions");
        let embeddings = path(style, &azure, Api::OpenaiEmbeddings, base, "m");
        assert_eq!(embeddings, "/compatibility/v1/embeddings");
    }
    let base = "/proxy/compatibility/v1/";
    assert_eq!(
        path(style, &azure, Api::Rerank, base, "m"),
        "/proxy/v2/rerank"
    );
    let chat = path(style, &azure, Api::OpenaiChat, base, "m");
    assert_eq!(chat, "/proxy/compatibility/v1/chat/completions");
}

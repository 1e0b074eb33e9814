//! Request lines: which operation a client asks for, and the path at a target.

use rondo::core::api::{Api, ApiSet, Family};
use rondo::providers::inbound::{
    GeminiVerb, Inbound, Operation, Sent, Version, family_of, recognise,
};
use rondo::providers::outbound::{PathParts, upstream_path};

fn body_operation(api: Api) -> Inbound<'static> {
    Inbound::Operation(Operation {
        api,
        path_model: None,
        verb: None,
        version: Version::V1,
        stream_by_path: None,
    })
}

/// The path at a target of a client that speaks the usual version.
fn sent(api: Api, verb: Option<GeminiVerb>, base_path: &str, model: &str, query: &str) -> String {
    let version = match api {
        Api::Gemini => Version::V1beta,
        _ => Version::V1,
    };
    let query = Some(query);
    upstream_path(&PathParts {
        api,
        verb,
        version,
        base_path,
        model,
        stream: false,
        query,
    })
}

#[test]
fn every_format_stands_at_its_own_place() {
    for (index, api) in Api::ALL.into_iter().enumerate() {
        assert_eq!(api as usize, index);
        assert_eq!(Api::from_label(api.label()), Some(api));
        let others = ApiSet::of(&[api]).and(ApiSet::of(&[Api::OpenaiChat]));
        assert!(others.contains(api) && others.iter().count() <= 2);
    }
}

#[test]
fn every_documented_path_is_recognised() {
    let cases = [
        ("/v1/chat/completions", Api::OpenaiChat),
        ("/v1/completions", Api::OpenaiCompletions),
        ("/v1/responses", Api::OpenaiResponses),
        ("/v1/embeddings", Api::OpenaiEmbeddings),
        ("/v1/moderations", Api::OpenaiModerations),
        ("/v1/images/generations", Api::OpenaiImages),
        ("/v1/images/edits", Api::OpenaiImageEdits),
        ("/v1/images/variations", Api::OpenaiImageVariations),
        ("/v1/audio/speech", Api::OpenaiSpeech),
        ("/v1/audio/transcriptions", Api::OpenaiTranscriptions),
        ("/v1/audio/translations", Api::OpenaiTranslations),
        ("/v1/rerank", Api::Rerank),
        ("/v1/messages", Api::AnthropicMessages),
        ("/v1/messages/count_tokens", Api::AnthropicCountTokens),
    ];
    for (path, api) in cases {
        assert_eq!(recognise("POST", path), body_operation(api), "{path}");
        assert_eq!(
            recognise("POST", &format!("{path}/")),
            body_operation(api),
            "{path}/"
        );
        let (other, allow) = match api {
            Api::OpenaiResponses => ("PUT", "GET, POST"),
            _ => ("GET", "POST"),
        };
        assert_eq!(
            recognise(other, path),
            Inbound::MethodNotAllowed { allow },
            "{path}"
        );
        // What a client asks for at the gateway is what the gateway asks for at a target.
        assert_eq!(sent(api, None, "", "m", ""), path);
    }
    let sockets = [
        ("/v1/realtime", Api::OpenaiRealtime),
        ("/v1/responses", Api::OpenaiResponsesSocket),
    ];
    for (path, api) in sockets {
        assert_eq!(recognise("GET", path), body_operation(api), "{path}");
        assert_eq!(sent(api, None, "", "m", ""), path);
    }
    assert_eq!(
        recognise("POST", "/v1/realtime"),
        Inbound::MethodNotAllowed { allow: "GET" }
    );
    // The paths of four formats name the model.
    assert_eq!(cases.len() + sockets.len() + 4, Api::ALL.len());
    assert_eq!(recognise("GET", "/v1/models"), Inbound::ListModels);
    assert_eq!(
        recognise("POST", "/v1/models"),
        Inbound::MethodNotAllowed { allow: "GET" }
    );
}

#[test]
fn gemini_paths_name_model_and_verb() {
    for verb in GeminiVerb::ALL {
        let path = format!("/v1beta/models/gemini-2.5-pro:{}", verb.text());
        let Inbound::Operation(found) = recognise("POST", &path) else {
            panic!("{path}")
        };
        assert_eq!((found.api, found.verb), (Api::Gemini, Some(verb)));
        assert_eq!(found.path_model.as_deref(), Some("gemini-2.5-pro"));
        assert_eq!(
            found.stream_by_path,
            Some(verb == GeminiVerb::StreamGenerateContent)
        );
    }
    let decoded = [
        ("a%2Fb", "a/b"),
        ("a%3Ab", "a:b"),
        ("a:b", "a:b"),
        ("caf%C3%A9", "café"),
        ("..%2f..%2fadmin", "../../admin"),
    ];
    for (encoded, model) in decoded {
        let path = format!("/v1beta/models/{encoded}:generateContent");
        let Inbound::Operation(found) = recognise("POST", &path) else {
            panic!("{path}")
        };
        assert_eq!(found.path_model.as_deref(), Some(model));
    }
}

/// The client libraries of the provider use both.
#[test]
fn both_versions_of_gemini_are_served_and_kept() {
    for version in [Version::V1, Version::V1beta] {
        for verb in GeminiVerb::ALL {
            let rest = format!("models/m:{}", verb.text());
            let path = format!("/{}/{rest}", version.text());
            let Inbound::Operation(found) = recognise("POST", &path) else {
                panic!("{path}")
            };
            assert_eq!((found.verb, found.version), (Some(verb), version));
            let parts = PathParts {
                api: found.api,
                verb: found.verb,
                version: found.version,
                base_path: "",
                model: "m",
                stream: false,
                query: None,
            };
            assert_eq!(upstream_path(&parts), path);
            let base_path = "/v1alpha";
            let parts = PathParts { base_path, ..parts };
            assert_eq!(upstream_path(&parts), format!("/v1alpha/{rest}"));
        }
    }
}

#[test]
fn other_paths_are_not_found() {
    let long = format!("/v1beta/models/{}:generateContent", "m".repeat(1025));
    let paths = [
        "",
        "/",
        "//",
        "/v1",
        "/v1/",
        "/chat/completions",
        "/v1/chat/completions//",
        "/V1/chat/completions",
        "/v1/chat%2Fcompletions",
        "/v1/responses/resp_1",
        "/v1/responses/resp_1/cancel",
        "/v1/responses/compact",
        "/v1/files",
        "/v1/files/file-1",
        "/v1/batches",
        "/v1/threads/thread_1/runs",
        "/v1/vector_stores",
        "/v1/conversations/conv_1",
        "/v1/images",
        "/v1/audio",
        "/v2/rerank",
        "/v1/messages/batches",
        "/v1beta/models",
        "/v1beta/models/m",
        "/v1beta/models/m:predict",
        "/v1/models/m",
        "/v1/models/m:predict",
        "/v1alpha/models/m:generateContent",
        "/v1beta/models/:generateContent",
        "/v1beta/models/a/b:generateContent",
        "/v1beta/models/../x:generateContent",
        "/v1beta/models/m%:generateContent",
        "/v1beta/models/m%zz:generateContent",
        "/v1beta/models/m%FF:generateContent",
        "/v1beta/models/m%00:generateContent",
        "/v1beta/models/m%0d%0a:generateContent",
        &long,
    ];
    for path in paths {
        assert_eq!(recognise("POST", path), Inbound::NotFound, "{path}");
    }
}

// R-D3
#[test]
fn errors_of_unknown_paths_take_the_format_of_the_client() {
    use Sent::{No, Yes};
    let cases = [
        ("/v1beta/anything", No, No, Family::Gemini),
        ("/v1beta/anything", Yes, No, Family::Gemini),
        ("/v1/messages", No, No, Family::Anthropic),
        ("/v1/messages/batches", No, No, Family::Anthropic),
        ("/v1/messagesque", No, No, Family::Openai),
        ("/v1/models", Yes, No, Family::Anthropic),
        ("/v1/models", No, Yes, Family::Gemini),
        ("/v1/models", No, No, Family::Openai),
        ("/v1/chat/completions", Yes, Yes, Family::Openai),
        ("/elsewhere", No, No, Family::Openai),
    ];
    for (path, anthropic, goog, family) in cases {
        assert_eq!(family_of(path, anthropic, goog), family, "{path}");
    }
}

#[test]
fn the_version_of_a_base_is_not_doubled() {
    let cases = [
        ("", Api::OpenaiChat, "/v1/chat/completions"),
        ("/v1", Api::OpenaiChat, "/v1/chat/completions"),
        ("/v1/", Api::OpenaiResponses, "/v1/responses"),
        ("/openai/v1", Api::OpenaiEmbeddings, "/openai/v1/embeddings"),
        ("/proxy", Api::OpenaiCompletions, "/proxy/v1/completions"),
        (
            "/api/paas/v4",
            Api::OpenaiChat,
            "/api/paas/v4/chat/completions",
        ),
        (
            "/v1beta/openai",
            Api::OpenaiChat,
            "/v1beta/openai/chat/completions",
        ),
        ("/openai", Api::OpenaiChat, "/openai/v1/chat/completions"),
        ("/my-v1", Api::OpenaiChat, "/my-v1/v1/chat/completions"),
        ("/vault", Api::OpenaiChat, "/vault/v1/chat/completions"),
        ("/v", Api::OpenaiChat, "/v/v1/chat/completions"),
        ("/v2", Api::Rerank, "/v2/rerank"),
        (
            "/openai/v1",
            Api::OpenaiTranscriptions,
            "/openai/v1/audio/transcriptions",
        ),
        (
            "/anthropic",
            Api::AnthropicMessages,
            "/anthropic/v1/messages",
        ),
        (
            "/anthropic/v1",
            Api::AnthropicCountTokens,
            "/anthropic/v1/messages/count_tokens",
        ),
        ("", Api::Gemini, "/v1beta/models/m:generateContent"),
        ("/v1beta", Api::Gemini, "/v1beta/models/m:generateContent"),
        ("/v1alpha", Api::Gemini, "/v1alpha/models/m:generateContent"),
    ];
    for (base, api, path) in cases {
        let verb = (api == Api::Gemini).then_some(GeminiVerb::GenerateContent);
        assert_eq!(sent(api, verb, base, "m", ""), path, "{base}");
    }
}

#[test]
fn a_gemini_model_cannot_leave_its_place_in_the_path() {
    let cases = [
        (
            "gemini-2.5_pro~x",
            "/v1beta/models/gemini-2.5_pro~x:countTokens",
        ),
        ("a/b", "/v1beta/models/a%2Fb:countTokens"),
        ("models/a", "/v1beta/models/a:countTokens"),
        ("tunedModels/a", "/v1beta/tunedModels/a:countTokens"),
        (
            "tunedModels/../x",
            "/v1beta/models/tunedModels%2F..%2Fx:countTokens",
        ),
        ("tunedModels/", "/v1beta/models/tunedModels%2F:countTokens"),
        (
            "../../x?y#z",
            "/v1beta/models/..%2F..%2Fx%3Fy%23z:countTokens",
        ),
        ("é%2F", "/v1beta/models/%C3%A9%252F:countTokens"),
    ];
    for (model, path) in cases {
        let verb = Some(GeminiVerb::CountTokens);
        assert_eq!(sent(Api::Gemini, verb, "", model, ""), path);
    }
}

// R-X2, C172
#[test]
fn credentials_in_the_query_never_pass() {
    let cases = [
        ("alt=sse", "?alt=sse"),
        ("alt=sse&key=SECRET", "?alt=sse"),
        ("key=SECRET&alt=sse", "?alt=sse"),
        ("key=SECRET", ""),
        (
            "KEY=SECRET&%6Bey=SECRET&k%65%79=SECRET&$key=SECRET&%24key=SECRET",
            "",
        ),
        (
            "access_token=SECRET&api_key=SECRET&api-key=SECRET&beta=true",
            "?beta=true",
        ),
        ("a=1;key=SECRET&b=2", "?b=2"),
        ("%zz=SECRET", ""),
        ("key&alt=sse", "?alt=sse"),
        ("&&alt=sse&", "?alt=sse"),
        ("alt=sse#key=SECRET", ""),
        ("alt=s e&x=\u{e9}&y=1", "?y=1"),
        (
            "keyword=1&monkey=2&prettyPrint=false",
            "?keyword=1&monkey=2&prettyPrint=false",
        ),
        ("", ""),
    ];
    for (query, kept) in cases {
        let path = sent(Api::OpenaiChat, None, "", "m", query);
        assert_eq!(path, format!("/v1/chat/completions{kept}"), "{query}");
        assert!(!path.contains("SECRET"));
    }
}

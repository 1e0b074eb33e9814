//! Provider state and side effects: what binds an operation to its provider, and what keeps it from being certified.

use rondo::core::api::Api;
use rondo::providers::binding::{Binding, of_model};
use rondo::providers::planning::estimated_tokens;
use rondo::providers::scan::{Scan, scan};

/// Scans a request whose other members are these; the model is added where the API has it in the body.
fn facts(api: Api, members: &str) -> Scan {
    let body = match api {
        Api::Gemini => format!("{{{members}}}"),
        _ => format!(r#"{{"model":"m",{members}}}"#),
    };
    scan(api, body.as_bytes()).unwrap_or_else(|error| panic!("{error}: {body}"))
}

fn check_binding(api: Api, cases: &[(&str, Option<Binding>)]) {
    for (members, wanted) in cases {
        assert_eq!(facts(api, members).binding, *wanted, "{api}: {members}");
    }
}

fn check_side_effects(api: Api, cases: &[(&str, bool)]) {
    for (members, wanted) in cases {
        assert_eq!(
            facts(api, members).side_effects,
            *wanted,
            "{api}: {members}"
        );
    }
}

// What local limits are estimated with: each format has its own place for it, and no other is read.
#[test]
fn the_longest_answer_is_read_where_each_format_has_it() {
    let invoke = Api::BedrockInvoke;
    let cases = [
        (Api::OpenaiChat, r#""max_tokens":12"#, 12),
        (
            Api::OpenaiChat,
            r#""max_tokens":12,"max_completion_tokens":30"#,
            30,
        ),
        (Api::OpenaiResponses, r#""max_output_tokens":7"#, 7),
        (Api::AnthropicMessages, r#""max_tokens": 4096 "#, 4096),
        (
            Api::Gemini,
            r#""generationConfig":{"maxOutputTokens":5}"#,
            5,
        ),
        (
            Api::Gemini,
            r#""generation_config":{"max_output_tokens":5}"#,
            5,
        ),
        (
            Api::BedrockConverse,
            r#""inferenceConfig":{"maxTokens":9}"#,
            9,
        ),
        (invoke, r#""max_tokens":3"#, 3),
        (
            Api::OpenaiChat,
            r#""max_tokens":99999999999999999999999"#,
            u64::MAX,
        ),
        (Api::OpenaiChat, r#""max_tokens":-1"#, 0),
        (Api::OpenaiChat, r#""max_tokens":1.5"#, 0),
        (Api::OpenaiChat, r#""max_tokens":"12""#, 0),
        (Api::OpenaiChat, r#""max_tokens":null"#, 0),
        (Api::OpenaiChat, r#""metadata":{"max_tokens":12}"#, 0),
        (Api::OpenaiChat, r#""messages":[{"max_tokens":12}]"#, 0),
        (Api::Gemini, r#""maxOutputTokens":5"#, 0),
    ];
    for (api, members, wanted) in cases {
        assert_eq!(facts(api, members).length_max, wanted, "{api}: {members}");
    }
    assert_eq!(estimated_tokens(9, 20), 23);
    assert_eq!(estimated_tokens(0, u64::MAX), 1_000_000);
}

// A configuration of generation holds what binds, and schemas that are the user's own, as before.
#[test]
fn what_stands_beside_the_longest_answer_is_read_as_before() {
    let schema = r#""generationConfig":{"responseSchema":{"file_id":"x"},"maxOutputTokens":1}"#;
    assert_eq!(facts(Api::Gemini, schema).binding, None);
    let bound = r#""generationConfig":{"maxOutputTokens":1,"x":{"file_id":"y"}}"#;
    assert_eq!(facts(Api::Gemini, bound).binding, Some(Binding::File));
}

// R-S7, R-F8, C174, C175
#[test]
fn state_of_the_responses_api_binds() {
    let bound = |binding| Some(binding);
    check_binding(
        Api::OpenaiResponses,
        &[
            (
                r#""previous_response_id":"resp_1""#,
                bound(Binding::Response),
            ),
            (
                r#""previous\u005fresponse_id":"resp_1""#,
                bound(Binding::Response),
            ),
            (r#""conversation":"conv_1""#, bound(Binding::Conversation)),
            (
                r#""conversation":{"id":"conv_1"}"#,
                bound(Binding::Conversation),
            ),
            (
                r#""prompt":{"id":"pmpt_1","version":"2"}"#,
                bound(Binding::Id),
            ),
            (
                r#""background_options":{"continuation_id":"c"}"#,
                bound(Binding::Id),
            ),
            (
                r#""prompt_cache_options":{"comparison_response_id":"r"}"#,
                bound(Binding::Id),
            ),
            (
                r#""input":[{"type":"item_reference","id":"msg_1"}]"#,
                bound(Binding::Item),
            ),
            (r#""input":[{"id":"msg_1"}]"#, bound(Binding::Item)),
            (
                r#""input":[{"id":"rs_1","type":"reasoning","summary":[]}]"#,
                bound(Binding::Item),
            ),
            (
                r#""store":false,"input":[{"type":"reasoning","summary":[],"encrypted_content":"gAAA"}]"#,
                bound(Binding::Encrypted),
            ),
            (
                r#""input":[{"type":"compaction","encrypted_content":"gAAA"}]"#,
                bound(Binding::Encrypted),
            ),
            (
                r#""input":[{"type":"function_call","id":"fc_1","call_id":"c","name":"f","arguments":"{}"}]"#,
                bound(Binding::Item),
            ),
            (
                r#""input":[{"role":"user","content":[{"type":"input_file","file_id":"file-1"}]}]"#,
                bound(Binding::File),
            ),
            (
                r#""input":[{"type":"function_call_output","call_id":"c","output":[{"type":"input_image","file_id":"file-1"}]}]"#,
                bound(Binding::File),
            ),
            (
                r#""input":[{"type":"mcp_approval_response","approval_request_id":"mcpr_1","approve":true}]"#,
                bound(Binding::Id),
            ),
            (
                r#""tools":[{"type":"file_search","vector_store_ids":["vs_1"]}]"#,
                bound(Binding::Store),
            ),
            (
                r#""tools":[{"type":"code_interpreter","container":"cntr_1"}]"#,
                bound(Binding::Container),
            ),
            (
                r#""tools":[{"type":"code_interpreter","container":{"type":"auto","file_ids":["file-1"]}}]"#,
                bound(Binding::File),
            ),
            (
                r#""tools":[{"type":"shell","environment":{"type":"container_reference","container_id":"c"}}]"#,
                bound(Binding::Container),
            ),
            (
                r#""tools":[{"type":"mcp","server_label":"x","connector_id":"connector_gmail"}]"#,
                bound(Binding::Connector),
            ),
            (
                r#""tools":[{"type":"mcp","server_url":"https://x","authorization":"t"}]"#,
                bound(Binding::Connector),
            ),
        ],
    );
}

// R-S7, R-F8
#[test]
fn near_misses_of_the_responses_api_do_not_bind() {
    let free = [
        r#""previous_response_id":null"#,
        r#""previous_response_id":"""#,
        r#""conversation":null"#,
        r#""conversation":{}"#,
        r#""store":true,"input":"hi""#,
        r#""input":"\"previous_response_id\":\"resp_1\"""#,
        r#""input":"{\"type\":\"item_reference\"}""#,
        r#""input":[{"id":"msg_1","type":"message","role":"assistant","content":[]}]"#,
        r#""input":[{"role":"user","id":"x","content":"file_id"}]"#,
        r#""input":[{"role":"user","content":"hi"},{"type":"item_reference ","id":null}]"#,
        r#""input":[{"type":"reasoning","id":null,"summary":[]}]"#,
        r#""store":false,"input":[{"type":"function_call","id":"fc_1","call_id":"c"}]"#,
        r#""input":[{"type":"function_call","id":"fc_1","call_id":"c"}],"store":false"#,
        r#""input":[{"type":"function_call","call_id":"c","arguments":{"file_id":"f"}}]"#,
        r#""input":[{"type":"function_call_output","call_id":"c","output":"{\"file_id\":1}"}]"#,
        r#""input":[{"role":"user","content":[{"type":"input_file","file_id":null,"file_data":"x"}]}]"#,
        r#""tools":[{"type":"code_interpreter","container":{"type":"auto"}}]"#,
        r#""tools":[{"type":"code_interpreter","container":{"type":"auto","file_ids":[]}}]"#,
        r#""tools":[{"type":"file_search","vector_store_ids":[ ]}]"#,
        r#""tools":[{"type":"function","name":"f","parameters":{"properties":{"file_id":{"type":"string"},"previous_response_id":{"default":"x"}}}}]"#,
        r#""metadata":{"previous_response_id":"resp_1","file_id":"f"}"#,
        r#""text":{"format":{"type":"json_schema","name":"x","schema":{"properties":{"signature":{"type":"string"}}}}}"#,
        r#""prompt_cache_key":"k","safety_identifier":"s","user":"u","service_tier":"flex""#,
        r#""prompt":{"id":null}"#,
    ];
    check_binding(Api::OpenaiResponses, &free.map(|members| (members, None)));
}

// R-S7, R-F8
#[test]
fn state_of_the_chat_api_binds() {
    let user = |part: &str| format!(r#""messages":[{{"role":"user","content":[{part}]}}]"#);
    let assistant = |part: &str| format!(r#""messages":[{{"role":"assistant",{part}}}]"#);
    let file = user(r#"{"type":"file","file":{"file_id":"file-1"}}"#);
    let audio = assistant(r#""audio":{"id":"audio_1"}"#);
    let thought = assistant(
        r#""tool_calls":[{"id":"c","extra_content":{"google":{"thought_signature":"x"}}}]"#,
    );
    let details = assistant(r#""reasoning_details":[{"type":"reasoning.encrypted","data":"x"}]"#);
    let opaque = assistant(r#""reasoning_opaque":"x""#);
    let cases = [
        (file.as_str(), Some(Binding::File)),
        (&audio, Some(Binding::Id)),
        (&thought, Some(Binding::Signature)),
        (&details, Some(Binding::Encrypted)),
        (&opaque, Some(Binding::Encrypted)),
        (
            r#""audio":{"voice":{"id":"voice_1"},"format":"wav"}"#,
            Some(Binding::Id),
        ),
        (r#""conversation_id":"c""#, Some(Binding::Conversation)),
        (r#""agent_id":"a""#, Some(Binding::Prompt)),
        (r#""preset":"p""#, Some(Binding::Prompt)),
        (r#""id_slot":3"#, Some(Binding::Server)),
        (r#""kv_transfer_params":{"a":1}"#, Some(Binding::Server)),
        (r#""lora":[{"id":0,"scale":1}]"#, Some(Binding::Server)),
    ];
    check_binding(Api::OpenaiChat, &cases);
}

// R-S7, R-F8
#[test]
fn near_misses_of_the_chat_api_do_not_bind() {
    let free = [
        r#""messages":[{"role":"tool","tool_call_id":"call_1","content":"x"}]"#,
        r#""messages":[{"role":"assistant","tool_calls":[{"id":"call_1","type":"function","function":{"name":"f","arguments":"{\"file_id\":\"x\"}"}}]}]"#,
        r#""messages":[{"role":"assistant","tool_calls":[{"id":"call_1","function":{"name":"f","arguments":{"file_id":"x","signature":"s"}}}]}]"#,
        r#""messages":[{"role":"user","content":"my signature, file_id and thoughtSignature"}]"#,
        r#""messages":[{"role":"user","content":[{"type":"file","file":{"file_id":null,"file_data":"x"}}]}]"#,
        r#""messages":[{"role":"user","content":[{"type":"input_audio","input_audio":{"data":"x","format":"wav"}}]}]"#,
        r#""audio":{"voice":"alloy","format":"wav"}"#,
        r#""tools":[{"type":"function","function":{"name":"f","parameters":{"type":"object","properties":{"container":{"type":"string"},"file_id":{"const":"x"}}}}}]"#,
        r#""response_format":{"type":"json_schema","json_schema":{"name":"x","schema":{"properties":{"encrypted_content":{"type":"string"}}}}}"#,
        r#""stop_token_ids":[1,2],"return_tokens_as_token_ids":true"#,
        r#""id_slot":-1"#,
        r#""user_id":"u","request_id":"r""#,
        r#""metadata":{"conversation_id":"x","nested":{"file_id":"y"}}"#,
        r#""logit_bias":{"50256":-100}"#,
        r#""store":true"#,
        r#""chat_template_kwargs":{"thread_id":"x"}"#,
    ];
    check_binding(Api::OpenaiChat, &free.map(|members| (members, None)));
    check_binding(
        Api::OpenaiEmbeddings,
        &[(r#""input":["file_id",[1,2,3]]"#, None)],
    );
    check_binding(
        Api::OpenaiCompletions,
        &[
            (r#""prompt":["file_id"]"#, None),
            (r#""prompt":[1,2]"#, None),
            (r#""context":[1,2]"#, Some(Binding::Server)),
            (r#""context":[]"#, None),
        ],
    );
}

// R-S7, R-F8, C141
#[test]
fn state_of_the_messages_api_binds() {
    let blocks = |block: &str| format!(r#""messages":[{{"role":"x","content":[{block}]}}]"#);
    let cases = [
        (
            blocks(r#"{"type":"thinking","thinking":"t","signature":"Eq+/="}"#),
            Some(Binding::Signature),
        ),
        (
            blocks(r#"{"type":"redacted_thinking","data":"x"}"#),
            Some(Binding::Encrypted),
        ),
        (
            blocks(r#"{"type":"compaction","signature":"x"}"#),
            Some(Binding::Signature),
        ),
        (
            blocks(r#"{"type":"web_search_tool_result","content":[{"encrypted_content":"x"}]}"#),
            Some(Binding::Encrypted),
        ),
        (
            blocks(r#"{"type":"text","text":"t","citations":[{"encrypted_index":"x"}]}"#),
            Some(Binding::Encrypted),
        ),
        (
            blocks(r#"{"type":"document","source":{"type":"file","file_id":"file_1"}}"#),
            Some(Binding::File),
        ),
        (
            blocks(r#"{"type":"container_upload","file_id":"file_1"}"#),
            Some(Binding::File),
        ),
        (
            blocks(
                r#"{"type":"tool_result","tool_use_id":"t","content":[{"source":{"file_id":"f"}}]}"#,
            ),
            Some(Binding::File),
        ),
        (
            r#""container":"container_1""#.to_owned(),
            Some(Binding::Container),
        ),
        (
            r#""container":{"id":"container_1"}"#.to_owned(),
            Some(Binding::Id),
        ),
        (
            r#""container":{"skills":[{"type":"custom","skill_id":"s"}]}"#.to_owned(),
            Some(Binding::Id),
        ),
        (
            r#""thread":{"type":"continue","previous_message_id":"m"}"#.to_owned(),
            Some(Binding::Conversation),
        ),
        (
            r#""fallback_credit_token":"x""#.to_owned(),
            Some(Binding::Connector),
        ),
        (
            r#""mcp_servers":[{"url":"u","authorization_token":"t"}]"#.to_owned(),
            Some(Binding::Connector),
        ),
        // Near misses.
        (
            blocks(r#"{"type":"thinking","thinking":"t","signature":""}"#),
            None,
        ),
        (
            blocks(r#"{"type":"thinking","thinking":"signature"}"#),
            None,
        ),
        (
            blocks(
                r#"{"type":"tool_use","id":"t","name":"n","input":{"signature":"x","file_id":"f"}}"#,
            ),
            None,
        ),
        (
            blocks(r#"{"type":"tool_result","tool_use_id":"t","content":"file_id"}"#),
            None,
        ),
        (
            blocks(r#"{"type":"text","text":"t","cache_control":{"type":"ephemeral"}}"#),
            None,
        ),
        (r#""container":null"#.to_owned(), None),
        (
            r#""metadata":{"user_id":"u","file_id":"f"}"#.to_owned(),
            None,
        ),
        (
            r#""diagnostics":{"previous_message_id":"m"}"#.to_owned(),
            None,
        ),
        (
            r#""tools":[{"name":"t","input_schema":{"properties":{"signature":{"default":"x"}}}}]"#
                .to_owned(),
            None,
        ),
    ];
    for api in [Api::AnthropicMessages, Api::AnthropicCountTokens] {
        for (members, wanted) in &cases {
            check_binding(api, &[(members, *wanted)]);
        }
    }
}

// R-S7, R-F8
#[test]
fn state_of_the_gemini_api_binds() {
    let part = |part: &str| format!(r#""contents":[{{"role":"user","parts":[{part}]}}]"#);
    let cases = [
        (r#""cachedContent":"cachedContents/1""#.to_owned(), Some(Binding::Cache)),
        (r#""cached_content":"cachedContents/1""#.to_owned(), Some(Binding::Cache)),
        (part(r#"{"fileData":{"mimeType":"x","fileUri":"files/1"}}"#), Some(Binding::File)),
        (part(r#"{"file_data":{"file_uri":"gs://b/o"}}"#), Some(Binding::File)),
        (
            part(r#"{"functionCall":{"name":"f","args":{}},"thoughtSignature":"x"}"#),
            Some(Binding::Signature),
        ),
        (
            r#""tools":[{"fileSearch":{"fileSearchStoreNames":["fileSearchStores/1"]}}]"#.to_owned(),
            Some(Binding::Store),
        ),
        (
            r#""tools":[{"retrieval":{"vertexRagStore":{"ragResources":[{"ragCorpus":"c"}]}}}]"#
                .to_owned(),
            Some(Binding::Store),
        ),
        (r#""continuationToken":"t""#.to_owned(), Some(Binding::Response)),
        (
            r#""generateContentRequest":{"cachedContent":"cachedContents/1"}"#.to_owned(),
            Some(Binding::Cache),
        ),
        // Near misses.
        (r#""cachedContent":"""#.to_owned(), None),
        (part(r#"{"text":"thoughtSignature fileUri cachedContent"}"#), None),
        (part(r#"{"functionCall":{"id":"1","name":"f","args":{"fileUri":"x","file_id":"y"}}}"#), None),
        (part(r#"{"functionResponse":{"id":"1","name":"f","response":{"file_id":"y"}}}"#), None),
        (
            r#""tools":[{"functionDeclarations":[{"name":"f","parameters":{"properties":{"fileUri":{"type":"STRING","default":"x"}}}}]}]"#
                .to_owned(),
            None,
        ),
        (r#""labels":{"session_id":"x"}"#.to_owned(), None),
        (
            r#""generationConfig":{"responseSchema":{"properties":{"signature":{"example":"x"}}}}"#
                .to_owned(),
            None,
        ),
    ];
    for (members, wanted) in &cases {
        check_binding(Api::Gemini, &[(members, *wanted)]);
    }
}

// R-F8
#[test]
fn models_of_one_account_bind() {
    for name in [
        "ft:gpt-4o:org::id",
        "arn:aws:bedrock:x",
        "projects/p/locations/l",
        "tunedModels/x",
        "accounts/a/models/m",
        "@preset/x",
    ] {
        assert_eq!(of_model(name), Some(Binding::Model), "{name}");
        let body = format!(r#"{{"model":"{name}"}}"#);
        let found = scan(Api::OpenaiChat, body.as_bytes()).unwrap();
        assert_eq!(found.binding, Some(Binding::Model));
    }
    for name in [
        "gpt-4o",
        "openai/gpt-4o",
        "soft:x",
        "models/gemini",
        "my-ft:x",
        "arn",
    ] {
        assert_eq!(of_model(name), None, "{name}");
    }
}

// R-A5
#[test]
fn tools_that_run_at_the_provider_are_side_effects() {
    let responses = [
        "web_search",
        "web_search_preview",
        "web_search_2025_08_26",
        "code_interpreter",
        "file_search",
        "mcp",
        "computer_use_preview",
        "computer",
        "image_generation",
        "shell",
        "something_new",
    ];
    for name in responses {
        let tool = format!(r#""tools":[{{"type":"{name}"}}]"#);
        let after =
            format!(r#""tools":[{{"type":"function","name":"f"}},{{"x":1,"type":"{name}"}}]"#);
        check_side_effects(Api::OpenaiResponses, &[(&tool, true), (&after, true)]);
    }
    for name in [
        "web_search_20250305",
        "web_fetch_20250910",
        "code_execution_20250825",
        "computer_20250124",
    ] {
        let tool = format!(r#""tools":[{{"type":"{name}","name":"x"}}]"#);
        check_side_effects(Api::AnthropicMessages, &[(&tool, true)]);
    }
    for name in [
        "googleSearch",
        "google_search",
        "codeExecution",
        "urlContext",
        "fileSearch",
        "googleMaps",
    ] {
        let tool = format!(r#""tools":[{{"functionDeclarations":[]}},{{"{name}":{{}}}}]"#);
        check_side_effects(Api::Gemini, &[(&tool, true)]);
    }
}

// R-A5
#[test]
fn background_and_stored_conversations_are_side_effects() {
    check_side_effects(
        Api::OpenaiResponses,
        &[
            (r#""background":true"#, true),
            (r#""background":false"#, false),
            (r#""background":null"#, false),
            (r#""conversation":"conv_1""#, true),
            (r#""conversation":null"#, false),
            (r#""store":true"#, false),
            (r#""metadata":{"background":true}"#, false),
            (r#""input":"hi""#, false),
        ],
    );
    check_side_effects(
        Api::OpenaiChat,
        &[
            (r#""web_search_options":{}"#, true),
            (r#""web_search_options":null"#, false),
            (r#""plugins":[{"id":"web"}]"#, true),
            (r#""plugins":[]"#, false),
        ],
    );
    let servers = r#""mcp_servers":[{"type":"url","url":"https://x","name":"n"}]"#;
    check_side_effects(
        Api::AnthropicMessages,
        &[(servers, true), (r#""mcp_servers":[]"#, false)],
    );
}

// R-A5
#[test]
fn tools_that_run_at_the_client_are_not_side_effects() {
    let none = |cases: &[&str], api| {
        for members in cases {
            check_side_effects(api, &[(members, false)]);
        }
    };
    none(
        &[
            r#""tools":[]"#,
            r#""tools":[{"type":"function","function":{"name":"web_search","parameters":{"type":"object","properties":{"type":{"const":"web_search"}}}}}]"#,
            r#""tools":[{"type":"custom","custom":{"name":"x","format":{"type":"grammar"}}}]"#,
            r#""messages":[{"role":"user","content":[{"type":"web_search"}]}]"#,
            r#""tool_choice":{"type":"function","function":{"name":"mcp"}}"#,
        ],
        Api::OpenaiChat,
    );
    none(
        &[
            r#""tools":[{"name":"web_search","input_schema":{"type":"object"}}]"#,
            r#""tools":[{"type":"custom","name":"x"},{"type":"bash_20250124","name":"bash"},{"type":"text_editor_20250728","name":"e"},{"type":null}]"#,
        ],
        Api::AnthropicMessages,
    );
    none(
        &[
            r#""tools":[{"functionDeclarations":[{"name":"googleSearch"}]}]"#,
            r#""tools":[{"function_declarations":[{"name":"f"}],"googleSearch":null}]"#,
            r#""toolConfig":{"functionCallingConfig":{"mode":"AUTO"}}"#,
        ],
        Api::Gemini,
    );
}

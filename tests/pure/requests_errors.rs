//! Bodies that the gateway makes itself: errors in each envelope, and lists of models.

use std::collections::BTreeSet;

use rondo::core::api::{Api, Family};
use rondo::providers::envelope::{
    GatewayCode, GatewayError, MESSAGE_BYTES_MAX, encode, stream_error_event,
};
use rondo::providers::models_list::models_list;
use rondo::providers::scan::{ScanError, scan};
use serde_json::{Value, json};

fn body(family: Family, code: GatewayCode) -> Value {
    serde_json::from_slice(&encode(family, &GatewayError::plain(code), "req-1")).unwrap()
}

// R-D3
#[test]
fn every_code_has_a_row_in_every_envelope() {
    let labels: BTreeSet<_> = GatewayCode::ALL.iter().map(|code| code.label()).collect();
    assert_eq!(labels.len(), GatewayCode::ALL.len());
    for code in GatewayCode::ALL {
        assert!((400..=599).contains(&code.status()));
        let openai = body(Family::Openai, code);
        assert_eq!(openai["error"]["code"], code.label());
        assert_eq!(openai["error"]["param"], Value::Null);
        let anthropic = body(Family::Anthropic, code);
        assert_eq!(
            anthropic["error"]["details"],
            json!({"gateway": "rondo", "code": code.label()})
        );
        let gemini = body(Family::Gemini, code);
        assert_eq!(gemini["error"]["code"], code.status());
        assert_eq!(
            gemini["error"]["details"][0]["reason"],
            code.label().to_ascii_uppercase()
        );
        for body in [openai, anthropic, gemini] {
            assert!(
                body["error"]["message"]
                    .as_str()
                    .unwrap()
                    .starts_with("rondo: ")
            );
        }
    }
}

// R-D3
#[test]
fn envelopes_have_the_shape_of_their_family() {
    let error = GatewayError::new(
        GatewayCode::ModelNotFound,
        "no route serves the model \"x\"",
    );
    let parse = |family| serde_json::from_slice::<Value>(&encode(family, &error, "req-1")).unwrap();
    let message = "rondo: no route serves the model \"x\"";
    assert_eq!(
        parse(Family::Openai),
        json!({"error": {"message": message, "type": "invalid_request_error", "param": null, "code": "model_not_found"}})
    );
    assert_eq!(
        parse(Family::Anthropic),
        json!({"type": "error", "error": {"type": "not_found_error", "message": message,
            "details": {"gateway": "rondo", "code": "model_not_found"}}, "request_id": "req-1"})
    );
    assert_eq!(
        parse(Family::Gemini),
        json!({"error": {"code": 404, "message": message, "status": "NOT_FOUND", "details": [
            {"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "MODEL_NOT_FOUND",
             "domain": "rondo", "metadata": {"request_id": "req-1"}}]}})
    );
}

// R-D3
#[test]
fn types_follow_the_status() {
    let cases = [
        (
            GatewayCode::InvalidJson,
            "invalid_request_error",
            "invalid_request_error",
            "INVALID_ARGUMENT",
        ),
        (
            GatewayCode::RequestTooLarge,
            "invalid_request_error",
            "request_too_large",
            "INVALID_ARGUMENT",
        ),
        (
            GatewayCode::UpstreamThrottled,
            "rate_limit_error",
            "rate_limit_error",
            "RESOURCE_EXHAUSTED",
        ),
        (
            GatewayCode::Internal,
            "server_error",
            "api_error",
            "INTERNAL",
        ),
        (
            GatewayCode::UpstreamUnreachable,
            "server_error",
            "api_error",
            "UNAVAILABLE",
        ),
        (
            GatewayCode::Overloaded,
            "service_unavailable_error",
            "api_error",
            "UNAVAILABLE",
        ),
        (
            GatewayCode::UpstreamTimeout,
            "server_error",
            "timeout_error",
            "DEADLINE_EXCEEDED",
        ),
    ];
    for (code, openai, anthropic, gemini) in cases {
        assert_eq!(body(Family::Openai, code)["error"]["type"], openai);
        assert_eq!(body(Family::Anthropic, code)["error"]["type"], anthropic);
        assert_eq!(body(Family::Gemini, code)["error"]["status"], gemini);
    }
}

#[test]
fn messages_are_bounded_and_stay_text() {
    let error = GatewayError::new(GatewayCode::ModelNotFound, &"é\"\n".repeat(1000));
    assert!((MESSAGE_BYTES_MAX - 3..=MESSAGE_BYTES_MAX).contains(&error.message().len()));
    for family in [Family::Openai, Family::Anthropic, Family::Gemini] {
        let body: Value = serde_json::from_slice(&encode(family, &error, "r")).unwrap();
        assert_eq!(body["error"]["message"], error.message());
    }
}

// R-D3
#[test]
fn a_body_that_cannot_be_served_is_a_400() {
    let cases: [(&[u8], GatewayCode); 4] = [
        (b"{", GatewayCode::InvalidJson),
        (b"{}", GatewayCode::ModelMissing),
        (b"{\"model\":1}", GatewayCode::InvalidRequest),
        (b"{\"model\":\"\\ud800\"}", GatewayCode::InvalidRequest),
    ];
    for (body, code) in cases {
        let error = GatewayError::from(scan(Api::OpenaiChat, body).unwrap_err());
        assert_eq!((error.code(), error.status()), (code, 400));
    }
    let error = GatewayError::from(ScanError::NotJson {
        offset: 7,
        what: "a colon was expected",
    });
    assert_eq!(
        error.message(),
        "rondo: the body is not valid JSON: a colon was expected at byte 7"
    );
}

// R-D3
#[test]
fn a_broken_stream_ends_with_one_error_event() {
    let error = GatewayError::plain(GatewayCode::StreamInterrupted);
    // A broken stream of frames is cut: no event of text can follow.
    let of_text = |api: &Api| api.family() != Family::Bedrock;
    for api in Api::ALL.into_iter().filter(of_text) {
        let event = stream_error_event(api, &error, "req-1");
        let text = std::str::from_utf8(&event).unwrap();
        assert!(text.ends_with("\n\n") && !text.contains("[DONE]"), "{text}");
        let lines: Vec<_> = text.trim_end().lines().collect();
        let named = matches!(
            api,
            Api::OpenaiResponses | Api::AnthropicMessages | Api::AnthropicCountTokens
        );
        assert_eq!(lines.len(), if named { 2 } else { 1 });
        assert_eq!(lines[0] == "event: error", named);
        let data = lines.last().unwrap().strip_prefix("data: ").unwrap();
        let data: Value = serde_json::from_str(data).unwrap();
        assert_eq!(data["error"]["message"], error.message());
    }
    let event = stream_error_event(Api::OpenaiResponses, &error, "req-1");
    let data = std::str::from_utf8(&event)
        .unwrap()
        .split_once("data: ")
        .unwrap()
        .1;
    let data: Value = serde_json::from_str(data).unwrap();
    assert_eq!(
        (&data["type"], &data["code"]),
        (&json!("error"), &json!("stream_interrupted"))
    );
}

#[test]
fn models_are_listed_in_the_shape_of_the_client() {
    let list = |family, names: &[&str]| -> Value {
        serde_json::from_slice(&models_list(family, names, 1_735_689_600)).unwrap()
    };
    assert_eq!(
        list(Family::Openai, &["a"]),
        json!({"object": "list", "data": [{"id": "a", "object": "model", "created": 1_735_689_600, "owned_by": "rondo"}]})
    );
    assert_eq!(
        list(Family::Anthropic, &["a", "b"]),
        json!({"data": [
            {"type": "model", "id": "a", "display_name": "a", "created_at": "2025-01-01T00:00:00Z"},
            {"type": "model", "id": "b", "display_name": "b", "created_at": "2025-01-01T00:00:00Z"}],
            "has_more": false, "first_id": "a", "last_id": "b"})
    );
    assert_eq!(
        list(Family::Gemini, &["a"])["models"][0]["name"],
        "models/a"
    );
    assert_eq!(list(Family::Openai, &[])["data"], json!([]));
    assert_eq!(list(Family::Anthropic, &[])["first_id"], Value::Null);
}

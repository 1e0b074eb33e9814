//! Bodies for targets: byte for byte the client's, except the model.

use bytes::Bytes;
use rondo::core::api::Api;
use rondo::providers::outbound::{Segments, json_string, splice};
use rondo::providers::scan::scan;

fn spliced(api: Api, body: &Bytes, model: &str) -> Segments {
    splice(body, &scan(api, body).unwrap(), model)
}

fn joined(segments: &Segments) -> Vec<u8> {
    let bytes: Vec<u8> = segments
        .iter()
        .flat_map(|part| part.iter().copied())
        .collect();
    assert_eq!(bytes.len(), segments.len());
    bytes
}

fn check(api: Api, body: &str, model: &str, wanted: &str) {
    let segments = spliced(api, &Bytes::copy_from_slice(body.as_bytes()), model);
    assert_eq!(String::from_utf8(joined(&segments)).unwrap(), wanted);
}

// R-X1, C139
#[test]
fn numbers_are_not_touched() {
    let rest = r#","seed":9223372036854775807,"tools":[{"type":"function","maximum":18446744073709551615}],"x":1e400,"y":0.1000000000000000055,"z":-0.0,"w":1E+2}"#;
    let body = format!(r#"{{"model":"alias"{rest}"#);
    check(
        Api::OpenaiChat,
        &body,
        "real",
        &format!(r#"{{"model":"real"{rest}"#),
    );
}

/// A batch of embeddings names the model in each of its requests, as many as the provider takes.
// R-X1
#[test]
fn each_request_of_a_batch_gets_the_targets_model() {
    let batch = |model: &str| {
        let one = format!(r#"{{"model":"models/{model}","content":{{"parts":[{{"text":"a"}}]}}}}"#);
        format!(r#"{{"requests":[{}]}}"#, vec![one; 100].join(","))
    };
    check(Api::Gemini, &batch("alias"), "real", &batch("real"));
    check(Api::Gemini, &batch("alias"), "alias", &batch("alias"));
}

// R-X1, C140, C141, C145
#[test]
fn order_spacing_escapes_and_duplicates_are_not_touched() {
    let body = "{ \"z\" :1,\n\t\"a\":\"\\u0041\\/\\ud800\" ,\"model\" : \"alias\"  ,\"a\":2,\"signature\":\"a+/=\"}\r\n";
    check(
        Api::OpenaiChat,
        body,
        "real",
        &body.replace("\"alias\"", "\"real\""),
    );
}

// R-X1, C137
#[test]
fn every_target_is_built_from_the_pristine_body() {
    let body = Bytes::from_static(br#"{"model":"m","messages":[]}"#);
    let facts = scan(Api::OpenaiChat, &body).unwrap();
    let pristine = body.clone();
    assert_eq!(
        joined(&splice(&body, &facts, "a")),
        br#"{"model":"a","messages":[]}"#
    );
    assert_eq!(
        joined(&splice(&body, &facts, "bbb")),
        br#"{"model":"bbb","messages":[]}"#
    );
    assert_eq!(
        joined(&splice(&body, &facts, "a")),
        br#"{"model":"a","messages":[]}"#
    );
    assert_eq!(body, pristine);
}

// R-X1, C136
#[test]
fn the_length_is_that_of_the_spliced_body() {
    let body = Bytes::from_static(br#"{"model":"middle","n":1}"#);
    for (model, len) in [
        ("x", body.len() - 5),
        ("middle", body.len()),
        ("much-longer", body.len() + 5),
    ] {
        assert_eq!(spliced(Api::OpenaiChat, &body, model).len(), len);
    }
}

// R-X1
#[test]
fn the_body_is_shared_and_not_copied() {
    let body = Bytes::from(format!(r#"{{"model":"m","x":"{}"}}"#, "y".repeat(100_000)));
    let range = body.as_ptr_range();
    let same = spliced(Api::OpenaiChat, &body, "m");
    let parts: Vec<_> = same.into_iter().collect();
    assert_eq!(parts.len(), 1);
    assert_eq!(parts[0].as_ptr_range(), range);
    let parts: Vec<_> = spliced(Api::OpenaiChat, &body, "other")
        .into_iter()
        .collect();
    assert_eq!(parts.len(), 3);
    assert_eq!(parts[0].as_ptr(), range.start);
    assert_eq!(parts[2].as_ptr_range().end, range.end);
}

// R-X1
#[test]
fn the_clients_own_model_keeps_the_body_as_it_came() {
    for body in [
        r#"{"model":"m"}"#,
        r#"{"model":"\u006d"}"#,
        r#"{"model":"m","model":"\u006d"}"#,
    ] {
        check(Api::OpenaiChat, body, "m", body);
    }
}

// R-X1
#[test]
fn no_parser_can_read_another_model() {
    check(
        Api::OpenaiChat,
        r#"{"model":"a","x":0,"model":"b"}"#,
        "t",
        r#"{"model":"t","x":0,"model":"t"}"#,
    );
    check(
        Api::OpenaiChat,
        r#"{"model":"a","x":0,"model":"b"}"#,
        "b",
        r#"{"model":"b","x":0,"model":"b"}"#,
    );
    check(
        Api::OpenaiChat,
        r#"{"mod\u0065l":"a","model":"b"}"#,
        "t",
        r#"{"mod\u0065l":"t","model":"t"}"#,
    );
    check(
        Api::OpenaiChat,
        r#"{"model":"a","x":{"model":"a"}}"#,
        "t",
        r#"{"model":"t","x":{"model":"a"}}"#,
    );
}

// R-X1
#[test]
fn a_gemini_body_follows_its_path() {
    check(
        Api::OpenaiChat,
        r#"{"model":"models/a"}"#,
        "t",
        r#"{"model":"t"}"#,
    );
    check(Api::Gemini, r#"{"contents":[]}"#, "t", r#"{"contents":[]}"#);
    check(
        Api::Gemini,
        r#"{"model":"models/a"}"#,
        "t",
        r#"{"model":"models/t"}"#,
    );
    check(
        Api::Gemini,
        r#"{"model":"models/a"}"#,
        "models/t",
        r#"{"model":"models/t"}"#,
    );
    check(
        Api::Gemini,
        r#"{"generateContentRequest":{"model":"models/a","contents":[]}}"#,
        "t",
        r#"{"generateContentRequest":{"model":"models/t","contents":[]}}"#,
    );
}

// R-X1
#[test]
fn a_model_is_escaped() {
    let cases = [
        ("gpt-4o", r#""gpt-4o""#),
        ("a\"b\\c/d", r#""a\"b\\c/d""#),
        ("\n\u{1f}\0", r#""\u000a\u001f\u0000""#),
        ("é😀", r#""é😀""#),
    ];
    for (model, token) in cases {
        assert_eq!(json_string(model), token.as_bytes());
        assert_eq!(
            serde_json::from_slice::<String>(&json_string(model)).unwrap(),
            model
        );
    }
}

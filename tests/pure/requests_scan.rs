//! What a body says: model, stream, and the errors of bodies that cannot be served.

use rondo::core::api::Api;
use rondo::providers::scan::{DEPTH_MAX, Scan, ScanError, scan};

fn chat(body: &str) -> Result<Scan, ScanError> {
    scan(Api::OpenaiChat, body.as_bytes())
}

fn model(body: &str) -> String {
    chat(body).unwrap().model.unwrap().into()
}

#[test]
fn the_model_is_found_wherever_and_however_it_is_written() {
    let cases = [
        (r#"{"model":"gpt-4o"}"#, "gpt-4o"),
        ("\u{feff} \r\n\t{ \"model\" :\n\"gpt-4o\" } \n", "gpt-4o"),
        (
            r#"{"messages":[{"model":"x"},"\"model\":\"y\""],"model":"m"}"#,
            "m",
        ),
        (r#"{"metadata":{"model":"x"},"model":"m"}"#, "m"),
        (r#"{"mod\u0065l":"m"}"#, "m"),
        (r#"{"model":"\u0041\/\"\\\u00e9"}"#, "A/\"\\é"),
        (r#"{"model":"\ud83d\ude00"}"#, "😀"),
        (r#"{"model":"a","model":"b"}"#, "b"),
        (
            r#"{"x":"\ud800 \udfff","big":-0.1e400,"n":9223372036854775808,"model":"m"}"#,
            "m",
        ),
        (r#"{"x":"\\","model":"m"}"#, "m"),
        (r#"{"x":"\\\"","model":"m","y":"\\\\"}"#, "m"),
    ];
    for (body, wanted) in cases {
        assert_eq!(model(body), wanted, "{body}");
    }
}

#[test]
fn stream_is_the_last_literal_true_of_the_request_object() {
    let cases = [
        (r#"{"model":"m","stream":true}"#, true),
        (r#"{"stream":false,"model":"m","stream":true}"#, true),
        (r#"{"stream":true,"model":"m","stream":false}"#, false),
        (r#"{"model":"m","stream":"true"}"#, false),
        (r#"{"model":"m","stream":1}"#, false),
        (r#"{"model":"m","stream":null}"#, false),
        (
            r#"{"model":"m","x":{"stream":true},"y":"\"stream\":true"}"#,
            false,
        ),
        (
            r#"{"model":"m","stream_options":{"include_usage":true}}"#,
            false,
        ),
        (r#"{"model":"m","str\u0065am":true}"#, true),
    ];
    for (body, wanted) in cases {
        assert_eq!(chat(body).unwrap().stream, wanted, "{body}");
    }
}

#[test]
fn a_body_without_a_usable_model_is_refused() {
    let long = format!(r#"{{"model":"{}"}}"#, "m".repeat(1025));
    let five = format!("{{{}}}", [r#""model":"m""#; 5].join(","));
    let cases = [
        ("{}", ScanError::NoModel),
        (r#"{"messages":[{"model":"m"}]}"#, ScanError::NoModel),
        (r#"{"model":""}"#, ScanError::NoModel),
        (r#"{"model":null}"#, ScanError::ModelNotString),
        (r#"{"model":4}"#, ScanError::ModelNotString),
        (r#"{"model":["m"]}"#, ScanError::ModelNotString),
        (r#"{"model":{"model":"m"}}"#, ScanError::ModelNotString),
        (r#"{"model":"m","model":{}}"#, ScanError::ModelNotString),
        (r#"{"model":"\ud800"}"#, ScanError::ModelInvalid),
        (r#"{"model":"\ud83dx"}"#, ScanError::ModelInvalid),
        (r#"{"model":"\ud83d\u0041"}"#, ScanError::ModelInvalid),
        (r#"{"model":"\udc00"}"#, ScanError::ModelInvalid),
        (r#"{"model":"a\nb"}"#, ScanError::ModelInvalid),
        (r#"{"model":"\q"}"#, ScanError::ModelInvalid),
        (r#"{"model":"\u12"}"#, ScanError::ModelInvalid),
        (&long, ScanError::ModelInvalid),
        (&five, ScanError::TooManyModels),
    ];
    for (body, wanted) in cases {
        assert_eq!(chat(body), Err(wanted), "{body}");
    }
    assert_eq!(
        scan(Api::OpenaiChat, b"{\"model\":\"\xff\"}"),
        Err(ScanError::ModelInvalid)
    );
}

#[test]
fn what_is_not_one_json_object_is_refused_with_its_place() {
    let cases = [
        ("", 0),
        ("  ", 2),
        ("[]", 0),
        ("\"model\"", 0),
        ("nul", 0),
        ("{", 1),
        (r#"{"a"}"#, 4),
        (r#"{"a":}"#, 5),
        (r#"{"a":1,}"#, 7),
        (r#"{"a":1 "b":2}"#, 7),
        (r#"{"a":1]"#, 6),
        (r#"{"a":[1}}"#, 7),
        (r#"{"a":[1,]}"#, 8),
        (r#"{"a":[,1]}"#, 6),
        (r#"{a:1}"#, 1),
        (r#"{"a":tru}"#, 5),
        (r#"{"a":truee}"#, 9),
        (r#"{"a":01}"#, 6),
        (r#"{"a":1.}"#, 7),
        (r#"{"a":-}"#, 6),
        (r#"{"a":1e}"#, 7),
        (r#"{"a":+1}"#, 5),
        (r#"{"a":.5}"#, 5),
        (r#"{"a":NaN}"#, 5),
        (r#"{"a":"b}"#, 5),
        (r#"{"a":"b\"}"#, 5),
        (r#"{"a":"\"#, 5),
        (r#"{"model":"m"}x"#, 13),
        (r#"{"model":"m"}{}"#, 13),
        (r#"{"model":"m"}}"#, 13),
    ];
    for (body, place) in cases {
        let Err(ScanError::NotJson { offset, .. }) = chat(body) else {
            panic!("{body}")
        };
        assert_eq!(offset, place, "{body}");
    }
}

#[test]
fn nesting_is_bounded() {
    let nested = |depth: usize| {
        let (open, close) = ("[".repeat(depth - 1), "]".repeat(depth - 1));
        format!(r#"{{"model":"m","x":{open}{close}}}"#)
    };
    assert!(chat(&nested(DEPTH_MAX)).is_ok());
    assert_eq!(chat(&nested(DEPTH_MAX + 1)), Err(ScanError::TooDeep));
    assert_eq!(
        chat(&format!(r#"{{"x":{}"#, "[".repeat(1_000_000))),
        Err(ScanError::TooDeep)
    );
    assert_eq!(chat(&r#"{"x":"#.repeat(1_000_000)), Err(ScanError::TooDeep));
}

#[test]
fn a_gemini_body_needs_no_model() {
    let found = scan(Api::Gemini, br#"{"contents":[{"parts":[{"text":"hi"}]}]}"#).unwrap();
    assert!(found.model.is_none() && found.model_spans.is_empty() && found.binding.is_none());
    assert!(matches!(
        scan(Api::Gemini, b"{\"contents\":["),
        Err(ScanError::NotJson { .. })
    ));
}

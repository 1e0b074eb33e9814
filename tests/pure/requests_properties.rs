//! Properties of scanning and splicing over arbitrary bodies.

use bytes::Bytes;
use proptest::collection::{btree_map, vec};
use proptest::prelude::*;
use rondo::core::api::{Api, Family};
use rondo::providers::inbound::{Inbound, recognise};
use rondo::providers::outbound::{PathParts, splice, upstream_path};
use rondo::providers::scan::scan;
use serde_json::{Map, Value};

fn json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::Bool),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        any::<String>().prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 40, 6, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..6).prop_map(Value::Array),
            btree_map(key(), inner, 0..6).prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

fn key() -> impl Strategy<Value = String> {
    prop_oneof![
        any::<String>(),
        prop::sample::select(vec![
            "model", "stream", "type", "id", "input", "tools", "metadata"
        ])
        .prop_map(str::to_owned),
    ]
}

prop_compose! {
    fn request()(
        members in btree_map("[a-z]{0,9}", json(), 0..6),
        model in "[^\\p{Cc}]{1,20}",
        stream in proptest::option::of(any::<bool>()),
        at in any::<prop::sample::Index>(),
    ) -> Value {
        let mut members: Vec<(String, Value)> = members.into_iter().collect();
        members.retain(|(key, _)| key != "model" && key != "stream");
        members.insert(at.index(members.len() + 1), ("model".into(), Value::from(model)));
        if let Some(stream) = stream {
            members.insert(at.index(members.len() + 1), ("stream".into(), Value::from(stream)));
        }
        Value::Object(Map::from_iter(members))
    }
}

fn text(value: &Value, pretty: bool) -> Bytes {
    let bytes = if pretty {
        serde_json::to_vec_pretty(value)
    } else {
        serde_json::to_vec(value)
    };
    Bytes::from(bytes.unwrap())
}

fn api() -> impl Strategy<Value = Api> {
    // Bodies of Bedrock name no model of ours.
    let json = Api::ALL
        .into_iter()
        .filter(|api| !api.is_form() && api.family() != Family::Bedrock);
    prop::sample::select(json.collect::<Vec<_>>())
}

proptest! {
    // R-X1
    #[test]
    fn scanning_agrees_with_a_json_parser(api in api(), value in request(), pretty: bool) {
        let found = scan(api, &text(&value, pretty)).unwrap();
        prop_assert_eq!(found.model.as_deref(), value["model"].as_str());
        if api != Api::Gemini {
            prop_assert_eq!(found.stream, value["stream"] == true);
        }
    }

    // R-X1
    #[test]
    fn splicing_changes_the_model_alone(value in request(), target in "[^\\p{Cc}]{1,20}", pretty: bool) {
        let body = text(&value, pretty);
        let found = scan(Api::OpenaiChat, &body).unwrap();
        let segments = splice(&body, &found, &target);
        let sent: Vec<u8> = segments.iter().flat_map(|part| part.to_vec()).collect();
        prop_assert_eq!(sent.len(), segments.len());
        let mut wanted: Value = serde_json::from_slice(&body).unwrap();
        wanted["model"] = Value::from(target.as_str());
        prop_assert_eq!(&serde_json::from_slice::<Value>(&sent).unwrap(), &wanted);
        // Around the model every byte is the client's.
        let span = found.model_spans.iter().next().unwrap();
        prop_assert!(sent.starts_with(&body[..span.start]));
        prop_assert!(sent.ends_with(&body[span.end..]));
    }

    #[test]
    fn a_truncated_body_is_never_served(api in api(), value in request(), at: prop::sample::Index) {
        let body = text(&value, false);
        prop_assert!(scan(api, &body[..at.index(body.len())]).is_err());
    }

    #[test]
    fn bytes_never_panic_and_spans_lie_inside(api in api(), body in vec(any::<u8>(), 0..200)) {
        check_any(api, body)?;
    }

    #[test]
    fn bytes_that_look_like_json_never_panic(
        api in api(),
        tokens in vec(prop::sample::select(vec![
            "{", "}", "[", "]", ":", ",", "\"", "\\", "\"model\"", "\"m\"", "\"input\"", "\"type\"",
            "\"item_reference\"", "\"id\"", "\"tools\"", "1", "-", "e", "true", "null", " ", "\\ud800",
        ]), 0..40),
    ) {
        check_any(api, tokens.concat().into_bytes())?;
    }

    #[test]
    fn one_changed_byte_is_an_error_or_still_json(value in request(), at: prop::sample::Index, byte: u8) {
        let mut body = text(&value, false).to_vec();
        let at = at.index(body.len());
        body[at] = byte;
        check_any(Api::OpenaiChat, body)?;
    }

    // R-X2
    #[test]
    fn paths_never_panic_and_stay_below_their_base(path in any::<String>(), query in any::<String>()) {
        for path in [path.clone(), format!("/v1beta/models/{path}:generateContent")] {
            if let Inbound::Operation(found) = recognise("POST", &path) {
                let model = found.path_model.unwrap_or_default();
                let sent = upstream_path(&PathParts {
                    api: found.api,
                    verb: found.verb,
                    version: found.version,
                    base_path: "/base",
                    model: &model,
                    stream: false,
                    query: Some(&query),
                });
                prop_assert!(sent.bytes().all(|byte| byte.is_ascii_graphic()));
                prop_assert!(sent.starts_with("/base/v1"));
                let segments = sent.split('?').next().unwrap().split('/').count();
                prop_assert!(segments <= 5);
            }
        }
    }
}

/// What a scan accepts, a JSON parser accepts, too, apart from the inside of strings and the size of numbers.
fn check_any(api: Api, body: Vec<u8>) -> Result<(), TestCaseError> {
    let body = Bytes::from(body);
    let Ok(found) = scan(api, &body) else {
        return Ok(());
    };
    for span in found.model_spans.iter() {
        prop_assert!(body[span.clone()].starts_with(b"\"") && body[span].ends_with(b"\""));
    }
    let sent: Vec<u8> = splice(&body, &found, "t").into_iter().flatten().collect();
    prop_assert!(scan(api, &sent).is_ok());
    if let Ok(value) = serde_json::from_slice::<Value>(&body) {
        prop_assert!(value.is_object());
        if api != Api::Gemini {
            prop_assert_eq!(found.model.as_deref(), value["model"].as_str());
        }
    }
    Ok(())
}

//! The JSON Schema, its file, and that it and the reader know the same keys.

use std::collections::BTreeSet;

use rondo::config::json_schema;
use serde_json::Value;

use super::errors;

const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/conf/rondo.schema.json");

/// Run with `RONDO_UPDATE_SCHEMA=1` to write the file anew.
#[test]
fn the_schema_file_is_in_step() {
    let schema = format!("{:#}\n", json_schema());
    if std::env::var_os("RONDO_UPDATE_SCHEMA").is_some() {
        std::fs::write(FILE, &schema).unwrap();
    }
    let file = std::fs::read_to_string(FILE).unwrap();
    assert!(
        file == schema,
        "conf/rondo.schema.json is out of step; run this test with RONDO_UPDATE_SCHEMA=1"
    );
}

/// Paths of the mappings of the schema with their keys; `*` is a list or a chosen name.
fn mappings(schema: &Value, path: &str, found: &mut Vec<(String, Vec<String>)>) {
    if let Some(properties) = schema["properties"].as_object() {
        found.push((path.to_owned(), properties.keys().cloned().collect()));
        for (key, value) in properties {
            mappings(value, &format!("{path}/{key}"), found);
        }
    }
    for part in ["items", "additionalProperties"] {
        if schema[part].is_object() {
            mappings(&schema[part], &format!("{path}/*"), found);
        }
    }
}

/// A file whose mapping at the path holds one unknown key.
fn with_unknown_key(path: &str, lists: &BTreeSet<String>) -> String {
    let mut text = "{ zzzzzzzz: 1 }".to_owned();
    let mut rest = path;
    while let Some((parent, key)) = rest.rsplit_once('/') {
        text = match key {
            "*" if lists.contains(parent) => format!("[{text}]"),
            "*" => format!("{{ n: {text} }}"),
            key => format!("{{ {key}: {text} }}"),
        };
        rest = parent;
    }
    text
}

fn lists(schema: &Value, path: &str, found: &mut BTreeSet<String>) {
    if schema["type"] == "array" {
        found.insert(path.to_owned());
        lists(&schema["items"], &format!("{path}/*"), found);
    }
    for (key, value) in schema["properties"].as_object().into_iter().flatten() {
        lists(value, &format!("{path}/{key}"), found);
    }
    if schema["additionalProperties"].is_object() {
        lists(&schema["additionalProperties"], &format!("{path}/*"), found);
    }
}

// R-C1
#[test]
fn the_reader_and_the_schema_know_the_same_keys() {
    let schema = json_schema();
    let (mut found, mut list_paths) = (Vec::new(), BTreeSet::new());
    mappings(&schema, "", &mut found);
    lists(&schema, "", &mut list_paths);
    assert!(found.len() > 15, "{found:?}");
    for (path, keys) in found {
        let text = with_unknown_key(&path, &list_paths);
        let lines = errors(&text);
        let line = lines
            .iter()
            .find(|line| line.contains("unknown key"))
            .expect(&text);
        let (_, allowed) = line.rsplit_once("llowed here: ").unwrap();
        let allowed: Vec<&str> = allowed.split(", ").collect();
        assert_eq!(allowed, keys, "{path}");
    }
}

#[test]
fn every_key_of_the_schema_has_a_description_and_is_in_the_annotated_file() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/conf/rondo.yaml");
    let text = std::fs::read_to_string(file).unwrap();
    fn descriptions(schema: &Value, path: &str) {
        for (key, value) in schema["properties"].as_object().into_iter().flatten() {
            let path = format!("{path}/{key}");
            assert!(
                value["description"]
                    .as_str()
                    .is_some_and(|about| about.len() > 8),
                "{path}"
            );
            descriptions(value, &path);
        }
        for part in ["items", "additionalProperties"] {
            if schema[part].is_object() {
                descriptions(&schema[part], path);
            }
        }
    }
    let schema = json_schema();
    descriptions(&schema, "");
    let mut found = Vec::new();
    mappings(&schema, "", &mut found);
    for key in found.iter().flat_map(|(_, keys)| keys) {
        let is_there = text.contains(&format!("{key}:"))
            || (key == "file" || key == "literal") && text.contains(&format!("{{ {key}: "));
        assert!(is_there, "conf/rondo.yaml does not show {key}");
    }
}

#[test]
fn the_schema_knows_every_adapter_of_this_build() {
    let schema = json_schema();
    let known =
        &schema["properties"]["providers"]["additionalProperties"]["properties"]["adapter"]["enum"];
    for adapter in rondo::providers::registry::all() {
        assert!(
            known
                .as_array()
                .unwrap()
                .iter()
                .any(|name| name == adapter.name),
            "{}",
            adapter.name
        );
    }
}

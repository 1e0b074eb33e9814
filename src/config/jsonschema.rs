//! The JSON Schema (2020-12) of the configuration, made from the tables that the reader follows.

use serde_json::{Map, Value, json};

use super::keys::{ADAPTERS, ROOT};
use super::schema::{Choice, Field, Given, Kind, Need, Preset, Shape, Text};
use super::units::{show_size, show_span};

/// The schema, for editors and for `rondo schema`.
pub fn json_schema() -> Value {
    let mut schema = Map::new();
    schema.insert(
        "$schema".into(),
        json!("https://json-schema.org/draft/2020-12/schema"),
    );
    schema.insert("title".into(), json!("Rondo configuration"));
    schema.append(&mut of_shape(&ROOT));
    Value::Object(schema)
}

fn of_shape(shape: &Shape) -> Map<String, Value> {
    let properties: Map<String, Value> = shape
        .fields
        .iter()
        .map(|field| (field.key.to_owned(), of_field(field)))
        .collect();
    let required: Vec<&str> = shape
        .fields
        .iter()
        .filter(|field| matches!(field.need, Need::Required))
        .map(|field| field.key)
        .collect();
    let mut schema = object(json!({
        "description": shape.about,
        "type": "object",
        "additionalProperties": false,
        "properties": properties,
    }));
    if !required.is_empty() {
        schema.insert("required".into(), json!(required));
    }
    if matches!(shape.given, Given::OneSecret | Given::One) {
        schema.insert("minProperties".into(), json!(1));
        schema.insert("maxProperties".into(), json!(1));
    }
    schema
}

fn of_field(field: &Field) -> Value {
    let mut schema = of_kind(&field.kind);
    let mut about = field.about.to_owned();
    if let Need::Absent(absent) = field.need
        && !absent.is_empty()
    {
        about = format!("{about} When absent: {absent}.");
    }
    if let Kind::Choice(choices) = &field.kind {
        about = format!("{about} {}", explained(choices));
    }
    schema.insert("description".into(), json!(about));
    if let Need::Default(preset) = field.need {
        schema.insert("default".into(), of_preset(preset, &field.kind));
    }
    Value::Object(schema)
}

fn explained(choices: &[Choice]) -> String {
    let lines: Vec<String> = choices
        .iter()
        .map(|choice| format!("{}: {}", choice.word, choice.about))
        .collect();
    lines.join(" ")
}

fn of_kind(kind: &Kind) -> Map<String, Value> {
    let schema = match kind {
        Kind::Mapping(shape) => return of_shape(shape),
        Kind::MappingOrOff(shape) => {
            let mut schema = of_shape(shape);
            schema.insert("type".to_owned(), json!(["object", "string"]));
            schema.insert("pattern".to_owned(), json!("^off$"));
            return schema;
        }
        Kind::Text(text) => of_text(*text),
        Kind::Flag => json!({ "type": "boolean" }),
        Kind::Number { min, max, .. } => {
            json!({ "type": "integer", "minimum": min, "maximum": max })
        }
        Kind::Size { min, max } => json!({ "oneOf": [
            { "type": "integer", "minimum": min, "maximum": max },
            { "type": "string", "pattern": "^[0-9]+ *(B|KiB|MiB|GiB)?$" },
        ]}),
        Kind::Span { .. } => json!({ "type": "string", "pattern": "^[0-9]+ *(ms|s|m|h|d)$" }),
        Kind::Choice(choices) => {
            let words: Vec<&str> = choices.iter().map(|choice| choice.word).collect();
            json!({ "enum": words })
        }
        Kind::List { of, min, max } => {
            let mut items = of_kind(of);
            if let Kind::Choice(choices) = of {
                items.insert("description".into(), json!(explained(choices)));
            }
            json!({ "type": "array", "minItems": min, "maxItems": max, "items": items })
        }
        Kind::Named { of, max } => json!({
            "type": "object",
            "minProperties": 1,
            "maxProperties": max,
            "propertyNames": of_text(Text::Name),
            "additionalProperties": of_shape(of),
        }),
        Kind::Script => json!({ "type": ["string", "object"] }),
    };
    object(schema)
}

fn of_text(text: Text) -> Value {
    match text {
        Text::Name => json!({ "type": "string", "pattern": "^[A-Za-z0-9._-]{1,64}$" }),
        Text::Model => {
            json!({ "type": "string", "pattern": "^(?!--)[^\\s\"]+$", "maxLength": 256 })
        }
        Text::Pattern => {
            json!({ "type": "string", "pattern": "^([^\\s*]+\\*?|\\*)$", "maxLength": 256 })
        }
        Text::Listen => json!({ "type": "string", "pattern": ":[0-9]{1,5}$" }),
        Text::ListenOrOff => json!({ "type": "string", "pattern": "^off$|:[0-9]{1,5}$" }),
        Text::Url => json!({ "type": "string", "pattern": "^[Hh][Tt][Tt][Pp][Ss]?://[^/?#@]" }),
        Text::Adapter => json!({ "enum": ADAPTERS }),
        Text::Variable => json!({ "type": "string", "pattern": "^[A-Za-z_][A-Za-z0-9_]*$" }),
        Text::Header => json!({ "type": "string", "pattern": "^[A-Za-z0-9_-]{1,64}$" }),
        Text::HashOn => {
            json!({ "type": "string", "pattern": "^(client_key|header:[A-Za-z0-9_-]{1,64})$" })
        }
        Text::Date => json!({ "type": "string", "pattern": "^[0-9]{4}-[0-9]{2}-[0-9]{2}" }),
        Text::File | Text::Any => json!({ "type": "string", "minLength": 1 }),
    }
}

fn of_preset(preset: Preset, kind: &Kind) -> Value {
    match (preset, kind) {
        (Preset::Number(number), Kind::Size { .. }) => json!(show_size(number)),
        (Preset::Number(number), Kind::Span { .. }) => json!(show_span(number)),
        (Preset::Number(number), _) => json!(number),
        (Preset::Flag(flag), _) => json!(flag),
        (Preset::Word(word), _) => json!(word),
        (Preset::Words(words), _) => json!(words),
    }
}

fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(object) => object,
        other => Map::from_iter([("const".to_owned(), other)]),
    }
}

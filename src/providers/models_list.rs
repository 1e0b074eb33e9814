//! Bodies of `GET /v1/models`: the public names of the routes in the list shape of the client's API family.
//!
//! Not here: which names there are. Patterns have no single name, so callers pass exact names only.

use serde_json::{Value, json};

use super::timestamp::rfc3339;
use crate::core::api::Family;

/// A list of models. `created` is in seconds since 1970; it stands for every name.
pub fn models_list(shape: Family, names: &[&str], created: u64) -> Vec<u8> {
    let data =
        |entry: &dyn Fn(&str) -> Value| names.iter().map(|name| entry(name)).collect::<Value>();
    let list = match shape {
        // Bedrock lists its models elsewhere, and no client of its runtime asks here.
        Family::Openai | Family::Bedrock => json!({
            "object": "list",
            "data": data(&|id| json!({
                "id": id, "object": "model", "created": created, "owned_by": "rondo",
            })),
        }),
        Family::Anthropic => json!({
            "data": data(&|id| json!({
                "type": "model", "id": id, "display_name": id, "created_at": rfc3339(created),
            })),
            "has_more": false,
            "first_id": names.first(),
            "last_id": names.last(),
        }),
        Family::Gemini => json!({
            "models": data(&|id| json!({
                "name": format!("models/{id}"), "displayName": id,
                "supportedGenerationMethods":
                    ["generateContent", "streamGenerateContent", "countTokens", "embedContent"],
            })),
        }),
    };
    list.to_string().into_bytes()
}

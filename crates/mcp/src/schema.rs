//! JSON schemas, written by hand to be short: every character is in the context of every agent that has the tools.

use rmcp::model::JsonObject;
use serde_json::{Value, json};

pub(crate) fn text() -> Value {
    json!({"type": "string"})
}

/// Text, with a hint for the model.
pub(crate) fn hint(description: &str) -> Value {
    json!({"type": "string", "description": description})
}

/// An object with any fields. Schema checkers complain about a schema that does not even say that.
pub(crate) fn free(description: &str) -> Value {
    json!({"type": "object", "description": description})
}

/// One of these words.
pub(crate) fn one_of(words: &[&str]) -> Value {
    json!({"type": "string", "enum": words})
}

/// One of these words, with a default.
pub(crate) fn usually(word: &str, words: &[&str]) -> Value {
    json!({"type": "string", "enum": words, "default": word})
}

/// A whole number. Without a format, because clients warn about formats they do not know.
pub(crate) fn whole() -> Value {
    json!({"type": "integer"})
}

/// A whole number up to this one, with a default.
pub(crate) fn upto(most: u32, usual: u32) -> Value {
    json!({"type": "integer", "maximum": most, "default": usual})
}

pub(crate) fn flag() -> Value {
    json!({"type": "boolean"})
}

/// A boolean, false by default.
pub(crate) fn off() -> Value {
    json!({"type": "boolean", "default": false})
}

/// A whole number, with a hint for the model.
pub(crate) fn counting(description: &str) -> Value {
    json!({"type": "integer", "description": description})
}

/// Text of at most so many characters.
pub(crate) fn limited(most: usize) -> Value {
    json!({"type": "string", "maxLength": most})
}

/// Text of at most so many characters, with a hint for the model.
pub(crate) fn short(most: usize, description: &str) -> Value {
    json!({"type": "string", "maxLength": most, "description": description})
}

pub(crate) fn list(items: Value) -> Value {
    json!({"type": "array", "items": items})
}

/// An object with these fields; those whose name ends in `!` are required.
pub(crate) fn object(fields: &[(&str, Value)]) -> Value {
    Value::Object(answer(fields))
}

/// The schema of a tool's arguments: no other fields are allowed.
pub(crate) fn arguments(fields: &[(&str, Value)]) -> JsonObject {
    let mut schema = answer(fields);
    schema.insert("additionalProperties".into(), json!(false));
    schema
}

/// The schema of a tool's structured content.
pub(crate) fn answer(fields: &[(&str, Value)]) -> JsonObject {
    let mut properties = JsonObject::new();
    let mut required = Vec::new();
    for (name, schema) in fields {
        let bare = name.trim_end_matches('!');
        if bare.len() < name.len() {
            required.push(json!(bare));
        }
        properties.insert(bare.to_owned(), schema.clone());
    }
    let mut schema = JsonObject::new();
    schema.insert("type".into(), json!("object"));
    schema.insert("properties".into(), Value::Object(properties));
    if !required.is_empty() {
        schema.insert("required".into(), Value::Array(required));
    }
    schema
}

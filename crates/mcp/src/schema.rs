//! JSON schemas, written by hand: every character of them is in the context of every agent that has the tools.

use rmcp::model::JsonObject;
use serde_json::{Value, json};

/// Text.
pub(crate) fn text() -> Value {
    json!({"type": "string"})
}

/// Text, with a hint for the model.
pub(crate) fn hint(description: &str) -> Value {
    json!({"type": "string", "description": description})
}

/// An object of whatever fields. Checkers of schemas complain where not even that is said.
pub(crate) fn free(description: &str) -> Value {
    json!({"type": "object", "description": description})
}

/// One of these words.
pub(crate) fn one_of(words: &[&str]) -> Value {
    json!({"type": "string", "enum": words})
}

/// One of these words, and which is taken where there is none.
pub(crate) fn usually(word: &str, words: &[&str]) -> Value {
    json!({"type": "string", "enum": words, "default": word})
}

/// A whole number. No format: clients warn at the ones they do not know.
pub(crate) fn whole() -> Value {
    json!({"type": "integer"})
}

/// A whole number up to this one, and what is taken where there is none.
pub(crate) fn upto(most: u32, usual: u32) -> Value {
    json!({"type": "integer", "maximum": most, "default": usual})
}

/// Yes or no.
pub(crate) fn flag() -> Value {
    json!({"type": "boolean"})
}

/// Yes or no; no where nothing is said.
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

/// A list.
pub(crate) fn list(items: Value) -> Value {
    json!({"type": "array", "items": items})
}

/// An object with these fields, of which the ones that end in `!` are always there.
pub(crate) fn object(fields: &[(&str, Value)]) -> Value {
    let mut properties = JsonObject::new();
    let mut required = Vec::new();
    for (name, schema) in fields {
        let bare = name.trim_end_matches('!');
        if bare.len() < name.len() {
            required.push(json!(bare));
        }
        properties.insert(bare.to_owned(), schema.clone());
    }
    let mut object = JsonObject::new();
    object.insert("type".into(), json!("object"));
    object.insert("properties".into(), Value::Object(properties));
    if !required.is_empty() {
        object.insert("required".into(), Value::Array(required));
    }
    Value::Object(object)
}

/// The schema of a tool's arguments: an object that has nothing besides.
pub(crate) fn arguments(fields: &[(&str, Value)]) -> JsonObject {
    let mut schema = answer(fields);
    schema.insert("additionalProperties".into(), json!(false));
    schema
}

/// The schema of a tool's structured answer.
pub(crate) fn answer(fields: &[(&str, Value)]) -> JsonObject {
    match object(fields) {
        Value::Object(schema) => schema,
        _ => JsonObject::new(),
    }
}

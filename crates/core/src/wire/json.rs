//! JSON of other programs: an object, and its fields converted with errors that name them.

use serde_json::Value;

use super::WireError;
use crate::Object;

/// Parses an object. Of two fields with one name the later counts, as in most readers; a byte order mark, which some
/// editors write, is skipped.
pub(crate) fn parse(bytes: &[u8]) -> Result<Object, WireError> {
    let text = std::str::from_utf8(bytes).map_err(|error| WireError::NotJson(error.to_string()))?;
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    match serde_json::from_str(text).map_err(|error| WireError::NotJson(error.to_string()))? {
        Value::Object(fields) => Ok(fields),
        other => Err(WireError::NotAnObject(type_name(&other))),
    }
}

/// Removes a field and returns its value. `null` counts as missing: most writers mean "nothing" by it.
pub(crate) fn take(fields: &mut Object, name: &str) -> Option<Value> {
    fields.remove(name).filter(|value| !value.is_null())
}

pub(crate) fn string(value: Value, field: &'static str) -> Result<String, WireError> {
    match value {
        Value::String(text) => Ok(text),
        other => Err(wrong_type(&other, field, "a string")),
    }
}

pub(crate) fn array(value: Value, field: &'static str) -> Result<Vec<Value>, WireError> {
    match value {
        Value::Array(items) => Ok(items),
        other => Err(wrong_type(&other, field, "an array")),
    }
}

pub(crate) fn object(value: Value, field: &'static str) -> Result<Object, WireError> {
    match value {
        Value::Object(fields) => Ok(fields),
        other => Err(wrong_type(&other, field, "an object")),
    }
}

pub(crate) fn boolean(value: &Value, field: &'static str) -> Result<bool, WireError> {
    value.as_bool().ok_or_else(|| wrong_type(value, field, "true or false"))
}

/// Converts a count that other programs may have written as `3`, `3.0`, `-1` or something far too large.
pub(crate) fn clamped(value: &Value, field: &'static str, max: u32) -> Result<u32, WireError> {
    match value.as_f64() {
        // In range, and never NaN, which JSON does not have.
        Some(number) => Ok(number.clamp(0.0, f64::from(max)) as u32),
        None => Err(wrong_type(value, field, "a number")),
    }
}

/// The error for a field of another type than `wanted`.
pub(crate) fn wrong_type(value: &Value, field: &'static str, wanted: &str) -> WireError {
    WireError::field(field, format!("should be {wanted}, not {}", type_name(value)))
}

fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_object_is_accepted() {
        assert_eq!(parse(b"[]"), Err(WireError::NotAnObject("an array")));
        assert_eq!(parse(b"3"), Err(WireError::NotAnObject("a number")));
        assert!(matches!(parse(b""), Err(WireError::NotJson(_))));
        assert!(matches!(parse(b"{\"a\":1} x"), Err(WireError::NotJson(_))));
        assert!(matches!(parse("[".repeat(100_000).as_bytes()), Err(WireError::NotJson(_))));
        assert!(parse(b"\xef\xbb\xbf{}").is_ok(), "a byte order mark is skipped");
    }

    #[test]
    fn of_two_fields_with_one_name_the_later_counts() {
        assert_eq!(take(&mut parse(br#"{"a":1,"a":2}"#).unwrap(), "a"), Some(2.into()));
        assert_eq!(take(&mut parse(br#"{"a":1,"a":null}"#).unwrap(), "a"), None);
    }
}

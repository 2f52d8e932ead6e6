//! The value of a setting, for every format. [`CstInputValue`] keeps fields in the order in which they are written.

use jsonc_parser::cst::CstInputValue;
use serde_json::Value;
use toml_edit::Item;

/// A configured value.
pub(crate) type ConfigValue = CstInputValue;

/// A value with these fields.
pub(super) fn table<K: Into<String>>(fields: impl IntoIterator<Item = (K, ConfigValue)>) -> ConfigValue {
    CstInputValue::Object(fields.into_iter().map(|(key, item)| (key.into(), item)).collect())
}

/// Converts to plain JSON, for comparison.
pub(super) fn to_json(value: &ConfigValue) -> Value {
    match value {
        CstInputValue::Null => Value::Null,
        CstInputValue::Bool(flag) => Value::Bool(*flag),
        CstInputValue::Number(number) => number.parse().map_or(Value::Null, Value::Number),
        CstInputValue::String(text) => text.as_str().into(),
        CstInputValue::Array(items) => items.iter().map(to_json).collect(),
        CstInputValue::Object(fields) => fields.iter().map(|(key, item)| (key.clone(), to_json(item))).collect(),
    }
}

/// Converts to TOML, which has no null.
pub(super) fn to_toml(value: &ConfigValue) -> Item {
    match value {
        CstInputValue::Null => Item::None,
        CstInputValue::Bool(flag) => toml_edit::value(*flag),
        CstInputValue::Number(number) => number.parse().map_or(Item::None, Item::Value),
        CstInputValue::String(text) => toml_edit::value(text.as_str()),
        CstInputValue::Array(items) => {
            let values = items.iter().filter_map(|item| to_toml(item).into_value().ok());
            toml_edit::value(values.collect::<toml_edit::Array>())
        }
        CstInputValue::Object(fields) => {
            let fields = fields.iter().map(|(key, item)| (key.as_str(), to_toml(item)));
            Item::Table(fields.collect::<toml_edit::Table>())
        }
    }
}

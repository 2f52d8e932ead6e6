//! A value that can be written in either format, with its fields in a readable order.

use jsonc_parser::cst::CstInputValue;
use serde_json::{Value, json};

/// A configured value.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum ConfigValue {
    Flag(bool),
    Whole(i64),
    Text(String),
    Texts(Vec<String>),
    Table(Vec<(&'static str, ConfigValue)>),
    List(Vec<ConfigValue>),
}

impl ConfigValue {
    pub(crate) fn text(text: impl Into<String>) -> Self {
        ConfigValue::Text(text.into())
    }

    /// As JSON, for comparison.
    pub(crate) fn to_json(&self) -> Value {
        match self {
            ConfigValue::Flag(flag) => json!(flag),
            ConfigValue::Whole(number) => json!(number),
            ConfigValue::Text(text) => json!(text),
            ConfigValue::Texts(texts) => json!(texts),
            ConfigValue::Table(fields) => {
                fields.iter().map(|(key, item)| ((*key).to_owned(), item.to_json())).collect()
            }
            ConfigValue::List(items) => items.iter().map(ConfigValue::to_json).collect(),
        }
    }

    /// As JSON that keeps the order of fields.
    pub(crate) fn to_cst(&self) -> CstInputValue {
        match self {
            ConfigValue::Flag(flag) => CstInputValue::Bool(*flag),
            ConfigValue::Whole(number) => CstInputValue::Number(number.to_string()),
            ConfigValue::Text(text) => CstInputValue::String(text.clone()),
            ConfigValue::Texts(texts) => {
                CstInputValue::Array(texts.iter().cloned().map(CstInputValue::String).collect())
            }
            ConfigValue::Table(fields) => {
                CstInputValue::Object(fields.iter().map(|(key, item)| ((*key).to_owned(), item.to_cst())).collect())
            }
            ConfigValue::List(items) => CstInputValue::Array(items.iter().map(ConfigValue::to_cst).collect()),
        }
    }

    /// As TOML.
    pub(crate) fn to_toml(&self) -> toml_edit::Item {
        match self {
            ConfigValue::Flag(flag) => toml_edit::value(*flag),
            ConfigValue::Whole(number) => toml_edit::value(*number),
            ConfigValue::Text(text) => toml_edit::value(text.as_str()),
            ConfigValue::Texts(texts) => {
                toml_edit::value(texts.iter().map(String::as_str).collect::<toml_edit::Array>())
            }
            ConfigValue::Table(fields) => {
                let mut table = toml_edit::Table::new();
                for (key, item) in fields {
                    table.insert(key, item.to_toml());
                }
                toml_edit::Item::Table(table)
            }
            ConfigValue::List(items) => {
                let values = items.iter().filter_map(|item| item.to_toml().into_value().ok());
                toml_edit::value(values.collect::<toml_edit::Array>())
            }
        }
    }
}

//! A value that can be written in either format, with its fields in a readable order.

use jsonc_parser::cst::CstInputValue;
use serde_json::{Value, json};

/// A configured value.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Item {
    Flag(bool),
    Whole(i64),
    Text(String),
    Texts(Vec<String>),
    Table(Vec<(&'static str, Item)>),
    List(Vec<Item>),
}

impl Item {
    pub(crate) fn text(text: impl Into<String>) -> Self {
        Item::Text(text.into())
    }

    /// As JSON, for comparison.
    pub(crate) fn to_json(&self) -> Value {
        match self {
            Item::Flag(flag) => json!(flag),
            Item::Whole(number) => json!(number),
            Item::Text(text) => json!(text),
            Item::Texts(texts) => json!(texts),
            Item::Table(fields) => fields.iter().map(|(key, item)| ((*key).to_owned(), item.to_json())).collect(),
            Item::List(items) => items.iter().map(Item::to_json).collect(),
        }
    }

    /// As JSON that keeps the order of fields.
    pub(crate) fn to_cst(&self) -> CstInputValue {
        match self {
            Item::Flag(flag) => CstInputValue::Bool(*flag),
            Item::Whole(number) => CstInputValue::Number(number.to_string()),
            Item::Text(text) => CstInputValue::String(text.clone()),
            Item::Texts(texts) => CstInputValue::Array(texts.iter().cloned().map(CstInputValue::String).collect()),
            Item::Table(fields) => {
                CstInputValue::Object(fields.iter().map(|(key, item)| ((*key).to_owned(), item.to_cst())).collect())
            }
            Item::List(items) => CstInputValue::Array(items.iter().map(Item::to_cst).collect()),
        }
    }

    /// As TOML.
    pub(crate) fn to_toml(&self) -> toml_edit::Item {
        match self {
            Item::Flag(flag) => toml_edit::value(*flag),
            Item::Whole(number) => toml_edit::value(*number),
            Item::Text(text) => toml_edit::value(text.as_str()),
            Item::Texts(texts) => toml_edit::value(texts.iter().map(String::as_str).collect::<toml_edit::Array>()),
            Item::Table(fields) => {
                let mut table = toml_edit::Table::new();
                for (key, item) in fields {
                    table.insert(key, item.to_toml());
                }
                toml_edit::Item::Table(table)
            }
            Item::List(items) => {
                let values = items.iter().filter_map(|item| item.to_toml().into_value().ok());
                toml_edit::value(values.collect::<toml_edit::Array>())
            }
        }
    }
}

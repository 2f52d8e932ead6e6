//! Adds the mailbox to a client's configuration: a pure function from the old text to the new one.
//!
//! Each client is a list of [`Setting`]s; [`json`] and [`toml`] add a setting to a text and remove it again without touching
//! comments or other settings; [`extras`] lists what is written besides; [`mod@file`] applies this to a file, with a backup.

mod client;
mod diff;
mod extras;
mod file;
pub(crate) mod json;
mod mask;
pub(crate) mod nanobot;
mod script;
mod section;
mod toml;
mod value;

use anyhow::Result;

pub(crate) use client::{ClientAccount, InitClient, Places, Scope};
pub(crate) use diff::diff;
pub(crate) use extras::{Extra, Hooks};
pub(crate) use file::{ConfigFile, Plan};
pub(crate) use value::ConfigValue;

/// The format of a configuration file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    /// JSON, with the comments and extensions that clients accept.
    Json,
    /// TOML.
    Toml,
    /// Text for models, in which a section between two marks is ours.
    Section,
    /// A program that is ours as a whole.
    Script,
}

/// One value at one path in a configuration.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Setting {
    /// The keys that lead to it.
    pub(crate) path: Vec<String>,
    /// The value. A table is merged into an existing one: fields that we do not name stay.
    pub(crate) value: ConfigValue,
    /// Fields of the table that are set only where they are missing, so that the user's own choice wins.
    pub(crate) defaults: Vec<(&'static str, ConfigValue)>,
    /// Where set, the path is a list, and the value is one entry in it beside those of others.
    pub(crate) entry: Option<EntryMark>,
}

/// The binary's name, as shared files start it.
pub(crate) const PROGRAM: &str = "amb";

/// How our entry in a list is recognised.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct EntryMark {
    /// A text that only our entry contains, written as JSON.
    pub(crate) text: String,
    /// Whether a missing list is not created: it would replace settings made elsewhere.
    pub(crate) only_if_there: bool,
}

impl Setting {
    pub(crate) fn new(path: &[&str], value: ConfigValue) -> Self {
        Self { path: path.iter().map(|key| (*key).to_owned()).collect(), value, defaults: Vec::new(), entry: None }
    }

    /// An entry in a list.
    pub(crate) fn entry(path: &[&str], value: ConfigValue, mark: impl Into<String>) -> Self {
        let mark = EntryMark { text: mark.into(), only_if_there: false };
        Self { entry: Some(mark), ..Self::new(path, value) }
    }
}

/// Adds every setting to the text. A text that has them all is returned as it is.
pub(crate) fn apply(format: Format, text: &str, settings: &[Setting]) -> Result<String> {
    settings.iter().try_fold(text.to_owned(), |text, setting| match format {
        Format::Json => json::set(&text, setting),
        Format::Toml => toml::set(&text, setting),
        Format::Section => section::set(&text, setting),
        Format::Script => script::set(&text, setting),
    })
}

/// Removes our settings from the text: where `before` has a value, it is restored.
pub(crate) fn revert(format: Format, text: &str, before: Option<&str>, settings: &[Setting]) -> Result<String> {
    settings.iter().rev().try_fold(text.to_owned(), |text, setting| match format {
        Format::Json => match &setting.entry {
            Some(mark) => json::restore_entry(&text, before.unwrap_or(""), &setting.path, mark),
            None => json::restore(&text, before.unwrap_or(""), &setting.path),
        },
        Format::Section => Ok(section::restore(&text, before.unwrap_or(""))),
        Format::Script => Ok(script::restore(&text, before.unwrap_or(""))),
        Format::Toml => toml::restore(&text, before.unwrap_or(""), &setting.path),
    })
}

/// What is configured under the server's name, if anything: the program it runs, else its address or another field.
pub(crate) fn server_at(format: Format, text: &str, setting: &Setting) -> Result<Option<String>> {
    Ok(value_at(format, text, setting)?.as_ref().and_then(server_of))
}

fn value_at(format: Format, text: &str, setting: &Setting) -> Result<Option<serde_json::Value>> {
    match format {
        Format::Json => json::value_at(text, &setting.path),
        Format::Toml => toml::value_at(text, &setting.path),
        Format::Section | Format::Script => Ok(None),
    }
}

/// The agent that a server of ours at this place speaks for.
pub(crate) fn agent_at(format: Format, text: &str, setting: &Setting) -> Result<Option<String>> {
    Ok(value_at(format, text, setting)?.as_ref().and_then(agent_of))
}

/// What follows `--as`, in whichever list a client keeps the arguments.
fn agent_of(there: &serde_json::Value) -> Option<String> {
    match there {
        serde_json::Value::Array(list) => {
            let at = list.iter().position(|word| word == "--as")?;
            list.get(at + 1)?.as_str().map(str::to_owned)
        }
        serde_json::Value::Object(fields) => fields.values().find_map(agent_of),
        _ => None,
    }
}

/// Clients write a command as a text, as a list, or as a table with a path; a remote server has an address instead.
fn server_of(there: &serde_json::Value) -> Option<String> {
    if there.as_object().is_some_and(serde_json::Map::is_empty) {
        return None;
    }
    let command = &there["command"];
    let program = command.as_str().or_else(|| command[0].as_str()).or_else(|| command["path"].as_str());
    let address = || ["url", "httpUrl", "serverUrl"].iter().find_map(|key| there[key].as_str());
    Some(program.or_else(address).map_or_else(|| there.to_string(), str::to_owned))
}

/// The directories of the tests.
#[cfg(test)]
fn test_places() -> Places {
    Places {
        home: "/home/ann".into(),
        project: "/src/app".into(),
        codex_home: None,
        openclaw_config: None,
        config_home: "/home/ann/.config".into(),
        copilot_home: None,
    }
}

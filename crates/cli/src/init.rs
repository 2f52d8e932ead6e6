//! Adds the mailbox to a client's configuration, as a pure function from the old text to the new one.
//!
//! Each client is a list of [`Setting`]s; [`json`] and [`toml`] add a setting to a text and remove it again without
//! touching comments or other settings; [`extras`] lists the client's other files; [`mod@file`] applies this to a file,
//! with a backup.

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

pub(crate) use self::toml::not_toml;
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
    /// Instructions for models, in which a section between two marks is ours.
    Section,
    /// A program of ours, which we replace as a whole.
    Script,
}

/// One value at one path in a configuration.
#[derive(Debug, Clone)]
pub(crate) struct Setting {
    /// The keys that lead to it.
    pub(crate) path: Vec<String>,
    /// The value. A table is merged into an existing one: fields that we do not name stay.
    pub(crate) value: ConfigValue,
    /// Fields of the table that are set only where they are missing, so that the user's own choice wins.
    pub(crate) defaults: Vec<(String, ConfigValue)>,
    /// Where set, the path is a list, and the value is one entry in it beside those of others.
    pub(crate) entry: Option<EntryMark>,
}

/// The binary's name, as shared files start it.
pub(crate) const PROGRAM: &str = "amb";

/// How our entry in a list is recognised.
#[derive(Debug, Clone)]
pub(crate) struct EntryMark {
    /// The entry's text.
    pub(crate) text: String,
    /// Whether a command of [`PROGRAM`] that ends with this text is our entry, too.
    pub(crate) is_suffix: bool,
    /// Whether a missing list is not created: it would replace settings made elsewhere.
    pub(crate) only_if_there: bool,
}

impl Setting {
    pub(crate) fn new(path: &[&str], value: ConfigValue) -> Self {
        Self { path: path.iter().map(|key| (*key).to_owned()).collect(), value, defaults: Vec::new(), entry: None }
    }

    /// A text in a list, such as a permission rule.
    pub(crate) fn rule(path: &[&str], text: String) -> Self {
        let entry = Some(EntryMark { text: text.clone(), is_suffix: false, only_if_there: false });
        Self { entry, ..Self::new(path, text.into()) }
    }

    /// A hook in a list: `value` contains a command of ours that ends with `suffix`.
    pub(crate) fn command(path: &[&str], value: ConfigValue, suffix: String) -> Self {
        let entry = Some(EntryMark { text: suffix, is_suffix: true, only_if_there: false });
        Self { entry, ..Self::new(path, value) }
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
    let before = before.unwrap_or("");
    settings.iter().rev().try_fold(text.to_owned(), |text, setting| match (format, &setting.entry) {
        (Format::Json, Some(mark)) => json::restore_entry(&text, before, &setting.path, mark),
        (Format::Json, None) => json::restore(&text, before, &setting.path),
        (Format::Toml, _) => toml::restore(&text, before, &setting.path),
        (Format::Section, _) => Ok(section::restore(&text, before)),
        (Format::Script, _) => Ok(script::restore(&text, before)),
    })
}

/// The MCP server that is configured at a path, if any: the program it runs, else its address or another field.
pub(crate) fn server_at(format: Format, text: &str, path: &[&str]) -> Result<Option<String>> {
    Ok(value_at(format, text, path)?.as_ref().and_then(server_of))
}

/// The value of a flag in the arguments of a server of ours at a path, such as `--as`.
pub(crate) fn flag_at(format: Format, text: &str, path: &[&str], flag: &str) -> Result<Option<String>> {
    Ok(value_at(format, text, path)?.as_ref().and_then(|server| argument_after(server, flag)))
}

fn value_at(format: Format, text: &str, path: &[&str]) -> Result<Option<serde_json::Value>> {
    match format {
        Format::Json => json::value_at(text, path),
        Format::Toml => toml::value_at(text, path),
        Format::Section | Format::Script => Ok(None),
    }
}

/// The argument after a flag, in whichever list a client keeps the arguments.
fn argument_after(server: &serde_json::Value, flag: &str) -> Option<String> {
    match server {
        serde_json::Value::Array(list) => {
            let at = list.iter().position(|word| word == flag)?;
            list.get(at + 1)?.as_str().map(str::to_owned)
        }
        serde_json::Value::Object(fields) => fields.values().find_map(|field| argument_after(field, flag)),
        _ => None,
    }
}

/// Clients write a command as a text, as a list, or as a table with a path; a remote server has an address instead.
fn server_of(server: &serde_json::Value) -> Option<String> {
    if server.as_object().is_some_and(serde_json::Map::is_empty) {
        return None;
    }
    let command = &server["command"];
    let program = command.as_str().or_else(|| command[0].as_str()).or_else(|| command["path"].as_str());
    let address = || ["url", "httpUrl", "serverUrl"].iter().find_map(|key| server[key].as_str());
    Some(program.or_else(address).map_or_else(|| server.to_string(), str::to_owned))
}

/// The directories of the tests.
#[cfg(test)]
fn test_places() -> Places {
    Places {
        home: "/home/ann".into(),
        project: "/src/app".into(),
        config_home: "/home/ann/.config".into(),
        codex_home: "/home/ann/.codex".into(),
        copilot_home: "/home/ann/.copilot".into(),
        openclaw_config: "/home/ann/.openclaw/openclaw.json".into(),
    }
}

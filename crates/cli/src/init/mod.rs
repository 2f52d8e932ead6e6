//! A client's configuration with the mailbox in it: a pure function from the text that is there to the text that shall be.
//!
//! Each client is a list of [`Setting`]s; [`json`] and [`toml`] know how to put a setting into a text and how to take it out
//! again without touching a comment or anybody else's settings; [`mod@file`] does the same to a file, with a backup.

mod client;
mod diff;
mod file;
mod item;
pub(crate) mod json;
mod mask;
pub(crate) mod nanobot;
mod toml;

use anyhow::Result;

pub(crate) use client::{Client, Places, Scope, Seat};
pub(crate) use diff::diff;
pub(crate) use file::Config;
pub(crate) use item::Item;

/// How a configuration file is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    /// JSON, with the comments and liberties that clients allow themselves.
    Json,
    /// TOML.
    Toml,
}

/// One value at one place in a configuration.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Setting {
    /// The keys that lead to it.
    pub(crate) path: Vec<String>,
    /// What it shall be. A table is merged into one that is there: what we do not name stays.
    pub(crate) value: Item,
    /// Fields of the table that are set only where they are missing: the user's own choice wins.
    pub(crate) defaults: Vec<(&'static str, Item)>,
}

impl Setting {
    pub(crate) fn new(path: &[&str], value: Item) -> Self {
        Self { path: path.iter().map(|key| (*key).to_owned()).collect(), value, defaults: Vec::new() }
    }
}

/// The text with every setting in it. A text that has them all comes back as it is.
pub(crate) fn apply(format: Format, text: &str, settings: &[Setting]) -> Result<String> {
    settings.iter().try_fold(text.to_owned(), |text, setting| match format {
        Format::Json => json::set(&text, setting),
        Format::Toml => toml::set(&text, setting),
    })
}

/// The text without our settings: where `before` has a value, that one is back, else there is none.
pub(crate) fn revert(format: Format, text: &str, before: Option<&str>, settings: &[Setting]) -> Result<String> {
    settings.iter().rev().try_fold(text.to_owned(), |text, setting| match format {
        Format::Json => json::restore(&text, before.unwrap_or(""), &setting.path),
        Format::Toml => toml::restore(&text, before.unwrap_or(""), &setting.path),
    })
}

/// The command of the server that stands at a setting's place, if one does.
pub(crate) fn command_at(format: Format, text: &str, setting: &Setting) -> Result<Option<String>> {
    match format {
        Format::Json => json::text_at(text, &setting.path, "command"),
        Format::Toml => toml::text_at(text, &setting.path, "command"),
    }
}

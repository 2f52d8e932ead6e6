//! Settings in TOML, with every comment and every table where it was.

use std::ops::Range;

use anyhow::{Context, Result, anyhow, bail};
use serde_json::Value;
use toml_edit::{DocumentMut, TableLike};

use super::value::to_toml;
use super::{ConfigValue, Setting};

fn parse(text: &str) -> Result<DocumentMut> {
    text.parse::<DocumentMut>().map_err(|error| not_toml(text, error.span(), error.message()))
}

/// The parser's own error spans several lines, with an excerpt of the file.
pub(crate) fn not_toml(text: &str, span: Option<Range<usize>>, message: &str) -> anyhow::Error {
    let line =
        span.map_or(1, |span| text.as_bytes()[..span.start.min(text.len())].split(|byte| *byte == b'\n').count());
    anyhow!("the file is not TOML; mend it first: line {line}: {}", message.replace('\n', ", "))
}

/// Adds the setting to the text.
pub(super) fn set(text: &str, setting: &Setting) -> Result<String> {
    let Some((last, parents)) = setting.path.split_last() else { bail!("a setting needs a place") };
    let mut document = parse(text)?;
    let mut table: &mut dyn TableLike = document.as_table_mut();
    for key in parents {
        let made = || {
            // Without a header of its own, since it only holds the one table.
            let mut table = toml_edit::Table::new();
            table.set_implicit(true);
            toml_edit::Item::Table(table)
        };
        table = table
            .entry(key)
            .or_insert_with(made)
            .as_table_like_mut()
            .with_context(|| format!("{key} is there and is not a table; mend the file first"))?;
    }
    let mut is_changed = put(table, last, &setting.value);
    if let Some(inner) = table.get_mut(last).and_then(toml_edit::Item::as_table_like_mut) {
        for (key, item) in &setting.defaults {
            if !inner.contains_key(key) {
                is_changed |= put(inner, key, item);
            }
        }
    }
    if is_changed { Ok(document.to_string()) } else { Ok(text.to_owned()) }
}

/// Sets the value; returns whether anything changed.
fn put(table: &mut dyn TableLike, key: &str, wanted: &ConfigValue) -> bool {
    let mut new = to_toml(wanted);
    let Some(present) = table.get_mut(key) else {
        table.insert(key, new);
        return true;
    };
    if let (ConfigValue::Object(fields), Some(inner)) = (wanted, present.as_table_like_mut()) {
        // Not `any`, which would stop at the first change.
        return fields.iter().fold(false, |changed, (key, item)| put(inner, key, item) || changed);
    }
    if plain(present) == plain(&new) {
        return false;
    }
    // The comment after the value, and the space before it, stay.
    if let (Some(old), Some(new)) = (present.as_value(), new.as_value_mut()) {
        *new.decor_mut() = old.decor().clone();
    }
    *present = new;
    true
}

/// A value as text without comments and spaces, for comparison.
fn plain(item: &toml_edit::Item) -> Option<String> {
    let mut value = item.as_value()?.clone();
    if let Some(array) = value.as_array_mut() {
        array.fmt();
        array.set_trailing_comma(false);
    }
    value.decor_mut().clear();
    Some(value.to_string())
}

/// Restores what `before` has at that path, or removes the value where it has none.
pub(super) fn restore(text: &str, before: &str, path: &[String]) -> Result<String> {
    let (mut document, before) = (parse(text)?, parse(before)?);
    let Some((last, parents)) = path.split_last() else { bail!("a setting needs a place") };
    let old = path.iter().try_fold(before.as_item(), |item, key| item.get(key));
    let mut table: &mut dyn TableLike = document.as_table_mut();
    for key in parents {
        match table.get_mut(key).and_then(toml_edit::Item::as_table_like_mut) {
            Some(inner) => table = inner,
            None => return Ok(text.to_owned()),
        }
    }
    match old {
        Some(old) => {
            table.insert(last, old.clone());
        }
        None if table.remove(last).is_none() => return Ok(text.to_owned()),
        None => {}
    }
    Ok(document.to_string())
}

/// The value at a path.
pub(super) fn value_at(text: &str, path: &[impl AsRef<str>]) -> Result<Option<Value>> {
    let document: Value = ::toml::from_str(text).map_err(|error| not_toml(text, error.span(), error.message()))?;
    Ok(path.iter().try_fold(&document, |value, key| value.get(key.as_ref())).cloned())
}

/// Whether the document is empty.
pub(super) fn is_empty(text: &str) -> Result<bool> {
    parse(text)?;
    Ok(text.trim().is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mailbox(args: &[&str]) -> Setting {
        let server = crate::init::value::table([("command", "amb".into()), ("args", args.to_vec().into())]);
        Setting::new(&["mcp_servers", "mailbox"], server)
    }

    const THERE: &str = "# mine\nmodel = \"gpt-6\" # the best\n\n[mcp_servers.docs]\ncommand = \"docs\"\n\n[profiles.fast]\nmodel = \"mini\"\n";

    #[test]
    fn comments_stay_and_undoing_restores_the_text() {
        let text = set(THERE, &mailbox(&["mcp", "--as", "ann"])).unwrap();
        assert!(
            text.contains("[mcp_servers.mailbox]\ncommand = \"amb\"\nargs = [\"mcp\", \"--as\", \"ann\"]"),
            "{text}"
        );
        assert!(text.contains("# mine") && text.contains("# the best"), "{text}");
        assert_eq!(restore(&text, THERE, &mailbox(&[]).path).unwrap(), THERE);
    }

    #[test]
    fn a_fresh_file_has_one_table_and_nothing_else() {
        let text = set("", &mailbox(&["mcp"])).unwrap();
        assert_eq!(text, "[mcp_servers.mailbox]\ncommand = \"amb\"\nargs = [\"mcp\"]\n");
        assert!(is_empty(&restore(&text, "", &mailbox(&[]).path).unwrap()).unwrap());
    }

    #[test]
    fn setting_it_twice_changes_nothing_and_a_change_keeps_the_rest() {
        let once = set(THERE, &mailbox(&["mcp"])).unwrap();
        assert_eq!(set(&once, &mailbox(&["mcp"])).unwrap(), once);
        let tuned = once.replace("args = [\"mcp\"]", "args = [ \"mcp\", ] # note\nstartup_timeout_sec = 20");
        assert_eq!(set(&tuned, &mailbox(&["mcp"])).unwrap(), tuned);
        let moved = set(&tuned, &mailbox(&["mcp", "--as", "bob"])).unwrap();
        assert!(
            moved.contains("startup_timeout_sec = 20") && moved.contains("# note") && moved.contains("\"bob\""),
            "{moved}"
        );
    }

    #[test]
    fn inline_tables_are_edited_too() {
        let text = set("mcp_servers = { docs = { command = \"docs\" } }\n", &mailbox(&["mcp"])).unwrap();
        assert_eq!(value_at(&text, &mailbox(&[]).path).unwrap().unwrap()["command"], "amb");
        assert!(text.contains("docs"), "{text}");
    }

    #[test]
    fn what_is_not_toml_or_not_a_table_is_left_alone() {
        assert!(set("= broken", &mailbox(&["mcp"])).is_err());
        assert!(set("mcp_servers = 3", &mailbox(&["mcp"])).is_err());
    }
}

//! Settings in JSON as clients write it: comments, trailing commas, single quotes and bare keys stay as they are.

use anyhow::{Context, Result, bail};
use jsonc_parser::ParseOptions;
use jsonc_parser::cst::{CstArray, CstInputValue, CstObject, CstRootNode};
use serde_json::Value;

use super::value::{table, to_json};
use super::{ConfigValue, EntryMark, PROGRAM, Setting};

fn parse(text: &str) -> Result<CstRootNode> {
    CstRootNode::parse(text, &ParseOptions::default()).context("the file is not JSON; mend it first")
}

/// The document as plain data; an empty one is an empty object.
fn data(text: &str) -> Result<Value> {
    let value: Option<Value> = jsonc_parser::parse_to_serde_value(text, &ParseOptions::default())
        .context("the file is not JSON; mend it first")?;
    Ok(value.unwrap_or_else(|| Value::Object(Default::default())))
}

fn at<'v>(value: &'v Value, path: &[impl AsRef<str>]) -> Option<&'v Value> {
    path.iter().try_fold(value, |value, key| value.get(key.as_ref()))
}

/// Changes the object at a path, which is created where it is missing.
fn edit(text: &str, path: &[String], change: impl FnOnce(CstObject) -> Result<()>) -> Result<String> {
    let root = parse(text)?;
    let mut object = root.object_value_or_create().context("the file is not a JSON object")?;
    for key in path {
        object = object
            .object_value_or_create(key)
            .with_context(|| format!("{key:?} is there and is not an object; mend the file first"))?;
    }
    change(object)?;
    let mut out = root.to_string();
    if !out.ends_with('\n') && text.trim().is_empty() {
        out.push('\n');
    }
    Ok(out)
}

/// Adds the setting to the text.
pub(super) fn set(text: &str, setting: &Setting) -> Result<String> {
    let Some((last, parents)) = setting.path.split_last() else { bail!("a setting needs a place") };
    if let Some(mark) = &setting.entry {
        return set_entry(text, setting, mark);
    }
    let document = data(text)?;
    let present = at(&document, &setting.path);
    let wanted = complete(setting, present);
    if present.is_some_and(|present| contains(present, &to_json(&wanted))) {
        return Ok(text.to_owned());
    }
    edit(text, parents, |object| {
        put(&object, last, &wanted);
        Ok(())
    })
}

/// Adds our entry to a list, once, beside those of others.
fn set_entry(text: &str, setting: &Setting, mark: &EntryMark) -> Result<String> {
    let Some((last, parents)) = setting.path.split_last() else { bail!("a setting needs a place") };
    let document = data(text)?;
    let present = at(&document, &setting.path);
    if present.is_none() && mark.only_if_there {
        return Ok(text.to_owned());
    }
    let entries = present.and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let ours: Vec<&Value> = entries.iter().filter(|entry| is_ours(entry, mark)).collect();
    if ours == [&to_json(&setting.value)] {
        return Ok(text.to_owned());
    }
    edit(text, parents, |object| {
        let list = object
            .array_value_or_create(last)
            .with_context(|| format!("{last:?} is there and is not a list; mend the file first"))?;
        remove_ours(&list, entries, mark);
        list.append(setting.value.clone());
        Ok(())
    })
}

/// Removes our entries from a list with these entries.
fn remove_ours(list: &CstArray, entries: &[Value], mark: &EntryMark) {
    for (element, value) in list.elements().into_iter().zip(entries) {
        if is_ours(value, mark) {
            element.remove();
        }
    }
}

/// Whether an entry is ours: a rule, a hook, or a group of hooks that are all ours.
fn is_ours(entry: &Value, mark: &EntryMark) -> bool {
    let ours = |text: &str| {
        let program = text.strip_suffix(&mark.text).and_then(|before| before.strip_suffix(' '));
        text == mark.text || (mark.is_suffix && program.is_some_and(|program| program.contains(PROGRAM)))
    };
    match entry {
        Value::String(text) => ours(text),
        Value::Object(fields) => match fields.get("hooks").and_then(Value::as_array) {
            Some(group) => !group.is_empty() && group.iter().all(|hook| is_ours(hook, mark)),
            None => fields.values().filter_map(Value::as_str).any(ours),
        },
        _ => false,
    }
}

/// Removes our entry from a list; a list that we created is removed with it.
pub(super) fn restore_entry(text: &str, before: &str, path: &[String], mark: &EntryMark) -> Result<String> {
    let document = data(text)?;
    let Some(entries) = at(&document, path).and_then(Value::as_array) else { return Ok(text.to_owned()) };
    if !entries.iter().any(|entry| is_ours(entry, mark)) {
        return Ok(text.to_owned());
    }
    let was_there = at(&data(before)?, path).is_some();
    if entries.len() == 1 && !was_there {
        return restore(text, before, path);
    }
    let root = parse(text)?;
    let Some((last, parents)) = path.split_last() else { bail!("a setting needs a place") };
    if let Some(list) = object_at(&root, parents).and_then(|object| object.array_value(last)) {
        remove_ours(&list, entries, mark);
    }
    Ok(root.to_string())
}

/// The value to write: with those defaults whose fields are missing.
fn complete(setting: &Setting, present: Option<&Value>) -> ConfigValue {
    let CstInputValue::Object(fields) = &setting.value else { return setting.value.clone() };
    let missing = |(key, _): &&(String, ConfigValue)| present.is_none_or(|present| present.get(key).is_none());
    table(fields.iter().chain(setting.defaults.iter().filter(missing)).cloned())
}

/// Whether `present` has everything wanted. It may have more.
fn contains(present: &Value, wanted: &Value) -> bool {
    match wanted {
        Value::Object(fields) => {
            fields.iter().all(|(key, value)| present.get(key).is_some_and(|present| contains(present, value)))
        }
        _ => present == wanted,
    }
}

fn put(object: &CstObject, key: &str, wanted: &ConfigValue) {
    match (object.get(key), wanted) {
        (None, _) => {
            object.append(key, wanted.clone());
        }
        (Some(property), CstInputValue::Object(fields)) => match property.object_value() {
            Some(inner) => fields.iter().for_each(|(key, item)| put(&inner, key, item)),
            None => property.set_value(wanted.clone()),
        },
        (Some(property), _) => property.set_value(wanted.clone()),
    }
}

/// Restores what `before` has at that path, or removes the value where it has none.
pub(super) fn restore(text: &str, before: &str, path: &[String]) -> Result<String> {
    let (document, before) = (data(text)?, data(before)?);
    if at(&document, path) == at(&before, path) {
        return Ok(text.to_owned());
    }
    let root = parse(text)?;
    // From the inside out: our value, then each table around it that was not there before and is empty now.
    for length in (1..=path.len()).rev() {
        let (place, inner) = (&path[..length], length == path.len());
        let Some(object) = object_at(&root, &place[..length - 1]) else { break };
        let Some(property) = object.get(&place[length - 1]) else { break };
        match at(&before, place) {
            Some(value) if inner => property.set_value(cst(value)),
            Some(_) => break,
            None if inner || property.object_value().is_some_and(|inner| inner.properties().is_empty()) => {
                property.remove()
            }
            None => break,
        }
    }
    Ok(root.to_string())
}

fn object_at(root: &CstRootNode, path: &[String]) -> Option<CstObject> {
    path.iter().try_fold(root.object_value()?, |object, key| object.object_value(key))
}

fn cst(value: &Value) -> CstInputValue {
    match value {
        Value::Null => CstInputValue::Null,
        Value::Bool(flag) => CstInputValue::Bool(*flag),
        Value::Number(number) => CstInputValue::Number(number.to_string()),
        Value::String(text) => CstInputValue::String(text.clone()),
        Value::Array(items) => CstInputValue::Array(items.iter().map(cst).collect()),
        Value::Object(fields) => {
            CstInputValue::Object(fields.iter().map(|(key, value)| (key.clone(), cst(value))).collect())
        }
    }
}

/// The value at a path.
pub(crate) fn value_at(text: &str, path: &[impl AsRef<str>]) -> Result<Option<Value>> {
    Ok(at(&data(text)?, path).cloned())
}

/// Whether the document is empty.
pub(super) fn is_empty(text: &str) -> Result<bool> {
    let commented = text.contains("//") || text.contains("/*");
    Ok(!commented && data(text)?.as_object().is_some_and(serde_json::Map::is_empty))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mailbox(args: &[&str]) -> Setting {
        let server = table([("command", "amb".into()), ("args", args.to_vec().into())]);
        Setting::new(&["mcpServers", "mailbox"], server)
    }

    #[test]
    fn an_empty_file_gets_the_setting() {
        for empty in ["", "\n", "{}"] {
            let text = set(empty, &mailbox(&["mcp"])).unwrap();
            let value: Value = serde_json::from_str(&text).unwrap();
            assert_eq!(value, serde_json::json!({"mcpServers": {"mailbox": {"command": "amb", "args": ["mcp"]}}}));
        }
        assert!(set("", &mailbox(&["mcp"])).unwrap().ends_with("}\n"));
    }

    const COMMENTED: &str = "{
  // my servers
  mcpServers: {
    'other': { command: 'x', /* why */ args: [1, 2,], },
  },
  theme: 'dark', // at night
}
";

    #[test]
    fn comments_and_unquoted_keys_stay_and_undoing_restores_the_text() {
        let text = set(COMMENTED, &mailbox(&["mcp"])).unwrap();
        for kept in ["// my servers", "/* why */", "'dark', // at night", "args: [1, 2,]"] {
            assert!(text.contains(kept), "{text}");
        }
        assert_eq!(data(&text).unwrap()["mcpServers"]["mailbox"]["command"], "amb");
        let path = mailbox(&[]).path;
        assert_eq!(data(&restore(&text, COMMENTED, &path).unwrap()).unwrap(), data(COMMENTED).unwrap());
    }

    #[test]
    fn setting_it_twice_changes_nothing() {
        let once = set(COMMENTED, &mailbox(&["mcp"])).unwrap();
        assert_eq!(set(&once, &mailbox(&["mcp"])).unwrap(), once);
        // What the user added to our entry stays.
        let tuned = once.replace("\"command\": \"amb\"", "\"command\": \"amb\", \"timeout\": 5000");
        assert_ne!(tuned, once);
        assert_eq!(set(&tuned, &mailbox(&["mcp"])).unwrap(), tuned);
        let moved = set(&tuned, &mailbox(&["mcp", "--as", "bob"])).unwrap();
        assert_eq!(data(&moved).unwrap()["mcpServers"]["mailbox"]["timeout"], 5000);
        assert_eq!(data(&moved).unwrap()["mcpServers"]["mailbox"]["args"][2], "bob");
    }

    #[test]
    fn a_default_yields_to_what_is_there() {
        let mut setting = mailbox(&["mcp"]);
        setting.defaults = vec![("allowFrom".into(), vec!["*"].into())];
        let fresh = data(&set("", &setting).unwrap()).unwrap();
        assert_eq!(fresh["mcpServers"]["mailbox"]["allowFrom"], serde_json::json!(["*"]));
        let chosen = "{\"mcpServers\": {\"mailbox\": {\"allowFrom\": [\"ann\"]}}}";
        let kept = data(&set(chosen, &setting).unwrap()).unwrap();
        assert_eq!(kept["mcpServers"]["mailbox"]["allowFrom"], serde_json::json!(["ann"]));
    }

    #[test]
    fn an_entry_is_added_to_a_list_once_and_removed_again() {
        let theirs = "{\n  \"permissions\": {\n    \"allow\": [\n      \"Bash(ls)\", // theirs\n    ]\n  }\n}\n";
        let rule = Setting::rule(&["permissions", "allow"], "mcp__mailbox".into());
        let text = set(theirs, &rule).unwrap();
        assert_eq!(data(&text).unwrap()["permissions"]["allow"], serde_json::json!(["Bash(ls)", "mcp__mailbox"]));
        assert!(text.contains("// theirs"), "{text}");
        assert_eq!(set(&text, &rule).unwrap(), text);
        let mark = rule.entry.clone().unwrap();
        let left = restore_entry(&text, theirs, &rule.path, &mark).unwrap();
        assert_eq!(data(&left).unwrap(), data(theirs).unwrap());
        let made = set("", &rule).unwrap();
        assert!(is_empty(&restore_entry(&made, "", &rule.path, &mark).unwrap()).unwrap());
        let hook = |command: &str| {
            let value = table([("command", command.into())]);
            Setting::command(&["hooks", "Stop"], value, "hook claude stop".into())
        };
        let moved =
            set(&set("{}", &hook("/old/amb hook claude stop")).unwrap(), &hook("amb hook claude stop")).unwrap();
        let wanted = serde_json::json!([{"command": "amb hook claude stop"}]);
        assert_eq!(data(&moved).unwrap()["hooks"]["Stop"], wanted, "the one from before is replaced");
        let only = Setting { entry: Some(EntryMark { only_if_there: true, ..mark }), ..rule };
        assert_eq!(set("{}", &only).unwrap(), "{}");
        assert!(set("{\"permissions\": {\"allow\": 3}}", &only).is_err());
    }

    #[test]
    fn undoing_removes_only_our_settings() {
        let path = mailbox(&[]).path;
        let made = set("{}", &mailbox(&["mcp"])).unwrap();
        assert!(is_empty(&restore(&made, "", &path).unwrap()).unwrap());
        let shared = "{\"mcpServers\": {\"mailbox\": {\"command\": \"amb\"}, \"theirs\": {}}}";
        let left = data(&restore(shared, "", &path).unwrap()).unwrap();
        assert_eq!(left, serde_json::json!({"mcpServers": {"theirs": {}}}));
    }

    #[test]
    fn what_is_not_json_or_not_a_table_is_left_alone() {
        assert!(set("{ not json", &mailbox(&["mcp"])).is_err());
        assert!(set("[1]", &mailbox(&["mcp"])).is_err());
        assert!(set("{\"mcpServers\": 3}", &mailbox(&["mcp"])).is_err());
    }
}

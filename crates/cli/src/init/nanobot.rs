//! The section `channels.mailbox` of nanobot's configuration: the user's settings for the agent's mailbox.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};

use amb_core::card::AllowFrom;
use amb_core::{AgentName, Card};
use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::json;

/// The settings of the section; those that are missing are decided elsewhere.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Section {
    pub(crate) agent: Option<String>,
    /// The directory of the mailboxes, as written: it may begin with `~`.
    root: Option<PathBuf>,
    /// The network office; the channel prefers it to a directory.
    pub(crate) server: Option<String>,
    description: Option<String>,
    capabilities: Option<Vec<String>>,
    allow_from: Option<Vec<String>>,
    max_concurrent_tasks: Option<u32>,
}

/// The section in the text of a configuration, if it is there. Keys are in camel case or in snake case, as nanobot
/// accepts both.
pub(crate) fn section(text: &str) -> Result<Option<Section>> {
    let Some(found) = json::value_at(text, &["channels", "mailbox"])? else { return Ok(None) };
    let get = |names: [&'static str; 2]| {
        let value = names.iter().find_map(|name| found.get(name)).filter(|value| !value.is_null());
        value.map(|value| (names[0], value))
    };
    let text = |names: [&'static str; 2]| -> Result<Option<String>> {
        get(names)
            .map(|(name, value)| {
                value.as_str().map(str::to_owned).with_context(|| format!("channels.mailbox.{name} is not a text"))
            })
            .transpose()
    };
    let number = |names: [&'static str; 2]| -> Result<Option<u32>> {
        get(names)
            .map(|(name, value)| {
                let number = value.as_u64().and_then(|number| u32::try_from(number).ok());
                number.with_context(|| format!("channels.mailbox.{name} is not a whole number"))
            })
            .transpose()
    };
    let texts = |names: [&'static str; 2]| get(names).map(|(name, value)| list(name, value)).transpose();
    Ok(Some(Section {
        agent: text(["agentId", "agent_id"])?.filter(|agent| !agent.is_empty()),
        root: text(["mailboxesRoot", "mailboxes_root"])?.filter(|root| !root.is_empty()).map(PathBuf::from),
        server: text(["serverUrl", "server_url"])?.filter(|server| !server.is_empty()),
        description: text(["description", "description"])?,
        capabilities: texts(["capabilities", "capabilities"])?,
        allow_from: texts(["allowFrom", "allow_from"])?,
        max_concurrent_tasks: number(["maxConcurrentTasks", "max_concurrent_tasks"])?,
    }))
}

/// A list of texts; a single text counts as a list of one.
fn list(name: &str, value: &Value) -> Result<Vec<String>> {
    let items = match value {
        Value::String(one) => return Ok(vec![one.clone()]),
        Value::Array(items) => items,
        _ => bail!("channels.mailbox.{name} is not a list of texts"),
    };
    let texts = items.iter().map(|item| item.as_str().map(str::to_owned));
    texts.collect::<Option<_>>().with_context(|| format!("channels.mailbox.{name} is not a list of texts"))
}

impl Section {
    /// The directory of the mailboxes, where the section names one.
    pub(crate) fn root(&self, home: &Path) -> Option<PathBuf> {
        let root = self.root.as_ref()?;
        Some(root.strip_prefix("~").map_or_else(|_| root.clone(), |rest| home.join(rest)))
    }

    /// Whether it is about this agent in this directory.
    pub(crate) fn is_about(&self, agent: &AgentName, directory: &Path, home: &Path) -> bool {
        let root = self.root(home).unwrap_or_else(|| home.join(".nanobot/mailboxes"));
        // A directory that does not exist yet contains no links.
        let real = |path: &Path| {
            fs_err::canonicalize(path).or_else(|_| std::path::absolute(path)).unwrap_or_else(|_| path.to_owned())
        };
        self.server.is_none() && self.agent.as_deref() == Some(agent.as_str()) && real(&root) == real(directory)
    }

    /// The card's `allow_from` where it is narrower than the section's `*`, which is ignored then: it would open what
    /// somebody closed.
    pub(crate) fn narrower<'c>(&self, card: &'c Card) -> Option<&'c [String]> {
        let is_everybody = |names: &[String]| names.iter().any(|name| name == "*");
        let wants_everybody = self.allow_from.as_deref().is_some_and(is_everybody);
        (wants_everybody && !is_everybody(&card.allow_from.0)).then_some(card.allow_from.0.as_slice())
    }

    /// The card with the section's settings. A `*`, which is also the default where nobody chose, does not widen a
    /// card's `allow_from`.
    pub(crate) fn card(&self, card: Card) -> Card {
        let allow_from = match &self.allow_from {
            Some(names) if !names.iter().any(|name| name == "*") => AllowFrom(names.clone()),
            _ => card.allow_from,
        };
        Card {
            description: self.description.clone().unwrap_or(card.description),
            capabilities: self.capabilities.clone().unwrap_or(card.capabilities),
            allow_from,
            max_concurrent_tasks: self.max_concurrent_tasks.unwrap_or(card.max_concurrent_tasks),
        }
    }
}

/// The file by which a Python installation with the mailbox channel is recognised.
const PLUGIN: &str = "agent_mailbox/nanobot/channel.py";

/// Whether the nanobot on the PATH has the mailbox channel, judged by the files beside its Python; nothing is executed.
pub(crate) fn has_plugin(path: &OsStr, home: &Path) -> bool {
    let Some(script) = std::env::split_paths(path).map(|place| place.join("nanobot")).find(|script| script.is_file())
    else {
        return false;
    };
    // Package installers put a link on the PATH; the script names the Python that it runs with.
    let real = fs_err::canonicalize(&script).ok();
    let prefix = |program: &Path| program.parent()?.parent().map(Path::to_owned);
    let places =
        [real.as_deref().and_then(prefix), interpreter(&script).as_deref().and_then(prefix), Some(home.join(".local"))];
    places.into_iter().flatten().any(|prefix| has_channel(&prefix))
}

/// The interpreter that a script's first line names.
fn interpreter(script: &Path) -> Option<PathBuf> {
    let mut line = Vec::new();
    let file = std::io::Read::take(fs_err::File::open(script).ok()?, 1024);
    BufReader::new(file).read_until(b'\n', &mut line).ok()?;
    let line = String::from_utf8(line).ok()?;
    line.strip_prefix("#!")?.split_whitespace().next().map(PathBuf::from)
}

/// Whether a Python under this prefix has the channel: in `lib/python3.12/site-packages`, or in Debian's
/// `dist-packages`.
fn has_channel(prefix: &Path) -> bool {
    let Ok(entries) = fs_err::read_dir(prefix.join("lib")) else { return false };
    let pythons = entries.flatten().filter(|entry| entry.file_name().to_string_lossy().starts_with("python3"));
    pythons.map(|entry| entry.path()).any(|python| {
        ["site-packages", "dist-packages"].iter().any(|packages| python.join(packages).join(PLUGIN).is_file())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_channel_is_found_beside_the_nanobot_of_the_path() {
        let home = tempfile::tempdir().unwrap();
        let (venv, bin) = (home.path().join("venv"), home.path().join("bin"));
        let packages = venv.join("lib/python3.12/site-packages/agent_mailbox/nanobot");
        for directory in [&venv.join("bin"), &bin, &packages] {
            fs_err::create_dir_all(directory).unwrap();
        }
        let python = venv.join("bin/python");
        fs_err::write(venv.join("bin/nanobot"), format!("#!{}\nimport sys\n", python.display())).unwrap();
        let is_found = || has_plugin(bin.as_os_str(), home.path());
        assert!(!is_found(), "no nanobot on the path");
        fs_err::os::unix::fs::symlink(venv.join("bin/nanobot"), bin.join("nanobot")).unwrap();
        assert!(!is_found(), "no channel in its Python");
        fs_err::write(packages.join("channel.py"), "").unwrap();
        assert!(is_found(), "by the link");
        fs_err::remove_file(bin.join("nanobot")).unwrap();
        fs_err::copy(venv.join("bin/nanobot"), bin.join("nanobot")).unwrap();
        assert!(is_found(), "by the interpreter in its first line");
    }

    #[test]
    fn the_section_sets_the_card_in_camel_case_and_in_snake_case() {
        let camel = r#"{ channels: { mailbox: { agentId: "coder", allowFrom: ["ann"], maxConcurrentTasks: 1,
            description: "writes code", capabilities: ["rust"] } } }"#;
        let snake = r#"{ "channels": { "mailbox": { "agent_id": "coder", "allow_from": "ann", "max_concurrent_tasks": 1,
            "description": "writes code", "capabilities": ["rust"] } } }"#;
        for text in [camel, snake] {
            let card = section(text).unwrap().unwrap().card(Card::default());
            assert_eq!(card.allow_from.0, ["ann"]);
            assert_eq!((card.max_concurrent_tasks, card.description.as_str()), (1, "writes code"));
            assert_eq!(card.capabilities, ["rust"]);
        }
        assert_eq!(section("{}").unwrap(), None);
        assert!(section(r#"{"channels": {"mailbox": {"allowFrom": 7}}}"#).is_err());
    }

    #[test]
    fn an_empty_allow_from_allows_nobody_and_a_star_does_not_widen_the_card() {
        let card = |allow: &str, there: &[&str]| {
            let text = format!(r#"{{"channels": {{"mailbox": {{"allowFrom": {allow}}}}}}}"#);
            let there = AllowFrom(there.iter().map(|name| (*name).to_owned()).collect());
            section(&text).unwrap().unwrap().card(Card { allow_from: there, ..Card::default() }).allow_from.0
        };
        assert!(card("[]", &["*"]).is_empty());
        assert_eq!(card(r#"["*"]"#, &["ann"]), ["ann"]);
        assert_eq!(card(r#"["bob"]"#, &["ann"]), ["bob"]);
    }

    #[test]
    fn a_star_that_is_ignored_is_reported() {
        let narrower = |allow: &str, there: &[&str]| {
            let text = format!(r#"{{"channels": {{"mailbox": {{"allowFrom": {allow}}}}}}}"#);
            let there = AllowFrom(there.iter().map(|name| (*name).to_owned()).collect());
            section(&text).unwrap().unwrap().narrower(&Card { allow_from: there, ..Card::default() }).is_some()
        };
        assert!(narrower(r#"["*"]"#, &["ann"]) && narrower(r#"["*"]"#, &[]));
        assert!(!narrower(r#"["*"]"#, &["*"]) && !narrower(r#"["bob"]"#, &["ann"]));
    }

    #[test]
    fn a_section_applies_to_one_agent_in_one_directory() {
        let text = r#"{"channels": {"mailbox": {"agentId": "coder", "mailboxesRoot": "~/mail"}}}"#;
        let section = section(text).unwrap().unwrap();
        let is = |agent: &str, directory: &str| {
            section.is_about(&agent.parse().unwrap(), Path::new(directory), Path::new("/home/ann"))
        };
        assert!(is("coder", "/home/ann/mail"));
        assert!(!is("ann", "/home/ann/mail") && !is("coder", "/srv/mail"));
    }
}

//! A file that names several bridges. Each table corresponds to a command line, so every flag works in it.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use clap::Parser;
use serde::Deserialize;
use toml::{Table, Value};

use super::super::BridgeVerb;
use super::super::state::inherited;
use crate::args::{Cli, OfficeArgs, Verb};
use crate::failure::Failure;
use crate::home;
use crate::init::not_toml;

/// The most bridges that one file names.
const MAX_BRIDGES: usize = 64;
/// Keys that are paths.
const PATHS: [&str; 3] = ["dir", "state", "cwd"];
/// Keys that come before the verb: the office and the agent.
const OFFICE: [&str; 4] = ["as", "dir", "server", "layout"];

/// One bridge.
#[derive(Debug, Clone)]
pub(crate) struct BridgeEntry {
    /// Its name in the file.
    pub(crate) name: String,
    /// Its command line, without the program.
    arguments: Vec<String>,
    /// The directory of its ledger, where one is given.
    pub(crate) state: Option<PathBuf>,
    /// The environment variables that it needs, by name.
    pub(crate) variables: Vec<String>,
    /// All values of `env`: names, and names with values.
    environment: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    bridges: Table,
}

/// Reads a file. Errors in it are reported before anything runs.
pub(crate) fn read(path: &Path) -> Result<Vec<BridgeEntry>, Failure> {
    let usage = |error: anyhow::Error| Failure::usage(format!("{}: {error:#}", path.display()));
    let text = fs_err::read_to_string(path)?;
    let base = std::path::absolute(path)?.parent().map(Path::to_owned).unwrap_or_default();
    entries(&text, &base, &home::user()?).map_err(usage)
}

fn entries(text: &str, base: &Path, home: &Path) -> Result<Vec<BridgeEntry>> {
    let file: File = toml::from_str(text).map_err(|error| not_toml(text, error.span(), error.message()))?;
    if file.bridges.is_empty() || file.bridges.len() > MAX_BRIDGES {
        bail!("it names {} bridges; 1 to {MAX_BRIDGES} run together", file.bridges.len());
    }
    let mut all = Vec::new();
    for (name, table) in file.bridges {
        let at = || format!("bridges.{name}");
        let Value::Table(table) = table else { bail!("{} is not a table", at()) };
        let entry = entry(&name, &table, base, home).with_context(at)?;
        entry.check().map_err(|failure| anyhow::anyhow!("{}", failure.detail())).with_context(at)?;
        if let Some(other) = all.iter().find(|other: &&BridgeEntry| other.mailbox() == entry.mailbox()) {
            bail!("{} is for the same agent and office as bridges.{}; a mailbox has one bridge", at(), other.name);
        }
        all.push(entry);
    }
    Ok(all)
}

fn entry(name: &str, table: &Table, base: &Path, home: &Path) -> Result<BridgeEntry> {
    let text = |key: &str| table.get(key).and_then(Value::as_str).with_context(|| format!("{key} is missing"));
    let kind = text("kind")?;
    if !["openclaw", "acp", "exec"].contains(&kind) {
        bail!("kind is openclaw, acp or exec, not {kind:?}");
    }
    // Required: the agent must not come from a user's profile.
    text("as")?;
    let (mut office, mut flags, mut command) = (Vec::new(), Vec::new(), Vec::new());
    let (mut state, mut variables, mut environment) = (None, Vec::new(), Vec::new());
    for (key, value) in table {
        let values = match value {
            Value::Array(values) => values.iter().map(|value| argument(key, value)).collect::<Result<Vec<_>>>()?,
            value => vec![argument(key, value)?],
        };
        let values: Vec<String> = match PATHS.contains(&key.as_str()) {
            true => values.iter().map(|path| absolute(path, base, home).display().to_string()).collect(),
            false => values,
        };
        let flag = format!("--{}", key.replace('_', "-"));
        match key.as_str() {
            "kind" => continue,
            "command" => command = values,
            _ if OFFICE.contains(&key.as_str()) => {
                office.extend(values.into_iter().flat_map(|value| [flag.clone(), value]))
            }
            _ => {
                if key == "state" {
                    state = values.first().map(PathBuf::from);
                }
                if key == "env" {
                    variables.extend(values.iter().filter(|value| !value.contains('=')).cloned());
                    environment = values.clone();
                }
                match value {
                    Value::Boolean(true) => flags.push(flag),
                    Value::Boolean(false) => {}
                    // With an equals sign, since a value may begin with a hyphen.
                    _ => flags.extend(values.iter().map(|value| format!("{flag}={value}"))),
                }
            }
        }
    }
    if kind == "openclaw" {
        variables.push("OPENCLAW_GATEWAY_TOKEN".into());
    }
    let mut arguments = office;
    arguments.extend(["bridge".to_owned(), kind.to_owned()]);
    arguments.extend(flags);
    if !command.is_empty() {
        arguments.push("--".into());
        arguments.extend(command);
    }
    Ok(BridgeEntry { name: name.to_owned(), arguments, state, variables, environment })
}

fn argument(key: &str, value: &Value) -> Result<String> {
    Ok(match value {
        Value::String(text) => text.clone(),
        Value::Integer(number) => number.to_string(),
        Value::Boolean(flag) => flag.to_string(),
        _ => bail!("{key} is a text, a whole number, true or false, or a list of texts"),
    })
}

/// Resolves a path relative to the home directory or to the file.
fn absolute(path: &str, base: &Path, home: &Path) -> PathBuf {
    match path.strip_prefix("~/") {
        Some(rest) => home.join(rest),
        None if path == "~" => home.to_owned(),
        None => base.join(path),
    }
}

impl BridgeEntry {
    /// The bridge and its office.
    pub(crate) fn parse(&self) -> Result<(BridgeVerb, OfficeArgs), Failure> {
        let (action, mut office) = self.parse_arguments()?;
        office.resolve()?;
        Ok((action, office))
    }

    /// The bridge and its office for a status. The local office has its last address while it does not run; that
    /// address is never connected to, because another server may use it.
    pub(crate) fn parse_for_status(&self) -> Result<(BridgeVerb, OfficeArgs), Failure> {
        let (action, mut office) = self.parse_arguments()?;
        office.resolve_or_wait()?;
        Ok((action, office))
    }

    /// Finds errors of the file. That the local office does not run is none: a bridge waits for its office.
    fn check(&self) -> Result<(), Failure> {
        let (_, mut office) = self.parse_arguments()?;
        if office.is_local_down() {
            return Ok(());
        }
        Ok(office.resolve()?)
    }

    /// Its agent and office as they are written, and its ledger: what only one bridge may have.
    fn mailbox(&self) -> (Vec<&str>, Option<&Path>) {
        let before_verb = self.arguments.iter().take_while(|argument| *argument != "bridge");
        let named = self.arguments.iter().filter(|argument| argument.starts_with("--office="));
        (before_verb.chain(named).map(String::as_str).collect(), self.state.as_deref())
    }

    /// Checks that the variables that it passes to its command are set, and may be passed.
    pub(crate) fn check_environment(&self) -> Result<(), Failure> {
        let failed = |failure: Failure| Failure::usage(format!("bridges.{}: {}", self.name, failure.detail()));
        inherited(&self.environment).map(drop).map_err(failed)
    }

    fn parse_arguments(&self) -> Result<(BridgeVerb, OfficeArgs), Failure> {
        let cli = Cli::try_parse_from(std::iter::once("amb").chain(self.arguments.iter().map(String::as_str)));
        let cli = cli.map_err(|error| {
            let text = error.to_string();
            // The first paragraph: the usage follows it.
            let lines: Vec<&str> = text.lines().map(str::trim).take_while(|line| !line.is_empty()).collect();
            Failure::usage(lines.join(" ").trim_start_matches("error: ").to_owned())
        })?;
        match cli.verb {
            Verb::Bridge(bridge) => Ok((bridge.action, cli.office)),
            _ => Err(Failure::usage("it is not a bridge")),
        }
    }

    /// Its command line, for people. Values that are set for the command are left out: they may be secret.
    pub(crate) fn shown(&self) -> String {
        let shown = self.arguments.iter().map(|argument| {
            match argument.strip_prefix("--env=").and_then(|set| set.split_once('=')) {
                Some((name, _)) => format!("--env={name}=•••"),
                None => argument.clone(),
            }
        });
        format!("amb {}", shown.collect::<Vec<_>>().join(" "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Vec<BridgeEntry>> {
        entries(text, Path::new("/etc/amb"), Path::new("/home/ann"))
    }

    #[test]
    fn a_table_becomes_a_command_line() {
        let text = r#"
            [bridges.reviewer]
            kind = "acp"
            as = "reviewer"
            dir = "~/mail"
            cwd = "app"
            command = ["gemini", "--acp"]
            permissions = "read"
            env = ["GEMINI_API_KEY", "A=secret"]
            concurrency = 2
            no_archive = true

            [bridges.claw]
            kind = "openclaw"
            as = "claw"
            server = "http://127.0.0.1:8000"
            session-per-peer = false
        "#;
        let all = read(text).unwrap();
        assert_eq!(
            all[1].shown(),
            "amb --as reviewer --dir /home/ann/mail bridge acp --concurrency=2 --cwd=/etc/amb/app --env=GEMINI_API_KEY \
             --env=A=••• --no-archive --permissions=read -- gemini --acp"
        );
        assert_eq!(all[0].shown(), "amb --as claw --server http://127.0.0.1:8000 bridge openclaw");
        assert_eq!(all[1].variables, ["GEMINI_API_KEY"]);
        assert_eq!(all[0].variables, ["OPENCLAW_GATEWAY_TOKEN"]);
    }

    #[test]
    fn errors_name_the_table_they_are_in() {
        let cases = [
            ("", "bridges"),
            ("[bridges]", "names 0 bridges"),
            ("[bridges.a]\nas = 'a'", "kind is missing"),
            ("[bridges.a]\nkind = 'exec'\ncommand = ['x']", "as is missing"),
            ("[bridges.a]\nkind = 'serve'\nas = 'a'", "not \"serve\""),
            ("[bridges.a]\nkind = 'exec'\nas = 'a'", "not provided: <COMMAND>..."),
            ("[bridges.a]\nkind = 'exec\nas = 'a'", "line 2"),
            (
                "[bridges.a]\nkind = 'exec'\nas = 'a'\ndir = 'm'\ncommand = ['x']\n\
                 [bridges.b]\nkind = 'exec'\nas = 'a'\ndir = 'm'\ncommand = ['y']",
                "same agent and office as bridges.a",
            ),
            ("[bridges.a]\nkind = 'exec'\nas = 'a'\ncommand = ['x']\ncolour = 'red'", "--colour"),
            ("[bridges.a]\nkind = 'exec'\nas = 'a'\ncommand = ['x']\nconcurrency = 0", "turns run at once"),
            ("[bridges.a]\nkind = 'exec'\nas = 'a'\ncommand = [['x']]", "a list of texts"),
        ];
        for (text, words) in cases {
            let error = format!("{:#}", read(text).unwrap_err());
            assert!(error.contains(words), "{text}: {error}");
        }
    }
}

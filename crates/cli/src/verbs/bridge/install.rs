//! `amb bridge install`: has the bridges of a file run by the machine's own service manager.

mod environment;
mod unit;

use std::path::{Path, PathBuf};

use anyhow::Context;
use serde_json::json;

use self::unit::Service;
use super::run::file::{BridgeEntry, read};
use crate::failure::Failure;
use crate::output::Output;
use crate::{durable, home};

/// The service manager for which files are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Manager {
    /// A user unit of systemd
    Systemd,
    /// A launch agent of macOS
    Launchd,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  amb bridge install bridges.toml --print          print the files, write nothing
  GEMINI_API_KEY=... amb bridge install bridges.toml
  amb bridge install bridges.toml --remove

The service runs `amb bridge run FILE`, and restarts it when it fails. The unit contains no keys:
the variables that the file names under env are stored with their current values, and with your
PATH, in a separate environment file that only you can read.")]
pub(super) struct InstallArgs {
    /// The file with the bridges
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// The name of the service; default: the name of the file without its extension
    #[arg(long, value_name = "NAME", value_parser = name)]
    name: Option<String>,
    /// Store this variable of your environment for the bridges, too; repeatable
    #[arg(long = "env", value_name = "NAME")]
    environment: Vec<String>,
    /// The service manager; default: that of this system
    #[arg(long, value_enum, value_name = "MANAGER")]
    manager: Option<Manager>,
    /// Print the files without the values of variables, and write nothing
    #[arg(long)]
    print: bool,
    /// Remove the service
    #[arg(long, conflicts_with = "print")]
    remove: bool,
}

/// The name becomes part of a file name and of a unit's name.
fn name(text: &str) -> Result<String, String> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    match text.len() {
        1..=64 if text.chars().all(is_plain) && !text.starts_with(['-', '.']) => Ok(text.to_owned()),
        _ => Err("a name has 1 to 64 letters, digits, - _ and .".into()),
    }
}

impl InstallArgs {
    pub(super) fn run(self, output: Output) -> Result<(), Failure> {
        let service = self.service()?;
        if self.remove {
            return remove(&service, output);
        }
        let entries = read(&self.file)?;
        let variables = environment::collect(&entries, &self.environment)?;
        let missing: Vec<&str> =
            needed_variables(&entries).filter(|name| !variables.iter().any(|(known, _)| known == name)).collect();
        if self.print {
            output.say(format!("# {}", service.place.display()))?;
            output.say(service.text())?;
            output.say(format!("# {} (mode 0600)", service.environment.display()))?;
            return Ok(output.say(environment::render(&variables, true).trim_end())?);
        }
        // The environment first: the unit must not start without it.
        write(&service.environment, &environment::render(&variables, false), 0o600)?;
        write(&service.place, &service.text(), 0o644)?;
        if let Some(link) = service.link() {
            enable(&link, &service.place)?;
        }
        if output.json {
            let names: Vec<&str> = variables.iter().map(|(name, _)| name.as_str()).collect();
            return Ok(output.document(&json!({
                "unit": service.place, "environment": service.environment, "variables": names, "missing": missing,
            }))?);
        }
        output.note(format!("written: {} and {}", service.place.display(), service.environment.display()));
        for name in missing {
            output.note(format!("warning: {name} is not in your environment; set it and run this again"));
        }
        output.note(service.next_step());
        Ok(())
    }

    fn service(&self) -> Result<Service, Failure> {
        let file = std::path::absolute(&self.file).context("the file's path")?;
        let stem = file.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
        let chosen = match &self.name {
            Some(chosen) => chosen.clone(),
            None => name(stem).map_err(|why| Failure::usage(format!("{stem:?}: {why}; choose one with --name")))?,
        };
        let default = if cfg!(target_os = "macos") { Manager::Launchd } else { Manager::Systemd };
        let program = std::env::current_exe().context("where this program is")?;
        let manager = self.manager.unwrap_or(default);
        let place = match manager {
            Manager::Systemd => home::config_home()?.join(format!("systemd/user/amb-bridge-{chosen}.service")),
            Manager::Launchd => home::user()?.join(format!("Library/LaunchAgents/agent-mailbox.bridge.{chosen}.plist")),
        };
        let environment = home::config_dir()?.join(format!("bridge-{chosen}.env"));
        Ok(Service { name: chosen, manager, program, file, place, environment })
    }
}

/// The environment variables that the bridges need.
fn needed_variables(entries: &[BridgeEntry]) -> impl Iterator<Item = &str> {
    entries.iter().flat_map(|entry| entry.variables.iter().map(String::as_str))
}

fn remove(service: &Service, output: Output) -> Result<(), Failure> {
    let mut removed = Vec::new();
    for path in service.link().into_iter().chain([service.place.clone(), service.environment.clone()]) {
        match fs_err::remove_file(&path) {
            Ok(()) => removed.push(path),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(error.into()),
        }
    }
    if output.json {
        return Ok(output.document(&json!({ "removed": removed }))?);
    }
    for path in &removed {
        output.note(format!("removed: {}", path.display()));
    }
    output.note(if removed.is_empty() { "there is no such service".to_owned() } else { service.last_step() });
    Ok(())
}

fn write(path: &Path, text: &str, mode: u32) -> Result<(), Failure> {
    fs_err::create_dir_all(path.parent().context("a file has a directory")?)?;
    Ok(durable::replace(path, text.as_bytes(), mode)?)
}

/// Enables the unit for the user's session, as `systemctl --user enable` does.
fn enable(link: &Path, unit: &Path) -> Result<(), Failure> {
    fs_err::create_dir_all(link.parent().context("a link has a directory")?)?;
    match fs_err::os::unix::fs::symlink(unit, link) {
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => Ok(()),
        other => Ok(other?),
    }
}

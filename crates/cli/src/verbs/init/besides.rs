//! The files that `amb init` writes besides the one with the servers.

use std::path::PathBuf;

use serde::Serialize;

use super::{InitCommand, places, usage};
use crate::failure::Failure;
use crate::init::{ClientAccount, ConfigFile, Extra, Hooks, Plan, Scope, Setting, diff, json};
use crate::output::Output;

/// The planned change of one file.
pub(super) struct Besides {
    config: ConfigFile,
    settings: Vec<Setting>,
    plan: Plan,
}

/// The result for one file.
#[derive(Debug, Serialize)]
pub(super) struct WrittenFile {
    path: PathBuf,
    changed: bool,
    diff: String,
    backup: Option<PathBuf>,
    #[serde(skip)]
    dry_run: bool,
}

impl InitCommand {
    fn hooks(&self) -> Hooks {
        match (self.hooks, self.no_hooks) {
            (true, _) => Hooks::Always,
            (_, true) => Hooks::Never,
            _ => Hooks::Usual,
        }
    }

    fn extras(&self, account: &ClientAccount, hooks: Hooks) -> Result<Vec<Extra>, Failure> {
        // Where a file was named, the paths of the others are unknown.
        if self.config.is_some() {
            return Ok(Vec::new());
        }
        let scope: Scope = self.scope.unwrap_or_else(|| self.client.usual_scope());
        Ok(self.client.extras(account, &self.name, scope, &places()?, hooks))
    }

    /// What is written into the file with the servers, besides them.
    pub(super) fn more_settings(&self, account: &ClientAccount) -> Vec<Setting> {
        if self.server_only { Vec::new() } else { self.client.more_settings(account, &self.name, self.hooks()) }
    }

    /// The planned changes of the other files. Nothing is written yet, so that errors are found first.
    pub(super) fn besides(&self, account: &ClientAccount) -> Result<Vec<Besides>, Failure> {
        if self.server_only {
            return Ok(Vec::new());
        }
        let mut all = Vec::new();
        for Extra { path, format, settings } in self.extras(account, self.hooks())? {
            let config = ConfigFile::open(path, format)?;
            let plan = config.with(&settings).map_err(usage)?;
            all.push(Besides { config, settings, plan });
        }
        Ok(all)
    }

    /// Removes our parts from the other files, hooks included, however they got there.
    pub(super) fn undo_besides(&self, account: &ClientAccount) -> Result<Vec<WrittenFile>, Failure> {
        let mut all = Vec::new();
        for Extra { path, format, settings } in self.extras(account, Hooks::Always)? {
            let config = ConfigFile::open(path, format)?;
            let plan = without(&config, &settings).map_err(usage)?;
            if plan.changes() && !self.dry_run {
                config.carry_out(&plan)?;
                config.drop_backup()?;
            }
            all.push(written(config, &plan, None, self.dry_run));
        }
        Ok(all)
    }
}

/// The file without our parts. The version of a file of hooks stays as long as anything else is in it.
fn without(config: &ConfigFile, settings: &[Setting]) -> anyhow::Result<Plan> {
    let (version, hooks): (Vec<_>, Vec<_>) = settings.iter().cloned().partition(|setting| setting.path == ["version"]);
    let plan = config.without(&hooks)?;
    if version.is_empty() {
        return Ok(plan);
    }
    let rest = plan.new.as_deref().map(|text| json::value_at(text, &[""; 0])).transpose()?.flatten();
    let is_bare =
        rest.as_ref().and_then(|rest| rest.as_object()).is_some_and(|rest| rest.keys().all(|key| key == "version"));
    if is_bare { config.without(settings) } else { Ok(plan) }
}

/// Writes the files that change.
pub(super) fn write(all: Vec<Besides>, dry_run: bool) -> Result<Vec<WrittenFile>, Failure> {
    let mut done = Vec::new();
    for Besides { config, settings, plan } in all {
        let mut backup = None;
        if plan.changes() && !dry_run {
            backup = config.keep_backup(&settings)?;
            config.carry_out(&plan)?;
        }
        done.push(written(config, &plan, backup, dry_run));
    }
    Ok(done)
}

fn written(config: ConfigFile, plan: &Plan, backup: Option<PathBuf>, dry_run: bool) -> WrittenFile {
    let diff = diff(&plan.old, plan.new.as_deref().unwrap_or(""));
    WrittenFile { path: config.path, changed: plan.changes(), diff, backup, dry_run }
}

pub(super) fn tell_all(all: &[WrittenFile], output: Output) -> Result<(), Failure> {
    for file in all.iter().filter(|file| file.changed) {
        let path = file.path.display();
        output.note(format!("{path}{}", if file.dry_run { " (not changed: --dry-run)" } else { "" }));
        output.say(file.diff.trim_end())?;
        if let Some(backup) = &file.backup {
            output.note(format!("what was there before is kept in {}", backup.display()));
        }
    }
    Ok(())
}

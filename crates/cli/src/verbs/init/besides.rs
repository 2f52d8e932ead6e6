//! The files that `amb init` writes besides the one with the servers.

use std::path::PathBuf;

use serde::Serialize;

use super::{Init, places, usage};
use crate::failure::Failure;
use crate::init::{Account, Config, Extra, Hooks, Plan, Scope, Setting, diff, json};
use crate::output::Output;

/// What becomes of one file.
pub(super) struct Besides {
    config: Config,
    settings: Vec<Setting>,
    plan: Plan,
}

/// What became of one file.
#[derive(Debug, Serialize)]
pub(super) struct Written {
    path: PathBuf,
    changed: bool,
    diff: String,
    backup: Option<PathBuf>,
    #[serde(skip)]
    dry_run: bool,
}

impl Init {
    fn hooks(&self) -> Hooks {
        match (self.hooks, self.no_hooks) {
            (true, _) => Hooks::Always,
            (_, true) => Hooks::Never,
            _ => Hooks::Usual,
        }
    }

    fn extras(&self, account: &Account, hooks: Hooks) -> Result<Vec<Extra>, Failure> {
        // A file that was named stands alone: where the others would be is not known.
        if self.config.is_some() {
            return Ok(Vec::new());
        }
        let scope: Scope = self.scope.unwrap_or_else(|| self.client.usual_scope());
        Ok(self.client.extras(account, &self.name, scope, &places()?, hooks))
    }

    /// What is written into the file with the servers, besides them.
    pub(super) fn more_settings(&self, account: &Account) -> Vec<Setting> {
        if self.server_only { Vec::new() } else { self.client.more_settings(account, &self.name, self.hooks()) }
    }

    /// What is to become of the other files. Nothing is written yet: what cannot be is found before.
    pub(super) fn besides(&self, account: &Account) -> Result<Vec<Besides>, Failure> {
        if self.server_only {
            return Ok(Vec::new());
        }
        let mut all = Vec::new();
        for Extra { path, format, settings } in self.extras(account, self.hooks())? {
            let config = Config::open(path, format)?;
            let plan = config.with(&settings).map_err(usage)?;
            all.push(Besides { config, settings, plan });
        }
        Ok(all)
    }

    /// Takes ours out of the other files, hooks included, however they came there.
    pub(super) fn undo_besides(&self, account: &Account) -> Result<Vec<Written>, Failure> {
        let mut all = Vec::new();
        for Extra { path, format, settings } in self.extras(account, Hooks::Always)? {
            let config = Config::open(path, format)?;
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

/// The file without ours. The version of a file of hooks stays as long as anything else is in it.
fn without(config: &Config, settings: &[Setting]) -> anyhow::Result<Plan> {
    let (version, hooks): (Vec<_>, Vec<_>) = settings.iter().cloned().partition(|setting| setting.path == ["version"]);
    let plan = config.without(&hooks)?;
    if version.is_empty() {
        return Ok(plan);
    }
    let rest = plan.new.as_deref().map(|text| json::value_at(text, &[])).transpose()?.flatten();
    let is_bare =
        rest.as_ref().and_then(|rest| rest.as_object()).is_some_and(|rest| rest.keys().all(|key| key == "version"));
    if is_bare { config.without(settings) } else { Ok(plan) }
}

/// Writes the files that change.
pub(super) fn write(all: Vec<Besides>, dry_run: bool) -> Result<Vec<Written>, Failure> {
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

fn written(config: Config, plan: &Plan, backup: Option<PathBuf>, dry_run: bool) -> Written {
    let diff = diff(&plan.old, plan.new.as_deref().unwrap_or(""));
    Written { path: config.path, changed: plan.changes(), diff, backup, dry_run }
}

pub(super) fn tell_all(all: &[Written], output: Output) -> Result<(), Failure> {
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

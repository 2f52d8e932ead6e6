//! The change of one of a client's files.

use std::path::PathBuf;

use serde::Serialize;

use super::usage;
use crate::failure::Failure;
use crate::init::{ConfigFile, Plan, Setting, diff, json};
use crate::output::Output;

/// A planned change.
pub(super) struct FileChange {
    config: ConfigFile,
    settings: Vec<Setting>,
    plan: Plan,
}

/// A change that was made or, with `--dry-run`, would be made.
#[derive(Debug, Serialize)]
pub(super) struct WrittenFile {
    pub(super) path: PathBuf,
    pub(super) changed: bool,
    pub(super) diff: String,
    pub(super) backup: Option<PathBuf>,
    /// Whether the file exists before and after the change.
    #[serde(skip)]
    exists: (bool, bool),
}

impl FileChange {
    pub(super) fn adding(config: ConfigFile, settings: Vec<Setting>) -> Result<Self, Failure> {
        let plan = config.plan_adding(&settings).map_err(usage)?;
        Ok(Self { config, settings, plan })
    }

    pub(super) fn removing(config: ConfigFile, settings: Vec<Setting>) -> Result<Self, Failure> {
        let plan = plan_removing(&config, &settings).map_err(usage)?;
        Ok(Self { config, settings, plan })
    }

    /// Writes the file with our settings, after a backup.
    pub(super) fn write(self, dry_run: bool) -> Result<WrittenFile, Failure> {
        let mut backup = None;
        if self.plan.changes() && !dry_run {
            backup = self.config.keep_backup(&self.settings)?;
            self.config.write_plan(&self.plan)?;
        }
        Ok(WrittenFile { backup, ..self.report() })
    }

    /// Writes the file without our settings, and removes its backup.
    pub(super) fn write_undo(self, dry_run: bool) -> Result<WrittenFile, Failure> {
        if self.plan.changes() && !dry_run {
            self.config.write_plan(&self.plan)?;
            self.config.drop_backup()?;
        }
        Ok(self.report())
    }

    fn report(self) -> WrittenFile {
        let diff = diff(&self.plan.old, self.plan.new.as_deref().unwrap_or(""));
        let exists = (self.config.exists(), self.plan.new.is_some());
        WrittenFile { path: self.config.path, changed: self.plan.changes(), diff, backup: None, exists }
    }
}

impl WrittenFile {
    pub(super) fn show(&self, dry_run: bool, output: Output) -> Result<(), Failure> {
        let path = self.path.display();
        output.note(format!("{path}{}", if dry_run { " (not changed: --dry-run)" } else { "" }));
        let name = |side: &str, exists: bool| match exists {
            true => format!("{side}/{}", self.path.strip_prefix("/").unwrap_or(&self.path).display()),
            false => "/dev/null".to_owned(),
        };
        let (old, new) = (name("a", self.exists.0), name("b", self.exists.1));
        output.say(format!("--- {old}\n+++ {new}\n{}", self.diff.trim_end()))?;
        if let Some(backup) = &self.backup {
            output.note(format!("the file from before the first change is saved as {}", backup.display()));
        }
        Ok(())
    }
}

/// The file without our settings. The version of a file of hooks stays as long as anything else is in it.
fn plan_removing(config: &ConfigFile, settings: &[Setting]) -> anyhow::Result<Plan> {
    let (version, others): (Vec<_>, Vec<_>) = settings.iter().cloned().partition(|setting| setting.path == ["version"]);
    let plan = config.plan_removing(&others)?;
    if version.is_empty() {
        return Ok(plan);
    }
    let rest = plan.new.as_deref().map(|text| json::value_at(text, &[""; 0])).transpose()?.flatten();
    let has_only_version =
        rest.as_ref().and_then(|rest| rest.as_object()).is_some_and(|rest| rest.keys().all(|key| key == "version"));
    if has_only_version { config.plan_removing(settings) } else { Ok(plan) }
}

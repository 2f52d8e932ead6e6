//! A configuration file, replaced as a whole, with a backup of the text from before our first change.

use std::ffi::OsString;
use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::durable;

use super::{Format, Setting, apply, flag_at, json, revert, toml};

/// A client's file, which may not exist yet.
#[derive(Debug)]
pub(crate) struct ConfigFile {
    /// Where the client looks.
    pub(crate) path: PathBuf,
    pub(crate) format: Format,
    /// What is in it; `None` where there is no file.
    text: Option<String>,
}

/// A planned change of a file.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    /// The current text.
    pub(crate) old: String,
    /// The new text; `None` to remove the file.
    pub(crate) new: Option<String>,
}

impl Plan {
    pub(crate) fn changes(&self) -> bool {
        self.new.as_deref() != Some(self.old.as_str())
    }
}

impl ConfigFile {
    pub(crate) fn open(path: PathBuf, format: Format) -> Result<Self> {
        let path = resolve(path)?;
        let text = read(&path)?;
        Ok(Self { path, format, text })
    }

    pub(crate) fn text(&self) -> &str {
        self.text.as_deref().unwrap_or("")
    }

    pub(crate) fn exists(&self) -> bool {
        self.text.is_some()
    }

    /// The path of the backup.
    pub(crate) fn backup(&self) -> PathBuf {
        let mut name = self.path.file_name().map(OsString::from).unwrap_or_default();
        name.push(".amb-backup");
        self.path.with_file_name(name)
    }

    /// The change that adds the settings.
    pub(crate) fn plan_adding(&self, settings: &[Setting]) -> Result<Plan> {
        let new = apply(self.format, self.text(), settings).with_context(|| self.path.display().to_string())?;
        Ok(Plan { old: self.text().to_owned(), new: Some(new) })
    }

    /// The change that removes the settings. If nobody else changed the file meanwhile, it becomes the backup, byte for
    /// byte; else it keeps everything that others wrote since.
    pub(crate) fn plan_removing(&self, settings: &[Setting]) -> Result<Plan> {
        let old = self.text().to_owned();
        // Earlier versions saved files with our settings.
        let strip = |text: String| match self.has_ours(&text, settings) {
            true => revert(self.format, &text, None, settings),
            false => Ok(text),
        };
        let before = read(&self.backup())?.map(strip).transpose()?;
        let new =
            revert(self.format, &old, before.as_deref(), settings).with_context(|| self.path.display().to_string())?;
        // The backup may be restored if adding our settings to it and removing them again leaves the same text as
        // removing them from the current file.
        if let Some(before) = before.as_deref()
            && let Ok(ours) = apply(self.format, before, settings)
            && revert(self.format, &ours, Some(before), settings).is_ok_and(|left| left == new)
        {
            return Ok(Plan { old, new: Some(before.to_owned()) });
        }
        let empty = match self.format {
            Format::Json => json::is_empty(&new)?,
            Format::Toml => toml::is_empty(&new)?,
            Format::Section | Format::Script => new.trim().is_empty(),
        };
        // A file that we created and that is empty without our settings is removed.
        let new = (before.is_some() || !empty || self.text.is_none() || new == old).then_some(new);
        Ok(Plan { old, new })
    }

    /// Saves the text from before our first change as the backup, and returns its path; `None` if there was no file.
    pub(crate) fn keep_backup(&self, settings: &[Setting]) -> Result<Option<PathBuf>> {
        let Some(text) = &self.text else { return Ok(None) };
        let backup = self.backup();
        if backup.exists() {
            return Ok(Some(backup));
        }
        // A file with our settings and no backup is one that we created.
        if self.has_ours(text, settings) {
            return Ok(None);
        }
        self.replace(&backup, text)?;
        Ok(Some(backup))
    }

    /// Whether some of these settings are in the text, for whichever agent: other programs have no such marks, sections
    /// and scripts, and their servers no agent.
    fn has_ours(&self, text: &str, settings: &[Setting]) -> bool {
        settings.iter().any(|setting| match (self.format, &setting.entry) {
            (Format::Json, None) | (Format::Toml, _) => {
                let path: Vec<&str> = setting.path.iter().map(String::as_str).collect();
                flag_at(self.format, text, &path, "--as").is_ok_and(|agent| agent.is_some())
            }
            _ => revert(self.format, text, None, std::slice::from_ref(setting)).is_ok_and(|left| left != text),
        })
    }

    /// Applies the plan, durably.
    pub(crate) fn write_plan(&self, plan: &Plan) -> Result<()> {
        match &plan.new {
            Some(new) => self.replace(&self.path, new),
            None => Ok(fs_err::remove_file(&self.path)?),
        }
    }

    /// Removes the backup, once its text is restored.
    pub(crate) fn drop_backup(&self) -> Result<()> {
        match fs_err::remove_file(self.backup()) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(error.into()),
            _ => Ok(()),
        }
    }

    fn replace(&self, path: &Path, text: &str) -> Result<()> {
        let directory = path.parent().context("a file has a directory")?;
        fs_err::create_dir_all(directory)?;
        // The file may hold keys, so its permissions stay.
        let mode = match fs_err::metadata(&self.path) {
            Ok(metadata) => metadata.permissions().mode() & 0o777,
            Err(_) => durable::PRIVATE,
        };
        Ok(durable::replace(path, text.as_bytes(), mode)?)
    }
}

/// The file at the end of symbolic links, which stay links to it, also where it does not exist yet.
fn resolve(path: PathBuf) -> Result<PathBuf> {
    match fs_err::canonicalize(&path) {
        Err(error) if error.kind() == ErrorKind::NotFound => match fs_err::read_link(&path) {
            // `canonicalize` fails at a circle with another error, so this ends.
            Ok(target) => resolve(path.parent().unwrap_or(Path::new("")).join(target)),
            Err(_) => Ok(path),
        },
        found => Ok(found?),
    }
}

/// The text of a file; `None` where there is none.
fn read(path: &Path) -> Result<Option<String>> {
    let bytes = durable::read(path)?;
    bytes.map(String::from_utf8).transpose().with_context(|| path.display().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::init::value::{ConfigValue, table};

    fn settings(name: &str) -> Vec<Setting> {
        vec![Setting::new(&["mcpServers", "mailbox"], table([("command", name.into())]))]
    }

    fn open(directory: &Path) -> ConfigFile {
        ConfigFile::open(directory.join("settings.json"), Format::Json).unwrap()
    }

    fn init(directory: &Path, name: &str) {
        let config = open(directory);
        let plan = config.plan_adding(&settings(name)).unwrap();
        config.keep_backup(&settings(name)).unwrap();
        config.write_plan(&plan).unwrap();
    }

    fn undo(directory: &Path, name: &str) {
        let config = open(directory);
        let plan = config.plan_removing(&settings(name)).unwrap();
        config.write_plan(&plan).unwrap();
        config.drop_backup().unwrap();
    }

    const THEIRS: &str = "{\n  \"a\" : 1 // odd spacing\n}";

    #[test]
    fn undoing_restores_the_file_byte_for_byte_even_after_two_changes() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("settings.json");
        fs_err::write(&path, THEIRS).unwrap();
        init(home.path(), "amb");
        init(home.path(), "/opt/amb");
        assert!(open(home.path()).backup().exists());
        undo(home.path(), "whoever");
        assert_eq!(fs_err::read_to_string(&path).unwrap(), THEIRS);
        assert!(!open(home.path()).backup().exists());
    }

    #[test]
    fn undoing_keeps_what_others_wrote_since() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("settings.json");
        fs_err::write(&path, THEIRS).unwrap();
        init(home.path(), "amb");
        let later = fs_err::read_to_string(&path).unwrap().replace(": 1", ": 2");
        fs_err::write(&path, later).unwrap();
        undo(home.path(), "amb");
        let left = fs_err::read_to_string(&path).unwrap();
        assert!(
            left.contains("\"a\" : 2 // odd spacing") && !left.contains("mailbox") && !left.contains("mcpServers"),
            "{left}"
        );
    }

    #[test]
    fn a_file_that_we_created_is_removed() {
        let home = tempfile::tempdir().unwrap();
        init(home.path(), "amb");
        assert!(home.path().join("settings.json").exists());
        undo(home.path(), "amb");
        assert_eq!(fs_err::read_dir(home.path()).unwrap().count(), 0);
    }

    /// A server for this agent, under a name.
    fn server(name: &str, agent: &str) -> Vec<Setting> {
        let args = ["mcp", "--as", agent].map(Into::into).to_vec();
        vec![Setting::new(
            &["mcpServers", name],
            table([("command", "amb".into()), ("args", ConfigValue::Array(args))]),
        )]
    }

    fn add(directory: &Path, settings: &[Setting]) -> Option<PathBuf> {
        let config = open(directory);
        let plan = config.plan_adding(settings).unwrap();
        let backup = config.keep_backup(settings).unwrap();
        config.write_plan(&plan).unwrap();
        backup
    }

    #[test]
    fn undoing_two_changes_of_a_file_that_we_created_removes_it() {
        let home = tempfile::tempdir().unwrap();
        assert_eq!(add(home.path(), &server("mailbox", "one")), None);
        assert_eq!(add(home.path(), &server("mailbox", "two")), None);
        let config = open(home.path());
        config.write_plan(&config.plan_removing(&server("mailbox", "nobody")).unwrap()).unwrap();
        assert_eq!(fs_err::read_dir(home.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_backup_is_the_text_before_our_first_change_under_any_name() {
        let home = tempfile::tempdir().unwrap();
        fs_err::write(home.path().join("settings.json"), THEIRS).unwrap();
        add(home.path(), &server("m1", "one"));
        let backup = add(home.path(), &server("m2", "two")).unwrap();
        assert_eq!(fs_err::read_to_string(backup).unwrap(), THEIRS);
        for name in ["m1", "m2"] {
            let config = open(home.path());
            config.write_plan(&config.plan_removing(&server(name, "nobody")).unwrap()).unwrap();
        }
        assert_eq!(fs_err::read_to_string(home.path().join("settings.json")).unwrap(), THEIRS);
    }

    #[test]
    fn undoing_without_our_settings_changes_nothing() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("settings.json");
        fs_err::write(&path, THEIRS).unwrap();
        undo(home.path(), "amb");
        assert_eq!(fs_err::read_to_string(&path).unwrap(), THEIRS);
    }

    #[test]
    fn a_symlink_and_the_mode_of_its_target_are_kept() {
        let home = tempfile::tempdir().unwrap();
        let real = home.path().join("dotfiles.json");
        fs_err::write(&real, "{}").unwrap();
        fs_err::set_permissions(&real, std::fs::Permissions::from_mode(0o640)).unwrap();
        fs_err::os::unix::fs::symlink(&real, home.path().join("settings.json")).unwrap();
        init(home.path(), "amb");
        assert!(fs_err::symlink_metadata(home.path().join("settings.json")).unwrap().is_symlink());
        assert!(fs_err::read_to_string(&real).unwrap().contains("mailbox"));
        assert_eq!(fs_err::metadata(&real).unwrap().permissions().mode() & 0o777, 0o640);
        let (link, target) = (home.path().join("link"), home.path().join("dot/made.json"));
        fs_err::os::unix::fs::symlink("dot/made.json", &link).unwrap();
        fs_err::create_dir(home.path().join("dot")).unwrap();
        assert_eq!(ConfigFile::open(link, Format::Json).unwrap().path, target);
    }
}

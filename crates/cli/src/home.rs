//! The directories of this user's files. Only this module reads the home directory.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// The user's home directory.
pub(crate) fn user() -> Result<PathBuf> {
    std::env::home_dir()
        .filter(|home| !home.as_os_str().is_empty())
        .context("no home directory; set HOME or name the path")
}

fn xdg(variable: &str, fallback: &str) -> Result<PathBuf> {
    match std::env::var_os(variable).map(PathBuf::from) {
        Some(path) if path.is_absolute() => Ok(path),
        _ => Ok(user()?.join(fallback)),
    }
}

/// The variable with the directory of configuration.
pub(crate) const CONFIG_HOME: &str = "XDG_CONFIG_HOME";
const RUNTIME_DIR: &str = "XDG_RUNTIME_DIR";

/// The variables that name a directory of this user in another place than the default.
pub(crate) fn moved_directories() -> Result<Vec<(&'static str, PathBuf)>> {
    let user = user()?;
    let defaults = [
        (CONFIG_HOME, user.join(".config")),
        ("XDG_DATA_HOME", user.join(".local/share")),
        ("XDG_STATE_HOME", user.join(".local/state")),
        (RUNTIME_DIR, default_runtime_dir()),
    ];
    let moved = defaults.into_iter().filter_map(|(variable, default)| {
        let named = std::env::var_os(variable).map(PathBuf::from);
        named.filter(|path| path.is_absolute() && *path != default).map(|path| (variable, path))
    });
    Ok(moved.collect())
}

fn default_runtime_dir() -> PathBuf {
    PathBuf::from(format!("/run/user/{}", rustix::process::getuid().as_raw()))
}

/// nanobot's mailboxes, shared by all of this user's agents.
pub(crate) fn nanobot_mailboxes() -> Result<PathBuf> {
    Ok(user()?.join(".nanobot/mailboxes"))
}

/// The variable that names nanobot's configuration where it is not in its default place. `amb init nanobot --config`
/// sets it for `amb mcp`.
pub(crate) const NANOBOT_CONFIG: &str = "AMB_NANOBOT_CONFIG";

/// nanobot's configuration.
pub(crate) fn nanobot_config() -> Result<PathBuf> {
    match std::env::var_os(NANOBOT_CONFIG).filter(|path| !path.is_empty()) {
        Some(path) => Ok(PathBuf::from(path)),
        None => Ok(user()?.join(".nanobot/config.json")),
    }
}

/// nanobot's transcripts.
pub(crate) fn nanobot_transcripts() -> Result<PathBuf> {
    Ok(user()?.join(".nanobot/transcripts"))
}

/// The directory of all programs' settings.
pub(crate) fn config_home() -> Result<PathBuf> {
    xdg(CONFIG_HOME, ".config")
}

/// The directory of keys and the profile.
pub(crate) fn config_dir() -> Result<PathBuf> {
    Ok(config_home()?.join("amb"))
}

/// The directory of state that outlives a process: trusted mailboxes, logs, the ledgers of wake-ups.
pub(crate) fn state_dir() -> Result<PathBuf> {
    Ok(xdg("XDG_STATE_HOME", ".local/state")?.join("amb"))
}

/// The directory of files that are valid only while a process runs.
///
/// A client starts its servers with little of the environment, so the default is checked even where no variable names
/// it.
pub(crate) fn runtime_dir() -> Result<PathBuf> {
    let named = std::env::var_os(RUNTIME_DIR).map(PathBuf::from);
    let directory = named.filter(|path| path.is_absolute()).unwrap_or_else(default_runtime_dir);
    if is_private(&directory) { Ok(directory.join("amb")) } else { state_dir() }
}

/// Whether only this user can create files in a directory. Required because keys are sent to the address in the record
/// there.
fn is_private(directory: &Path) -> bool {
    directory.metadata().is_ok_and(|found| {
        found.is_dir() && found.uid() == rustix::process::getuid().as_raw() && found.mode() & 0o022 == 0
    })
}

/// The directories in a directory; none where it does not exist.
pub(crate) fn directories(path: &Path) -> std::io::Result<Vec<PathBuf>> {
    match fs_err::read_dir(path) {
        Ok(entries) => {
            let paths: Result<Vec<_>, _> = entries.map(|entry| entry.map(|entry| entry.path())).collect();
            Ok(paths?.into_iter().filter(|path| path.is_dir()).collect())
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

/// The directory of the server's database.
pub(crate) fn data_dir() -> Result<PathBuf> {
    Ok(xdg("XDG_DATA_HOME", ".local/share")?.join("amb"))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_directory_that_others_can_write_to_is_not_private() {
        let dir = tempfile::tempdir().unwrap();
        for (mode, private) in [(0o700, true), (0o755, true), (0o770, false), (0o1777, false)] {
            fs_err::set_permissions(dir.path(), std::fs::Permissions::from_mode(mode)).unwrap();
            assert_eq!(is_private(dir.path()), private, "{mode:o}");
        }
        assert!(!is_private(&dir.path().join("missing")));
    }
}

//! Settings from a file of environment variables.

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

/// Set in the re-executed process: the file whose variables it has.
const LOADED: &str = "AMB_ENV_FILE_READ";

/// Re-executes this program, under the same process id, with the variables of the file in its environment, because a
/// running process cannot change its environment safely. Variables that are set already take precedence. Returns `Ok`
/// in the re-executed process.
pub(crate) fn load(path: &Path) -> Result<()> {
    if std::env::var_os(LOADED).is_some_and(|loaded| loaded == path.as_os_str()) {
        return Ok(());
    }
    let read = || format!("cannot take settings from {}", path.display());
    let mut command = Command::new(std::env::current_exe().context("where this program is")?);
    command.args(std::env::args_os().skip(1)).env(LOADED, path);
    for variable in dotenvy::from_path_iter(path).with_context(read)? {
        let (name, value) = variable.with_context(read)?;
        if std::env::var_os(&name).is_none() {
            command.env(name, value);
        }
    }
    // `exec` returns only if it fails.
    Err(command.exec()).context("cannot start anew with the settings of the file")
}

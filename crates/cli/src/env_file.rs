//! Settings from a file of environment variables.

use std::convert::Infallible;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

/// Set for the new process, which has the variables in its environment.
const READ: &str = "AMB_ENV_FILE_READ";

/// Executes this program anew, under its own process id, with the variables of the file in its environment; those that are set
/// already take precedence. Returns where that was done before. A running process cannot change its environment safely.
pub(crate) fn take(path: &Path) -> Result<()> {
    if std::env::var_os(READ).is_some_and(|read| read == path.as_os_str()) {
        return Ok(());
    }
    start_anew(path).map(|never| match never {})
}

fn start_anew(path: &Path) -> Result<Infallible> {
    let read = || format!("cannot take settings from {}", path.display());
    let mut command = Command::new(std::env::current_exe().context("where this program is")?);
    command.args(std::env::args_os().skip(1)).env(READ, path);
    for variable in dotenvy::from_path_iter(path).with_context(read)? {
        let (name, value) = variable.with_context(read)?;
        if std::env::var_os(&name).is_none() {
            command.env(name, value);
        }
    }
    // `exec` returns only where it failed.
    Err(command.exec()).context("cannot start anew with the settings of the file")
}

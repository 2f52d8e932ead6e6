//! The directories of bridges' ledgers, and the environment of their commands.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use amb_bridge::exec;
use amb_core::AgentName;

use crate::args::OfficeArgs;
use crate::failure::Failure;
use crate::output::Output;
use crate::profile::KEY_VARIABLE;
use crate::{home, keys};

/// The UUID namespace in which offices are hashed into directory names; it must never change.
const NAMESPACE: uuid::Uuid = uuid::Uuid::from_u128(0x3d8e_90a1_5c47_5b92_8f06_d21b_7ae4_c603);

/// The directory of all of this user's ledgers.
fn root() -> Result<PathBuf, Failure> {
    Ok(home::data_dir()?.join("bridge"))
}

/// The directory of the ledger of one agent's bridge at one office: the one that was named, else a default.
pub(super) fn directory(office: &OfficeArgs, me: &AgentName, named: Option<&Path>) -> Result<PathBuf, Failure> {
    if let Some(named) = named {
        return Ok(named.to_owned());
    }
    let name = match &office.server {
        Some(server) => server.to_string(),
        // The same directory by another path is the same office.
        None => fs_err::canonicalize(office.root()?)?.display().to_string(),
    };
    let hash = uuid::Uuid::new_v5(&NAMESPACE, name.as_bytes());
    Ok(root()?.join(hash.simple().to_string()).join(me.as_str()))
}

/// The directories of the ledgers of this user's bridges: the one that was named, else all, or all of the acting agent.
pub(super) fn known(office: &OfficeArgs, state: Option<&Path>) -> Result<Vec<PathBuf>, Failure> {
    if let Some(state) = state {
        return Ok(vec![state.to_owned()]);
    }
    let mut found = Vec::new();
    for place in home::directories(&root()?)? {
        found.extend(home::directories(&place)?.into_iter().filter(|root| {
            let name = root.file_name().and_then(|name| name.to_str());
            office.me.as_ref().is_none_or(|me| name == Some(me.as_str()))
        }));
    }
    found.sort();
    Ok(found)
}

type Variable = (OsString, OsString);

/// The variables that a command inherits: those that every command gets, and those that `--env` names or sets.
pub(super) fn inherited(more: &[String]) -> Result<Vec<Variable>, Failure> {
    let mut all: Vec<Variable> = std::env::vars_os().filter(|(name, _)| exec::is_inherited(name)).collect();
    for wanted in more {
        let name = wanted.split_once('=').map_or(wanted.as_str(), |(name, _)| name);
        if amb_wake::is_secret(name.as_ref()) {
            return Err(Failure::usage(format!(
                "--env {name}: this secret gives access to a client's session; it is not passed to commands"
            )));
        }
        all.push(match wanted.split_once('=') {
            Some((name, value)) => (name.into(), value.into()),
            None => {
                let missing =
                    || Failure::usage(format!("--env {wanted}: there is no such variable in your environment"));
                (wanted.into(), std::env::var_os(wanted).ok_or_else(missing)?)
            }
        });
    }
    Ok(all)
}

/// Adds the variables that `amb` in a command needs to act for the same agent at the same office. Not the agent's key:
/// the command's output goes to strangers, so the key is passed only where `--env` names it.
pub(super) fn add_account(
    environment: &mut Vec<Variable>,
    office: &OfficeArgs,
    me: &AgentName,
    output: Output,
) -> Result<(), Failure> {
    environment.push(("AMB_AS".into(), me.as_str().into()));
    match &office.server {
        Some(server) => {
            environment.push(("MAILBOX_SERVER_URL".into(), server.to_string().into()));
            let is_passed = environment.iter().any(|(name, _)| name == KEY_VARIABLE);
            if !is_passed && keys::find(server, me)?.is_none() {
                output.note(format!(
                    "the command does not get {KEY_VARIABLE}, so `amb` in it cannot act for {me}: if it must, put the key into {}, \
                     or pass it with --env {KEY_VARIABLE}",
                    keys::path()?.display()
                ));
            }
        }
        None => environment.push(("AMB_DIR".into(), fs_err::canonicalize(office.root()?)?.into())),
    }
    if let Some(layout) = office.layout {
        environment.push(("AMB_LAYOUT".into(), layout.to_string().into()));
    }
    Ok(())
}

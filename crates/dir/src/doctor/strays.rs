//! Temporary files and leases of dead processes.

use std::path::Path;
use std::time::Duration;

use amb_core::{OfficeError, Timestamp};

use super::{Examination, FindingKind, files_in, remove};
use crate::files::durable::{TEMP_PREFIX, TEMP_SUFFIX};
use crate::files::lease;
use crate::files::open;
use crate::office::AgentDir;

/// Our writers lock their temporary files. Where there are no locks, an older file has no writer.
const OUR_TEMP_MAX_AGE: Duration = Duration::from_secs(60);
/// Other programs take no locks, so the age alone decides.
const FOREIGN_TEMP_MAX_AGE: Duration = Duration::from_secs(600);

impl AgentDir {
    pub(super) fn examine_strays(&self, directory: &Path, examination: &mut Examination) -> Result<(), OfficeError> {
        for (name, path) in files_in(directory)? {
            if !name.ends_with(TEMP_SUFFIX) {
                continue;
            }
            let ours = name.starts_with(TEMP_PREFIX);
            if !ours && directory == self.shared.paths.root && !name.starts_with("_registry") {
                // The office may lie in a project's directory.
                continue;
            }
            if !is_abandoned(&path, if ours { OUR_TEMP_MAX_AGE } else { FOREIGN_TEMP_MAX_AGE }) {
                continue;
            }
            if ours {
                // Its send never returned, so nothing was accepted.
                examination.found(
                    FindingKind::StrayTemp,
                    &path,
                    "a temporary file whose writer died before it was done",
                    "removed",
                    || remove(&path),
                )?;
            } else {
                let aside = self.shared.paths.own_dir().join("strays");
                examination.found(
                    FindingKind::StrayTemp,
                    &path,
                    "a temporary file that another program left behind",
                    format!("moved to {}", aside.display()),
                    || self.move_aside(&path, &aside, &name, TEMP_SUFFIX),
                )?;
            }
        }
        Ok(())
    }

    pub(super) fn examine_leases(&self, examination: &mut Examination) -> Result<(), OfficeError> {
        let now = Timestamp::now();
        for (_, path) in files_in(&self.shared.paths.leases(&self.me))? {
            if lease::deadline_in(&path).is_none_or(|deadline| deadline <= now) {
                examination.found(
                    FindingKind::StaleLease,
                    &path,
                    "a claim on a message whose time is over",
                    "removed; the message can be claimed again",
                    || remove(&path),
                )?;
            }
        }
        Ok(())
    }
}

fn is_abandoned(path: &Path, age: Duration) -> bool {
    let Ok(file) = open::regular(path) else { return false };
    let elapsed = file.metadata().ok().and_then(|metadata| open::age(&metadata));
    let is_older = |age: Duration| elapsed.is_some_and(|elapsed| elapsed >= age);
    match file.file().try_lock() {
        // Nobody has it locked. A young one may belong to a live writer that has not locked it yet.
        Ok(()) => is_older(age) || (writer_of(path).is_some() && is_older(Duration::from_secs(2))) || is_dead(path),
        Err(std::fs::TryLockError::WouldBlock) => false,
        Err(_) => is_older(age),
    }
}

/// Returns the process that created one of our temporary files.
fn writer_of(path: &Path) -> Option<rustix::process::Pid> {
    let name = path.file_name()?.to_str()?.strip_prefix(TEMP_PREFIX)?;
    rustix::process::Pid::from_raw(name.split('-').next()?.parse().ok()?)
}

/// Whether that process is dead.
fn is_dead(path: &Path) -> bool {
    writer_of(path).is_some_and(|writer| rustix::process::test_kill_process(writer) == Err(rustix::io::Errno::SRCH))
}

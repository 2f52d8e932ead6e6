//! Temporary files and claims of dead processes.

use std::path::Path;
use std::time::Duration;

use amb_core::{OfficeError, Timestamp};

use super::{Examination, FindingKind, files_in};
use crate::files::durable::{self, TEMP_PREFIX, TEMP_SUFFIX};
use crate::files::lease;
use crate::files::open;
use crate::office::AgentDir;

/// A writer holds a lock on its temporary file; where there are no locks, one this old has no writer.
const OURS_ABANDONED: Duration = Duration::from_secs(60);
/// Other programs take no locks.
const THEIRS_ABANDONED: Duration = Duration::from_secs(600);

impl AgentDir {
    pub(super) fn examine_strays(&self, directory: &Path, examination: &mut Examination) -> Result<(), OfficeError> {
        for (name, path) in files_in(directory)? {
            if !name.ends_with(TEMP_SUFFIX) {
                continue;
            }
            let ours = name.starts_with(TEMP_PREFIX);
            if !is_abandoned(&path, if ours { OURS_ABANDONED } else { THEIRS_ABANDONED }) {
                continue;
            }
            if ours {
                // Its send was never answered: the sender knows that nothing was accepted.
                examination.found(
                    FindingKind::StrayTemp,
                    &path,
                    "a temporary file whose writer died before it was done",
                    "removed",
                    || durable::remove(&path),
                )?;
            } else {
                let aside = self.shared.paths.side().join("strays");
                examination.found(
                    FindingKind::StrayTemp,
                    &path,
                    "a temporary file that another program left behind",
                    format!("moved to {}", aside.display()),
                    || {
                        durable::make_dir(&aside, &self.shared.syncer)?;
                        durable::move_into(&path, &aside, &name, TEMP_SUFFIX).map(drop)
                    },
                )?;
            }
        }
        Ok(())
    }

    pub(super) fn examine_leases(&self, examination: &mut Examination) -> Result<(), OfficeError> {
        let now = Timestamp::now();
        for (_, path) in files_in(&self.shared.paths.state(&self.me).join("leases"))? {
            if lease::until(&path).is_none_or(|until| until <= now) {
                examination.found(
                    FindingKind::StaleLease,
                    &path,
                    "a claim on a message whose time is over",
                    "removed; the message can be claimed again",
                    || durable::remove(&path),
                )?;
            }
        }
        Ok(())
    }
}

fn is_abandoned(path: &Path, age: Duration) -> bool {
    let Ok(file) = open::regular(path) else { return false };
    let elapsed = file.metadata().and_then(|about| about.modified()).ok().and_then(|at| at.elapsed().ok());
    let is_older = |age: Duration| elapsed.is_some_and(|elapsed| elapsed >= age);
    match file.file().try_lock() {
        // Nobody writes it. A young one may belong to a live writer between making and locking it.
        Ok(()) => is_older(age) || (writer_of(path).is_some() && is_older(Duration::from_secs(2))) || is_dead(path),
        Err(std::fs::TryLockError::WouldBlock) => false,
        Err(_) => is_older(age),
    }
}

/// The process that made a temporary file of ours.
fn writer_of(path: &Path) -> Option<rustix::process::Pid> {
    let name = path.file_name()?.to_str()?.strip_prefix(TEMP_PREFIX)?;
    rustix::process::Pid::from_raw(name.split('-').next()?.parse().ok()?)
}

/// Whether that process is gone.
fn is_dead(path: &Path) -> bool {
    writer_of(path).is_some_and(|writer| rustix::process::test_kill_process(writer) == Err(rustix::io::Errno::SRCH))
}

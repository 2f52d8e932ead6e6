//! Temporary files and claims whose makers are gone.

use std::path::Path;
use std::time::Duration;

use amb_core::{OfficeError, Timestamp};

use super::{Examination, Kind, files_in};
use crate::durable::{self, TEMP_PREFIX, TEMP_SUFFIX};
use crate::lease;
use crate::office::Desk;
use crate::open;

/// A writer holds a lock on its temporary file; where there are no locks, one this old has no writer.
const OURS_ABANDONED: Duration = Duration::from_secs(60);
/// Other programs take no locks.
const THEIRS_ABANDONED: Duration = Duration::from_secs(600);

impl Desk {
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
                    Kind::StrayTemp,
                    &path,
                    "a temporary file whose writer died before it was done",
                    "removed",
                    || fs_err::remove_file(&path),
                )?;
            } else {
                let aside = self.shared.paths.side().join("strays");
                examination.found(
                    Kind::StrayTemp,
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
                    Kind::StaleLease,
                    &path,
                    "a claim on a message whose time is over",
                    "removed; the message can be claimed again",
                    || fs_err::remove_file(&path),
                )?;
            }
        }
        Ok(())
    }
}

fn is_abandoned(path: &Path, age: Duration) -> bool {
    let old = fs_err::metadata(path)
        .and_then(|about| about.modified())
        .ok()
        .and_then(|at| at.elapsed().ok())
        .is_some_and(|elapsed| elapsed >= age);
    let Ok(file) = open::regular(path) else { return false };
    match file.file().try_lock() {
        // Nobody writes it. A young one may belong to a writer between making and locking it.
        Ok(()) => {
            old || file.metadata().and_then(|about| about.modified()).is_ok_and(|at| {
                path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(TEMP_PREFIX.as_bytes()))
                    && at.elapsed().is_ok_and(|elapsed| elapsed > Duration::from_secs(2))
            })
        }
        Err(std::fs::TryLockError::WouldBlock) => false,
        Err(_) => old,
    }
}

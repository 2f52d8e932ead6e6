//! What dead processes began: notes of it, and updates that wait in records of tasks after a power cut took the notes.

use amb_core::OfficeError;

use super::{Examination, Kind};
use crate::failure::Doing;
use crate::office::Desk;

impl Desk {
    pub(super) fn examine_notes(&self, examination: &mut Examination) -> Result<(), OfficeError> {
        for path in self.shared.abandoned_notes().doing("could not look for what was begun")? {
            examination.found(
                Kind::Unfinished,
                &path,
                "a process died between a task or an acknowledgement and telling the other side",
                "the other side was told; every look at a mailbox does that too",
                || {
                    self.shared.finish_begun();
                    Ok(())
                },
            )?;
        }
        Ok(())
    }

    pub(super) fn examine_updates(&self, examination: &mut Examination) -> Result<(), OfficeError> {
        for record in self.shared.records(&self.me, true)? {
            // One that is being delivered now is not there any more once its lock is free.
            if record.outgoing.is_none() || !self.update_waits(&record.task.id)? {
                continue;
            }
            if examination.mend {
                self.shared.finish_task(&self.me, &record.task.id, None)?;
            }
            examination.found(
                Kind::Unfinished,
                &self.shared.paths.state(&self.me).join("tasks"),
                format!(
                    "task {} is {} and its owner {} was not told",
                    record.task.id, record.task.state, record.task.owner
                ),
                "the owner was told",
                || Ok(()),
            )?;
        }
        Ok(())
    }
}

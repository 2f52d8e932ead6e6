//! What dead processes began: their journal entries, and what is undone where a power cut took those.

use amb_core::OfficeError;

use super::{Examination, FindingKind};
use crate::files::failure::Doing;
use crate::files::message_file;
use crate::office::AgentDir;

impl AgentDir {
    pub(super) fn examine_notes(&self, examination: &mut Examination) -> Result<(), OfficeError> {
        for path in self.shared.abandoned_notes().doing("could not look for what was begun")? {
            examination.found(
                FindingKind::Unfinished,
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

    /// Tasks with something left undone and no journal entry: entries are not synced, and on a full disk there are
    /// none.
    pub(super) fn examine_tasks(&self, examination: &mut Examination) -> Result<(), OfficeError> {
        self.examine_rejected(examination)?;
        for record in self.shared.records(&self.me, true)? {
            let task = &record.task;
            // What is being done now is done once the agent's lock is free.
            let Some(undone) = self.left_undone(&task.id)? else { continue };
            if examination.mend {
                self.shared.finish_task(&self.me, &task.id, None)?;
            }
            let detail = format!("task {} of {} is {} and {undone}", task.id, task.owner, task.state);
            let path = self.shared.paths.state(&self.me).join("tasks");
            examination.found(FindingKind::Unfinished, &path, detail, "done", || Ok(()))?;
        }
        Ok(())
    }

    /// Tasks that the office rejected when they were sent, and of which no record was made.
    fn examine_rejected(&self, examination: &mut Examination) -> Result<(), OfficeError> {
        let layout = self.shared.paths.layout;
        for (file, path) in self.put_away_and_not_indexed()? {
            let Ok(message_file) = message_file::open(layout, &self.me, &path, &file) else { continue };
            let Some(task) =
                message_file.message.task.as_ref().filter(|_| message_file::is_rejected(&message_file.message))
            else {
                continue;
            };
            let _locked = self.shared.lock_agent(&self.me)?;
            if self.shared.record(&self.me, &task.id)?.is_some() {
                continue;
            }
            drop(_locked);
            if examination.mend {
                self.shared.finish_task(&self.me, &task.id, Some(&file))?;
            }
            let detail =
                format!("task {} was rejected and its owner {} was not told", task.id, message_file.message.from);
            examination.found(FindingKind::Unfinished, &path, detail, "the owner was told", || Ok(()))?;
        }
        Ok(())
    }

    /// Messages that this agent has read and whose senders have no receipt.
    pub(super) fn examine_receipts(&self, examination: &mut Examination) -> Result<(), OfficeError> {
        let unsent = self.unsent_receipts()?;
        if unsent.is_empty() {
            return Ok(());
        }
        let count = unsent.len();
        if examination.mend {
            self.send_receipts(&unsent)?;
        }
        let path = self.shared.paths.put_away(&self.me);
        let detail = format!("the senders of {count} messages that {} has read were not told", self.me);
        examination.found(FindingKind::Unfinished, &path, detail, "the senders were told", || Ok(()))
    }
}

//! Unfinished verbs of dead processes: journal entries, and steps left undone where a power cut lost the entries.

use amb_core::OfficeError;

use super::{Examination, FindingKind};
use crate::files::failure::IoContext;
use crate::files::message_file;
use crate::office::AgentDir;

impl AgentDir {
    pub(super) fn examine_journal(&self, examination: &mut Examination) -> Result<(), OfficeError> {
        for path in self.shared.abandoned_entries().context("could not look for what was begun")? {
            examination.found(
                FindingKind::Unfinished,
                &path,
                "a process died between a task or an acknowledgement and telling the other side",
                "the other side was told; every look at a mailbox does that too",
                || {
                    self.shared.recover_journal();
                    Ok(())
                },
            )?;
        }
        Ok(())
    }

    /// Finds tasks with an unfinished step and no journal entry: entries are not synced, and a full disk has none.
    pub(super) fn examine_tasks(&self, examination: &mut Examination) -> Result<(), OfficeError> {
        self.examine_rejected(examination)?;
        for record in self.shared.records(&self.me, true)? {
            let task = &record.task;
            // Takes the agent's lock, so steps in progress are done by then.
            let Some(undone) = self.unfinished_step(&task.id)? else { continue };
            let detail = format!("task {} of {} is {} and {undone}", task.id, task.owner, task.state);
            let path = self.shared.paths.state(&self.me).join("tasks");
            examination.found(FindingKind::Unfinished, &path, detail, "done", || {
                self.shared.finish_task(&self.me, &task.id, None).map(drop)
            })?;
        }
        Ok(())
    }

    /// Finds tasks that the office rejected when they were sent and that have no record.
    fn examine_rejected(&self, examination: &mut Examination) -> Result<(), OfficeError> {
        let layout = self.shared.paths.layout;
        for (file, path) in self.processed_and_not_indexed()? {
            let Ok(message_file) = message_file::open(layout, &self.me, &path, &file) else { continue };
            let Some(task) =
                message_file.message.task.as_ref().filter(|_| message_file::is_rejected(&message_file.message))
            else {
                continue;
            };
            let locked = self.shared.lock_agent_to_read(&self.me)?;
            if self.shared.record(&self.me, &task.id)?.is_some() {
                continue;
            }
            drop(locked);
            let detail =
                format!("task {} was rejected and its owner {} was not told", task.id, message_file.message.from);
            examination.found(FindingKind::Unfinished, &path, detail, "the owner was told", || {
                self.shared.finish_task(&self.me, &task.id, Some(&file)).map(drop)
            })?;
        }
        Ok(())
    }

    /// Finds messages that this agent has read and whose senders have no receipt.
    pub(super) fn examine_receipts(&self, examination: &mut Examination) -> Result<(), OfficeError> {
        let missing = self.missing_receipts()?;
        if missing.is_empty() {
            return Ok(());
        }
        let path = self.shared.paths.processed(&self.me);
        let count = missing.len();
        let detail = format!("the senders of {count} messages that {} has read were not told", self.me);
        let receipts = missing.iter().map(|(brief, read_at)| (brief, *read_at));
        let mend = || self.shared.write_receipts(&self.me, receipts, true);
        examination.found(FindingKind::Unfinished, &path, detail, "the senders were told", mend)
    }
}

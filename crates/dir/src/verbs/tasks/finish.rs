//! Completes the steps that follow from a task's message and record: pointer, updates, and the acknowledgement.

use std::sync::Arc;

use amb_core::{AgentName, Kind, Message, OfficeError, TaskId, TaskState};

use super::open::new_record;
use super::record::TaskRecord;
use crate::files::durable::Wait;
use crate::files::message_file;
use crate::office::{AgentDir, OfficeState};

impl OfficeState {
    /// Finishes sending or moving a task. Idempotent. A task without a record was sent if the file exists. Returns the
    /// record; `None` if the task was not sent.
    pub(crate) fn finish_task(
        self: &Arc<Self>,
        assignee: &AgentName,
        id: &TaskId,
        file: Option<&str>,
    ) -> Result<Option<TaskRecord>, OfficeError> {
        let record = {
            let _locked = self.lock_agent(assignee)?;
            self.finish_task_locked(assignee, id, || match file {
                Some(file) => self.task_message(assignee, file, id),
                None => Ok(None),
            })?
        };
        if let Some(record) = &record {
            self.agent_dir(assignee).ack_task_message(record)?;
        }
        Ok(record)
    }

    /// Writes a task's record, update and pointer where they are missing. `source` finds the message that brought the
    /// task and its file, if there is no record yet. The caller holds the assignee's lock.
    pub(super) fn finish_task_locked(
        &self,
        assignee: &AgentName,
        id: &TaskId,
        source: impl FnOnce() -> Result<Option<(Message, String)>, OfficeError>,
    ) -> Result<Option<TaskRecord>, OfficeError> {
        let record = match self.record(assignee, id)? {
            Some(mut record) => {
                self.deliver_pending_update(&mut record)?;
                record
            }
            None => {
                let Some((message, file)) = source()? else { return Ok(None) };
                let mut record = new_record(&message, file);
                let rejected = message.task.as_ref().filter(|_| message_file::is_rejected(&message));
                if let Some(task) = rejected {
                    let reason = task.extra.get(message_file::REASON).and_then(|reason| reason.as_str());
                    record.by_office = true;
                    record.undelivered = true;
                    self.apply_change(&mut record, TaskState::Rejected, reason.map(str::to_owned));
                }
                self.write_record(&record, Wait::Synced)?;
                self.deliver_update(&mut record)?;
                record
            }
        };
        if !self.has_pointer(&record)? {
            self.write_pointer(&record)?;
        }
        self.write_current_tasks(assignee, self.current_tasks(assignee)?)?;
        Ok(Some(record))
    }

    /// Finds the message that brought a task, if it was sent under this file name.
    fn task_message(
        &self,
        assignee: &AgentName,
        file: &str,
        id: &TaskId,
    ) -> Result<Option<(Message, String)>, OfficeError> {
        let mut locations = self.locations(assignee, file)?;
        locations.extend(self.renamed_locations(assignee, file));
        let brings =
            |message: &Message| message.kind == Kind::Task && message.task.as_ref().is_some_and(|task| task.id == *id);
        let message_files =
            locations.iter().filter_map(|at| message_file::open(self.paths.layout, assignee, &at.path, file).ok());
        Ok(message_files
            .map(|message_file| message_file.message)
            .find(brings)
            .map(|message| (message, file.to_owned())))
    }
}

impl AgentDir {
    /// Returns a step that is missing for a task of this agent: the owner has no update or no pointer, or the task has
    /// ended and its message is unread.
    pub(crate) fn unfinished_step(&self, id: &TaskId) -> Result<Option<&'static str>, OfficeError> {
        let _locked = self.shared.lock_agent_to_read(&self.me)?;
        let Some(record) = self.shared.record(&self.me, id)? else { return Ok(None) };
        if record.outgoing.is_some() {
            return Ok(Some("its owner was not told"));
        }
        if !self.shared.has_pointer(&record)? {
            return Ok(Some("it is not among the tasks of its owner"));
        }
        Ok(self.has_unread_message(&record)?.then_some("its message still waits"))
    }

    /// Whether the message of a task that has ended is unread.
    fn has_unread_message(&self, record: &TaskRecord) -> Result<bool, OfficeError> {
        if !record.task.state.is_terminal() {
            return Ok(false);
        }
        let found = self.shared.load_by_id(&self.me, &record.file, &record.task.message_id)?;
        let is_it = |message: &Message| record.matches(message, &record.file) && !message_file::is_rejected(message);
        Ok(found.is_some_and(|found| found.read_at.is_none() && is_it(&found.message)))
    }

    /// Acknowledges the message of a task that has ended: the agent that ended it has read it.
    pub(super) fn ack_task_message(&self, record: &TaskRecord) -> Result<(), OfficeError> {
        if !self.has_unread_message(record)? {
            return Ok(());
        }
        // The message has another id if its own was taken.
        let known = self.ingest_mail()?.known.get(&record.file).map(|known| known.brief.clone());
        let known = known.filter(|brief| brief.task.as_ref() == Some(&record.task.id)).map(|brief| brief.id);
        self.ack_indexed(&[known.unwrap_or_else(|| record.task.message_id.clone())]).map(drop)
    }
}

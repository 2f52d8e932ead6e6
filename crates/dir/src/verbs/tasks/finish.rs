//! What follows from a task's message and from its record: pointer, updates, and a message that waits no more.

use std::sync::Arc;

use amb_core::{AgentName, Kind, Message, OfficeError, TaskId, TaskState};

use super::open::new_record;
use super::record::TaskRecord;
use crate::files::durable::Wait;
use crate::files::message_file;
use crate::office::{AgentDir, OfficeState};

impl OfficeState {
    /// Finishes what a process began that sent or moved a task; once, however often this is tried. A task without a record
    /// was sent if the file is there. Returns the record; `None` if the task was not sent.
    pub(crate) fn finish_task(
        self: &Arc<Self>,
        assignee: &AgentName,
        id: &TaskId,
        file: Option<&str>,
    ) -> Result<Option<TaskRecord>, OfficeError> {
        let record = {
            let _locked = self.lock_agent(assignee)?;
            self.settle_task(assignee, id, || match file {
                Some(file) => self.task_message(assignee, file, id),
                None => Ok(None),
            })?
        };
        if let Some(record) = &record {
            self.agent_dir(assignee).put_away_brought(record)?;
        }
        Ok(record)
    }

    /// Brings a task's record, update and pointer to where they belong. `brought` finds the message that brought the task
    /// and its file, if there is no record yet. The caller holds the assignee's lock.
    pub(super) fn settle_task(
        &self,
        assignee: &AgentName,
        id: &TaskId,
        brought: impl FnOnce() -> Result<Option<(Message, String)>, OfficeError>,
    ) -> Result<Option<TaskRecord>, OfficeError> {
        let record = match self.record(assignee, id)? {
            Some(mut record) => {
                self.send_waiting(&mut record)?;
                record
            }
            None => {
                let Some((message, file)) = brought()? else { return Ok(None) };
                let mut record = new_record(&message, file);
                let rejected = message.task.as_ref().filter(|_| message_file::is_rejected(&message));
                if let Some(task) = rejected {
                    let reason = task.extra.get(message_file::REASON).and_then(|reason| reason.as_str());
                    record.by_office = true;
                    record.undelivered = true;
                    self.decide_change(&mut record, TaskState::Rejected, reason.map(str::to_owned));
                }
                self.keep_record(&record, Wait::Synced)?;
                self.send_update(&mut record)?;
                record
            }
        };
        if !self.is_pointed_to(&record)? {
            self.point_to(&record)?;
        }
        self.write_tasks_of(assignee, self.current_tasks(assignee)?)?;
        Ok(Some(record))
    }

    /// The message that brought a task, if it was sent under this name.
    fn task_message(
        &self,
        assignee: &AgentName,
        file: &str,
        id: &TaskId,
    ) -> Result<Option<(Message, String)>, OfficeError> {
        let mut places = self.places(assignee, file)?;
        places.extend(self.renamed(assignee, file));
        let brings =
            |message: &Message| message.kind == Kind::Task && message.task.as_ref().is_some_and(|task| task.id == *id);
        let message_files =
            places.iter().filter_map(|place| message_file::open(self.paths.layout, assignee, &place.path, file).ok());
        Ok(message_files
            .map(|message_file| message_file.message)
            .find(brings)
            .map(|message| (message, file.to_owned())))
    }
}

impl AgentDir {
    /// What is left undone of a task of this agent's: the owner has no update or no pointer, or the task has ended and its
    /// message is unread.
    pub(crate) fn left_undone(&self, id: &TaskId) -> Result<Option<&'static str>, OfficeError> {
        let _locked = self.shared.lock_agent(&self.me)?;
        let Some(record) = self.shared.record(&self.me, id)? else { return Ok(None) };
        if record.outgoing.is_some() {
            return Ok(Some("its owner was not told"));
        }
        if !self.shared.is_pointed_to(&record)? {
            return Ok(Some("it is not among the tasks of its owner"));
        }
        Ok(self.message_waits(&record)?.then_some("its message still waits"))
    }

    /// Whether the message of a task that has ended is unread.
    fn message_waits(&self, record: &TaskRecord) -> Result<bool, OfficeError> {
        if !record.task.state.is_terminal() {
            return Ok(false);
        }
        let found = self.shared.load(&self.me, &record.file, &record.task.message_id)?;
        Ok(found.is_some_and(|found| found.read_at.is_none() && !message_file::is_rejected(&found.message)))
    }

    /// Acknowledges the message of a task of this agent's that has ended: the agent that ended it has read it.
    pub(super) fn put_away_brought(&self, record: &TaskRecord) -> Result<(), OfficeError> {
        if !self.message_waits(record)? {
            return Ok(());
        }
        // Another message may have had its id before, and then it has a second one.
        let known = self.ingest_mail()?.known.get(&record.file).map(|known| known.brief.clone());
        let known = known.filter(|brief| brief.task.as_ref() == Some(&record.task.id)).map(|brief| brief.id);
        self.ack_indexed(&[known.unwrap_or_else(|| record.task.message_id.clone())]).map(drop)
    }
}

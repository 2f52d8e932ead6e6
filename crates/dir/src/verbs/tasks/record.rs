//! Task records, in the state of the assignee.

use std::path::{Path, PathBuf};

use amb_core::doc::Sent;
use amb_core::message::NO_SUBJECT;
use amb_core::task::TaskRef;
use amb_core::{AgentName, CorrelationId, Kind, Message, OfficeError, SessionId, Task, TaskId, TaskState};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::files::durable::{self, Wait};
use crate::files::failure::IoContext;
use crate::files::message_file;
use crate::files::open;
use crate::log::Brief;
use crate::office::OfficeState;
use crate::registry::presence::{read_json, write_json};

/// UUID namespace in which task ids are hashed into file names; it must never change.
pub(super) const TASK_SPACE: Uuid = Uuid::from_u128(0x1c62_7a0d_93b4_5e18_a2f0_66d1_0b9e_57c3);

/// A task and what is needed to send its updates.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct TaskRecord {
    pub(crate) task: Task,
    /// File name under which the message that brought it arrived.
    pub(crate) file: String,
    /// Hops left, from the message that brought it.
    pub(crate) ttl: u8,
    pub(crate) trace: Vec<AgentName>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) correlation_id: Option<CorrelationId>,
    /// Whether the office, not the agent, rejected it.
    #[serde(default)]
    pub(crate) by_office: bool,
    /// Agents whose logs say that it is overdue.
    #[serde(default)]
    pub(crate) told_overdue: Vec<AgentName>,
    /// Rejected by the office when it was sent: only its owner sees it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) undelivered: bool,
    /// The sender's id for it, if another task of this agent had that id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) sent_as: Option<TaskId>,
    /// Fingerprint of its message, which distinguishes files of the same name. Missing in earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) mark: Option<u32>,
    /// An update that may not be delivered yet: the next reader of the record delivers it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) outgoing: Option<PendingUpdate>,
}

impl TaskRecord {
    /// Whether this message, which arrived in this file, brought the task.
    pub(crate) fn matches(&self, message: &Message, file: &str) -> bool {
        self.task.owner == message.from
            && self.file == file
            && self.mark.is_none_or(|mark| mark == message_file::fingerprint(message, file))
    }

    /// Whether the agent may see the task.
    pub(crate) fn is_visible_to(&self, agent: &AgentName) -> bool {
        !self.undelivered || self.task.owner == *agent
    }

    /// Moves the task as an update says, if that is a legal move. Returns whether it moved.
    pub(crate) fn advance(&mut self, state: TaskState, update: &Message) -> bool {
        if self.task.state.path_to(state).is_empty() {
            return false;
        }
        self.task.state = state;
        self.task.note = Some(update.text()).filter(|text| !text.is_empty());
        self.task.updated_at = update.sent_at.max(self.task.updated_at);
        true
    }

    /// Returns the task as a message carries it, in this state.
    pub(crate) fn task_ref(&self, state: TaskState) -> TaskRef {
        let Task { id, deadline, parent, .. } = &self.task;
        let parent = parent.iter().map(|parent| (PARENT.to_owned(), parent.as_str().into()));
        TaskRef { id: id.clone(), state, deadline: *deadline, extra: parent.collect() }
    }

    /// Returns the result of the send of this task, with this state unless the office rejected it.
    pub(crate) fn sent(&self, state: TaskState) -> Sent {
        let Task { owner, assignee, message_id, created_at, .. } = &self.task;
        let subject = self.task.subject.clone().unwrap_or_else(|| NO_SUBJECT.into());
        let session = self.task.session_id.clone();
        Sent {
            message_id: message_id.clone(),
            session_id: session.unwrap_or_else(|| SessionId::between(owner, assignee, &subject)),
            subject,
            created_at: *created_at,
            task: Some(self.task_ref(if self.by_office { self.task.state } else { state })),
            reason: self.task.note.clone().filter(|_| self.by_office),
            paused: false,
        }
    }
}

/// Field of a task's message: the task that it is a part of.
pub(crate) const PARENT: &str = "parent";
/// Field of a task's message, on its way into the record: the sender's id for the task.
pub(super) const SENT_AS: &str = "sent_as";

/// An update to be delivered to the owner.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct PendingUpdate {
    pub(crate) message: Message,
    /// Part of its file name, so that it can be delivered only once.
    pub(crate) nonce: u32,
}

/// Subdirectory of ended tasks.
pub(super) const ENDED: &str = "ended";

/// Returns the file name of a record.
pub(super) fn key(id: &TaskId) -> String {
    format!("{}.json", Uuid::new_v5(&TASK_SPACE, id.as_str().as_bytes()).simple())
}

impl OfficeState {
    fn tasks_dir(&self, assignee: &AgentName) -> PathBuf {
        self.paths.state(assignee).join("tasks")
    }

    /// Returns the record of a task, open or ended.
    pub(crate) fn record(&self, assignee: &AgentName, id: &TaskId) -> Result<Option<TaskRecord>, OfficeError> {
        let directory = self.tasks_dir(assignee);
        let (open, ended) = (directory.join(key(id)), directory.join(ENDED).join(key(id)));
        // After an interrupted move a record is in both places, and the ended one is right. Ended tasks stay ended, so
        // the last read cannot miss one that ends meanwhile.
        for path in [&ended, &open, &ended] {
            if let Some(record) = read_json::<TaskRecord>(path)?.filter(|record| record.task.id == *id) {
                return Ok(Some(record));
            }
        }
        Ok(None)
    }

    /// Returns the record of the task that a message brought, under its own id or, if that was taken, the disambiguated
    /// one.
    pub(crate) fn record_for(
        &self,
        assignee: &AgentName,
        message: &Message,
        file: &str,
    ) -> Result<Option<TaskRecord>, OfficeError> {
        let Some(task) = &message.task else { return Ok(None) };
        for id in [&task.id, &message_file::disambiguated_task_id(&task.id, message, file)] {
            if let Some(record) = self.record(assignee, id)?.filter(|record| record.matches(message, file)) {
                return Ok(Some(record));
            }
        }
        Ok(None)
    }

    /// Whether a message that came from this agent is an update that the office sent in its name, about a task that the agent is
    /// not shown.
    pub(crate) fn is_hidden_update(&self, from: &AgentName, brief: &Brief) -> Result<bool, OfficeError> {
        let Some(id) = brief.task.as_ref().filter(|_| brief.kind == Kind::TaskUpdate) else { return Ok(false) };
        Ok(self.record(from, id)?.is_some_and(|record| !record.is_visible_to(from)))
    }

    /// Sets the task id in a message to the one under which the office knows the task.
    pub(crate) fn set_known_task_id(
        &self,
        assignee: &AgentName,
        message: &mut Message,
        file: &str,
    ) -> Result<(), OfficeError> {
        if message.kind == Kind::Task
            && let Some(record) = self.record_for(assignee, message, file)?
            && let Some(task) = &mut message.task
        {
            task.id = record.task.id;
        }
        Ok(())
    }

    /// Writes a record. The caller holds the assignee's lock.
    pub(crate) fn write_record(&self, record: &TaskRecord, wait: Wait) -> Result<(), OfficeError> {
        let directory = self.tasks_dir(&record.task.assignee);
        let open = directory.join(key(&record.task.id));
        if !record.task.state.is_terminal() {
            durable::make_dir(&directory, &self.syncer).context("could not keep the task")?;
            return write_json(self, &open, record, wait);
        }
        let ended = directory.join(ENDED);
        durable::make_dir(&ended, &self.syncer).context("could not keep the task")?;
        write_json(self, &ended.join(key(&record.task.id)), record, wait)?;
        if let Err(error) = durable::remove(&open) {
            // Where both exist, the ended one is right.
            tracing::warn!(%error, id = %record.task.id, "removing the open record of an ended task failed");
        }
        Ok(())
    }

    /// Returns the records of tasks given to an agent, with ended ones if wanted.
    pub(crate) fn records(&self, assignee: &AgentName, ended: bool) -> Result<Vec<TaskRecord>, OfficeError> {
        let directory = self.tasks_dir(assignee);
        let mut records: Vec<TaskRecord> = read_all(&directory)?;
        // After an interrupted move a record is in both places, and the ended one is right.
        if ended {
            let ended: Vec<TaskRecord> = read_all(&directory.join(ENDED))?;
            records.retain(|open| !ended.iter().any(|record| record.task.id == open.task.id));
            records.extend(ended);
        } else {
            records.retain(|open| !directory.join(ENDED).join(key(&open.task.id)).exists());
        }
        Ok(records)
    }

    /// Returns the tasks that an agent has accepted and not ended, oldest first.
    pub(crate) fn current_tasks(&self, assignee: &AgentName) -> Result<Vec<TaskId>, OfficeError> {
        let mut current: Vec<Task> = self.records(assignee, false)?.into_iter().map(|record| record.task).collect();
        current.retain(|task| task.state.is_current());
        current.sort_by(|a, b| (a.created_at, &a.id).cmp(&(b.created_at, &b.id)));
        Ok(current.into_iter().map(|task| task.id).collect())
    }
}

/// Reads every JSON file in a directory. Files that vanish meanwhile are skipped.
pub(super) fn read_all<T: serde::de::DeserializeOwned>(directory: &Path) -> Result<Vec<T>, OfficeError> {
    let context = "could not list the tasks";
    let mut all = Vec::new();
    for entry in open::entries(directory).context(context)? {
        let path = entry.context(context)?.path();
        if path.extension().is_some_and(|extension| extension == "json") {
            all.extend(read_json(&path)?);
        }
    }
    Ok(all)
}

//! Records of tasks, with the agents that were asked.

use std::path::{Path, PathBuf};

use amb_core::doc::Sent;
use amb_core::message::NO_SUBJECT;
use amb_core::task::TaskRef;
use amb_core::{AgentName, CorrelationId, Kind, Message, OfficeError, SessionId, Task, TaskId, TaskState};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::files::durable::{self, Wait};
use crate::files::failure::Doing;
use crate::files::message_file;
use crate::files::open;
use crate::office::OfficeState;
use crate::registry::presence::{read_json, write_json};

/// Names the space in which the ids of tasks are hashed into names of files; it must never change.
pub(super) const TASK_SPACE: Uuid = Uuid::from_u128(0x1c62_7a0d_93b4_5e18_a2f0_66d1_0b9e_57c3);

/// Everything about one task.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct TaskRecord {
    pub(crate) task: Task,
    /// The file that brought it, as it was named when it arrived.
    pub(crate) file: String,
    /// Of the message that brought it.
    pub(crate) ttl: u8,
    pub(crate) trace: Vec<AgentName>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) correlation_id: Option<CorrelationId>,
    /// It was the office, not the agent, that rejected it.
    #[serde(default)]
    pub(crate) by_office: bool,
    /// The agents in whose logs it is as overdue.
    #[serde(default)]
    pub(crate) told_overdue: Vec<AgentName>,
    /// The office rejected it before anybody was shown it: only its owner sees it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) undelivered: bool,
    /// The id that its sender gave it, if another task of this agent's had that id already.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) sent_as: Option<TaskId>,
    /// Tells its message from another one of the same sender's in a file of the same name. Earlier versions had none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) mark: Option<u32>,
    /// An update that is decided but perhaps not delivered: the next reader of the record delivers it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) outgoing: Option<PendingUpdate>,
}

impl TaskRecord {
    /// Whether this is the record of the task that this message, which arrived in this file, brought.
    pub(crate) fn is_of(&self, message: &Message, file: &str) -> bool {
        self.task.owner == message.from
            && self.file == file
            && self.mark.is_none_or(|mark| mark == message_file::mark(message, file))
    }

    /// Whether the agent may see the task.
    pub(crate) fn is_shown_to(&self, agent: &AgentName) -> bool {
        !self.undelivered || self.task.owner == *agent
    }

    /// The task as a message carries it, in this state.
    pub(crate) fn task_ref(&self, state: TaskState) -> TaskRef {
        let Task { id, deadline, parent, .. } = &self.task;
        let parent = parent.iter().map(|parent| (PARENT.to_owned(), parent.as_str().into()));
        TaskRef { id: id.clone(), state, deadline: *deadline, extra: parent.collect() }
    }

    /// The answer to the send of this task: if the office did not reject it, that it is in this state.
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

/// Where a task's message names the task of which it is a piece.
pub(crate) const PARENT: &str = "parent";
/// Where a task's message, on its way into the record, names the id that its sender gave the task.
pub(super) const SENT_AS: &str = "sent_as";

/// An update on its way to the owner.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct PendingUpdate {
    pub(crate) message: Message,
    /// Part of the name of its file, so that it can be delivered only once.
    pub(crate) nonce: u32,
}

/// Open ones, and those that have ended.
pub(super) const ENDED: &str = "ended";

pub(super) fn key(id: &TaskId) -> String {
    format!("{}.json", Uuid::new_v5(&TASK_SPACE, id.as_str().as_bytes()).simple())
}

impl OfficeState {
    fn tasks_dir(&self, assignee: &AgentName) -> PathBuf {
        self.paths.state(assignee).join("tasks")
    }

    /// The record of a task, open or ended.
    pub(crate) fn record(&self, assignee: &AgentName, id: &TaskId) -> Result<Option<TaskRecord>, OfficeError> {
        let directory = self.tasks_dir(assignee);
        let (open, ended) = (directory.join(key(id)), directory.join(ENDED).join(key(id)));
        // One whose end was cut short lies in both places, and the ended one is the truth. Ended ones are never opened again,
        // so the last look cannot miss one that ends while we look.
        for path in [&ended, &open, &ended] {
            if let Some(record) = read_json::<TaskRecord>(path)?.filter(|record| record.task.id == *id) {
                return Ok(Some(record));
            }
        }
        Ok(None)
    }

    /// The record of the task that a message brought, under its own id or under the one that it was given because another
    /// task had that id.
    pub(crate) fn record_of(
        &self,
        assignee: &AgentName,
        message: &Message,
        file: &str,
    ) -> Result<Option<TaskRecord>, OfficeError> {
        let Some(task) = &message.task else { return Ok(None) };
        for id in [&task.id, &message_file::second_task_id(&task.id, message, file)] {
            if let Some(record) = self.record(assignee, id)?.filter(|record| record.is_of(message, file)) {
                return Ok(Some(record));
            }
        }
        Ok(None)
    }

    /// Gives a message that brought a task the id under which the office knows the task.
    pub(crate) fn name_task(&self, assignee: &AgentName, message: &mut Message, file: &str) -> Result<(), OfficeError> {
        if message.kind == Kind::Task
            && let Some(record) = self.record_of(assignee, message, file)?
            && let Some(task) = &mut message.task
        {
            task.id = record.task.id;
        }
        Ok(())
    }

    /// Keeps a record. The caller holds the assignee's lock.
    pub(crate) fn keep_record(&self, record: &TaskRecord, wait: Wait) -> Result<(), OfficeError> {
        let directory = self.tasks_dir(&record.task.assignee);
        let open = directory.join(key(&record.task.id));
        if !record.task.state.is_terminal() {
            durable::make_dir(&directory, &self.syncer).doing("could not keep the task")?;
            return write_json(self, &open, record, wait);
        }
        let ended = directory.join(ENDED);
        durable::make_dir(&ended, &self.syncer).doing("could not keep the task")?;
        write_json(self, &ended.join(key(&record.task.id)), record, wait)?;
        if let Err(error) = durable::remove(&open) {
            // The ended one is the truth, wherever both are.
            tracing::warn!(%error, id = %record.task.id, "the record of a task that has ended is also among the open ones");
        }
        Ok(())
    }

    /// All records of tasks given to an agent; the ended ones too if wanted.
    pub(crate) fn records(&self, assignee: &AgentName, ended: bool) -> Result<Vec<TaskRecord>, OfficeError> {
        let directory = self.tasks_dir(assignee);
        let mut records: Vec<TaskRecord> = read_all(&directory)?;
        // One that ended while its move was cut short lies in both places; the ended one is the truth.
        if ended {
            let ended: Vec<TaskRecord> = read_all(&directory.join(ENDED))?;
            records.retain(|open| !ended.iter().any(|record| record.task.id == open.task.id));
            records.extend(ended);
        } else {
            records.retain(|open| !directory.join(ENDED).join(key(&open.task.id)).exists());
        }
        Ok(records)
    }

    /// The tasks that an agent has under way.
    pub(crate) fn current_tasks(&self, assignee: &AgentName) -> Result<Vec<TaskId>, OfficeError> {
        let mut current: Vec<Task> = self.records(assignee, false)?.into_iter().map(|record| record.task).collect();
        current.retain(|task| task.state.is_current());
        current.sort_by(|a, b| (a.created_at, &a.id).cmp(&(b.created_at, &b.id)));
        Ok(current.into_iter().map(|task| task.id).collect())
    }
}

/// Every file of ours in a directory. Files vanish while it is listed; those are passed over.
pub(super) fn read_all<T: serde::de::DeserializeOwned>(directory: &Path) -> Result<Vec<T>, OfficeError> {
    let Some(entries) = open::if_there(fs_err::read_dir(directory)).doing("could not list the tasks")? else {
        return Ok(Vec::new());
    };
    let mut all = Vec::new();
    for entry in entries {
        let path = entry.doing("could not list the tasks")?.path();
        if path.extension().is_some_and(|extension| extension == "json") {
            all.extend(read_json(&path)?);
        }
    }
    Ok(all)
}

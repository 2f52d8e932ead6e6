//! Records of tasks, and the pointers of those who gave them.

use std::io;
use std::path::{Path, PathBuf};

use amb_core::doc::Sent;
use amb_core::message::NO_SUBJECT;
use amb_core::task::TaskRef;
use amb_core::{
    AgentName, Callback, CorrelationId, Message, OfficeError, SessionId, Task, TaskId, TaskState, Timestamp,
};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::durable::{self, Wait};
use crate::failure::Doing;
use crate::office::Shared;
use crate::people::{read_json, write_json};
use crate::step::step;

/// Names the space in which the ids of tasks are hashed into names of files; it must never change.
const TASK_SPACE: Uuid = Uuid::from_u128(0x1c62_7a0d_93b4_5e18_a2f0_66d1_0b9e_57c3);

/// Everything about one task.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Record {
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
    /// Who has been told that it is overdue.
    #[serde(default)]
    pub(crate) told_overdue: Vec<AgentName>,
    /// An update that is decided but perhaps not delivered: whoever finds it here delivers it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) outgoing: Option<Outgoing>,
}

impl Record {
    /// The task as a message carries it, in this state.
    pub(crate) fn task_ref(&self, state: TaskState) -> TaskRef {
        let Task { id, deadline, parent, .. } = &self.task;
        let parent = parent.iter().map(|parent| (PARENT.to_owned(), parent.as_str().into()));
        TaskRef { id: id.clone(), state, deadline: *deadline, extra: parent.collect() }
    }

    /// What the sender of the task is told, or was told: if the office did not reject it, that it is in this state.
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
        }
    }
}

/// Where a task's message names the task of which it is a piece.
pub(crate) const PARENT: &str = "parent";

/// An update on its way to the owner.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Outgoing {
    pub(crate) message: Message,
    /// Part of the name of its file, so that it can be delivered only once.
    pub(crate) nonce: u32,
}

/// Where a task that the agent gave is kept.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Pointer {
    pub(crate) id: TaskId,
    pub(crate) assignee: AgentName,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) deadline: Option<Timestamp>,
    /// The callback that the owner set: the only record that decides where an answer goes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) callback: Option<Callback>,
}

/// Open ones, and those that have ended.
const ENDED: &str = "ended";

fn key(id: &TaskId) -> String {
    format!("{}.json", Uuid::new_v5(&TASK_SPACE, id.as_str().as_bytes()).simple())
}

impl Shared {
    fn tasks_dir(&self, assignee: &AgentName) -> PathBuf {
        self.paths.state(assignee).join("tasks")
    }

    fn given_dir(&self, owner: &AgentName) -> PathBuf {
        self.paths.state(owner).join("given")
    }

    /// The record of a task, open or ended.
    pub(crate) fn record(&self, assignee: &AgentName, id: &TaskId) -> Result<Option<Record>, OfficeError> {
        let directory = self.tasks_dir(assignee);
        let (open, ended) = (directory.join(key(id)), directory.join(ENDED).join(key(id)));
        // One whose end was cut short lies in both places, and the ended one is the truth. Ended ones are never opened again,
        // so the last look cannot miss one that ends while we look.
        for path in [&ended, &open, &ended] {
            if let Some(record) = read_json::<Record>(path)?.filter(|record| record.task.id == *id) {
                return Ok(Some(record));
            }
        }
        Ok(None)
    }

    /// Keeps a record. The caller holds the assignee's lock.
    pub(crate) fn keep_record(&self, record: &Record, wait: Wait) -> Result<(), OfficeError> {
        let directory = self.tasks_dir(&record.task.assignee);
        let open = directory.join(key(&record.task.id));
        if !record.task.state.is_terminal() {
            durable::make_dir(&directory, &self.syncer).doing("could not keep the task")?;
            return write_json(self, &open, record, wait);
        }
        let ended = directory.join(ENDED);
        durable::make_dir(&ended, &self.syncer).doing("could not keep the task")?;
        write_json(self, &ended.join(key(&record.task.id)), record, wait)?;
        durable::remove(&open).doing("could not keep the task")
    }

    /// All records of tasks given to an agent; the ended ones too if wanted.
    pub(crate) fn records(&self, assignee: &AgentName, ended: bool) -> Result<Vec<Record>, OfficeError> {
        let directory = self.tasks_dir(assignee);
        let mut records: Vec<Record> = read_all(&directory)?;
        // One that ended while its move was cut short lies in both places; the ended one is the truth.
        if ended {
            let ended: Vec<Record> = read_all(&directory.join(ENDED))?;
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

    /// Gives the owner a pointer to its task.
    pub(crate) fn point_to(&self, task: &Task) -> Result<(), OfficeError> {
        let mut directory = self.given_dir(&task.owner);
        if task.state.is_terminal() {
            directory = directory.join(ENDED);
        }
        self.make_state(&task.owner)?;
        durable::make_dir(&directory, &self.syncer).doing("could not keep the task")?;
        let pointer = Pointer {
            id: task.id.clone(),
            assignee: task.assignee.clone(),
            deadline: task.deadline,
            callback: task.callback.clone(),
        };
        write_json(self, &directory.join(key(&task.id)), &pointer, Wait::Synced)
    }

    /// Moves a pointer to the ended ones.
    pub(crate) fn end_pointer(&self, owner: &AgentName, id: &TaskId) -> Result<(), OfficeError> {
        let directory = self.given_dir(owner);
        let ended = directory.join(ENDED);
        durable::make_dir(&ended, &self.syncer).doing("could not keep the task")?;
        step();
        match fs_err::rename(directory.join(key(id)), ended.join(key(id))) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error).doing("could not keep the task"),
            _ => Ok(()),
        }
    }

    /// The pointer to one task that an agent gave.
    pub(crate) fn pointer(&self, owner: &AgentName, id: &TaskId) -> Result<Option<Pointer>, OfficeError> {
        let directory = self.given_dir(owner);
        match read_json(&directory.join(key(id)))? {
            Some(pointer) => Ok(Some(pointer)),
            None => read_json(&directory.join(ENDED).join(key(id))),
        }
    }

    /// The pointers to tasks that an agent gave; those of ended ones too if wanted.
    pub(crate) fn pointers(&self, owner: &AgentName, ended: bool) -> Result<Vec<Pointer>, OfficeError> {
        let directory = self.given_dir(owner);
        let mut pointers = read_all(&directory)?;
        if ended {
            pointers.extend(read_all::<Pointer>(&directory.join(ENDED))?);
        }
        Ok(pointers)
    }
}

/// Every file of ours in a directory. Files vanish while it is listed; those are passed over.
fn read_all<T: serde::de::DeserializeOwned>(directory: &Path) -> Result<Vec<T>, OfficeError> {
    let entries = match fs_err::read_dir(directory) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error).doing("could not list the tasks"),
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

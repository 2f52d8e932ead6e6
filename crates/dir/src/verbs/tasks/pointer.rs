//! Pointers from the owner of a task to the agent that has the record.
//!
//! A pointer's file name is a hash of the task's id and its assignee, since other programs use one id for several
//! agents; or of the assignee and the message that brought the task, if the owner's id for it was taken. Earlier
//! versions hashed the id alone; such files are read too.

use std::path::PathBuf;

use amb_core::{AgentName, Callback, Message, MessageId, OfficeError, TaskId, Timestamp};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::record::{ENDED, TASK_SPACE, TaskRecord, key, read_all};
use crate::files::durable::{self, Wait};
use crate::files::failure::IoContext;
use crate::files::open;
use crate::files::step::step;
use crate::office::OfficeState;
use crate::registry::presence::{read_json, write_json};

/// Pointer to a task that the agent gave.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Pointer {
    pub(crate) id: TaskId,
    pub(crate) assignee: AgentName,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) deadline: Option<Timestamp>,
    /// The callback that the owner set. Only this copy is trusted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) callback: Option<Callback>,
    /// The owner's id for the task, if the assignee had another task of that id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) sent_as: Option<TaskId>,
    /// The message that brought the task. Missing in earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) message_id: Option<MessageId>,
}

fn hashed(text: &str) -> String {
    format!("{}.json", Uuid::new_v5(&TASK_SPACE, text.as_bytes()).simple())
}

fn key_with(id: &TaskId, assignee: &AgentName) -> String {
    hashed(&format!("{id}\n{assignee}"))
}

fn key_by_message(assignee: &AgentName, message: &MessageId) -> String {
    hashed(&format!("\n{assignee}\n{message}"))
}

impl Pointer {
    fn to(TaskRecord { task, sent_as, .. }: &TaskRecord) -> Self {
        Self {
            id: task.id.clone(),
            assignee: task.assignee.clone(),
            deadline: task.deadline,
            callback: task.callback.clone(),
            sent_as: sent_as.clone(),
            message_id: Some(task.message_id.clone()),
        }
    }

    fn key(&self) -> String {
        match (&self.sent_as, &self.message_id) {
            (Some(_), Some(message)) => key_by_message(&self.assignee, message),
            _ => key_with(&self.id, &self.assignee),
        }
    }
}

impl OfficeState {
    fn given_dir(&self, owner: &AgentName) -> PathBuf {
        self.paths.state(owner).join("given")
    }

    /// Writes the owner's pointer to a task.
    pub(super) fn write_pointer(&self, record: &TaskRecord) -> Result<(), OfficeError> {
        let task = &record.task;
        let mut directory = self.given_dir(&task.owner);
        if task.state.is_terminal() {
            directory = directory.join(ENDED);
        }
        self.make_state_dir(&task.owner)?;
        durable::make_dir(&directory, &self.syncer).context("could not keep the task")?;
        let pointer = Pointer::to(record);
        write_json(self, &directory.join(pointer.key()), &pointer, Wait::Synced)
    }

    /// Moves a pointer to those of ended tasks.
    pub(super) fn end_pointer(&self, owner: &AgentName, pointer: &Pointer) -> Result<(), OfficeError> {
        let directory = self.given_dir(owner);
        let ended = directory.join(ENDED);
        durable::make_dir(&ended, &self.syncer).context("could not keep the task")?;
        for key in [pointer.key(), key(&pointer.id)] {
            if read_json::<Pointer>(&directory.join(&key))?.as_ref() != Some(pointer) {
                continue;
            }
            step();
            open::if_exists(fs_err::rename(directory.join(&key), ended.join(&key)))
                .context("could not keep the task")?;
        }
        Ok(())
    }

    /// Whether the owner of a task has a pointer to it.
    pub(crate) fn has_pointer(&self, record: &TaskRecord) -> Result<bool, OfficeError> {
        let keys = [Pointer::to(record).key(), key(&record.task.id)];
        let is_it = |pointer: &Pointer| pointer.id == record.task.id && pointer.assignee == record.task.assignee;
        Ok(self.find_pointer(&record.task.owner, &keys, is_it)?.is_some())
    }

    /// Returns the pointer to the task of this update, which may have the owner's id for it.
    pub(crate) fn pointer_for_update(&self, update: &Message) -> Result<Option<Pointer>, OfficeError> {
        let Some(task) = &update.task else { return Ok(None) };
        let mut keys = vec![key_with(&task.id, &update.from), key(&task.id)];
        if let Some(answered) = &update.reply_to {
            keys.insert(0, key_by_message(&update.from, answered));
        }
        let names = |pointer: &Pointer| pointer.id == task.id || pointer.sent_as.as_ref() == Some(&task.id);
        self.find_pointer(&update.to, &keys, |pointer| pointer.assignee == update.from && names(pointer))
    }

    /// Returns the pointer to a task that the agent gave. Tries the file name for every agent, since there are more
    /// tasks than agents, and then all pointers.
    pub(crate) fn pointer_to(&self, owner: &AgentName, id: &TaskId) -> Result<Option<Pointer>, OfficeError> {
        let agents = self.names_in(&self.paths.agents())?;
        let keys: Vec<_> = agents.iter().map(|agent| key_with(id, agent)).chain([key(id)]).collect();
        if let Some(pointer) = self.find_pointer(owner, &keys, |pointer| pointer.id == *id)? {
            return Ok(Some(pointer));
        }
        Ok(self.pointers(owner, true)?.into_iter().find(|pointer| pointer.id == *id))
    }

    /// Returns the first of these pointers, open or ended, that satisfies the test.
    fn find_pointer(
        &self,
        owner: &AgentName,
        keys: &[String],
        is_it: impl Fn(&Pointer) -> bool,
    ) -> Result<Option<Pointer>, OfficeError> {
        let directory = self.given_dir(owner);
        for key in keys {
            for path in [directory.join(key), directory.join(ENDED).join(key)] {
                if let Some(pointer) = read_json::<Pointer>(&path)?.filter(&is_it) {
                    return Ok(Some(pointer));
                }
            }
        }
        Ok(None)
    }

    /// Returns the pointers to tasks that an agent gave, with those of ended tasks if wanted.
    pub(crate) fn pointers(&self, owner: &AgentName, ended: bool) -> Result<Vec<Pointer>, OfficeError> {
        let directory = self.given_dir(owner);
        let mut pointers = read_all(&directory)?;
        if ended {
            pointers.extend(read_all::<Pointer>(&directory.join(ENDED))?);
        }
        Ok(pointers)
    }
}

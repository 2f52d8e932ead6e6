//! The pointers of those who gave tasks: which agent has the record.
//!
//! A pointer's file is named after the task's id and the agent that has it, for other programs use one id for several
//! agents; and after the agent and the message that brought the task, if its owner knows it by an id that the agent had
//! already. Earlier versions named it after the id alone; such files are read too.

use std::path::PathBuf;

use amb_core::{AgentName, Callback, Message, MessageId, OfficeError, TaskId, Timestamp};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::record::{ENDED, TASK_SPACE, TaskRecord, key, read_all};
use crate::files::durable::{self, Wait};
use crate::files::failure::Doing;
use crate::files::open;
use crate::files::step::step;
use crate::office::OfficeState;
use crate::registry::presence::{read_json, write_json};

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
    /// The id that the owner gave the task, if the assignee had another task of that id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) sent_as: Option<TaskId>,
    /// The message that brought the task. Earlier versions did not say.
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

    /// Gives the owner a pointer to its task.
    pub(super) fn point_to(&self, record: &TaskRecord) -> Result<(), OfficeError> {
        let task = &record.task;
        let mut directory = self.given_dir(&task.owner);
        if task.state.is_terminal() {
            directory = directory.join(ENDED);
        }
        self.make_state(&task.owner)?;
        durable::make_dir(&directory, &self.syncer).doing("could not keep the task")?;
        let pointer = Pointer::to(record);
        write_json(self, &directory.join(pointer.key()), &pointer, Wait::Synced)
    }

    /// Moves a pointer to the ended ones.
    pub(super) fn end_pointer(&self, owner: &AgentName, pointer: &Pointer) -> Result<(), OfficeError> {
        let directory = self.given_dir(owner);
        let ended = directory.join(ENDED);
        durable::make_dir(&ended, &self.syncer).doing("could not keep the task")?;
        for key in [pointer.key(), key(&pointer.id)] {
            if read_json::<Pointer>(&directory.join(&key))?.as_ref() != Some(pointer) {
                continue;
            }
            step();
            open::if_there(fs_err::rename(directory.join(&key), ended.join(&key))).doing("could not keep the task")?;
        }
        Ok(())
    }

    /// Whether the owner of a task has a pointer to it.
    pub(crate) fn is_pointed_to(&self, record: &TaskRecord) -> Result<bool, OfficeError> {
        let keys = [Pointer::to(record).key(), key(&record.task.id)];
        let is_it = |pointer: &Pointer| pointer.id == record.task.id && pointer.assignee == record.task.assignee;
        Ok(self.pointer_under(&record.task.owner, &keys, is_it)?.is_some())
    }

    /// The pointer to the task of which this update is, which may name it by the id that the owner gave it.
    pub(crate) fn pointer_for(&self, update: &Message) -> Result<Option<Pointer>, OfficeError> {
        let Some(said) = &update.task else { return Ok(None) };
        let mut keys = vec![key_with(&said.id, &update.from), key(&said.id)];
        if let Some(answered) = &update.reply_to {
            keys.insert(0, key_by_message(&update.from, answered));
        }
        let names = |pointer: &Pointer| pointer.id == said.id || pointer.sent_as.as_ref() == Some(&said.id);
        self.pointer_under(&update.to, &keys, |pointer| pointer.assignee == update.from && names(pointer))
    }

    /// The pointer to a task that the agent gave. Looked for under the name of every agent, since there are more tasks than
    /// agents; where it has another name, among all of them.
    pub(crate) fn pointer_to(&self, owner: &AgentName, id: &TaskId) -> Result<Option<Pointer>, OfficeError> {
        let agents = self.names_in(&self.paths.agents())?;
        let keys: Vec<_> = agents.iter().map(|agent| key_with(id, agent)).chain([key(id)]).collect();
        if let Some(pointer) = self.pointer_under(owner, &keys, |pointer| pointer.id == *id)? {
            return Ok(Some(pointer));
        }
        Ok(self.pointers(owner, true)?.into_iter().find(|pointer| pointer.id == *id))
    }

    /// The first of these pointers, open or ended, that is the one.
    fn pointer_under(
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

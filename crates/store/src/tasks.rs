//! Tasks as both backends read them, and the updates they send.

use std::borrow::Cow;

use amb_core::doc::ChainTask;
use amb_core::event::NewMessage;
use amb_core::id::fresh_uuid;
use amb_core::route::Hop;
use amb_core::task::TaskRef;
use amb_core::{AgentName, Kind, Object, Priority, Task, TaskId, TaskState, Timestamp};
use uuid::Uuid;

use crate::columns::Columns;
use crate::error::Result;
use crate::outgoing::{json, trace_json};
use crate::row;
use crate::{StoreError, refusals};

/// A row of `tasks`, with the names that belong to it. Rows are numbered in the order of making.
#[derive(Debug, Clone)]
pub(crate) struct TaskRow {
    pub(crate) row: i64,
    pub(crate) id: Uuid,
    pub(crate) owner: i64,
    pub(crate) assignee: i64,
    pub(crate) owner_name: String,
    pub(crate) assignee_name: String,
    pub(crate) state: String,
    pub(crate) subject: Option<String>,
    pub(crate) message: Uuid,
    pub(crate) session: Uuid,
    pub(crate) parent: Option<Uuid>,
    pub(crate) deadline: Option<Timestamp>,
    pub(crate) overdue: bool,
    pub(crate) note: Option<String>,
    pub(crate) callback: Option<String>,
    pub(crate) canceled_by: Option<String>,
    /// How often a person gave it to another agent.
    pub(crate) reassigned: i64,
    pub(crate) created_at: Timestamp,
    pub(crate) updated_at: Timestamp,
    /// The office rejected it when it was sent, so that its assignee never got it.
    pub(crate) undelivered: bool,
}

impl TaskRow {
    /// Where it stands.
    pub(crate) fn state(&self) -> Result<TaskState> {
        self.state.parse().map_err(StoreError::internal)
    }

    /// Whether this agent gave it or was given it. One that was delivered to nobody is its owner's alone.
    pub(crate) fn concerns(&self, agent: i64) -> bool {
        self.owner == agent || (self.assignee == agent && !self.undelivered)
    }

    /// The task as an agent sees it in a chain: of one that does not concern it, the id and the state.
    pub(crate) fn in_chain(self, viewer: i64) -> Result<ChainTask> {
        match self.concerns(viewer) {
            true => self.task(viewer).map(Box::new).map(ChainTask::Own),
            false => Ok(ChainTask::Other { id: self.id.into(), state: self.state()? }),
        }
    }

    /// The task as an agent sees it. A callback is for its owner alone.
    pub(crate) fn task(self, viewer: i64) -> Result<Task> {
        Ok(Task {
            id: self.id.into(),
            owner: row::name(&self.owner_name)?,
            assignee: row::name(&self.assignee_name)?,
            state: self.state()?,
            message_id: self.message.into(),
            session_id: Some(self.session.into()),
            parent: self.parent.map(Into::into),
            deadline: self.deadline,
            overdue: self.overdue,
            note: self.note,
            callback: if viewer == self.owner { row::parse(self.callback)? } else { None },
            canceled_by: self.canceled_by.map(|by| row::name(&by)).transpose()?,
            created_at: self.created_at,
            updated_at: self.updated_at,
            subject: self.subject,
        })
    }

    /// The task as a message carries it.
    pub(crate) fn task_ref(&self, state: TaskState) -> TaskRef {
        TaskRef { id: self.id.into(), state, deadline: self.deadline, extra: Object::new() }
    }
}

static KIND: Kind = Kind::TaskUpdate;

/// The message that tells a task's owner of its new state.
#[derive(Debug, Clone)]
pub(crate) struct Update {
    pub(crate) id: Uuid,
    pub(crate) at: Timestamp,
    pub(crate) content: String,
    pub(crate) task: TaskRef,
    /// The message that brought the task.
    pub(crate) reply_to: Uuid,
    /// Whether the person of the other one's household moved it.
    pub(crate) from_person: bool,
}

impl Update {
    pub(crate) fn new(task: TaskRef, message: Uuid, note: Option<&str>, now: Timestamp) -> Self {
        let content = note.filter(|note| !note.is_empty()).map_or_else(|| task.state.to_string(), str::to_owned);
        Self { id: fresh_uuid(now), at: now, content, task, reply_to: message, from_person: false }
    }

    /// Columns to insert for it. The office charges `payer`.
    pub(crate) fn columns(
        &self,
        from_name: &AgentName,
        from: i64,
        payer: i64,
        mut hop: Hop,
        callback: Option<String>,
    ) -> Result<Columns<'static>> {
        if hop.trace.last() != Some(from_name) {
            hop.trace.push(from_name.clone());
        }
        Ok(Columns {
            id: self.id,
            sender: from,
            payer,
            at: self.at,
            priority: row::rank(Priority::Normal),
            ttl: hop.ttl,
            kind: row::kind_text(&KIND),
            trace: trace_json(&hop)?,
            reply_to: Some(self.reply_to),
            correlation_id: None,
            task: Some(json(&self.task)?),
            callback,
            content: Cow::Owned(self.content.clone()),
            parts: None,
            metadata: None,
        })
    }

    /// The event for its recipient.
    pub(crate) fn event(self, from: AgentName, session: Uuid, subject: &str) -> NewMessage {
        NewMessage {
            session_id: session.into(),
            subject: subject.to_owned(),
            from_agent: from,
            from_person: self.from_person,
            content: self.content,
            message_id: self.id.into(),
            created_at: self.at,
            kind: Kind::TaskUpdate,
            priority: Priority::Normal,
            parts: Vec::new(),
            task: Some(self.task),
            reply_to: Some(self.reply_to.into()),
            correlation_id: None,
        }
    }
}

/// The UUID of a task here. Any other text cannot name one.
pub(crate) fn task_uuid(id: &TaskId) -> Result<Uuid> {
    id.as_uuid().ok_or_else(|| refusals::no_task(id))
}

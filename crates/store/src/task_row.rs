//! Rows of tasks, and the messages that tell of their moves.

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
use crate::refusals;
use crate::row;

/// A row of `tasks`, joined with the names of its agents. Row ids are in the order of creation.
#[derive(Debug, Clone)]
pub(crate) struct TaskRow {
    pub(crate) row: i64,
    pub(crate) id: Uuid,
    pub(crate) owner: i64,
    pub(crate) assignee: i64,
    pub(crate) owner_name: AgentName,
    pub(crate) assignee_name: AgentName,
    pub(crate) state: TaskState,
    pub(crate) subject: Option<String>,
    pub(crate) message: Uuid,
    pub(crate) session: Uuid,
    pub(crate) parent: Option<Uuid>,
    pub(crate) deadline: Option<Timestamp>,
    pub(crate) overdue: bool,
    pub(crate) note: Option<String>,
    pub(crate) callback: Option<String>,
    pub(crate) canceled_by: Option<AgentName>,
    /// How often a person reassigned it.
    pub(crate) reassigned: i64,
    pub(crate) created_at: Timestamp,
    pub(crate) updated_at: Timestamp,
    /// Whether the office rejected it when it was sent, so that its assignee never got it.
    pub(crate) undelivered: bool,
}

impl TaskRow {
    /// Returns whether this agent is its owner or its assignee. Only the owner sees an undelivered task.
    pub(crate) fn concerns(&self, agent: i64) -> bool {
        self.owner == agent || (self.assignee == agent && !self.undelivered)
    }

    /// Returns the task as the viewer sees it in a chain: only id and state where it does not concern the viewer.
    pub(crate) fn in_chain(self, viewer: i64) -> Result<ChainTask> {
        match self.concerns(viewer) {
            true => self.task(viewer).map(Box::new).map(ChainTask::Own),
            false => Ok(ChainTask::Other { id: self.id.into(), state: self.state }),
        }
    }

    /// Returns the task as the viewer sees it. Only its owner sees the callback.
    pub(crate) fn task(self, viewer: i64) -> Result<Task> {
        Ok(Task {
            id: self.id.into(),
            owner: self.owner_name,
            assignee: self.assignee_name,
            state: self.state,
            message_id: self.message.into(),
            session_id: Some(self.session.into()),
            parent: self.parent.map(Into::into),
            deadline: self.deadline,
            overdue: self.overdue,
            note: self.note,
            callback: if viewer == self.owner { row::parse(self.callback)? } else { None },
            canceled_by: self.canceled_by,
            created_at: self.created_at,
            updated_at: self.updated_at,
            subject: self.subject,
        })
    }

    /// Returns the task reference that a message carries.
    pub(crate) fn task_ref(&self, state: TaskState) -> TaskRef {
        TaskRef { id: self.id.into(), state, deadline: self.deadline, extra: Object::new() }
    }
}

static KIND: Kind = Kind::TaskUpdate;

/// The message that tells one side of a task its new state.
#[derive(Debug, Clone)]
pub(crate) struct TaskUpdate {
    pub(crate) id: Uuid,
    pub(crate) at: Timestamp,
    pub(crate) content: String,
    pub(crate) task: TaskRef,
    /// The message of the task.
    pub(crate) reply_to: Uuid,
    /// Whether the person of the recipient's household moved it.
    pub(crate) from_person: bool,
}

impl TaskUpdate {
    pub(crate) fn new(task: TaskRef, message: Uuid, note: Option<&str>, now: Timestamp) -> Self {
        let content = note.filter(|note| !note.is_empty()).map_or_else(|| task.state.to_string(), str::to_owned);
        Self { id: fresh_uuid(now), at: now, content, task, reply_to: message, from_person: false }
    }

    /// Returns the columns to insert for it. `payer` is charged for it.
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

    /// Returns the event for its recipient.
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

/// Returns the UUID of a task id; `not_found` for any other text.
pub(crate) fn task_uuid(id: &TaskId) -> Result<Uuid> {
    id.as_uuid().ok_or_else(|| refusals::no_task(id))
}

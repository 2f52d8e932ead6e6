//! The task that a message brings: what is done about it before and after the turn. Every step may be repeated after a crash.

use amb_core::mailbox::TaskFilter;
use amb_core::{Code, Mailbox, Message, OfficeError, TaskId, TaskState};

/// The task that a message brings and that this agent is to do, if any.
pub(crate) fn brought(mail: &Message) -> Option<&TaskId> {
    let is_task = mail.kind == amb_core::Kind::Task;
    mail.task.as_ref().filter(|_| is_task).map(|task| &task.id)
}

/// Accepts the task, once. Returns whether there is work to do.
pub(crate) async fn accept(office: &dyn Mailbox, id: &TaskId) -> Result<bool, OfficeError> {
    match office.set_task_state(id, TaskState::Accepted, None).await {
        Ok(_) => Ok(true),
        // The office has rejected it, and its owner knows.
        Err(error) if error.code() == Code::Conflict => Ok(false),
        // Accepted before, by this bridge before a crash or by the agent itself; or ended already.
        Err(error) if error.code() == Code::IllegalMove => is_open(office, id).await,
        Err(error) => Err(error),
    }
}

/// Whether the task has not ended yet.
pub(crate) async fn is_open(office: &dyn Mailbox, id: &TaskId) -> Result<bool, OfficeError> {
    let open = office.tasks(TaskFilter { owned: Some(false), open: true, state: None }).await?;
    Ok(open.iter().any(|task| task.id == *id))
}

/// The newest open task in the session of a message that brings none, given by that message's sender.
pub(crate) async fn in_session(office: &dyn Mailbox, mail: &Message) -> Result<Option<TaskId>, OfficeError> {
    if mail.session.is_none() {
        return Ok(None);
    }
    let open = office.tasks(TaskFilter { owned: Some(false), open: true, state: None }).await?;
    Ok(open.into_iter().find(|task| task.owner == mail.from && task.session_id == mail.session).map(|task| task.id))
}

/// The result of moving a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Moved {
    /// It is in the wanted state, with this note: moved now, or by this bridge before a crash.
    There,
    /// It is in another state or has another note: the agent has moved it itself, or the office refuses the move. The task's
    /// owner has not seen the note.
    Not,
}

/// Moves the task, unless it has moved further already.
pub(crate) async fn advance(
    office: &dyn Mailbox,
    id: &TaskId,
    state: TaskState,
    note: Option<String>,
) -> Result<Moved, OfficeError> {
    // `working` may be reported more than once, so the office would take a repeat for new progress.
    if state == TaskState::Working && holds(office, id, state, note.as_deref()).await? {
        return Ok(Moved::There);
    }
    match office.set_task_state(id, state, note.clone()).await {
        Ok(_) => Ok(Moved::There),
        // A task that was accepted can only fail.
        Err(error) if error.code() == Code::IllegalMove && state == TaskState::Rejected => {
            match holds(office, id, state, note.as_deref()).await? {
                true => Ok(Moved::There),
                false => Box::pin(advance(office, id, TaskState::Failed, note)).await,
            }
        }
        Err(error) if matches!(error.code(), Code::IllegalMove | Code::Conflict) => {
            Ok(if holds(office, id, state, note.as_deref()).await? { Moved::There } else { Moved::Not })
        }
        Err(error) => Err(error),
    }
}

/// Whether the task is in this state with this note.
async fn holds(office: &dyn Mailbox, id: &TaskId, state: TaskState, note: Option<&str>) -> Result<bool, OfficeError> {
    let there = office.tasks(TaskFilter { owned: Some(false), open: false, state: Some(state) }).await?;
    Ok(there.iter().any(|task| task.id == *id && task.note.as_deref() == note))
}

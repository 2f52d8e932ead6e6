//! The task that a message brings: what is done about it before and after the turn. Every step may be repeated after a
//! crash.

use amb_core::mailbox::TaskFilter;
use amb_core::{Code, Mailbox, Message, OfficeError, TaskId, TaskState};

/// The task that a message brings and that this agent is to do, if any.
pub(crate) fn assigned(mail: &Message) -> Option<&TaskId> {
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

/// Moves the task, unless it has moved further already. Returns whether it is in this state with this note: moved now,
/// or by this bridge before a crash. If not, the agent has moved it itself or the office refuses the move, and the
/// task's owner has not seen the note.
pub(crate) async fn advance(
    office: &dyn Mailbox,
    id: &TaskId,
    state: TaskState,
    note: Option<String>,
) -> Result<bool, OfficeError> {
    // `working` may be reported more than once, so the office would take a repeat for new progress.
    if state == TaskState::Working && is_in_state(office, id, state, note.as_deref()).await? {
        return Ok(true);
    }
    match office.set_task_state(id, state, note.clone()).await {
        Ok(_) => Ok(true),
        // A task that was accepted can only fail.
        Err(error) if error.code() == Code::IllegalMove && state == TaskState::Rejected => {
            match is_in_state(office, id, state, note.as_deref()).await? {
                true => Ok(true),
                false => Box::pin(advance(office, id, TaskState::Failed, note)).await,
            }
        }
        Err(error) if matches!(error.code(), Code::IllegalMove | Code::Conflict) => {
            is_in_state(office, id, state, note.as_deref()).await
        }
        Err(error) => Err(error),
    }
}

/// Whether the task is in this state with this note.
async fn is_in_state(
    office: &dyn Mailbox,
    id: &TaskId,
    state: TaskState,
    note: Option<&str>,
) -> Result<bool, OfficeError> {
    let tasks = office.tasks(TaskFilter { owned: Some(false), open: false, state: Some(state) }).await?;
    Ok(tasks.iter().any(|task| task.id == *id && task.note.as_deref() == note))
}

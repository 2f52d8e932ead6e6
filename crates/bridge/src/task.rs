//! A task that came by mail: taken on before the turn, ended after it. Every step may be repeated after a crash.

use amb_core::office::TaskFilter;
use amb_core::{Code, Message, Office, OfficeError, TaskId, TaskState};

/// The task that a mail brings and that this bridge is to do, if any.
pub(crate) fn brought(mail: &Message) -> Option<&TaskId> {
    let is_task = mail.kind == amb_core::Kind::Task;
    mail.task.as_ref().filter(|_| is_task).map(|task| &task.id)
}

/// Takes the task on, and tells its owner so, once. Answers whether there is work to do.
pub(crate) async fn begin(office: &dyn Office, id: &TaskId) -> Result<bool, OfficeError> {
    match office.set_task_state(id, TaskState::Accepted, None).await {
        Ok(_) => Ok(true),
        // The office has rejected it, and its owner knows.
        Err(error) if error.code() == Code::Conflict => Ok(false),
        // Taken on before, by this bridge before a crash or by the agent itself; or ended already.
        Err(error) if error.code() == Code::IllegalMove => {
            let open = office.tasks(TaskFilter { owned: Some(false), open: true, state: None }).await?;
            Ok(open.iter().any(|task| task.id == *id))
        }
        Err(error) => Err(error),
    }
}

/// Ends the task, unless the agent has ended it itself.
pub(crate) async fn end(
    office: &dyn Office,
    id: &TaskId,
    state: TaskState,
    note: Option<String>,
) -> Result<(), OfficeError> {
    match office.set_task_state(id, state, note).await {
        Ok(_) => Ok(()),
        Err(error) if matches!(error.code(), Code::IllegalMove | Code::Conflict) => Ok(()),
        Err(error) => Err(error),
    }
}

//! A task that came by mail: taken on before the turn, ended after it. Every step may be repeated after a crash.

use amb_core::{Code, Message, Office, OfficeError, TaskId, TaskState};

/// The task that a mail brings and that this bridge is to do, if any.
pub(crate) fn brought(mail: &Message) -> Option<&TaskId> {
    let is_task = mail.kind == amb_core::Kind::Task;
    mail.task.as_ref().filter(|_| is_task).map(|task| &task.id)
}

/// Takes the task on. Answers whether there is work to do: the office may reject it, and then its owner knows.
pub(crate) async fn begin(office: &dyn Office, id: &TaskId) -> Result<bool, OfficeError> {
    match office.set_task_state(id, TaskState::Working, None).await {
        Ok(_) => Ok(true),
        Err(error) if error.code() == Code::Conflict => Ok(false),
        // It has ended already: by the agent itself, or by this bridge before a crash.
        Err(error) if error.code() == Code::IllegalMove => Ok(false),
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

//! Task updates of residents, for tasks that agents of the office gave them.

use amb_core::{Code, Mailbox, Message, OfficeError, TaskState};

use crate::context::Context;
use crate::ledger::{CrossingRow, CrossingState};
use crate::membership::{Guest, Resident};
use crate::outward::OutwardOutcome;

/// Moves the task in the office, once; the office sends the update to its owner.
///
/// The moment in the ledger is the task's moment of change: a task that has it, or a later one, was moved by this very
/// report before, by a process that ended before it could note that. Reports of one task come one after the other.
pub(crate) async fn report(
    context: &Context,
    guest: &Guest,
    resident: &Resident,
    row: &CrossingRow,
    update: &Message,
) -> Result<OutwardOutcome, OfficeError> {
    let unknown = || Ok(OutwardOutcome::Refuse("it is about a task that did not cross here".into()));
    let Some(said) = &update.task else { return unknown() };
    let Some(task) = context.ledger.office_task(&row.recipient, &row.sender, &said.id).await? else { return unknown() };
    let me = &resident.agent;
    let moved_before = row.again && context.store.task(me, &task).await.is_ok_and(|task| task.updated_at >= row.at);
    if !moved_before {
        // Leaves out the note that the office would write itself.
        let note = Some(update.text()).filter(|text| !text.is_empty() && *text != format!("task is {}", said.state));
        match context.store.set_task_state(me, &task, said.state, note, row.at).await {
            Ok(written) => {
                let now = context.publish(written);
                if now.state == TaskState::Rejected && said.state != TaskState::Rejected {
                    // The office rejected it, so it ends here too.
                    let mailbox = context.office.mailbox(me.name.clone());
                    if let Err(error) = mailbox.set_task_state(&said.id, TaskState::Failed, now.note).await {
                        tracing::warn!(%error, task = %said.id, "a task that the office rejected goes on in the directory");
                    }
                }
            }
            Err(error) if error.may_succeed_later() => return Err(error),
            Err(error) if error.code() == Code::IllegalMove => {
                tracing::info!(%error, task = %said.id, from = %me.name, "skipped a task update that changes nothing");
            }
            Err(error) => return Ok(OutwardOutcome::Refuse(error.to_string())),
        }
    }
    guest.mailbox.ack_mounted(std::slice::from_ref(&update.id)).await?;
    // Written at once, not with the page: a later report would hide that this one was made.
    context.ledger.note(vec![(row.number, CrossingState::Read)]).await?;
    Ok(OutwardOutcome::Done(CrossingState::Read))
}

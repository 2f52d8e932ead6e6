//! Reports residents' task updates to the office, for tasks that its agents gave them.

use amb_core::{Code, Mailbox, Message, OfficeError, TaskState};

use crate::context::Context;
use crate::ledger::{CrossingRow, CrossingState};
use crate::membership::{Guest, Resident};
use crate::outward::OutwardOutcome;

/// Moves the task in the office, once; the office sends the update to its owner.
///
/// The time in the ledger becomes the task's time of change. A task with that time or a later one was moved by this
/// report before, by a process that ended before it recorded that: reports of one task are made in order.
pub(crate) async fn report(
    context: &Context,
    guest: &Guest,
    resident: &Resident,
    row: &CrossingRow,
    update: &Message,
) -> Result<OutwardOutcome, OfficeError> {
    let unknown = || Ok(OutwardOutcome::Refuse("it is about a task that did not cross here".into()));
    let Some(reported) = &update.task else { return unknown() };
    let Some(task) = context.ledger.office_task(&row.recipient, &row.sender, &reported.id).await? else {
        return unknown();
    };
    let me = &resident.agent;
    let moved_before = row.again && context.store.task(me, &task).await.is_ok_and(|task| task.updated_at >= row.at);
    if !moved_before {
        // Omits the default note, which the office writes itself.
        let note =
            Some(update.text()).filter(|text| !text.is_empty() && *text != format!("task is {}", reported.state));
        match context.store.set_task_state(me, &task, reported.state, note, row.at).await {
            Ok(written) => {
                let now = context.publish(written);
                if now.state == TaskState::Rejected && reported.state != TaskState::Rejected {
                    // The office rejected it, so it ends here too.
                    let mailbox = context.office.mailbox(me.name.clone());
                    if let Err(error) = mailbox.set_task_state(&reported.id, TaskState::Failed, now.note).await {
                        tracing::warn!(%error, task = %reported.id, "a task that the office rejected goes on in the directory");
                    }
                }
            }
            Err(error) if error.may_succeed_later() => return Err(error),
            Err(error) if error.code() == Code::IllegalMove => {
                tracing::info!(%error, task = %reported.id, from = %me.name, "skipped a task update that changes nothing");
            }
            Err(error) => return Ok(OutwardOutcome::Refuse(error.to_string())),
        }
    }
    guest.mailbox.ack_mounted(std::slice::from_ref(&update.id)).await?;
    // Recorded at once, not with the page: after a later report it could not be recognised.
    context.ledger.set_states(vec![(row.number, CrossingState::Read)]).await?;
    Ok(OutwardOutcome::Done(CrossingState::Read))
}

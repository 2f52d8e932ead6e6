//! Notifies a sender in the office that its message was refused by the directory.

use amb_core::{Draft, Kind, Message, OfficeError, TaskState, Timestamp};
use amb_store::Agent;

use crate::context::Context;

/// Rejects a task, or answers other mail in the recipient's name. Idempotent, so that it can be repeated after a kill.
pub(crate) async fn notify_sender(
    context: &Context,
    resident: &Agent,
    message: &Message,
    why: String,
) -> Result<(), OfficeError> {
    let now = Timestamp::now();
    let notified = match (&message.kind, &message.task) {
        // Updates are not answered.
        (Kind::TaskUpdate, _) => return Ok(()),
        (Kind::Task, Some(task)) => {
            let rejected = context.store.set_task_state(resident, &task.id, TaskState::Rejected, Some(why), now).await;
            rejected.map(|written| drop(context.publish(written)))
        }
        _ => {
            let answer = Draft {
                idempotency_key: Some(format!("mount-refused-{}", message.id)),
                ..Draft::reply(message, format!("Your message was not delivered: {why}.")).automatic()
            };
            context.store.send(resident, answer, now).await.map(|written| drop(context.publish(written)))
        }
    };
    match notified {
        Err(error) if error.may_succeed_later() => Err(error),
        // The connection has ended, the task was rejected before, or it was an automatic answer without a hop left.
        Err(error) => {
            tracing::info!(message = %message.id, to = %message.from, %error, "the sender could not be notified of the refusal");
            Ok(())
        }
        Ok(()) => Ok(()),
    }
}

//! Sending as the model at this seat: what it passes on to a third agent keeps its ttl and trace, named or not.

use amb_core::doc::Sent;
use amb_core::office::TaskFilter;
use amb_core::{Code, Draft, MessageId, OfficeError};

use super::Desk;

/// A message that was sent, and the mail that it counts as passing on.
pub(super) struct Posted {
    pub(super) sent: Sent,
    pub(super) passes_on: Option<MessageId>,
}

/// Sends. A draft that names no message is taken for passing on what the model is working on, where it goes to somebody else
/// than that came from. `user_request` lifts this, but only for what was refused before: said by habit, it changes nothing.
pub(super) async fn post(desk: &Desk, mut draft: Draft, user_request: bool) -> Result<Posted, OfficeError> {
    let work = &desk.seen.work;
    let to = draft.to.clone();
    let named = draft.reply_to.is_some() || draft.relay_of.is_some();
    let lifted = user_request && work.was_refused(&to);
    if !named && !lifted {
        draft.relay_of = passed_on(desk, &draft).await?;
    }
    let derived = draft.relay_of.clone().filter(|_| !named);
    let mut sent = desk.office.send(draft.clone()).await;
    if let (Some(gone), Err(error)) = (&derived, &sent)
        && error.code() == Code::NotFound
        && desk.office.message(gone).await.is_err_and(|error| error.code() == Code::NotFound)
    {
        // The mail has been cleared away meanwhile.
        work.forget(gone);
        draft.relay_of = None;
        sent = desk.office.send(draft).await;
    }
    if derived.is_some() && matches!(&sent, Err(error) if error.code() == Code::LoopRefused) {
        work.refused(&to);
    }
    let sent = sent?;
    work.sent(&to, &sent.session_id);
    Ok(Posted { sent, passes_on: derived })
}

/// The mail that this draft passes on: the one shown last that came from somebody else and answers nothing of the caller's
/// own; else, after a restart, the one of the task that the caller works on.
async fn passed_on(desk: &Desk, draft: &Draft) -> Result<Option<MessageId>, OfficeError> {
    let (work, me) = (&desk.seen.work, desk.office.me());
    for mail in work.passed_on_to(&draft.to, draft.session.as_ref()) {
        let answers_mine = match &mail.reply_to {
            Some(id) => desk.office.message(id).await.is_ok_and(|answered| answered.message.from == *me),
            None => false,
        };
        if !answers_mine {
            return Ok(Some(mail.id));
        }
        work.forget(&mail.id);
    }
    if work.remembers_any() {
        return Ok(None);
    }
    let given = TaskFilter { owned: Some(false), open: true, ..TaskFilter::default() };
    let tasks = desk.office.tasks(given).await?;
    let current = tasks.into_iter().find(|task| task.state.is_current() && task.assignee == *me);
    Ok(current.filter(|task| task.owner != draft.to).map(|task| task.message_id))
}

//! Carries mail from the directory to the office: one loop per guest, over the log of its mailbox.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use amb_core::error::if_found;
use amb_core::event::Cursor;
use amb_core::id::fresh_uuid;
use amb_core::message::NO_SUBJECT;
use amb_core::route::Hop;
use amb_core::{Code, Draft, Event, Kind, Mailbox, Message, MessageId, OfficeError, Timestamp};
use amb_store::Crossing as Carried;

use crate::consent::{self, ConsentAnswer};
use crate::context::{Context, Rounds};
use crate::ledger::{CrossingRow, CrossingState, Direction, NewCrossing, NewCrossingKind};
use crate::membership::{self, Guest, Resident};
use crate::reports;

/// How often waiting mail is checked for consent if no new mail arrives.
const WAIT: Duration = Duration::from_secs(20);
/// Messages checked for consent in one page.
const BATCH: u32 = 200;

/// Result of carrying one message.
pub(crate) enum OutwardOutcome {
    /// Its new state.
    Done(CrossingState),
    /// It cannot be carried, with the reason.
    Refuse(String),
}

/// Carries mail in a guest's mailbox, until the mount closes or the guest loses its name.
pub(crate) async fn run(context: Arc<Context>, guest: Arc<Guest>) {
    let doing = format!("carrying mail of {}", guest.mailbox.me());
    let mut rounds = Rounds::new(&context, doing, Arc::default());
    let carry = async { while rounds.next(carry_new_mail(&context, &guest).await).await {} };
    tokio::select! {
        () = carry => {}
        () = guest.gone.cancelled() => {}
        () = context.closing.cancelled() => {}
    }
}

/// Handles waiting mail, then a page of new mail. Waits for mail, so no pause is needed.
async fn carry_new_mail(context: &Context, guest: &Guest) -> Result<Duration, OfficeError> {
    let me = guest.mailbox.me();
    flush(context, guest).await?;
    let from = context.ledger.cursor(Direction::Out, me).await?;
    let page = tokio::select! {
        page = guest.mailbox.events(Some(Cursor::from(from)), WAIT) => page,
        () = guest.flush.notified() => return Ok(Duration::ZERO),
    };
    let page = match page {
        Err(error) if error.code() == Code::Invalid && from > 0 => {
            tracing::warn!(agent = %me, %error, "the mailbox's log was replaced; reading it from the start");
            // The ids of carried messages are in the ledger, so none is carried twice.
            context.ledger.settle(Direction::Out, me, 0, Vec::new()).await?;
            return Ok(Duration::ZERO);
        }
        page => page?,
    };
    let (mut up_to, mut result) = (from, Ok(Duration::ZERO));
    let mut states = Vec::new();
    for entry in page.events {
        let handled = match &entry.event {
            Event::NewMessage(event) => carry_message(context, guest, &event.message_id).await,
            _ => Ok(None),
        };
        match handled {
            Ok(state) => {
                states.extend(state);
                up_to = entry.cursor.as_number().unwrap_or(up_to);
            }
            Err(error) => {
                result = Err(error);
                break;
            }
        }
    }
    if up_to != from {
        context.ledger.settle(Direction::Out, me, up_to, states).await?;
    }
    result
}

/// Handles one message and returns its row and new state, if it has a row.
async fn carry_message(
    context: &Context,
    guest: &Guest,
    id: &MessageId,
) -> Result<Option<(i64, CrossingState)>, OfficeError> {
    let me = guest.mailbox.me();
    // A missing message was deleted by the program that sent it, or by a person.
    let Some(found) = if_found(guest.mailbox.message(id).await)? else { return Ok(None) };
    let message = found.message;
    // Read before this directory was mounted.
    let is_read = found.receipts.iter().any(|receipt| receipt.read_at.is_some());
    if is_read && context.ledger.by_dir_id(me, id).await?.is_none() {
        return Ok(None);
    }
    let Some(resident) = membership::find_resident(context, &message.from).await? else {
        let why = "its sender is no agent of the directory that the office knows; let it register under a free name";
        put_aside(context, guest, &message, why).await?;
        return Ok(None);
    };
    let (sender, recipient) = (message.from.clone(), me.clone());
    let now = Timestamp::now();
    let what = match message.kind {
        Kind::TaskUpdate => NewCrossingKind::Report { dir_id: id.clone(), at: now },
        _ => NewCrossingKind::Out {
            dir_id: id.clone(),
            office_id: fresh_uuid(now),
            at: now,
            task: message.task.as_ref().filter(|_| message.kind == Kind::Task).map(|task| task.id.clone()),
        },
    };
    // Keeps the sender's order: a message waits if an earlier one waits.
    let must_wait = context.ledger.waits(me, &sender).await?;
    let Some(row) = context.ledger.begin(vec![NewCrossing { sender, recipient, what }]).await?.pop() else {
        return Ok(None);
    };
    if row.state != CrossingState::Crossing {
        return Ok(None);
    }
    let outcome = match message.kind {
        Kind::TaskUpdate => reports::report(context, guest, &resident, &row, &message).await?,
        _ if must_wait => OutwardOutcome::Done(CrossingState::Waiting),
        _ => send(context, &resident, &row, &message).await?,
    };
    finish(context, guest, &row, &message, outcome).await.map(Some)
}

/// Sends messages that waited for consent and have it now.
async fn flush(context: &Context, guest: &Guest) -> Result<(), OfficeError> {
    let me = guest.mailbox.me();
    let mut undecided = HashSet::new();
    let mut after = 0;
    loop {
        let waiting =
            context.ledger.rows_in_state(Direction::Out, CrossingState::Waiting, Some(me), after, BATCH).await?;
        let Some(last) = waiting.last() else { return Ok(()) };
        after = last.number;
        for row in waiting {
            if undecided.contains(&row.sender) {
                continue;
            }
            let Some(found) = if_found(guest.mailbox.message(&row.dir_id).await)? else {
                context.ledger.set_states(vec![(row.number, CrossingState::Refused)]).await?;
                continue;
            };
            let message = found.message;
            let Some(resident) = membership::find_resident(context, &row.sender).await? else { continue };
            let outcome = send(context, &resident, &row, &message).await?;
            let (number, state) = finish(context, guest, &row, &message, outcome).await?;
            if state == CrossingState::Waiting {
                undecided.insert(row.sender);
            } else {
                context.ledger.set_states(vec![(number, state)]).await?;
            }
        }
    }
}

/// Sends a message in the office, from the sender's account.
async fn send(
    context: &Context,
    resident: &Resident,
    row: &CrossingRow,
    message: &Message,
) -> Result<OutwardOutcome, OfficeError> {
    let Some(id) = row.office_id else { return Ok(OutwardOutcome::Done(CrossingState::Refused)) };
    if row.again && is_in_office(context, resident, id.into()).await? {
        return Ok(OutwardOutcome::Done(CrossingState::Across));
    }
    let reply_to = match &message.reply_to {
        Some(id) => context.ledger.office_id(&resident.agent.name, id).await?,
        None => None,
    };
    let draft = Draft {
        to: row.recipient.clone(),
        kind: message.kind.clone(),
        subject: Some(message.subject.clone().unwrap_or_else(|| NO_SUBJECT.into())),
        session: None,
        parts: message.parts.clone(),
        priority: message.priority,
        deadline: message.task.as_ref().filter(|_| message.kind == Kind::Task).and_then(|task| task.deadline),
        deadline_in: None,
        // A callback is valid only on its setter's side.
        callback: None,
        reply_to,
        relay_of: None,
        correlation_id: message.correlation_id.clone(),
        metadata: message.metadata.clone(),
        idempotency_key: Some(format!("mount-{id}")),
    };
    if let Err(error) = draft.check() {
        return Ok(OutwardOutcome::Refuse(error.to_string()));
    }
    let crossing = Carried { id, hop: Hop { ttl: message.ttl, trace: message.trace.clone() } };
    loop {
        let now = Timestamp::now();
        match context.store.carry(&resident.agent, draft.clone(), crossing.clone(), now).await {
            Ok(written) => {
                context.publish(written);
                context.stats.carried_out.fetch_add(1, Ordering::Relaxed);
                return Ok(OutwardOutcome::Done(CrossingState::Across));
            }
            Err(error) if error.code() == Code::NotConnected => {
                match consent::ask(context, resident, &row.recipient, row.at).await? {
                    ConsentAnswer::Go => {}
                    ConsentAnswer::Wait => return Ok(OutwardOutcome::Done(CrossingState::Waiting)),
                    ConsentAnswer::Refuse(why) => return Ok(OutwardOutcome::Refuse(why)),
                }
            }
            Err(error) if error.may_succeed_later() => return Err(error),
            Err(error) => return Ok(OutwardOutcome::Refuse(error.to_string())),
        }
    }
}

/// Whether an earlier process had sent it. The office deletes idempotency keys after a while, but keeps unread mail.
async fn is_in_office(context: &Context, resident: &Resident, id: MessageId) -> Result<bool, OfficeError> {
    Ok(if_found(context.store.message(&resident.agent, &id).await)?.is_some())
}

/// Puts a refused message aside. Returns the row and its new state.
async fn finish(
    context: &Context,
    guest: &Guest,
    row: &CrossingRow,
    message: &Message,
    outcome: OutwardOutcome,
) -> Result<(i64, CrossingState), OfficeError> {
    match outcome {
        OutwardOutcome::Done(state) => Ok((row.number, state)),
        OutwardOutcome::Refuse(why) => {
            put_aside(context, guest, message, &why).await?;
            Ok((row.number, CrossingState::Refused))
        }
    }
}

/// Rejects a task, so that its owner gets an update; moves other mail to `refused/`.
async fn put_aside(context: &Context, guest: &Guest, message: &Message, why: &str) -> Result<(), OfficeError> {
    context.stats.refused.fetch_add(1, Ordering::Relaxed);
    tracing::warn!(
        message = %message.id, from = %message.from, to = %message.to, why,
        "message refused: not carried to the office"
    );
    let task = message.task.as_ref().filter(|_| message.kind == Kind::Task);
    if let Some(task) = task
        && guest.mailbox.reject_mounted(&task.id, why.to_owned()).await.is_ok()
    {
        return guest.mailbox.ack_mounted(std::slice::from_ref(&message.id)).await.map(drop);
    }
    guest.mailbox.refuse(&message.id).await
}

//! Carries mail from the office to the directory: one loop per resident, over the log of its account.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use amb_core::error::if_found;
use amb_core::message::NO_SUBJECT;
use amb_core::task::TaskRef;
use amb_core::{
    AgentName, Code, Entry, Event, Kind, Message, MessageId, Object, OfficeError, ReceiptState, SessionId, TaskId,
    Timestamp,
};
use amb_store::Agent;

use crate::consent;
use crate::context::{Context, Rounds};
use crate::ledger::{CrossingRow, CrossingState, Direction, NewCrossing, NewCrossingKind};
use crate::membership;
use crate::refusal;

/// Log entries handled between two writes to the ledger.
const PAGE: usize = 100;
/// How often the log is read without a hint, which may be lost.
const POLL_INTERVAL: Duration = Duration::from_secs(30);
/// A message older than this many seconds may have been carried before: the directory is searched for it first.
const MAY_BE_CARRIED_AFTER: i64 = 3_600;

/// Carries mail that arrives at a resident's account, until the mount closes.
pub(crate) async fn run(context: Arc<Context>, resident: Agent) {
    let doing = format!("carrying mail to {}", resident.name);
    let mut rounds = Rounds::new(&context, doing, context.membership.signals.of(resident.key));
    let pause = |handled| if handled == 0 { POLL_INTERVAL } else { Duration::ZERO };
    while rounds.next(carry_page(&context, &resident).await.map(pause)).await {}
}

/// Handles a page of log entries and returns how many. Progress before a failure is recorded.
async fn carry_page(context: &Context, resident: &Agent) -> Result<usize, OfficeError> {
    let from = context.ledger.cursor(Direction::In, &resident.name).await?;
    let entries = context.store.events(resident.key, from, PAGE).await?;
    if entries.is_empty() {
        if from > context.store.event_head(resident.key).await? {
            tracing::warn!(
                agent = %resident.name,
                "the office's log is older than the cursor, as after a restore; reading it from the start"
            );
            // The ids of carried messages are in the ledger, so none is carried twice.
            context.ledger.settle(Direction::In, &resident.name, 0, Vec::new()).await?;
            return Ok(1);
        }
        return Ok(0);
    }
    let mut mail = load(context, resident, &entries).await?;
    let (mut up_to, mut states, mut delivered) = (from, Vec::new(), Ranges::default());
    let mut result = Ok(entries.len());
    for entry in entries {
        let number = entry.cursor.as_number().unwrap_or(up_to + 1);
        let handled = match entry.event {
            Event::NewMessage(event) => match mail.pop_front_if(|(id, _)| *id == event.message_id) {
                Some((_, Some((row, message)))) => carry(context, resident, row, message).await.map(|(row, state)| {
                    if state == CrossingState::Across {
                        delivered.add(number);
                    }
                    states.push((row, state));
                }),
                // Removed from the office meanwhile.
                _ => Ok(()),
            },
            Event::ConnectionRequest { from_agent, .. } => consent::answer(context, resident, &from_agent).await,
            Event::ConnectionApproved { connected_agent: peer, .. } | Event::ConnectionChanged { agent: peer, .. } => {
                if let Some(guest) = context.membership.guest(&peer) {
                    guest.flush.notify_one();
                }
                Ok(())
            }
            Event::Receipt { message_id, receipt } if receipt.state == ReceiptState::Read => {
                ack_in_directory(context, &message_id, &receipt.recipient).await
            }
            Event::Receipt { .. }
            | Event::TaskOverdue { .. }
            | Event::HouseholdChanged { .. }
            | Event::SteppedIn(_)
            | Event::Unknown => Ok(()),
        };
        if let Err(error) = handled {
            result = Err(error);
            break;
        }
        up_to = number;
    }
    for (after, up_to) in delivered.0 {
        context.publish(context.store.delivered(resident, after, up_to, Timestamp::now()).await?);
    }
    context.ledger.settle(Direction::In, &resident.name, up_to, states).await?;
    result
}

/// Ranges of carried entries: after the first number, up to and including the second.
#[derive(Default)]
struct Ranges(Vec<(u64, u64)>);

impl Ranges {
    fn add(&mut self, number: u64) {
        match self.0.last_mut() {
            Some((_, up_to)) if *up_to + 1 == number => *up_to = number,
            _ => self.0.push((number.saturating_sub(1), number)),
        }
    }
}

/// The messages of a page of entries; `None` for those that are gone.
type PendingMail = VecDeque<(MessageId, Option<(CrossingRow, Message)>)>;

/// Loads the messages of these entries, and writes a ledger row for each.
async fn load(context: &Context, resident: &Agent, entries: &[Entry]) -> Result<PendingMail, OfficeError> {
    let (mut found, mut new) = (Vec::new(), Vec::new());
    for entry in entries {
        let Event::NewMessage(event) = &entry.event else { continue };
        let message = match event.message_id.as_uuid() {
            Some(office_id) => if_found(context.store.message(resident, &event.message_id).await)?
                .map(|found| (found.message, office_id)),
            None => None,
        };
        if let Some((message, office_id)) = &message {
            new.push(NewCrossing {
                sender: message.from.clone(),
                recipient: resident.name.clone(),
                what: NewCrossingKind::In {
                    office_id: *office_id,
                    sent_at: message.sent_at,
                    // The random end of the message's id.
                    nonce: office_id.as_u128() as u32,
                    task: message.task.as_ref().filter(|_| message.kind == Kind::Task).map(|task| task.id.clone()),
                },
            });
        }
        found.push((event.message_id.clone(), message));
    }
    let mut rows = context.ledger.begin(new).await?.into_iter();
    let mut with_row = |message: Option<(Message, _)>| message.and_then(|(message, _)| Some((rows.next()?, message)));
    Ok(found.into_iter().map(|(id, message)| (id, with_row(message))).collect())
}

/// Carries one message and returns its new state.
async fn carry(
    context: &Context,
    resident: &Agent,
    row: CrossingRow,
    message: Message,
) -> Result<(i64, CrossingState), OfficeError> {
    if !matches!(row.state, CrossingState::Crossing) {
        return Ok((row.number, row.state));
    }
    match deliver(context, resident, &row, message.clone()).await? {
        Ok(()) => {
            context.stats.carried_in.fetch_add(1, Ordering::Relaxed);
            Ok((row.number, CrossingState::Across))
        }
        Err(why) => {
            context.stats.refused.fetch_add(1, Ordering::Relaxed);
            tracing::warn!(
                message = %message.id, from = %message.from, to = %resident.name, why,
                "message refused: not carried to the directory"
            );
            refusal::notify_sender(context, resident, &message, why).await?;
            Ok((row.number, CrossingState::Refused))
        }
    }
}

/// Delivers a message to a resident's mailbox, or returns why it is refused.
async fn deliver(
    context: &Context,
    resident: &Agent,
    row: &CrossingRow,
    message: Message,
) -> Result<Result<(), String>, OfficeError> {
    let Some(known) = context.membership.resident(&resident.name) else {
        return Err(OfficeError::unavailable(format!("{} is not known yet", resident.name)));
    };
    let accepted = consent::accepts_mail_from(context, &known, &message.from).await?;
    // A task update needs no consent: the task was agreed on.
    if !accepted && message.kind != Kind::TaskUpdate {
        return Ok(Err(consent::not_accepted(&resident.name, &message.from)));
    }
    let Some(guest) = membership::find_guest(context, &message.from, resident, accepted).await? else {
        return Ok(Err("an agent of the directory has the sender's name".into()));
    };
    let Some(message) = with_dir_ids(context, row, message).await? else {
        return Ok(Err("it is about a task that did not cross here".into()));
    };
    // An old message may have lost its row while an office restored from a backup still has it.
    let again = row.again || Timestamp::now().as_second() - row.at.as_second() > MAY_BE_CARRIED_AFTER;
    match guest.mailbox.carry(message, row.nonce, again).await {
        Ok(_) => Ok(Ok(())),
        Err(error) if error.may_succeed_later() || error.code() == Code::NotFound => Err(error),
        Err(error) => Ok(Err(error.to_string())),
    }
}

/// Returns the message with the directory's ids. `None` for an update of a task that is not in the ledger.
async fn with_dir_ids(context: &Context, row: &CrossingRow, message: Message) -> Result<Option<Message>, OfficeError> {
    let reply_to = match &message.reply_to {
        Some(id) => context.ledger.dir_id(id).await?,
        None => None,
    };
    let task = match (&message.kind, message.task) {
        (Kind::TaskUpdate, Some(task)) => match context.ledger.dir_task(&task.id).await? {
            Some(id) => Some(task_ref(id, &task)),
            None => return Ok(None),
        },
        (Kind::TaskUpdate, None) => return Ok(None),
        (_, Some(task)) => Some(task_ref(TaskId::parse(row.dir_id.as_str())?, &task)),
        (_, None) => None,
    };
    let subject = message.subject.filter(|subject| subject != NO_SUBJECT);
    Ok(Some(Message {
        id: row.dir_id.clone(),
        sent_at: row.at,
        session: Some(SessionId::between(&message.from, &message.to, subject.as_deref().unwrap_or(NO_SUBJECT))),
        subject,
        reply_to,
        task,
        // A callback is valid only on its setter's side.
        callback: None,
        ..message
    }))
}

fn task_ref(id: TaskId, task: &TaskRef) -> TaskRef {
    TaskRef { id, state: task.state, deadline: task.deadline, extra: Object::new() }
}

/// Acknowledges a resident's message in the directory after it was read in the office.
async fn ack_in_directory(context: &Context, message: &MessageId, by: &AgentName) -> Result<(), OfficeError> {
    let Some(id) = message.as_uuid() else { return Ok(()) };
    let Some(row) = context.ledger.by_office_id(by, id).await? else { return Ok(()) };
    if_found(context.office.mailbox(by.clone()).ack_mounted(std::slice::from_ref(&row.dir_id)).await)?;
    context.ledger.set_states(vec![(row.number, CrossingState::Read)]).await
}

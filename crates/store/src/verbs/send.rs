//! Sending a message: look up the facts, let core decide, write the rows. The same for both databases.
//!
//! With SQLite each method of [`SendTx`] reads or writes at once. PostgreSQL looks everything up for a whole batch of
//! messages first, and writes the rows of all of them at the end (`postgres::batch`).

use std::sync::Arc;

use amb_core::doc::Sent;
use amb_core::message::is_automatic;
use amb_core::route::Hop;
use amb_core::send::{self, Accepted, Facts, NamedSession, Parent, Recipient, SessionChoice, Storage};
use amb_core::stepping_in::check_open;
use amb_core::task::{RejectReason, TaskRef};
use amb_core::{AgentName, Card, Consent, Draft, Entry, Event, Kind, MessageId, TaskState, Timestamp};
use async_trait::async_trait;
use uuid::Uuid;

use super::connections::pair;
use super::once::once;
use crate::columns::{Addressee, Columns};
use crate::engine::{self, Changes, Engine, FromRow, Row, from_row};
use crate::error::Result;
use crate::outgoing::{OutgoingMessage, ParentRef, PlacedMessage, Subject, json, json_of, no_session};
use crate::quota::Stored;
use crate::refusals;
use crate::row::{MessageRow, message_columns};
use crate::task_row::TaskUpdate;
use crate::types::{Agent, AgentKey, Crossing, LogEntry, Once, Written, to_micros};

/// Sending.
#[async_trait]
pub trait SendVerbs: Engine {
    /// Sends a message. `not_connected` without an active connection or a common household; `not_allowed` where the
    /// target's `allow_from` excludes the caller.
    ///
    /// With a session: `not_found` where there is none, `forbidden` where not both agents are in it. Without one: the
    /// session of this pair and subject, created where it is missing; case and outer space of the subject do not
    /// matter.
    ///
    /// With an idempotency key: a repeat returns what the first call returned and writes nothing; another request under
    /// the same key is a `conflict`. The same holds for [`SendVerbs::send_all`], and for the verbs of
    /// `ConnectionVerbs`, `GroupVerbs`, `TaskVerbs` and `TranscriptVerbs` that create something, with the key in
    /// [`Agent::once`].
    ///
    /// `over_quota` where a quota ([`Store::set_quotas`](crate::Store::set_quotas)) would be exceeded, also for a line
    /// of a transcript. A task update counts too, but is never refused for that.
    async fn send(&self, caller: &Agent, draft: Draft, now: Timestamp) -> Result<Written<Sent>> {
        self.send_message(caller, OutgoingMessage::new(&caller.name, draft, now)?).await
    }

    /// Sends a message of the caller that another office accepted: its id, ttl and trace are given, not derived from
    /// the message that it answers or relays. Pass an idempotency key: it may be carried again after a crash.
    async fn carry(&self, caller: &Agent, draft: Draft, crossing: Crossing, now: Timestamp) -> Result<Written<Sent>> {
        self.send_message(caller, OutgoingMessage::carried(&caller.name, draft, crossing, now)?).await
    }

    /// Sends one draft to several recipients, each in the session of its pair, in one transaction: all or none. Ignores
    /// `to` of the draft. An agent that several of the names resolve to gets it once.
    async fn send_all(
        &self,
        caller: &Agent,
        to: &[AgentName],
        draft: Draft,
        now: Timestamp,
    ) -> Result<Written<Vec<Sent>>> {
        let once = draft.idempotency_key.clone().map(|key| Once::new(key, "send-many", &(to, &draft))).transpose()?;
        let asked = (caller.clone().under(once), to.to_vec(), draft, now);
        engine::write(self, Changes::All, asked, |tx, (caller, to, draft, now)| {
            once!(tx, caller, to_micros(*now), tx.send_all(caller, to, draft, *now))
        })
        .await
    }
}

impl<E: Engine> SendVerbs for E {}

/// The result of a send.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// It was written.
    Placed(Box<PlacedMessage>),
    /// Its idempotency key was used before for the same draft, and this was the answer.
    Repeat(Sent),
}

impl Outcome {
    /// Returns the answer and the log entries.
    pub(crate) fn into_written(self) -> Written<Sent> {
        match self {
            Self::Placed(placed) => placed.into_written(),
            Self::Repeat(sent) => Written::quiet(sent),
        }
    }

    /// The number of deliveries.
    pub(crate) fn copies(&self) -> usize {
        if let Self::Placed(placed) = self { placed.copies.len() } else { 0 }
    }
}

/// The columns of a recipient.
#[derive(Debug, Clone)]
pub(crate) struct RecipientRow {
    pub(crate) id: i64,
    pub(crate) name: AgentName,
    pub(crate) card: Arc<Card>,
    pub(crate) paused: bool,
}

/// The columns of a session.
#[derive(Debug, Clone)]
pub(crate) struct SessionRow {
    pub(crate) id: i64,
    pub(crate) public_id: Uuid,
    pub(crate) subject: Arc<str>,
    /// Its two members, the smaller id first; `None` in a group.
    pub(crate) pair: Option<(i64, i64)>,
    pub(crate) group: Option<i64>,
    /// The person who ended it.
    pub(crate) ended_by: Option<Arc<str>>,
}

/// The columns of [`SessionRow`], of `sessions s`.
macro_rules! session_columns {
    () => {
        "s.id, s.public_id, s.subject, s.low_id, s.high_id, s.group_id, s.ended_by"
    };
}
pub(crate) use session_columns;

impl FromRow for SessionRow {
    fn from_row(row: &mut Row<'_>) -> Result<Self> {
        let (id, public_id, subject): (i64, Uuid, String) = (row.take()?, row.take()?, row.take()?);
        let (low, high): (Option<i64>, Option<i64>) = (row.take()?, row.take()?);
        let (group, ended_by): (Option<i64>, Option<String>) = (row.take()?, row.take()?);
        let ended_by = ended_by.map(Into::into);
        Ok(Self { id, public_id, subject: subject.into(), pair: low.zip(high), group, ended_by })
    }
}

/// The recipient of a message.
#[derive(Debug, Clone)]
pub(crate) enum To {
    Agent(RecipientRow),
    /// A group that the sender has joined, and the members who get the message.
    Group(i64, Vec<Addressee>),
}

impl To {
    fn group(&self) -> Option<i64> {
        if let To::Group(group, _) = self { Some(*group) } else { None }
    }

    /// Whether this session is one between the sender and the recipient.
    fn shares(&self, session: &SessionRow, me: i64) -> bool {
        match self {
            To::Agent(peer) => session.pair == Some(pair(me, peer.id)),
            To::Group(group, _) => session.group == Some(*group),
        }
    }
}

/// A message that another one answers or relays.
#[derive(Debug, Clone)]
pub(crate) struct ParentRow {
    pub(crate) message: MessageRow,
    /// The agent that refers to it.
    pub(crate) caller: i64,
    sender: i64,
    group: Option<i64>,
    /// Whether it was delivered to the caller.
    delivered: bool,
}

from_row!(ParentRow: message caller sender group delivered);

impl ParentRow {
    /// Returns a statement for the messages `m` of `from`, as the agent `caller` may refer to them.
    pub(crate) fn select(from: &str, caller: &str) -> String {
        format!(
            "SELECT {}, CAST({caller} AS bigint), m.sender_id, s.group_id,
                    EXISTS (SELECT 1 FROM deliveries d WHERE d.message_id = m.id AND d.agent_id = {caller})
             FROM {from}
             JOIN sessions s ON s.id = m.session_id
             JOIN agents f ON f.id = m.sender_id
             LEFT JOIN agents t ON t.id = s.low_id + s.high_id - m.sender_id
             LEFT JOIN deliveries e ON e.message_id = m.id AND e.agent_id = t.id",
            message_columns("e")
        )
    }
}

/// A row of `tasks` to insert.
#[derive(Debug)]
pub(crate) struct NewTask {
    pub(crate) id: Uuid,
    pub(crate) owner: i64,
    pub(crate) assignee: i64,
    pub(crate) state: TaskState,
    pub(crate) subject: Arc<str>,
    pub(crate) message: Uuid,
    pub(crate) session: Uuid,
    pub(crate) parent: Option<i64>,
    pub(crate) deadline: Option<Timestamp>,
    pub(crate) note: Option<String>,
    pub(crate) callback: Option<String>,
    pub(crate) at: Timestamp,
}

impl NewTask {
    pub(crate) const INSERT: &str = "INSERT INTO tasks (public_id, owner_id, assignee_id, state, subject,
        message_public_id, session_public_id, parent_id, deadline, note, callback, created_at, updated_at)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $12)";
}

/// Selects the task of the message `$1`.
pub(crate) const TASK_OF_MESSAGE: &str = "SELECT id FROM tasks WHERE message_public_id = $1";

/// The look-ups and writes of a send.
pub(crate) trait SendTx {
    /// Runs an operation, which is rolled back where it fails.
    fn atomically<T>(&mut self, operation: impl FnOnce(&mut Self) -> Result<T>) -> Result<T>;

    /// Returns the time of the message that is written next.
    fn stamp(&mut self, at: Timestamp) -> Timestamp;

    /// Returns the answer of an earlier send under this key.
    fn answer_under(&mut self, caller: i64, once: &Once) -> Result<Option<Sent>>;

    /// Stores the answer under this key.
    fn keep_answer(&mut self, caller: i64, once: &Once, sent: Sent, at: Timestamp) -> Result<()>;

    /// Returns the agent of this name, or the group that the sender has joined.
    fn recipient(&mut self, caller: &Agent, name: &AgentName) -> Result<Option<To>>;

    /// Returns whether these two may write to each other.
    fn consent(&mut self, a: i64, b: i64) -> Result<Consent>;

    /// Returns the number of tasks that an agent works on.
    fn current_tasks(&mut self, agent: i64) -> Result<usize>;

    /// Returns the facts that decide whether a sender may store `more`.
    fn storage(&mut self, sender: i64, more: Stored) -> Result<Storage>;

    /// Returns the message of this id, as the caller may refer to it.
    fn parent(&mut self, caller: i64, id: Uuid) -> Result<Option<ParentRow>>;

    /// Returns the session of this id.
    fn session(&mut self, id: Uuid) -> Result<Option<SessionRow>>;

    /// Returns the session of this subject with the recipient, created where it is missing.
    fn session_of_subject(&mut self, caller: i64, to: &To, subject: &Subject, at: Timestamp) -> Result<SessionRow>;

    /// Adds the recipients in a group, and the sender, to its session.
    fn enter_session(&mut self, session: i64, members: &[Addressee], sender: i64) -> Result<()>;

    /// Returns the task of this message.
    fn task_of_message(&mut self, message: Uuid) -> Result<Option<i64>>;

    /// Appends a message to its session and to the log of each recipient, and charges its payer. Without recipients it
    /// is in the session only. Returns its number in each log.
    fn append(&mut self, session: i64, message: Columns<'_>, to: &[Addressee]) -> Result<Vec<(Addressee, u64)>>;

    /// Inserts a task.
    fn insert_task(&mut self, task: NewTask) -> Result<()>;
}

/// Sends a message.
pub(crate) fn send(tx: &mut impl SendTx, caller: &Agent, mut message: OutgoingMessage) -> Result<Outcome> {
    let me = caller.key.0;
    message.at = tx.stamp(message.at);
    if let Some(once) = &message.once
        && let Some(sent) = tx.answer_under(me, once)?
    {
        return Ok(Outcome::Repeat(sent));
    }
    let to = tx.recipient(caller, &message.to)?.ok_or_else(|| refusals::not_connected(&message.to))?;
    let placed = match &to {
        To::Agent(peer) => {
            // The name as it is registered, which traces and answers use.
            message.to = peer.name.clone();
            place(tx, caller, message, &to)?
        }
        To::Group(..) => tx.atomically(|tx| place(tx, caller, message, &to))?,
    };
    if let Some(once) = &placed.message.once {
        tx.keep_answer(me, once, placed.sent(), placed.message.at)?;
    }
    Ok(Outcome::Placed(placed))
}

/// Looks up the facts about a message, and decides whether it is accepted.
pub(crate) fn decide(
    tx: &mut impl SendTx,
    caller: &Agent,
    message: &OutgoingMessage,
    to: &To,
) -> Result<Accepted<SessionRow>> {
    let me = caller.key.0;
    let (recipient, copies) = match to {
        To::Agent(peer) => {
            let agent = Recipient::Agent {
                consent: tx.consent(me, peer.id)?,
                card: &peer.card,
                allowed: peer.card.allow_from.allows_in_any_case(&message.from),
                current_tasks: if message.kind == Kind::Task { tx.current_tasks(peer.id)? } else { 0 },
            };
            (agent, 1)
        }
        To::Group(_, members) => (Recipient::Group { copies: members.len(), size: message.size() }, members.len()),
    };
    let storage = tx.storage(me, message.stored(copies))?;
    let found = match message.parent {
        // A relayed message must have been delivered to the sender; an answered one may also be the sender's own.
        Some(parent) => {
            tx.parent(me, parent.id)?.filter(|found| found.delivered || (!parent.relay && found.sender == me))
        }
        None => None,
    };
    let in_group = found.as_ref().is_some_and(|found| found.group.is_some() && found.group == to.group());
    let answered = match found.as_ref().filter(|_| message.reply_to().is_some()) {
        Some(found) => tx.session(found.message.session)?.filter(|session| to.shares(session, me)),
        None => None,
    };
    let session = match message.session {
        None => NamedSession::None,
        Some(id) => match tx.session(id)? {
            None => NamedSession::Missing,
            Some(session) if to.shares(&session, me) => NamedSession::Shared(session),
            Some(_) => NamedSession::Other,
        },
    };
    let parent_id: Option<MessageId> = message.parent.map(|parent| parent.id.into());
    let found = found.map(|found| found.message.for_sender()).transpose()?;
    let parent = match (message.parent, &found, &parent_id) {
        (Some(ParentRef { relay: true, .. }), Some(message), _) => Parent::PassesOn(message),
        (Some(_), Some(message), _) => Parent::Answers { message, in_group },
        (Some(_), None, Some(id)) => Parent::Unknown(id),
        _ => Parent::None,
    };
    send::decide(Facts {
        from: &message.from,
        to: if let To::Agent(peer) = to { &peer.name } else { &message.to },
        kind: &message.kind,
        deadline: message.deadline,
        automatic: is_automatic(&message.metadata),
        recipient,
        parent,
        settled: message.hop.clone(),
        session,
        answered,
        has_subject: message.subject.is_some(),
        storage: Some(storage),
        now: message.at,
    })
}

/// Decides about a message, and writes it where it is accepted.
fn place(tx: &mut impl SendTx, caller: &Agent, message: OutgoingMessage, to: &To) -> Result<Box<PlacedMessage>> {
    let me = caller.key.0;
    let Accepted { hop, session, task } = decide(tx, caller, &message, to)?;
    let session = match (session, &message.subject) {
        (SessionChoice::Existing(session), _) => session,
        // May create a session: from here on only an insert may fail.
        (SessionChoice::OfSubject, Some(subject)) => tx.session_of_subject(me, to, subject, message.at)?,
        (SessionChoice::OfSubject, None) => return Err(no_session()),
    };
    // Fails only for an existing session, before anything is written.
    check_open(session.ended_by.as_deref())?;
    let rejected = matches!(task, Some((_, Some(_))));
    let one;
    let recipients: &[Addressee] = match to {
        To::Agent(_) if rejected => &[],
        To::Agent(peer) => {
            let from_person = caller.person && tx.consent(me, peer.id)?.marks_person(true);
            one = [Addressee { agent: AgentKey(peer.id), from_person }];
            &one
        }
        To::Group(_, members) => {
            tx.enter_session(session.id, members, me)?;
            members
        }
    };
    let task_ref = task.as_ref().and_then(|(state, _)| message.task_ref(*state));
    let columns = Columns::new(caller, &message, &hop, task_ref.as_ref().map(json).transpose()?)?;
    let copies = tx.append(session.id, columns, recipients)?;
    let (mut rejection, mut more) = (None, Vec::new());
    if let (Some((state, reason)), Some(task), To::Agent(peer)) = (task, &task_ref, to) {
        rejection = reason.as_ref().map(RejectReason::to_string);
        insert_task(tx, caller, peer, &session, &message, state, rejection.clone())?;
        if let Some(reason) = &rejection {
            more = send_rejection(tx, caller, peer, &session, &message, task.clone(), reason, hop)?;
        }
    }
    Ok(Box::new(PlacedMessage {
        message,
        session: session.public_id,
        subject: session.subject,
        copies,
        task: task_ref,
        rejection,
        paused: matches!(to, To::Agent(peer) if peer.paused && !rejected),
        more,
    }))
}

fn insert_task(
    tx: &mut impl SendTx,
    caller: &Agent,
    peer: &RecipientRow,
    session: &SessionRow,
    message: &OutgoingMessage,
    state: TaskState,
    note: Option<String>,
) -> Result<()> {
    let Some(id) = message.task_id else { return Ok(()) };
    let parent = match message.parent.filter(|parent| parent.relay) {
        Some(parent) => tx.task_of_message(parent.id)?,
        None => None,
    };
    tx.insert_task(NewTask {
        id,
        owner: caller.key.0,
        assignee: peer.id,
        state,
        subject: session.subject.clone(),
        message: message.id,
        session: session.public_id,
        parent,
        deadline: message.deadline,
        note,
        callback: json_of(message.callback.as_ref())?,
        at: message.at,
    })
}

/// Sends the sender of a task an update that the office rejected it, in the recipient's name. Charged to the sender:
/// else one agent could use up another's quota.
#[allow(clippy::too_many_arguments)]
fn send_rejection(
    tx: &mut impl SendTx,
    caller: &Agent,
    peer: &RecipientRow,
    session: &SessionRow,
    message: &OutgoingMessage,
    task: TaskRef,
    reason: &str,
    hop: Hop,
) -> Result<Vec<LogEntry>> {
    let update = TaskUpdate::new(task, message.id, Some(reason), tx.stamp(message.at));
    let columns = update.columns(&peer.name, peer.id, caller.key.0, hop, json_of(message.callback.as_ref())?)?;
    let copies = tx.append(session.id, columns, &[Addressee { agent: caller.key, from_person: false }])?;
    let event = Event::NewMessage(update.event(peer.name.clone(), session.public_id, &session.subject));
    let entry = |(to, number): (Addressee, u64)| LogEntry {
        agent: to.agent,
        entry: Entry { event: event.clone(), cursor: number.into() },
    };
    Ok(copies.into_iter().map(entry).collect())
}

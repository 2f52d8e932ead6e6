//! Sending. What is asked of the database here is asked for every message, so little is.

use amb_core::doc::Sent;
use amb_core::send::{Accepted, Named, Place, Recipient, decide};
use amb_core::stepping_in::check_open;
use amb_core::task::RejectReason;
use amb_core::{Entry, Event, Kind, MessageId, TaskState};
use futures_util::FutureExt;
use rusqlite::{OptionalExtension, params};
use uuid::Uuid;

use super::cache::{Peer, Session};
use super::engine::now as run;
use super::error::failed;
use super::messages::{self, Found};
use super::plans::Prepared;
use super::writer::WriteTx;
use crate::columns::{Addressee, Columns};
use crate::error::Result;
use crate::outgoing::{OutgoingMessage, Parent, Placed, json, json_of, no_session};
use crate::refusals;
use crate::tasks::Update;
use crate::types::{Agent, AgentKey, LogEntry};
use crate::verbs::{audience, joined, pair};

/// What became of a send.
pub(super) enum Outcome {
    /// It was written; the message comes back for the answer and the log entries.
    Placed(Box<(OutgoingMessage, Placed)>),
    /// Its idempotency key had been used for the same draft.
    Repeat(Sent),
}

/// Who a message is for.
pub(super) enum To {
    Agent(Peer),
    /// A group that the sender is in: its row, and the members who get the message.
    Group(i64, Vec<Addressee>),
}

impl To {
    fn group(&self) -> Option<i64> {
        if let To::Group(group, _) = self { Some(*group) } else { None }
    }

    /// Whether this session is one between the sender and whom the message is for.
    fn shares(&self, session: &Session, me: i64) -> bool {
        match self {
            To::Agent(peer) => session.pair == Some(pair(me, peer.id)),
            To::Group(group, _) => session.group == Some(*group),
        }
    }
}

impl WriteTx {
    pub(super) fn send(&mut self, caller: &Agent, mut message: OutgoingMessage) -> Result<Outcome> {
        message.at = self.newest.stamp(message.at);
        let me = caller.key.0;
        if let Some(once) = &message.once
            && let Some(sent) = self.answered_before(me, once)?
        {
            return Ok(Outcome::Repeat(sent));
        }
        let to = self.recipient(caller, &message)?;
        let placed = match &to {
            To::Agent(peer) => {
                // By the name that it has: traces and answers know no other.
                message.to = peer.name.clone();
                self.place(caller, &message, &to)?
            }
            To::Group(..) => self.guarded(|tx| tx.place(caller, &message, &to))?,
        };
        if let Some(once) = &message.once {
            self.remember_answer(me, once, &message.sent(&placed), message.at)?;
        }
        Ok(Outcome::Placed(Box::new((message, placed))))
    }

    /// The agent of this name, or the group that the sender is in.
    fn recipient(&mut self, caller: &Agent, message: &OutgoingMessage) -> Result<To> {
        if let Some(peer) = self.peer(&message.to)?.filter(|peer| !peer.deleted) {
            return Ok(To::Agent(peer));
        }
        let group = run(joined(self, &message.to, caller.key.0).boxed())?;
        let group = group.ok_or_else(|| refusals::not_connected(&message.to))?;
        Ok(To::Group(group, run(audience(self, group, caller).boxed())?))
    }

    /// Looks up what decides about a message, and writes it if it is accepted.
    fn place(&mut self, caller: &Agent, message: &OutgoingMessage, to: &To) -> Result<Placed> {
        let me = caller.key.0;
        let recipient = match to {
            To::Agent(peer) => Recipient::Agent {
                consent: self.consent(me, peer.id)?,
                card: &peer.card,
                heard: peer.card.allow_from.allows_in_any_case(&message.from),
                current_tasks: if message.kind == Kind::Task { self.current_tasks(peer.id)? } else { 0 },
            },
            To::Group(_, members) => Recipient::Group { copies: members.len(), size: message.size() },
        };
        let copies = if let To::Group(_, members) = to { members.len() } else { 1 };
        let storage = self.storage(me, message.stored(copies))?;
        let found = self.parent_of(me, message)?;
        let in_group = found.as_ref().is_some_and(|found| found.group.is_some() && found.group == to.group());
        let answered = match found.as_ref().filter(|_| message.reply_to().is_some()) {
            Some(found) => self.session(found.session)?.filter(|session| to.shares(session, me)),
            None => None,
        };
        let session = match message.session {
            None => Named::None,
            Some(id) => match self.session_by_public_id(id)? {
                None => Named::Missing,
                Some(session) if to.shares(&session, me) => Named::Shared(session),
                Some(_) => Named::Other,
            },
        };
        let parent_id: Option<MessageId> = message.parent.map(|parent| parent.id.into());
        let found = found.map(Found::message).transpose()?;
        let mut facts = message.facts(recipient, storage);
        facts.parent = message.parent_fact(parent_id.as_ref(), found.as_ref(), in_group);
        (facts.session, facts.answered) = (session, answered);
        let accepted = decide(facts)?;
        self.write(caller, message, to, accepted)
    }

    /// Writes a message that was accepted.
    fn write(
        &mut self,
        caller: &Agent,
        message: &OutgoingMessage,
        to: &To,
        accepted: Accepted<Session>,
    ) -> Result<Placed> {
        let me = caller.key.0;
        let Accepted { hop, place, task } = accepted;
        let session = match (place, &message.subject, to) {
            (Place::Session(session), ..) => session,
            // May make a session: nothing after it but the message itself may fail.
            (Place::Subject, Some(subject), To::Agent(peer)) => self.pair_session(me, peer.id, subject, message.at)?,
            (Place::Subject, Some(subject), To::Group(group, _)) => {
                self.group_session(*group, me, subject, message.at)?
            }
            (Place::Subject, None, _) => return Err(no_session()),
        };
        // One that was just made is open, so nothing was written yet.
        check_open(session.ended_by.as_deref())?;
        let rejected = matches!(task, Some((_, Some(_))));
        let recipients: &[Addressee] = match to {
            To::Agent(_) if rejected => &[],
            To::Agent(peer) => &[Addressee {
                agent: AgentKey(peer.id),
                from_person: caller.person && self.consent(me, peer.id)?.marks_person(true),
            }],
            To::Group(_, members) => {
                self.enter_session(session.id, members, me)?;
                members
            }
        };
        let task_ref = task.as_ref().and_then(|(state, _)| message.task_ref(*state));
        let columns = Columns::new(caller, message, &hop, task_ref.as_ref().map(json).transpose()?)?;
        let (row, copies) = self.append_message(session.id, columns, recipients)?;
        let mut placed = Placed {
            session: session.public_id,
            subject: session.subject.clone(),
            copies,
            task: task_ref.clone(),
            reason: None,
            paused: matches!(to, To::Agent(peer) if peer.paused && !rejected),
            more: Vec::new(),
        };
        if let (Some((state, reason)), Some(task), To::Agent(peer)) = (task, task_ref, to) {
            placed.reason = reason.as_ref().map(RejectReason::to_string);
            self.insert_task(caller, peer, &session, message, row, state, placed.reason.as_deref())?;
            if let Some(reason) = &placed.reason {
                let update = Update::new(task, message.id, Some(reason), self.newest.stamp(message.at));
                placed.more = self.tell_rejected(caller, peer, &session, message, update, hop)?;
            }
        }
        Ok(placed)
    }

    /// The message that this one answers or passes on, which its sender must have sent or received.
    fn parent_of(&self, me: i64, message: &OutgoingMessage) -> Result<Option<Found>> {
        let Some(Parent { id, relay }) = message.parent else { return Ok(None) };
        match messages::find(&self.db, id)? {
            Some(found) if (!relay && found.sender == me) || found.came_to(&self.db, me)? => Ok(Some(found)),
            _ => Ok(None),
        }
    }

    /// How many tasks the agent works on.
    fn current_tasks(&self, assignee: i64) -> Result<usize> {
        self.db
            .prepared("SELECT count(*) FROM tasks WHERE assignee_id = ?1 AND state IN ('accepted', 'working')")
            .and_then(|mut select| select.query_row([assignee], |row| row.get::<_, u32>(0)))
            .map(|count| count as usize)
            .map_err(failed)
    }

    #[allow(clippy::too_many_arguments)]
    fn insert_task(
        &self,
        caller: &Agent,
        peer: &Peer,
        session: &Session,
        message: &OutgoingMessage,
        row: i64,
        state: TaskState,
        note: Option<&str>,
    ) -> Result<()> {
        let parent: Option<i64> = match message.parent.filter(|parent| parent.relay) {
            Some(parent) => self
                .db
                .prepared("SELECT t.id FROM tasks t JOIN messages m ON m.id = t.message_id WHERE m.public_id = ?1")
                .and_then(|mut select| select.query_row([parent.id.as_bytes()], |row| row.get(0)).optional())
                .map_err(failed)?,
            None => None,
        };
        let callback = json_of(message.callback.as_ref())?;
        self.db
            .prepared(
                "INSERT INTO tasks (public_id, owner_id, assignee_id, state, subject, message_id, message_public_id,
                                    session_public_id, parent_id, deadline, note, callback, created_at, updated_at)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?13)",
            )
            .and_then(|mut insert| {
                insert.execute(params![
                    message.task_id.as_ref().map(Uuid::as_bytes),
                    caller.key.0,
                    peer.id,
                    state.as_str(),
                    &*session.subject,
                    row,
                    message.id.as_bytes(),
                    session.public_id.as_bytes(),
                    parent,
                    message.deadline.map(|at| at.as_microsecond()),
                    note,
                    callback,
                    message.at.as_microsecond(),
                ])
            })
            .map_err(failed)
            .map(drop)
    }

    /// Tells the sender of a task that the office rejected it, by an update in the other's name. Charged to who asked for it:
    /// else one agent could fill up another's account.
    fn tell_rejected(
        &mut self,
        caller: &Agent,
        peer: &Peer,
        session: &Session,
        message: &OutgoingMessage,
        update: Update,
        hop: amb_core::route::Hop,
    ) -> Result<Vec<LogEntry>> {
        let me = caller.key.0;
        let columns = update.columns(&peer.name, peer.id, me, hop, json_of(message.callback.as_ref())?)?;
        let to = Addressee { agent: caller.key, from_person: false };
        let (_, copies) = self.append_message(session.id, columns, &[to])?;
        let event = Event::NewMessage(update.event(peer.name.clone(), session.public_id, &session.subject));
        let told = |(to, number): (Addressee, u64)| LogEntry {
            agent: to.agent,
            entry: Entry { event: event.clone(), cursor: number.into() },
        };
        Ok(copies.into_iter().map(told).collect())
    }
}

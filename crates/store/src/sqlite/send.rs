//! Sending. What is asked of the database here is asked for every message, so little is.

use amb_core::Kind;
use amb_core::consent::may_write;
use amb_core::doc::Sent;
use amb_core::route::Hop;

use super::cache::{Peer, Thread};
use super::connect::pair;
use super::messages::{self, Found};
use super::post::Post;
use super::writer::WriteTx;
use crate::error::Result;
use crate::outgoing::{self, OutgoingMessage, Parent, Placed, json_of, no_session, trace_json};
use crate::row::{kind_text, rank};
use crate::types::{Agent, AgentKey};
use crate::words;

/// What became of a send.
pub(super) enum Outcome {
    /// It was written; the letter comes back for the answer and the news.
    Placed(Box<(OutgoingMessage, Placed)>),
    /// Its idempotency key had been used for the same draft.
    Repeat(Sent),
}

/// Who a letter is for.
enum Recipient {
    Agent(Peer),
    /// The row of a group that the sender is in.
    Group(i64),
}

impl WriteTx {
    pub(super) fn send(&mut self, caller: &Agent, mut letter: OutgoingMessage) -> Result<Outcome> {
        letter.at = self.newest.stamp(letter.at);
        let me = caller.key.0;
        if let Some(once) = &letter.once
            && let Some(sent) = self.answered_before(me, once)?
        {
            return Ok(Outcome::Repeat(sent));
        }
        let placed = match self.reachable(me, &letter)? {
            Recipient::Agent(peer) => {
                // By the name that it has: traces and answers know no other.
                letter.to = peer.name.clone();
                self.check_quota(me, letter.stored(1))?;
                let parent = self.parent_of(caller, &letter)?;
                let answered = parent.as_ref().filter(|_| letter.reply_to().is_some()).map(|found| found.session);
                let parent = parent.map(Found::message).transpose()?;
                let hop = letter.hop(parent.as_ref(), false)?;
                // May make a session: nothing after it but the message itself may fail.
                let thread = self.thread_of(me, peer.id, &letter, answered)?;
                self.place(caller, &peer, &thread, &letter, &hop)?
            }
            Recipient::Group(group) => self.guarded(|tx| tx.place_in_group(caller, group, &letter))?,
        };
        if let Some(once) = &letter.once {
            self.remember_answer(me, once, &letter.sent(&placed), letter.at)?;
        }
        Ok(Outcome::Placed(Box::new((letter, placed))))
    }

    /// The recipient, if it is there, connected, and hears the sender; or the group of that name.
    fn reachable(&mut self, me: i64, letter: &OutgoingMessage) -> Result<Recipient> {
        let Some(peer) = self.peer(&letter.to)?.filter(|peer| !peer.deleted) else {
            let group = self.group_of(&letter.to, me)?;
            return group.map(Recipient::Group).ok_or_else(|| words::not_connected(&letter.to));
        };
        let consent = self.consent(me, peer.id)?;
        // Whom a task's assignee does not hear is told by the task's rejection.
        let heard = letter.kind == Kind::Task || peer.card.allow_from.allows_in_any_case(&letter.from);
        may_write(consent, &letter.from, &letter.to, heard)?;
        Ok(Recipient::Agent(peer))
    }

    /// The message that the letter answers or passes on, which its sender must have sent or received.
    pub(super) fn parent_of(&self, caller: &Agent, letter: &OutgoingMessage) -> Result<Option<Found>> {
        let Some(Parent { id, relay }) = letter.parent else { return Ok(None) };
        let me = caller.key.0;
        if let Some(found) = messages::find(&self.db, id)?
            && (found.came_to(&self.db, me)? || (!relay && found.sender == me))
        {
            return Ok(Some(found));
        }
        // The office that settled the hop had the message; here it may be gone.
        if letter.hop.is_some() { Ok(None) } else { Err(outgoing::no_message(&id.into())) }
    }

    /// The session that the letter goes to, made where it is missing; `answered` is that of the message it replies to.
    fn thread_of(&mut self, me: i64, peer: i64, letter: &OutgoingMessage, answered: Option<i64>) -> Result<Thread> {
        let answered = match answered {
            Some(session) => self.thread(session)?.filter(|thread| thread.pair == Some(pair(me, peer))),
            None => None,
        };
        match letter.thread(answered.map(|thread| thread.public_id))? {
            outgoing::Thread::Existing(public_id) => {
                let thread = self.thread_by_public_id(public_id)?.ok_or_else(no_session)?;
                if thread.pair != Some(pair(me, peer)) {
                    return Err(words::not_both_members(&letter.to));
                }
                Ok(thread)
            }
            outgoing::Thread::Subject(outgoing::Subject { subject, key }) => {
                let (low, high) = pair(me, peer);
                let cached = self.caches.by_subject.get(&(low, high, key.as_str().into())).copied();
                let known = match cached {
                    Some(id) => Some(id),
                    None => self.session_of_subject(low, high, key)?,
                };
                match known {
                    Some(id) => self.thread(id)?.ok_or_else(no_session),
                    None => self.new_session(me, peer, subject, key, letter.at),
                }
            }
        }
    }

    /// Accepts the message.
    fn place(
        &mut self,
        caller: &Agent,
        peer: &Peer,
        thread: &Thread,
        letter: &OutgoingMessage,
        hop: &Hop,
    ) -> Result<Placed> {
        if letter.kind == Kind::Task {
            return self.place_task(caller, peer, thread, letter, hop);
        }
        let (_, copies) = self.post(thread.id, letter_post(caller, letter, hop, None)?, &[peer.id])?;
        Ok(placed(thread, copies))
    }
}

/// Columns to insert for a letter.
pub(super) fn letter_post<'a>(
    caller: &Agent,
    letter: &'a OutgoingMessage,
    hop: &Hop,
    task: Option<String>,
) -> Result<Post<'a>> {
    Ok(Post {
        id: letter.id,
        sender: caller.key.0,
        payer: caller.key.0,
        at: letter.at,
        priority: rank(letter.priority),
        ttl: hop.ttl,
        kind: kind_text(&letter.kind),
        trace: trace_json(hop)?,
        reply_to: letter.reply_to(),
        correlation_id: letter.correlation_id.as_ref().map(|id| id.as_str()),
        task,
        callback: json_of(letter.callback.as_ref())?,
        content: letter.content_to_keep(),
        parts: json_of(letter.parts.as_ref())?,
        metadata: letter.metadata_json()?,
    })
}

/// A letter that lies in this session, in these logs.
pub(super) fn placed(thread: &Thread, copies: Vec<(AgentKey, u64)>) -> Placed {
    Placed {
        session: thread.public_id,
        subject: thread.subject.clone(),
        copies,
        task: None,
        reason: None,
        more: Vec::new(),
    }
}

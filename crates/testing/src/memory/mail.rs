//! Sending and the threads that mail lies in.

use jiff::Timestamp;

use super::{State, Stored, Thread};
use amb_core::consent::{Consent, may_write};
use amb_core::doc::Sent;
use amb_core::draft::{Accepted, Draft};
use amb_core::error::{Code, OfficeError};
use amb_core::event::{Event, NewMessage};
use amb_core::id::{MessageId, SessionId};
use amb_core::mailbox::Result;
use amb_core::message::{Kind, Message};
use amb_core::name::AgentName;
use amb_core::route;

impl State {
    /// A message that `me` sent or received.
    pub(super) fn find(&self, me: &AgentName, id: &MessageId) -> Result<&Stored> {
        self.mail
            .iter()
            .find(|stored| stored.message.id == *id && self.shows(stored, me))
            .ok_or_else(|| OfficeError::not_found(format!("no message {id} of yours")))
    }

    /// Whether a message is shown to this agent: what was delivered to nobody is its sender's alone, and the rejection that
    /// the office wrote in the other's name is for that sender.
    pub(super) fn shows(&self, stored: &Stored, me: &AgentName) -> bool {
        let message = &stored.message;
        if message.from != *me {
            return message.to == *me && stored.delivered;
        }
        let answered = message.reply_to.as_ref().filter(|_| message.kind == Kind::TaskUpdate);
        answered.is_none_or(|id| self.mail.iter().all(|other| other.message.id != *id || other.delivered))
    }

    /// The thread a draft belongs to, made if need be.
    fn thread_for(&mut self, me: &AgentName, draft: &Draft) -> Result<SessionId> {
        if let Some(session) = &draft.session {
            let thread = self.sessions.get(session).ok_or_else(|| {
                OfficeError::not_found(format!("no session {session}; leave it out and give a subject"))
            })?;
            if !thread.members.contains(me) || !thread.members.contains(&draft.to) {
                return Err(OfficeError::new(Code::Forbidden, "that session is not between you and the recipient"));
            }
            return Ok(session.clone());
        }
        if let Some(answered) = &draft.reply_to {
            let session = self.find(me, answered)?.message.session.clone();
            let among = |thread: &Thread| thread.members.contains(me) && thread.members.contains(&draft.to);
            if let Some(session) = session.filter(|session| self.sessions.get(session).is_some_and(among)) {
                return Ok(session);
            }
        }
        let subject = draft
            .subject
            .clone()
            .filter(|subject| !subject.trim().is_empty())
            .ok_or_else(|| OfficeError::invalid("subject is required where there is no session_id"))?;
        let session = SessionId::between(me, &draft.to, &subject);
        let members = [me.clone(), draft.to.clone()];
        self.sessions.entry(session.clone()).or_insert(Thread { subject, members });
        Ok(session)
    }

    fn hop(&self, me: &AgentName, draft: &Draft) -> Result<route::Hop> {
        match (&draft.reply_to, &draft.relay_of) {
            (Some(parent), _) => {
                Ok(route::reply(&self.find(me, parent)?.message, me, &draft.to, draft.is_automatic())?)
            }
            (None, Some(parent)) => Ok(route::relay(&self.find(me, parent)?.message, me, &draft.to)?),
            (None, None) => Ok(route::fresh(me)),
        }
    }

    /// Takes a draft that has been checked. Answers what the sender is told.
    pub(super) fn accept(&mut self, me: &AgentName, draft: Draft, consent: Consent, now: Timestamp) -> Result<Sent> {
        let card = self.agent(&draft.to)?.card.clone();
        let heard = draft.kind == Kind::Task || card.allow_from.allows(me);
        may_write(consent, me, &draft.to, heard)?;
        let hop = self.hop(me, &draft)?;
        let session = self.thread_for(me, &draft)?;
        let (deadline, relay_of) = (draft.due(now), draft.relay_of.clone());
        let (id, from, at) = (MessageId::fresh(now), me.clone(), now);
        let subject = Some(self.sessions[&session].subject.clone());
        let mut message = draft.into_message(Accepted { id, from, at, session, subject, hop });
        if message.kind != Kind::Task {
            let sent = sent(&message, None);
            self.deliver(message);
            return Ok(sent);
        }
        let parent = relay_of.and_then(|relayed| self.find(me, &relayed).ok()?.message.task.clone());
        let reason = self.open_task(&mut message, deadline, parent.map(|task| task.id), &card, now);
        Ok(sent(&message, reason))
    }

    /// Puts a message in its recipient's mailbox and log.
    pub(super) fn deliver(&mut self, message: Message) {
        if let (Some(session), Some(subject)) = (message.session.clone(), message.subject.clone()) {
            let event = Event::NewMessage(NewMessage::of(&message, session, subject));
            self.log(&message.to.clone(), event);
        }
        self.keep(message, true);
    }

    /// Keeps a message.
    pub(super) fn keep(&mut self, message: Message, delivered: bool) {
        self.mail.push(Stored { message, delivered, delivered_at: None, read_at: None, claimed_until: None });
    }
}

fn sent(message: &Message, reason: Option<String>) -> Sent {
    Sent {
        message_id: message.id.clone(),
        // A message that was accepted always has both.
        session_id: message.session.clone().unwrap_or_else(|| SessionId::between(&message.from, &message.to, "")),
        subject: message.subject.clone().unwrap_or_default(),
        created_at: message.sent_at,
        task: message.task.clone(),
        reason,
    }
}

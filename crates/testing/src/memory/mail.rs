//! Sending.

use jiff::Timestamp;

use super::{MemoryMessage, MemorySession, MemoryState};
use amb_core::consent::Consent;
use amb_core::doc::Sent;
use amb_core::draft::{AcceptedFields, Draft};
use amb_core::event::{Event, NewMessage};
use amb_core::id::{MessageId, SessionId};
use amb_core::mailbox::Result;
use amb_core::message::{Kind, Message};
use amb_core::name::AgentName;
use amb_core::send::{Facts, NamedSession, Parent, Recipient, SessionChoice, decide, no_message};

impl MemoryState {
    /// A message that `me` sent or received.
    pub(super) fn find(&self, me: &AgentName, id: &MessageId) -> Result<&MemoryMessage> {
        self.mail.iter().find(|stored| stored.message.id == *id && self.shows(stored, me)).ok_or_else(|| no_message(id))
    }

    /// Whether a message is shown to this agent: an undelivered one only to its sender, and so the rejection that the
    /// office wrote in the other's name.
    pub(super) fn shows(&self, stored: &MemoryMessage, me: &AgentName) -> bool {
        let message = &stored.message;
        if message.from != *me {
            return message.to == *me && stored.delivered;
        }
        let answered = message.reply_to.as_ref().filter(|_| message.kind == Kind::TaskUpdate);
        answered.is_none_or(|id| self.mail.iter().all(|other| other.message.id != *id || other.delivered))
    }

    /// Accepts a draft that has been checked. Returns what the sender is told.
    pub(super) fn accept(&mut self, me: &AgentName, draft: Draft, consent: Consent, now: Timestamp) -> Result<Sent> {
        let card = self.agent(&draft.to)?.card.clone();
        let named = draft.reply_to.as_ref().or(draft.relay_of.as_ref());
        let found = named.and_then(|id| self.find(me, id).ok()).map(|stored| stored.message.clone());
        let parent = match (named, &found) {
            (None, _) => Parent::None,
            (Some(id), None) => Parent::Unknown(id),
            (Some(_), Some(message)) if draft.reply_to.is_some() => Parent::Answers { message, in_group: false },
            (Some(_), Some(message)) => Parent::PassesOn(message),
        };
        let among = |session: &SessionId| {
            let session = self.sessions.get(session)?;
            Some(session.members.contains(me) && session.members.contains(&draft.to))
        };
        let subject = draft.subject.clone().filter(|subject| !subject.trim().is_empty());
        let answered = found.as_ref().filter(|_| draft.reply_to.is_some()).and_then(|found| found.session.clone());
        let accepted = decide(Facts {
            from: me,
            to: &draft.to,
            kind: &draft.kind,
            deadline: draft.due(now),
            automatic: draft.is_automatic(),
            recipient: Recipient::Agent {
                consent,
                card: &card,
                allowed: card.allow_from.allows(me),
                current_tasks: self.current_tasks(&draft.to).len(),
            },
            parent,
            settled: None,
            session: match &draft.session {
                None => NamedSession::None,
                Some(session) => match among(session) {
                    None => NamedSession::Missing,
                    Some(true) => NamedSession::Shared(session.clone()),
                    Some(false) => NamedSession::Other,
                },
            },
            answered: answered.filter(|session| among(session) == Some(true)),
            has_subject: subject.is_some(),
            storage: None,
            now,
        })?;
        let session = match (accepted.session, subject) {
            (SessionChoice::Existing(session), _) => session,
            (SessionChoice::OfSubject, subject) => {
                let subject = subject.unwrap_or_default();
                let session = SessionId::between(me, &draft.to, &subject);
                let members = [me.clone(), draft.to.clone()];
                self.sessions.entry(session.clone()).or_insert(MemorySession { subject, members });
                session
            }
        };
        let (hop, task) = (accepted.hop, accepted.task);
        let (deadline, relay_of) = (draft.due(now), draft.relay_of.clone());
        let (id, from, at) = (MessageId::fresh(now), me.clone(), now);
        let subject = Some(self.sessions[&session].subject.clone());
        let mut message = draft.into_message(AcceptedFields { id, from, at, session, subject, hop });
        let Some((_, reason)) = task else {
            let sent = sent(&message, None);
            self.deliver(message);
            return Ok(sent);
        };
        let parent = relay_of.and_then(|relayed| self.find(me, &relayed).ok()?.message.task.clone());
        let reason = reason.map(|reason| reason.to_string());
        self.open_task(&mut message, deadline, parent.map(|task| task.id), reason.clone(), now);
        Ok(sent(&message, reason))
    }

    /// Adds a message to its recipient's mailbox and log.
    pub(super) fn deliver(&mut self, message: Message) {
        if let (Some(session), Some(subject)) = (message.session.clone(), message.subject.clone()) {
            let event = Event::NewMessage(NewMessage::of(&message, session, subject));
            self.log(&message.to.clone(), event);
        }
        self.keep(message, true);
    }

    /// Stores a message.
    pub(super) fn keep(&mut self, message: Message, delivered: bool) {
        self.mail.push(MemoryMessage { message, delivered, delivered_at: None, read_at: None, claimed_until: None });
    }
}

fn sent(message: &Message, reason: Option<String>) -> Sent {
    Sent {
        message_id: message.id.clone(),
        // An accepted message always has both.
        session_id: message.session.clone().unwrap_or_else(|| SessionId::between(&message.from, &message.to, "")),
        subject: message.subject.clone().unwrap_or_default(),
        created_at: message.sent_at,
        task: message.task.clone(),
        reason,
        paused: false,
    }
}

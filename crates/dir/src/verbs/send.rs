//! Sending.

use amb_core::consent::may_write;
use amb_core::doc::Sent;
use amb_core::draft::Accepted;
use amb_core::limits::MAX_TRACE;
use amb_core::message::NO_SUBJECT;
use amb_core::route::{self, Hop};
use amb_core::{AgentName, Code, Consent, Draft, Kind, Message, OfficeError, SessionId, TaskId, Timestamp};

use crate::files::durable::nonce;
use crate::files::failure::Doing;
use crate::files::layout::Layout;
use crate::files::message_file;
use crate::log::LogLine;
use crate::office::{AgentDir, OfficeState};
use crate::registry::presence::Recipient;
use crate::verbs::deliver::Naming;

/// A message that is ready to be sent.
pub(crate) struct Composed {
    pub(crate) message: Message,
    recipient: Recipient,
    deadline: Option<Timestamp>,
    /// The task of which it is a piece.
    parent: Option<TaskId>,
}

impl AgentDir {
    /// Sends. When this answers, the message is durable.
    pub(crate) fn send(&self, draft: Draft) -> Result<Sent, OfficeError> {
        draft.check()?;
        self.check_lives_here()?;
        match draft.idempotency_key.clone() {
            Some(key) => self.send_once(&key, draft),
            None => {
                let nonce = nonce() as u32;
                self.send_at(draft, self.shared.stamp(), Naming::Free { nonce })
            }
        }
    }

    /// Sends a draft that has come through these hands already, with the hops that it says are left.
    ///
    /// A program that counts hops by itself names no message that it passes on. What it says can only make the rules
    /// stricter: hops are never more than the office would give, and nobody gets a message again that had it.
    pub(crate) fn send_within(&self, draft: Draft, within: &Hop) -> Result<Sent, OfficeError> {
        draft.check()?;
        self.check_lives_here()?;
        let earlier = within.trace.iter().filter(|name| **name != self.me);
        if draft.reply_to.is_none() && earlier.clone().any(|name| *name == draft.to) {
            let trace = within.trace.iter().map(AgentName::to_string).collect();
            return Err(route::Refused::Circular { target: draft.to, trace }.into());
        }
        let naming = Naming::Free { nonce: nonce() as u32 };
        let mut composed = self.compose(draft, self.shared.stamp(), naming)?;
        let message = &mut composed.message;
        message.ttl = message.ttl.min(within.ttl);
        if message.trace == [self.me.clone()] {
            let most = MAX_TRACE - 1;
            let skip = earlier.clone().count().saturating_sub(most);
            message.trace = earlier.skip(skip).chain([&self.me]).cloned().collect();
        }
        self.send_composed(composed, naming)
    }

    /// Sends a checked draft as of this moment.
    pub(crate) fn send_at(&self, draft: Draft, at: Timestamp, naming: Naming) -> Result<Sent, OfficeError> {
        self.send_composed(self.compose(draft, at, naming)?, naming)
    }

    fn send_composed(&self, composed: Composed, naming: Naming) -> Result<Sent, OfficeError> {
        let Composed { mut message, recipient, deadline, parent } = composed;
        if message.kind == Kind::Task {
            return self.send_task(message, &recipient, deadline, parent, naming);
        }
        self.shared.deliver(&mut message, naming)?;
        Ok(sent(&message, None))
    }

    /// The message that a draft becomes, if it may be sent.
    pub(crate) fn compose(&self, draft: Draft, at: Timestamp, naming: Naming) -> Result<Composed, OfficeError> {
        let recipient = self.shared.recipient(&draft.to)?;
        let heard = draft.kind == Kind::Task || recipient.card.allow_from.allows(&self.me);
        may_write(Consent::DIRECTORY, &self.me, &draft.to, heard)?;
        let named = draft.reply_to.as_ref().or(draft.relay_of.as_ref());
        let named = named.map(|id| self.find(id)).transpose()?.map(|found| found.message);
        let (hop, parent) = self.hop(&draft, named.as_ref())?;
        let (session, subject) = self.thread(&draft, named.as_ref())?;
        let id = message_file::new_id(self.shared.paths.layout, at, &self.me, naming.nonce());
        let deadline = draft.due(at);
        let mut message = draft.into_message(Accepted { id, from: self.me.clone(), at, session, subject, hop });
        message.kind = self.shared.word_for(message.kind);
        Ok(Composed { message, recipient, deadline, parent })
    }

    /// Hops and trace of a draft that names this message, and the task of a message that it passes on.
    fn hop(&self, draft: &Draft, named: Option<&Message>) -> Result<(Hop, Option<TaskId>), OfficeError> {
        let Some(parent) = named else { return Ok((route::fresh(&self.me), None)) };
        if draft.reply_to.is_some() {
            return Ok((route::reply(parent, &self.me, &draft.to, draft.is_automatic())?, None));
        }
        if parent.to != self.me {
            return Err(OfficeError::invalid(format!(
                "only a message that came to you can be passed on, and {} did not",
                parent.id
            )));
        }
        Ok((route::relay(parent, &self.me, &draft.to)?, parent.task.as_ref().map(|task| task.id.clone())))
    }

    /// The thread that a draft belongs to, with the subject to be written down. A reply that names none belongs to the
    /// thread of what it answers.
    fn thread(&self, draft: &Draft, named: Option<&Message>) -> Result<(SessionId, Option<String>), OfficeError> {
        let subject = draft.subject.clone().filter(|subject| !subject.trim().is_empty());
        let between = |subject: Option<&str>| SessionId::between(&self.me, &draft.to, subject.unwrap_or(NO_SUBJECT));
        if draft.session.is_none()
            && draft.reply_to.is_some()
            && let Some(Message { from, to, session: Some(session), subject, .. }) = named
            && (*from == draft.to || *to == draft.to)
        {
            return Ok((session.clone(), subject.clone()));
        }
        let Some(session) = &draft.session else {
            return Ok((between(subject.as_deref()), subject));
        };
        if *session == between(subject.as_deref()) {
            return Ok((session.clone(), subject));
        }
        let text = serde_json::to_string(session).map_err(OfficeError::internal)?;
        drop(self.ingest()?);
        let in_session = |line: &LogLine| match line {
            LogLine::In { brief, withheld, .. } => brief.session == *session && withheld.is_none(),
            LogLine::Out { brief, .. } => brief.session == *session,
            _ => false,
        };
        match self.shared.log(&self.me).find_last(&text, in_session).doing("could not read the log")? {
            Some(LogLine::In { brief, .. } | LogLine::Out { brief, .. }) if brief.peer == draft.to => {
                let known = Some(brief.subject).filter(|subject| subject != NO_SUBJECT);
                Ok((session.clone(), known))
            }
            Some(_) => Err(OfficeError::new(Code::Forbidden, "that session is not between you and the recipient")),
            None => {
                Err(OfficeError::not_found(format!("no session {session} of yours; leave it out and give a subject")))
            }
        }
    }
}

impl OfficeState {
    /// The layout's word for what a message is for. The chipset's list has one for mail that is nothing in particular, and
    /// its programs expect a word of that list.
    fn word_for(&self, kind: Kind) -> Kind {
        match (self.paths.layout, &kind) {
            (Layout::Chipset, Kind::Message) => "coordination".parse().unwrap_or(kind),
            _ => kind,
        }
    }
}

/// What the sender is told.
pub(crate) fn sent(message: &Message, reason: Option<String>) -> Sent {
    let subject = message.subject.clone().unwrap_or_else(|| NO_SUBJECT.into());
    let session = message.session.clone();
    Sent {
        message_id: message.id.clone(),
        session_id: session.unwrap_or_else(|| SessionId::between(&message.from, &message.to, &subject)),
        subject,
        created_at: message.sent_at,
        task: message.task.clone(),
        reason,
    }
}

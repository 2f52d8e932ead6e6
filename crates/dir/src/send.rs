//! Sending.

use amb_core::doc::Sent;
use amb_core::draft::Accepted;
use amb_core::message::NO_SUBJECT;
use amb_core::route::{self, Hop};
use amb_core::{Code, Draft, Kind, Message, OfficeError, SessionId, TaskId, Timestamp};

use crate::durable::nonce;
use crate::failure::Doing;
use crate::layout::Layout;
use crate::letter;
use crate::log::Line;
use crate::office::{Desk, Shared};
use crate::post::Naming;

impl Desk {
    /// Sends. When this answers, the message is durable.
    pub(crate) fn send(&self, draft: Draft) -> Result<Sent, OfficeError> {
        draft.check()?;
        self.check_lives_here()?;
        match draft.idempotency_key.clone() {
            Some(key) => self.send_once(&key, draft),
            None => {
                let nonce = nonce() as u32;
                self.send_at(draft, self.shared.now(), Naming::Free { nonce })
            }
        }
    }

    /// Sends a checked draft as of this moment.
    pub(crate) fn send_at(&self, draft: Draft, at: Timestamp, naming: Naming) -> Result<Sent, OfficeError> {
        let recipient = self.shared.recipient(&draft.to)?;
        if draft.kind != Kind::Task && !recipient.card.allow_from.allows(&self.me) {
            let detail = format!("{} does not take mail from {}; it is not in its allow_from", draft.to, self.me);
            return Err(OfficeError::new(Code::NotAllowed, detail));
        }
        let (hop, parent) = self.hop(&draft)?;
        let (session, subject) = self.thread(&draft)?;
        let (Naming::Free { nonce } | Naming::Exact { nonce }) = naming;
        let id = letter::new_id(self.shared.paths.layout, at, &self.me, nonce);
        let deadline = draft.deadline;
        let mut message = draft.into_message(Accepted { id, from: self.me.clone(), at, session, subject, hop });
        message.kind = self.shared.word_for(message.kind);
        if message.kind == Kind::Task {
            return self.send_task(message, &recipient, deadline, parent, naming);
        }
        self.shared.deliver(&mut message, naming)?;
        Ok(sent(&message, None))
    }

    /// Hops and trace of a draft, and the task of the message that it passes on.
    fn hop(&self, draft: &Draft) -> Result<(Hop, Option<TaskId>), OfficeError> {
        let (id, relays) = match (&draft.reply_to, &draft.relay_of) {
            (Some(id), _) => (id, false),
            (None, Some(id)) => (id, true),
            (None, None) => return Ok((route::fresh(&self.me), None)),
        };
        let parent = self.find(id)?.message;
        if !relays {
            return Ok((route::after(&parent, &self.me, &draft.to)?, None));
        }
        if parent.to != self.me {
            return Err(OfficeError::invalid(format!(
                "only a message that came to you can be passed on, and {id} did not"
            )));
        }
        Ok((route::relay(&parent, &self.me, &draft.to)?, parent.task.map(|task| task.id)))
    }

    /// The thread that a draft belongs to, with the subject to be written down.
    fn thread(&self, draft: &Draft) -> Result<(SessionId, Option<String>), OfficeError> {
        let subject = draft.subject.clone().filter(|subject| !subject.trim().is_empty());
        let between = |subject: Option<&str>| SessionId::between(&self.me, &draft.to, subject.unwrap_or(NO_SUBJECT));
        let Some(session) = &draft.session else {
            return Ok((between(subject.as_deref()), subject));
        };
        if *session == between(subject.as_deref()) {
            return Ok((session.clone(), subject));
        }
        let text = serde_json::to_string(session).map_err(OfficeError::internal)?;
        drop(self.notice()?);
        let in_session = |line: &Line| match line {
            Line::In { brief, withheld, .. } => brief.session == *session && withheld.is_none(),
            Line::Out { brief, .. } => brief.session == *session,
            _ => false,
        };
        match self.shared.log(&self.me).find_last(&text, in_session).doing("could not read the log")? {
            Some(Line::In { brief, .. } | Line::Out { brief, .. }) if brief.peer == draft.to => {
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

impl Shared {
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

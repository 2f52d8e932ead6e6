//! Sends a message.

use amb_core::doc::Sent;
use amb_core::draft;
use amb_core::limits::MAX_TRACE;
use amb_core::message::NO_SUBJECT;
use amb_core::route::{self, Hop};
use amb_core::send::{self, Accepted, Facts, NamedSession, SessionChoice, decide};
use amb_core::{AgentName, Code, Consent, Draft, Kind, Message, OfficeError, SessionId, TaskId, Timestamp};

use crate::files::durable::nonce;
use crate::files::layout::Layout;
use crate::files::message_file;
use crate::log::LogLine;
use crate::office::{AgentDir, OfficeState};
use crate::registry::presence::RecipientCard;
use crate::verbs::deliver::Naming;

/// A message that is ready to be delivered.
pub(crate) struct Composed {
    pub(crate) message: Message,
    recipient: RecipientCard,
    deadline: Option<Timestamp>,
    /// The task that it is a part of.
    parent: Option<TaskId>,
}

impl AgentDir {
    /// Sends a message, which is durable when this returns.
    pub(crate) fn send(&self, draft: Draft) -> Result<Sent, OfficeError> {
        draft.check()?;
        self.check_local()?;
        match draft.idempotency_key.clone() {
            Some(key) => self.send_once(&key, draft),
            None => self.send_at(draft, self.shared.next_stamp(), Naming::Free(nonce() as u32)),
        }
    }

    /// Sends a draft whose sender counts hops itself, with the hops that are left.
    ///
    /// Such a program does not name the message that it relays. Its hop can only make the rules stricter: ttl is never
    /// more than the office would give, and no agent in the trace gets the message again.
    pub(crate) fn send_within(&self, draft: Draft, within: &Hop) -> Result<Sent, OfficeError> {
        draft.check()?;
        self.check_local()?;
        let earlier = within.trace.iter().filter(|name| **name != self.me);
        if draft.reply_to.is_none() && earlier.clone().any(|name| *name == draft.to) {
            return Err(route::Refused::Circular { target: draft.to, trace: within.trace.clone() }.into());
        }
        let naming = Naming::Free(nonce() as u32);
        let mut composed = self.compose(draft, self.shared.next_stamp(), naming)?;
        let message = &mut composed.message;
        message.ttl = message.ttl.min(within.ttl);
        if message.trace == [self.me.clone()] {
            let skip = earlier.clone().count().saturating_sub(MAX_TRACE - 1);
            message.trace = earlier.skip(skip).chain([&self.me]).cloned().collect();
        }
        self.send_composed(composed, naming)
    }

    /// Sends a checked draft with this timestamp.
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

    /// Turns a draft into a message, if it may be sent.
    pub(crate) fn compose(&self, mut draft: Draft, at: Timestamp, naming: Naming) -> Result<Composed, OfficeError> {
        let recipient = match self.shared.recipient(&draft.to) {
            Err(error) if error.code() == Code::NotFound && self.answers_its_sender(&draft) => {
                self.shared.new_recipient(&draft.to)?
            }
            known => known?,
        };
        let named = draft.reply_to.as_ref().or(draft.relay_of.as_ref());
        let named = named.map(|id| self.find(id)).transpose()?;
        if draft.reply_to.is_some() {
            draft.reply_to = named.as_ref().map(|found| found.own_id.clone());
        }
        let named = named.map(|found| found.message);
        let passed_on = named.as_ref().filter(|_| draft.reply_to.is_none());
        if let Some(message) = passed_on.filter(|message| message.to != self.me) {
            return Err(OfficeError::invalid(format!(
                "only a message that came to you can be passed on, and {} did not",
                message.id
            )));
        }
        let subject = draft.subject.clone().filter(|subject| !subject.trim().is_empty());
        let Accepted { hop, session, .. } = decide(Facts {
            from: &self.me,
            to: &draft.to,
            kind: &draft.kind,
            deadline: draft.due(at),
            automatic: draft.is_automatic(),
            recipient: send::Recipient::Agent {
                consent: Consent::DIRECTORY,
                card: &recipient.card,
                allowed: recipient.card.allow_from.allows(&self.me),
                // Whether the task is taken on is decided later, under the assignee's lock.
                current_tasks: 0,
            },
            parent: match &named {
                None => send::Parent::None,
                Some(message) if draft.reply_to.is_some() => send::Parent::Answers { message, in_group: false },
                Some(message) => send::Parent::PassesOn(message),
            },
            settled: None,
            session: self.named_session(&draft, subject.as_deref())?,
            answered: answered_session(&draft, named.as_ref()),
            has_subject: true,
            storage: None,
            now: at,
        })?;
        let (session, subject) = match session {
            SessionChoice::Existing(session) => session,
            SessionChoice::OfSubject => (self.session_of(&draft.to, subject.as_deref()), subject),
        };
        let parent = passed_on.and_then(|message| message.task.as_ref()).map(|task| task.id.clone());
        let id = message_file::new_id(self.shared.paths.layout, at, &self.me, naming.nonce());
        let deadline = draft.due(at);
        let mut message =
            draft.into_message(draft::AcceptedFields { id, from: self.me.clone(), at, session, subject, hop });
        message.kind = self.shared.kind_in_layout(message.kind);
        Ok(Composed { message, recipient, deadline, parent })
    }

    /// Whether a draft answers a message that its recipient sent to this agent. Such a recipient need not have registered:
    /// programs that write files have no card.
    fn answers_its_sender(&self, draft: &Draft) -> bool {
        let answered = draft.reply_to.as_ref().and_then(|id| self.find(id).ok());
        answered.is_some_and(|found| found.message.from == draft.to && found.message.to == self.me)
    }

    /// Returns the session of a subject with another agent.
    fn session_of(&self, to: &AgentName, subject: Option<&str>) -> SessionId {
        SessionId::between(&self.me, to, subject.unwrap_or(NO_SUBJECT))
    }

    /// Returns the session that a draft names, with the subject to be stored.
    fn named_session(&self, draft: &Draft, subject: Option<&str>) -> Result<NamedSession<Session>, OfficeError> {
        let Some(session) = &draft.session else { return Ok(NamedSession::None) };
        if *session == self.session_of(&draft.to, subject) {
            return Ok(NamedSession::Shared((session.clone(), subject.map(str::to_owned))));
        }
        drop(self.ingest()?);
        let in_session = |line: &LogLine| line.brief().is_some_and(|brief| brief.session == *session);
        let line = self.shared.last_line(&self.me, session, in_session)?;
        Ok(match line.as_ref().and_then(LogLine::brief) {
            Some(brief) if brief.peer == draft.to => {
                let known = Some(brief.subject.clone()).filter(|subject| subject != NO_SUBJECT);
                NamedSession::Shared((session.clone(), known))
            }
            Some(_) => NamedSession::Other,
            None => NamedSession::Missing,
        })
    }
}

/// A session, and the subject to be stored.
type Session = (SessionId, Option<String>);

/// Returns the session of the message that a draft answers, if its recipient is in it.
fn answered_session(draft: &Draft, named: Option<&Message>) -> Option<Session> {
    let message = named.filter(|_| draft.reply_to.is_some())?;
    let is_member = message.from == draft.to || message.to == draft.to;
    message.session.clone().filter(|_| is_member).map(|session| (session, message.subject.clone()))
}

impl OfficeState {
    /// Returns the layout's word for a kind of message. Chipset programs expect a word of their list, which has
    /// `coordination` for general mail.
    fn kind_in_layout(&self, kind: Kind) -> Kind {
        match (self.paths.layout, &kind) {
            (Layout::Chipset, Kind::Message) => "coordination".parse().unwrap_or(kind),
            _ => kind,
        }
    }
}

/// Returns the result of a send.
pub(crate) fn sent(message: &Message, reason: Option<String>) -> Sent {
    Sent {
        message_id: message.id.clone(),
        session_id: message.session.clone().unwrap_or_else(|| message_file::derived_session(message)),
        subject: message.subject.clone().unwrap_or_else(|| NO_SUBJECT.into()),
        created_at: message.sent_at,
        task: message.task.clone(),
        reason,
        paused: false,
    }
}

//! A message before and after its transaction: everything that needs no database.

use std::time::Instant;

use amb_core::doc::Sent;
use amb_core::draft::json_len;
use amb_core::event::NewMessage;
use amb_core::message::text_of;
use amb_core::route::Hop;
use amb_core::send::no_subject;
pub(crate) use amb_core::send::{no_message, no_session};
use amb_core::task::TaskRef;
use amb_core::{
    AgentName, Callback, CorrelationId, Draft, Entry, Event, Kind, MessageId, Object, Part, Priority, SessionId,
    TaskId, Timestamp,
};
use sha2::{Digest, Sha256};
use uuid::Uuid;

use crate::columns::Addressee;
use crate::error::Result;
use crate::quota::Stored;
use crate::types::{Crossing, Once, fold_subject, to_micros};
use crate::{LogEntry, StoreError, Written, refusals, row};

/// A draft with its id and time, parsed and checked.
#[derive(Debug, Clone)]
pub struct OutgoingMessage {
    pub(crate) id: Uuid,
    pub(crate) from: AgentName,
    pub(crate) to: AgentName,
    pub(crate) at: Timestamp,
    pub(crate) kind: Kind,
    /// The session that the draft names.
    pub(crate) session: Option<Uuid>,
    pub(crate) subject: Option<Subject>,
    pub(crate) content: String,
    pub(crate) parts: Option<Vec<Part>>,
    pub(crate) priority: Priority,
    pub(crate) deadline: Option<Timestamp>,
    pub(crate) callback: Option<Callback>,
    /// The message that it answers or relays.
    pub(crate) parent: Option<ParentRef>,
    pub(crate) correlation_id: Option<CorrelationId>,
    pub(crate) metadata: Object,
    pub(crate) once: Option<Once>,
    /// The id of its task, if it is one.
    pub(crate) task_id: Option<Uuid>,
    /// Its ttl and trace, where another office has decided them.
    pub(crate) hop: Option<Hop>,
    pub(crate) received: Instant,
    /// The bytes of its text and its JSON as they are stored.
    pub(crate) bytes: usize,
}

/// A subject, and its folded form, which identifies sessions.
#[derive(Debug, Clone)]
pub(crate) struct Subject {
    pub(crate) subject: String,
    pub(crate) key: String,
}

/// The message that a draft answers or relays.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ParentRef {
    pub(crate) id: Uuid,
    /// Whether it is relayed to a third agent.
    pub(crate) relay: bool,
}

/// A message that was written.
#[derive(Debug)]
pub(crate) struct PlacedMessage {
    pub(crate) message: OutgoingMessage,
    pub(crate) session: Uuid,
    pub(crate) subject: std::sync::Arc<str>,
    /// Its number in the log of each recipient; none for a task that the office rejected.
    pub(crate) copies: Vec<(Addressee, u64)>,
    pub(crate) task: Option<TaskRef>,
    /// Why the office rejected the task.
    pub(crate) rejection: Option<String>,
    /// Whether its one recipient is paused.
    pub(crate) paused: bool,
    /// Other log entries that were written with it.
    pub(crate) more: Vec<LogEntry>,
}

impl PlacedMessage {
    /// Returns the answer to the sender.
    pub(crate) fn sent(&self) -> Sent {
        Sent {
            message_id: self.message.id.into(),
            session_id: self.session.into(),
            subject: self.subject.to_string(),
            created_at: self.message.at,
            task: self.task.clone(),
            reason: self.rejection.clone(),
            paused: self.paused,
        }
    }

    /// Returns the answer to the sender and the log entries of the recipients.
    pub(crate) fn into_written(self) -> Written<Sent> {
        let answer = self.sent();
        let Self { message, copies, more: mut entries, .. } = self;
        let event = NewMessage {
            session_id: answer.session_id.clone(),
            subject: answer.subject.clone(),
            reply_to: message.reply_to().map(Into::into),
            from_agent: message.from,
            from_person: false,
            content: message.content,
            message_id: message.id.into(),
            created_at: message.at,
            kind: message.kind,
            priority: message.priority,
            parts: row::shown(message.parts),
            task: self.task,
            correlation_id: message.correlation_id,
        };
        let mut copies = copies.into_iter().peekable();
        let mut event = Some(event);
        while let Some((Addressee { agent, from_person }, number)) = copies.next() {
            // The last recipient gets the event itself, the others clones.
            let copy = if copies.peek().is_some() { event.clone() } else { event.take() };
            entries.extend(copy.map(|copy| {
                let event = Event::NewMessage(NewMessage { from_person, ..copy });
                LogEntry { agent, entry: Entry { event, cursor: number.into() } }
            }));
        }
        Written { answer, entries }
    }
}

impl OutgoingMessage {
    /// Parses a draft.
    pub(crate) fn new(from: &AgentName, draft: Draft, now: Timestamp) -> Result<Self> {
        let at = to_micros(now);
        let deadline = draft.due(now).map(to_micros);
        let once = match &draft.idempotency_key {
            Some(key) => Some(Once { key: key.clone(), draft_hash: hash_of(&draft)? }),
            None => None,
        };
        let draft = draft.mark_relay();
        let parent = match (&draft.reply_to, &draft.relay_of) {
            (Some(id), _) => Some(ParentRef { id: message_uuid(id)?, relay: false }),
            (None, Some(id)) => Some(ParentRef { id: message_uuid(id)?, relay: true }),
            (None, None) => None,
        };
        let session = draft.session.as_ref().map(session_uuid).transpose()?;
        let subject = draft.subject.filter(|_| session.is_none());
        refusals::check_text("subject", subject.as_deref())?;
        let subject = subject.map(|subject| Subject { key: fold_subject(&subject), subject });
        if session.is_none() && subject.is_none() && draft.reply_to.is_none() {
            return Err(no_subject());
        }
        let (content, parts) = match <[Part; 1]>::try_from(draft.parts) {
            Ok([Part::Text { text }]) if !text.contains('\0') => (text, None),
            Ok(parts) => (text_of(&parts), Some(parts.into())),
            Err(parts) => (text_of(&parts), Some(parts)),
        };
        let message = Self {
            id: amb_core::id::fresh_uuid(at),
            from: from.clone(),
            to: draft.to,
            at,
            task_id: (draft.kind == Kind::Task).then(|| amb_core::id::fresh_uuid(at)),
            kind: draft.kind,
            session,
            subject,
            content,
            parts,
            priority: draft.priority,
            deadline,
            callback: draft.callback,
            parent,
            correlation_id: draft.correlation_id,
            metadata: draft.metadata,
            once,
            hop: None,
            received: Instant::now(),
            bytes: 0,
        };
        let json = [json_of(message.parts.as_ref())?, message.metadata_json()?, json_of(message.callback.as_ref())?];
        let bytes = message.content_to_store().len() + json.iter().flatten().map(String::len).sum::<usize>();
        Ok(Self { bytes, ..message })
    }

    /// Returns the storage that it takes with so many recipients.
    pub(crate) fn stored(&self, copies: usize) -> Stored {
        Stored::message(copies, self.bytes)
    }

    /// Parses a draft that another office accepted.
    pub(crate) fn carried(from: &AgentName, draft: Draft, crossing: Crossing, now: Timestamp) -> Result<Self> {
        let Crossing { id, mut hop } = crossing;
        if hop.trace.last() != Some(from) {
            hop.trace.push(from.clone());
        }
        let message = Self::new(from, draft, now)?;
        Ok(Self { id, task_id: message.task_id.map(|_| id), hop: Some(hop), ..message })
    }

    /// Returns the message that it answers.
    pub(crate) fn reply_to(&self) -> Option<Uuid> {
        self.parent.filter(|parent| !parent.relay).map(|parent| parent.id)
    }

    /// Returns the bytes of its content as JSON.
    pub(crate) fn size(&self) -> usize {
        let text = self.parts.as_ref().map_or_else(|| json_len(&self.content), json_len);
        text + json_len(&self.metadata) + self.callback.as_ref().map_or(0, json_len)
    }

    /// Returns its metadata as JSON, if it has any.
    pub(crate) fn metadata_json(&self) -> Result<Option<String>> {
        if self.metadata.is_empty() { Ok(None) } else { json(&self.metadata).map(Some) }
    }

    /// Returns the text to store: PostgreSQL stores no NUL. A text with a NUL is stored unchanged in the parts.
    pub(crate) fn content_to_store(&self) -> std::borrow::Cow<'_, str> {
        if self.content.contains('\0') { self.content.replace('\0', "\u{fffd}").into() } else { (&self.content).into() }
    }

    /// Returns the task reference that the message carries.
    pub(crate) fn task_ref(&self, state: amb_core::TaskState) -> Option<TaskRef> {
        self.task_id.map(|id| TaskRef { id: TaskId::from(id), state, deadline: self.deadline, extra: Object::new() })
    }
}

/// Returns a trace as it is stored: `None` where it has only the sender.
pub(crate) fn trace_json(hop: &Hop) -> Result<Option<String>> {
    if hop.trace.len() <= 1 { Ok(None) } else { json(&hop.trace).map(Some) }
}

/// Serializes a value as JSON.
pub(crate) fn json(value: &impl serde::Serialize) -> Result<String> {
    serde_json::to_string(value).map_err(StoreError::internal)
}

/// Serializes an optional value as JSON.
pub(crate) fn json_of<T: serde::Serialize>(value: Option<&T>) -> Result<Option<String>> {
    value.map(json).transpose()
}

/// Returns the hash of a draft. Objects are sorted by key, so equal drafts have equal hashes.
fn hash_of(draft: &Draft) -> Result<[u8; 32]> {
    Ok(Sha256::digest(json(draft)?.as_bytes()).into())
}

/// Returns the UUID of a message id; `not_found` for any other text.
pub(crate) fn message_uuid(id: &MessageId) -> Result<Uuid> {
    id.as_uuid().ok_or_else(|| no_message(id))
}

/// Returns the UUID of a session id; `not_found` for any other text.
pub(crate) fn session_uuid(id: &SessionId) -> Result<Uuid> {
    id.as_uuid().ok_or_else(no_session)
}

/// The error where a history page is to begin before a message of another session.
pub(crate) fn not_in_session(id: &MessageId) -> StoreError {
    StoreError::not_found(format!(
        "no message {id} is in this session; give as before the id of one that its history showed"
    ))
}

//! A draft made ready for the database: everything that can be worked out before a transaction is.

use std::time::Instant;

use amb_core::doc::Sent;
use amb_core::draft::json_len;
use amb_core::event::NewMessage;
use amb_core::message::{is_automatic, text_of};
use amb_core::route::Hop;
use amb_core::send::{self, Facts, Named, Recipient, Storage, no_subject};
pub(crate) use amb_core::send::{no_message, no_session};
use amb_core::task::TaskRef;
use amb_core::{
    AgentName, Callback, CorrelationId, Draft, Entry, Event, Kind, Message, MessageId, Object, Part, Priority,
    SessionId, TaskId, Timestamp,
};
use sha2::{Digest, Sha256};
use uuid::Uuid;

use crate::columns::Addressee;
use crate::error::Result;
use crate::quota::Stored;
use crate::types::{Crossing, Once, fold_subject, to_micros};
use crate::{LogEntry, StoreError, Written, refusals, row};

/// A draft with its id, its time and its JSON.
#[derive(Debug, Clone)]
pub struct OutgoingMessage {
    pub(crate) id: Uuid,
    pub(crate) from: AgentName,
    pub(crate) to: AgentName,
    pub(crate) at: Timestamp,
    pub(crate) kind: Kind,
    /// The session that it names.
    pub(crate) session: Option<Uuid>,
    pub(crate) subject: Option<Subject>,
    pub(crate) content: String,
    pub(crate) parts: Option<Vec<Part>>,
    pub(crate) priority: Priority,
    pub(crate) deadline: Option<Timestamp>,
    pub(crate) callback: Option<Callback>,
    /// The message it answers or passes on.
    pub(crate) parent: Option<ParentRef>,
    pub(crate) correlation_id: Option<CorrelationId>,
    pub(crate) metadata: Object,
    pub(crate) once: Option<Once>,
    /// For a task: its id, should it come to be.
    pub(crate) task_id: Option<Uuid>,
    /// Its ttl and trace, where another office has settled them.
    pub(crate) hop: Option<Hop>,
    /// When it came here.
    pub(crate) came: Instant,
    /// Of its text and its JSON as they are kept.
    pub(crate) bytes: usize,
}

/// A subject, and the form of it by which sessions are found.
#[derive(Debug, Clone)]
pub(crate) struct Subject {
    pub(crate) subject: String,
    pub(crate) key: String,
}

/// The message that a draft names.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ParentRef {
    pub(crate) id: Uuid,
    /// Whether it is passed on to a third agent.
    pub(crate) relay: bool,
}

/// Where a message was written.
#[derive(Debug, Clone)]
pub(crate) struct Placed {
    pub(crate) session: Uuid,
    pub(crate) subject: std::sync::Arc<str>,
    /// Its place in the log of each recipient; nowhere for a task that the office rejected.
    pub(crate) copies: Vec<(Addressee, u64)>,
    pub(crate) task: Option<TaskRef>,
    /// For a task that the office rejected: why.
    pub(crate) reason: Option<String>,
    /// Its one recipient is paused.
    pub(crate) paused: bool,
    /// Other log entries that were written with it.
    pub(crate) more: Vec<LogEntry>,
}

impl OutgoingMessage {
    /// Makes a draft ready.
    pub(crate) fn new(from: &AgentName, draft: Draft, now: Timestamp) -> Result<Self> {
        let at = to_micros(now);
        let deadline = draft.due(now).map(to_micros);
        let once = match &draft.idempotency_key {
            Some(key) => Some(Once { key: key.clone(), draft_hash: hash_of(&draft)? }),
            None => None,
        };
        let draft = draft.noted();
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
            came: Instant::now(),
            bytes: 0,
        };
        let json = [json_of(message.parts.as_ref())?, message.metadata_json()?, json_of(message.callback.as_ref())?];
        let bytes = message.content_to_keep().len() + json.iter().flatten().map(String::len).sum::<usize>();
        Ok(Self { bytes, ..message })
    }

    /// What it counts where so many agents get it.
    pub(crate) fn stored(&self, copies: usize) -> Stored {
        Stored::message(copies, self.bytes)
    }

    /// Makes a draft ready whose message another office accepted.
    pub(crate) fn carried(from: &AgentName, draft: Draft, crossing: Crossing, now: Timestamp) -> Result<Self> {
        let Crossing { id, mut hop } = crossing;
        if hop.trace.last() != Some(from) {
            hop.trace.push(from.clone());
        }
        let message = Self::new(from, draft, now)?;
        Ok(Self { id, task_id: message.task_id.map(|_| id), hop: Some(hop), ..message })
    }

    /// What the sender is answered.
    pub(crate) fn sent(&self, placed: &Placed) -> Sent {
        Sent {
            message_id: self.id.into(),
            session_id: placed.session.into(),
            subject: placed.subject.to_string(),
            created_at: self.at,
            task: placed.task.clone(),
            reason: placed.reason.clone(),
            paused: placed.paused,
        }
    }

    /// The answer, and the log entries of the recipients.
    pub(crate) fn into_written(self, placed: Placed) -> Written<Sent> {
        let answer = self.sent(&placed);
        let reply_to = self.reply_to().map(Into::into);
        let event = NewMessage {
            session_id: placed.session.into(),
            subject: placed.subject.to_string(),
            from_agent: self.from,
            from_person: false,
            content: self.content,
            message_id: self.id.into(),
            created_at: self.at,
            kind: self.kind,
            priority: self.priority,
            parts: row::shown(self.parts),
            task: placed.task,
            reply_to,
            correlation_id: self.correlation_id,
        };
        let mut entries = placed.more;
        let mut copies = placed.copies.into_iter().peekable();
        let mut event = Some(event);
        while let Some((Addressee { agent, from_person }, number)) = copies.next() {
            let copy = if copies.peek().is_some() { event.clone() } else { event.take() };
            entries.extend(copy.map(|copy| {
                let event = Event::NewMessage(NewMessage { from_person, ..copy });
                LogEntry { agent, entry: Entry { event, cursor: number.into() } }
            }));
        }
        Written { answer, entries }
    }

    /// The message it answers.
    pub(crate) fn reply_to(&self) -> Option<Uuid> {
        self.parent.filter(|parent| !parent.relay).map(|parent| parent.id)
    }

    /// Bytes of its content as JSON.
    pub(crate) fn size(&self) -> usize {
        let text = self.parts.as_ref().map_or_else(|| json_len(&self.content), json_len);
        text + json_len(&self.metadata) + self.callback.as_ref().map_or(0, json_len)
    }

    /// What decides about it, as far as it says that itself.
    pub(crate) fn facts<'a, S>(&'a self, recipient: Recipient<'a>, storage: Storage) -> Facts<'a, S> {
        Facts {
            from: &self.from,
            to: &self.to,
            kind: &self.kind,
            deadline: self.deadline,
            automatic: is_automatic(&self.metadata),
            recipient,
            parent: send::Parent::None,
            settled: self.hop.clone(),
            session: Named::None,
            answered: None,
            has_subject: self.subject.is_some(),
            storage: Some(storage),
            now: self.at,
        }
    }

    /// The message that it names, as a fact: `found` where its sender may name it.
    pub(crate) fn parent_fact<'a>(
        &self,
        id: Option<&'a MessageId>,
        found: Option<&'a Message>,
        in_group: bool,
    ) -> send::Parent<'a> {
        match (self.parent, found, id) {
            (Some(ParentRef { relay: true, .. }), Some(message), _) => send::Parent::PassesOn(message),
            (Some(_), Some(message), _) => send::Parent::Answers { message, in_group },
            (Some(_), None, Some(id)) => send::Parent::Unknown(id),
            _ => send::Parent::None,
        }
    }

    /// Its metadata as JSON, where it has any.
    pub(crate) fn metadata_json(&self) -> Result<Option<String>> {
        if self.metadata.is_empty() { Ok(None) } else { json(&self.metadata).map(Some) }
    }

    /// The text as both databases can keep it; with a NUL in it the whole of it is in the parts.
    pub(crate) fn content_to_keep(&self) -> std::borrow::Cow<'_, str> {
        if self.content.contains('\0') { self.content.replace('\0', "\u{fffd}").into() } else { (&self.content).into() }
    }

    /// The task as the message carries it.
    pub(crate) fn task_ref(&self, state: amb_core::TaskState) -> Option<TaskRef> {
        self.task_id.map(|id| TaskRef { id: TaskId::from(id), state, deadline: self.deadline, extra: Object::new() })
    }
}

/// A trace as it is kept: nothing where it is the sender alone.
pub(crate) fn trace_json(hop: &Hop) -> Result<Option<String>> {
    if hop.trace.len() <= 1 { Ok(None) } else { json(&hop.trace).map(Some) }
}

/// A value as JSON.
pub(crate) fn json(value: &impl serde::Serialize) -> Result<String> {
    serde_json::to_string(value).map_err(StoreError::internal)
}

/// An optional value as JSON.
pub(crate) fn json_of<T: serde::Serialize>(value: Option<&T>) -> Result<Option<String>> {
    value.map(json).transpose()
}

/// Objects are kept in the order of their keys, so equal drafts give equal bytes.
fn hash_of(draft: &Draft) -> Result<[u8; 32]> {
    Ok(Sha256::digest(json(draft)?.as_bytes()).into())
}

/// The UUID of a message here. Any other text cannot name one.
pub(crate) fn message_uuid(id: &MessageId) -> Result<Uuid> {
    id.as_uuid().ok_or_else(|| no_message(id))
}

/// The UUID of a session here. Any other text cannot name one.
pub(crate) fn session_uuid(id: &SessionId) -> Result<Uuid> {
    id.as_uuid().ok_or_else(no_session)
}

/// A page of a history cannot begin before a message of another session.
pub(crate) fn not_in_session(id: &MessageId) -> StoreError {
    StoreError::not_found(format!(
        "no message {id} is in this session; give as before the id of one that its history showed"
    ))
}

//! A message as both backends read it, and the shapes in which it is shown.

use std::str::FromStr;

use amb_core::doc::MessageView;
use amb_core::event::NewMessage;
use amb_core::message::text_of;
use amb_core::{AgentName, CorrelationId, Kind, Message, Part, Priority, Receipt, Timestamp};
use serde::de::DeserializeOwned;
use uuid::Uuid;

use crate::StoreError;
use crate::error::Result;

/// A row of `messages`, with the names and the session that belong to it. JSON columns are still text.
#[derive(Debug, Clone)]
pub(crate) struct MessageRow {
    pub(crate) id: Uuid,
    pub(crate) session: Uuid,
    pub(crate) subject: String,
    pub(crate) from: String,
    /// For a group: the member whose copy this is, or the sender.
    pub(crate) to: String,
    pub(crate) at: Timestamp,
    pub(crate) priority: i64,
    pub(crate) ttl: i64,
    pub(crate) kind: Option<String>,
    pub(crate) trace: Option<String>,
    pub(crate) reply_to: Option<Uuid>,
    pub(crate) correlation_id: Option<String>,
    pub(crate) task: Option<String>,
    pub(crate) callback: Option<String>,
    pub(crate) content: String,
    pub(crate) parts: Option<String>,
    pub(crate) metadata: Option<String>,
    pub(crate) delivered_at: Option<Timestamp>,
    pub(crate) read_at: Option<Timestamp>,
}

impl MessageRow {
    /// The message, whole. A callback is for the agent that set it alone.
    pub(crate) fn message(self, viewer: &AgentName) -> Result<Message> {
        let from = name(&self.from)?;
        let callback = if self.shows_callback(viewer) { parse(self.callback)? } else { None };
        Ok(Message {
            id: self.id.into(),
            to: name(&self.to)?,
            sent_at: self.at,
            kind: kind(self.kind.as_deref())?,
            session: Some(self.session.into()),
            subject: Some(self.subject),
            parts: match parse(self.parts)? {
                Some(parts) => parts,
                None => vec![Part::text(self.content)],
            },
            priority: priority(self.priority),
            ttl: u8::try_from(self.ttl).unwrap_or(0),
            trace: match parse(self.trace)? {
                Some(trace) => trace,
                None => vec![from.clone()],
            },
            from,
            task: parse(self.task)?,
            callback,
            reply_to: self.reply_to.map(Into::into),
            correlation_id: correlation(self.correlation_id)?,
            metadata: parse(self.metadata)?.unwrap_or_default(),
        })
    }

    /// The message in a thread or an inbox.
    pub(crate) fn view(self, viewer: &AgentName) -> Result<MessageView> {
        let callback = if self.shows_callback(viewer) { self.callback } else { None };
        let view = ViewRow {
            id: self.id,
            sender: name(&self.from)?,
            at: self.at,
            is_read: self.read_at.is_some(),
            priority: self.priority,
            kind: self.kind,
            reply_to: self.reply_to,
            correlation_id: self.correlation_id,
            task: self.task,
            callback,
            content: self.content,
            parts: self.parts,
            metadata: self.metadata,
        };
        view.view()
    }

    /// The message as an event.
    pub(crate) fn event(self) -> Result<NewMessage> {
        let (content, parts) = content(self.content, parse(self.parts)?);
        Ok(NewMessage {
            session_id: self.session.into(),
            subject: self.subject,
            from_agent: name(&self.from)?,
            content,
            message_id: self.id.into(),
            created_at: self.at,
            kind: kind(self.kind.as_deref())?,
            priority: priority(self.priority),
            parts,
            task: parse(self.task)?,
            reply_to: self.reply_to.map(Into::into),
            correlation_id: correlation(self.correlation_id)?,
        })
    }

    fn shows_callback(&self, viewer: &AgentName) -> bool {
        let setter = if callback_is_senders(self.kind.as_deref()) { &self.from } else { &self.to };
        setter == viewer.as_str()
    }

    /// How far it has come on its way to the one it went to.
    pub(crate) fn receipt(&self) -> Result<Receipt> {
        Ok(Receipt::of(name(&self.to)?, self.at, self.delivered_at, self.read_at))
    }
}

/// What a thread or an inbox shows of a message. JSON columns are still text.
#[derive(Debug)]
pub(crate) struct ViewRow {
    pub(crate) id: Uuid,
    pub(crate) sender: AgentName,
    pub(crate) at: Timestamp,
    pub(crate) is_read: bool,
    pub(crate) priority: i64,
    pub(crate) kind: Option<String>,
    pub(crate) reply_to: Option<Uuid>,
    pub(crate) correlation_id: Option<String>,
    pub(crate) task: Option<String>,
    /// Where the viewer may see it.
    pub(crate) callback: Option<String>,
    pub(crate) content: String,
    pub(crate) parts: Option<String>,
    pub(crate) metadata: Option<String>,
}

impl ViewRow {
    pub(crate) fn view(self) -> Result<MessageView> {
        let (content, parts) = content(self.content, parse(self.parts)?);
        Ok(MessageView {
            id: self.id.into(),
            sender_name: self.sender,
            content,
            created_at: self.at,
            is_read: self.is_read,
            kind: kind(self.kind.as_deref())?,
            priority: priority(self.priority),
            parts,
            task: parse(self.task)?,
            reply_to: self.reply_to.map(Into::into),
            correlation_id: correlation(self.correlation_id)?,
            callback: parse(self.callback)?,
            metadata: parse(self.metadata)?.unwrap_or_default(),
        })
    }
}

/// Whether a callback is shown to the one who sent the message, or to the one it went to: an update of a task brings it
/// back to the owner who set it.
pub(crate) fn callback_is_senders(kind: Option<&str>) -> bool {
    kind != Some(Kind::TaskUpdate.as_str())
}

/// The text and the parts as they are shown. Where there are parts, the text is theirs.
fn content(kept: String, parts: Option<Vec<Part>>) -> (String, Vec<Part>) {
    match parts {
        Some(parts) => (text_of(&parts), shown(Some(parts))),
        None => (kept, Vec::new()),
    }
}

/// The parts as they are shown: none where they are one text, which is the content already.
pub(crate) fn shown(parts: Option<Vec<Part>>) -> Vec<Part> {
    match parts {
        Some(parts) if !matches!(parts.as_slice(), [Part::Text { .. }]) => parts,
        _ => Vec::new(),
    }
}

/// A name that was checked when it was registered.
pub(crate) fn name(text: &str) -> Result<AgentName> {
    AgentName::from_str(text).map_err(StoreError::internal)
}

/// JSON that we wrote.
pub(crate) fn parse<T: DeserializeOwned>(text: Option<impl AsRef<str>>) -> Result<Option<T>> {
    match text {
        Some(text) => serde_json::from_str(text.as_ref()).map(Some).map_err(StoreError::internal),
        None => Ok(None),
    }
}

/// A kind as it is kept: nothing for a plain message.
pub(crate) fn kind(text: Option<&str>) -> Result<Kind> {
    match text {
        Some(text) => text.parse().map_err(StoreError::internal),
        None => Ok(Kind::Message),
    }
}

/// A kind to be kept.
pub(crate) fn kind_text(kind: &Kind) -> Option<&str> {
    if *kind == Kind::Message { None } else { Some(kind.as_str()) }
}

/// A priority as it is kept: its rank.
pub(crate) fn priority(rank: i64) -> Priority {
    usize::try_from(rank).ok().and_then(|rank| Priority::ALL.get(rank).copied()).unwrap_or_default()
}

/// A priority to be kept.
pub(crate) fn rank(priority: Priority) -> i16 {
    match priority {
        Priority::Low => 0,
        Priority::Normal => 1,
        Priority::High => 2,
        Priority::Urgent => 3,
    }
}

fn correlation(text: Option<String>) -> Result<Option<CorrelationId>> {
    text.map(|text| text.parse().map_err(StoreError::internal)).transpose()
}

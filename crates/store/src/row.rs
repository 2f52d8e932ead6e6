//! Rows of messages, and the documents made of them.

use amb_core::doc::{Inbox, MessageView, PendingConnection, SessionSummary};
use amb_core::draft::json_len;
use amb_core::event::NewMessage;
use amb_core::limits::{MAX_PREVIEW_BYTES, MAX_PREVIEW_CHARS};
use amb_core::message::text_of;
use amb_core::{AgentName, Card, CorrelationId, Kind, Message, Part, Priority, Receipt, Timestamp};
use serde::de::DeserializeOwned;
use uuid::Uuid;

use crate::StoreError;
use crate::engine::{FromRow, Row, from_row};
use crate::error::Result;
use crate::page_budget::PageBudget;

/// A row of `messages`, joined with its session, its agents and a delivery. JSON columns are text.
#[derive(Debug, Clone)]
pub(crate) struct MessageRow {
    pub(crate) id: Uuid,
    pub(crate) session: Uuid,
    pub(crate) subject: String,
    pub(crate) from: AgentName,
    /// `None` in a group, unless the row is a member's copy.
    pub(crate) to: Option<AgentName>,
    pub(crate) at: Timestamp,
    pub(crate) priority: Priority,
    pub(crate) ttl: i64,
    pub(crate) kind: Kind,
    pub(crate) trace: Option<String>,
    pub(crate) reply_to: Option<Uuid>,
    pub(crate) correlation_id: Option<CorrelationId>,
    pub(crate) task: Option<String>,
    pub(crate) callback: Option<String>,
    pub(crate) content: String,
    pub(crate) parts: Option<String>,
    pub(crate) metadata: Option<String>,
    pub(crate) delivered_at: Option<Timestamp>,
    pub(crate) read_at: Option<Timestamp>,
    pub(crate) rung_at: Option<Timestamp>,
    /// Whether it was sent by the person of the recipient's household.
    pub(crate) from_person: bool,
}

/// Returns the columns of [`MessageRow`], of `m` (messages), `s` (sessions), `f` and `t` (sender and recipient), and
/// its delivery.
pub(crate) fn message_columns(delivery: &str) -> String {
    format!(
        "m.public_id, s.public_id, s.subject, f.name, t.name, m.created_at, m.priority, m.ttl, m.kind, m.trace,
         m.reply_to, m.correlation_id, m.task, m.callback, m.content, m.parts, m.metadata,
         {delivery}.delivered_at, {delivery}.read_at, {delivery}.rung_at, coalesce({delivery}.from_person, FALSE)"
    )
}

from_row!(
    MessageRow: id session subject from to at priority ttl kind trace reply_to correlation_id task callback content parts
    metadata delivered_at read_at rung_at from_person
);

impl MessageRow {
    /// Returns the whole message. Only the agent that set a callback sees it, and only the recipient sees the person's
    /// mark. A group's message is addressed to the viewer.
    pub(crate) fn message(self, viewer: &AgentName) -> Result<Message> {
        let callback = if self.shows_callback(viewer) { parse(self.callback)? } else { None };
        Ok(Message {
            id: self.id.into(),
            from_person: self.from_person && self.from != *viewer,
            to: self.to.unwrap_or_else(|| viewer.clone()),
            sent_at: self.at,
            kind: self.kind,
            session: Some(self.session.into()),
            subject: Some(self.subject),
            parts: match parse(self.parts)? {
                Some(parts) => parts,
                None => vec![Part::text(self.content)],
            },
            priority: self.priority,
            ttl: u8::try_from(self.ttl).unwrap_or(0),
            trace: match parse(self.trace)? {
                Some(trace) => trace,
                None => vec![self.from.clone()],
            },
            from: self.from,
            task: parse(self.task)?,
            callback,
            reply_to: self.reply_to.map(Into::into),
            correlation_id: self.correlation_id,
            metadata: parse(self.metadata)?.unwrap_or_default(),
        })
    }

    /// Returns the message as its sender sees it.
    pub(crate) fn for_sender(self) -> Result<Message> {
        let sender = self.from.clone();
        self.message(&sender)
    }

    /// Returns the message as an event.
    pub(crate) fn event(self) -> Result<NewMessage> {
        let (content, parts) = content(self.content, parse(self.parts)?);
        Ok(NewMessage {
            session_id: self.session.into(),
            subject: self.subject,
            from_agent: self.from,
            from_person: self.from_person,
            content,
            message_id: self.id.into(),
            created_at: self.at,
            kind: self.kind,
            priority: self.priority,
            parts,
            task: parse(self.task)?,
            reply_to: self.reply_to.map(Into::into),
            correlation_id: self.correlation_id,
        })
    }

    /// Returns its approximate size in a response.
    pub(crate) fn bytes(&self) -> usize {
        let texts = [&self.trace, &self.task, &self.callback, &self.parts, &self.metadata];
        OVERHEAD + kind_len(&self.kind) + json_len(&self.subject) + json_len(&self.content) + total_len(texts)
    }

    fn shows_callback(&self, viewer: &AgentName) -> bool {
        let setter = if callback_is_senders(&self.kind) { &self.from } else { self.to.as_ref().unwrap_or(viewer) };
        setter == viewer
    }

    /// Returns the receipt of its one recipient; `None` in a group.
    pub(crate) fn receipt(&self) -> Option<Receipt> {
        let to = self.to.clone()?;
        Some(Receipt::of(to, self.at, self.delivered_at, self.read_at).rung(self.rung_at))
    }
}

/// A message as an inbox or a history shows it. JSON columns are text.
#[derive(Debug)]
pub(crate) struct ViewRow {
    pub(crate) id: Uuid,
    pub(crate) sender: AgentName,
    /// Whether it was sent to the viewer by the person of the viewer's household.
    pub(crate) from_person: bool,
    pub(crate) at: Timestamp,
    pub(crate) is_read: bool,
    pub(crate) priority: Priority,
    pub(crate) kind: Kind,
    pub(crate) reply_to: Option<Uuid>,
    pub(crate) correlation_id: Option<CorrelationId>,
    pub(crate) task: Option<String>,
    /// `None` where the viewer may not see it.
    pub(crate) callback: Option<String>,
    pub(crate) content: String,
    pub(crate) parts: Option<String>,
    pub(crate) metadata: Option<String>,
}

/// How much of a message is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shape {
    Whole,
    /// Long fields cut, for an inbox.
    Preview,
}

/// The approximate size of a message in a response without its texts.
pub(crate) const OVERHEAD: usize = 512;

impl ViewRow {
    /// Returns its approximate size in a response.
    pub(crate) fn bytes(&self) -> usize {
        let texts = [&self.task, &self.callback, &self.parts, &self.metadata];
        OVERHEAD + kind_len(&self.kind) + json_len(&self.content) + total_len(texts)
    }

    pub(crate) fn view(mut self, shape: Shape) -> Result<MessageView> {
        let truncated = shape == Shape::Preview && self.cut();
        let (content, parts) = content(self.content, parse(self.parts)?);
        Ok(MessageView {
            id: self.id.into(),
            sender_name: self.sender,
            from_person: self.from_person,
            content,
            created_at: self.at,
            is_read: self.is_read,
            kind: self.kind,
            priority: self.priority,
            parts,
            task: parse(self.task)?,
            reply_to: self.reply_to.map(Into::into),
            correlation_id: self.correlation_id,
            callback: parse(self.callback)?,
            metadata: parse(self.metadata)?.unwrap_or_default(),
            truncated,
        })
    }

    /// Cuts what a preview does not show. Returns whether there was something to cut.
    fn cut(&mut self) -> bool {
        let mut cut = false;
        for large in [&mut self.parts, &mut self.metadata, &mut self.callback] {
            cut |= large.take_if(|text| text.len() > MAX_PREVIEW_BYTES).is_some();
        }
        if let Some((end, _)) = self.content.char_indices().nth(MAX_PREVIEW_CHARS) {
            self.content.truncate(end);
            // The content is the text of the parts.
            self.parts = None;
            cut = true;
        }
        cut
    }
}

fn total_len<const N: usize>(texts: [&Option<String>; N]) -> usize {
    texts.into_iter().flatten().map(String::len).sum()
}

fn kind_len(kind: &Kind) -> usize {
    kind_text(kind).map_or(0, str::len)
}

/// Returns the approximate size of a session in an inbox.
pub(crate) fn session_bytes(session: &SessionSummary) -> usize {
    let message = |message: &MessageView| {
        let rest = [
            (!message.parts.is_empty()).then(|| json_len(&message.parts)),
            (!message.metadata.is_empty()).then(|| json_len(&message.metadata)),
            message.callback.as_ref().map(json_len),
        ];
        OVERHEAD + json_len(&message.content) + rest.into_iter().flatten().sum::<usize>()
    };
    OVERHEAD + json_len(&session.subject) + session.recent_messages.iter().map(message).sum::<usize>()
}

/// Returns a page of at most `limit` of these sessions, in this order, up to the size of a page.
pub(crate) fn inbox_page(
    mut sessions: Vec<SessionSummary>,
    limit: usize,
    pending_connections: Vec<PendingConnection>,
) -> Inbox {
    let mut budget = PageBudget::new();
    let fits = sessions.iter().take(limit).take_while(|session| budget.takes(session_bytes(session))).count();
    let next = match fits < sessions.len() {
        true => sessions[..fits].last().map(|last| last.session_id.clone()),
        false => None,
    };
    sessions.truncate(fits);
    Inbox { sessions, pending_connections, next }
}

/// Returns whether a callback is shown to the sender of the message, or to its recipient: a task update carries it back
/// to the owner, who set it.
pub(crate) fn callback_is_senders(kind: &Kind) -> bool {
    *kind != Kind::TaskUpdate
}

/// Returns the text and the parts to show. Where there are parts, the text is theirs.
pub(crate) fn content(stored: String, parts: Option<Vec<Part>>) -> (String, Vec<Part>) {
    match parts {
        Some(parts) => (text_of(&parts), shown(Some(parts))),
        None => (stored, Vec::new()),
    }
}

/// Returns the parts to show: none where they are a single text, which is the content already.
pub(crate) fn shown(parts: Option<Vec<Part>>) -> Vec<Part> {
    match parts {
        Some(parts) if !matches!(parts.as_slice(), [Part::Text { .. }]) => parts,
        _ => Vec::new(),
    }
}

/// Parses a stored name.
pub(crate) fn name(text: &str) -> Result<AgentName> {
    text.parse().map_err(StoreError::internal)
}

impl FromRow for Card {
    /// Takes four columns: description, capabilities, allow_from, max_concurrent_tasks.
    fn from_row(row: &mut Row<'_>) -> Result<Self> {
        Ok(Card {
            description: row.take()?,
            capabilities: parse(row.take::<Option<String>>()?)?.unwrap_or_default(),
            allow_from: parse(row.take::<Option<String>>()?)?.unwrap_or_default(),
            max_concurrent_tasks: u32::try_from(row.take::<i64>()?).unwrap_or(0),
        })
    }
}

/// Parses JSON that we wrote.
pub(crate) fn parse<T: DeserializeOwned>(text: Option<impl AsRef<str>>) -> Result<Option<T>> {
    match text {
        Some(text) => serde_json::from_str(text.as_ref()).map(Some).map_err(StoreError::internal),
        None => Ok(None),
    }
}

/// Returns a kind as it is stored: NULL for a plain message.
pub(crate) fn kind_text(kind: &Kind) -> Option<&str> {
    if *kind == Kind::Message { None } else { Some(kind.as_str()) }
}

/// Returns a priority as it is stored: its rank.
pub(crate) fn rank(priority: Priority) -> i16 {
    match priority {
        Priority::Low => 0,
        Priority::Normal => 1,
        Priority::High => 2,
        Priority::Urgent => 3,
    }
}

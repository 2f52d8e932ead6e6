//! A message as both backends read it, and the shapes in which it is shown.

use std::str::FromStr;

use amb_core::doc::{Inbox, MessageView, PendingConnection, SessionSummary};
use amb_core::draft::json_len;
use amb_core::event::NewMessage;
use amb_core::limits::{MAX_PREVIEW_BYTES, MAX_PREVIEW_CHARS};
use amb_core::message::text_of;
use amb_core::{AgentName, Card, CorrelationId, Kind, Message, Part, Priority, Receipt, Timestamp};
use serde::de::DeserializeOwned;
use uuid::Uuid;

use crate::StoreError;
use crate::engine::{FromRow, Row};
use crate::error::Result;
use crate::page_budget::PageBudget;

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
    pub(crate) rung_at: Option<Timestamp>,
    /// Whether it came as mail of the person of the recipient's household.
    pub(crate) from_person: bool,
}

/// The columns of [`MessageRow`], of `m` (messages), `s` (sessions), `f` and `t` (the agents it is from and to), and its delivery.
pub(crate) fn message_columns(delivery: &str) -> String {
    format!(
        "m.public_id, s.public_id, s.subject, f.name, t.name, m.created_at, m.priority, m.ttl, m.kind, m.trace,
         m.reply_to, m.correlation_id, m.task, m.callback, m.content, m.parts, m.metadata,
         {delivery}.delivered_at, {delivery}.read_at, {delivery}.rung_at, {delivery}.from_person"
    )
}

impl FromRow for MessageRow {
    fn from_row(row: &mut Row<'_>) -> Result<Self> {
        Ok(Self {
            id: row.take()?,
            session: row.take()?,
            subject: row.take()?,
            from: row.take()?,
            to: row.take::<Option<String>>()?.unwrap_or_default(),
            at: row.take()?,
            priority: row.take()?,
            ttl: row.take()?,
            kind: row.take()?,
            trace: row.take()?,
            reply_to: row.take()?,
            correlation_id: row.take()?,
            task: row.take()?,
            callback: row.take()?,
            content: row.take()?,
            parts: row.take()?,
            metadata: row.take()?,
            delivered_at: row.take()?,
            read_at: row.take()?,
            rung_at: row.take()?,
            from_person: row.take::<Option<bool>>()?.unwrap_or_default(),
        })
    }
}

impl MessageRow {
    /// The message, whole. A callback is for the agent that set it alone, and the person's mark for whom the message came to.
    pub(crate) fn message(self, viewer: &AgentName) -> Result<Message> {
        let from = name(&self.from)?;
        let callback = if self.shows_callback(viewer) { parse(self.callback)? } else { None };
        Ok(Message {
            id: self.id.into(),
            from_person: self.from_person && from != *viewer,
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

    /// The message as the office itself sees it, which is how its sender does. A group's message is to no one agent.
    pub(crate) fn for_office(mut self) -> Result<Message> {
        if self.to.is_empty() {
            self.to.clone_from(&self.from);
        }
        let sender = name(&self.from)?;
        self.message(&sender)
    }

    /// The message as an event.
    pub(crate) fn event(self) -> Result<NewMessage> {
        let (content, parts) = content(self.content, parse(self.parts)?);
        Ok(NewMessage {
            session_id: self.session.into(),
            subject: self.subject,
            from_agent: name(&self.from)?,
            from_person: self.from_person,
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

    /// About how many bytes it is in an answer, where a control character of a text takes six.
    pub(crate) fn bytes(&self) -> usize {
        let texts = [&self.kind, &self.trace, &self.task, &self.callback, &self.parts, &self.metadata];
        let plain = json_len(&self.subject) + json_len(&self.content);
        OVERHEAD + plain + texts.into_iter().flatten().map(String::len).sum::<usize>()
    }

    fn shows_callback(&self, viewer: &AgentName) -> bool {
        let setter = if callback_is_senders(self.kind.as_deref()) { &self.from } else { &self.to };
        setter == viewer.as_str()
    }

    /// How far it has come on its way to the one it went to.
    pub(crate) fn receipt(&self) -> Result<Receipt> {
        Ok(Receipt::of(name(&self.to)?, self.at, self.delivered_at, self.read_at).rung(self.rung_at))
    }
}

/// What a thread or an inbox shows of a message. JSON columns are still text.
#[derive(Debug)]
pub(crate) struct ViewRow {
    pub(crate) id: Uuid,
    pub(crate) sender: AgentName,
    /// Whether it came to the viewer as mail of the person of its household.
    pub(crate) from_person: bool,
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

/// How much of a message is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shape {
    /// All of it.
    Whole,
    /// What an inbox shows.
    Preview,
}

/// What a message costs in an answer beside its texts.
pub(crate) const OVERHEAD: usize = 512;

impl ViewRow {
    /// About how many bytes it is in an answer.
    pub(crate) fn bytes(&self) -> usize {
        let texts = [&self.kind, &self.task, &self.callback, &self.parts, &self.metadata];
        OVERHEAD + json_len(&self.content) + texts.into_iter().flatten().map(String::len).sum::<usize>()
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
            kind: kind(self.kind.as_deref())?,
            priority: priority(self.priority),
            parts,
            task: parse(self.task)?,
            reply_to: self.reply_to.map(Into::into),
            correlation_id: correlation(self.correlation_id)?,
            callback: parse(self.callback)?,
            metadata: parse(self.metadata)?.unwrap_or_default(),
            truncated,
        })
    }

    /// Cuts what an inbox does not show. Returns whether there was something to cut.
    fn cut(&mut self) -> bool {
        let mut cut = false;
        for large in [&mut self.parts, &mut self.metadata, &mut self.callback] {
            cut |= large.take_if(|text| text.len() > MAX_PREVIEW_BYTES).is_some();
        }
        if let Some((end, _)) = self.content.char_indices().nth(MAX_PREVIEW_CHARS) {
            self.content.truncate(end);
            // Their text is the content.
            self.parts = None;
            cut = true;
        }
        cut
    }
}

/// About how many bytes a session is in an inbox.
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

/// The document of a page: at most so many of these sessions, in this order, and no more bytes than a page has.
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

/// Whether a callback is shown to the one who sent the message, or to the one it went to: an update of a task brings it
/// back to the owner who set it.
pub(crate) fn callback_is_senders(kind: Option<&str>) -> bool {
    kind != Some(Kind::TaskUpdate.as_str())
}

/// The text and the parts as they are shown. Where there are parts, the text is theirs.
pub(crate) fn content(kept: String, parts: Option<Vec<Part>>) -> (String, Vec<Part>) {
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

impl FromRow for Card {
    /// From four columns: description, capabilities, allow_from, max_concurrent_tasks.
    fn from_row(row: &mut Row<'_>) -> Result<Self> {
        Ok(Card {
            description: row.take()?,
            capabilities: parse(row.take::<Option<String>>()?)?.unwrap_or_default(),
            allow_from: parse(row.take::<Option<String>>()?)?.unwrap_or_default(),
            max_concurrent_tasks: u32::try_from(row.take::<i64>()?).unwrap_or(0),
        })
    }
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

pub(crate) fn correlation(text: Option<String>) -> Result<Option<CorrelationId>> {
    text.map(|text| text.parse().map_err(StoreError::internal)).transpose()
}

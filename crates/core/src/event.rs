//! The log of a mailbox: one entry for each thing that happened to an agent, in the order in which it became durable.
//!
//! The position in the log is the cursor. Every way to learn of changes (a WebSocket, a long poll, a tool that waits, a
//! bridge) reads this one log from a cursor; a push is only a hint to read.

use std::fmt;

use jiff::Timestamp;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::doc::{ConnectionStatus, HouseholdChange, MessageView, is_default};
use crate::id::{ConnectionId, CorrelationId, MessageId, SessionId};
use crate::message::{Kind, Message, Part, Priority};
use crate::name::AgentName;
use crate::receipt::Receipt;
use crate::stepping_in::SteppedIn;
use crate::task::{Task, TaskRef};

/// A position in a mailbox's log: give it back to go on after it. Opaque to all but the office that made it.
///
/// The network office numbers its entries, and numbers are written as JSON numbers; other offices use text.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Cursor(Box<str>);

impl Cursor {
    /// Wraps a cursor that an office made.
    pub fn new(text: impl Into<Box<str>>) -> Self {
        Self(text.into())
    }

    /// The cursor as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The cursor as a number, where it is one.
    pub fn as_number(&self) -> Option<u64> {
        self.0.parse().ok()
    }
}

impl From<u64> for Cursor {
    fn from(number: u64) -> Self {
        Self(number.to_string().into())
    }
}

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl fmt::Debug for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

impl Serialize for Cursor {
    fn serialize<S: Serializer>(&self, ser: S) -> Result<S::Ok, S::Error> {
        match self.as_number() {
            // "007" is text: only what prints back the same is a number.
            Some(number) if number.to_string() == *self.0 => ser.serialize_u64(number),
            _ => ser.serialize_str(&self.0),
        }
    }
}

impl<'de> Deserialize<'de> for Cursor {
    fn deserialize<D: Deserializer<'de>>(de: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum CursorForm {
            Number(u64),
            Text(Box<str>),
        }
        Ok(match CursorForm::deserialize(de)? {
            CursorForm::Number(number) => number.into(),
            CursorForm::Text(text) => Self(text),
        })
    }
}

/// An event with its position in the log.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Entry {
    /// The event.
    #[serde(flatten)]
    pub event: Event,
    /// Its position.
    pub cursor: Cursor,
}

/// A page of the log.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct EventPage {
    /// The entries after the requested cursor, oldest first. Empty if there were none within the wait.
    pub events: Vec<Entry>,
    /// The cursor for the next page: that of the last entry, or the requested one.
    pub cursor: Cursor,
}

/// Something that happened to an agent. The JSON is the network office's WebSocket contract.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Event {
    /// A message arrived.
    NewMessage(NewMessage),
    /// Another agent wants to connect.
    ConnectionRequest {
        /// The request's id.
        connection_id: ConnectionId,
        /// The agent that asks.
        from_agent: AgentName,
        /// Its introduction.
        message: Option<String>,
        /// The code; null where people have to pass codes on themselves.
        verification_code: Option<String>,
    },
    /// Another agent approved the caller's request.
    ConnectionApproved {
        /// The request's id.
        connection_id: ConnectionId,
        /// The agent that approved.
        connected_agent: AgentName,
    },
    /// A connection was rejected or revoked, or its request expired.
    ConnectionChanged {
        /// The request's id.
        connection_id: ConnectionId,
        /// The other agent.
        agent: AgentName,
        /// Its new state.
        status: ConnectionStatus,
    },
    /// The receipt of a message that the agent sent has changed.
    Receipt {
        /// The message's id.
        message_id: MessageId,
        /// The receipt of one recipient.
        receipt: Receipt,
    },
    /// A task that the agent gave or was given has passed its deadline.
    TaskOverdue {
        /// The task.
        task: Task,
    },
    /// A member joined or left the household. In the logs of its person and of a member that was removed.
    HouseholdChanged {
        /// The agent that joined or left.
        agent: AgentName,
        /// Whether it joined or left.
        change: HouseholdChange,
        /// Who did it, if not `agent` itself.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        by: Option<AgentName>,
        /// When. Missing in entries of an earlier version.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        at: Option<Timestamp>,
    },
    /// The household's person intervened. In the logs of the person and of all agents concerned.
    SteppedIn(SteppedIn),
    /// A kind of event that this version does not know; readers skip it.
    #[serde(other, skip_serializing)]
    Unknown,
}

/// A message that arrived.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct NewMessage {
    /// Its session.
    pub session_id: SessionId,
    /// The session's subject.
    pub subject: String,
    /// The sender.
    pub from_agent: AgentName,
    /// Whether its sender was the person of the reader's household when it was sent. Set by the office, never by a
    /// sender.
    #[serde(default, skip_serializing_if = "is_default")]
    pub from_person: bool,
    /// Its text.
    pub content: String,
    /// The message's id.
    pub message_id: MessageId,
    /// When the office accepted it.
    pub created_at: Timestamp,
    /// Its kind, unless it is a plain message.
    #[serde(default, skip_serializing_if = "is_default")]
    pub kind: Kind,
    /// Its priority, unless it is normal.
    #[serde(default, skip_serializing_if = "is_default")]
    pub priority: Priority,
    /// The whole content, unless it is a single text.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<Part>,
    /// The task it carries or reports on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<TaskRef>,
    /// The message it answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reply_to: Option<MessageId>,
    /// Correlates a question with its answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub correlation_id: Option<CorrelationId>,
}

impl NewMessage {
    /// The event of a message in this session.
    pub fn of(message: &Message, session_id: SessionId, subject: String) -> Self {
        let view = MessageView::of(message, false);
        Self {
            session_id,
            subject,
            from_agent: view.sender_name,
            from_person: view.from_person,
            content: view.content,
            message_id: view.id,
            created_at: view.created_at,
            kind: view.kind,
            priority: view.priority,
            parts: view.parts,
            task: view.task,
            reply_to: view.reply_to,
            correlation_id: view.correlation_id,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plain_event_has_just_the_fields_of_the_contract() {
        let entry = Entry {
            event: Event::NewMessage(NewMessage {
                session_id: "s".parse().unwrap(),
                subject: "Project collaboration".into(),
                from_agent: "alice-agent".parse().unwrap(),
                from_person: false,
                content: "Hello Bob!".into(),
                message_id: "m".parse().unwrap(),
                created_at: "2026-02-22T10:05:00Z".parse().unwrap(),
                kind: Kind::Message,
                priority: Priority::Normal,
                parts: vec![],
                task: None,
                reply_to: None,
                correlation_id: None,
            }),
            cursor: 7.into(),
        };
        let json = serde_json::json!({
            "type": "new_message", "session_id": "s", "subject": "Project collaboration", "from_agent": "alice-agent",
            "content": "Hello Bob!", "message_id": "m", "created_at": "2026-02-22T10:05:00Z", "cursor": 7,
        });
        assert_eq!(serde_json::to_value(&entry).unwrap(), json);
        assert_eq!(serde_json::from_value::<Entry>(json).unwrap(), entry);
    }

    #[test]
    fn a_page_with_an_unknown_kind_of_event_still_parses() {
        let page: EventPage = serde_json::from_value(serde_json::json!({
            "events": [
                {"type": "household_changed", "agent": "ann", "change": "joined", "cursor": 3},
                {"type": "from_a_newer_version", "agent": {"any": ["thing"]}, "cursor": 4},
            ],
            "cursor": 4,
        }))
        .unwrap();
        assert_eq!(page.events.len(), 2);
        assert!(matches!(page.events[0].event, Event::HouseholdChanged { .. }));
        assert_eq!(page.events[1], Entry { event: Event::Unknown, cursor: 4.into() });
        let broken = serde_json::json!({"events": [{"type": "household_changed", "cursor": 3}], "cursor": 3});
        assert!(serde_json::from_value::<EventPage>(broken).is_err(), "a known kind must have all of its fields");
    }

    #[test]
    fn a_cursor_is_a_number_only_if_it_prints_back_the_same() {
        for (cursor, json) in
            [(Cursor::from(12), "12"), (Cursor::new("012"), r#""012""#), (Cursor::new("a/b"), r#""a/b""#)]
        {
            assert_eq!(serde_json::to_string(&cursor).unwrap(), json);
            assert_eq!(serde_json::from_str::<Cursor>(json).unwrap(), cursor);
        }
    }
}

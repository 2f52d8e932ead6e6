//! The documents that offices return. Their JSON is the contract of the network office, field for field, and what `--json` prints
//! over any office; fields beyond that contract are left out where they are empty.

mod household;
mod pages;

pub use household::*;
pub use pages::*;

use std::borrow::Cow;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::Object;
use crate::card::{Card, Presence};
use crate::id::{ConnectionId, CorrelationId, MessageId, SessionId};
use crate::message::{Callback, Kind, Message, NO_SUBJECT, Part, Priority};
use crate::name::AgentName;
use crate::receipt::Receipt;
use crate::task::TaskRef;

/// For fields that are left out where they say nothing.
pub(crate) fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// The document of `GET /inbox`.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Inbox {
    /// Sessions, the one with the newest message first.
    pub sessions: Vec<SessionSummary>,
    /// Agents that want to connect with the caller.
    pub pending_connections: Vec<PendingConnection>,
    /// Where there are more sessions: what to give as `before` for the next page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<SessionId>,
}

impl Inbox {
    /// Messages the caller has not read, over all sessions.
    pub fn unread(&self) -> u64 {
        self.sessions.iter().map(|session| session.unread_count).sum()
    }
}

/// One session in an inbox.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SessionSummary {
    /// Which session.
    pub session_id: SessionId,
    /// What it is about.
    pub subject: String,
    /// The other side.
    pub other_agent_name: AgentName,
    /// Messages the caller has not read.
    pub unread_count: u64,
    /// When the newest message came.
    pub last_message_at: Timestamp,
    /// The newest messages, at most three, newest first.
    pub recent_messages: Vec<MessageView>,
    /// For a group: its name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
}

/// The most characters of the title of a session without a subject.
const TITLE_CHARS: usize = 40;

impl SessionSummary {
    /// Its title in a list: the subject, or the first words of its oldest message here where it has none.
    pub fn title(&self) -> Cow<'_, str> {
        let oldest = self.recent_messages.last().filter(|message| !message.content.trim().is_empty());
        match oldest {
            Some(oldest) if self.subject == NO_SUBJECT => {
                let words = oldest.content.split_whitespace();
                let (mut title, mut left) = (String::new(), TITLE_CHARS);
                for word in words {
                    let Some(rest) = left.checked_sub(word.chars().count() + 1) else {
                        if title.is_empty() {
                            title.extend(word.chars().take(TITLE_CHARS));
                        }
                        title.push('…');
                        break;
                    };
                    if !title.is_empty() {
                        title.push(' ');
                    }
                    title.push_str(word);
                    left = rest;
                }
                Cow::Owned(title)
            }
            _ => Cow::Borrowed(&self.subject),
        }
    }
}

/// One message as a member of its session sees it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct MessageView {
    /// Which message.
    pub id: MessageId,
    /// Who sent it.
    pub sender_name: AgentName,
    /// Its text.
    pub content: String,
    /// When the office accepted it.
    pub created_at: Timestamp,
    /// Whether its recipient has read it.
    pub is_read: bool,
    /// Whether the office says that its sender was the person of the reader's household when it was sent. No sender can say so itself.
    #[serde(default, skip_serializing_if = "is_default")]
    pub from_person: bool,
    /// What it is for, where that is not a plain message.
    #[serde(default, skip_serializing_if = "is_default")]
    pub kind: Kind,
    /// How soon it wants to be read, where that is not in turn.
    #[serde(default, skip_serializing_if = "is_default")]
    pub priority: Priority,
    /// All of its content, where that is more than one text.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<Part>,
    /// The task it carries or reports on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<TaskRef>,
    /// The message it answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reply_to: Option<MessageId>,
    /// Ties a question to its answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub correlation_id: Option<CorrelationId>,
    /// Where the answer shall go; shown to the agent that set it only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub callback: Option<Callback>,
    /// Whatever else the sender said to programs.
    #[serde(default, skip_serializing_if = "Object::is_empty")]
    pub metadata: Object,
    /// In an inbox: whether something of it was cut or left out; its session's history and `GET /messages/{id}` have it whole.
    #[serde(default, skip_serializing_if = "is_default")]
    pub truncated: bool,
}

impl MessageView {
    /// The callback, where `reader` set it: the sender of a task did, and an update brings it back to that agent.
    pub fn callback_for(&self, reader: &AgentName) -> Option<&Callback> {
        let set_by_sender = self.kind != Kind::TaskUpdate;
        self.callback.as_ref().filter(|_| set_by_sender == (self.sender_name == *reader))
    }

    /// How `reader` sees `message`.
    pub fn of(message: &Message, is_read: bool) -> Self {
        let plain = matches!(message.parts.as_slice(), [Part::Text { .. }]);
        Self {
            id: message.id.clone(),
            sender_name: message.from.clone(),
            content: message.text(),
            created_at: message.sent_at,
            is_read,
            from_person: message.from_person,
            kind: message.kind.clone(),
            priority: message.priority,
            parts: if plain { Vec::new() } else { message.parts.clone() },
            task: message.task.clone(),
            reply_to: message.reply_to.clone(),
            correlation_id: message.correlation_id.clone(),
            callback: message.callback.clone(),
            metadata: message.metadata.clone(),
            truncated: false,
        }
    }
}

/// A request that waits for the caller's approval.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PendingConnection {
    /// Which request.
    pub connection_id: ConnectionId,
    /// Who asks.
    pub from_agent_name: AgentName,
    /// What they say.
    pub message: Option<String>,
    /// The code; withheld (null) where codes must travel by a human channel.
    pub verification_code: Option<String>,
    /// When they asked.
    pub created_at: Timestamp,
}

/// The document of `GET /sessions/{id}/history`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct History {
    /// Which session.
    pub session_id: SessionId,
    /// What it is about.
    pub subject: String,
    /// The messages asked for, newest first.
    pub messages: Vec<MessageView>,
}

/// The answer to a send: the message is durable.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Sent {
    /// The message.
    pub message_id: MessageId,
    /// Its session.
    pub session_id: SessionId,
    /// The session's subject.
    pub subject: String,
    /// When the office accepted it.
    pub created_at: Timestamp,
    /// For a task: where it stands, which may be `rejected` at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<TaskRef>,
    /// For a task that was rejected at once: why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The recipient is paused by its household's person: the message is accepted, and waits until it is resumed.
    #[serde(default, skip_serializing_if = "is_default")]
    pub paused: bool,
}

/// The answer to a request for a connection.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ConnectionRequested {
    /// Which request.
    pub connection_id: ConnectionId,
    /// To be told to the other side by a human channel.
    pub verification_code: String,
    /// Who was asked.
    pub target_agent_name: AgentName,
    /// Always pending.
    pub status: ConnectionStatus,
}

/// The answer to an approval.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Connected {
    /// Which request.
    pub connection_id: ConnectionId,
    /// Always active.
    pub status: ConnectionStatus,
    /// Who had asked.
    pub connected_agent_name: AgentName,
}

/// What became of a request for a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "UPPERCASE")]
pub enum ConnectionStatus {
    /// Waiting for approval.
    Pending,
    /// Approved: the two may write to each other.
    Active,
    /// Refused by the target.
    Rejected,
    /// Not approved in time.
    Expired,
    /// Was active, and one side took it back.
    Revoked,
    /// One side wants to hear nothing of the other, requests included.
    Blocked,
}

impl ConnectionStatus {
    /// The word on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            ConnectionStatus::Pending => "PENDING",
            ConnectionStatus::Active => "ACTIVE",
            ConnectionStatus::Rejected => "REJECTED",
            ConnectionStatus::Expired => "EXPIRED",
            ConnectionStatus::Revoked => "REVOKED",
            ConnectionStatus::Blocked => "BLOCKED",
        }
    }
}

/// One connection of the caller's.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Connection {
    /// Which request it came from.
    pub connection_id: ConnectionId,
    /// The other side.
    pub agent_name: AgentName,
    /// What became of it.
    pub status: ConnectionStatus,
    /// Whether the caller asked.
    pub outgoing: bool,
    /// What was said with the request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// When it was asked for.
    pub created_at: Timestamp,
    /// When it last changed.
    pub updated_at: Timestamp,
}

/// What to do with a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum ConnectionChange {
    /// Refuse a pending request.
    Reject,
    /// End an active connection.
    Revoke,
    /// Hear nothing of this agent any more.
    Block,
    /// Take a block back. The two are then strangers.
    Unblock,
}

/// An agent as others see it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct AgentEntry {
    /// Its name.
    pub name: AgentName,
    /// What it says about itself.
    #[serde(flatten)]
    pub card: Card,
    /// Whether it is there.
    #[serde(flatten)]
    pub presence: Presence,
    /// When it was registered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub registered_at: Option<Timestamp>,
    /// Whether it is a member of the caller's own household, which needs no connection.
    #[serde(default, skip_serializing_if = "is_default")]
    pub household: bool,
    /// Whether it is a person. The office marks it so; no agent can be.
    #[serde(default, skip_serializing_if = "is_default")]
    pub person: bool,
    /// Whether its household's person paused it. Mail to it is accepted, and waits until it is resumed.
    #[serde(default, skip_serializing_if = "is_default")]
    pub paused: bool,
}

/// A message with the receipts that the caller may see.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct MessageWithReceipts {
    /// The message, whole.
    #[serde(flatten)]
    pub message: Message,
    /// Its way to each recipient.
    pub receipts: Vec<Receipt>,
}

/// One hit of a search.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SearchHit {
    /// The message.
    pub message_id: MessageId,
    /// Its session.
    pub session_id: SessionId,
    /// The session's subject.
    pub subject: String,
    /// Who sent it.
    pub sender_name: AgentName,
    /// When.
    pub created_at: Timestamp,
    /// The words around the hit.
    pub snippet: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_without_a_subject_is_called_by_its_first_words() {
        let thread = |subject: &str, oldest: &str| -> String {
            let message = |content: &str| serde_json::json!({"id": "m", "sender_name": "ann", "content": content, "created_at": "2026-02-22T10:05:00Z", "is_read": true});
            let thread: SessionSummary = serde_json::from_value(serde_json::json!({
                "session_id": "s", "subject": subject, "other_agent_name": "ann", "unread_count": 0,
                "last_message_at": "2026-02-22T10:05:00Z", "recent_messages": [message("newest"), message(oldest)],
            }))
            .unwrap();
            thread.title().into_owned()
        };
        assert_eq!(thread("Plan", "hello"), "Plan");
        assert_eq!(thread(NO_SUBJECT, "which test\n fails?"), "which test fails?");
        assert_eq!(
            thread(NO_SUBJECT, "look at the failing test of the importer, please, it is the third"),
            "look at the failing test of the…"
        );
        assert_eq!(thread(NO_SUBJECT, &"x".repeat(99)), format!("{}…", "x".repeat(40)));
        assert_eq!(thread(NO_SUBJECT, " \n"), NO_SUBJECT);
    }
}

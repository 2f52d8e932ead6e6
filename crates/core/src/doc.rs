//! The documents of offices: what they return, and the request bodies of the network office. Their JSON is the contract
//! of the network office, field for field, and answers are what `--json` prints over any office; fields beyond that
//! contract are left out where they are empty.

mod deserialize;
mod household;
mod pages;
mod problem;
mod requests;
mod send;

pub use deserialize::PlainName;
pub use household::*;
pub use pages::*;
pub use problem::*;
pub use requests::*;
pub use send::*;

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

/// For fields that are left out when they have their default value.
pub fn is_default<T: Default + PartialEq>(value: &T) -> bool {
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
    /// If there are more sessions: the value of `before` for the next page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<SessionId>,
}

impl Inbox {
    /// The number of unread messages in all sessions.
    pub fn unread(&self) -> u64 {
        self.sessions.iter().map(|session| session.unread_count).sum()
    }
}

/// One session in an inbox.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SessionSummary {
    /// The session's id.
    pub session_id: SessionId,
    /// Its subject.
    pub subject: String,
    /// The other agent.
    pub other_agent_name: AgentName,
    /// Messages the caller has not read.
    pub unread_count: u64,
    /// Time of the newest message.
    pub last_message_at: Timestamp,
    /// The newest messages, at most three, newest first.
    pub recent_messages: Vec<MessageView>,
    /// For a group: its name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// The person who ended it, if it has ended. Messages in it are refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_by: Option<AgentName>,
}

/// Maximum length of the title of a session without a subject.
const TITLE_CHARS: usize = 40;

impl SessionSummary {
    /// The title for a list: the subject, or without one the first words of the oldest message shown.
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
    /// The message's id.
    pub id: MessageId,
    /// The sender.
    pub sender_name: AgentName,
    /// Its text.
    pub content: String,
    /// When the office accepted it.
    pub created_at: Timestamp,
    /// Whether its recipient has read it.
    pub is_read: bool,
    /// Whether its sender was the person of the reader's household when it was sent. Set by the office, never by a
    /// sender.
    #[serde(default, skip_serializing_if = "is_default")]
    pub from_person: bool,
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
    /// Where the answer shall go; shown only to the agent that set it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub callback: Option<Callback>,
    /// Further data from the sender, for programs.
    #[serde(default, skip_serializing_if = "Object::is_empty")]
    pub metadata: Object,
    /// In an inbox: whether content was cut or left out. The session's history and `GET /messages/{id}` have all of it.
    #[serde(default, skip_serializing_if = "is_default")]
    pub truncated: bool,
}

impl MessageView {
    /// The callback, if `reader` set it: the sender of a task did, and an update carries it back.
    pub fn callback_for(&self, reader: &AgentName) -> Option<&Callback> {
        let set_by_sender = self.kind != Kind::TaskUpdate;
        self.callback.as_ref().filter(|_| set_by_sender == (self.sender_name == *reader))
    }

    /// The view of a message.
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

/// A connection request that waits for the caller's approval.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PendingConnection {
    /// The request's id.
    pub connection_id: ConnectionId,
    /// The agent that asks.
    pub from_agent_name: AgentName,
    /// Its introduction.
    pub message: Option<String>,
    /// The code; null where people have to pass codes on themselves.
    pub verification_code: Option<String>,
    /// When it was made.
    pub created_at: Timestamp,
}

/// The document of `GET /sessions/{id}/history`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct History {
    /// The session's id.
    pub session_id: SessionId,
    /// Its subject.
    pub subject: String,
    /// The messages asked for, newest first.
    pub messages: Vec<MessageView>,
    /// Whether the page ends early because of its size: the next one begins before the last message of this one.
    #[serde(default, skip_serializing_if = "is_default")]
    pub truncated: bool,
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
    /// For a task: its id and state, which may be `rejected` at once.
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
    /// The code, for people to pass on to the other side.
    pub verification_code: String,
    /// The agent that was asked.
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
    /// The agent that had asked.
    pub connected_agent_name: AgentName,
}

/// The state of a connection.
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
    /// Was active, and one side ended it.
    Revoked,
    /// One side blocked the other: messages and requests are refused.
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
    /// The id of its request.
    pub connection_id: ConnectionId,
    /// The other agent.
    pub agent_name: AgentName,
    /// Its state.
    pub status: ConnectionStatus,
    /// Whether the caller requested it.
    pub outgoing: bool,
    /// The introduction of the request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// The code that approves it. Only of a pending request that the caller made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verification_code: Option<String>,
    /// When it was requested.
    pub created_at: Timestamp,
    /// When it last changed.
    pub updated_at: Timestamp,
}

/// What to do with a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConnectionChange {
    /// Refuse a pending request.
    Reject,
    /// End an active connection.
    Revoke,
    /// Refuse everything from this agent.
    Block,
    /// Lift a block. The two are then not connected.
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
    /// Its presence.
    #[serde(flatten)]
    pub presence: Presence,
    /// When it was registered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub registered_at: Option<Timestamp>,
    /// Whether it is in the caller's household, so that no connection is needed.
    #[serde(default, skip_serializing_if = "is_default")]
    pub household: bool,
    /// Whether it is a person. Set by the office; no agent can be one.
    #[serde(default, skip_serializing_if = "is_default")]
    pub person: bool,
    /// Whether its household's person paused it. Mail to it is accepted and waits until it is resumed.
    #[serde(default, skip_serializing_if = "is_default")]
    pub paused: bool,
}

/// A message with the receipts that the caller may see.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct MessageWithReceipts {
    /// The whole message.
    #[serde(flatten)]
    pub message: Message,
    /// One receipt for each recipient.
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
    /// The sender.
    pub sender_name: AgentName,
    /// When it was sent.
    pub created_at: Timestamp,
    /// The text around the match.
    pub snippet: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_without_a_subject_is_titled_by_its_first_words() {
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

//! Responses with lists of documents, and documents of the network office alone.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::{AgentEntry, Connection, MessageWithReceipts, PendingConnection, SearchHit, Sent, is_default};
use crate::id::TaskId;
use crate::message::Message;
use crate::name::AgentName;
use crate::task::{Task, TaskState};
use crate::transcript::Line;

/// A page of the list of agents.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Agents {
    /// The agents, by name.
    pub agents: Vec<AgentEntry>,
    /// Where the next page begins, if there may be one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<AgentName>,
}

/// The caller's connections.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Connections {
    /// Ordered by their last change, newest first.
    pub connections: Vec<Connection>,
    /// Whether the list was cut at its maximum length.
    #[serde(default, skip_serializing_if = "is_default")]
    pub truncated: bool,
}

/// Connection requests that wait for the caller's approval.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Pending {
    /// The requests.
    pub pending_connections: Vec<PendingConnection>,
    /// Whether the list was cut at its maximum length.
    #[serde(default, skip_serializing_if = "is_default")]
    pub truncated: bool,
}

/// Messages that the caller has claimed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Claimed {
    /// The messages; empty if there are none to claim.
    pub messages: Vec<Message>,
}

/// How many messages were acknowledged.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Acknowledged {
    /// Those of them that were unread.
    pub acknowledged: u64,
}

/// The answer to a send to several recipients.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SentMany {
    /// One answer for each recipient, in their order.
    pub sent: Vec<Sent>,
}

/// A page of messages.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct MessagePage {
    /// The messages, newest first.
    pub messages: Vec<MessageWithReceipts>,
    /// Where the next page begins; `None` at the end.
    pub next: Option<u64>,
}

/// A page of an export of the caller's mail.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Exported {
    /// The messages, session by session; empty at the end.
    pub messages: Vec<MessageWithReceipts>,
}

/// The hits of a search.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Hits {
    /// Newest first.
    pub hits: Vec<SearchHit>,
    /// Whether the list was cut at its maximum length.
    #[serde(default, skip_serializing_if = "is_default")]
    pub truncated: bool,
}

/// The caller's tasks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Tasks {
    /// Newest first.
    pub tasks: Vec<Task>,
    /// Whether the list was cut at its maximum length.
    #[serde(default, skip_serializing_if = "is_default")]
    pub truncated: bool,
}

/// A chain of delegated tasks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Chain {
    /// From the first task on. Of tasks that the caller neither gave nor was given, only id and state.
    pub tasks: Vec<ChainTask>,
    /// Whether the list was cut at its maximum length.
    #[serde(default, skip_serializing_if = "is_default")]
    pub truncated: bool,
}

/// A task in a chain of delegated tasks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(untagged)]
pub enum ChainTask {
    /// One that the caller gave or was given.
    Own(Box<Task>),
    /// One between other agents.
    Other {
        /// The task's id.
        id: TaskId,
        /// Its state.
        state: TaskState,
    },
}

impl ChainTask {
    /// The task's id.
    pub fn id(&self) -> &TaskId {
        match self {
            ChainTask::Own(task) => &task.id,
            ChainTask::Other { id, .. } => id,
        }
    }
}

/// Lines of a transcript.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Lines {
    /// Oldest first.
    pub lines: Vec<NumberedLine>,
}

/// A line of a transcript with its number.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct NumberedLine {
    /// Its number, from 1.
    pub number: u64,
    /// The line.
    #[serde(flatten)]
    pub line: Line,
}

/// The result of appending a line to a transcript.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Appended {
    /// Its number, or that of the earlier line with its message id.
    pub number: u64,
    /// Whether there was such an earlier line.
    pub duplicate: bool,
}

/// What an agent may do with a transcript.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Access {
    /// Read it.
    Read,
    /// Read it and add to it.
    Write,
}

/// The caller's groups.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Groups {
    /// The groups that the caller is in or was invited to.
    pub groups: Vec<Group>,
    /// Whether the list was cut at its maximum length.
    #[serde(default, skip_serializing_if = "is_default")]
    pub truncated: bool,
}

/// A named set of agents that receive messages together.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Group {
    /// Its name, unique in the office.
    pub name: AgentName,
    /// The agent that created it and invites others.
    pub owner: AgentName,
    /// Its members, those who were only invited included.
    pub members: Vec<GroupMember>,
    /// When it was created.
    pub created_at: Timestamp,
}

/// One member of a group.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct GroupMember {
    /// The member's name.
    pub name: AgentName,
    /// Whether it accepted the invitation. Only then does it get the group's mail.
    pub joined: bool,
}

/// An agent as it sees itself.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Profile {
    /// Its public id.
    pub id: Uuid,
    /// The entry that others see.
    #[serde(flatten)]
    pub entry: AgentEntry,
    /// How to reach the owner.
    pub owner_contact: Option<String>,
    /// Whether agents that are not connected with it see it in the list of agents.
    pub discoverable: bool,
    /// The first characters of its key.
    pub api_key_prefix: String,
    /// Until when the previous key still works, if it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub previous_key_until: Option<Timestamp>,
    /// How much mail it has stored, and its limits.
    pub usage: OwnUsage,
    /// Whether operators of this office can read all mail, by an option that the server was started with.
    #[serde(default, skip_serializing_if = "is_default")]
    pub operators_read_mail: bool,
}

/// How much mail of an agent is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct OwnUsage {
    /// Messages that it sent, counted once for each recipient, and its transcript lines.
    pub messages: u64,
    /// Bytes of their content.
    pub bytes: u64,
    /// Maximum number of messages; missing if there is no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_messages: Option<u64>,
    /// Maximum number of bytes; missing if there is no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_bytes: Option<u64>,
}

/// A new agent with its key, which is shown only once.
// The client takes the key as a `SecretString`.
#[derive(Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Registered<Key = String> {
    /// Its id.
    pub id: Uuid,
    /// Its name.
    pub name: AgentName,
    /// Its key.
    #[cfg_attr(feature = "openapi", schema(value_type = String, pattern = "^amb_[0-9a-f]{64}$"))]
    pub api_key: Key,
    /// Whether operators of this office can read all mail, by an option that the server was started with.
    #[serde(default, skip_serializing_if = "is_default")]
    pub operators_read_mail: bool,
}

/// An agent's new key, which is shown only once.
#[derive(Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Rotated {
    /// The new key.
    #[cfg_attr(feature = "openapi", schema(pattern = "^amb_[0-9a-f]{64}$"))]
    pub api_key: String,
    /// Until when the old key works.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub previous_key_until: Option<Timestamp>,
}

/// A link that signs a browser in to the dashboard.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct DashboardLink {
    /// The address to open in a browser. Works once.
    pub url: String,
    /// Until when it works.
    pub expires_at: Timestamp,
}

/// How the office is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Health {
    /// `ok`.
    pub status: String,
    /// The version of the office.
    pub version: String,
    /// Mounted directories. What fails there stops no mail that stays here.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mounts: Vec<MountView>,
    /// Whether operators of this office can read all mail: it was started so.
    #[serde(default, skip_serializing_if = "is_default")]
    pub operators_read_mail: bool,
}

/// How a mounted directory is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct MountView {
    /// `mounted`; `waiting` for another process to let go of it; `failing` while something is tried again.
    pub state: String,
    /// Agents of the directory that the office knows.
    pub residents: u64,
    /// Agents of the office that the directory knows.
    pub guests: u64,
    /// Messages that wait for their recipient's consent.
    pub waiting: u64,
    /// Names under which no mail crosses: both sides have them, or they are reserved.
    pub collisions: u64,
}

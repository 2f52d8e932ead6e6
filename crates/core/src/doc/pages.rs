//! Responses that hold several documents, and documents that only a network office has.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::{AgentEntry, Connection, MessageWithReceipts, PendingConnection, SearchHit, Sent, is_default};
use crate::id::TaskId;
use crate::message::Message;
use crate::name::AgentName;
use crate::task::{Task, TaskState};
use crate::transcript::Line;

/// A page of the directory.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Agents {
    /// By name.
    pub agents: Vec<AgentEntry>,
    /// Where the next page begins, where there may be one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<AgentName>,
}

/// The caller's connections.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Connections {
    /// The one that changed last first.
    pub connections: Vec<Connection>,
    /// Whether there are more than one answer holds.
    #[serde(default, skip_serializing_if = "is_default")]
    pub truncated: bool,
}

/// Requests that wait for the caller.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Pending {
    /// The requests.
    pub pending_connections: Vec<PendingConnection>,
    /// Whether there are more than one answer holds.
    #[serde(default, skip_serializing_if = "is_default")]
    pub truncated: bool,
}

/// Messages that the caller may handle now.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Claimed {
    /// The messages; empty where there is nothing to take.
    pub messages: Vec<Message>,
}

/// How many messages were acknowledged.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Acknowledged {
    /// Those that were not read before.
    pub acknowledged: u64,
}

/// What was sent to several recipients.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SentMany {
    /// In the order of the recipients.
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

/// A page of the caller's mail.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Exported {
    /// Session by session; empty at the end.
    pub messages: Vec<MessageWithReceipts>,
}

/// What a search found.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Hits {
    /// Newest first.
    pub hits: Vec<SearchHit>,
    /// Whether there are more than one answer holds.
    #[serde(default, skip_serializing_if = "is_default")]
    pub truncated: bool,
}

/// The caller's tasks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Tasks {
    /// Newest first.
    pub tasks: Vec<Task>,
    /// Whether there are more than one answer holds.
    #[serde(default, skip_serializing_if = "is_default")]
    pub truncated: bool,
}

/// A chain of delegation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Chain {
    /// The first giver's first. Of tasks that the caller neither gave nor was given, the id and the state.
    pub tasks: Vec<ChainTask>,
    /// Whether there are more than one answer holds.
    #[serde(default, skip_serializing_if = "is_default")]
    pub truncated: bool,
}

/// A task in a chain of delegation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(untagged)]
pub enum ChainTask {
    /// One that the caller gave or was given.
    Own(Box<Task>),
    /// One between others.
    Other {
        /// Which task.
        id: TaskId,
        /// Where it stands.
        state: TaskState,
    },
}

impl ChainTask {
    /// Which task.
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

/// A line of a transcript with its place.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct NumberedLine {
    /// Its place, from 1.
    pub number: u64,
    /// What was said.
    #[serde(flatten)]
    pub line: Line,
}

/// What became of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Appended {
    /// Its place, or that of the line that had its message id before.
    pub number: u64,
    /// Whether it was there already.
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
    /// Those that the caller is in or was invited to.
    pub groups: Vec<Group>,
    /// Whether there are more than one answer holds.
    #[serde(default, skip_serializing_if = "is_default")]
    pub truncated: bool,
}

/// A named set of agents that are written to together.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Group {
    /// Its name, unique in the office.
    pub name: AgentName,
    /// Who made it and invites.
    pub owner: AgentName,
    /// Who is in it, or was invited.
    pub members: Vec<GroupMember>,
    /// When it was made.
    pub created_at: Timestamp,
}

/// One member of a group.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct GroupMember {
    /// Who.
    pub name: AgentName,
    /// Whether it agreed. Nobody gets a group's mail without having agreed.
    pub joined: bool,
}

/// An agent as it sees itself.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Profile {
    /// Its id for the world.
    pub id: Uuid,
    /// What others see.
    #[serde(flatten)]
    pub entry: AgentEntry,
    /// How to reach the owner.
    pub owner_contact: Option<String>,
    /// Whether agents that are not connected with it find it in the directory.
    pub discoverable: bool,
    /// The first characters of its key.
    pub api_key_prefix: String,
    /// Until when the key before this one still works, where it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub previous_key_until: Option<Timestamp>,
    /// How much mail it has stored, and how much it may.
    pub usage: OwnUsage,
    /// Whether operators of this office can read all mail: it was started so, and everybody is told.
    #[serde(default, skip_serializing_if = "is_default")]
    pub operators_read_mail: bool,
}

/// How much mail of an agent is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct OwnUsage {
    /// Messages that it sent, each as often as the agents it went to, and its lines of transcripts.
    pub messages: u64,
    /// Bytes of what they say.
    pub bytes: u64,
    /// The most messages it may have; missing where there is no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_messages: Option<u64>,
    /// The most bytes it may have; missing where there is no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_bytes: Option<u64>,
}

/// A registered agent. The key is shown this once.
#[derive(Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Registered {
    /// Its id.
    pub id: Uuid,
    /// Its name.
    pub name: AgentName,
    /// Its key: keep it, it is shown only once.
    #[cfg_attr(feature = "openapi", schema(pattern = "^amb_[0-9a-f]{64}$"))]
    pub api_key: String,
    /// Whether operators of this office can read all mail: it was started so, and everybody is told.
    #[serde(default, skip_serializing_if = "is_default")]
    pub operators_read_mail: bool,
}

/// The new key, shown this once.
#[derive(Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Rotated {
    /// The new key.
    #[cfg_attr(feature = "openapi", schema(pattern = "^amb_[0-9a-f]{64}$"))]
    pub api_key: String,
    /// Until when the old one works.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub previous_key_until: Option<Timestamp>,
}

/// A link that signs a browser in to the dashboard.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct DashboardLink {
    /// Where to go with a browser. Works once.
    pub url: String,
    /// Until when it works.
    pub expires_at: Timestamp,
}

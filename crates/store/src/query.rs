//! What the verbs beyond the contract take and give.

use amb_core::doc::{AgentEntry, MessageWithReceipts};
use amb_core::limits::MAX_INBOX_SESSIONS;
use amb_core::transcript::Line;
use amb_core::{AgentName, AllowFrom, CorrelationId, Kind, MessageId, SessionId, Task, TaskId, TaskState, Timestamp};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::error::Result;
use crate::{StoreError, row};

/// Which agents to list: by name, after one, so many.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentsPage {
    /// Only names after this one.
    pub after: Option<AgentName>,
    /// At most this many.
    pub limit: u32,
}

/// An agent as it sees itself.
#[derive(Debug, Clone, PartialEq, Serialize)]
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
    #[serde(skip_serializing_if = "Option::is_none")]
    pub previous_key_until: Option<Timestamp>,
    /// How much mail it has stored, and how much it may.
    pub usage: OwnUsage,
}

/// How much mail of an agent is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct OwnUsage {
    /// Messages that it sent, each as often as the agents it went to, and its lines of transcripts.
    pub messages: u64,
    /// Bytes of what they say.
    pub bytes: u64,
    /// The most messages it may have; missing where there is no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_messages: Option<u64>,
    /// The most bytes it may have; missing where there is no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_bytes: Option<u64>,
}

/// What to change of one's own profile; what is `None` stays.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
pub struct ProfilePatch {
    /// A sentence or two.
    pub description: Option<String>,
    /// What it can do.
    pub capabilities: Option<Vec<String>>,
    /// Whom it hears.
    pub allow_from: Option<AllowFrom>,
    /// How many tasks it works on at once.
    pub max_concurrent_tasks: Option<u32>,
    /// Whether strangers find it.
    pub discoverable: Option<bool>,
}

/// Which sessions of an inbox to show: the one with the newest message first, so many.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InboxPage {
    /// Only those with something unread.
    pub unread_only: bool,
    /// Only those after this one: the `next` of the page before.
    pub before: Option<SessionId>,
    /// At most this many.
    pub limit: u32,
}

impl InboxPage {
    /// The first page, of the usual size.
    pub fn first(unread_only: bool) -> Self {
        Self { unread_only, before: None, limit: MAX_INBOX_SESSIONS }
    }
}

/// Which of the messages that came to the caller to list, newest first. All conditions hold together.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct MessageQuery {
    /// Only what was not read.
    pub unread: bool,
    /// Only what a consumer of the caller's holds at this moment and has not read.
    pub claimed_at: Option<Timestamp>,
    /// Only in this session.
    pub session: Option<SessionId>,
    /// Only from this agent.
    pub from: Option<AgentName>,
    /// Only of this kind.
    pub kind: Option<Kind>,
    /// Only with this correlation id.
    pub correlation_id: Option<CorrelationId>,
    /// Only before this place in the caller's log: the `next` of the page before.
    pub before: Option<u64>,
    /// At most this many.
    pub limit: u32,
}

/// A page of messages.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct MessagePage {
    /// The messages, newest first.
    pub messages: Vec<MessageWithReceipts>,
    /// Where the next page begins; `None` at the end.
    pub next: Option<u64>,
}

/// A task in a chain of delegation.
#[derive(Debug, Clone, PartialEq, Serialize)]
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

/// A line of a transcript with its place.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct NumberedLine {
    /// Its place, from 1.
    pub number: u64,
    /// What was said.
    #[serde(flatten)]
    pub line: Line,
}

impl NumberedLine {
    /// A line as it is kept, with the author that the office knows.
    pub(crate) fn read(number: u64, line: &str, author: &str) -> Result<Self> {
        let mut line: Line = serde_json::from_str(line).map_err(StoreError::internal)?;
        line.author = Some(row::name(author)?);
        Ok(Self { number, line })
    }
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

/// Which of the caller's mail to take along, session by session.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ExportQuery {
    /// Only what comes after this message: the last one of the page before.
    pub after: Option<MessageId>,
    /// Only what was sent at or after this moment.
    pub since: Option<Timestamp>,
    /// At most this many.
    pub limit: u32,
}

/// How far a round of removing old mail has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Removed {
    /// Messages that are gone.
    pub messages: u64,
    /// Where to go on; `None` at the end of the round.
    pub next: Option<ReadPlace>,
}

/// A place in the order in which mail was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReadPlace {
    pub(crate) at: Timestamp,
    pub(crate) agent: i64,
    pub(crate) number: i64,
}

/// Messages noted as handed over by one call of [`Store::delivered`](crate::Store::delivered).
pub(crate) const MAX_HANDED: usize = 1_000;

/// How far entries were noted as handed over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Handed {
    /// Messages for which that is new.
    pub messages: u64,
    /// Everything up to this number is noted.
    pub reached: u64,
}

impl Handed {
    /// After these messages, in the order of the log, were noted on the way to `up_to`.
    pub(crate) fn after(messages: u64, numbers: impl ExactSizeIterator<Item = u64>, up_to: u64) -> Self {
        let full = numbers.len() >= MAX_HANDED;
        Self { messages, reached: numbers.last().filter(|_| full).unwrap_or(up_to) }
    }
}

//! Types of the dashboard.

use amb_core::doc::{Connection, MessageWithReceipts};
use amb_core::transcript::TranscriptKey;
use amb_core::wake::WakeSession;
use amb_core::{AgentName, Card, Kind, MessageId, Presence, SessionId, Task, TaskId, TaskState, Timestamp, Usage};

use crate::types::{Agent, AgentKey, KeyHash};

/// Most members of a household that are listed.
pub const MAX_MEMBERS: usize = 1_000;
/// Most messages of a conversation that are counted.
pub const MAX_COUNTED: u32 = 1_000;

/// The key of a household within one store, as [`AgentKey`] is for an agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct HouseholdKey(pub(crate) i64);

/// The signed-in viewer.
#[derive(Debug, Clone)]
pub struct Viewer {
    /// The person, or the operator.
    pub agent: Agent,
    /// The household whose person this is, if any.
    pub household: Option<HouseholdKey>,
    /// Whether that is the first household of the office, whose owner set the office up.
    pub first_household: bool,
    /// Whether this is an operator, who sees the office's health.
    pub operator: bool,
}

/// A new sign-in link, or a new browser session.
#[derive(Debug, Clone, Copy)]
pub struct SignIn {
    /// The hash of its secret.
    pub hash: KeyHash,
    /// When it expires.
    pub until: Timestamp,
}

/// A signed-in browser.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Browser {
    /// Who is signed in.
    pub agent: AgentKey,
    /// The key that the link was made with. The session ends with it.
    pub key: KeyHash,
    /// When it expires.
    pub until: Timestamp,
}

/// An agent of a household.
#[derive(Debug, Clone)]
pub struct Member {
    /// Its key in this store.
    pub key: AgentKey,
    /// Its name.
    pub name: AgentName,
    /// What it says about itself.
    pub card: Card,
    /// Its presence.
    pub presence: Presence,
    /// When it was registered.
    pub registered_at: Timestamp,
    /// Whether it is the person.
    pub person: bool,
    /// The number of its unread messages.
    pub unread: u64,
    /// The task it works on, and its subject.
    pub working_on: Option<(TaskId, String)>,
    /// The person who paused it, if it is paused.
    pub paused_by: Option<AgentName>,
}

/// What needs a person's attention.
#[derive(Debug, Clone, Default)]
pub struct Needs {
    /// Pending connection requests to agents of the household, oldest first.
    pub requests: Vec<WaitingRequest>,
    /// Open tasks past their deadline, and tasks that were rejected or failed recently.
    pub tasks: Vec<Task>,
    /// Agents with mail that is unread for long, since when, longest first.
    pub unread: Vec<(AgentName, Timestamp)>,
    /// Agents with unread mail whose clients do not wake up, by name.
    pub unwoken: Vec<(AgentName, WakeSession)>,
}

/// A pending connection request to an agent of the household.
#[derive(Debug, Clone)]
pub struct WaitingRequest {
    /// The agent of the household.
    pub agent: AgentName,
    /// The requester.
    pub from: AgentName,
    /// The message of the request.
    pub intro: Option<String>,
    /// When it was made.
    pub created_at: Timestamp,
    /// When it expires.
    pub expires_at: Option<Timestamp>,
}

/// A message in one line.
#[derive(Debug, Clone)]
pub struct SaidLine {
    /// The message.
    pub id: MessageId,
    /// Its conversation.
    pub session: SessionId,
    /// The subject of the conversation.
    pub subject: String,
    /// The sender.
    pub from: AgentName,
    /// The recipient, or the group.
    pub to: String,
    /// When it was sent.
    pub at: Timestamp,
    /// Its kind.
    pub kind: Kind,
    /// The beginning of its text.
    pub gist: String,
}

/// A filter of conversations.
#[derive(Debug, Clone, Default)]
pub struct ConversationQuery {
    /// Only of this agent.
    pub agent: Option<AgentName>,
    /// Only between `agent` and this one.
    pub with: Option<AgentName>,
    /// Only those with mail that an agent of the household has not read.
    pub unread: bool,
    /// Only those whose subject contains this, in any case.
    pub subject: Option<String>,
    /// Only those whose newest message is older than this one: the last of the previous page.
    pub before: Option<MessageId>,
    /// At most this many.
    pub limit: u32,
}

/// A conversation in one line.
#[derive(Debug, Clone)]
pub struct ConversationLine {
    /// Its id.
    pub id: SessionId,
    /// Its subject.
    pub subject: String,
    /// Its initiator and the other agent; only the initiator in a group.
    pub between: Vec<AgentName>,
    /// The group, if it is one of a group.
    pub group: Option<String>,
    /// The number of messages, up to [`MAX_COUNTED`].
    pub messages: u64,
    /// The number of messages that agents of the household have not read.
    pub unread: u64,
    /// The person who ended it, if it has ended.
    pub ended_by: Option<AgentName>,
    /// The newest message.
    pub last: SaidLine,
}

/// A page of a conversation.
#[derive(Debug, Clone)]
pub struct Conversation {
    /// Its id.
    pub id: SessionId,
    /// Its subject.
    pub subject: String,
    /// Its members, the initiator first.
    pub members: Vec<AgentName>,
    /// The group, if it is one of a group.
    pub group: Option<String>,
    /// Its messages, oldest first.
    pub messages: Vec<MessageWithReceipts>,
    /// Whether there are older ones.
    pub older: bool,
    /// Its tasks, newest first.
    pub tasks: Vec<Task>,
    /// The person who ended it, if it has ended.
    pub ended_by: Option<AgentName>,
}

/// Tasks in one state.
#[derive(Debug, Clone)]
pub struct Lane {
    /// The state.
    pub state: TaskState,
    /// The number of tasks in this state.
    pub count: u64,
    /// Those that changed last, newest first.
    pub tasks: Vec<Task>,
}

/// A connection of an agent of the household.
#[derive(Debug, Clone)]
pub struct HouseholdConnection {
    /// The agent of the household.
    pub agent: AgentName,
    /// Its connection, with the code of its own request until that expires.
    pub connection: Connection,
}

/// A transcript that an agent of the household owns or may read.
#[derive(Debug, Clone)]
pub struct TranscriptLine {
    /// Its owner.
    pub owner: AgentName,
    /// Its key.
    pub key: TranscriptKey,
    /// The number of lines.
    pub lines: u64,
    /// When it was created.
    pub created_at: Timestamp,
}

/// What only the owner of an agent sees.
#[derive(Debug, Clone)]
pub struct MemberDetails {
    /// The agent.
    pub member: Member,
    /// The first characters of its key.
    pub key_prefix: String,
    /// Until when its previous key is valid.
    pub previous_key_until: Option<Timestamp>,
    /// Whether it is discoverable.
    pub discoverable: bool,
    /// How much it stores.
    pub usage: Usage,
    /// The wake-ups of its client sessions, the last report first.
    pub wake: Vec<WakeSession>,
}

/// The size of the office.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct OfficeSize {
    /// Bytes of the database.
    pub database_bytes: u64,
    /// Unread messages, counted up to a bound.
    pub unread: u64,
    /// Agents, counted up to a bound.
    pub agents: u64,
}

//! What the pages for people show.

use amb_core::doc::{Connection, MessageWithReceipts};
use amb_core::transcript::TranscriptKey;
use amb_core::wake::WakeSession;
use amb_core::{AgentName, Card, Kind, MessageId, Presence, SessionId, Task, TaskId, TaskState, Timestamp, Usage};

use crate::types::{Agent, AgentKey, KeyHash};

/// Members of a household that are listed at most.
pub const MAX_MEMBERS: usize = 1_000;
/// Messages of a conversation that are counted at most.
pub const MAX_COUNTED: u32 = 1_000;

/// A household within one store, as [`AgentKey`] is an agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct HouseholdKey(pub(crate) i64);

/// Who looks.
#[derive(Debug, Clone)]
pub struct Viewer {
    /// The person, or the operator.
    pub agent: Agent,
    /// The household whose person this is.
    pub household: Option<HouseholdKey>,
    /// Whether that is the first household of the office, whose owner is who set it up.
    pub first_household: bool,
    /// Whether this agent sees the office's health.
    pub operator: bool,
}

/// A sign-in that is about to begin: a link, or the browser that used it.
#[derive(Debug, Clone, Copy)]
pub struct SignIn {
    /// The hash of its secret.
    pub hash: KeyHash,
    /// When it is over.
    pub until: Timestamp,
}

/// A browser that is signed in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Browser {
    /// Whose.
    pub agent: AgentKey,
    /// The key that the link was made with; when that ends, so does this.
    pub key: KeyHash,
    /// When it is over.
    pub until: Timestamp,
}

/// An agent of a household.
#[derive(Debug, Clone)]
pub struct Member {
    /// Its number here.
    pub key: AgentKey,
    /// Its name.
    pub name: AgentName,
    /// What it says about itself.
    pub card: Card,
    /// Whether it is there.
    pub presence: Presence,
    /// When it was registered.
    pub registered_at: Timestamp,
    /// Whether it is the person.
    pub person: bool,
    /// Messages that it has not read.
    pub unread: u64,
    /// What it works on.
    pub working_on: Option<(TaskId, String)>,
    /// The person who paused it.
    pub paused_by: Option<AgentName>,
}

/// What waits for a decision or has gone wrong.
#[derive(Debug, Clone, Default)]
pub struct Needs {
    /// Requests for connections that wait for an agent of the household, oldest first.
    pub requests: Vec<WaitingRequest>,
    /// Open tasks past their deadline, and tasks that were rejected or failed lately.
    pub tasks: Vec<Task>,
    /// Agents whose mail has been unread for long, since when, longest first.
    pub unread: Vec<(AgentName, Timestamp)>,
    /// Agents with unread mail whose clients were rung in vain, by name.
    pub unwoken: Vec<(AgentName, WakeSession)>,
}

/// A request for a connection with an agent of the household.
#[derive(Debug, Clone)]
pub struct WaitingRequest {
    /// Who is asked.
    pub agent: AgentName,
    /// Who asks.
    pub from: AgentName,
    /// What is said with it.
    pub intro: Option<String>,
    /// When it was made.
    pub created_at: Timestamp,
    /// When it ends.
    pub expires_at: Option<Timestamp>,
}

/// Something that was said, in one line.
#[derive(Debug, Clone)]
pub struct SaidLine {
    /// Which message.
    pub id: MessageId,
    /// Its conversation.
    pub session: SessionId,
    /// What that is about.
    pub subject: String,
    /// Who said it.
    pub from: AgentName,
    /// To whom; the group's name in a group.
    pub to: String,
    /// When.
    pub at: Timestamp,
    /// What it is for.
    pub kind: Kind,
    /// The first of its text.
    pub gist: String,
}

/// Which conversations to list, the one with the newest message first.
#[derive(Debug, Clone, Default)]
pub struct ConversationQuery {
    /// Only of this agent.
    pub agent: Option<AgentName>,
    /// Only between `agent` and this one.
    pub with: Option<AgentName>,
    /// Only those with something that an agent of the household has not read.
    pub unread: bool,
    /// Only those whose subject contains this, whatever the case of its letters.
    pub subject: Option<String>,
    /// Only those whose newest message is older than this one: the last of the page before.
    pub before: Option<MessageId>,
    /// At most this many.
    pub limit: u32,
}

/// A conversation, in one line.
#[derive(Debug, Clone)]
pub struct ConversationLine {
    /// Which one.
    pub id: SessionId,
    /// What it is about.
    pub subject: String,
    /// Who began it, and the other; of a group its owner alone.
    pub between: Vec<AgentName>,
    /// The group.
    pub group: Option<String>,
    /// How many messages it has; [`MAX_COUNTED`] says that many or more.
    pub messages: u64,
    /// How many of them an agent of the household has not read.
    pub unread: u64,
    /// The person who ended it.
    pub ended_by: Option<AgentName>,
    /// The newest message.
    pub last: SaidLine,
}

/// A page of a conversation.
#[derive(Debug, Clone)]
pub struct Conversation {
    /// Which one.
    pub id: SessionId,
    /// What it is about.
    pub subject: String,
    /// Who is in it, who began it first.
    pub members: Vec<AgentName>,
    /// The group.
    pub group: Option<String>,
    /// Its messages, oldest first.
    pub messages: Vec<MessageWithReceipts>,
    /// Whether there are older ones.
    pub older: bool,
    /// Tasks that were given in it, newest first.
    pub tasks: Vec<Task>,
    /// The person who ended it.
    pub ended_by: Option<AgentName>,
}

/// Tasks in one state.
#[derive(Debug, Clone)]
pub struct Lane {
    /// The state.
    pub state: TaskState,
    /// How many there are.
    pub count: u64,
    /// The ones that changed last, newest first.
    pub tasks: Vec<Task>,
}

/// A connection of an agent of the household.
#[derive(Debug, Clone)]
pub struct HouseholdConnection {
    /// The agent of the household.
    pub agent: AgentName,
    /// What it is connected with, and how.
    pub connection: Connection,
}

/// A transcript that an agent of the household owns or may read.
#[derive(Debug, Clone)]
pub struct TranscriptLine {
    /// Whose it is.
    pub owner: AgentName,
    /// Its key.
    pub key: TranscriptKey,
    /// How many lines it has.
    pub lines: u64,
    /// When it was begun.
    pub created_at: Timestamp,
}

/// What only the owner of an agent sees of it.
#[derive(Debug, Clone)]
pub struct MemberDetails {
    /// The agent.
    pub member: Member,
    /// The first characters of its key.
    pub key_prefix: String,
    /// Until when the key before this one works.
    pub previous_key_until: Option<Timestamp>,
    /// Whether strangers find it.
    pub discoverable: bool,
    /// What it has stored.
    pub usage: Usage,
    /// How waking its clients stands, the session that was reported last first.
    pub wake: Vec<WakeSession>,
}

/// How large the office is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct OfficeSize {
    /// Bytes of the database.
    pub database_bytes: u64,
    /// Messages that nobody has read; counted up to a bound.
    pub unread: u64,
    /// Agents.
    pub agents: u64,
}

//! What the pages for people read: one household at a time, each page from indexes.
//!
//! A person sees the agents of their household and what was sent by them or came to them, as those agents see it. Nothing here
//! marks mail as read.

use amb_core::doc::{Connection, Group, MessageWithReceipts, NumberedLine};
use amb_core::limits::HEARTBEAT_TIMEOUT;
use amb_core::transcript::TranscriptKey;
use amb_core::{
    AgentName, Card, Kind, MessageId, Presence, SessionId, Status, Task, TaskId, TaskState, Timestamp, Usage,
};
use async_trait::async_trait;
use uuid::Uuid;

use crate::error::Result;
use crate::row;
use crate::types::{Agent, AgentKey, KeyHash};

/// Members of a household that are listed at most.
pub const MAX_MEMBERS: usize = 1_000;
/// Messages of a conversation that are counted at most.
pub const MAX_COUNTED: u32 = 1_000;
/// Sign-in links of one person that wait at most; the oldest goes.
pub(crate) const MAX_LINKS: u32 = 8;
/// Browsers in which one person is signed in at most; the one that signed in first goes.
pub(crate) const MAX_BROWSERS: u32 = 32;

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

/// What the pages for people read and remember.
#[async_trait]
pub trait Dashboard: Send + Sync {
    // Signing in.

    /// Notes a link for the agent that came with this key. Of many that wait the oldest go.
    async fn open_link(&self, agent: &Agent, key: KeyHash, link: SignIn, now: Timestamp) -> Result<()>;

    /// Uses a link up, and notes the browser that did. `false` where there is no such link, or no longer.
    async fn use_link(&self, link: KeyHash, browser: SignIn, now: Timestamp) -> Result<bool>;

    /// The browser with this secret, where it is signed in.
    async fn browser(&self, hash: KeyHash, now: Timestamp) -> Result<Option<Browser>>;

    /// Signs a browser out.
    async fn sign_out(&self, hash: KeyHash) -> Result<()>;

    /// Who this is to the pages.
    async fn viewer(&self, agent: &Agent) -> Result<Viewer>;

    /// Says whether an agent sees the office's health. `not_found` where there is none of this name.
    async fn set_operator(&self, name: &AgentName, operator: bool, now: Timestamp) -> Result<()>;

    // What a household sees.

    /// Its agents by name, [`MAX_MEMBERS`] at most.
    async fn members(&self, household: HouseholdKey, now: Timestamp) -> Result<Vec<Member>>;

    /// One of its agents, for whoever acts in its name. `not_found` where there is none of this name in it.
    async fn member(&self, household: HouseholdKey, name: &AgentName, now: Timestamp)
    -> Result<(Agent, MemberDetails)>;

    /// What needs a person.
    async fn needs(&self, household: HouseholdKey, now: Timestamp) -> Result<Needs>;

    /// What was said last, newest first.
    async fn said(&self, household: HouseholdKey, limit: u32) -> Result<Vec<SaidLine>>;

    /// Conversations, the one with the newest message first.
    async fn conversations(&self, household: HouseholdKey, query: ConversationQuery) -> Result<Vec<ConversationLine>>;

    /// What was said with these words, newest first: looked for among the newest hits of all households, so that what is
    /// rare in this one may not be found among words that are common in all.
    async fn find_said(&self, household: HouseholdKey, text: &str, limit: u32) -> Result<Vec<SaidLine>>;

    /// A page of a conversation, up to the message before this one. `not_found` where nobody of the household is in it.
    async fn conversation(
        &self,
        household: HouseholdKey,
        session: &SessionId,
        before: Option<&MessageId>,
        limit: u32,
    ) -> Result<Conversation>;

    /// One message that an agent of the household sent or received.
    async fn mail(&self, household: HouseholdKey, id: &MessageId) -> Result<MessageWithReceipts>;

    /// Its tasks by state, `each` of a state at most.
    async fn board(&self, household: HouseholdKey, each: u32) -> Result<Vec<Lane>>;

    /// A task with those it is a piece of and its own pieces, as far as they concern the household; the task itself first.
    async fn chain(&self, household: HouseholdKey, id: &TaskId) -> Result<Vec<Task>>;

    /// The connections of its agents, the one that changed last first.
    async fn links(&self, household: HouseholdKey, limit: u32) -> Result<Vec<HouseholdConnection>>;

    /// The groups that its agents are in.
    async fn member_groups(&self, household: HouseholdKey) -> Result<Vec<Group>>;

    /// The transcripts that its agents own or may read.
    async fn transcripts(&self, household: HouseholdKey, limit: u32) -> Result<Vec<TranscriptLine>>;

    /// The last lines of a transcript before a place, oldest first.
    async fn transcript_lines(
        &self,
        household: HouseholdKey,
        owner: &AgentName,
        key: &TranscriptKey,
        before: Option<u64>,
        limit: u32,
    ) -> Result<Vec<NumberedLine>>;

    // The office.

    /// How large it is.
    async fn size(&self) -> Result<OfficeSize>;
}

/// Unread mail is a person's business after this long.
pub(crate) const UNREAD_FOR_LONG: std::time::Duration = std::time::Duration::from_secs(60 * 60);
/// Tasks that ended badly are a person's business for this long.
pub(crate) const ENDED_LATELY: std::time::Duration = std::time::Duration::from_secs(24 * 60 * 60);
/// Of each kind, what needs a person is listed up to this many.
pub(crate) const MAX_NEEDS: i64 = 20;
/// Characters of a message in a line.
pub(crate) const GIST: i64 = 200;
/// Hits of a search that are looked through for those of the household.
pub(crate) const MAX_HITS: i64 = 400;
/// Unread messages of the office that are counted.
pub(crate) const MAX_UNREAD: i64 = 100_000;
/// The states of the board, in the order of its lanes.
pub(crate) const LANES: [TaskState; 6] = [
    TaskState::Pending,
    TaskState::Accepted,
    TaskState::Working,
    TaskState::Completed,
    TaskState::Rejected,
    TaskState::Failed,
];

/// A member as a backend reads it. JSON columns are still text.
pub(crate) struct MemberRow {
    pub(crate) key: i64,
    pub(crate) name: String,
    pub(crate) description: String,
    pub(crate) capabilities: String,
    pub(crate) allow_from: String,
    pub(crate) max_concurrent_tasks: i64,
    pub(crate) created_at: Timestamp,
    pub(crate) last_seen: Option<Timestamp>,
    pub(crate) here: Option<bool>,
    pub(crate) person: bool,
    pub(crate) unread: i64,
    pub(crate) task: Option<(Uuid, Option<String>)>,
}

impl MemberRow {
    pub(crate) fn member(self, now: Timestamp) -> Result<Member> {
        let claimed = if self.here.unwrap_or(false) { Status::Idle } else { Status::Offline };
        let current = self.task.iter().map(|(id, _)| TaskId::from(*id)).collect();
        Ok(Member {
            key: AgentKey(self.key),
            name: row::name(&self.name)?,
            card: Card {
                description: self.description,
                capabilities: row::parse(Some(self.capabilities))?.unwrap_or_default(),
                allow_from: row::parse(Some(self.allow_from))?.unwrap_or_default(),
                max_concurrent_tasks: u32::try_from(self.max_concurrent_tasks).unwrap_or(0),
            },
            presence: Presence::at(now, claimed, self.last_seen, current, HEARTBEAT_TIMEOUT),
            registered_at: self.created_at,
            person: self.person,
            unread: u64::try_from(self.unread).unwrap_or(0),
            working_on: self.task.map(|(id, subject)| (id.into(), subject.unwrap_or_else(|| "a task".to_owned()))),
        })
    }
}

/// A line of what was said, as a backend reads it.
pub(crate) struct SaidRow {
    pub(crate) id: Uuid,
    pub(crate) session: Uuid,
    pub(crate) subject: String,
    pub(crate) from: String,
    /// The group, else the other side.
    pub(crate) to: Option<String>,
    pub(crate) at: Timestamp,
    pub(crate) kind: Option<String>,
    pub(crate) gist: String,
}

impl SaidRow {
    pub(crate) fn line(self) -> Result<SaidLine> {
        Ok(SaidLine {
            id: self.id.into(),
            session: self.session.into(),
            subject: self.subject,
            from: row::name(&self.from)?,
            to: self.to.unwrap_or_default(),
            at: self.at,
            kind: row::kind(self.kind.as_deref())?,
            gist: self.gist,
        })
    }
}

/// The hash of a key that is kept as hex.
pub(crate) fn key_hash(hex: &str) -> Result<KeyHash> {
    let mut bytes = [0; 32];
    hex::decode_to_slice(hex, &mut bytes).map_err(crate::StoreError::internal)?;
    Ok(KeyHash(bytes))
}

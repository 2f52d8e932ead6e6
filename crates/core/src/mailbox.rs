//! The interface of an office, as one agent uses it.
//!
//! A [`Mailbox`] is bound to one agent, so that no verb takes a sender's name and nobody can act for another. A
//! directory, a server's client and the in-memory office of the tests implement it; the command line, MCP and the
//! bridges are written once against it.
//!
//! Where an office has no such concept (connections in a directory: `allow_from` decides there) the verb returns
//! [`Code::Unsupported`](crate::Code::Unsupported) and says what there is instead.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use crate::card::Card;
use crate::doc::{
    AgentEntry, Connected, Connection, ConnectionChange, ConnectionRequested, History, Household, Inbox,
    MessageWithReceipts, SearchHit, Sent,
};
use crate::draft::Draft;
use crate::error::OfficeError;
use crate::event::{Cursor, EventPage};
use crate::id::{MessageId, SessionId, TaskId};
use crate::limits::{DEFAULT_HISTORY, MAX_HISTORY};
use crate::message::Message;
use crate::name::AgentName;
use crate::task::{Task, TaskState};
use crate::transcript::{Line, TranscriptKey};
use crate::wake::WakeReport;

/// The result of a verb.
pub type Result<T, E = OfficeError> = std::result::Result<T, E>;

/// Which part of a session to read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HistoryPage {
    /// How many messages, 1–50.
    pub limit: u32,
    /// Only messages before this one.
    pub before: Option<MessageId>,
}

impl Default for HistoryPage {
    fn default() -> Self {
        Self { limit: DEFAULT_HISTORY, before: None }
    }
}

impl HistoryPage {
    /// The newest `limit` messages.
    pub fn newest(limit: u32) -> Result<Self> {
        if limit == 0 || limit > MAX_HISTORY {
            return Err(OfficeError::invalid(format!("limit is 1 to {MAX_HISTORY}, not {limit}")));
        }
        Ok(Self { limit, before: None })
    }
}

/// Which tasks to list.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TaskFilter {
    /// Only tasks the caller gave (`Some(true)`) or was given (`Some(false)`).
    pub owned: Option<bool>,
    /// Only tasks in this state.
    pub state: Option<TaskState>,
    /// Only tasks that have not ended.
    pub open: bool,
}

impl TaskFilter {
    /// Whether the filter selects this task of `me`.
    pub fn wants(&self, me: &AgentName, task: &Task) -> bool {
        self.owned.is_none_or(|owned| owned == (task.owner == *me))
            && self.state.is_none_or(|state| state == task.state)
            && !(self.open && task.state.is_terminal())
    }
}

/// How a consumer claims messages from a mailbox that others may be claiming from too.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClaimRequest {
    /// At most this many messages.
    pub limit: usize,
    /// Whether to order by priority before time.
    pub urgent_first: bool,
    /// How long the claim lasts. Ignored by a directory with kernel locks, which end with the process.
    pub lease: Duration,
}

impl Default for ClaimRequest {
    fn default() -> Self {
        Self { limit: 1, urgent_first: false, lease: Duration::from_secs(300) }
    }
}

/// A search of the caller's own messages. All conditions must hold.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SearchQuery {
    /// Words, and "phrases in quotes".
    pub text: String,
    /// Only from this agent.
    pub from: Option<AgentName>,
    /// Only in sessions whose subject has these words.
    pub subject: Option<String>,
    /// Only at or after this moment.
    pub after: Option<jiff::Timestamp>,
    /// Only before this moment.
    pub before: Option<jiff::Timestamp>,
    /// At most this many hits.
    pub limit: Option<u32>,
}

/// One agent's mailbox at an office. See the [module](self).
#[async_trait]
pub trait Mailbox: Send + Sync {
    /// The agent that this mailbox belongs to.
    fn me(&self) -> &AgentName;

    /// Type and location of the office, for people: `directory /home/ann/.nanobot/mailboxes`.
    fn describe(&self) -> String;

    // Agents.

    /// Registers the caller's card, or replaces it.
    async fn register(&self, card: Card) -> Result<AgentEntry>;

    /// All agents that the caller may see, by name.
    async fn agents(&self) -> Result<Vec<AgentEntry>>;

    /// The agent of this name, if the caller may see it.
    async fn agent(&self, name: &AgentName) -> Result<Option<AgentEntry>> {
        Ok(self.agents().await?.into_iter().find(|agent| agent.name == *name))
    }

    /// Whether the caller is paused by the person of its household: its messages are held back, and no client is rung
    /// for them.
    async fn is_paused(&self) -> Result<bool> {
        Ok(false)
    }

    /// Reports that the caller is alive.
    async fn heartbeat(&self) -> Result<()>;

    /// Marks the caller as offline; its messages are kept.
    async fn leave(&self) -> Result<()>;

    /// The household that the caller is in: one owner's agents and that person.
    async fn household(&self) -> Result<Household> {
        Err(OfficeError::unsupported(
            "this office has no household: its agents all write to each other, as far as their allow_from goes",
        ))
    }

    // Connections.

    /// Asks another agent for a connection.
    async fn connect(&self, target: &AgentName, intro: Option<String>) -> Result<ConnectionRequested> {
        let _ = (target, intro);
        Err(no_connections())
    }

    /// Approves the request that has this code.
    async fn approve(&self, code: &str) -> Result<Connected> {
        let _ = code;
        Err(no_connections())
    }

    /// All of the caller's connections.
    async fn connections(&self) -> Result<Vec<Connection>> {
        Err(no_connections())
    }

    /// Rejects, revokes, blocks or unblocks.
    async fn change_connection(&self, peer: &AgentName, change: ConnectionChange) -> Result<Connection> {
        let _ = (peer, change);
        Err(no_connections())
    }

    // Messages.

    /// Sends a message. When this returns, it is durable.
    ///
    /// A task that the office rejects (allow_from, quota, deadline) is a success: the result says `rejected` and why,
    /// and a task update that says the same is in the caller's own mailbox.
    async fn send(&self, draft: Draft) -> Result<Sent>;

    /// The caller's sessions, with previews. Marks nothing as read.
    async fn inbox(&self, unread_only: bool) -> Result<Inbox>;

    /// The next page of the inbox, by the `next` of the page before. Empty in offices that return all sessions at once.
    async fn inbox_after(&self, unread_only: bool, next: &SessionId) -> Result<Inbox> {
        let _ = (unread_only, next);
        Ok(Inbox::default())
    }

    /// Returns a page of a session, newest first, and marks it as read.
    async fn read(&self, session: &SessionId, page: HistoryPage) -> Result<History>;

    /// One message that the caller sent or received, with its receipts.
    async fn message(&self, id: &MessageId) -> Result<MessageWithReceipts>;

    /// Marks messages to the caller as handled. Returns how many were unread; acknowledging an id twice is no error.
    async fn ack(&self, ids: &[MessageId]) -> Result<u64>;

    /// Claims unread messages that no other consumer has claimed. The claim ends when the holder dies, or with the
    /// lease, unless they are acknowledged or released before.
    async fn claim(&self, request: ClaimRequest) -> Result<Vec<Message>>;

    /// Releases claimed messages, to be claimed again.
    async fn release(&self, ids: &[MessageId]) -> Result<()>;

    /// Extends the claim on these messages to this long from now; those no longer claimed stay so. A directory with
    /// kernel locks has nothing to renew.
    async fn renew(&self, ids: &[MessageId], lease: Duration) -> Result<()> {
        let _ = (ids, lease);
        Ok(())
    }

    /// Records in the receipts of these messages that a client of the caller was rung for them, if they are unread and
    /// it is the first time ([`Receipt::rung_at`](crate::Receipt::rung_at)). A directory does not record it.
    async fn rung(&self, ids: &[MessageId]) -> Result<()> {
        let _ = ids;
        Ok(())
    }

    /// Reports the wake-up state of one of the caller's client sessions, for the caller's person to see. A directory
    /// returns [`Code::Unsupported`](crate::Code::Unsupported).
    async fn report_wake(&self, report: &WakeReport) -> Result<()> {
        let _ = report;
        Err(OfficeError::unsupported(
            "this office does not keep how wake-ups stand; `amb wake status` shows it where the agent runs",
        ))
    }

    /// Messages that the caller's consumers, in any process, have claimed and not acknowledged: at most
    /// [`MAX_CLAIMED`](crate::limits::MAX_CLAIMED), in any order. Claims nothing itself.
    async fn claimed(&self) -> Result<Vec<Message>> {
        Ok(Vec::new())
    }

    // Tasks.

    /// Tasks that the caller gave or was given, newest first.
    async fn tasks(&self, filter: TaskFilter) -> Result<Vec<Task>>;

    /// One task that the caller gave or was given.
    async fn task(&self, id: &TaskId) -> Result<Task> {
        let found = self.tasks(TaskFilter::default()).await?.into_iter().find(|task| task.id == *id);
        found.ok_or_else(|| no_task(id))
    }

    /// Moves a task that was given to the caller to another state, and sends its owner a task update. Skipped states
    /// are passed through, with one update for the last.
    ///
    /// The office decides again, atomically, whether the task may be accepted. If not (quota, deadline), the task is
    /// rejected, its owner gets the reason, and this returns [`Code::Conflict`](crate::Code::Conflict) with it.
    async fn set_task_state(&self, id: &TaskId, state: TaskState, note: Option<String>) -> Result<Task>;

    // The log.

    /// Returns the log entries after `since`, waiting up to `wait` if there are none yet. Without `since` it returns at
    /// once with an empty page whose cursor is the current end of the log.
    async fn events(&self, since: Option<Cursor>, wait: Duration) -> Result<EventPage>;

    // Group chats and search.

    /// Adds a line to the caller's transcript of a group chat. A second line with the same message id is the same line.
    async fn transcript_append(&self, key: &TranscriptKey, line: Line) -> Result<()> {
        let _ = (key, line);
        Err(OfficeError::unsupported("this office keeps no transcripts"))
    }

    /// Adds a line to the transcript that another agent shares with the caller.
    async fn transcript_append_to(&self, owner: &AgentName, key: &TranscriptKey, line: Line) -> Result<()> {
        let _ = (owner, key, line);
        Err(no_owners())
    }

    /// The last lines of the transcript that another agent shares with the caller.
    async fn transcript_recent_of(&self, owner: &AgentName, key: &TranscriptKey, limit: usize) -> Result<Vec<Line>> {
        let _ = (owner, key, limit);
        Err(no_owners())
    }

    /// The last lines of the caller's transcript of a group chat, oldest first, each once.
    async fn transcript_recent(&self, key: &TranscriptKey, limit: usize) -> Result<Vec<Line>> {
        let _ = (key, limit);
        Err(OfficeError::unsupported("this office keeps no transcripts"))
    }

    /// Searches the caller's own messages, newest first.
    async fn search(&self, query: SearchQuery) -> Result<Vec<SearchHit>> {
        let _ = query;
        Err(OfficeError::unsupported("this office has no search"))
    }
}

/// Sends drafts of one agent: an office, or a door that completes a draft before the office gets it.
#[async_trait]
pub trait Outgoing: Send + Sync {
    /// The sender.
    fn me(&self) -> &AgentName;

    /// Sends a draft; see [`Mailbox::send`].
    async fn post(&self, draft: Draft) -> Result<Sent>;
}

#[async_trait]
impl Outgoing for Arc<dyn Mailbox> {
    fn me(&self) -> &AgentName {
        Mailbox::me(&**self)
    }

    async fn post(&self, draft: Draft) -> Result<Sent> {
        self.send(draft).await
    }
}

/// The error for a task that the caller does not have.
pub fn no_task(id: &TaskId) -> OfficeError {
    OfficeError::not_found(format!("no task {id} that you gave or were given"))
}

fn no_owners() -> OfficeError {
    OfficeError::unsupported("transcripts of this office have no owner: whoever may read its files reads them all")
}

fn no_connections() -> OfficeError {
    OfficeError::unsupported(
        "this office has no connections: whoever is in an agent's allow_from may write to it; set yours with `amb register --allow-from`",
    )
}

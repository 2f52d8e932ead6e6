//! Filters and pages of the verbs, and results of the verbs that work in steps.

use amb_core::limits::MAX_INBOX_SESSIONS;
use amb_core::{AgentName, CorrelationId, Kind, MessageId, SessionId, Timestamp};

/// A page of agents, by name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentsPage {
    /// Only names after this one.
    pub after: Option<AgentName>,
    /// At most this many.
    pub limit: u32,
}

/// A page of the sessions of an inbox, the one with the newest message first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InboxPage {
    /// Only sessions with unread mail.
    pub unread_only: bool,
    /// Only sessions after this one: `next` of the previous page.
    pub before: Option<SessionId>,
    /// At most this many.
    pub limit: u32,
}

impl InboxPage {
    /// Returns the first page, of the default size.
    pub fn first(unread_only: bool) -> Self {
        Self { unread_only, before: None, limit: MAX_INBOX_SESSIONS }
    }
}

/// A filter of messages delivered to the caller, newest first. All conditions have to be met.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct MessageQuery {
    /// Only unread messages.
    pub unread: bool,
    /// Only unread messages that a consumer of the caller holds at this time.
    pub claimed_at: Option<Timestamp>,
    /// Only in this session.
    pub session: Option<SessionId>,
    /// Only from this agent.
    pub from: Option<AgentName>,
    /// Only of this kind.
    pub kind: Option<Kind>,
    /// Only with this correlation id.
    pub correlation_id: Option<CorrelationId>,
    /// Only before this number in the caller's log: `next` of the previous page.
    pub before: Option<u64>,
    /// At most this many.
    pub limit: u32,
}

/// A page of the export of the caller's mail, session by session.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ExportQuery {
    /// Only messages after this one: the last of the previous page.
    pub after: Option<MessageId>,
    /// Only messages sent at or after this time.
    pub since: Option<Timestamp>,
    /// At most this many.
    pub limit: u32,
}

/// The result of one step of removing old mail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Removed {
    /// Messages removed.
    pub messages: u64,
    /// Where to continue; `None` at the end.
    pub next: Option<ReadPlace>,
}

/// A place in the order in which mail was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReadPlace {
    pub(crate) at: Timestamp,
    pub(crate) agent: i64,
    pub(crate) number: i64,
}

/// Most messages marked as delivered by one call of [`ReceiptVerbs::delivered`](crate::ReceiptVerbs::delivered).
pub(crate) const MAX_HANDED: usize = 1_000;

/// The result of marking messages as delivered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Handed {
    /// Messages that were marked.
    pub messages: u64,
    /// All messages up to this number are marked.
    pub reached: u64,
}

impl Handed {
    /// Returns the result after these messages, in the order of the log, were marked of those up to `up_to`.
    pub(crate) fn after(messages: u64, numbers: impl ExactSizeIterator<Item = u64>, up_to: u64) -> Self {
        let full = numbers.len() >= MAX_HANDED;
        Self { messages, reached: numbers.last().filter(|_| full).unwrap_or(up_to) }
    }
}

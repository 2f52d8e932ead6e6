//! What the verbs beyond the contract take and give.

use amb_core::limits::MAX_INBOX_SESSIONS;
use amb_core::{AgentName, AllowFrom, Card, CorrelationId, Kind, MessageId, SessionId, Timestamp};
use serde::Deserialize;

use crate::error::Result;
use crate::refusals;

/// Which agents to list: by name, after one, so many.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentsPage {
    /// Only names after this one.
    pub after: Option<AgentName>,
    /// At most this many.
    pub limit: u32,
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

impl ProfilePatch {
    /// The card after the change, checked as new ones are.
    pub(crate) fn card(&self, before: Card) -> Result<Card> {
        let Self { description, capabilities, allow_from, max_concurrent_tasks, discoverable: _ } = self.clone();
        let card = Card {
            description: description.unwrap_or(before.description),
            capabilities: capabilities.unwrap_or(before.capabilities),
            allow_from: allow_from.unwrap_or(before.allow_from),
            max_concurrent_tasks: max_concurrent_tasks.unwrap_or(before.max_concurrent_tasks),
        };
        card.check()?;
        refusals::check_text("description", Some(&card.description))?;
        Ok(card)
    }
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

//! The trait that the server is written against.

use amb_core::doc::{Connected, ConnectionRequested, History, Inbox, Sent};
use amb_core::office::HistoryPage;
use amb_core::{AgentName, Draft, Entry, SessionId, Timestamp};
use async_trait::async_trait;
use tokio::sync::broadcast;

use crate::error::Result;
use crate::types::{Agent, AgentKey, Ask, KeyHash, NewAgent, Written};

/// What the network office remembers.
///
/// Every verb is one transaction. One that writes answers after the commit is durable; when it answers with an error,
/// nothing of it happened. The time is the caller's: `now` is passed in, and kept to the microsecond.
///
/// The verbs trust their caller to have checked lengths ([`Draft::check`], [`amb_core::Card::check`], limits of the
/// contract); what needs a look at the database is decided here.
#[async_trait]
pub trait Store: Send + Sync {
    /// Whether the database answers, and takes writes.
    async fn ready(&self) -> Result<()>;

    /// Finishes what was accepted and lets go of the database. Verbs after this answer `unavailable`.
    async fn close(&self);

    /// Agents whose logs grew by the hand of another process on the same database. A hint to look, never the news
    /// itself: one may be lost or come twice. `None` where no other process can be there.
    fn hints(&self) -> Option<broadcast::Receiver<AgentKey>> {
        None
    }

    // Who is here.

    /// Enters a new agent. `conflict` where the name is taken, also by an agent that was deleted.
    async fn register_agent(&self, new: NewAgent, now: Timestamp) -> Result<Agent>;

    /// Whose key this is; `None` where nobody's. Cheap enough to be asked at every request: answered from memory where
    /// it was asked before, and never longer than a second after a key stopped being one.
    async fn agent_by_key_hash(&self, hash: KeyHash, now: Timestamp) -> Result<Option<Agent>>;

    /// The agent of this name; `None` where there is none.
    async fn agent_by_name(&self, name: &AgentName) -> Result<Option<Agent>>;

    // Who may write to whom.

    /// Asks another agent for a connection.
    ///
    /// `invalid` for oneself, `not_found` for an unknown target, `conflict` where the two are connected or such a request
    /// waits, `not_allowed` where the target blocked the caller, `too_many_requests` beyond `max_pending`. A request that
    /// ran out of time is in nobody's way.
    async fn request_connection(
        &self,
        caller: &Agent,
        ask: Ask,
        now: Timestamp,
    ) -> Result<Written<ConnectionRequested>>;

    /// Approves the request that has this code: `not_found` where none waits, `forbidden` where it was not the caller who
    /// was asked, `gone` where its time is over. Of any number of approvals at once, one succeeds.
    async fn approve_connection(&self, caller: &Agent, code: &str, now: Timestamp) -> Result<Written<Connected>>;

    // Mail.

    /// Sends. Needs an active connection (`not_connected`), and the target to hear the caller (`not_allowed`).
    ///
    /// With a session: `not_found` where there is none, `forbidden` where not both agents are in it. Without one: the
    /// session of this pair and subject, made where it is missing; the subject's case and outer space do not matter.
    ///
    /// With an idempotency key: a repeat answers what the first answered and writes nothing; another draft under the same
    /// key is a `conflict`.
    async fn send(&self, caller: &Agent, draft: Draft, now: Timestamp) -> Result<Written<Sent>>;

    /// The caller's sessions, newest first, with at most three messages each, and the requests that wait for the caller.
    async fn inbox(&self, caller: &Agent, unread_only: bool, now: Timestamp) -> Result<Inbox>;

    /// A page of a session, newest first; what it answers is marked as read, and the senders' logs get the receipts.
    /// `not_found` where there is no such session, `forbidden` where the caller is not in it. A `before` that is not in
    /// the session is `not_found`.
    async fn history(
        &self,
        caller: &Agent,
        session: &SessionId,
        page: HistoryPage,
        now: Timestamp,
    ) -> Result<Written<History>>;

    // The log.

    /// The entries after `since`, oldest first, at most `limit`.
    async fn events(&self, agent: AgentKey, since: u64, limit: usize) -> Result<Vec<Entry>>;

    /// The number of the newest entry; 0 where there never was one.
    async fn event_head(&self, agent: AgentKey) -> Result<u64>;

    /// Removes, some at a time, what nobody will ask for again: events other than mail, and answers to idempotent sends,
    /// from before this moment. Answers how many rows went; 0 when done.
    async fn prune(&self, before: Timestamp) -> Result<u64>;
}

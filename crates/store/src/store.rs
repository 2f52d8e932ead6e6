//! The trait that the server uses.

use amb_core::doc::Inbox;
use amb_core::{Quotas, Timestamp, Usage};
use async_trait::async_trait;
use tokio::sync::broadcast;

use crate::error::Result;
use crate::query::InboxPage;
use crate::replicas::{Charge, Charged, Hint, ListenerState, Replicas, StaleListener};
use crate::types::{Agent, AgentKey, ViewVersion};
use crate::verbs::{
    AgentVerbs, ConnectionVerbs, DashboardVerbs, DirectoryVerbs, GroupVerbs, HistoryVerbs, HouseholdVerbs, LogVerbs,
    MessageVerbs, PruneVerbs, ReceiptVerbs, SearchVerbs, SendVerbs, SteppingInVerbs, TaskVerbs, TranscriptVerbs,
    WakeVerbs,
};

/// The storage of the network office.
///
/// Every verb is one transaction. A verb that writes returns after the commit is durable; when it returns an error,
/// nothing was changed. The caller passes the time: `now` is stored to the microsecond.
///
/// The caller has checked lengths ([`amb_core::Draft::check`], [`amb_core::Card::check`], limits of the contract);
/// checks that need the database are made here. Pages of mail and of transcripts have as many items as were asked for,
/// or fewer where they would exceed [`amb_core::limits::MAX_PAGE_BYTES`], but at least one.
#[async_trait]
pub trait Store:
    AgentVerbs
    + DirectoryVerbs
    + HouseholdVerbs
    + SteppingInVerbs
    + ConnectionVerbs
    + SendVerbs
    + HistoryVerbs
    + MessageVerbs
    + LogVerbs
    + PruneVerbs
    + ReceiptVerbs
    + SearchVerbs
    + TaskVerbs
    + GroupVerbs
    + TranscriptVerbs
    + DashboardVerbs
    + WakeVerbs
{
    /// Fails where the database cannot be reached or accepts no writes.
    async fn ready(&self) -> Result<()>;

    /// Waits for accepted writes and closes the database. Later verbs return `unavailable`.
    async fn close(&self);

    // Other processes on the same database. The defaults are for a database that has one process.

    /// Subscribes to hints of other processes. `None` where there can be no other process.
    fn hints(&self) -> Option<broadcast::Receiver<Hint>> {
        None
    }

    /// Sends other processes a hint: whose logs grew, and up to which number. Called after the commit, with several at
    /// once.
    async fn hint(&self, _grown: &[(AgentKey, u64)]) -> Result<()> {
        Ok(())
    }

    /// Writes the heartbeat of this process, every few seconds. Returns the other processes. `uses_broker` is whether this
    /// process gets hints by a broker, so that it does not need [`Store::hint`].
    async fn heartbeat(&self, _uses_broker: bool) -> Result<Replicas> {
        Ok(Replicas::ALONE)
    }

    /// Charges rate limits that all processes share. Returns the result of each charge, in order. The caller itself
    /// keeps the limits that only this process charges.
    async fn charge(&self, charges: &[Charge]) -> Result<Vec<Charged>> {
        Ok(vec![Charged::NOTHING; charges.len()])
    }

    /// Deletes the rows of rate limits that are fully earned back. Called periodically.
    async fn prune_rate_limits(&self) -> Result<()> {
        Ok(())
    }

    /// Returns the listeners that missed a hint: that have not seen the end of their log, or whose key has ended.
    async fn stale_listeners(&self, listeners: &[ListenerState], now: Timestamp) -> Result<Vec<StaleListener>>;

    /// Sets the storage quotas. Before this call there are none.
    fn set_quotas(&self, quotas: Quotas) {
        self.account().set_quotas(quotas);
    }

    /// Returns how much all agents store. Where several processes write, the office's quotas are checked against the
    /// result of the last call, so call it every few seconds.
    async fn office_usage(&self) -> Result<Usage>;

    /// Returns the version of what [`Store::inbox`] and [`HistoryVerbs::history`] show this agent. While it is the
    /// same, so are their results, but for connection requests that expire. A verb raises it before it returns. `None`
    /// where other processes may change the database.
    fn view_version(&self, _agent: AgentKey) -> Option<ViewVersion> {
        None
    }

    /// Returns the first page of the caller's inbox.
    async fn inbox(&self, caller: &Agent, unread_only: bool, now: Timestamp) -> Result<Inbox> {
        self.inbox_page(caller, InboxPage::first(unread_only), now).await
    }

    /// Returns the caller's sessions, newest first, with at most three messages each, long texts cut, and the
    /// connection requests that wait for the caller. A page also ends at [`amb_core::limits::MAX_PAGE_BYTES`]; `next`
    /// is set where there is more. `not_found` where `before` is not a session of the caller.
    async fn inbox_page(&self, caller: &Agent, page: InboxPage, now: Timestamp) -> Result<Inbox>;

    /// Indexes some of the new mail for search. Returns how many log entries were read; 0 when everything is indexed. A
    /// send does not index: a background task calls this until it returns 0.
    async fn index_mail(&self) -> Result<u64>;
}

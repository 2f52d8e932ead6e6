//! The trait that the server is written against.

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

/// What the network office remembers.
///
/// Every verb is one transaction. One that writes returns after the commit is durable; when it returns an error,
/// nothing of it happened. The time is the caller's: `now` is passed in, and kept to the microsecond.
///
/// The verbs trust their caller to have checked lengths ([`amb_core::Draft::check`], [`amb_core::Card::check`], limits of the
/// contract); what needs a look at the database is decided here. Pages of mail and of transcripts have as many things as
/// were asked for, or fewer where they would have more than [`amb_core::limits::MAX_PAGE_BYTES`]; never none for that.
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
    /// Whether the database can be reached and accepts writes.
    async fn ready(&self) -> Result<()>;

    /// Finishes what was accepted and closes the database. Verbs after this return `unavailable`.
    async fn close(&self);

    // Other processes on the same database. Where there can be none, nothing is to be done.

    /// Hints of other processes. `None` where no other process can be there.
    fn hints(&self) -> Option<broadcast::Receiver<Hint>> {
        None
    }

    /// Tells other processes whose logs grew, and up to which number. Called after the commit, for several at once.
    async fn hint(&self, _grown: &[(AgentKey, u64)]) -> Result<()> {
        Ok(())
    }

    /// The heartbeat of this process, once in some seconds. Returns which other processes are there. `hears` says whether hints reach
    /// this process by another way than [`Store::hint`].
    async fn heartbeat(&self, _hears: bool) -> Result<Replicas> {
        Ok(Replicas::ALONE)
    }

    /// Charges rate limits that all processes share. Returns for each whether there was room, in order. A limit that only this
    /// process charges is kept by the caller.
    async fn charge(&self, charges: &[Charge]) -> Result<Vec<Charged>> {
        Ok(vec![Charged::NOTHING; charges.len()])
    }

    /// Removes the rows of such limits of which all is free again; to be called now and then.
    async fn forgive(&self) -> Result<()> {
        Ok(())
    }

    /// Of these listeners those that missed a hint: whose log is longer than they know, or whose key has ended.
    async fn stale_listeners(&self, listeners: &[ListenerState], now: Timestamp) -> Result<Vec<StaleListener>>;

    /// Sets how much may be stored; there are no limits before.
    fn set_quotas(&self, quotas: Quotas) {
        self.account().set_quotas(quotas);
    }

    /// What all agents have stored. Where several processes write, this is what the limits of the office are held against
    /// until it is asked for again: once in some seconds.
    async fn office_usage(&self) -> Result<Usage>;

    /// The version of what [`Store::inbox`] and [`HistoryVerbs::history`] show this agent now. While it is the same they answer the
    /// same, but for requests whose time runs out; any change is in it before the change is answered. `None` where other
    /// processes may change it without a word.
    fn view_version(&self, _agent: AgentKey) -> Option<ViewVersion> {
        None
    }

    /// The first page of the caller's inbox.
    async fn inbox(&self, caller: &Agent, unread_only: bool, now: Timestamp) -> Result<Inbox> {
        self.inbox_page(caller, InboxPage::first(unread_only), now).await
    }

    /// The caller's sessions, newest first, with at most three messages each, cut where they are long, and the requests that
    /// wait for the caller. A page also ends at [`amb_core::limits::MAX_PAGE_BYTES`]; `next` says where there is more. A
    /// `before` that is no session of the caller's is `not_found`.
    async fn inbox_page(&self, caller: &Agent, page: InboxPage, now: Timestamp) -> Result<Inbox>;

    // Keeping it.

    /// Makes some of the mail that came since findable. Returns how many log entries were looked at; 0 when done. Indexing is no part
    /// of a send: let a background task call this until it returns 0.
    async fn index_mail(&self) -> Result<u64>;
}

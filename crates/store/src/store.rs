//! The trait that the server is written against.

use std::time::Duration;

use amb_core::doc::{
    Access, AgentEntry, Appended, ChainTask, Connected, Connection, ConnectionChange, ConnectionRequested, Group,
    History, Household, Inbox, Machine, MessagePage, MessageWithReceipts, NumberedLine, PendingConnection, Profile,
    SearchHit, Sent,
};
use amb_core::mailbox::{ClaimRequest, HistoryPage, SearchQuery, TaskFilter};
use amb_core::transcript::{Line, TranscriptKey};
use amb_core::{
    AgentName, Draft, Entry, Message, MessageId, Quotas, SessionId, Task, TaskId, TaskState, Timestamp, Usage,
};
use async_trait::async_trait;
use tokio::sync::broadcast;
use uuid::Uuid;

use crate::error::Result;
use crate::query::{AgentsPage, ExportQuery, Handed, InboxPage, MessageQuery, ProfilePatch, ReadPlace, Removed};
use crate::replicas::{Astray, Charge, Charged, Hint, Replicas, Seated};
use crate::types::{Agent, AgentKey, Ask, Crossing, KeyHash, NewAgent, NewKey, ViewVersion, Written};

/// What the network office remembers.
///
/// Every verb is one transaction. One that writes answers after the commit is durable; when it answers with an error,
/// nothing of it happened. The time is the caller's: `now` is passed in, and kept to the microsecond.
///
/// The verbs trust their caller to have checked lengths ([`Draft::check`], [`amb_core::Card::check`], limits of the
/// contract); what needs a look at the database is decided here. Pages of mail and of transcripts have as many things as
/// were asked for, or fewer where they would have more than [`amb_core::limits::MAX_PAGE_BYTES`]; never none for that.
#[async_trait]
pub trait Store: Send + Sync {
    /// Whether the database answers, and takes writes.
    async fn ready(&self) -> Result<()>;

    /// Finishes what was accepted and lets go of the database. Verbs after this answer `unavailable`.
    async fn close(&self);

    // Other processes on the same database. Where there can be none, nothing is to be done.

    /// What other processes say. `None` where no other process can be there.
    fn hints(&self) -> Option<broadcast::Receiver<Hint>> {
        None
    }

    /// Tells other processes whose logs grew, and up to which number. Called after the commit; gather some.
    async fn hint(&self, _grown: &[(AgentKey, u64)]) -> Result<()> {
        Ok(())
    }

    /// A sign of life of this process, once in some seconds; answers who else is there. `hears` says whether hints reach
    /// this process by another way than [`Store::hint`].
    async fn heartbeat(&self, _hears: bool) -> Result<Replicas> {
        Ok(Replicas::ALONE)
    }

    /// Spends of limits that hold for all processes together, and answers for each what became of it, in order. A limit
    /// that nobody else can spend from is the caller's own affair.
    async fn charge(&self, charges: &[Charge]) -> Result<Vec<Charged>> {
        Ok(vec![Charged::NOTHING; charges.len()])
    }

    /// Forgets who owes nothing to such limits; now and then.
    async fn forgive(&self) -> Result<()> {
        Ok(())
    }

    /// Of these listeners those that must do something: whose log is longer than they know, or whose key has ended. What
    /// a lost hint would have said.
    async fn astray(&self, seated: &[Seated], now: Timestamp) -> Result<Vec<Astray>>;

    /// Sets how much may be stored; there are no limits before.
    fn set_quotas(&self, quotas: Quotas);

    /// What all agents have stored. Where several processes write, this is what the limits of the office are held against
    /// until it is asked for again: once in some seconds.
    async fn office_usage(&self) -> Result<Usage>;

    // Who is here.

    /// Enters a new agent. `conflict` where the name is taken, also by an agent that was deleted.
    ///
    /// With a household to join: `unauthorized` where its token is none or was revoked, `forbidden` where a machine's token
    /// would make the person, `conflict` where the household has its person already, or as many members as it may.
    async fn register_agent(&self, new: NewAgent, now: Timestamp) -> Result<Written<Agent>>;

    /// Whose key this is; `None` where nobody's. Cheap enough to be asked at every request: answered from memory where
    /// it was asked before, and never longer than a second after a key stopped being one.
    async fn agent_by_key_hash(&self, hash: KeyHash, now: Timestamp) -> Result<Option<Agent>>;

    /// The agent of this name; `None` where there is none.
    async fn agent_by_name(&self, name: &AgentName) -> Result<Option<Agent>>;

    // The household: one owner's agents and that person, who may write to each other without a connection.

    /// Whether there is a household.
    async fn has_household(&self) -> Result<bool>;

    /// Founds a household whose owner's token has this hash. With `only_first` only where there is none: `None` then.
    async fn found_household(&self, owner: KeyHash, only_first: bool, now: Timestamp) -> Result<Option<Uuid>>;

    /// Replaces the owner's token of the household that this agent is in, for the office's operator; the one before is void,
    /// and its members stay. `not_found` where the agent is in none.
    async fn renew_household(&self, member: &AgentName, owner: KeyHash, now: Timestamp) -> Result<()>;

    /// The household that the caller is in; `not_found` where it is in none.
    async fn household(&self, caller: &Agent, now: Timestamp) -> Result<Household>;

    /// Lets another machine register members, with the token that has this hash. `forbidden` for all but the person. A repeat
    /// under the same idempotency key answers the same machine, whose token is then the one of the repeat.
    async fn add_machine(&self, caller: &Agent, label: &str, token: KeyHash, now: Timestamp) -> Result<Machine>;

    /// Takes a machine's token back, and its agents out of the household, as [`Store::leave_household`] does with one. `forbidden`
    /// for all but the person, `not_found` where there is none with this id or it was revoked.
    async fn revoke_machine(&self, caller: &Agent, id: Uuid, now: Timestamp) -> Result<Written<()>>;

    /// Takes an agent out of the caller's household: the caller itself, or any but the person where the caller is that. What
    /// the household alone allowed between it and others ends: open tasks, with updates to both sides, and what transcripts were
    /// shared. When it answers, no send that is answered later was let through by the household.
    async fn leave_household(&self, caller: &Agent, member: &AgentName, now: Timestamp) -> Result<Written<()>>;

    // Who may write to whom: [`amb_core::consent`].

    /// Asks another agent for a connection.
    ///
    /// `invalid` for oneself, `not_found` for an unknown target, `conflict` where the two are connected or such a request
    /// waits, `not_allowed` where the target blocked the caller, `too_many_requests` beyond `max_pending` of the
    /// caller's, or [`amb_core::limits::MAX_WAITING_REQUESTS`] that wait for the target. A request that ran out of time is in
    /// nobody's way.
    async fn request_connection(
        &self,
        caller: &Agent,
        ask: Ask,
        now: Timestamp,
    ) -> Result<Written<ConnectionRequested>>;

    /// Approves the request that has this code: `not_found` where none waits for the caller, `forbidden` where it is the
    /// caller's own, `gone` where its time is over. Of any number of approvals at once, one succeeds.
    async fn approve_connection(&self, caller: &Agent, code: &str, now: Timestamp) -> Result<Written<Connected>>;

    /// Approves the request of this agent that waits for the caller, without its code: for whoever decides in the
    /// caller's name inside the office. `not_found` where none waits, `gone` where its time is over.
    async fn accept_connection(&self, caller: &Agent, from: &AgentName, now: Timestamp) -> Result<Written<Connected>>;

    // Mail.

    /// Sends. Needs an active connection or a common household (`not_connected`), and the target to hear the caller (`not_allowed`).
    ///
    /// With a session: `not_found` where there is none, `forbidden` where not both agents are in it. Without one: the
    /// session of this pair and subject, made where it is missing; the subject's case and outer space do not matter.
    ///
    /// With an idempotency key: a repeat answers what the first answered and writes nothing; anything else under the same
    /// key is a `conflict`. What would exceed a limit of [`Store::set_quotas`] is `over_quota`, and so is a line of a transcript;
    /// never a task's move, which counts all the same. The same holds for [`Store::send_all`], and for [`Store::request_connection`],
    /// [`Store::approve_connection`], [`Store::create_group`], [`Store::invite_to_group`], [`Store::set_task_state`] and
    /// [`Store::transcript_append`] with the key in [`Agent::once`].
    async fn send(&self, caller: &Agent, draft: Draft, now: Timestamp) -> Result<Written<Sent>>;

    /// Takes in a message of the caller's that another office accepted: a send whose id, ttl and trace are settled. What
    /// it answers or passes on is not asked for them. Give it an idempotency key: it may be carried again after a crash.
    async fn carry(&self, caller: &Agent, draft: Draft, crossing: Crossing, now: Timestamp) -> Result<Written<Sent>>;

    /// The version of what [`Store::inbox`] and [`Store::history`] show this agent now. While it is the same they answer the
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

    /// The cursor from which a listener goes on that names this one. The same, where the log reaches so far. A cursor beyond
    /// the end is of a database that was put back to an earlier state since, or of another one: then that of the last message
    /// which is known to have been handed over, so that mail which came since is not passed over.
    async fn resume(&self, agent: AgentKey, since: u64) -> Result<u64>;

    /// Removes, some at a time, what nobody will ask for again: events other than mail, and answers to idempotent sends,
    /// from before this moment. Answers how many rows went; 0 when done.
    async fn prune(&self, before: Timestamp) -> Result<u64>;

    // Beyond the contract. Who may see whom: an agent sees itself, those it is connected with, and those that are
    // discoverable (the default), unless they blocked it.

    /// The agents that the caller may see, by name.
    async fn agents(&self, caller: &Agent, page: AgentsPage, now: Timestamp) -> Result<Vec<AgentEntry>>;

    /// One agent that the caller may see; `not_found` with the nearest such name else.
    async fn agent(&self, caller: &Agent, name: &AgentName, now: Timestamp) -> Result<AgentEntry>;

    /// The caller as it sees itself.
    async fn profile(&self, caller: &Agent, now: Timestamp) -> Result<Profile>;

    /// Changes the caller's profile.
    async fn update_profile(&self, caller: &Agent, patch: ProfilePatch, now: Timestamp) -> Result<Profile>;

    /// Signs of life of any number of agents, in one write. Gather them: once in some seconds is enough.
    async fn seen(&self, agents: &[AgentKey], now: Timestamp) -> Result<()>;

    /// Goodbye: the caller is offline until its next sign of life.
    async fn leave(&self, caller: &Agent, now: Timestamp) -> Result<()>;

    /// Replaces the caller's key, if `shown` is its current key. The old one works until `old_until`, if that is given.
    ///
    /// `old_key` where `shown` was replaced and is in its grace period, `unauthorized` where it is no key any more.
    async fn rotate_key(
        &self,
        caller: &Agent,
        shown: KeyHash,
        new: NewKey,
        old_until: Option<Timestamp>,
        now: Timestamp,
    ) -> Result<()>;

    /// Gives an agent a new key and ends all it had, without asking for one: for the office's operator. `not_found` where
    /// no agent has this name.
    async fn issue_key(&self, name: &AgentName, new: NewKey) -> Result<Agent>;

    /// Removes the caller: its key, its connections, its open tasks. Others keep the mail they had with it; nobody can
    /// take its name. `shown` must be its current key, as in [`Store::rotate_key`].
    async fn delete_agent(&self, caller: &Agent, shown: KeyHash, now: Timestamp) -> Result<Written<()>>;

    /// All of the caller's connections, the one that changed last first: with each peer the present state.
    async fn connections(&self, caller: &Agent, now: Timestamp) -> Result<Vec<Connection>>;

    /// The requests that wait for the caller.
    async fn pending_connections(&self, caller: &Agent, now: Timestamp) -> Result<Vec<PendingConnection>>;

    /// Rejects, revokes, blocks or unblocks. When it answers a revocation or a block, no send of the other side's that is
    /// answered later was let through. Both end the open tasks between the two, with updates to both, and what transcripts
    /// each shared with the other.
    async fn change_connection(
        &self,
        caller: &Agent,
        peer: &AgentName,
        change: ConnectionChange,
        now: Timestamp,
    ) -> Result<Written<Connection>>;

    /// Ends, some at a time, the requests whose time is over, and tells who asked. Answers how many; 0 when done.
    async fn expire_connections(&self, now: Timestamp) -> Result<Written<u64>>;

    /// One message that the caller sent or received, with its receipts.
    async fn message(&self, caller: &Agent, id: &MessageId) -> Result<MessageWithReceipts>;

    /// Messages that came to the caller, newest first. Marks nothing.
    async fn messages(&self, caller: &Agent, query: MessageQuery) -> Result<MessagePage>;

    /// Marks messages that came to the caller as read. Answers how many were not yet; `not_found` where one did not come
    /// to the caller, and then none is marked.
    async fn ack(&self, caller: &Agent, ids: &[MessageId], now: Timestamp) -> Result<Written<u64>>;

    /// Notes that the entries after `after`, up to `up_to`, were handed to the caller's process, in one transaction: of a
    /// long stretch only the first thousand messages for which that is new. Go on after the number that the answer says was
    /// reached. Numbers that no entry has cost nothing.
    async fn delivered(&self, caller: &Agent, after: u64, up_to: u64, now: Timestamp) -> Result<Written<Handed>>;

    /// Takes unread messages that no other consumer holds, for the time of the lease.
    async fn claim(&self, caller: &Agent, request: ClaimRequest, now: Timestamp) -> Result<Written<Vec<Message>>>;

    /// Gives claimed messages back.
    async fn release(&self, caller: &Agent, ids: &[MessageId]) -> Result<()>;

    /// Gives those of these messages that are still held a lease of this length from now on.
    async fn renew(&self, caller: &Agent, ids: &[MessageId], lease: Duration, now: Timestamp) -> Result<()>;

    /// Sends one draft to several agents, each in the session of its pair, in one transaction: all or none. `to` of the
    /// draft is not looked at. An agent that several names mean gets it once.
    async fn send_all(
        &self,
        caller: &Agent,
        to: &[AgentName],
        draft: Draft,
        now: Timestamp,
    ) -> Result<Written<Vec<Sent>>>;

    /// Tasks that the caller gave or was given, newest first, at most `limit`.
    async fn tasks(&self, caller: &Agent, filter: TaskFilter, limit: u32) -> Result<Vec<Task>>;

    /// One task that the caller gave or was given.
    async fn task(&self, caller: &Agent, id: &TaskId) -> Result<Task>;

    /// The tasks of which this one is a piece, the first giver's first, then itself, then its own pieces. Of those that do not
    /// concern the caller, the id and the state.
    async fn task_chain(&self, caller: &Agent, id: &TaskId) -> Result<Vec<ChainTask>>;

    /// Moves a task that was given to the caller, and sends its owner a task update. States skipped on the way are passed
    /// through. Taking one on is decided by the office first: where quota or deadline forbid it, the task is rejected, and
    /// the answer says so. `not_connected` where the connection with its owner has ended.
    async fn set_task_state(
        &self,
        caller: &Agent,
        id: &TaskId,
        state: TaskState,
        note: Option<String>,
        now: Timestamp,
    ) -> Result<Written<Task>>;

    /// Marks, some at a time, open tasks whose deadline passed as overdue, and tells both sides. Answers how many; 0 when
    /// done.
    async fn sweep_overdue(&self, now: Timestamp) -> Result<Written<u64>>;

    // Transcripts. A key belongs to its owner: two agents may each have one of the same key. Without an owner the caller's own
    // is meant; another's is named by its owner, who shares it.

    /// Adds a line, written by the caller. One with a message id that is there already changes nothing. The caller's own is
    /// made with its first line.
    async fn transcript_append(
        &self,
        caller: &Agent,
        owner: Option<&AgentName>,
        key: &TranscriptKey,
        line: Line,
        now: Timestamp,
    ) -> Result<Appended>;

    /// The last lines, oldest first.
    async fn transcript_recent(
        &self,
        caller: &Agent,
        owner: Option<&AgentName>,
        key: &TranscriptKey,
        limit: usize,
    ) -> Result<Vec<NumberedLine>>;

    /// The lines after a place, oldest first.
    async fn transcript_after(
        &self,
        caller: &Agent,
        owner: Option<&AgentName>,
        key: &TranscriptKey,
        after: u64,
        limit: usize,
    ) -> Result<Vec<NumberedLine>>;

    /// Lets another agent, with which the caller is connected, read or write a transcript of the caller's; `None` takes that
    /// back, and so does the end of the connection.
    async fn transcript_share(
        &self,
        caller: &Agent,
        key: &TranscriptKey,
        with: &AgentName,
        access: Option<Access>,
        now: Timestamp,
    ) -> Result<()>;

    // Search. Indexing happens behind the send path: let a background task call `index_mail` until it answers 0.

    /// Looks through the caller's own mail, sent and received, newest first.
    async fn search(&self, caller: &Agent, query: SearchQuery) -> Result<Vec<SearchHit>>;

    /// Makes some of the mail that came since findable. Answers how many messages; 0 when done.
    async fn index_mail(&self) -> Result<u64>;

    // Groups. A group is written to by its name, as an agent is, by its members: `send` with the group's name as `to`. The
    // session is the group's of that subject; each other member gets a copy, with a receipt of its own.

    /// Makes a group whose owner, and first member, is the caller.
    async fn create_group(&self, caller: &Agent, name: &AgentName, now: Timestamp) -> Result<Group>;

    /// The groups that the caller is in or was invited to.
    async fn groups(&self, caller: &Agent) -> Result<Vec<Group>>;

    /// Invites an agent that the caller, the group's owner, is connected with. `conflict` where the group is full
    /// ([`amb_core::limits::MAX_GROUP_MEMBERS`]).
    async fn invite_to_group(
        &self,
        caller: &Agent,
        group: &AgentName,
        agent: &AgentName,
        now: Timestamp,
    ) -> Result<Written<Group>>;

    /// Takes an agent out of a group of the caller's, or its invitation back.
    async fn remove_from_group(&self, caller: &Agent, group: &AgentName, agent: &AgentName) -> Result<Group>;

    /// Agrees to an invitation (`true`), or leaves a group or declines (`false`). When its owner leaves, the group is the
    /// member's that registered first; without a member it is over, and its name stays taken.
    async fn join_group(&self, caller: &Agent, group: &AgentName, joined: bool, now: Timestamp) -> Result<Group>;

    // Keeping it.

    /// Removes some of the messages that all recipients read before this moment, never the newest of a session or one that
    /// brought a task that is not done. Looks at a few hundred after `from`; a round begins without it, and goes on with
    /// the answer's `next` until there is none.
    async fn remove_read_mail(&self, before: Timestamp, from: Option<ReadPlace>) -> Result<Removed>;

    /// A page of the caller's mail, sent and received, session by session; empty at the end.
    async fn export(&self, caller: &Agent, query: ExportQuery) -> Result<Vec<MessageWithReceipts>>;
}

//! The store's verbs on PostgreSQL.

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

use super::batch::Outcome;
use super::error::unavailable;
use super::once::once;
use super::transact::{InUse, PATIENCE, transact};
use super::{
    PostgresStore, agents, connect, consent, directory, group_list, groups, household, inbox, keep, log, open, prune,
    receipts, replicas, search, tasks, transcripts, usage,
};
use crate::error::Result;
use crate::outgoing::{self, OutgoingMessage, message_uuid, session_uuid};
use crate::query::{AgentsPage, ExportQuery, Handed, InboxPage, MessageQuery, ProfilePatch, ReadPlace, Removed};
use crate::replicas::{Astray, Charge, Charged, Hint, Replicas, Seated};
use crate::store::Store;
use crate::tasks::task_uuid;
use crate::types::{Agent, AgentKey, Ask, Crossing, KeyHash, NewAgent, NewKey, Written, to_micros};
use crate::{StoreError, words};

/// How long a key is believed without asking: the time within which a revocation by another process is felt.
const BELIEVED: Duration = Duration::from_secs(1);

/// Runs a look at the database, and gives up on one that does not answer.
macro_rules! look {
    ($store:expr, $client:ident => $body:expr) => {{
        let client = InUse::new($store.client().await?);
        let $client: &deadpool_postgres::Object = &client;
        match tokio::time::timeout(PATIENCE, $body).await {
            Ok(seen) => {
                client.finished();
                seen.map_err(StoreError::from)
            }
            Err(_) => Err(unavailable()),
        }
    }};
}

impl PostgresStore {
    /// Sends a letter.
    async fn post(&self, caller: &Agent, letter: OutgoingMessage) -> Result<Written<Sent>> {
        let outcome = match self.lane.send(caller.clone(), letter).await? {
            Outcome::NoAgent(letter) => transact!(self, tx => groups::send(&tx, &self.account, caller, &letter, None))?,
            outcome => outcome,
        };
        Ok(match outcome {
            Outcome::Repeat(sent) => Written::quiet(sent),
            Outcome::NoAgent(letter) => return Err(words::not_connected(&letter.to)),
            Outcome::Placed(placed) => {
                let (letter, placed) = *placed;
                self.told(letter.into_written(placed))
            }
        })
    }
}

#[async_trait]
impl Store for PostgresStore {
    async fn ready(&self) -> Result<()> {
        open::ready(self).await
    }

    async fn close(&self) {
        self.shut().await;
    }

    fn hints(&self) -> Option<broadcast::Receiver<Hint>> {
        Some(self.subscribe())
    }

    async fn hint(&self, grown: &[(AgentKey, u64)]) -> Result<()> {
        look!(self, client => replicas::hint(client, self.me, grown))
    }

    async fn heartbeat(&self, hears: bool) -> Result<Replicas> {
        look!(self, client => replicas::heartbeat(client, self.me, hears))
    }

    async fn charge(&self, charges: &[Charge]) -> Result<Vec<Charged>> {
        look!(self, client => replicas::charge(client, charges))
    }

    async fn forgive(&self) -> Result<()> {
        look!(self, client => replicas::forgive(client))
    }

    async fn astray(&self, seated: &[Seated], now: Timestamp) -> Result<Vec<Astray>> {
        look!(self, client => replicas::astray(client, seated, now))
    }

    fn set_quotas(&self, quotas: Quotas) {
        self.account.set_quotas(quotas);
    }

    async fn office_usage(&self) -> Result<Usage> {
        let stored = look!(self, client => usage::office(client))?;
        self.account.set_office(stored);
        Ok(stored.usage())
    }

    async fn register_agent(&self, new: NewAgent, now: Timestamp) -> Result<Written<Agent>> {
        words::check_agent(&new)?;
        let now = to_micros(now);
        Ok(transact!(self, tx => agents::register(&tx, &new, now))?)
    }

    async fn agent_by_key_hash(&self, hash: KeyHash, now: Timestamp) -> Result<Option<Agent>> {
        let age = match self.known.get(&hash, now) {
            Ok(agent) => return Ok(Some(agent)),
            Err(age) => age,
        };
        let found = look!(self, client => agents::by_key(client, hash, now))?;
        Ok(found.map(|(agent, until)| {
            let believed = now.saturating_add(BELIEVED).unwrap_or(now);
            self.known.remember(age, hash, &agent, Some(until.map_or(believed, |until| until.min(believed))));
            agent
        }))
    }

    async fn agent_by_name(&self, name: &AgentName) -> Result<Option<Agent>> {
        look!(self, client => agents::by_name(client, name))
    }

    async fn has_household(&self) -> Result<bool> {
        look!(self, client => household::is_founded(client))
    }

    async fn found_household(&self, owner: KeyHash, only_first: bool, now: Timestamp) -> Result<Option<Uuid>> {
        let now = to_micros(now);
        Ok(transact!(self, tx => household::found(&tx, owner, only_first, now))?)
    }

    async fn renew_household(&self, member: &AgentName, owner: KeyHash, now: Timestamp) -> Result<()> {
        let now = to_micros(now);
        Ok(transact!(self, tx => household::renew(&tx, member, owner, now))?)
    }

    async fn household(&self, caller: &Agent, now: Timestamp) -> Result<Household> {
        look!(self, client => household::household(client, caller, now))
    }

    async fn add_machine(&self, caller: &Agent, label: &str, token: KeyHash, now: Timestamp) -> Result<Machine> {
        words::check_text("label", Some(label))?;
        let now = to_micros(now);
        Ok(transact!(self, tx => household::add_machine(&tx, caller, label, token, now))?)
    }

    async fn revoke_machine(&self, caller: &Agent, id: Uuid, now: Timestamp) -> Result<Written<()>> {
        let now = to_micros(now);
        Ok(transact!(self, tx => household::revoke_machine(&tx, caller, id, now))?)
    }

    async fn leave_household(&self, caller: &Agent, member: &AgentName, now: Timestamp) -> Result<Written<()>> {
        let now = to_micros(now);
        Ok(transact!(self, tx => household::leave(&tx, caller, member, now))?)
    }

    async fn request_connection(
        &self,
        caller: &Agent,
        mut ask: Ask,
        now: Timestamp,
    ) -> Result<Written<ConnectionRequested>> {
        words::check_text("message", ask.intro.as_deref())?;
        ask.expires_at = ask.expires_at.map(to_micros);
        let now = to_micros(now);
        Ok(transact!(self, tx => once(&tx, caller, now, connect::request(&tx, caller, &ask, now)))?)
    }

    async fn approve_connection(&self, caller: &Agent, code: &str, now: Timestamp) -> Result<Written<Connected>> {
        if code.contains('\0') {
            return Err(words::no_code());
        }
        let now = to_micros(now);
        Ok(transact!(self, tx => once(&tx, caller, now, connect::approve(&tx, caller, code, now)))?)
    }

    async fn accept_connection(&self, caller: &Agent, from: &AgentName, now: Timestamp) -> Result<Written<Connected>> {
        let now = to_micros(now);
        Ok(transact!(self, tx => connect::accept(&tx, caller, from, now))?)
    }

    async fn send(&self, caller: &Agent, draft: Draft, now: Timestamp) -> Result<Written<Sent>> {
        self.post(caller, OutgoingMessage::new(&caller.name, draft, now)?).await
    }

    async fn carry(&self, caller: &Agent, draft: Draft, crossing: Crossing, now: Timestamp) -> Result<Written<Sent>> {
        self.post(caller, OutgoingMessage::carried(&caller.name, draft, crossing, now)?).await
    }

    async fn inbox_page(&self, caller: &Agent, page: InboxPage, now: Timestamp) -> Result<Inbox> {
        look!(self, client => inbox::inbox(client, caller, &page, now))
    }

    async fn history(
        &self,
        caller: &Agent,
        session: &SessionId,
        page: HistoryPage,
        now: Timestamp,
    ) -> Result<Written<History>> {
        let session = session_uuid(session)?;
        let (history, unread) = look!(self, client => inbox::history(client, caller, session, &page))?;
        if unread.is_empty() {
            return Ok(Written::quiet(history));
        }
        let now = to_micros(now);
        let news = transact!(self, tx => inbox::mark_read(&tx, caller, &unread, now))?;
        Ok(Written { answer: history, news })
    }

    async fn events(&self, agent: AgentKey, since: u64, limit: usize) -> Result<Vec<Entry>> {
        look!(self, client => log::entries(client, agent.0, since, limit))
    }

    async fn event_head(&self, agent: AgentKey) -> Result<u64> {
        look!(self, client => log::head(client, agent.0))
    }

    async fn resume(&self, agent: AgentKey, since: u64) -> Result<u64> {
        look!(self, client => log::resume(client, agent.0, since))
    }

    async fn prune(&self, before: Timestamp) -> Result<u64> {
        let before = to_micros(before);
        Ok(transact!(self, tx => prune::prune(&tx, before))?)
    }

    async fn agents(&self, caller: &Agent, page: AgentsPage, now: Timestamp) -> Result<Vec<AgentEntry>> {
        look!(self, client => directory::agents(client, caller, &page, now))
    }

    async fn agent(&self, caller: &Agent, name: &AgentName, now: Timestamp) -> Result<AgentEntry> {
        look!(self, client => directory::agent(client, caller, name, now))
    }

    async fn profile(&self, caller: &Agent, now: Timestamp) -> Result<Profile> {
        look!(self, client => directory::profile(client, &self.account, caller, now))
    }

    async fn update_profile(&self, caller: &Agent, patch: ProfilePatch, now: Timestamp) -> Result<Profile> {
        Ok(transact!(self, tx => directory::update_profile(&tx, &self.account, caller, patch.clone(), now))?)
    }

    async fn seen(&self, agents: &[AgentKey], now: Timestamp) -> Result<()> {
        let now = to_micros(now);
        Ok(transact!(self, tx => directory::seen(&tx, agents, true, now))?)
    }

    async fn leave(&self, caller: &Agent, now: Timestamp) -> Result<()> {
        let now = to_micros(now);
        Ok(transact!(self, tx => directory::seen(&tx, &[caller.key], false, now))?)
    }

    async fn rotate_key(
        &self,
        caller: &Agent,
        shown: KeyHash,
        new: NewKey,
        old_until: Option<Timestamp>,
        now: Timestamp,
    ) -> Result<()> {
        let until = old_until.map(to_micros);
        let _forgets = self.known.forget_afterwards();
        Ok(transact!(self, tx => directory::rotate_key(&tx, caller, shown, &new, until, now))?)
    }

    async fn issue_key(&self, name: &AgentName, new: NewKey) -> Result<Agent> {
        let _forgets = self.known.forget_afterwards();
        Ok(transact!(self, tx => directory::issue_key(&tx, name, &new))?)
    }

    async fn delete_agent(&self, caller: &Agent, shown: KeyHash, now: Timestamp) -> Result<Written<()>> {
        let now = to_micros(now);
        let _forgets = self.known.forget_afterwards();
        let gone = transact!(self, tx => directory::delete_agent(&tx, caller, shown, now))?;
        Ok(self.told(gone))
    }

    async fn connections(&self, caller: &Agent, _now: Timestamp) -> Result<Vec<Connection>> {
        look!(self, client => consent::connections(client, caller))
    }

    async fn pending_connections(&self, caller: &Agent, now: Timestamp) -> Result<Vec<PendingConnection>> {
        look!(self, client => inbox::pending(client, caller, now))
    }

    async fn change_connection(
        &self,
        caller: &Agent,
        peer: &AgentName,
        change: ConnectionChange,
        now: Timestamp,
    ) -> Result<Written<Connection>> {
        let now = to_micros(now);
        Ok(transact!(self, tx => consent::change(&tx, caller, peer, change, now))?)
    }

    async fn expire_connections(&self, now: Timestamp) -> Result<Written<u64>> {
        let now = to_micros(now);
        Ok(transact!(self, tx => consent::expire(&tx, now))?)
    }

    async fn message(&self, caller: &Agent, id: &MessageId) -> Result<MessageWithReceipts> {
        let id = message_uuid(id)?;
        look!(self, client => receipts::message(client, caller, id))
    }

    async fn messages(&self, caller: &Agent, query: MessageQuery) -> Result<MessagePage> {
        look!(self, client => receipts::messages(client, caller, &query))
    }

    async fn ack(&self, caller: &Agent, ids: &[MessageId], now: Timestamp) -> Result<Written<u64>> {
        let now = to_micros(now);
        Ok(transact!(self, tx => receipts::ack(&tx, caller, ids, now))?)
    }

    async fn delivered(&self, caller: &Agent, after: u64, up_to: u64, now: Timestamp) -> Result<Written<Handed>> {
        let now = to_micros(now);
        Ok(transact!(self, tx => receipts::delivered(&tx, caller, after, up_to, now))?)
    }

    async fn claim(&self, caller: &Agent, request: ClaimRequest, now: Timestamp) -> Result<Written<Vec<Message>>> {
        let now = to_micros(now);
        Ok(transact!(self, tx => receipts::claim(&tx, caller, &request, now))?)
    }

    async fn release(&self, caller: &Agent, ids: &[MessageId]) -> Result<()> {
        Ok(transact!(self, tx => receipts::release(&tx, caller, ids))?)
    }

    async fn renew(&self, caller: &Agent, ids: &[MessageId], lease: Duration, now: Timestamp) -> Result<()> {
        let now = to_micros(now);
        Ok(transact!(self, tx => receipts::renew(&tx, caller, ids, lease, now))?)
    }

    async fn send_all(
        &self,
        caller: &Agent,
        to: &[AgentName],
        draft: Draft,
        now: Timestamp,
    ) -> Result<Written<Vec<Sent>>> {
        let caller = &outgoing::under_key_of(caller.clone(), to, &draft)?;
        let sent = transact!(self, tx => once(&tx, caller, to_micros(now), async {
            let sent = groups::send_all(&tx, &self.account, caller, to, &draft, now).await?;
            Ok(Written::gather(sent.into_iter().map(|(letter, placed)| letter.into_written(placed))))
        }))?;
        Ok(self.told(sent))
    }

    async fn tasks(&self, caller: &Agent, filter: TaskFilter, limit: u32) -> Result<Vec<Task>> {
        look!(self, client => tasks::list(client, caller, &filter, limit))
    }

    async fn task(&self, caller: &Agent, id: &TaskId) -> Result<Task> {
        let id = task_uuid(id)?;
        let found = look!(self, client => tasks::find(client, caller.key.0, id))?;
        found.task(caller.key.0)
    }

    async fn task_chain(&self, caller: &Agent, id: &TaskId) -> Result<Vec<ChainTask>> {
        let id = task_uuid(id)?;
        look!(self, client => tasks::chain(client, caller, id))
    }

    async fn set_task_state(
        &self,
        caller: &Agent,
        id: &TaskId,
        state: TaskState,
        note: Option<String>,
        now: Timestamp,
    ) -> Result<Written<Task>> {
        words::check_text("note", note.as_deref())?;
        let (id, now) = (task_uuid(id)?, to_micros(now));
        let moved = transact!(self, tx => once(&tx, caller, now, tasks::set_state(&tx, caller, id, state, note.as_deref(), now)))?;
        Ok(self.told(moved))
    }

    async fn sweep_overdue(&self, now: Timestamp) -> Result<Written<u64>> {
        let now = to_micros(now);
        Ok(transact!(self, tx => tasks::sweep_overdue(&tx, now))?)
    }

    async fn transcript_append(
        &self,
        caller: &Agent,
        owner: Option<&AgentName>,
        key: &TranscriptKey,
        line: Line,
        now: Timestamp,
    ) -> Result<Appended> {
        words::check_text("message_id", line.message_id.as_deref())?;
        let now = to_micros(now);
        let written = transact!(self, tx => once(&tx, caller, now, async {
            transcripts::append(&tx, &self.account, caller, owner, key, &line, now).await.map(Written::quiet)
        }))?;
        Ok(written.answer)
    }

    async fn transcript_recent(
        &self,
        caller: &Agent,
        owner: Option<&AgentName>,
        key: &TranscriptKey,
        limit: usize,
    ) -> Result<Vec<NumberedLine>> {
        look!(self, client => transcripts::recent(client, caller, owner, key, limit))
    }

    async fn transcript_after(
        &self,
        caller: &Agent,
        owner: Option<&AgentName>,
        key: &TranscriptKey,
        after: u64,
        limit: usize,
    ) -> Result<Vec<NumberedLine>> {
        look!(self, client => transcripts::after(client, caller, owner, key, after, limit))
    }

    async fn transcript_share(
        &self,
        caller: &Agent,
        key: &TranscriptKey,
        with: &AgentName,
        access: Option<Access>,
        _now: Timestamp,
    ) -> Result<()> {
        Ok(transact!(self, tx => transcripts::share(&tx, caller, key, with, access))?)
    }

    async fn search(&self, caller: &Agent, query: SearchQuery) -> Result<Vec<SearchHit>> {
        look!(self, client => search::search(client, caller, &query))
    }

    async fn index_mail(&self) -> Result<u64> {
        self.index_next().await
    }

    async fn create_group(&self, caller: &Agent, name: &AgentName, now: Timestamp) -> Result<Group> {
        let now = to_micros(now);
        let written = transact!(self, tx => once(&tx, caller, now, async {
            groups::create(&tx, caller, name, now).await.map(Written::quiet)
        }))?;
        Ok(written.answer)
    }

    async fn groups(&self, caller: &Agent) -> Result<Vec<Group>> {
        look!(self, client => group_list::groups(client, caller))
    }

    async fn invite_to_group(
        &self,
        caller: &Agent,
        group: &AgentName,
        agent: &AgentName,
        now: Timestamp,
    ) -> Result<Written<Group>> {
        let invited = transact!(self, tx => once(&tx, caller, to_micros(now), groups::invite(&tx, &self.account, caller, group, agent, now)))?;
        Ok(self.told(invited))
    }

    async fn remove_from_group(&self, caller: &Agent, group: &AgentName, agent: &AgentName) -> Result<Group> {
        Ok(transact!(self, tx => groups::remove(&tx, caller, group, agent))?)
    }

    async fn join_group(&self, caller: &Agent, group: &AgentName, joined: bool, _now: Timestamp) -> Result<Group> {
        Ok(transact!(self, tx => groups::join(&tx, caller, group, joined))?)
    }

    async fn remove_read_mail(&self, before: Timestamp, from: Option<ReadPlace>) -> Result<Removed> {
        let before = to_micros(before);
        Ok(transact!(self, tx => keep::remove_read_mail(&tx, before, from))?)
    }

    async fn export(&self, caller: &Agent, query: ExportQuery) -> Result<Vec<MessageWithReceipts>> {
        let after = query.after.as_ref().map(message_uuid).transpose()?;
        look!(self, client => keep::export(client, caller, after, query.since, query.limit))
    }
}

impl PostgresStore {
    /// Notes whose logs have new mail, for search.
    fn told<T>(&self, written: Written<T>) -> Written<T> {
        for news in &written.news {
            self.unindexed.add(news.agent);
        }
        written
    }
}
